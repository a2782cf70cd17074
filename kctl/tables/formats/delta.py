"""Delta tables through deltalake.

A batch is one version of the table: it adds the files and sets an application transaction with the batch number, and
one with the offset of every partition.  The version is created only if no other exporter has created it, so two
exporters cannot publish the same offsets.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from kctl.errors import UsageError
from kctl.tables.exec.outcome import WrittenFile
from kctl.tables.exec.schema.arrow_types import has_columns, held_columns
from kctl.tables.exec.selection.laid_out import record_schema
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.targets.files import Files
from kctl.tables.formats.delta_log import (
    BATCH_ID,
    app_transactions,
    information_of,
    is_based_on,
    is_batch_of,
    positions_in,
    transactions_of,
)
from kctl.tables.formats.partition_columns import with_partition_columns
from kctl.tables.formats.table import (
    DEAD_LETTER_BYTES,
    DEAD_LETTERS,
    LOST,
    Conflict,
    Replacement,
    TableCommit,
    TableFailed,
    TableState,
)
from kctl.tables.plans.plan import HeldColumns

BATCH = "kctl.batch"
COMPACTION = "kctl.compaction"
REWRITABLE_WRITER_VERSION = 4
REWRITABLE_FEATURES = frozenset({"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"})
"""Features of tables that do not matter for a version that changes no rows; writer versions up to 4 have only these."""
HOUR_MS = 3_600_000
CHECKPOINT_VERSIONS = 100
"""Between checkpoints of versions that are not written by deltalake, which makes its own."""
STATISTICS = ("partition", "offset")
"""Columns whose minimum and maximum enter the log, so that readers skip files."""
MESSAGE_CHARACTERS_MAX = 500
"""The length of a store's error in a message."""


class _HeldFile(NamedTuple):
    """A data file in the log of a table."""

    name: str
    """Its path as the log has it, with escaped characters."""
    size: int
    partition: dict[str, str | None]


class DeltaLakeTable:
    """The table in one directory of a target."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._url = f"{files.location}/{directory}".rstrip("/")
        self._table: DeltaTable | None = None

    @property
    def name(self) -> str:
        """The directory of the table in the target."""
        return self._directory or "."

    @property
    def metadata(self) -> str:
        """See Table."""
        return f"{self._url}/_delta_log"

    def state(self) -> TableState | None:
        """See Table.  Raises UsageError for a table that is not an export."""
        with self._failures():
            self._table = self._load()
            if self._table is None:
                return None
            table = self._table
            transactions = app_transactions(self._files, self._directory, table.version())
            if BATCH_ID not in transactions:
                raise UsageError(f"{self._url} is a Delta table that was not created by an export")
            batch = transactions[BATCH_ID]
            is_latest = is_batch_of(self._files, self._directory, table.version(), batch)
            columns = record_schema(_arrow_schema(table))
            held = HeldColumns(held_columns(columns, "key"), held_columns(columns, "value"))
            information = information_of(self._files, self._directory, table.version()) if is_latest else {}
            return TableState(
                batch,
                positions_in(transactions),
                columns.names,
                held,
                is_latest,
                json.loads(information.get(DEAD_LETTERS, "[]")),
                json.loads(information.get(DEAD_LETTER_BYTES, "[]")),
                has_lost=information.get(LOST, "0") != "0",
                has_rows=is_latest or is_based_on(self._files, self._directory, table.version(), batch),
            )

    def paths(self) -> set[str]:
        """Return the data files of the version that was read last, relative to the table."""
        if self._table is None:
            return set()
        with self._failures():
            # Where the library found the table: without symbolic links and `..`, and with escaped characters.
            prefix = f"{self._table.table_uri.removeprefix('file://').rstrip('/')}/"
            return {uri.removeprefix(prefix) for uri in self._table.file_uris()}

    def file_set(self) -> None:
        """See Table; `sizes` is fast."""

    def committed_ms(self) -> int | None:
        """See Table."""
        with self._failures():
            entries = self._table.history(1) if self._table else []
        return entries[0].get("timestamp") if entries else None

    def has_row_deletes(self) -> bool:
        """Return whether the table may have deletion vectors."""
        if self._table is None:
            return False
        with self._failures():
            return "deletionVectors" in (self._table.protocol().reader_features or ())

    def sizes(self) -> dict[str, int]:
        """See Table."""
        if self._table is None:
            return {}
        with self._failures():
            actions = pa.table(self._table.get_add_actions(flatten=True))
        paths = map(unquote, actions["path"].to_pylist())
        return dict(zip(paths, actions["size_bytes"].to_pylist(), strict=True))

    def partitions(self) -> dict[str, str]:
        """See Table."""
        return {path: repr(sorted(file.partition.items())) for path, file in self._held().items()}

    def replace(self, replacements: Sequence[Replacement]) -> None:
        """See Table.

        The version is written here: of two compactions with deltalake at once both succeed, and rows are there twice.
        """
        assert self._table is not None
        self._check_rewritable(self._table)
        is_append_only = self._table.metadata().configuration.get("delta.appendOnly") == "true"
        if is_append_only and any(replacement.is_change for replacement in replacements):
            raise TableFailed(
                f"table {self.name} has the property delta.appendOnly, and rows of it would get columns that later "
                "files have: set the property to false for the compaction"
            )
        held = self._held()
        now_ms = time.time_ns() // 1_000_000
        actions: list[dict[str, Any]] = []
        for removed, merged, is_change in replacements:
            sources = [held[path] for path in removed]
            actions += [_remove(source, now_ms, is_change=is_change) for source in sources]
            if merged is not None:
                actions.append(self._add(merged, sources[0].partition, now_ms, is_change=is_change))
        operation = "OPTIMIZE" if all(replacement.merged for replacement in replacements) else "DELETE"
        self._write_version(operation, {COMPACTION: "true"}, actions, now_ms)

    def expire(self, before_ms: int, *, is_dry_run: bool) -> int:
        """Return 0: versions expire with their log, by the properties of the table."""
        return 0

    def used(self, before_ms: int) -> set[str]:
        """See Table.  Versions after a time have the files that were removed since then."""
        if self._table is None:
            return set()
        hours = max((time.time_ns() // 1_000_000 - before_ms) // HOUR_MS, 0)
        with self._failures():
            unused = self._table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        prefix = f"{self._directory}/" if self._directory else ""
        gone = {unquote(path) for path in unused}
        return {path.removeprefix(prefix) for path in self._files.sizes(self._directory)} - gone

    def _commit_changes(self, commit: TableCommit, properties: Mapping[str, str]) -> None:
        """Publish a batch whose files replace others.

        The version is written here: deltalake replaces all files of a table or partition.
        """
        assert self._table is not None
        self._check_rewritable(self._table)
        held = self._held()
        if not held.keys() >= set(commit.removed):
            raise Conflict
        now_ms = time.time_ns() // 1_000_000
        transactions = {BATCH_ID: commit.batch, **transactions_of(commit.topics)}
        actions: list[dict[str, Any]] = [
            {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}
            for app_id, version in transactions.items()
        ]
        actions += [_remove(held[path], now_ms, is_change=True) for path in commit.removed]
        actions += [self._add(file, {}, now_ms, is_change=True) for file in commit.files]
        version = self._write_version("MERGE", properties, actions, now_ms)
        if version % CHECKPOINT_VERSIONS == 0:
            self._table.update_incremental()
            self._table.create_checkpoint()

    def _write_version(
        self, operation: str, properties: Mapping[str, str], actions: Sequence[dict[str, Any]], now_ms: int
    ) -> int:
        """Write the version after that which was read last; return it.  Raises Conflict if it exists."""
        assert self._table is not None
        base = self._table.version()
        information = {
            "timestamp": now_ms,
            "operation": operation,
            "operationParameters": {},
            "readVersion": base,
            "isBlindAppend": False,
            **properties,
        }
        lines = [{"commitInfo": information}, *actions]
        data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        path = f"{self._directory}/_delta_log/{base + 1:020}.json".lstrip("/")
        # A store repeats a request whose answer was lost, and then finds the object that it has created itself.
        if not self._files.create(path, data) and self._files.read(path) != data:
            raise Conflict
        return base + 1

    def _add(
        self, file: WrittenFile, partition: Mapping[str, str | None], now_ms: int, *, is_change: bool
    ) -> dict[str, Any]:
        return {
            "add": {
                "path": file.path,
                "partitionValues": partition,
                "size": file.size,
                "modificationTime": now_ms,
                "dataChange": is_change,
                "stats": json.dumps(self._statistics(file)),
            }
        }

    def _check_rewritable(self, table: DeltaTable) -> None:
        """Raise TableFailed for a table with features that a compaction would have to know."""
        protocol = table.protocol()
        unknown = sorted(set(protocol.writer_features or ()) - REWRITABLE_FEATURES)
        if unknown or (protocol.writer_features is None and protocol.min_writer_version > REWRITABLE_WRITER_VERSION):
            features = ", ".join(unknown) or f"writer version {protocol.min_writer_version}"
            raise TableFailed(f"table {self.name} has features for which it must be compacted with Spark: {features}")

    def _held(self) -> dict[str, _HeldFile]:
        """Return the data files of the version that was read last, by their paths relative to the table."""
        if self._table is None:
            return {}
        with self._failures():
            rows = pa.table(self._table.get_add_actions(flatten=False)).to_pylist()
        return {
            unquote(row["path"]): _HeldFile(
                row["path"],
                row["size_bytes"],
                {name: _partition_text(value) for name, value in (row.get("partition") or {}).items()},
            )
            for row in rows
        }

    def commit(self, commit: TableCommit) -> None:
        """See Table."""
        with self._failures():
            schema = Schema.from_arrow(with_partition_columns(commit.schema, commit.partition_by))
            partition_columns = list(commit.partition_by.columns)
            metadata = {**commit.properties, BATCH: str(commit.batch), **commit.letter_properties}
            properties = CommitProperties(
                custom_metadata=metadata,
                max_commit_retries=0,  # a retry would be based on another version
                app_transactions=[
                    Transaction(BATCH_ID, commit.batch),
                    *(Transaction(app_id, version) for app_id, version in transactions_of(commit.topics).items()),
                ],
            )
            actions = [self._action(file, commit.partition_by) for file in commit.files]
            if self._table is None:
                self._create(schema, actions, partition_columns, properties)
                return
            self._add_columns(schema, with_partition_columns(commit.schema, commit.partition_by))
            if commit.removed:
                self._commit_changes(commit, metadata)
                return
            try:
                self._table.create_write_transaction(
                    [*actions], "append", schema, partition_columns, commit_properties=properties
                )
            except CommitFailedError as error:
                raise Conflict from error

    def _create(
        self, schema: Schema, actions: list[AddAction], partition_columns: list[str], properties: CommitProperties
    ) -> None:
        try:
            create_table_with_add_actions(
                self._url,
                schema,
                actions,
                mode="error",
                partition_by=partition_columns,
                storage_options=_storage_options(),
                commit_properties=properties,
            )
        except DeltaError as error:
            if self._load() is None:
                raise
            raise Conflict from error

    def _add_columns(self, schema: Schema, columns: pa.Schema) -> None:
        """Add missing columns, in a version of their own; a run that is interrupted here has changed no rows."""
        assert self._table is not None
        present = _arrow_schema(self._table)
        missing = [field for field in schema.fields if not has_columns(present, pa.schema([columns.field(field.name)]))]
        if missing:
            try:
                self._table.alter.add_columns(missing, commit_properties=CommitProperties(max_commit_retries=0))
            except CommitFailedError as error:
                raise Conflict from error
            if self._table.version() is not None:
                self._table.update_incremental()

    def _load(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._url, storage_options=_storage_options())
        except TableNotFoundError:
            return None

    def _action(self, file: WrittenFile, partition_by: Partitioning) -> AddAction:
        return AddAction(
            path=file.path,
            size=file.size,
            partition_values=dict(zip(partition_by.columns, file.partition, strict=True)),
            modification_time=0,
            data_change=True,
            stats=json.dumps(self._statistics(file)),
        )

    def _statistics(self, file: WrittenFile) -> dict[str, Any]:
        path = f"{self._directory}/{file.path}".lstrip("/")
        with self._files.open(path) as opened:
            metadata = pq.read_metadata(opened)
        chunks = [
            {metadata.row_group(group).column(column).path_in_schema: metadata.row_group(group).column(column)}
            for group in range(metadata.num_row_groups)
            for column in range(metadata.num_columns)
        ]
        lows: dict[str, int] = {}
        highs: dict[str, int] = {}
        for name in STATISTICS:
            statistics = [chunk[name].statistics for chunk in chunks if name in chunk]
            lows[name] = min(statistic.min for statistic in statistics)
            highs[name] = max(statistic.max for statistic in statistics)
        nulls = dict.fromkeys(STATISTICS, 0)
        return {"numRecords": file.records, "minValues": lows, "maxValues": highs, "nullCount": nulls}

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise TableFailed for errors of deltalake."""
        try:
            yield
        except (DeltaError, OSError) as error:
            raise TableFailed(f"table {self._url}: {_in_one_line(error)}") from error


def _remove(file: _HeldFile, now_ms: int, *, is_change: bool) -> dict[str, Any]:
    return {
        "remove": {
            "path": file.name,
            "deletionTimestamp": now_ms,
            "dataChange": is_change,
            "extendedFileMetadata": True,
            "partitionValues": file.partition,
            "size": file.size,
        }
    }


def _partition_text(value: Any) -> str | None:
    """Return the value of a partition column as the log has it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _storage_options() -> dict[str, str]:
    """Options beside the variables of the environment, which the library reads."""
    if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        return {"allow_http": "true"}
    return {}


_CAUSE_MARK = re.compile(r"\x1b\[\d*m|↳")
"""Before each cause in messages of deltalake, with colours."""


def _in_one_line(error: Exception) -> str:
    """Return the error and its causes, each of which deltalake writes on a line of its own, without the body of a
    response.
    """
    lines = [_CAUSE_MARK.sub("", line).strip() for line in str(error).splitlines()]
    causes = [line for line in lines if line and not line.startswith("<")]
    return ": ".join(causes)[:MESSAGE_CHARACTERS_MAX] or type(error).__name__

"""Iceberg tables through pyiceberg.

A batch is one commit of the catalogue: a snapshot that adds the files, and the table properties `kctl.batch` and
`kctl.positions`, which outlive the expiry of snapshots.  The summary of the snapshot contains the same.  A batch
without files is an empty snapshot.  The catalogue accepts a commit only if the current snapshot is still the one that
the commit is based on, so two exporters cannot publish the same offsets.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow.fs import AwsStandardS3RetryStrategy
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import S3_RETRY_STRATEGY_IMPL, FileIO
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from kctl.errors import UsageError
from kctl.tables.commits.commit_json import topics_from_json, topics_to_json
from kctl.tables.exec.schema.arrow_types import has_columns, held_columns
from kctl.tables.exec.selection.laid_out import record_schema
from kctl.tables.formats.iceberg_catalogs import (
    EXPIRED_AT_ONCE_MAX,
    RETENTION,
    catalog_failure,
    expiry_before,
    expiry_of,
    remove_files,
)
from kctl.tables.formats.iceberg_fields import partition_fields, partition_value, source_columns
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
from kctl.tables.plans.path_set import NO_PATHS, PathSet, sized
from kctl.tables.plans.plan import HeldColumns

if TYPE_CHECKING:
    from pyiceberg.table import Table as CatalogTable

BATCH = "kctl.batch"
POSITIONS = "kctl.positions"
COMPACTION = "kctl.compaction"
FILES = "kctl.files"
"""Number and digest of all data files with their sizes, so that the next export does not read the manifests."""
PARTITION_INDEX, SORT_ORDER_INDEX = 3, 15
"""Of DataFile, which is a record."""
DEFAULT_CATALOG = "kctl"
_SAME_PLACES = ((re.compile(r"^file:/+"), "/"), (re.compile(r"^s3[an]://"), "s3://"))
"""Patterns of the forms in which programs name files, and the form used here."""

logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # failures are raised


class S3Retries(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """Repeats requests to S3 as often as requests for data files are; pyarrow stops after three attempts."""

    ATTEMPTS = 6

    def __init__(self) -> None:
        super().__init__(max_attempts=self.ATTEMPTS)


MERGING = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.MANIFEST_MIN_MERGE_COUNT: "20",
    TableProperties.MANIFEST_TARGET_SIZE_BYTES: str(128 << 10),
}
"""Properties that tables get unless they have them.  Otherwise each batch adds a manifest, and reading a manifest costs
several milliseconds, so that the batches of a day would make an increment ten times as expensive.  A manifest of the
target size is not merged again, so that merging costs the same in a table of many files."""
CREATED = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",  # of all but the last 100 commits
    **RETENTION,
}
"""Properties of new tables."""


class ExportTransaction(Transaction):
    """A transaction whose metadata is computed once per update: it is a deep copy, with all snapshots of the table.

    Its snapshots are never older than the table was last updated, also if the clock was set back: Iceberg's library in
    Java cannot load a table whose log of snapshots goes back by more than a minute (TableMetadata).
    """

    def __init__(self, table: CatalogTable) -> None:
        super().__init__(table)
        self._computed: tuple[object, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata after the updates so far."""
        if self._computed is None or self._computed[0] is not self._updates:
            self._computed = self._updates, super().table_metadata
        return self._computed[1]

    def commit_transaction(self) -> CatalogTable:
        """See Transaction."""
        last_ms = self._table.metadata.last_updated_ms
        self._updates = tuple(_after(last_ms, update) for update in self._updates)
        return super().commit_transaction()


def _after(last_ms: int, update: TableUpdate) -> TableUpdate:
    """Return the update, whose snapshot, if it has one, is younger than `last_ms`."""
    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.timestamp_ms > last_ms:
        return update
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": last_ms + 1}))


class IcebergTable:
    """One table of a catalogue, at a given location."""

    def __init__(self, open_catalog: Callable[[], Catalog | None], identifier: tuple[str, ...], location: str) -> None:
        """`open_catalog` returns None as long as the catalogue has no database."""
        self._open_catalog = open_catalog
        self._identifier = identifier
        self._location = location
        self._table: CatalogTable | None = None
        self._catalog: Catalog | None = None
        self._sizes: dict[str, int] | None = None
        """The sizes of the state that was read last; None until they are needed, because that reads all manifests."""

    @property
    def name(self) -> str:
        """The identifier as text."""
        return ".".join(self._identifier)

    @property
    def metadata(self) -> str:
        """See Table."""
        return f"{self.name} in the catalogue, and {self._location}/metadata"

    def state(self) -> TableState | None:
        """See Table.  Raises UsageError for a table that is not an export, or belongs to another one."""
        with self._failures():
            self._table = None
            self._sizes = None
            self._catalog = catalog = self._open_catalog()
            if catalog is None:
                return None
            try:
                self._table = catalog.load_table(self._identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            except FileNotFoundError as error:
                raise TableFailed(
                    f"the metadata of table {self.name} is not where its catalogue says: {_one_line(error)}; restore "
                    f"{self._location}/metadata"
                ) from error
            table = self._table
            location = table.location().rstrip("/")
            if _folder(location) != _folder(self._location):
                raise UsageError(
                    f"table {self.name} of the catalogue is at {table.location()}, not at {self._location}: choose "
                    "another --namespace, or, if the folder was moved or copied, move it back (Iceberg's metadata has "
                    "absolute paths)"
                )
            self._location = location
            try:
                batch = int(table.properties[BATCH])
                topics = topics_from_json(json.loads(table.properties[POSITIONS]))
            except (KeyError, TypeError, ValueError):
                raise UsageError(f"table {self.name} was not created by an export") from None
            snapshot = table.current_snapshot()
            summary = snapshot.summary if snapshot else None
            found = summary.additional_properties if summary else {}
            is_latest = found.get(BATCH) == str(batch)
            columns = record_schema(table.schema().as_arrow())
            return TableState(
                batch,
                topics,
                columns.names,
                HeldColumns(held_columns(columns, "key"), held_columns(columns, "value")),
                is_latest,
                json.loads(found.get(DEAD_LETTERS, "[]")) if is_latest else [],
                json.loads(found.get(DEAD_LETTER_BYTES, "[]")) if is_latest else [],
                has_lost=is_latest and found.get(LOST, "0") != "0",
                has_rows=_is_based_on(table, batch),
            )

    def file_set(self) -> PathSet | None:
        """See Table."""
        snapshot = self._table.current_snapshot() if self._table else None
        text = snapshot.summary.additional_properties.get(FILES, "") if snapshot and snapshot.summary else ""
        count, _, digest = text.partition(":")
        return PathSet(int(count), int(digest, 16)) if digest else None

    def paths(self) -> set[str]:
        """Return the data files of the current snapshot, relative to the table."""
        return set(self.sizes())

    def sizes(self) -> Mapping[str, int]:
        """See Table."""
        if self._sizes is None:
            self._sizes = self._read_sizes()
        return self._sizes

    def _read_sizes(self) -> dict[str, int]:
        if self._table is None:
            return {}
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return {}
        with self._failures():
            io = self._table.io
            return {
                self._relative(entry.data_file.file_path): entry.data_file.file_size_in_bytes
                for manifest in snapshot.manifests(io)
                if manifest.content == ManifestContent.DATA
                for entry in manifest.fetch_manifest_entry(io)
                if entry.data_file.content == DataFileContent.DATA
            }

    def committed_ms(self) -> int | None:
        """See Table."""
        snapshot = self._table.current_snapshot() if self._table else None
        return snapshot.timestamp_ms if snapshot else None

    def has_row_deletes(self) -> bool:
        """Return whether the current snapshot has delete files."""
        snapshot = self._table.current_snapshot() if self._table else None
        if self._table is None or snapshot is None:
            return False
        with self._failures():
            return any(manifest.content == ManifestContent.DELETES for manifest in snapshot.manifests(self._table.io))

    def commit(self, commit: TableCommit) -> None:
        """See Table."""
        with self._failures():
            table = self._without_retries(self._table or self._create(commit))
            positions = json.dumps(topics_to_json(commit.topics), separators=(",", ":"))
            properties = {
                **commit.properties,
                **commit.letter_properties,
                BATCH: str(commit.batch),
                POSITIONS: positions,
            }
            added = {file.path: file.size for file in commit.files}
            if not self._has_files(commit.removed):
                raise Conflict
            held = self.file_set()
            held = NO_PATHS.plus(sized(self.sizes())) if held is None else held
            held = held.minus(sized({path: self.sizes()[path] for path in commit.removed})).plus(sized(added))
            properties[FILES] = f"{held.size}:{held.digest:x}"
            try:
                with ExportTransaction(table) as transaction:
                    if missing := {name: text for name, text in MERGING.items() if name not in table.properties}:
                        transaction.set_properties(missing)
                    if commit.partition_by and table.spec().is_unpartitioned():
                        with transaction.update_spec() as spec:
                            for source, transform, name in partition_fields(commit.partition_by, commit.schema):
                                spec.add_field(source, transform, name)
                    if not has_columns(table.schema().as_arrow(), commit.schema):
                        with transaction.update_schema() as update:
                            update.union_by_name(commit.schema)
                    transaction.set_properties({BATCH: str(commit.batch), POSITIONS: positions})
                    if commit.sort_by and table.sort_order().is_unsorted:
                        with transaction.update_sort_order() as order:
                            for source in source_columns(commit.schema, commit.sort_by):
                                order.asc(source, IdentityTransform(), NullOrder.NULLS_FIRST)
                    if commit.removed:
                        self._replace_files(table.io, transaction, commit, properties)
                    elif commit.partition_by.terms or commit.sort_by:
                        self._append_files(table.io, transaction, commit, properties)
                    else:
                        transaction.add_files(
                            [f"{self._location}/{file.path}" for file in commit.files],
                            snapshot_properties=properties,
                            check_duplicate_files=False,  # the paths contain the batch, which is new
                        )
                    expiry = expiry_of(transaction.table_metadata, transaction.table_metadata.last_updated_ms)
                    if expiry:
                        expire = ExpireSnapshots(transaction)
                        expire.by_ids([snapshot.snapshot_id for snapshot in expiry.expired]).commit()
                if expiry:
                    remove_files(table, expiry, self._is_in_table)
            except CommitFailedException as error:
                raise Conflict from error

    def _has_files(self, paths: Sequence[str]) -> bool:
        return not paths or self.sizes().keys() >= set(paths)

    def _replace_files(
        self, io: FileIO, transaction: Transaction, commit: TableCommit, properties: Mapping[str, str]
    ) -> None:
        """Add the files in place of those that they replace, in one snapshot."""
        _map_names(transaction)
        held = self._held()
        with transaction.update_snapshot(dict(properties)).overwrite() as overwrite:
            for path in commit.removed:
                overwrite.delete_data_file(held[path])
            for file in commit.files:
                path = f"{self._location}/{file.path}"
                added = parquet_file_to_data_file(io, transaction.table_metadata, path)
                overwrite.append_data_file(_with_order(added, transaction.table_metadata, commit))

    def _append_files(
        self, io: FileIO, transaction: Transaction, commit: TableCommit, properties: Mapping[str, str]
    ) -> None:
        """As add_files, which takes null for the value of a partition if its source is a field of a struct, and cannot
        tell the bucket of a file, nor its order.
        """
        _map_names(transaction)
        metadata = transaction.table_metadata
        terms = commit.partition_by.terms
        sources = source_columns(commit.schema, [term.path for term in terms])
        types = [metadata.schema().find_type(source) for source in sources]
        with transaction.update_snapshot(dict(properties)).merge_append() as append:
            for file in commit.files:
                path = f"{self._location}/{file.path}"
                if terms:
                    values = zip(terms, types, file.partition, strict=True)
                    partition = Record(*(partition_value(term, type_, text) for term, type_, text in values))
                    added = _data_file(io, metadata, path, partition)
                else:
                    added = parquet_file_to_data_file(io, metadata, path)
                append.append_data_file(_with_order(added, metadata, commit))

    def partitions(self) -> dict[str, str]:
        """Return the partition of each data file of the state that was read last, as text, by path."""
        with self._failures():
            return {path: repr(file.partition) for path, file in self._held().items()}

    def replace(self, replacements: Sequence[Replacement]) -> None:
        """Replace files by others with the same rows, in one snapshot.  Raises Conflict, then nothing is changed."""
        assert self._table is not None
        with self._failures():
            held = self._held()
            table = self._without_retries(self._table)
            try:
                with (
                    ExportTransaction(table) as transaction,
                    transaction.update_snapshot({COMPACTION: "true"}).overwrite() as overwrite,
                ):
                    for removed, merged, _ in replacements:
                        sources = [held[path] for path in removed]
                        for source in sources:
                            overwrite.delete_data_file(source)
                        if merged is None:
                            continue
                        path = f"{self._location}/{merged.path}"
                        added = _data_file(table.io, transaction.table_metadata, path, sources[0].partition)
                        added[SORT_ORDER_INDEX] = sources[0][SORT_ORDER_INDEX]
                        overwrite.append_data_file(added)
            except CommitFailedException as error:
                raise Conflict from error

    def expire(self, before_ms: int, *, is_dry_run: bool) -> int:
        """See Table.  The newest snapshots stay, as many as the table's property says."""
        count = 0
        with self._failures():
            while self._table is not None:
                table = self._without_retries(self._table)
                expiry = expiry_before(table.metadata, before_ms, None if is_dry_run else EXPIRED_AT_ONCE_MAX)
                if expiry is None or is_dry_run:
                    return count + (len(expiry.expired) if expiry else 0)
                try:
                    with ExportTransaction(table) as transaction:
                        expire = ExpireSnapshots(transaction)
                        expire.by_ids([snapshot.snapshot_id for snapshot in expiry.expired]).commit()
                except CommitFailedException as error:
                    raise TableFailed(f"table {self.name} was changed at the same time: repeat this") from error
                remove_files(table, expiry, self._is_in_table)
                count += len(expiry.expired)
                self.state()
        return count

    def used(self, before_ms: int) -> set[str]:
        """See Table: data files, manifests and their lists."""
        if self._table is None:
            return set()
        with self._failures():
            io = self._table.io
            found: set[str] = set()
            manifests: dict[str, ManifestFile] = {}
            for snapshot in self._table.snapshots():
                found.add(snapshot.manifest_list)
                manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(io)}
            for path, manifest in manifests.items():
                found.add(path)
                found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io)}
            return {self._relative(path) for path in found if path}

    def _held(self) -> dict[str, DataFile]:
        """Return the data files of the current snapshot by their path relative to the table."""
        tasks = self._table.scan().plan_files() if self._table else ()
        return {self._relative(task.file.file_path): task.file for task in tasks}

    def _relative(self, path: str) -> str:
        """Return the path of a data file relative to the table; as it is if it is elsewhere."""
        return _canonical(path).removeprefix(f"{_canonical(self._location)}/")

    def _is_in_table(self, path: str) -> bool:
        """Return whether a file that the metadata names is below the location of the table, also after symbolic
        links.
        """
        relative = self._relative(path)
        if "://" in relative or relative.startswith("/") or ".." in relative.split("/"):
            return False
        path, location = _canonical(path), _canonical(self._location)
        return "://" in path or os.path.realpath(path).startswith(f"{os.path.realpath(location)}/")

    def _create(self, commit: TableCommit) -> CatalogTable:
        self._catalog = catalog = self._open_catalog()
        assert catalog is not None
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(self._identifier[:-1])
        try:
            return catalog.create_table(
                self._identifier,
                schema=commit.schema,
                location=self._location,
                properties={BATCH: "-1", POSITIONS: "{}", **MERGING, **CREATED},
            )
        except TableAlreadyExistsError as error:
            raise Conflict from error

    @staticmethod
    def _without_retries(table: CatalogTable) -> CatalogTable:
        """Return the table, which does not repeat a failed commit on top of another one.

        Only this object is changed: the number of retries is a property that other programs may set in the table.
        """
        properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        return table

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise TableFailed for errors of pyiceberg, the catalogue's database or the store.

        Closes connections to the database at the end; the catalogue opens others when it is used again.
        """
        try:
            yield
        except (Conflict, UsageError, TableFailed):
            raise
        except Exception as error:
            reason = catalog_failure(error, _database(self._catalog)) or _one_line(error)
            raise TableFailed(f"table {self.name}: {reason}") from error
        finally:
            if self._catalog is not None:
                self._catalog.close()


def _map_names(transaction: Transaction) -> None:
    """Let readers find the columns of the files, which have no ids, by their names."""
    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def _folder(location: str) -> str:
    """Return the folder of a location without symbolic links and `..`; a URL of an object store as it is."""
    path = location.removeprefix("file://")
    return location if path == location else os.path.realpath(path)


def _canonical(location: str) -> str:
    """Return a location in the form that exports write; Spark writes `file:/folder` and `s3a://bucket` for the same."""
    for pattern, prefix in _SAME_PLACES:
        location = pattern.sub(prefix, location)
    return location


def _is_based_on(table: CatalogTable, batch: int) -> bool:
    """Return whether the current snapshot is that of a batch or a later one; True if the snapshots that tell have
    expired.

    A rollback selects an earlier snapshot, and does not change the properties of the table.
    """
    snapshot = table.current_snapshot()
    while snapshot is not None:
        found = snapshot.summary.additional_properties.get(BATCH) if snapshot.summary else None
        if found is not None:
            return int(found) >= batch
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return True


def _data_file(io: FileIO, metadata: TableMetadata, path: str, partition: Record) -> DataFile:
    """Return a file of this partition, which the library would compute from statistics, as far as it can."""
    spec = PartitionSpec(spec_id=metadata.default_spec_id)
    unpartitioned = metadata.model_copy(update={"partition_specs": [spec]})
    data_file = parquet_file_to_data_file(io, unpartitioned, path)
    data_file[PARTITION_INDEX] = partition
    return data_file


def _with_order(data_file: DataFile, metadata: TableMetadata, commit: TableCommit) -> DataFile:
    """Return the file, with the table's order if its rows are sorted."""
    if commit.sort_by:
        data_file[SORT_ORDER_INDEX] = metadata.default_sort_order_id
    return data_file


def default_catalog(folder: Path) -> Catalog:
    """Return the catalogue in the SQLite database of an export folder, which must exist.  Raises TableFailed."""
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - imports SQLAlchemy

    database = f"{folder}/_kctl/catalog.db"
    try:
        return SqlCatalog(DEFAULT_CATALOG, uri=f"sqlite:///{database}", warehouse=f"file://{folder}")
    except Exception as error:
        raise TableFailed(catalog_failure(error, database) or f"{database}: {_one_line(error)}") from error


def _database(catalog: Catalog | None) -> str:
    """Return the file of a catalogue in SQLite; empty for others."""
    engine = getattr(catalog, "engine", None)
    return (engine.url.database or "") if engine is not None else ""


def named_catalog(name: str) -> Catalog:
    """Return the catalogue that .pyiceberg.yaml or PYICEBERG_CATALOG__NAME__* describe.

    Raises UsageError, TableFailed.
    """
    try:
        catalog = load_catalog(name)
        catalog.properties.setdefault(S3_RETRY_STRATEGY_IMPL, f"{__name__}.{S3Retries.__name__}")
        return catalog
    except ValueError as error:
        raise UsageError(f"--catalog {name}: {_one_line(error)}") from None
    except Exception as error:
        raise TableFailed(f"catalogue {name}: {catalog_failure(error, name) or _one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

"""The kinds of an export, --table, and the log of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote

from kctl.errors import UsageError
from kctl.tables.commits import layout
from kctl.tables.commits.commit_log import CommitLog
from kctl.tables.commits.export_log import ExportLog
from kctl.tables.commits.layout import PARQUET_MARK, LayoutMark
from kctl.tables.exec.schema.column_types import ChangeFormat
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT, ColumnLayout
from kctl.tables.exec.selection.partitioning import NO_PARTITIONS, NONE, Partitioning
from kctl.tables.exec.selection.row_selection import ALL_ROWS, HEADER_LIST, LIST, HeaderForm, RowSelection
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.target import PackageMissing, is_object_store, require_package
from kctl.tables.formats.table_log import TableLog
from kctl.tables.upserts.changed_keys import STATE_FILE_BYTES, StateOptions

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from kctl.tables.formats.table import Table

DEFAULT_NAMESPACE = "kafka"
UPSERT = "upsert"
"""The value of --mode for the current state by key."""


class TableKind(StrEnum):
    """The kinds of data that an export publishes."""

    PARQUET = "parquet"
    """Folders of files with a commit log."""
    ICEBERG = "iceberg"
    DELTA = "delta"


_CONTROL = "".join(map(chr, (*range(32), 127)))
UNUSABLE_CHARACTERS = {TableKind.ICEBERG: "#%?\t\n\r", TableKind.DELTA: f"%\\{_CONTROL}"}
"""In the path of a folder, which the libraries take for a part of a URL, drop or refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Options of the command.  Raises UsageError for options of another kind."""

    kind: TableKind = TableKind.PARQUET
    is_shared: bool = False
    """One table for all topics, at the target; otherwise one per topic, in folders of the target.

    The files of PARQUET are in the folder `data` of the target then.
    """
    catalog: str | None = None
    """Name of an Iceberg catalogue that is configured for pyiceberg; default: a SQLite database in the folder."""
    namespace: str = ""
    """Iceberg: where the tables are in the catalogue; empty: DEFAULT_NAMESPACE."""

    partition_by: Partitioning = NO_PARTITIONS
    rows: RowSelection = ALL_ROWS
    layout: ColumnLayout = PLAIN_LAYOUT
    headers: HeaderForm = HEADER_LIST
    upsert: UpsertOptions | None = None
    """Whether the table has the current state by key; otherwise it has all records."""

    keeps_raw: bool = False
    """Whether decoded keys and values are there as they were in records, too."""

    @property
    def has_incarnation_column(self) -> bool:
        """Whether a column tells the incarnations of a topic apart, because they are in one table."""
        return self.upsert is None and (self.kind is not TableKind.PARQUET or self.is_shared)

    @property
    def mark(self) -> str:
        """The options that each export into a target must have."""
        by = self.partition_by
        words = ["--table", self.kind.value]
        words += ["--one-table"] if self.is_shared else []
        words += ["--partition-by", by.by] if by else []
        words += ["--time-zone", by.time_zone] if by.time_zone != "UTC" else []
        words += ["--select", ",".join(self.rows.select)] if self.rows.select else []
        words += self.layout.words
        words += [] if self.headers.is_list else ["--headers", self.headers.text]
        words += ["--keep-raw"] if self.keeps_raw else []
        if self.upsert:
            words += ["--mode", UPSERT]
            words += ["--key-fields", ",".join(self.upsert.keys)] if self.upsert.keys else []
            words += ["--order-by", self.upsert.order_by] if self.upsert.order_by else []
            words += ["--history"] if self.upsert.history else []
            changes = self.upsert.changes
            words += [] if changes is ChangeFormat.NONE else ["--change-format", changes.value]
        # Escaped, as an option begins with ` --`.
        words += ["--where", self.rows.where.replace("%", "%25").replace(" --", " %2D-")] if self.rows.where else []
        return " ".join(words)

    @classmethod
    def of_mark(cls, mark: str, *, catalog: str | None, namespace: str) -> Self:
        """Return the options of an existing export; its catalogue and namespace are not in the mark."""
        words = dict(option.partition(" ")[::2] for option in mark.removeprefix("--").split(" --"))
        kind = TableKind(words.get("table", TableKind.PARQUET))
        partition_by = Partitioning(words.get("partition-by", NONE), words.get("time-zone", "UTC"))
        select = tuple(words["select"].split(",")) if "select" in words else ()
        return cls(
            kind=kind,
            is_shared="one-table" in words,
            partition_by=partition_by,
            rows=RowSelection(select, unquote(words.get("where", ""))),
            layout=ColumnLayout.of_words(words),
            headers=HeaderForm.parse(words.get("headers", LIST)),
            upsert=_upsert_of(words) if words.get("mode") == UPSERT else None,
            keeps_raw="keep-raw" in words,
            catalog=catalog,
            namespace=namespace,
        )

    def __post_init__(self) -> None:
        if self.kind is TableKind.ICEBERG and self.partition_by.time_zone != "UTC":
            raise UsageError(
                "--time-zone: Iceberg's partitions by day and hour are in UTC; use --table delta or parquet"
            )
        if self.kind is not TableKind.ICEBERG and (self.catalog or self.namespace):
            name = "--catalog" if self.catalog else "--namespace"
            raise UsageError(f"{name} is an option of --table iceberg")
        if self.upsert:
            self._check_upsert()

    def _check_upsert(self) -> None:
        """Raise UsageError for options that a table with the current state by key cannot have."""
        others = {
            "--one-table": self.is_shared,
            "--partition-by": bool(self.partition_by),
            "--select": bool(self.rows.select),
            "--where": bool(self.rows.where),
        }
        for name, is_given in others.items():
            if is_given:
                raise UsageError(
                    f"{name} and --mode upsert exclude each other: the table has the whole current row of each key; "
                    "create a view of it"
                )


def _upsert_of(words: Mapping[str, str]) -> UpsertOptions:
    keys = words.get("key-fields", "")
    return UpsertOptions(
        tuple(keys.split(",")) if keys else (),
        words.get("order-by", ""),
        ChangeFormat(words.get("change-format", ChangeFormat.NONE)),
        "history" in words,
    )


def open_log(
    options: TableOptions, files: Files, topics: Collection[str], *, bucket_bytes_max: int = STATE_FILE_BYTES
) -> ExportLog:
    """Return the log of a target; `bucket_bytes_max` is the size of files of --mode upsert, see StateOptions.

    Raises PackageMissing, and UsageError if the target contains another kind of export or the options do not fit.
    """
    LayoutMark(files).check(options.mark)
    upsert = state_options(options, bucket_bytes_max)
    if options.kind is TableKind.PARQUET:
        if upsert and is_object_store(files.location):
            raise UsageError(
                "--mode upsert with --table parquet needs a file system, on which files are replaced at once: use "
                "--table delta or iceberg for an object store"
            )
        return CommitLog(
            files,
            mark="" if options.mark == PARQUET_MARK else options.mark,
            is_shared=options.is_shared,
            upsert=upsert,
        )
    return TableLog(
        files,
        table_opener(options, files, topics),
        topics,
        mark=options.mark,
        is_shared=options.is_shared,
        partition_by=options.partition_by,
        select=options.rows.select,
        columns=options.layout,
        headers=options.headers,
        upsert=upsert,
    )


def state_options(options: TableOptions, bucket_bytes_max: int = STATE_FILE_BYTES) -> StateOptions | None:
    """Return how an export keeps the current state by key; None if it has all records."""
    if options.upsert is None:
        return None
    return StateOptions(options.upsert, bucket_bytes_max, options.headers, options.layout)


def table_opener(options: TableOptions, files: Files, topics: Collection[str]) -> Callable[[str], Table]:
    """Return the tables of the topics by their directories; "" is the target itself.  Raises as `open_log`."""
    if not is_object_store(files.location) and (
        found := set(files.location).intersection(UNUSABLE_CHARACTERS[options.kind])
    ):
        character = min(found)
        shown = f"'{character}'" if character.isprintable() else "control characters"
        raise UsageError(
            f"{files.location}: tables of kind {options.kind} need a folder without {shown} in its path: choose "
            "another one"
        )
    return _delta(files) if options.kind is TableKind.DELTA else _iceberg(options, files, topics)


def _delta(files: Files) -> Callable[[str], Table]:
    require_package("deltalake", extra="delta")
    from kctl.tables.formats.delta import DeltaLakeTable  # noqa: PLC0415 - an optional package

    return lambda directory: DeltaLakeTable(files, directory)


def _iceberg(options: TableOptions, files: Files, topics: Collection[str]) -> Callable[[str], Table]:
    require_package("pyiceberg", extra="iceberg")
    names = _table_names(topics, files.location, is_shared=options.is_shared)
    location = files.location if is_object_store(files.location) else f"file://{files.location}"
    namespace = tuple((options.namespace or DEFAULT_NAMESPACE).split("."))
    if options.catalog is None and is_object_store(files.location):
        raise UsageError("Iceberg tables in an object store need --catalog NAME, a catalogue configured for pyiceberg")
    from kctl.tables.formats.iceberg import IcebergTable, named_catalog  # noqa: PLC0415 - an optional package

    catalog: Callable[[], Catalog | None]
    if options.catalog is None:
        if find_spec("sqlalchemy") is None:
            raise PackageMissing("sqlalchemy missing: pip install 'kctl-kafka[iceberg]'")
        catalog = _FolderCatalog(Path(files.location)).open
    else:
        named = named_catalog(options.catalog)
        catalog = lambda: named  # noqa: E731

    def open_table(directory: str) -> Table:
        return IcebergTable(catalog, (*namespace, names[directory]), f"{location}/{directory}".rstrip("/"))

    return open_table


class _FolderCatalog:
    """The SQLite catalogue of a folder, opened when the folder has been created, so that a dry run leaves no file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._catalog: Catalog | None = None

    def open(self) -> Catalog | None:
        """Return the catalogue; None if the folder does not exist yet."""
        if self._catalog is None and (self._folder / layout.LOG_DIRECTORY).is_dir():
            from kctl.tables.formats.iceberg import default_catalog  # noqa: PLC0415 - an optional package

            self._catalog = default_catalog(self._folder)
        return self._catalog


def _table_names(topics: Collection[str], location: str, *, is_shared: bool) -> dict[str, str]:
    """Return the name of the table in each directory: of the topic, or the last part of the target, with `_` for `.`
    and `-`.

    Raises UsageError for topics whose names differ only in these characters.
    """
    if is_shared:
        return {"": _identifier(location.rstrip("/").rpartition("/")[2])}
    names: dict[str, str] = {}
    for topic in sorted(topics):
        name = _identifier(topic)
        if name in names.values():
            raise UsageError(f"several topics would be in table {name}: export them to different targets")
        names[layout.topic_directory(topic)] = name
    return names


def _identifier(text: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in text)

"""Port for tables to which an export publishes files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kctl.errors import KctlError
from kctl.tables.commits.inventory import DamagedFile, Inventory
from kctl.tables.exec.outcome import Misfit, WrittenFile
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.targets.files import Files
from kctl.tables.plans.path_set import NO_PATHS, PathSet, sized
from kctl.tables.plans.plan import HeldColumns, TopicPosition

if TYPE_CHECKING:
    import pyarrow as pa


DEAD_LETTERS = "kctl.dead-letters"
DEAD_LETTER_BYTES = "kctl.dead-letter-bytes"
LOST = "kctl.lost-offsets"
"""The property of a commit with the number of offsets that the brokers no longer had."""


class TableFailed(KctlError):
    """The library of the table format reports an error."""


class Conflict(Exception):
    """Another writer has committed to the table since its state was read; nothing was published."""


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of the table after the last commit of an export."""

    batch: int
    """-1 for a table without a batch."""
    topics: Mapping[str, TopicPosition]
    columns: Sequence[str]
    held: HeldColumns
    is_latest: bool
    """Whether no other program has committed after that batch."""
    dead_letters: Sequence[str] = ()
    """Dead letters of that batch, if it is the latest."""
    dead_letter_bytes: Sequence[int] = ()
    """Their sizes; empty if the commit does not say."""
    has_lost: bool = False
    """Whether offsets were missing in that batch, if it is the latest."""
    has_rows: bool = True
    """Whether the current state is based on that batch; False if another program has set the table back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """A batch to publish: all of it becomes visible at once, with the positions after it."""

    batch: int
    files: Sequence[WrittenFile]
    """Their paths are relative to the table."""
    partition_by: Partitioning
    topics: Mapping[str, TopicPosition]
    schema: pa.Schema
    """Columns of the files; those that the table lacks are added."""
    sort_by: Sequence[str] = ()
    """The columns by which the rows of each file are sorted, as columns of records."""
    properties: Mapping[str, str]
    """For people who read the table's history."""
    dead_letters: Sequence[str] = ()
    """Paths of files with records that could not be decoded, relative to the target."""
    dead_letter_bytes: Sequence[int] = ()
    """Their sizes; empty in records of earlier versions."""
    removed: Sequence[str] = ()
    """Paths of files that the new ones replace, relative to the table."""
    misfits: Mapping[str, tuple[Misfit, ...]] = field(default_factory=dict)
    """The values of all batches that are not in their column, by topic; only in the record of the commit."""

    @property
    def letter_properties(self) -> dict[str, str]:
        """The dead letters as properties of a snapshot or version."""
        if not self.dead_letters:
            return {}
        sizes = {DEAD_LETTER_BYTES: json.dumps(self.dead_letter_bytes)} if self.dead_letter_bytes else {}
        return {DEAD_LETTERS: json.dumps(self.dead_letters), **sizes}

    @property
    def has_lost(self) -> bool:
        """Whether offsets are missing."""
        return self.properties.get(LOST, "0") != "0"


class Replacement(NamedTuple):
    """Files, and one with their rows; paths are relative to the table."""

    removed: Sequence[str]
    merged: WrittenFile | None
    """None if their rows are removed."""
    is_change: bool = False
    """Whether rows have values in other columns than before."""


class Table(Protocol):
    """One table.  Raises TableFailed for errors of its library."""

    @property
    def name(self) -> str:
        """The name of the table for messages."""
        ...

    @property
    def metadata(self) -> str:
        """Where the metadata of the table is, for messages."""
        ...

    def state(self) -> TableState | None:
        """Read the state, on which the next commit is based; None if the table does not exist."""
        ...

    def paths(self) -> set[str]:
        """Return the data files of the state that was read last, relative to the table."""
        ...

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes in bytes of these files, as the table says, by path."""
        ...

    def file_set(self) -> PathSet | None:
        """Summary of these files with their sizes (see `sized`), if the last commit has it; None without one."""
        ...

    def committed_ms(self) -> int | None:
        """When the state that was read last was committed; None if the table no longer has that information."""
        ...

    def has_row_deletes(self) -> bool:
        """Return whether readers must leave out rows of the data files of the state that was read last."""
        ...

    def commit(self, commit: TableCommit) -> None:
        """Publish a batch in one commit, creating the table if necessary.

        Raises Conflict unless the table is as it was when its state was read, and has the files that are replaced.
        """
        ...

    def partitions(self) -> Mapping[str, str]:
        """Return the partition of each data file of the state that was read last, as text, by path."""
        ...

    def replace(self, replacements: Sequence[Replacement]) -> None:
        """Replace files by others with the same rows, or remove them, in one commit.

        Raises Conflict, and nothing is changed, unless the table is as it was when its state was read.
        """
        ...

    def expire(self, before_ms: int, *, is_dry_run: bool) -> int:
        """Expire snapshots before a time, as far as the properties of the table allow; return how many."""
        ...

    def used(self, before_ms: int) -> set[str]:
        """Return the files, relative to the table, that its snapshots use, or its versions after a time."""
        ...


# Compares the data files that a table names with those in the store.


DATA = "data"
"""The folder of a table with the files of exports, each batch in a folder of its own, and those of compactions."""


def has_exactly_its_files(files: Files, directory: str, table: Table) -> bool:
    """Return whether the data folder of the table has the files of its last commit and no others.

    False if that is not known without reading the manifests of the table.
    """
    expected = table.file_set()
    if expected is None:
        return False
    prefix = f"{directory}/" if directory else ""
    found = files.sizes(f"{prefix}{DATA}")
    return NO_PATHS.plus(sized({path.removeprefix(prefix): size for path, size in found.items()})) == expected


def lost_files(files: Files, directory: str, table: Table, open_table: Callable[[str], Table]) -> Inventory:
    """Return the files of the state that was read last which do not exist or do not have the size that the table says.

    Another program may have replaced files since, and removed them.  So only what a second reading of the table names
    as well is missing.
    """
    if has_exactly_its_files(files, directory, table):
        return Inventory()
    found = _differences(files, directory, table.sizes())
    if found == Inventory():
        return found
    again = open_table(directory)
    sizes = again.sizes() if again.state() is not None else {}
    return _differences(files, directory, {path: size for path, size in table.sizes().items() if path in sizes})


def _differences(files: Files, directory: str, sizes: Mapping[str, int]) -> Inventory:
    """`sizes` are those of the table, by paths relative to it; files elsewhere are not looked for."""
    prefix = f"{directory}/" if directory else ""
    named = {f"{prefix}{path}": size for path, size in sizes.items() if "://" not in path and not path.startswith("/")}
    data = f"{prefix}{DATA}"
    is_usual = all(path.startswith(f"{data}/") for path in named)
    found = files.sizes(data if is_usual else directory) if named else {}
    return Inventory(
        missing=tuple((path, _batch(path, data)) for path in sorted(named.keys() - found.keys())),
        damaged=tuple(
            DamagedFile(path, _batch(path, data), size, found[path])
            for path, size in sorted(named.items())
            if found.get(path, size) != size
        ),
    )


def _batch(path: str, data: str) -> int | None:
    folder = path.removeprefix(f"{data}/").partition("/")[0]
    return int(folder) if folder.isdecimal() else None

"""The inputs of a task that writes one file.

The driver imports this module, and not numpy and pyarrow, which take longer than a small export.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kctl.client.settings import ClientSettings
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.tables.exec.outcome import Misfit, PartOutcome, Unreadable, WrittenFile
from kctl.tables.exec.reading.fetch import OffsetRange
from kctl.tables.exec.schema.column_types import Columns
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT, ColumnLayout
from kctl.tables.exec.selection.partitioning import Partitioning, Values
from kctl.tables.exec.selection.row_selection import ALL_ROWS, HEADER_LIST, HeaderForm, RowSelection
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.exec.targets.files import Files

DEAD_LETTERS = "_dead_letters"


CHANGES = "_kctl/changes"
"""Where tasks write the changes of a batch, if an export keeps the current state by key."""
_BATCH = re.compile(r"(^|/)data/(\d{12})/")
_CHANGES_OF_BATCH = re.compile(r"(^|/)data/(\d{12})\+")


def changes_path(path: str) -> str:
    """Return where the changes are that would otherwise be the rows of a data file.

    The folder data/BATCH of a table becomes a part of the name, so that no empty folders remain.
    """
    return f"{CHANGES}/" + _BATCH.sub(r"\1data/\2+", path)


def dead_letters_path(path: str) -> str:
    """Return the path of the records that could not be decoded, for a data file or its directory.

    Those of a file with changes are where they would be without --mode upsert.
    """
    if path.startswith(f"{CHANGES}/"):
        path = _CHANGES_OF_BATCH.sub(r"\1data/\2/", path.removeprefix(f"{CHANGES}/"))
    return f"{DEAD_LETTERS}/{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """All inputs of a task; pickled by the driver."""

    settings: ClientSettings
    target: str
    """A folder or a URL; without credentials, which each process finds itself."""
    path: str
    """Relative to the target."""
    ranges: tuple[OffsetRange, ...]
    """All of one topic."""
    include_headers: bool
    compression: str
    headers: HeaderForm = HEADER_LIST
    is_for_table: bool = False
    """Whether the file is part of an Iceberg or Delta table."""
    incarnation: int = 0
    """In a table, it goes into a column of this name unless it is 0."""
    partition_by: Partitioning = field(default_factory=Partitioning)
    rows: RowSelection = ALL_ROWS
    layout: ColumnLayout = PLAIN_LAYOUT
    columns: Columns = field(default_factory=Columns)
    upsert: UpsertOptions | None = None
    """Whether the file has changes for the current state by key, with their keys."""
    keeps_bad: bool = False
    """Whether records that cannot be decoded go into the dead letters; else they end the task."""
    letters_have_headers: bool = False
    """Whether dead letters have headers, also if the data files have none."""
    skips_corrupt: bool = False
    """Whether corrupt batches are left out and counted (--on-corrupt-batch=skip)."""
    may_skip: bool
    """Whether missing offsets are skipped and counted (--on-data-loss=warn)."""

    @property
    def identity(self) -> str:
        """The footer entry by which a file is identified as the result of this task."""
        return "; ".join(f"{range_.tp} [{range_.start}, {range_.end}) {range_.topic_id}" for range_ in self.ranges)

    @property
    def has_list(self) -> bool:
        """Whether the files of the task are listed, see file_list."""
        return bool(self.partition_by) and not self.is_for_table

    def path_of(self, values: Values) -> str:
        """Return the path of the file of a partition."""
        by = self.partition_by
        if not by:
            return self.path
        return by.path_in_table(self.path, values) if self.is_for_table else by.path(self.path, values)

    @property
    def offset_count(self) -> int:
        """Number of offsets of all ranges; an upper bound of the number of records."""
        return sum(range_.end - range_.start for range_ in self.ranges)


# The list of the files of one task in a folder with partitions.
#
# A task that is attempted again may find fewer records, if the topic was compacted or records were deleted meanwhile,
# and then does not write some files that the first attempt published. So each attempt writes its list before it
# publishes any file, and only the first list counts: exactly its files are published, by whichever attempt, those
# without records as empty files.


LISTS = "_kctl/lists"


class FileList(NamedTuple):
    """The files that a task has written."""

    files: dict[str, tuple[Values, int]]
    """Partition and number of records by path."""
    parts: tuple[PartOutcome, ...]
    dead_letters: WrittenFile | None
    unreadable: tuple[Unreadable, ...] = ()
    misfits: tuple[Misfit, ...] = ()


def read_list(files: Files, path: str, identity: str) -> FileList | None:
    """Return the list of the task with this planned path, or None.  Raises KctlError if it is of another task."""
    try:
        document = json.loads(files.read(_list_path(path)))
    except FileNotFoundError:
        return None
    if document["range"] != identity:
        raise KctlError(
            f"{files.location}/{_list_path(path)} is in the way: it holds {document['range']}, not {identity}"
        )
    letters = document["dead_letters"]
    return FileList(
        {file["path"]: (tuple(file["partition"]), file["records"]) for file in document["files"]},
        tuple(PartOutcome(**part) for part in document["parts"]),
        WrittenFile(*letters) if letters else None,
        tuple(Unreadable(TopicPartition(*stored[:2]), *stored[2:]) for stored in document.get("unreadable", ())),
        tuple(Misfit(*stored) for stored in document.get("misfits", ())),
    )


def claim(files: Files, path: str, identity: str, own: FileList) -> FileList:
    """Return the list that counts: `own`, or that of the first attempt."""
    document: dict[str, Any] = {
        "range": identity,
        "files": [
            {"path": file, "partition": values, "records": records} for file, (values, records) in own.files.items()
        ],
        "parts": [part._asdict() for part in own.parts],
        "dead_letters": own.dead_letters[:3] if own.dead_letters else None,
        "unreadable": [[*range_.tp, *range_[1:]] for range_ in own.unreadable],
        "misfits": own.misfits,
    }
    if files.create(_list_path(path), json.dumps(document).encode()):
        return own
    first = read_list(files, path, identity)
    assert first is not None  # lists are never deleted
    return first


def is_finished(task: FileTask, files: Files) -> bool:
    """Return whether an earlier attempt has published all files of the task, so that it reads nothing.

    Raises KctlError.
    """
    if not task.has_list:
        return files.size(task.path) is not None
    found = read_list(files, task.path, task.identity)
    return found is not None and all(files.size(path) is not None for path in found.files)


def _list_path(path: str) -> str:
    return f"{LISTS}/{path}.json"

"""Names of files in an export folder.

    DIR/orders/orders+3+00000000000000051200-00000000000000102400.parquet      offsets [51200, 102400) of orders-3
    DIR/orders/orders+0-57+6f1c0a52d1e94b7c.parquet                            small ranges of partitions 0 to 57
    DIR/orders+r1+<topic id>/...             files of the topic after it was deleted and created again
    DIR/data/orders+3+...                    with --one-table: files of all topics and incarnations
    DIR/_dead_letters/orders/...             records of such a file that could not be decoded, as they were
    DIR/_kctl/plans/000000000007.json        plan of batch 7, written before any of its tasks starts
    DIR/_kctl/commits/000000000007.json      commit of batch 7, with the positions of all partitions
    DIR/_kctl/progress                       progress of running tasks, for display
    DIR/_kctl/lock                           locked by the running exporter
    DIR/_SUCCESS                             created by the first commit, for tools that check for it

A data file's name is a pure function of its ranges, so a task that runs twice writes the same file twice.  `+` and `~`
cannot occur in a topic's name.  Long names of topics are cut, with a digest after `~`.  Readers of Parquet folders skip
names that begin with `_` or `.`: this hides the commit log from them, and would hide topics such as __consumer_offsets,
which therefore get a leading `+`.

An offset occurs once per partition in each folder of a topic.  A recreated topic or truncated partition uses
offsets again, so its incarnation is incremented, and with it the folder changes.  Exports before version
2 of the log kept all incarnations in one folder; their commits name the paths, which stay valid.  In the folder of
--one-table, incarnations are distinguished by a column.

The folders are not in Hive's `topic=orders/partition=3` form: the columns topic and partition are in the files, and
readers disagree about a column that is in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from kctl.errors import UsageError
from kctl.model import ZERO_UUID
from kctl.tables.exec.targets.files import Files

LOG_DIRECTORY = "_kctl"
PLANS = f"{LOG_DIRECTORY}/plans"
COMMITS = f"{LOG_DIRECTORY}/commits"
PROGRESS = f"{LOG_DIRECTORY}/progress"
TABLE_MARK = f"{LOG_DIRECTORY}/table"
SUCCESS = "_SUCCESS"
SHARED_DIRECTORY = "data"
"""Of the files of all topics, with --one-table."""
DATA_SUFFIX = ".parquet"
TOPIC_PART_CHARACTERS_MAX = 100
"""Names of files have up to 255 bytes, of which the rest of a name needs up to 145 while the file is written."""
DIGEST_CHARACTERS = 16


class NamedRange(NamedTuple):
    """The offsets [start, end) of a partition, as they enter the name of a file."""

    partition: int
    start: int
    end: int


def topic_directory(topic: str, *, topic_id: UUID = ZERO_UUID, incarnation: int = 0) -> str:
    """Return the folder of one incarnation of a topic.

    The first one has the topic's name.  The others also have the topic id, unless the brokers give none.
    """
    if not incarnation:
        return f"+{topic}" if topic.startswith(("_", ".")) else topic
    return f"{short_name(topic)}+r{incarnation}" + (f"+{topic_id}" if topic_id != ZERO_UUID else "")


def short_name(topic: str) -> str:
    """Return the name of a topic's first folder, or a shorter one for the topic alone."""
    name = topic_directory(topic)
    if len(name) <= TOPIC_PART_CHARACTERS_MAX:
        return name
    digest = hashlib.sha256(topic.encode()).hexdigest()[:DIGEST_CHARACTERS]
    return f"{name[: TOPIC_PART_CHARACTERS_MAX - DIGEST_CHARACTERS - 1]}~{digest}"


def topic_directories(topic: str, names: Iterable[str]) -> list[str]:
    """Return the directories among `names`, the entries of an export folder, with files of the topic."""
    first = topic_directory(topic)
    later = tuple(f"{name}+r" for name in _names_in_files(topic))
    return sorted(name for name in names if name == first or name.startswith(later))


def data_path(topic: str, ranges: Sequence[NamedRange], *, topic_id: UUID = ZERO_UUID, incarnation: int = 0) -> str:
    """Return the path of the data file with the given ranges of one incarnation of a topic."""
    name = short_name(topic)
    if len(ranges) == 1:
        ((partition, start, end),) = ranges
        held = f"{partition}+{start:020d}-{end:020d}"
    else:
        digest = hashlib.sha256(repr([tuple(range_) for range_ in ranges]).encode()).hexdigest()
        held = f"{ranges[0].partition}-{ranges[-1].partition}+{digest[:16]}"
    recreated = f"+r{incarnation}" if incarnation else ""
    directory = topic_directory(topic, topic_id=topic_id, incarnation=incarnation)
    return f"{directory}/{name}+{held}{recreated}{DATA_SUFFIX}"


def shared_path(path: str) -> str:
    """Return the path of a data file in the folder for all topics."""
    return f"{SHARED_DIRECTORY}/{path.rpartition('/')[2]}"


def topic_part(path: str) -> str:
    """Return what the name of a data file has of its topic."""
    name = path.rpartition("/")[2]
    prefix = "+" if name.startswith("+") else ""
    return prefix + name.removeprefix("+").partition("+")[0]


def is_file_of(path: str, topic: str) -> bool:
    """Return whether the name of a data file is one of the topic."""
    return topic_part(path) in _names_in_files(topic)


def _names_in_files(topic: str) -> set[str]:
    """Return what names have of a topic; earlier versions did not cut long ones."""
    return {topic_directory(topic), short_name(topic)}


def incarnation_of(path: str) -> int:
    """Return the incarnation in the name of a data file."""
    _, plus, number = path.removesuffix(DATA_SUFFIX).rpartition("+r")
    return int(number) if plus and number.isdecimal() else 0


def is_data_file(name: str) -> bool:
    """Return whether readers of Parquet folders read a file of this name."""
    return name.endswith(DATA_SUFFIX) and not name.startswith(("_", "."))


def batch_name(batch: int) -> str:
    """Return the file name of a batch's plan and of its commit."""
    return f"{batch:012d}.json"


def batch_number(name: str) -> int | None:
    """Return the batch that a file in `plans` or `commits` belongs to; None for other files."""
    stem, _, suffix = name.partition(".")
    return int(stem) if suffix == "json" and stem.isdecimal() else None


# Which kind of export a target has, so that one with other options is refused.


PARQUET_MARK = "--table parquet"


class LayoutMark:
    """The options that each export into the target must have, as a file of the target."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def check(self, mark: str) -> None:
        """Raise UsageError if the target has an export with other options."""
        held = self.held()
        if held and held != mark:
            raise UsageError(
                f"{self._files.location} contains an export with {held}: use the same options or another --to"
            )

    def claim(self, mark: str) -> None:
        """Mark a new target."""
        self._files.create(TABLE_MARK, mark.encode())
        self.check(mark)

    def held(self) -> str:
        """Return the options of the export that the target has; empty if it has none."""
        try:
            return self._files.read(TABLE_MARK).decode(errors="replace")
        except FileNotFoundError:
            is_folder = bool(self._files.names(PLANS) or self._files.names(COMMITS))
            return PARQUET_MARK if is_folder else ""


# Finds the data files of a target in which no export has begun: copies of exports without their logs, or other files.
#
# An export beside them would give readers of the folder their records twice, and the cleanup of tables could delete
# them.


DEPTH_MAX = 5
"""A data file of a table is below its folder in data/BATCH, or in the folders of its partitions."""


def unmarked_files(files: Files, directories: Collection[str]) -> list[str]:
    """Return the paths of the data files in and below the directories; those whose names begin with `_` or `.` are
    skipped.
    """
    return sorted(path for directory in directories for path in _below(files, directory, 0))


def _below(files: Files, directory: str, depth: int) -> Iterator[str]:
    for name in files.names(directory):
        path = f"{directory}/{name}"
        if is_data_file(name):
            yield path
        elif depth < DEPTH_MAX and not name.startswith(("_", ".")):
            yield from _below(files, path, depth + 1)

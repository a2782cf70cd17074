"""Rebuilds the lost commit log of an export folder from its data files.

The footer of every data file has its topic and offsets.  The files are turned into plans whose tasks find the files
finished, and which are committed as usual.  Offsets between two files are planned as separate files and read from the
cluster: they contain no records (markers, compaction), or their file was lost and is written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import UUID

from kctl.model import TopicPartition
from kctl.tables.commits.commit_log import BrokenExportFolder
from kctl.tables.commits.inventory import UnknownFiles
from kctl.tables.commits.layout import NamedRange, data_path, incarnation_of
from kctl.tables.exec.schema.column_types import Columns, columns_from_json, leaves
from kctl.tables.exec.targets.files import Files
from kctl.tables.plans.plan import FileOptions, FileRange, PartitionRange, Plan, PlannedTopic, Positions

RANGE = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+) \[(?P<start>\d+), (?P<end>\d+)\) (?P<id>[0-9a-f-]{36})"
)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """The footer of a data file."""

    path: str
    topic: str
    topic_id: UUID
    incarnation: int
    ranges: tuple[NamedRange, ...]
    has_headers: bool
    columns: Columns


def find_files(files: Files, paths: Iterable[str]) -> list[FoundFile]:
    """Read the footers.  Raises UnknownFiles for a file that was not written by an export."""
    return [_found(files, path) for path in paths]


def plan_adoption(
    found: Sequence[FoundFile], positions: Positions, *, cluster_id: str, options: FileOptions, now_ms: int
) -> list[Plan]:
    """Return plans for the files, one per topic id, the oldest first.

    Raises BrokenExportFolder for inconsistent files, UnknownFiles for files of a topic whose commit log exists and ends
    before them.
    """
    if len({file.has_headers for file in found}) > 1:
        raise BrokenExportFolder("some files have the column headers and others have not: they are of two exports")
    plans: list[Plan] = []
    for (topic, topic_id), group in _by_topic(found):
        first, last = group[0].incarnation, group[-1].incarnation
        position = positions.topics.get(topic)
        if position is not None and first <= position.incarnation:
            raise UnknownFiles(
                f"the log has topic {topic} but not {group[0].path}: it is older than the files; copy the log that "
                "belongs to them"
            )
        plan = Plan(
            batch=positions.last_batch + 1 + len(plans),
            created_ms=now_ms,
            cluster_id=cluster_id,
            options=replace(options, include_headers=group[0].has_headers),
            topics={topic: PlannedTopic(topic_id, last, _last_columns(group))},
            ranges=tuple(_ranges(topic, topic_id, group)),
        )
        plans.append(plan)
    return plans


def _found(files: Files, path: str) -> FoundFile:
    import pyarrow as pa  # noqa: PLC0415 - only an adoption needs it on the driver

    from kctl.tables.exec.targets.writer import footer  # noqa: PLC0415 - same
    from kctl.tables.exec.task import COLUMNS_KEY, RANGE_KEY  # noqa: PLC0415 - same

    try:
        with files.open(path) as file:
            found = footer(file)
    except pa.ArrowException as error:
        raise UnknownFiles(f"{path} is no Parquet file ({error}): remove it from the folder") from error
    ranges = [RANGE.fullmatch(text) for text in found.metadata.get(RANGE_KEY, "").split("; ")]
    topics = {(match["topic"], match["id"]) for match in ranges if match}
    if None in ranges or len(topics) != 1:
        raise UnknownFiles(f"{path} was not written by an export: move it out of the folder")
    ((topic, topic_id),) = topics
    return FoundFile(
        path,
        topic,
        UUID(topic_id),
        incarnation_of(path),
        tuple(NamedRange(int(m["partition"]), int(m["start"]), int(m["end"])) for m in ranges if m),
        "headers" in found.columns,
        columns_from_json(json.loads(found.metadata.get(COLUMNS_KEY, "{}"))),
    )


def _last_columns(group: Sequence[FoundFile]) -> Columns:
    """Return the decodings of the file with most columns, which are only added."""
    count = lambda file: len(leaves(file.columns.key.type, "key") + leaves(file.columns.value.type, "value"))  # noqa: E731
    return max(group, key=count).columns


def _by_topic(found: Sequence[FoundFile]) -> Iterable[tuple[tuple[str, UUID], list[FoundFile]]]:
    """Yield the files of each topic id, in the order of incarnations."""
    in_order = sorted(found, key=lambda file: (file.topic, file.incarnation))
    for key, group in groupby(in_order, lambda file: (file.topic, file.topic_id)):
        yield key, list(group)


def _ranges(topic: str, topic_id: UUID, group: Sequence[FoundFile]) -> Iterable[PartitionRange]:
    """Yield the ranges sorted by incarnation and partition, as inside shared files."""
    held: dict[tuple[int, int], list[FileRange]] = {}
    for found in group:
        for partition, start, end in found.ranges:
            held.setdefault((found.incarnation, partition), []).append(FileRange(start, end, found.path))
    for (incarnation, partition), files in sorted(held.items()):
        whole: list[FileRange] = []
        for file in sorted(files, key=lambda file: (file.start, file.end)):
            if whole and file.start < whole[-1].end:
                raise BrokenExportFolder(f"{whole[-1].path} and {file.path} hold the same offsets: two exports")
            if whole and file.start > whole[-1].end:
                gap = NamedRange(partition, whole[-1].end, file.start)
                path = data_path(topic, [gap], topic_id=topic_id, incarnation=incarnation)
                whole.append(FileRange(gap.start, gap.end, path))
            whole.append(file)
        tp = TopicPartition(topic, partition)
        yield PartitionRange(tp, whole[0].start, whole[-1].end, incarnation, tuple(whole))

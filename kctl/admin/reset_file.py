"""Offsets of groups as CSV in the format of kafka-consumer-groups.  Pure.

Two shapes, neither with a header: `topic,partition,offset` for one group, `group,topic,partition,offset` for several.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from kctl.errors import UsageError
from kctl.integers import INT64_MAX, parse_integer
from kctl.model import TopicPartition

UNQUOTED_LENGTH_MAX = 24
UNQUOTED_CHARACTER_MIN = "-"
"""Jackson, which writes Kafka's files, quotes long fields and fields with a character below this."""

COLUMNS_OF_ONE_GROUP = 3
COLUMNS_OF_SEVERAL = 4

Offsets = dict[str, dict[TopicPartition, int]]
"""Offsets by group and partition."""


def format_offsets(offsets: Iterable[tuple[str, TopicPartition, int]], *, with_group: bool) -> str:
    """Formats the file, with one line per partition."""
    lines = []
    for group, tp, offset in offsets:
        front = f"{_field(group)}," if with_group else ""
        lines.append(f"{front}{_field(tp.topic)},{tp.partition},{offset}\n")
    return "".join(lines)


def rows_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of a CSV file with their numbers.  Raises UsageError."""
    number = 0
    try:
        for number, fields in enumerate(csv.reader(text.splitlines()), 1):
            yield number, fields
    except csv.Error as error:
        raise UsageError(f"line {number + 1}: not CSV: {error}") from None


def parse_offsets(text: str, groups: Sequence[str]) -> Offsets:
    """Offsets of `groups` in the file; lines without a group belong to the only one.  Raises UsageError."""
    offsets: Offsets = {group: {} for group in groups}
    shape = None
    for number, fields in rows_of(text):
        if not fields:
            continue
        shape = shape or len(fields)
        if shape not in {COLUMNS_OF_ONE_GROUP, COLUMNS_OF_SEVERAL} or len(fields) != shape:
            raise UsageError(f"line {number}: neither 'topic,partition,offset' nor 'group,topic,partition,offset'")
        if shape == COLUMNS_OF_ONE_GROUP and len(groups) != 1:
            raise UsageError("the file has no groups, so it can be used for one group only")
        group = fields[0] if shape == COLUMNS_OF_SEVERAL else groups[0]
        topic, partition, offset = (field.strip() for field in fields[-COLUMNS_OF_ONE_GROUP:])
        if not topic:
            raise UsageError(f"line {number}: '{','.join(fields)}' names no topic")
        tp = TopicPartition(topic, parse_integer(partition, f"line {number}: the partition"))
        at = parse_integer(offset, f"line {number}: the offset", high=INT64_MAX)
        if group not in offsets:
            continue
        if tp in offsets[group]:
            raise UsageError(f"line {number}: {tp} occurs twice")
        offsets[group][tp] = at
    return offsets


def _field(text: str) -> str:
    if len(text) <= UNQUOTED_LENGTH_MAX and all(character >= UNQUOTED_CHARACTER_MIN for character in text):
        return text
    return '"' + text.replace('"', '""') + '"'

"""Offsets of a streaming query, as in Spark's Kafka source: {"orders": {"0": 17, "1": 3}}; and how ranges are cut.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from kctl.errors import UsageError
from kctl.limits import SOURCE_TASKS_PER_PARTITION_MAX
from kctl.model import TopicPartition

EARLIEST, LATEST = "earliest", "latest"

Offsets = Mapping[TopicPartition, int]


def to_document(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The offsets as Spark stores them in a checkpoint."""
    document: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        document.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return document


def from_document(document: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of `to_document`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(text: str, option: str) -> str | dict[TopicPartition, int]:
    """Reads `earliest`, `latest` or JSON.  Raises UsageError."""
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    try:
        document: Any = json.loads(text)
        offsets = from_document(document)
    except (ValueError, AttributeError, TypeError):
        offsets = {}
    if not offsets or any(type(offset) is not int or offset < 0 for offset in offsets.values()):
        raise UsageError(f'{option} takes earliest, latest or JSON such as {{"orders": {{"0": 17}}}}, not \'{text}\'')
    return offsets


def limited(start: Offsets, latest: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """The ends of a batch of about `offsets_max` offsets: each partition gets its share of what is there.

    At least one offset of each partition that has one, so that all partitions progress.
    """
    lags = {tp: max(end - start.get(tp, 0), 0) for tp, end in latest.items()}
    total = sum(lags.values())
    if total <= offsets_max:
        return {tp: start.get(tp, 0) + lag for tp, lag in lags.items()}
    # Rounded up; the lag bounds it because the share is below 1.
    return {tp: start.get(tp, 0) - (-lag * offsets_max // total) for tp, lag in lags.items()}


def cut(start: int, end: int, offsets_max: int | None) -> list[tuple[int, int]]:
    """The range [start, end) in parts of at most `offsets_max` offsets, of similar size.

    Raises UsageError for more than SOURCE_TASKS_PER_PARTITION_MAX.
    """
    if end <= start:
        return []
    count = 1 if offsets_max is None else -(-(end - start) // offsets_max)
    if count > SOURCE_TASKS_PER_PARTITION_MAX:
        allowed = f"at most {SOURCE_TASKS_PER_PARTITION_MAX} are allowed"
        raise UsageError(f"maxOffsetsPerTask gives {count} tasks for one partition, {allowed}")
    borders = [start + (end - start) * index // count for index in range(count + 1)]
    return list(pairwise(borders))

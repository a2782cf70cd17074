"""Offsets of a streaming query, as in Spark's Kafka source: {"orders": {"0": 17, "1": 3}}; and how ranges are cut.

Beside the topics, the offsets in a checkpoint have two members that no topic can be called: the histories of the logs
when the offsets were listed, {"@histories": {"orders": {"0": [high watermark, leader epoch]}}}, and {"@topic-ids":
{"orders": "..."}}.  Checkpoints of earlier versions lack them.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kctl.client.consuming.positions import Position as History
from kctl.errors import UsageError
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.tables.exec.reading.histories import history_of

SOURCE_TASKS_PER_PARTITION_MAX = bound(
    Subject.EXPORTS,
    'tasks of one partition of a topic in a query with `format("kctl")`',
    10_000,
    "tasks",
    on_excess="the query fails before it starts; increase maxOffsetsPerTask",
)


EARLIEST, LATEST = "earliest", "latest"

HISTORIES, TOPIC_IDS = "@histories", "@topic-ids"

Offsets = Mapping[TopicPartition, int]


class Progress(NamedTuple):
    """The next offsets of a query, and what identifies the records before them."""

    offsets: dict[TopicPartition, int]
    histories: Mapping[TopicPartition, History] = MappingProxyType({})
    """Of the logs when the offsets were listed, as far as brokers tell leader epochs."""
    topic_ids: Mapping[str, UUID] = MappingProxyType({})

    def with_offsets(self, offsets: Offsets) -> Progress:
        """Other offsets of the same logs."""
        return self._replace(offsets=dict(offsets))

    def since(self, before: Progress | None) -> Progress:
        """Return the same, with the histories of `before` where neither offset nor leader epoch have changed.

        A high watermark that moves alone, beyond an open transaction, is no reason for a batch.
        """
        if before is None:
            return self
        kept = {
            tp: then
            for tp, history in self.histories.items()
            if (then := before.histories.get(tp)) is not None
            and then.leader_epoch == history.leader_epoch
            and before.offsets.get(tp) == self.offsets.get(tp)
        }
        return self._replace(histories={**self.histories, **kept})


def progress_to_document(progress: Progress) -> dict[str, Any]:
    """Return the progress as Spark stores it in a checkpoint."""
    document: dict[str, Any] = dict(to_document(progress.offsets))
    histories: dict[str, dict[str, list[int]]] = {}
    for tp in sorted(progress.histories):
        history = progress.histories[tp]
        histories.setdefault(tp.topic, {})[str(tp.partition)] = [history.offset, history.leader_epoch]
    if histories:
        document[HISTORIES] = histories
    if progress.topic_ids:
        document[TOPIC_IDS] = {topic: str(progress.topic_ids[topic]) for topic in sorted(progress.topic_ids)}
    return document


def progress_from_document(document: Mapping[str, Any]) -> Progress:
    """Return the inverse of `progress_to_document`."""
    return Progress(
        from_document({topic: found for topic, found in document.items() if topic not in {HISTORIES, TOPIC_IDS}}),
        {
            TopicPartition(topic, int(partition)): history_of(*pair)
            for topic, partitions in document.get(HISTORIES, {}).items()
            for partition, pair in partitions.items()
        },
        {topic: UUID(text) for topic, text in document.get(TOPIC_IDS, {}).items()},
    )


def to_document(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the offsets as Spark stores them in a checkpoint."""
    document: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        document.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return document


def from_document(document: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the inverse of `to_document`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(text: str, option: str) -> str | dict[TopicPartition, int]:
    """Read `earliest`, `latest` or JSON.  Raises UsageError."""
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    try:
        document: Any = json.loads(text)
        offsets = progress_from_document(document).offsets  # perhaps copied from a checkpoint
    except (ValueError, AttributeError, TypeError):
        offsets = {}
    if not offsets or any(type(offset) is not int or offset < 0 for offset in offsets.values()):
        raise UsageError(f'{option} takes earliest, latest or JSON such as {{"orders": {{"0": 17}}}}, not \'{text}\'')
    return offsets


def parse_times(text: str, option: str) -> dict[TopicPartition, int]:
    """Read JSON with milliseconds since 1970 by topic and partition.  Raises UsageError."""
    try:
        times = from_document(json.loads(text))
    except (ValueError, AttributeError, TypeError):
        times = {}
    if not times or any(type(time) is not int or time < 0 for time in times.values()):
        raise UsageError(f'{option} takes JSON such as {{"orders": {{"0": 1793491200000}}}}, not \'{text}\'')
    return times


def task_offsets(widths: Iterable[int], offsets_max: int | None, tasks_min: int | None) -> int | None:
    """Return the greatest number of offsets of a task, so that there are `tasks_min` tasks; None for any number."""
    total = sum(widths)
    if tasks_min is None or not total:
        return offsets_max
    share = -(-total // tasks_min)
    return share if offsets_max is None else min(share, offsets_max)


def limited(start: Offsets, latest: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """Return the ends of a batch of about `offsets_max` offsets: each partition gets its share of the available
    offsets.

    At least one offset of each partition that has one, so that all partitions progress.
    """
    lags = {tp: max(end - start.get(tp, 0), 0) for tp, end in latest.items()}
    total = sum(lags.values())
    if total <= offsets_max:
        return {tp: start.get(tp, 0) + lag for tp, lag in lags.items()}
    # Rounded up; the lag bounds it because the share is below 1.
    return {tp: start.get(tp, 0) - (-lag * offsets_max // total) for tp, lag in lags.items()}


def cut(start: int, end: int, offsets_max: int | None) -> list[tuple[int, int]]:
    """Return the range [start, end) in parts of at most `offsets_max` offsets, of similar size.

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

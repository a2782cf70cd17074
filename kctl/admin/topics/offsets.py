"""Offset ranges of partitions, and offsets by time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.consuming.list_offsets import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    IsolationLevel,
    list_offsets,
    list_offsets_at,
)
from kctl.client.consuming.positions import NO_EPOCH
from kctl.client.leaders import Outcomes
from kctl.client.metadata import Topic
from kctl.client.outcome import topic_error
from kctl.client.retrying import retry
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition

# An offset given by a user: relative to the start or end, a number, or a time.


class Anchor(Enum):
    """The reference point of an offset."""

    START = "start"
    END = "end"
    ZERO = "zero"
    TIME = "time"


class OffsetSpec(NamedTuple):
    """`value` is the distance from the anchor, or for TIME a timestamp in ms."""

    anchor: Anchor
    value: int = 0


START = OffsetSpec(Anchor.START)
END = OffsetSpec(Anchor.END)


T = TypeVar("T")

_NOT_YET = frozenset({ErrorCode.LEADER_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [start, end) of a partition."""

    start: int
    end: int
    leader_epoch: int = NO_EPOCH
    """Of the leader that told them; NO_EPOCH from brokers before Kafka 2.1."""


async def partitions_of(client: ClusterClient, topics: Collection[str]) -> list[TopicPartition]:
    """Return all partitions of the topics.  Raises ApiError for a topic with an error.

    Retries while the partitions of a topic are not in the metadata yet, as after a start or a creation.
    """
    return await retry(lambda: _partitions_of(client, topics), deadline=client.deadline(), codes=_NOT_YET)


async def check_partitions(client: ClusterClient, scope: Mapping[str, Collection[int] | None]) -> None:
    """Raise ApiError for a topic of `scope` that does not exist, and for a partition of it that is named."""
    present = set(await partitions_of(client, scope)) if scope else set()
    for topic, numbers in scope.items():
        for number in numbers or ():
            if TopicPartition(topic, number) not in present:
                text = f"{topic} has no partition {number}"
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


async def partitions_by_topic(
    client: ClusterClient, topics: Collection[str]
) -> dict[str, list[TopicPartition] | ApiError]:
    """Return the partitions of each topic, or its error: one request, and one more for each topic that has none yet."""
    metadata = await client.metadata(topics)

    async def of(name: str) -> list[TopicPartition] | ApiError:
        topic = metadata.topics.get(name)
        try:
            if topic is None or topic.error in _NOT_YET:
                return await partitions_of(client, [name])
            return _partitions_in([topic])
        except ApiError as error:
            return error

    return dict(zip(topics, await client.gather([of(name) for name in topics]), strict=True))


async def _partitions_of(client: ClusterClient, topics: Collection[str]) -> list[TopicPartition]:
    return _partitions_in((await client.metadata(topics)).topics.values())


def _partitions_in(topics: Collection[Topic]) -> list[TopicPartition]:
    for topic in topics:
        if topic.error is not ErrorCode.NONE and not (topic.error in _NOT_YET and topic.partitions):
            raise topic_error(topic.name, topic.error)
    return [TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions]


async def offset_ranges(
    client: ClusterClient,
    partitions: Collection[TopicPartition],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetRange]:
    """Return the offset ranges of the partitions; `end` depends on the isolation level.  Raises ApiError."""
    found = await find_offset_ranges(client, partitions, isolation=isolation)
    return {tp: _found(tp, found) for tp in sorted(partitions)}


async def find_offset_ranges(
    client: ClusterClient,
    partitions: Collection[TopicPartition],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Outcomes[OffsetRange]:
    """As `offset_ranges`, with an error per partition."""
    found = await list_offsets_at(client, partitions, (EARLIEST, LATEST), isolation=isolation)
    return {
        tp: bounds
        if isinstance(bounds, ApiError)
        else OffsetRange(bounds[0].offset, bounds[1].offset, bounds[1].leader_epoch)
        for tp, bounds in found.items()
    }


async def resolve(
    client: ClusterClient, ranges: Mapping[TopicPartition, OffsetRange], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """Resolve `spec` to an offset in each partition, which may be outside its range.

    A time after the last record means the end.  Raises ApiError.
    """
    match spec.anchor:
        case Anchor.ZERO:
            return dict.fromkeys(ranges, spec.value)
        case Anchor.START:
            return {tp: held.start + spec.value for tp, held in ranges.items()}
        case Anchor.END:
            return {tp: held.end + spec.value for tp, held in ranges.items()}
        case Anchor.TIME:
            found = await list_offsets(client, dict.fromkeys(ranges, spec.value))
            offsets = {tp: _found(tp, found).offset for tp in ranges}
            return {tp: ranges[tp].end if offset == NO_OFFSET else offset for tp, offset in offsets.items()}


def _found(tp: TopicPartition, outcomes: Outcomes[T]) -> T:
    outcome = outcomes[tp]
    if isinstance(outcome, ApiError):
        raise ApiError(outcome.code, f"{tp}: {outcome}")
    return outcome

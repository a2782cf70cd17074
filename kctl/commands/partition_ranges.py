"""Which partitions of a topic are read, and their ranges of offsets, for `kctl consume` and `kctl copy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.admin.offsets import find_offset_ranges, offset_ranges, resolve
from kctl.client.partitioner import partition_of_key
from kctl.client.positions import Position
from kctl.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kctl.admin.offset_spec import OffsetSpec
    from kctl.admin.offsets import OffsetRange
    from kctl.client.cluster import ClusterClient
    from kctl.client.consumer import Consumer
    from kctl.client.list_offsets import IsolationLevel
    from kctl.console import Console
    from kctl.model import TopicPartition

NAMED_MAX = 10
CONTINUE_REMEDY = "'--on-truncation continue' reads on where the logs part"


def select_partitions(
    tps: list[TopicPartition], requested: list[int] | None, key: bytes | None = None
) -> list[TopicPartition]:
    """The requested partitions of all partitions of a topic, and of these the one of the key.

    Raises ApiError for a partition that does not exist.
    """
    if requested is not None:
        missing = sorted(set(requested) - {tp.partition for tp in tps})
        if missing:
            message = f"{tps[0].topic} has no partition {', '.join(map(str, missing))}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    of_key = None if key is None else partition_of_key(key, len(tps))
    return [
        tp
        for tp in tps
        if (requested is None or tp.partition in requested) and (of_key is None or tp.partition == of_key)
    ]


async def reachable(
    console: Console, client: ClusterClient, tps: list[TopicPartition], isolation: IsolationLevel
) -> dict[TopicPartition, OffsetRange]:
    """The offset ranges of the partitions; those with an error are omitted with a warning.

    Raises ApiError if all have an error.
    """
    held: dict[TopicPartition, OffsetRange] = {}
    failed: dict[TopicPartition, ApiError] = {}
    for tp, found in (await find_offset_ranges(client, tps, isolation=isolation)).items():
        if isinstance(found, ApiError):
            failed[tp] = found
        else:
            held[tp] = found
    for tp, error in failed.items():
        if not held:
            raise ApiError(error.code, f"{tp}: {error}")
        console.warn(f"{tp} is not read: {error.code.name}: {error}")
    return held


async def starts(
    client: ClusterClient, tps: Collection[TopicPartition], lower: OffsetSpec, isolation: IsolationLevel
) -> dict[TopicPartition, Position]:
    """Where reading from `lower` starts, moved into the range of each partition.  Raises ApiError."""
    held = await offset_ranges(client, tps, isolation=isolation)
    requested = await resolve(client, held, lower)
    return {tp: Position(inside(range_, requested[tp])) for tp, range_ in held.items()}


def named_partitions(tps: Sequence[TopicPartition]) -> str:
    """The first partitions, and the number of the others."""
    more = f" and {len(tps) - NAMED_MAX} more" if len(tps) > NAMED_MAX else ""
    return ", ".join(map(str, tps[:NAMED_MAX])) + more


def inside(range_: OffsetRange, offset: int) -> int:
    """The offset moved into the range."""
    return min(max(offset, range_.start), range_.end)


def drop_finished(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> None:
    """Stops fetching partitions that have reached their ends."""
    for tp, end in ends.items():
        if tp in consumer.positions and consumer.positions[tp] >= end:
            consumer.drop(tp)

"""Looks up offsets by timestamp on the partition leaders (ListOffsets, KIP-79)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.metadata import ClusterMetadata
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""The record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL = -4
"""The start of what is on the leader's disk, with remote storage (KIP-405)."""
LATEST_TIERED = -5
"""The last offset in remote storage (KIP-1005)."""
SPECIAL = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}
"""Timestamps that stand for an offset, by the names of Kafka's kafka-get-offsets."""
_SINCE = {MAX_TIMESTAMP: (7, "3.0"), EARLIEST_LOCAL: (8, "3.4"), LATEST_TIERED: (9, "3.8")}
"""The first version of ListOffsets, and of Kafka, with each."""
NO_OFFSET = -1
DEBUGGING_CONSUMER = -2
"""The replica id of a reader that compares replicas: any replica responds, up to its own high watermark."""


class IsolationLevel(IntEnum):
    """Kafka's isolation.level: whether records of open and aborted transactions are visible."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """The offset for a timestamp; offset -1 if there is no record at or after it, timestamp -1 if unknown."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    client: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    known: ClusterMetadata | None = None,
) -> Outcomes[OffsetAt]:
    """Return the first offset at or after each timestamp (ms since the epoch, or one of SPECIAL), by partition.

    Leaders are those in `known`, or are looked up without it.  Leaders that are too old for one of SPECIAL have the
    error UNSUPPORTED_VERSION, which names the version of Kafka.
    """

    async def send_to(connection: Connection, tps: list[TopicPartition]) -> Outcomes[OffsetAt]:
        return await _send_one(connection, {tp: timestamps[tp] for tp in tps}, isolation)

    return await on_leaders(client, timestamps, send_to, known=known)


async def list_offsets_at(
    client: ClusterClient,
    partitions: Collection[TopicPartition],
    timestamps: Sequence[int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    known: ClusterMetadata | None = None,
) -> Outcomes[tuple[OffsetAt, ...]]:
    """As `list_offsets`, for the same several timestamps of all partitions, for example EARLIEST and LATEST."""

    async def send_to(connection: Connection, tps: list[TopicPartition]) -> Outcomes[tuple[OffsetAt, ...]]:
        calls = [_send_one(connection, dict.fromkeys(tps, timestamp), isolation) for timestamp in timestamps]
        results = await client.gather(calls)
        return {
            tp: _together([result[tp] for result in results])
            for tp in tps
            if all(tp in by_partition for by_partition in results)
        }

    return await on_leaders(client, partitions, send_to, known=known)


async def list_offsets_of_replicas(
    connection: Connection, tps: Collection[TopicPartition], timestamp: int
) -> Outcomes[OffsetAt]:
    """EARLIEST or LATEST in the replicas of one broker, leading or not: the start or the end of their logs."""
    request = _request(list(tps), dict.fromkeys(tps, timestamp))
    request.replica_id = DEBUGGING_CONSUMER
    return _outcomes(await connection.send(request, ListOffsetsResponse))


async def list_offsets_of_leader(
    connection: Connection, tps: Collection[TopicPartition], timestamp: int
) -> Outcomes[OffsetAt]:
    """As `list_offsets_of_replicas`, of partitions that this broker leads: the others are errors."""
    return await _send_one(connection, dict.fromkeys(tps, timestamp), IsolationLevel.READ_UNCOMMITTED)


async def _send_one(
    connection: Connection, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> Outcomes[OffsetAt]:
    highest = connection.versions.highest(ListOffsetsRequest)
    for name, timestamp in SPECIAL.items():
        version, release = _SINCE.get(timestamp, (0, ""))
        if highest < version and timestamp in timestamps.values():
            text = (
                f"the broker cannot look up {name}: that needs ListOffsets version {version}, as of Kafka {release},"
                f" and it serves version {highest}"
            )
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
    request = _request(list(timestamps), timestamps, isolation)
    return _outcomes(await connection.send(request, ListOffsetsResponse))


def _outcomes(response: ListOffsetsResponse) -> Outcomes[OffsetAt]:
    return {
        TopicPartition(topic.name, partition.partition_index): _outcome(partition)
        for topic in response.topics
        for partition in topic.partitions
    }


def _together(outcomes: Sequence[OffsetAt | ApiError]) -> tuple[OffsetAt, ...] | ApiError:
    """Return all offsets of one partition, or its first error."""
    error = next((outcome for outcome in outcomes if isinstance(outcome, ApiError)), None)
    return error or tuple(outcome for outcome in outcomes if isinstance(outcome, OffsetAt))


def _request(
    tps: list[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for tp in tps:
        topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamps[tp]))
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=list(topics.values()))


def _outcome(partition: ListOffsetsPartitionResponse) -> OffsetAt | ApiError:
    if partition.error_code:
        return ApiError(ErrorCode.of(partition.error_code))
    if partition.old_style_offsets:
        return OffsetAt(partition.old_style_offsets[0], -1, -1)
    return OffsetAt(partition.offset, partition.timestamp, partition.leader_epoch)

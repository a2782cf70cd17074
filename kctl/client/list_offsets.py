"""Offsets for points in time, from the leaders (ListOffsets)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from kctl.client.cluster import ClusterClient
from kctl.client.leaders import Outcomes, ask_leaders
from kctl.client.transport import Connection
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
NO_OFFSET = -1


class IsolationLevel(IntEnum):
    """What of open transactions a reader sees."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """An offset found for a point in time; offset -1: there is no record that late.  timestamp -1: not known."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    client: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Outcomes[OffsetAt]:
    """The first offset at or after each timestamp (ms), or LATEST or EARLIEST."""

    async def ask(connection: Connection, tps: list[TopicPartition]) -> Outcomes[OffsetAt]:
        request = _request(tps, timestamps, isolation)
        response = await connection.send(request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, partition.partition_index): _outcome(partition)
            for topic in response.topics
            for partition in topic.partitions
        }

    return await ask_leaders(client, timestamps, ask)


def _request(
    tps: list[TopicPartition], timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel
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

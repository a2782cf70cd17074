"""Sets and deletes the committed offsets of a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from kctl.admin.outcome import Outcome, outcome_of, raise_if
from kctl.client.cluster import ClusterClient
from kctl.client.committed_offsets import CommittedOffset
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kctl.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

Outcomes = dict[TopicPartition, Outcome]

MESSAGES = {
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has members now.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group has members now.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group is active and subscribed to this topic.",
    ErrorCode.NON_EMPTY_GROUP: "The group is active.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group does not exist.",
}
"""Messages for codes whose general description does not fit here."""

NO_RESULT = (ErrorCode.UNKNOWN_SERVER_ERROR, "The broker's response does not contain this partition.")


async def commit_offsets(
    client: ClusterClient, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> Outcomes:
    """Commits offsets of a group without members, which need not exist; one outcome per partition."""
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp].offset,
                        committed_leader_epoch=offsets[tp].leader_epoch,
                        committed_metadata=offsets[tp].metadata,
                    )
                    for tp in tps
                ],
            )
            for topic, tps in by_topic(offsets).items()
        ],
    )

    async def send_to(connection: Connection) -> Outcomes:
        response = await connection.send(request, OffsetCommitResponse)
        results = {
            TopicPartition(topic.name, one.partition_index): one.error_code
            for topic in response.topics
            for one in topic.partitions
        }
        raise_if(next(iter(results.values()), 0), *COORDINATOR_MOVED)
        return {tp: _outcome(tp, code) for tp, code in results.items()}

    return await _on_coordinator(client, group_id, offsets, send_to)


async def delete_offsets(client: ClusterClient, group_id: str, partitions: Collection[TopicPartition]) -> Outcomes:
    """Deletes the committed offsets of the partitions; one outcome per partition."""
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=tp.partition) for tp in tps]
            )
            for topic, tps in by_topic(partitions).items()
        ],
    )

    async def send_to(connection: Connection) -> Outcomes:
        response = await connection.send(request, OffsetDeleteResponse)
        raise_if(response.error_code, *COORDINATOR_MOVED)
        if response.error_code:
            return {tp: _outcome(tp, response.error_code) for tp in partitions}
        return {
            (tp := TopicPartition(topic.name, one.partition_index)): _outcome(tp, one.error_code)
            for topic in response.topics
            for one in topic.partitions
        }

    return await _on_coordinator(client, group_id, partitions, send_to)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions by topic, both sorted."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp)
    return topics


async def _on_coordinator(
    client: ClusterClient,
    group_id: str,
    partitions: Collection[TopicPartition],
    send_to: Callable[[Connection], Awaitable[Outcomes]],
) -> Outcomes:
    try:
        results = await client.on_coordinator(group_id, send_to)
        return {tp: results.get(tp, Outcome(str(tp), *NO_RESULT)) for tp in sorted(partitions)}
    except ApiError as error:
        return {tp: Outcome(str(tp), error.code, str(error)) for tp in sorted(partitions)}


def _outcome(tp: TopicPartition, error_code: int) -> Outcome:
    return outcome_of(str(tp), error_code, MESSAGES.get(ErrorCode.of(error_code)))

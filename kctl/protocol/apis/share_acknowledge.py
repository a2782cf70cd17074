"""ShareAcknowledge (key 79, versions 1-2): what a member of a share group has done with records (KIP-932).

Generally available in Kafka 4.2; version 0 of earlier ones was a preview.  2: renewals of acquisition locks (KIP-1222).

    acknowledge_types   one for all offsets of a batch, or one per offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class AcknowledgementBatch:
    """Consecutive offsets of records that were acquired."""

    first_offset: int = int64()
    last_offset: int = int64()
    """Inclusive."""
    acknowledge_types: list[int] = array(int8)


@struct
class AcknowledgePartition:
    """The acknowledgements of one partition."""

    partition_index: int = int32(is_partition=True)
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@struct
class AcknowledgeTopic:
    """The partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


@request(key=79, versions="1-2", flexible="0+", served="none")
class ShareAcknowledgeRequest:
    """Sent to the leaders of the partitions."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    """The epoch after that of the last request to the broker; -1 closes the session and releases what was acquired."""
    is_renew_ack: bool = boolean("2+", default=False)
    """Whether there is a renewal."""
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


@struct
class LeaderIdAndEpoch:
    """The leader that the broker knows, -1 if unknown."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct
class NodeEndpoint:
    """The address of a leader."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@struct
class AcknowledgedPartition:
    """The result of one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)


@struct
class AcknowledgedTopic:
    """The partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[AcknowledgedPartition] = array(AcknowledgedPartition)


@response(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    """The result of each partition."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", default=0, ignorable=True)
    responses: list[AcknowledgedTopic] = array(AcknowledgedTopic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
    """Of leaders that requests should go to, with NOT_LEADER_OR_FOLLOWER."""

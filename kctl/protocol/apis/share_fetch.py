"""ShareFetch (key 78, versions 1-2): acquires records for a member of a share group (KIP-932).

Requests of a share session list only partitions that are added, removed, or have acknowledgements.  Generally available
in Kafka 4.2; version 0 of earlier ones was a preview.  2: the acquire mode (KIP-1206), renewals of acquisition locks
(KIP-1222).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.apis.share_acknowledge import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from kctl.protocol.message import (
    Records,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    partition_number,
    records,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class FetchPartition:
    """A partition to fetch, and acknowledgements of records that were acquired before."""

    partition_index: int = int32(is_partition=True)
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@struct
class FetchTopic:
    """The partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    """Partitions of one topic that leave the session."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(partition_number)


@request(key=78, versions="1-2", flexible="0+", served="none")
class ShareFetchRequest:
    """Sent to the leaders of the partitions."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    """0 opens a session; then it increases with each request."""
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    max_records: int = int32()
    """The limit is exceeded up to the end of a batch, unless `share_acquire_mode` is 1."""
    batch_size: int = int32()
    """How many records the batches of `acquired_records` should have."""
    share_acquire_mode: int = int8("2+", default=0, ignorable=True)
    """0 for whole batches, 1 for at most `max_records`."""
    is_renew_ack: bool = boolean("2+", default=False)
    """Whether there is a renewal; nothing is fetched then."""
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@struct
class AcquiredRecords:
    """Consecutive offsets that this member has acquired."""

    first_offset: int = int64()
    last_offset: int = int64()
    """Inclusive."""
    delivery_count: int = int16()
    """How many times the records were acquired."""


@struct
class PartitionData:
    """The records of one partition; those outside of `acquired_records` are of other members."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)
    records: Records = records()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@struct
class ShareFetchableTopicResponse:
    """The partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@response(key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    """Partitions with records, an error or the result of acknowledgements."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32(default=0)
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
    """Of leaders that requests should go to, with NOT_LEADER_OR_FOLLOWER."""

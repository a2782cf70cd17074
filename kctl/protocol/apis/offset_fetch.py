"""OffsetFetch (key 9, versions 0-10): the committed offsets of groups.

0: read from ZooKeeper.  2: null for all topics; an error code for the group (KIP-88).  3: throttle time.  5: leader
epochs (KIP-320).  6: flexible.  7: `require_stable` (KIP-447).  8: several groups in one request (KIP-709).
9: members of groups of the consumer protocol (KIP-848).  10: topic ids in place of names, as in OffsetCommit.
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import (
    array,
    boolean,
    int16,
    int32,
    int64,
    partition_number,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class OffsetFetchRequestTopic:
    """Partitions of one topic."""

    name: str = string("0-9", is_topic=True, default="", ignorable=True)
    topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int] = array(partition_number)


@struct
class OffsetFetchRequestGroup:
    """Partitions of one group."""

    group_id: str = string()
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    """Null for a client that is not a member of a group of the consumer protocol."""
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, nullable="0+")
    """Null for all partitions with a committed offset."""


@request(key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest:
    """Sent to the group coordinator."""

    group_id: str = string("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7", default=[])
    """Null for all partitions with a committed offset."""
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", default=[])
    """All with the same coordinator."""
    require_stable: bool = boolean("7+", default=False)
    """Fail with UNSTABLE_OFFSET_COMMIT while a transaction has uncommitted offsets for a partition."""


@struct
class OffsetFetchResponsePartition:
    """The committed offset of one partition."""

    partition_index: int = int32(is_partition=True)
    committed_offset: int = int64()
    """-1 if there is none."""
    committed_leader_epoch: int = int32("5+", default=-1, ignorable=True)
    """The epoch of the last record that was read; -1 if unknown."""
    metadata: str | None = string(nullable="0+")
    """The text given with the commit; empty if there is none."""
    error_code: int = int16()


@struct
class OffsetFetchResponseTopic:
    """The partitions of one topic."""

    name: str = string("0-9", is_topic=True, default="", ignorable=True)
    topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@struct
class OffsetFetchResponseGroup:
    """The committed offsets of one group."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16()
    """An error of the group."""


@response(key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse:
    """The committed offsets."""

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", default=[])
    error_code: int = int16("2-7", default=0, ignorable=True)
    """An error of the group; before version 2 it is repeated for each partition."""
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", default=[])

"""LeaderAndIsr (key 4, versions 0-5): the controller makes a broker leader or follower of partitions.

0, 1: one list of partitions with topic names.  2: grouped by topic; broker epochs (KIP-380).  3: adding and removing
replicas (KIP-455).  4: flexible.  5: topic ids (KIP-516); `type`; the response is grouped by topic id.
"""

from __future__ import annotations

from uuid import UUID

from kctl.limits import CONTROL_REQUEST_COST_MAX
from kctl.model import ZERO_UUID
from kctl.protocol.message import array, boolean, int8, int16, int32, int64, request, response, string, struct, uuid


@struct
class LeaderAndIsrPartitionState:
    """The state of one partition."""

    topic_name: str = string("0-1", default="", ignorable=True, is_topic=True)
    """In the grouped versions it is in the topic."""
    partition_index: int = int32(is_partition=True)
    controller_epoch: int = int32()
    """Epoch of the controller that last wrote the state."""
    leader: int = int32()
    """-1 without a leader, -2 while the topic is being deleted."""
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    """Broker ids of the in-sync replicas."""
    partition_epoch: int = int32()
    """Version of the state's znode."""
    replicas: list[int] = array(int32)
    """All replicas, preferred leader first; during a reassignment old and new ones."""
    adding_replicas: list[int] = array(int32, "3+", default=[], ignorable=True)
    """Replicas that a reassignment adds."""
    removing_replicas: list[int] = array(int32, "3+", default=[], ignorable=True)
    """Replicas that a reassignment removes when it is complete."""
    is_new: bool = boolean("1+", default=False, ignorable=True)
    """True if the partition was just created, so that a log may be created while log directories are offline."""


@struct
class LeaderAndIsrTopicState:
    """The partitions of one topic."""

    topic_name: str = string(is_topic=True)
    topic_id: UUID = uuid("5+", default=ZERO_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState)


@struct
class LeaderAndIsrLiveLeader:
    """The endpoint of a leader, for followers to fetch from."""

    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


@request(key=4, versions="0-5", flexible="4+", cost_max=CONTROL_REQUEST_COST_MAX)
class LeaderAndIsrRequest:
    """Sent by the active controller."""

    controller_id: int = int32()
    controller_epoch: int = int32()
    """Incremented by each election of a controller; a lower one than the last is refused."""
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    """The zxid of the registration of the receiver (KIP-380); -1 is not checked."""
    type: int = int8("5+", default=0)
    """0 unknown (older versions), 1 incremental, 2 full: partitions that are not listed are stray."""
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "0-1", default=[])
    """All partitions in one list; later versions group them by topic."""
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+", default=[])
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)
    """The brokers that lead a partition of the request."""


@struct
class LeaderAndIsrPartitionError:
    """The result for one partition."""

    topic_name: str = string("0-4", default="", ignorable=True, is_topic=True)
    partition_index: int = int32(is_partition=True)
    error_code: int = int16()


@struct
class LeaderAndIsrTopicError:
    """The results for one topic."""

    topic_id: UUID = uuid()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError)


@response(key=4, versions="0-5", flexible="4+")
class LeaderAndIsrResponse:
    """The result for each partition."""

    error_code: int = int16()
    """An error of the whole request: STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH."""
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4", default=[])
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+", default=[])

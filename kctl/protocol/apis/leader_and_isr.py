"""LeaderAndIsr (key 4, versions 0-5): the controller tells a broker which partitions it leads and follows.

0, 1: one flat list of partitions with their topics' names.  2: grouped by topic; broker epochs (KIP-380).  3:
replicas being added and removed (KIP-455).  4: flexible.  5: topic ids (KIP-516); the response is grouped by topic
id, and `type` says whether the request lists all partitions of the broker.
"""

from __future__ import annotations

from uuid import UUID

from kctl.limits import CONTROL_REQUEST_COST_MAX
from kctl.model import ZERO_UUID
from kctl.protocol.message import array, boolean, int8, int16, int32, int64, request, response, string, struct, uuid


@struct
class LeaderAndIsrPartitionState:
    topic_name: str = string("0-1", default="", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    partition_epoch: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32, "3+", default=[], ignorable=True)
    removing_replicas: list[int] = array(int32, "3+", default=[], ignorable=True)
    is_new: bool = boolean("1+", default=False, ignorable=True)


@struct
class LeaderAndIsrTopicState:
    topic_name: str = string()
    topic_id: UUID = uuid("5+", default=ZERO_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState)


@struct
class LeaderAndIsrLiveLeader:
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


@request(key=4, versions="0-5", flexible="4+", cost_max=CONTROL_REQUEST_COST_MAX)
class LeaderAndIsrRequest:
    controller_id: int = int32()
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    # 1: some partitions, 2: all that the broker has; 0 in versions that do not say.
    type: int = int8("5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "0-1", default=[])
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+", default=[])
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


@struct
class LeaderAndIsrPartitionError:
    topic_name: str = string("0-4", default="", ignorable=True)
    partition_index: int = int32()
    error_code: int = int16()


@struct
class LeaderAndIsrTopicError:
    topic_id: UUID = uuid()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError)


@response(key=4, versions="0-5", flexible="4+")
class LeaderAndIsrResponse:
    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4", default=[])
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+", default=[])

"""StopReplica (key 5, versions 0-3): the controller tells a broker to stop, maybe to delete, replicas.

0: one flat list of partitions, deleted all or none.  1: grouped by topic; broker epochs (KIP-380).  2: flexible. 3:
the leader epoch and the wish to delete are per partition.
"""

from __future__ import annotations

from kctl.limits import CONTROL_REQUEST_COST_MAX
from kctl.protocol.message import array, boolean, int16, int32, int64, request, response, string, struct


@struct
class StopReplicaPartitionV0:
    topic_name: str = string()
    partition_index: int = int32()


@struct
class StopReplicaTopicV1:
    name: str = string()
    partition_indexes: list[int] = array(int32)


@struct
class StopReplicaPartitionState:
    partition_index: int = int32()
    leader_epoch: int = int32(default=-1)
    delete_partition: bool = boolean()


@struct
class StopReplicaTopicState:
    topic_name: str = string()
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState)


@request(key=5, versions="0-3", flexible="2+", cost_max=CONTROL_REQUEST_COST_MAX)
class StopReplicaRequest:
    controller_id: int = int32()
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0", default=[])
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2", default=[])
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+", default=[])


@struct
class StopReplicaPartitionError:
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


@response(key=5, versions="0-3", flexible="2+")
class StopReplicaResponse:
    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)

"""StopReplica (key 5, versions 0-3): the controller makes a broker stop, and optionally delete, replicas.

0: one list of partitions.  1: grouped by topic; broker epochs (KIP-380).  2: flexible.  3: leader epoch and
`delete_partition` for each partition (KIP-570).
"""

from __future__ import annotations

from kctl.limits import CONTROL_REQUEST_COST_MAX
from kctl.protocol.message import array, boolean, int16, int32, int64, request, response, string, struct


@struct
class StopReplicaPartitionV0:
    """A partition, in version 0."""

    topic_name: str = string(is_topic=True)
    partition_index: int = int32(is_partition=True)


@struct
class StopReplicaTopicV1:
    """The partitions of one topic, in versions 1 and 2."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@struct
class StopReplicaPartitionState:
    """A partition, from version 3 on."""

    partition_index: int = int32(is_partition=True)
    leader_epoch: int = int32(default=-1)
    """-1 if unknown, -2 if the topic is being deleted."""
    delete_partition: bool = boolean()
    """True to delete the log as well."""


@struct
class StopReplicaTopicState:
    """The partitions of one topic, from version 3 on."""

    topic_name: str = string(is_topic=True)
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState)


@request(key=5, versions="0-3", flexible="2+", cost_max=CONTROL_REQUEST_COST_MAX)
class StopReplicaRequest:
    """Sent by the active controller."""

    controller_id: int = int32()
    controller_epoch: int = int32()
    """Incremented by each election of a controller; a lower one than the last is refused."""
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    """The zxid of the registration of the receiver (KIP-380); -1 is not checked."""
    delete_partitions: bool = boolean("0-2", default=False)
    """Before version 3: True to delete the logs of all listed partitions."""
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0", default=[])
    """All partitions in one list; later versions group them by topic."""
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2", default=[])
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+", default=[])


@struct
class StopReplicaPartitionError:
    """The result for one partition."""

    topic_name: str = string(is_topic=True)
    partition_index: int = int32(is_partition=True)
    error_code: int = int16()


@response(key=5, versions="0-3", flexible="2+")
class StopReplicaResponse:
    """The result for each partition."""

    error_code: int = int16()
    """An error of the whole request: STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH."""
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)

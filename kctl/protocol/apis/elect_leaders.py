"""ElectLeaders (key 43, versions 0-2): elect leaders now; the active controller does (KIP-183).

`topic_partitions` null means all.  0: the preferred replica only.  1: unclean elections (KIP-460), and an error for
the whole request.  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, request, response, string, struct


@struct
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array(int32)


@request(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = int8("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


@struct
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@response(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)

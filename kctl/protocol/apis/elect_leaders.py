"""ElectLeaders (key 43, versions 0-2): elects leaders of partitions now (KIP-183, KIP-460).

Sent to the active controller.  1: unclean elections (KIP-460), `error_code`.  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, partition_number, request, response, string, struct


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = string(is_topic=True)
    partitions: list[int] = array(partition_number)


@request(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Elects a leader for each partition; partitions succeed or fail independently."""

    election_type: int = int8("1+", default=0)
    """0 elects the preferred replica; 1 elects any live replica, even out of sync, if there is no leader."""
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    """Null for all partitions."""
    timeout_ms: int = int32(default=60000)


@struct
class PartitionResult:
    """The result for one partition."""

    partition_id: int = int32(is_partition=True)
    error_code: int = int16()
    """ELECTION_NOT_NEEDED if the partition has that leader already."""
    error_message: str | None = string(nullable="0+", default=None)


@struct
class ReplicaElectionResult:
    """The results for one topic."""

    topic: str = string(is_topic=True)
    partition_result: list[PartitionResult] = array(PartitionResult)


@response(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """The result for each partition; for a request of all, only those that needed an election."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    """An error of the whole request, such as CLUSTER_AUTHORIZATION_FAILED."""
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)

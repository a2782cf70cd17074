"""Describes the quorum of controllers of a KRaft cluster (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kctl.client.cluster import ClusterClient
from kctl.client.connections.framing import first_result
from kctl.client.connections.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    PartitionResponse,
    ReplicaState,
    TopicData,
)

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A controller or a broker that reads the metadata log.  Times are in ms by the clock of the leader."""

    node_id: int
    directory_id: UUID | None
    """Its log directory; None before Kafka 3.9."""
    role: str
    """Leader, Follower (a voter) or Observer, as in Kafka's tool."""
    log_end_offset: int | None
    lag: int | None
    """Offsets behind the leader."""
    last_fetch_ms: int | None
    """None for the leader and if unknown."""
    last_caught_up_ms: int | None
    """When the leader appended what the replica has fetched last; None if unknown."""
    endpoints: tuple[str, ...] = ()
    """`NAME://host:port` of a voter; empty before Kafka 3.9."""

    @property
    def is_voter(self) -> bool:
        """True for controllers that elect the leader."""
        return self.role != "Observer"


@dataclass(frozen=True, slots=True)
class MetadataQuorum:
    """The leader and all replicas of the metadata log."""

    leader_id: int | None
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]

    @property
    def max_follower_lag(self) -> int | None:
        """The largest lag of a voter in offsets; None if that of one is unknown."""
        lags = [replica.lag for replica in self.replicas if replica.is_voter]
        return None if not lags or None in lags else max(lag for lag in lags if lag is not None)

    @property
    def max_follower_lag_ms(self) -> int | None:
        """By how long the voter that caught up first is behind the leader; None if unknown."""
        leader = next(
            (replica.last_caught_up_ms for replica in self.replicas if replica.node_id == self.leader_id), None
        )
        times = [replica.last_caught_up_ms for replica in self.replicas if replica.is_voter]
        if leader is None or None in times:
            return None
        return leader - min(time for time in times if time is not None)


async def describe_metadata_quorum(client: ClusterClient) -> MetadataQuorum:
    """Return the quorum by the active controller.  Raises ApiError(UNSUPPORTED_VERSION) for a cluster on ZooKeeper."""
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
    )

    async def send_to(connection: Connection) -> MetadataQuorum:
        if not connection.versions.supports(DescribeQuorumRequest):
            text = "the cluster has no metadata quorum: its metadata is in ZooKeeper, or it is older than Kafka 3.3"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
        response = await connection.send(request, DescribeQuorumResponse)
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code), response.error_message)
        partition = first_result(first_result(response.topics).partitions)
        if partition.error_code:
            raise ApiError(ErrorCode.of(partition.error_code), partition.error_message)
        endpoints = {
            node.node_id: tuple(f"{listener.name}://{listener.host}:{listener.port}" for listener in node.listeners)
            for node in response.nodes
        }
        return _quorum(partition, endpoints)

    return await client.on_any_broker(send_to, codes={ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE})


def _quorum(partition: PartitionResponse, endpoints: dict[int, tuple[str, ...]]) -> MetadataQuorum:
    leader = next((voter for voter in partition.current_voters if voter.replica_id == partition.leader_id), None)
    end = leader.log_end_offset if leader is not None else -1

    def replica(state: ReplicaState, role: str) -> QuorumReplica:
        is_known = state.log_end_offset >= 0
        return QuorumReplica(
            node_id=state.replica_id,
            directory_id=None if state.replica_directory_id == ZERO_UUID else state.replica_directory_id,
            role="Leader" if state.replica_id == partition.leader_id else role,
            log_end_offset=state.log_end_offset if is_known else None,
            lag=max(0, end - state.log_end_offset) if is_known and end >= 0 else None,
            last_fetch_ms=_time(state.last_fetch_timestamp),
            last_caught_up_ms=_time(state.last_caught_up_timestamp),
            endpoints=endpoints.get(state.replica_id, ()),
        )

    voters = [replica(voter, "Follower") for voter in partition.current_voters]
    observers = [replica(observer, "Observer") for observer in partition.observers]
    order = {"Leader": 0, "Follower": 1, "Observer": 2}
    return MetadataQuorum(
        leader_id=None if partition.leader_id < 0 else partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        replicas=tuple(sorted([*voters, *observers], key=lambda replica: (order[replica.role], replica.node_id))),
    )


def _time(time_ms: int) -> int | None:
    return time_ms if time_ms >= 0 else None

"""The quorum of controllers of a KRaft cluster (KIP-595, KIP-836, KIP-853).  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from kctl.client.cluster import lost_quorum_text
from kctl.client.connections.framing import first_result
from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.apis.describe_quorum import (
    DescribeQuorumResponse,
    PartitionResponse,
    ReplicaState,
)

NOT_FETCHING_MS = 10_000
"""A voter or broker that follows the metadata log fetches several times a second (controller.quorum.fetch)."""


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
    def voters(self) -> tuple[QuorumReplica, ...]:
        """The controllers that elect the leader."""
        return tuple(replica for replica in self.replicas if replica.is_voter)

    @property
    def leader_time_ms(self) -> int | None:
        """The clock of the leader when it responded; None before Kafka 3.3."""
        return next((replica.last_caught_up_ms for replica in self.replicas if replica.node_id == self.leader_id), None)

    def replica(self, node_id: int) -> QuorumReplica | None:
        """Return the voter or observer with this id."""
        return next((replica for replica in self.replicas if replica.node_id == node_id), None)

    def voters_away(self) -> tuple[QuorumReplica, ...]:
        """Return the voters that do not follow the leader."""
        now_ms = self.leader_time_ms
        if now_ms is None:
            return ()
        return tuple(
            voter
            for voter in self.voters
            if voter.node_id != self.leader_id
            and (voter.last_fetch_ms is None or now_ms - voter.last_fetch_ms > NOT_FETCHING_MS)
        )

    def problem_without(self, node_id: int) -> str | None:
        """Why this node must not be stopped: the others would have no majority.  None for an only voter."""
        voters, away = self.voters, {voter.node_id for voter in self.voters_away()}
        if len(voters) == 1 or node_id not in {voter.node_id for voter in voters}:
            return None
        left = len([voter for voter in voters if voter.node_id not in {*away, node_id}])
        if left > len(voters) // 2:
            return None
        return f"without controller {node_id}, {left} of {len(voters)} voters of the metadata quorum follow its leader"

    @property
    def max_follower_lag(self) -> int | None:
        """The largest lag of a voter in offsets; None if that of one is unknown."""
        lags = [replica.lag for replica in self.replicas if replica.is_voter]
        return None if not lags or None in lags else max(lag for lag in lags if lag is not None)

    @property
    def max_follower_lag_ms(self) -> int | None:
        """By how long the voter that caught up first is behind the leader; None if unknown."""
        leader = self.leader_time_ms
        times = [replica.last_caught_up_ms for replica in self.replicas if replica.is_voter]
        if leader is None or None in times:
            return None
        return leader - min(time for time in times if time is not None)


def has_returned(quorum: MetadataQuorum, node_id: int, since: tuple[int, int | None] | None) -> bool:
    """Whether a node that was restarted is the leader, or has caught up since then.

    `since` are the epoch of the leader and its clock after the restart; None if that is not known yet.
    """
    if node_id == quorum.leader_id:
        return True
    replica = quorum.replica(node_id)
    if replica is None or since is None or since[0] != quorum.leader_epoch:
        return False
    if since[1] is None:
        return replica.lag == 0
    has_fetched = replica.last_fetch_ms is not None and replica.last_fetch_ms > since[1]
    is_recent = replica.last_caught_up_ms is not None and replica.last_caught_up_ms > since[1]
    return has_fetched and (is_recent or replica.lag == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReading:
    """What is known of the metadata quorum: one of `quorum`, `lost` and `refused` is set, and none without KRaft."""

    is_kraft: bool
    asked_ms: int
    """When it was asked, in ms since the epoch."""
    quorum: MetadataQuorum | None = None
    lost: str | None = None
    """Why there is no leader, as far as the nodes show it: then what brokers say about topics and brokers is old."""
    refused: ApiError | None = None
    """The missing permission."""

    @property
    def leader_id(self) -> int | None:
        """The active controller; None if it is unknown."""
        return None if self.quorum is None else self.quorum.leader_id

    @property
    def frozen(self) -> str | None:
        """What a lost quorum means for everything that brokers say; None if there is a leader, or no KRaft."""
        return (
            None
            if self.lost is None
            else lost_quorum_text(datetime.fromtimestamp(self.asked_ms / 1000, UTC), self.lost)
        )


def quorum_of(response: DescribeQuorumResponse) -> MetadataQuorum:
    """Return the quorum in a response.  Raises ApiError."""
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

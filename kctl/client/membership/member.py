"""Settings and state of a group member."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kctl.client.assignment import NO_GENERATION
from kctl.client.assignors import DEFAULT_ASSIGNORS, is_cooperative
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Settings of a member, with the names and defaults of Kafka 2.8's consumer."""

    group_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 300_000
    """max.poll.interval.ms: how long a rebalance waits for this member to rejoin."""
    heartbeat_interval_ms: int = 3_000
    assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    """partition.assignment.strategy: names of assignors, the preferred one first."""
    rack: str = ""

    @property
    def is_cooperative(self) -> bool:
        """Whether the member keeps its partitions during a rebalance and revokes only those assigned elsewhere
        (KIP-429).
        """
        return is_cooperative(self.assignors)


class Phase(Enum):
    """Phase of a member; see `step`."""

    OUTSIDE = "outside"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "revoking"


@dataclass(slots=True)
class Member:
    """State of a member."""

    settings: MembershipSettings
    phase: Phase = Phase.OUTSIDE
    member_id: str = ""
    generation: int = NO_GENERATION
    assignor: str = ""
    """Name of the assignor that the coordinator selected for this generation."""
    is_leader: bool = False
    claimed: frozenset[TopicPartition] = frozenset()
    """As leader: the partitions that the members claim to own."""
    is_withholding: bool = False
    """As leader: whether partitions stay unassigned until their owners have revoked them."""
    owned: tuple[TopicPartition, ...] = ()
    """Partitions that may be read and committed, including those being revoked."""
    revoking: tuple[TopicPartition, ...] = ()
    """Partitions being revoked."""
    assigned: tuple[TopicPartition, ...] = ()
    """The last assignment, even if it has been revoked or lost since."""
    assigned_generation: int = NO_GENERATION
    synced_ms: int = 0
    """Time of the last assignment."""
    last_response_ms: int = 0
    """Time of the last successful response of the coordinator."""
    beat_ms: int = 0
    """Time of the last heartbeat."""

    @property
    def is_in_generation(self) -> bool:
        """Whether the member has a generation for heartbeats."""
        return self.phase in {Phase.STABLE, Phase.REVOKING}

    @property
    def may_commit(self) -> bool:
        """Whether commits are valid: in a generation, and for a cooperative member also while it rejoins."""
        return self.is_in_generation or (self.phase is Phase.JOINING and bool(self.owned))

    @property
    def session_end_ms(self) -> int:
        """When the coordinator expires the session, unless it receives a heartbeat."""
        return self.last_response_ms + self.settings.session_timeout_ms

    @property
    def next_beat_ms(self) -> int:
        """When the next heartbeat is due: heartbeat.interval.ms after the last one."""
        return self.beat_ms + self.settings.heartbeat_interval_ms

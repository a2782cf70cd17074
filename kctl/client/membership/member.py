"""What a member of a group knows of itself, and how it takes part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kctl.client.assignment import NO_GENERATION
from kctl.client.assignors import DEFAULT_ASSIGNORS, is_cooperative
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """How a member takes part; the names and defaults are those of Kafka 2.8's consumer."""

    group_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 300_000
    """max.poll.interval.ms: how long the others wait for this member to give up what it reads."""
    heartbeat_interval_ms: int = 3_000
    assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    """partition.assignment.strategy: the ways of sharing that this member knows, the preferred one first."""
    rack: str = ""

    @property
    def is_cooperative(self) -> bool:
        """Whether it keeps what it reads through a rebalance and gives up only what it is told to."""
        return is_cooperative(self.assignors)


class Phase(Enum):
    """Where a member is between two assignments."""

    OUTSIDE = "outside"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "revoking"


@dataclass(slots=True)
class Member:
    """What a member knows of itself."""

    settings: MembershipSettings
    phase: Phase = Phase.OUTSIDE
    member_id: str = ""
    generation: int = NO_GENERATION
    assignor: str = ""
    """The one that all members of this generation know, by its name."""
    is_leader: bool = False
    claimed: frozenset[TopicPartition] = frozenset()
    """What the members said that they read, as this one, the leader, was told."""
    is_withholding: bool = False
    """Whether this one, the leader, gave some of that to nobody, because its reader has to give it up first."""
    owned: tuple[TopicPartition, ...] = ()
    """What it may read and commit now, what it is about to give up among it."""
    revoking: tuple[TopicPartition, ...] = ()
    """What it is about to give up."""
    assigned: tuple[TopicPartition, ...] = ()
    """What it was given last, even if it has given that up or lost it since."""
    assigned_generation: int = NO_GENERATION
    synced_ms: int = 0
    """When it was last given something to read."""
    heard_ms: int = 0
    """When the coordinator last said that all is well."""
    beat_ms: int = 0
    """When the last heartbeat was sent."""

    @property
    def is_in_generation(self) -> bool:
        """Whether heartbeats have a generation to name."""
        return self.phase in {Phase.STABLE, Phase.REVOKING}

    @property
    def may_commit(self) -> bool:
        """A cooperative member also while it waits for the others to join: until then its generation goes on."""
        return self.is_in_generation or (self.phase is Phase.JOINING and bool(self.owned))

    @property
    def session_end_ms(self) -> int:
        """From when on the coordinator, if it heard nothing, has given this member up."""
        return self.heard_ms + self.settings.session_timeout_ms

    @property
    def next_beat_ms(self) -> int:
        return self.beat_ms + self.settings.heartbeat_interval_ms

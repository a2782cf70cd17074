"""What a member of a group knows of itself, and how it takes part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_GENERATION = -1


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
    heard_ms: int = 0
    """When the coordinator last said that all is well."""
    beat_ms: int = 0
    """When the last heartbeat was sent."""

    @property
    def is_in_generation(self) -> bool:
        """Whether heartbeats and commits have a generation to name."""
        return self.phase in {Phase.STABLE, Phase.REVOKING}

    @property
    def session_end_ms(self) -> int:
        """From when on the coordinator, if it heard nothing, has given this member up."""
        return self.heard_ms + self.settings.session_timeout_ms

    @property
    def next_beat_ms(self) -> int:
        return self.beat_ms + self.settings.heartbeat_interval_ms

"""The values that a group of the consumer protocol consists of; each is a record in `__consumer_offsets`.

All are immutable: a change of a group replaces values.  Kafka: ConsumerGroupMember, Assignment, CoordinatorRecordType.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TypeAlias
from uuid import UUID

from kctl.server.coordination.newer_groups import JOIN_EPOCH, NO_EPOCH, GroupEpoch, MemberState, TargetEpoch

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; topics without partitions are left out."""
PartitionEpochs: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""As Partitions, with the epoch in which the member got each."""

NOTHING: Mapping[UUID, frozenset[int]] = {}


class RecordType(IntEnum):
    """The number at the start of a record's key."""

    GROUP = 3
    TOPICS = 4
    """The topics of the group, up to Kafka 4.0; read and deleted only."""
    MEMBER = 5
    TARGET = 6
    MEMBER_TARGET = 7
    MEMBER_ASSIGNMENT = 8
    REGEX = 16


class ConsumerGroupState(StrEnum):
    """The values are the texts in ConsumerGroupDescribe and ListGroups responses."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """A member has joined, left or changed its subscription since the assignment was computed."""
    RECONCILING = "Reconciling"
    """Members have to revoke partitions, or wait for them."""
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What a member of the classic protocol has said, which is in a group of the consumer protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, in order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member has said about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    """Empty for none; older brokers have stored None."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    """None for a member of the consumer protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """What a member owns: the partitions that it may use, and those that it has to revoke."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = NO_EPOCH
    """The epoch that it may still have, if the response with the current one was lost."""
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs
    revoking: PartitionEpochs


NEW_MEMBER = MemberAssignment(assigned={}, revoking={})


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that match a regular expression, as of a version of this broker's metadata and a time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class LegacyTopics:
    """A record of the topics of the group by Kafka 3.7 to 4.0."""


Value: TypeAlias = (
    GroupEpoch | TargetEpoch | MemberMetadata | MemberAssignment | ResolvedRegex | LegacyTopics | Partitions
)

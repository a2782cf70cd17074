"""What can be told of one group."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.admin.outcome import Outcome
from kctl.errors import ErrorCode
from kctl.model import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
"""Type of the groups whose members are assigned by the broker (KIP-848)."""
EPOCH_OF_STATIC_MEMBERS_AWAY = -2
OTHER_TYPES = {"share": "kafka-share-groups.sh", "streams": "kafka-streams-groups.sh"}
"""Groups whose members are no consumers: kctl lists them and, if they are named, deletes them.  What does the rest."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member and what it has to read, where its assignment is a consumer's.

    What follows the assignment is told of groups of the consumer protocol only, `member_type` since Kafka 4.0.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    member_epoch: int | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    """What it will have when the group has come to rest."""
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    member_type: str | None = None
    """CLASSIC for a member that has not been upgraded yet (KIP-1099), else CONSUMER."""

    @property
    def is_away(self) -> bool:
        """A static member that has left, whose place is kept until its session times out."""
        return self.member_epoch == EPOCH_OF_STATIC_MEMBERS_AWAY


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """How far a group has read one partition; -1: nothing committed, or the end is not known."""

    tp: TopicPartition
    committed_offset: int
    leader_epoch: int
    metadata: str
    log_end_offset: int
    error: ErrorCode = ErrorCode.NONE

    @property
    def lag(self) -> int | None:
        """Records behind the end; None when either side is not known."""
        if self.committed_offset < 0 or self.log_end_offset < 0:
            return None
        return max(0, self.log_end_offset - self.committed_offset)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group, its members as the broker told them; with an outcome that is an error the rest is empty, except for
    type and state of a group that the cluster has and kctl cannot describe."""

    outcome: Outcome
    type: str = ""
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    """The assignor, where the group is one of consumers."""
    coordinator: str = ""
    members: tuple[GroupMember, ...] = ()
    offsets: tuple[GroupOffset, ...] = ()
    group_epoch: int | None = None
    """Goes up with every change to members, subscriptions and topics; as the next, of the consumer protocol only."""
    target_assignment_epoch: int | None = None
    """The group epoch for which the assignment has been worked out."""
    refusal: str | None = None
    """What a broker of Kafka 4 says when there is no such group of consumers; older ones call the group Dead."""

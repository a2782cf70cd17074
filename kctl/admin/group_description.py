"""Description of a group: state, members, offsets."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.admin.outcome import Outcome
from kctl.errors import ErrorCode
from kctl.model import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
"""Type of groups with broker-side assignment (KIP-848)."""
EPOCH_OF_STATIC_MEMBERS_AWAY = -2
OTHER_TYPES = {"share": "kafka-share-groups.sh", "streams": "kafka-streams-groups.sh"}
"""Group types that kctl only lists and deletes, with Kafka's tool for other operations."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member and its assigned partitions, if it is a consumer.

    The fields after the assignment exist for the consumer protocol only, `member_type` since Kafka 4.0.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    member_epoch: int | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    """The assignment after the rebalance."""
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    member_type: str | None = None
    """CLASSIC for a member with the classic protocol (KIP-1099), else CONSUMER."""

    @property
    def is_away(self) -> bool:
        """Whether this is a static member that has left and keeps its place until its session expires."""
        return self.member_epoch == EPOCH_OF_STATIC_MEMBERS_AWAY


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Committed offset and end of one partition; -1 for no commit or an unknown end."""

    tp: TopicPartition
    committed_offset: int
    leader_epoch: int
    metadata: str
    log_end_offset: int
    error: ErrorCode = ErrorCode.NONE

    @property
    def lag(self) -> int | None:
        """End minus committed offset; None if either is unknown."""
        if self.committed_offset < 0 or self.log_end_offset < 0:
            return None
        return max(0, self.log_end_offset - self.committed_offset)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group and its members in the order of the response.

    With an error outcome the other fields are empty, except type and state of a group that kctl cannot describe.
    """

    outcome: Outcome
    type: str = ""
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    """The assignor, for groups of consumers."""
    coordinator: str = ""
    members: tuple[GroupMember, ...] = ()
    offsets: tuple[GroupOffset, ...] = ()
    group_epoch: int | None = None
    """Incremented with each change of members, subscriptions and topics; consumer protocol only."""
    target_assignment_epoch: int | None = None
    """The group epoch of the target assignment; consumer protocol only."""
    refusal: str | None = None
    """Error message of a Kafka 4 broker for a group that does not exist; older ones return the state Dead."""

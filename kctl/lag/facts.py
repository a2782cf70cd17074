"""The known facts about a group and a partition: the input of the rules of lag.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kctl.client.outcome import Outcome
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE

# The known facts about a group and a partition: the input of the rules of lag. Pure.


WINDOW_MS = 300_000
"""Default period over which rates are computed, and in which a reader must have made progress."""


class Position(NamedTuple):
    """The committed offset at a time."""

    time_ms: int
    offset: int


class LogRange(NamedTuple):
    """The offsets of a partition that a reader can read: from `start` up to, not including, `end`."""

    start: int
    end: int
    """The high watermark, or the last stable offset for a reader with read_committed."""
    high_watermark: int


class Unread(NamedTuple):
    """The unread records, from a fetch at the committed offset.  Control records and aborted ones are not counted."""

    oldest_timestamp_ms: int | None = None
    """Timestamp of the first unread record; None if it has none or was not found."""
    records: int | None = None
    """Number of unread records; None if they were not read to the end."""


class Look(NamedTuple):
    """An earlier observation of the same partition."""

    time_ms: int
    committed: int | None
    start: int
    end: int


class Retention(NamedTuple):
    """When records are deleted; None for no limit or an unknown one."""

    ms: int | None = None
    bytes: int | None = None


NOTHING_FETCHED = Unread()
NO_LIMITS = Retention()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The known facts about a group and a partition at `now_ms`.  Times are in ms since the epoch."""

    now_ms: int
    log: LogRange
    committed: int | None
    """None without a commit: there never was one, or it has expired."""
    unread: Unread = NOTHING_FETCHED
    is_assigned: bool = False
    """Whether a live member is assigned the partition."""
    has_left: bool = False
    """Whether the group has had members, and has none now."""
    commits: tuple[Position, ...] = ()
    """Commits of the window in the order of time, from the history of the group."""
    commits_since_ms: int | None = None
    """`commits` has all commits since this time; None if the history is unknown."""
    looks: tuple[Look, ...] = ()
    """Earlier observations in the window, in the order of time."""
    end_before: Position | None = None
    """The first offset with a timestamp of this time or later, from the time index."""
    retention: Retention = NO_LIMITS
    size_bytes: int | None = None
    """Size of the partition's log."""
    window_ms: int = WINDOW_MS


# Description of a group: state, members, offsets.


CLASSIC = "classic"
CONSUMER = "consumer"
"""Type of groups with broker-side assignment (KIP-848)."""
EPOCH_OF_STATIC_MEMBERS_AWAY = -2
SHARE = "share"
"""Type of groups whose members read the same partitions (KIP-932); their offsets are not in __consumer_offsets."""
STREAMS = "streams"
"""Type of groups of Kafka Streams with broker-side assignment (KIP-1071)."""
OTHER_TYPES = {SHARE: "kafka-share-groups.sh", STREAMS: "kafka-streams-groups.sh"}
"""Group types that kctl only lists and deletes where brokers do not describe them, with Kafka's tool for the rest."""


DESCRIBING_APIS = {SHARE: (77, 1), STREAMS: (89, 0)}
"""Key and first version of the API that describes groups of these types."""


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
    reported_lag: int | None = None
    """Of a share group: the records that are not acknowledged, which need not be the last ones (KIP-1226)."""

    @property
    def lag(self) -> int | None:
        """What is reported, else end minus committed offset; None if either is unknown."""
        if self.reported_lag is not None:
            return self.reported_lag
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

    @property
    def has_left(self) -> bool:
        """Whether consumers have joined it and all have left; jobs that commit without joining give it no protocol."""
        has_joined = self.type in {CONSUMER, SHARE, STREAMS} or self.protocol_type == PROTOCOL_TYPE
        return self.outcome.is_done and not self.members and has_joined

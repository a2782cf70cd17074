"""The embedded protocol of consumers: subscriptions and assignments.  Kafka's ConsumerProtocol.

They are the opaque bytes in JoinGroup and SyncGroup for groups of protocol type "consumer".  Newer versions only add
fields at the end, so a newer version than the newest one here is read as the latter, as Kafka's ConsumerProtocol does.

Versions: 1 adds the partitions that a member still owns (KIP-429), 2 the generation in which they were assigned
(KIP-792), 3 its rack (KIP-881).  Assignments are the same in all of them.

Java's sticky assignors put the owned partitions and the generation into the user data, since before version 1.
"""

from __future__ import annotations

from typing import TypeVar

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode_body, encode_versioned, version_of
from kctl.protocol.definition import definition_of
from kctl.protocol.message import array, bytes_, data, int32, string, struct

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 3
"""As librdkafka and Kafka 4: librdkafka reads the generation from this version only."""
ASSIGNMENT_VERSION = 1

T = TypeVar("T")


@struct
class TopicPartitions:
    """Partitions of one topic; called TopicPartition in Kafka's definitions."""

    topic: str = string()
    partitions: list[int] = array(int32)


@data(versions="0-3")
class ConsumerProtocolSubscription:
    """The topics that a member subscribes to."""

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    """Data of the assignor, opaque to the other members; null if it has none."""
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, "1+", default=[], ignorable=True)
    """Partitions that the member has not revoked, for cooperative rebalancing (KIP-429)."""
    generation_id: int = int32("2+", default=-1, ignorable=True)
    """Generation in which they were assigned; -1 if unknown."""
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    """The member's `client.rack`; null if it is not set."""


@data(versions="0-3")
class ConsumerProtocolAssignment:
    """The partitions assigned to a member."""

    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    """Data of the assignor for this member; null if it has none."""


@data(versions="0-1")
class StickyUserData:
    """The user data of the `sticky` assignor; Java's StickyAssignor writes version 1 without a version number."""

    previous_assignment: list[TopicPartitions] = array(TopicPartitions)
    generation: int = int32("1+", default=-1, ignorable=True)
    """Generation of the previous assignment; -1 if unknown."""


@data(versions="0")
class CooperativeStickyUserData:
    """The user data of the `cooperative-sticky` assignor: the generation in which the owned partitions were
    assigned.
    """

    generation: int = int32()


def decode_subscription(blob: memoryview | bytes) -> ConsumerProtocolSubscription:
    """Decode the `metadata` of a JoinGroup protocol.  Raises MalformedRequest."""
    return _decode(ConsumerProtocolSubscription, blob)


def decode_assignment(blob: memoryview | bytes) -> ConsumerProtocolAssignment:
    """Decode the `assignment` of a SyncGroup member.  Raises MalformedRequest."""
    return _decode(ConsumerProtocolAssignment, blob)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """Return the `metadata` of a JoinGroup protocol."""
    return encode_versioned(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = ASSIGNMENT_VERSION) -> bytes:
    """Return the `assignment` of a SyncGroup member."""
    return encode_versioned(assignment, version)


def _decode(cls: type[T], blob: memoryview | bytes) -> T:
    version = version_of(blob)
    if version < 0:
        raise MalformedRequest(f"{cls.__name__} has version {version}")
    return decode_body(cls, blob, min(version, definition_of(cls).versions[-1]))

"""What consumers tell each other through the group coordinator: subscriptions and assignments.

They are the opaque bytes of JoinGroup and SyncGroup for groups of protocol type "consumer".  Newer versions only add
fields at the end, so a version above ours is read as our newest, as Kafka's ConsumerProtocol does.

Versions: 1 adds the partitions that a member still owns (KIP-429).  2 adds the generation in which it got them
(KIP-792).  3 adds its rack (KIP-881).  An assignment is the same in all of them.

Java's sticky assignors wrote what the versions 1 and 2 tell into the user data before there were these, and still do.
"""

from __future__ import annotations

from typing import TypeVar

from kctl.errors import MalformedRequest
from kctl.protocol.message import array, bytes_, data, definition_of, int32, string, struct
from kctl.protocol.versioned import decode_body, encode_versioned, version_of

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 3
"""What we write, as librdkafka and Kafka 4 do: librdkafka takes the generation from nowhere else."""
ASSIGNMENT_VERSION = 1

T = TypeVar("T")


@struct
class TopicPartitions:
    """Some partitions of one topic; Kafka's name for it is TopicPartition."""

    topic: str = string()
    partitions: list[int] = array(int32)


@data(versions="0-3")
class ConsumerProtocolSubscription:
    """What one member wants to read."""

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, "1+", default=[], ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@data(versions="0-3")
class ConsumerProtocolAssignment:
    """What one member shall read."""

    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = bytes_(nullable="0+", default=None)


@data(versions="0-1")
class StickyUserData:
    """The user data of `sticky`; Java's StickyAssignor writes version 1 and does not say so."""

    previous_assignment: list[TopicPartitions] = array(TopicPartitions)
    generation: int = int32("1+", default=-1, ignorable=True)


@data(versions="0")
class CooperativeStickyUserData:
    """The user data of `cooperative-sticky`: when the member was given what it owns."""

    generation: int = int32()


def decode_subscription(blob: memoryview | bytes) -> ConsumerProtocolSubscription:
    """Raises MalformedRequest when another kind of client wrote the bytes."""
    return _decode(ConsumerProtocolSubscription, blob)


def decode_assignment(blob: memoryview | bytes) -> ConsumerProtocolAssignment:
    """Raises MalformedRequest when another kind of client wrote the bytes."""
    return _decode(ConsumerProtocolAssignment, blob)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """The `metadata` of a JoinGroup protocol."""
    return encode_versioned(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = ASSIGNMENT_VERSION) -> bytes:
    """The `assignment` of a SyncGroup member."""
    return encode_versioned(assignment, version)


def _decode(cls: type[T], blob: memoryview | bytes) -> T:
    version = version_of(blob)
    if version < 0:
        raise MalformedRequest(f"{cls.__name__} has version {version}")
    return decode_body(cls, blob, min(version, definition_of(cls).versions[-1]))

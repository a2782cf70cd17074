"""Encodes and decodes the subscription that a member sends in JoinGroup for each of its assignors.

A member's owned partitions are sent twice: Kafka's StickyAssignor reads the user data, its CooperativeStickyAssignor
the owned partitions and the generation (KIP-792), or the generation in the user data if an older client wrote the
subscription.
"""

from __future__ import annotations

from collections.abc import Collection

from kctl.client.assignment import NO_GENERATION, Subscriber
from kctl.client.assignors import COOPERATIVE_STICKY, STICKY
from kctl.client.membership.member import Member
from kctl.errors import MalformedRequest
from kctl.model import TopicPartition
from kctl.protocol.apis.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from kctl.protocol.codec import decode, encode_bytes
from kctl.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CooperativeStickyUserData,
    StickyUserData,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

GENERATION_VERSION_MIN = 2
USER_DATA_VERSION = 1


def protocols(member: Member) -> list[JoinGroupRequestProtocol]:
    """The `protocols` of JoinGroup: the member's assignors, the preferred one first, with the subscription for each."""
    return [JoinGroupRequestProtocol(name=name, metadata=_metadata(member, name)) for name in member.settings.assignors]


def subscriber(received: JoinGroupResponseMember, assignor: str) -> Subscriber:
    """Decodes a subscription.  Raises MalformedRequest.  Unknown user data counts as no claim."""
    subscription = decode_subscription(received.metadata)
    claims: Collection[TopicPartitions] = ()
    generation = NO_GENERATION
    if assignor == COOPERATIVE_STICKY:
        claims = subscription.owned_partitions
        generation = subscription.generation_id
        if generation == NO_GENERATION:
            generation = _user_data_generation(subscription.user_data or b"")
    elif assignor == STICKY:
        previous = _previous_assignment(subscription.user_data or b"")
        claims, generation = previous.previous_assignment, previous.generation
    return Subscriber(
        received.member_id,
        received.group_instance_id,
        frozenset(subscription.topics),
        frozenset(_flat(claims)),
        generation,
    )


def encode_partitions(partitions: Collection[TopicPartition]) -> bytes:
    """Encodes an assignment (ConsumerProtocolAssignment)."""
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions)))


def decode_partitions(blob: memoryview | bytes) -> tuple[TopicPartition, ...]:
    """Decodes an assignment.  Empty bytes, for a member that the leader did not see, are an empty assignment."""
    if not len(blob):
        return ()
    return tuple(sorted(_flat(decode_assignment(blob).assigned_partitions)))


def _metadata(member: Member, assignor: str) -> bytes:
    """The subscription bytes.  They do not change without owned partitions: a change would trigger a rebalance."""
    settings = member.settings
    subscription = ConsumerProtocolSubscription(topics=sorted(settings.topics), rack_id=settings.rack or None)
    if member.owned:
        subscription.owned_partitions = _by_topic(member.owned)
        subscription.generation_id = member.assigned_generation
    if assignor == COOPERATIVE_STICKY and member.owned:
        received = CooperativeStickyUserData(generation=member.assigned_generation)
        subscription.user_data = encode_bytes(received, 0)
    if assignor == STICKY and member.assigned:
        previous = StickyUserData(previous_assignment=_by_topic(member.assigned), generation=member.assigned_generation)
        subscription.user_data = encode_bytes(previous, USER_DATA_VERSION)
    return encode_subscription(subscription)


def _user_data_generation(blob: bytes) -> int:
    """Reads the generation.  librdkafka writes the user data of `sticky` here, which starts with a count."""
    try:
        received, end = decode(CooperativeStickyUserData, blob, 0)
    except MalformedRequest:
        return NO_GENERATION
    return received.generation if end == len(blob) else NO_GENERATION


def _previous_assignment(blob: bytes) -> StickyUserData:
    for version in range(USER_DATA_VERSION, -1, -1):
        try:
            return decode(StickyUserData, blob, version)[0]
        except MalformedRequest:
            continue
    return StickyUserData(previous_assignment=[])


def _by_topic(partitions: Collection[TopicPartition]) -> list[TopicPartitions]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]


def _flat(received: Collection[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, number) for one in received for number in one.partitions]

"""Decoding of the subscriptions of other clients, old and new."""

from __future__ import annotations

from kctl.client.consuming.membership.assignors import NO_GENERATION, Subscriber
from kctl.client.consuming.membership.classic_protocol import subscriber
from kctl.model import TopicPartition
from kctl.protocol.apis.join_group import JoinGroupResponseMember
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription, TopicPartitions, encode_subscription
from tests.rows import for_rows

OWNED = [TopicPartitions(topic="t", partitions=[1, 2])]
CLAIMS = frozenset({TopicPartition("t", 1), TopicPartition("t", 2)})
PREVIOUS = bytes.fromhex("00000001 0001 74 00000002 00000001 00000002")
"""t-1 and t-2 as Java's StickyAssignor encoded them before it included the generation."""


def reported(
    assignor: str, *, version: int, user_data: bytes | None = b"", owned: bool = True, generation: int = -1
) -> Subscriber:
    subscription = ConsumerProtocolSubscription(
        topics=["t"], user_data=user_data, owned_partitions=OWNED if owned else [], generation_id=generation
    )
    metadata = encode_subscription(subscription, version)
    return subscriber(JoinGroupResponseMember(member_id="m", metadata=metadata), assignor)


@for_rows(
    "client, version, user_data, generation, expected",
    [
        ("kafka-python 3", 1, b"", -1, NO_GENERATION),
        ("Java 2.8", 1, b"\0\0\0\7", -1, 7),
        ("Java 4", 3, b"\0\0\0\7", 7, 7),
        ("librdkafka 2", 3, PREVIOUS + b"\0\0\0\7", 7, 7),
        ("librdkafka 1", 1, PREVIOUS + b"\0\0\0\7", -1, NO_GENERATION),
        ("null", 1, None, -1, NO_GENERATION),
    ],
)
def test_cooperative_claims_are_the_owned_partitions(
    client: str, version: int, user_data: bytes | None, generation: int, expected: int
) -> None:
    one = reported("cooperative-sticky", version=version, user_data=user_data, generation=generation)
    assert (one.claims, one.generation) == (CLAIMS, expected), client


@for_rows(
    "user_data, claims, generation",
    [
        (PREVIOUS + b"\0\0\0\7", CLAIMS, 7),
        (PREVIOUS, CLAIMS, NO_GENERATION),
        (b"", frozenset(), NO_GENERATION),
        (None, frozenset(), NO_GENERATION),
        (b"\xff\xff\xff\xff", frozenset(), NO_GENERATION),
        (b"of another kind", frozenset(), NO_GENERATION),
    ],
)
def test_sticky_claims_are_in_the_user_data(
    user_data: bytes | None, claims: frozenset[TopicPartition], generation: int
) -> None:
    one = reported("sticky", version=1, user_data=user_data, owned=False)
    assert (one.claims, one.generation) == (claims, generation)


def test_ranges_take_no_claims() -> None:
    one = reported("range", version=3, generation=4)
    assert (one.topics, one.claims) == (frozenset({"t"}), frozenset())

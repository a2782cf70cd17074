"""Frames of Fetch requests: usual ones, and what differs from them in one place."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from kctl.client.connections.framing import request_frame
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from tests.property.topic_ids import id_of

T = TypeVar("T")
NAMES = ("orders", "a", "größe", "t" * 130)
INDEXES = (0, 1, 70_000)
FLEXIBLE = 12
WITH_IDS = 13
WITHOUT_REPLICA = 15


def usual_fetch(chance: random.Random, *, names: Sequence[str] = NAMES, indexes: Sequence[int] = INDEXES) -> bytes:
    """What consumers without a session send, and clients that continue one."""
    version = chance.randrange(10, 19)
    request = usual_request(chance, names, indexes)
    if chance.random() < 0.5:
        request.session_id, request.session_epoch = chance.choice((5, (1 << 31) - 1, -5)), chance.choice((1, 1 << 30))
        request.replica_id = chance.choice((-1, 1)) if version < WITHOUT_REPLICA else -1
        for topic in request.topics:
            for position in topic.partitions:
                position.log_start_offset = chance.choice((-1, 0, 9))
                position.last_fetched_epoch = chance.choice((-1, 2)) if version >= FLEXIBLE else -1
        if chance.random() < 0.2:
            request.topics = []
    return framed(request, version, chance.choice(("", "client", "größe")))


def usual_request(chance: random.Random, names: Sequence[str], indexes: Sequence[int]) -> FetchRequest:
    """For some of the partitions, none of them twice."""
    topics = [
        FetchTopic(topic=name, partitions=[_position(chance, index) for index in _some(chance, indexes, (1, 1, 1, 3))])
        for name in _some(chance, names, (1, 1, 1, 2))
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=chance.choice((0, 100, 100)),
        min_bytes=chance.choice((0, 1, 1, 1, 700)),
        max_bytes=chance.choice((1 << 20, 1 << 20, 1 << 20, 300, 0)),
        isolation_level=chance.choice((0, 1)),
        topics=topics,
    )


def _some(chance: random.Random, values: Sequence[T], counts: Sequence[int]) -> list[T]:
    """Return about so many of the values, each once."""
    return list(dict.fromkeys(chance.choice(values) for _ in range(chance.choice(counts))))


def _position(chance: random.Random, index: int) -> FetchPartition:
    return FetchPartition(
        partition=index,
        current_leader_epoch=chance.choice((-1,) * 9 + (3,)),
        fetch_offset=chance.choice((0, 0, 0, 1, 2, 3, 5, 9, 0, 1, 1, 1 << 40)),
        log_start_offset=-1,
        partition_max_bytes=chance.choice((1 << 20, 1 << 20, 100, 0)),
    )


def unusual_fetches(
    chance: random.Random, *, names: Sequence[str] = NAMES, indexes: Sequence[int] = INDEXES
) -> Iterator[bytes]:
    """What is left to the other code."""
    version = chance.randrange(10, 19)
    changes: tuple[dict[str, Any], ...] = (
        {"replica_id": 1},
        {"replica_id": -2},
        {"isolation_level": 2},
        {"isolation_level": -1},
        {"session_epoch": 0},
        {"session_id": 5, "session_epoch": 0},
        {"session_id": 5, "session_epoch": -1},
        {"session_id": 0, "session_epoch": 1},
        {"topics": []},
        {"topics": [FetchTopic(topic="a", partitions=[])]},
        {"forgotten_topics_data": [ForgottenTopic(topic="a", partitions=[0])]},
    )
    for change in changes:
        request = usual_request(chance, names, indexes)
        for name, value in change.items():
            setattr(request, name, value)
        yield framed(request, version)
    request = usual_request(chance, names, indexes)
    request.rack_id = "rack"
    yield framed(request, 11)
    yield framed(usual_request(chance, names, indexes), 9)
    request = usual_request(chance, names, indexes)
    request.cluster_id = "id"
    yield framed(request, 12)


def framed(request: FetchRequest, version: int, client_id: str = "client") -> bytes:
    """The frame of a request without its size; names become ids in versions that have these."""
    if version >= WITH_IDS:
        for topic in request.topics:
            topic.topic_id = id_of(topic.topic)
        for forgotten in request.forgotten_topics_data:
            forgotten.topic_id = id_of(forgotten.topic)
    if version >= WITHOUT_REPLICA and request.replica_id != -1:
        request.replica_state, request.replica_id = ReplicaState(replica_id=request.replica_id), -1
    return b"".join(request_frame(request, version, correlation_id=7, client_id=client_id))[4:]

"""What one small request costs: the Python functions that are called for it.

The number is the same on every machine, and bounded, because it grew unnoticed before.  A change that needs more calls
removes others first, or raises the bound.

Functions of the standard library are not counted, because they differ between versions of Python, nor those of the
simulated disk and clock, nor the record walk, which may be compiled.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import cast

import pytest

import kctl.testing
from kctl.client.connections.framing import request_frame
from kctl.protocol.apis.api_versions import ApiVersionsRequest
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.security.authorization import AccessPolicy
from kctl.server.network.connections.buffer_pool import BufferPool
from kctl.server.network.connections.channel import DirectChannel, Reply
from kctl.server.network.connections.connection import Connection
from kctl.server.network.connections.outbox import UnreadResponses
from kctl.server.network.connections.turns import Turns
from kctl.server.requests.context import ANONYMOUS, EVERYTHING_ALLOWED, Peer
from kctl.server.requests.recorder import ConnectionTiming, Measuring, RequestRecorder
from kctl.server.security.authorization.access import Access
from kctl.server.security.authorization.zookeeper_acls import ZooKeeperAcls
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.zookeeper.operations import ZooKeeper

KCTL = Path(kctl.testing.__file__).parent.parent
NOT_COUNTED = (sysconfig.get_path("stdlib"), str(KCTL / "testing"), str(KCTL / "records" / "walk.py"), "<frozen")
TOPIC = "topic"
WARM_UP = 3
"""Requests before the one that is counted: codecs are compiled, files opened."""
PRODUCED = WARM_UP + 8
"""Requests of each kind, see `counts_of_requests`."""
CALLS_MAX = {"produce": 11, "fetch": 36, "fetch at the end": 12, "metadata": 44, "api versions": 15}
FURTHER_CALLS_MAX = {
    # Produce and Fetch know themselves whether their response has errors.
    "metrics": {"produce": 0, "fetch": 0, "fetch at the end": 0, "metadata": 1, "api versions": 1},
    # Of frequent requests one of 64; Produce and Fetch are decoded into messages then.
    "metrics, timed": {"produce": 65, "fetch": 59, "fetch at the end": 56, "metadata": 5, "api versions": 5},
    "quotas": {"produce": 1, "fetch": 3, "fetch at the end": 3, "metadata": 1, "api versions": 1},
    "acls": dict.fromkeys(CALLS_MAX, 0),
}
"""Further calls of a broker that has these, for a client whose quotas and permissions are cached."""
NETWORK_CALLS_MAX = 15
PLENTY = str(10**12)
QUOTAS = {"producer_byte_rate": PLENTY, "consumer_byte_rate": PLENTY, "request_percentage": PLENTY}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The calls of Python functions inside of the block, by name."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not frame.f_code.co_filename.startswith(NOT_COUNTED):
            calls[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(former)
        del calls[f"{__file__}:counted"]


def described(calls: Counter[str]) -> str:
    return f"{calls.total()} calls:\n" + "\n".join(f"{count} {name}" for name, count in calls.most_common())


def produce() -> bytes:
    batch = build_batch([Record(0, 0, None, bytes(100))])
    data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])]
    return frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 7)


def fetch(offset: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    return frame(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, topics=topics), 11)


REQUESTS: dict[str, Callable[[], bytes]] = {
    "produce": produce,
    "fetch": partial(fetch, 0),
    "fetch at the end": partial(fetch, PRODUCED),
    "metadata": lambda: frame(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 8),
    "api versions": lambda: frame(ApiVersionsRequest(), 2),
}


def frame(request: object, version: int) -> bytes:
    """The request as a frame without its length."""
    return b"".join(request_frame(request, version, correlation_id=1, client_id="client"))[4:]


def test_calls_of_a_broker_without_quotas_authorizer_and_metrics() -> None:
    for name, calls in counts_of_requests()["plain"].items():
        assert 0 < calls.total() <= CALLS_MAX[name], f"{name}: {described(calls)}"


@pytest.mark.parametrize("what", FURTHER_CALLS_MAX)
def test_further_calls_of_a_broker_with(what: str) -> None:
    counts = counts_of_requests()
    for name, calls in counts[what].items():
        further = calls - counts["plain"][name]
        assert further.total() <= FURTHER_CALLS_MAX[what][name], f"{name}: {described(further)}"


@cache
def counts_of_requests() -> dict[str, dict[str, Counter[str]]]:
    """The calls for each request, plain and with each of FURTHER_CALLS_MAX."""
    counts: dict[str, dict[str, Counter[str]]] = {what: {} for what in ("plain", *FURTHER_CALLS_MAX)}

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop)
        await cluster.start(1)
        async with cluster.client() as client:
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            creation = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
            await client.on_controller(lambda connection: connection.send(creation, CreateTopicsResponse))
        broker = cluster.brokers[0].broker
        assert broker is not None
        dispatcher = broker._dispatcher
        peer = Peer("/client", "PLAINTEXT", timing=ConnectionTiming(Measuring(for_metrics=True)))

        policy = AccessPolicy(super_users=frozenset({ANONYMOUS}))
        acls = ZooKeeperAcls(cast("ZooKeeper", None), policy, broker._world.clock)  # Decisions use the cache only.

        def calls_of(made: Callable[[], bytes]) -> Counter[str]:
            received = memoryview(bytearray(made()))
            with counted() as calls:
                reply = dispatcher.handle(received, peer)
            assert isinstance(reply, list), "not answered at once"
            return calls

        for name, made in REQUESTS.items():
            for _ in range(WARM_UP):
                calls_of(made)
            counts["plain"][name] = calls_of(made)

            dispatcher.recorder = RequestRecorder(loop.time)
            calls_of(made)  # The first selects how errors are counted.
            (record,) = dispatcher.recorder.apis.values()
            record.until_timed = 1
            counts["metrics"][name] = calls_of(made)
            counts["metrics, timed"][name] = calls_of(made)
            assert record.count == 3, "it was not on"
            dispatcher.recorder = None

            await dispatcher._quotas.change("clients/<default>", QUOTAS)
            calls_of(made)  # The first finds the limits of the client.
            counts["quotas"][name] = calls_of(made)
            assert peer.quotas.client is not None, "they were not on"
            await dispatcher._quotas.change("clients/<default>", {})

            dispatcher.access = Access(acls)
            calls_of(made)  # The first decides.
            counts["acls"][name] = calls_of(made)
            assert acls.granted, "they were not on"
            dispatcher.access = EVERYTHING_ALLOWED
        await cluster.stop()

    simulate(main, seed=1)
    return counts


def test_calls_of_the_network_for_one_request() -> None:
    asyncio.run(one_request_over_a_socket())


async def one_request_over_a_socket() -> None:
    def handle(received: memoryview, _: Peer) -> Reply:
        return [struct.pack(">i", len(received)) + received]

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        connection = Connection(
            ours,
            Peer("/client", "PLAINTEXT", timing=ConnectionTiming(Measuring())),
            loop=loop,
            turns=Turns(loop),
            buffers=BufferPool(),
            unread=UnreadResponses(lambda _: None),
            open_channel=partial(DirectChannel, handle, frame_bytes_max=1 << 20),
            on_close=lambda _: None,
            on_malformed=lambda _, text: pytest.fail(text),
        )
        request = struct.pack(">i", 8) + b"requests"
        for _ in range(WARM_UP + 1):
            theirs.sendall(request)
            with counted() as calls:
                connection._on_readable()
            assert theirs.recv(100) == request
        connection.close()
    assert 0 < calls.total() <= NETWORK_CALLS_MAX, described(calls)

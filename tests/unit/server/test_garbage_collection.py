"""Collections visit only objects that are new; thorough ones wait for an idle loop; closed connections need none."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.model import Endpoint
from kctl.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kctl.server.loop import memory
from kctl.server.loop.lag import MeasuredEventLoop
from kctl.server.loop.memory import (
    BYTES_INTERVAL_S,
    GROWTH_BYTES_IDLE,
    GROWTH_BYTES_MAX,
    GROWTH_IDLE,
    GROWTH_MAX,
    INTERVAL_MAX_S,
    INTERVAL_MIN_S,
    RECENT_OBJECTS_MAX,
    YOUNG_OBJECTS,
    Due,
    Memory,
    ThoroughCollections,
)
from kctl.server.network.acceptor import Acceptor
from kctl.server.network.connections.channel import DirectChannel, Reply
from kctl.server.network.listen_settings import ListenSettings
from kctl.server.replication.partition import Partition
from kctl.server.requests.context import Peer
from kctl.storage.log.log import Log
from kctl.storage.segments.index_file import OffsetIndex
from kctl.storage.segments.segment import Segment
from kctl.testing.sim_loop import SimLoop, simulate
from tests.rows import for_rows
from tests.unit.handlers.disk import Disk


def times_of_collections(busy_shares: list[float]) -> list[float]:
    """The times in seconds at which thorough collections were due, for a loop that was busy for these shares of
    periods of INTERVAL_MIN_S / 12.
    """
    period_s = INTERVAL_MIN_S / 12
    collections = ThoroughCollections(0.0, 0.0, Memory(0, 0))
    busy_s = 0.0
    due = []
    for number, share in enumerate(busy_shares, 1):
        busy_s += share * period_s
        if collections.due(number * period_s, busy_s, Memory(0, 0)) is Due.RECENT:
            due.append(number * period_s)
            collections.collected(number * period_s, Memory(0, 0), Due.RECENT)
    return due


def test_an_idle_loop_collects_at_the_minimum_interval() -> None:
    assert times_of_collections([0.0] * 30) == [INTERVAL_MIN_S, 2 * INTERVAL_MIN_S]


@pytest.mark.parametrize(
    ("busy_share", "growth"),
    [
        (0.0, Memory(GROWTH_IDLE, 0)),
        (0.9, Memory(GROWTH_MAX, 0)),
        (0.0, Memory(0, GROWTH_BYTES_IDLE)),
        (0.9, Memory(0, GROWTH_BYTES_MAX)),
    ],
)
def test_much_growth_is_collected_and_then_taken_as_in_use(busy_share: float, growth: Memory) -> None:
    before = Memory(1 << 40, 1 << 40)
    after = Memory(before.blocks + growth.blocks, before.resident + growth.resident)
    last = Memory(after.blocks + max(growth.blocks - 1, 0), after.resident + max(growth.resident - 1, 0))
    collections = ThoroughCollections(0.0, 0.0, before)
    almost = Memory(after.blocks - 1, after.resident - 1)
    assert collections.due(100.0, busy_share * 100, almost) is Due.NOTHING
    assert collections.due(105.0, busy_share * 105, after) is Due.RECENT
    collections.collected(105.0, after, Due.RECENT)
    assert collections.due(200.0, busy_share * 200, last) is Due.NOTHING


@for_rows("growth", [Memory(GROWTH_MAX, 0), Memory(0, GROWTH_BYTES_MAX)])
def test_all_objects_are_visited_only_after_growth_as_by_a_leak(growth: Memory) -> None:
    collections = ThoroughCollections(0.0, 0.0, Memory(0, 0))
    less = Memory(max(growth.blocks - 1, 0), max(growth.resident - 1, 0))
    assert collections.due(100.0, 0.0, less) is Due.RECENT
    collections.collected(100.0, less, Due.RECENT)
    assert collections.due(100.0 + INTERVAL_MIN_S, 0.0, growth) is Due.ALL
    collections.collected(100.0 + INTERVAL_MIN_S, growth, Due.ALL)
    doubled = Memory(2 * growth.blocks - 1, 2 * growth.resident - 1)
    assert collections.due(200.0 + 2 * INTERVAL_MIN_S, 0.0, doubled) is Due.RECENT


def test_bytes_that_come_and_go_cause_few_collections() -> None:
    collections = ThoroughCollections(0.0, 0.0, Memory(0, 1 << 40))
    assert collections.due(BYTES_INTERVAL_S - 1, 0.0, Memory(0, 1 << 41)) is Due.NOTHING
    assert collections.due(BYTES_INTERVAL_S, 0.0, Memory(0, (1 << 40) + GROWTH_BYTES_IDLE)) is Due.RECENT
    assert collections.due(BYTES_INTERVAL_S + 1, 0.0, Memory(0, (1 << 40) + GROWTH_BYTES_IDLE - 1)) is Due.NOTHING


def test_a_busy_loop_waits_for_an_idle_moment() -> None:
    assert times_of_collections([0.9] * 20 + [0.01] + [0.9] * 20) == [21 * INTERVAL_MIN_S / 12]


def test_a_loop_that_is_never_idle_collects_after_the_maximum_interval() -> None:
    assert times_of_collections([0.9] * 150) == [INTERVAL_MAX_S]


@pytest.fixture
def thresholds() -> Iterator[None]:
    """Restores the settings of the collector."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.freeze()


@pytest.fixture
def visited(thresholds: None) -> Iterator[list[int]]:
    """The numbers of objects that the collections visit, apart from full ones."""
    counts: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] < 2:
            counts.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    before = list(gc.callbacks)
    gc.callbacks.append(note)
    yield counts
    gc.callbacks.remove(note)
    assert gc.callbacks == before


def test_no_collection_visits_all_objects_of_a_broker_that_grows(visited: list[int]) -> None:
    """A full collection of 5,000 partitions visited their 180,000 objects, each time."""
    full_before = gc.get_stats()[2]["collections"]

    async def main() -> None:
        memory.freeze()
        kept: list[list[object]] = []
        for _ in range(300):
            kept += [[] for _ in range(1_000)]
            await asyncio.sleep(0)

    asyncio.run(main())
    assert len(visited) > 20
    assert max(visited) < 6 * YOUNG_OBJECTS
    assert gc.get_stats()[2]["collections"] == full_before + 1


def test_objects_that_replace_others_are_collected_between_iterations(visited: list[int]) -> None:
    """Python counts created less freed objects: then one collection visited all that had replaced older ones, and took
    36 ms during requests of 1 MB.
    """
    replaced = 100_000

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredEventLoop)
        older: list[list[object]] = [[] for _ in range(replaced)]
        memory.freeze()
        visited.clear()  # Those until then depend on Python's own thresholds.
        loop.run_between_iterations(memory.collect_young, 0.0)
        newer: list[list[object]] = []
        for number in range(replaced):
            newer.append([])
            older.pop()
            if number % 1_000 == 0:
                await asyncio.sleep(0)
        newer += [[] for _ in range(4 * YOUNG_OBJECTS)]

    with asyncio.Runner(loop_factory=MeasuredEventLoop) as runner:
        runner.run(main())
    assert max(visited) < 6 * YOUNG_OBJECTS


def test_what_runs_between_iterations_waits_for_its_interval() -> None:
    calls: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredEventLoop)
        loop.run_between_iterations(lambda: calls.append(loop.lag.wall.count), 3600.0)
        for _ in range(10):
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=MeasuredEventLoop) as runner:
        runner.run(main())
    assert len(calls) == 1


@pytest.mark.long
@pytest.mark.usefixtures("thresholds")
def test_a_thorough_collection_frees_frozen_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(memory, "INTERVAL_MIN_S", 0.0)
    monkeypatch.setattr(memory, "_memory", iter([Memory(0, 0), *[Memory(1 << 60, 0)] * 10_000]).__next__)

    class Node:
        partner: Node

    async def main() -> None:
        one, two = Node(), Node()
        one.partner, two.partner = two, one
        freed = weakref.ref(one)
        memory.freeze()
        del one, two
        gc.collect()
        assert freed() is not None, "it is frozen"
        collecting = asyncio.ensure_future(memory.collect(lambda: 0.0, lambda *_: None))
        async with asyncio.timeout(60):
            while freed() is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        collecting.cancel()

    asyncio.run(main())


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize("is_many", [False, True])
@pytest.mark.long
def test_recent_objects_are_collected_if_they_are_few_and_frozen(is_many: bool) -> None:
    gc.freeze()
    kept: list[list[object]] = [[] for _ in range(RECENT_OBJECTS_MAX + 1 if is_many else 10)]
    gc.collect()
    gc.collect(1)
    collected = gc.get_stats()[2]["collections"]
    frozen = gc.get_freeze_count()
    memory.freeze_recent()
    assert gc.get_stats()[2]["collections"] - collected == (0 if is_many else 1)
    assert gc.get_freeze_count() - frozen >= len(kept)


def test_a_partition_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    """Frozen partitions in cycles would stay in memory for hours after their topic has been deleted."""

    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path)
        before = sum(isinstance(object_, Partition | Log | Segment | OffsetIndex) for object_ in gc.get_objects())
        for index in range(5):
            partition = disk.lead("t", index, replicas=(0, 1))
            disk.append(partition, 3)
            partition.log.roll(disk.clock.now_ms())
            del partition
        states = [
            StopReplicaPartitionState(partition_index=index, leader_epoch=9, delete_partition=True)
            for index in range(5)
        ]
        topic = StopReplicaTopicState(topic_name="t", partition_states=states)
        disk.replicas.stop_replicas(
            StopReplicaRequest(controller_id=0, controller_epoch=1, broker_epoch=-1, topic_states=[topic])
        )
        await disk.replicas.write_deletions()
        after = sum(isinstance(object_, Partition | Log | Segment | OffsetIndex) for object_ in gc.get_objects())
        assert after == before
        disk.close()

    gc.disable()
    try:
        simulate(main, seed=1)
    finally:
        gc.enable()


def test_a_closed_connection_is_freed_without_the_garbage_collector() -> None:
    """Each closed connection left a cycle of about twenty objects: collecting 50,000 objects of them took 76 ms."""
    opened: list[weakref.ref[DirectChannel]] = []

    class Channel(DirectChannel):
        __slots__ = ("__weakref__",)

    def handle(_frame: memoryview, _peer: Peer) -> Reply:
        return None

    def open_channel(peer: Peer) -> DirectChannel:
        channel = Channel(handle, peer, frame_bytes_max=1 << 20)
        opened.append(weakref.ref(channel))
        return channel

    async def main() -> None:
        acceptor = Acceptor(open_channel=open_channel, settings=ListenSettings(connections_max_idle_ms=0))
        port = acceptor.bind(Endpoint("PLAINTEXT", "127.0.0.1", 0)).port
        acceptor.start()
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"\0\0\0\1x")
        async with asyncio.timeout(60):
            while len(opened) < 3 or any(channel() is not None for channel in opened):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        acceptor.close()

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()

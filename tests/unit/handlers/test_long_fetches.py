"""A fetch of many partitions is read in slices, with the result of one that is read at once, and misses no change.

Time is simulated: a fetch that missed a change would last until its max_wait_ms.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kctl.protocol import codec
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from kctl.server.handlers import fetch as fetch_handler
from kctl.server.replication.fetching import fetch_reading, fetch_replies
from kctl.server.replication.partition import Partition
from tests.hostile.test_amplification import turns_while
from tests.unit.handlers.test_fetch_replicas import CONSUMER, FOLLOWER, Scene, play
from tests.unit.handlers.test_fetch_waits import CountedPartitions
from tests.unit.handlers.world import context

SLICE = 5
PARTITIONS = 20
WAIT_MS = 30_000


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    set_slice(monkeypatch, SLICE)


def set_slice(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    for module in (fetch_handler, fetch_reading, fetch_replies, fetch_replies):
        monkeypatch.setattr(module, "READ_PER_SLICE_MAX", partitions)


def led(scene: Scene, *, reader: int = CONSUMER) -> list[Partition]:
    """Partitions of two topics; every third has records, and the follower, if that is the reader, has none of them."""
    replicas = (0,) if reader == CONSUMER else (0, reader)
    partitions = [scene.disk.lead("ab"[number % 2], number, replicas=replicas) for number in range(PARTITIONS)]
    for partition in partitions[::3]:
        scene.disk.append(partition, 2)
    return partitions


def request(
    *,
    offset: int = 0,
    count: int = PARTITIONS,
    replica_id: int = CONSUMER,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    forgotten: tuple[int, ...] = (),
) -> FetchRequest:
    def of(topic: int) -> list[FetchPartition]:
        return [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number in range(topic, count, 2)
        ]

    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=name, partitions=of(number)) for number, name in enumerate("ab") if count],
        forgotten_topics_data=[ForgottenTopic(topic="a", partitions=list(forgotten))] if forgotten else [],
    )


def continue_at_end(asked: FetchRequest, partitions: list[Partition]) -> None:
    for topic in asked.topics:
        for partition in topic.partitions:
            partition.fetch_offset = partitions[partition.partition].log.log_end_offset


async def encoded(scene: Scene, asked: FetchRequest, version: int) -> bytes:
    response = scene.handler.handle(asked, context(version))
    if isinstance(response, asyncio.Future):
        response = await response
    return b"".join(
        bytes(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.read()
        for chunk in codec.encode(response, version)
    )


CASES = {
    "consumer": (11, request()),
    "limited": (11, request(max_bytes=500)),
    "out of range": (11, request(offset=1)),
    "follower": (12, request(replica_id=FOLLOWER)),
    "at the end": (12, request(offset=2, replica_id=FOLLOWER)),
    "waits in vain": (11, request(offset=2, count=3, min_bytes=1 << 19, max_wait_ms=100)),
    "format 1": (3, request()),
    "format 0": (1, request()),
    "unknown partitions": (11, request(count=PARTITIONS + 10)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.long
def test_a_fetch_in_slices_has_the_response_of_one_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    version, asked = CASES[case]
    found: list[bytes] = []

    async def scene(scene: Scene) -> None:
        led(scene, reader=asked.replica_id)
        found.append(await encoded(scene, asked, version))

    play(tmp_path / "slices", scene)
    set_slice(monkeypatch, 1_000_000)
    play(tmp_path / "at once", scene)
    assert found[0] == found[1]


@pytest.mark.parametrize("replica_id", [CONSUMER, FOLLOWER])
@pytest.mark.long
def test_a_session_in_slices_sends_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replica_id: int
) -> None:
    found: list[list[bytes]] = []

    async def scene(scene: Scene) -> None:
        partitions = led(scene, reader=replica_id)
        responses = [await encoded(scene, request(replica_id=replica_id, session=(0, 0)), 11)]
        session_id = codec.decode(FetchResponse, responses[0], 11)[0].session_id
        assert session_id
        scene.disk.append(partitions[7], 1)
        for epoch, forgotten in enumerate(((), (), (0, 6), ()), start=1):
            asked = request(replica_id=replica_id, session=(session_id, epoch), count=0, forgotten=forgotten)
            responses.append(await encoded(scene, asked, 11))
        found.append(responses)

    play(tmp_path / "slices", scene)
    set_slice(monkeypatch, 1_000_000)
    play(tmp_path / "at once", scene)
    assert found[0] == found[1]


def test_other_connections_are_served_between_slices(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        led(scene, reader=FOLLOWER)
        response = scene.handler.handle(request(replica_id=FOLLOWER), context(11))
        assert isinstance(response, asyncio.Future)
        assert await turns_while(response) > 4 * PARTITIONS / SLICE

    play(tmp_path, scene)


def test_a_fetch_that_ends_on_time_reads_its_partitions_once(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        led(scene)
        replicas = scene.disk.replicas
        replicas.partitions = counted = CountedPartitions(replicas.partitions)
        await encoded(scene, request(), 11)
        lookups = counted.lookups
        counted.lookups = 0
        await encoded(scene, request(max_wait_ms=WAIT_MS), 11)
        assert counted.lookups == lookups

    play(tmp_path, scene)


@pytest.mark.parametrize("version", [1, 3, 11])
@pytest.mark.parametrize("turns", [0, 3, 6, 9, 12, 15, 18, 30])
@pytest.mark.long
def test_a_change_between_reading_and_waiting_completes_the_fetch(tmp_path: Path, turns: int, version: int) -> None:
    """Whenever the change comes: before, during or after the reading of its partition."""

    async def scene(scene: Scene) -> None:
        partitions = led(scene)
        before_ms = scene.disk.clock.monotonic_ms()
        at_end = request(max_wait_ms=WAIT_MS)
        continue_at_end(at_end, partitions)
        response = asyncio.ensure_future(encoded(scene, at_end, version))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not response.done()
        scene.disk.append(partitions[6], 1)
        scene.disk.replicas.partition_moved(partitions[6].topic_partition)
        fetched = codec.decode(FetchResponse, await response, version)[0]
        sizes = {
            partition.partition_index: len(partition.records or b"") for partition in fetched.responses[0].partitions
        }
        assert [index for index, size in sizes.items() if size] == [6]
        assert scene.disk.clock.monotonic_ms() - before_ms < WAIT_MS
        assert scene.disk.replicas._fetch_purgatory.watch_count == 0

    play(tmp_path, scene)


def test_changes_are_counted_until_there_are_min_bytes(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        partitions = led(scene)
        size = partitions[0].log.size_bytes // 2
        at_end = request(max_wait_ms=WAIT_MS, min_bytes=size * PARTITIONS)
        continue_at_end(at_end, partitions)
        response = asyncio.ensure_future(encoded(scene, at_end, 11))
        for partition in partitions:
            assert not response.done()
            scene.disk.append(partition, 1)
            scene.disk.replicas.partition_moved(partition.topic_partition)
            await asyncio.sleep(1)
        fetched = codec.decode(FetchResponse, await response, 11)[0]
        sent = [partition for topic in fetched.responses for partition in topic.partitions if partition.records]
        assert len(sent) == PARTITIONS

    play(tmp_path, scene)


@pytest.mark.parametrize("turns", [1, 10, 20, 100])
def test_a_closed_connection_leaves_nothing_behind(tmp_path: Path, turns: int) -> None:
    async def scene(scene: Scene) -> None:
        led(scene)
        response = scene.handler.handle(request(max_wait_ms=WAIT_MS, min_bytes=1 << 19), context(11))
        assert isinstance(response, asyncio.Future)
        for _ in range(turns):
            await asyncio.sleep(0)
        response.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        purgatory = scene.disk.replicas._fetch_purgatory
        assert (len(purgatory), purgatory.watch_count) == (0, 0)

    play(tmp_path, scene)


def test_a_session_that_another_connection_closes_is_not_counted(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        led(scene)
        sessions = scene.handler._sessions
        first = codec.decode(FetchResponse, await encoded(scene, request(session=(0, 0)), 11), 11)[0]
        incremental = asyncio.ensure_future(encoded(scene, request(session=(first.session_id, 1), count=60), 11))
        await asyncio.sleep(0)
        scene.handler.handle(request(session=(first.session_id, -1), count=1), context(11))
        answer = codec.decode(FetchResponse, await incremental, 11)[0]
        assert answer.error_code == 70, "FETCH_SESSION_ID_NOT_FOUND"
        assert (len(sessions), sessions.partition_count) == (0, 0)

    play(tmp_path, scene)


def test_a_timeout_while_the_partitions_are_listed_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        led(scene)
        purgatory = scene.disk.replicas._fetch_purgatory
        response = asyncio.ensure_future(encoded(scene, request(max_wait_ms=WAIT_MS, min_bytes=1 << 19), 11))
        while not len(purgatory):  # noqa: ASYNC110 - the iterations are counted on
            await asyncio.sleep(0)
        purgatory.expire_all()
        assert codec.decode(FetchResponse, await response, 11)[0].responses
        assert purgatory.watch_count == 0

    play(tmp_path, scene)


def test_a_follower_that_catches_up_in_a_long_fetch_advances_the_high_watermarks(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        partitions = led(scene, reader=FOLLOWER)
        await encoded(scene, request(offset=2, replica_id=FOLLOWER), 11)
        assert {partition.high_watermark for partition in partitions[::3]} == {2}

    play(tmp_path, scene)

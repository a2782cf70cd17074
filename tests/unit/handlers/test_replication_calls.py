"""How many functions of kctl a fetch calls, on the leader and on the follower: counts, which no other load changes.

The bounds are about 10 % above the counts.  If a test exceeds one, work was added to each replicated message.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import kctl
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.limits import READ_PER_SLICE_MAX
from kctl.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.replication.partition import Partition
from kctl.storage.log.lookup import RecordsSlice
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.following import FETCH_S, OneLeader, fetchers_of
from tests.unit.handlers.test_fetch_replicas import FOLLOWER, Scene, play
from tests.unit.handlers.world import context

VERSION = 12
ROUNDS = 50
PARTITIONS = 300
"""More than READ_PER_SLICE_MAX: the first fetch takes several iterations of the event loop."""
LEADER_CALLS_MAX = 111
FOLLOWER_CALLS_MAX = 65
PACKAGE = str(Path(kctl.__file__).parent)
TESTING = str(Path(PACKAGE) / "testing")


class Calls:
    """A count of calls of functions in kctl, without kctl.testing."""

    count = 0

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """The profile function."""
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE) and not path.startswith(TESTING):
            self.count += 1


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    """Adds the calls of the block."""
    sys.setprofile(calls.note)
    try:
        yield
    finally:
        sys.setprofile(None)


def fetch(session_id: int, epoch: int, changed: dict[Partition, int], *, wait_ms: int = 500) -> FetchRequest:
    """The next request of a follower's session, with the offsets that have changed."""
    topics = [
        FetchTopic(
            topic=partition.topic_partition.topic,
            partitions=[
                FetchPartition(
                    partition=0,
                    fetch_offset=offset,
                    partition_max_bytes=1 << 20,
                    current_leader_epoch=partition.leader_epoch,
                    last_fetched_epoch=partition.leader_epoch if offset else -1,
                    log_start_offset=0,
                )
            ],
        )
        for partition, offset in changed.items()
    ]
    return FetchRequest(
        replica_id=FOLLOWER,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
    )


def test_calls_of_a_leader_per_fetch(tmp_path: Path) -> None:
    """A fetch that waits until the next append; appending, decoding and encoding are not counted."""

    async def scenario(scene: Scene) -> None:
        partition = scene.disk.lead("a", replicas=(0, FOLLOWER))
        scene.disk.append(partition, 1)
        first = scene.handler.handle(fetch(0, 0, {partition: 0}), context(VERSION))
        assert isinstance(first, FetchResponse)
        calls = Calls()
        for number in range(1, 1 + ROUNDS):
            request = fetch(first.session_id, number, {partition: number})
            with counted(calls):
                waiting = scene.handler.handle(request, context(VERSION))
            assert isinstance(waiting, asyncio.Future)
            assert partition.high_watermark == number
            scene.disk.append(partition, 1)
            with counted(calls):
                scene.disk.replicas.partitions_moved([partition.topic_partition])
                response = await waiting
            assert isinstance(response.responses[0].partitions[0].records, RecordsSlice)
        assert calls.count <= LEADER_CALLS_MAX * ROUNDS

    play(tmp_path, scenario)


@pytest.mark.parametrize(("count", "calls_max"), [(50, LEADER_CALLS_MAX), (PARTITIONS, 188)])
@pytest.mark.long
def test_calls_of_a_leader_per_fetch_of_many_partitions(tmp_path: Path, count: int, calls_max: int) -> None:
    """One of them changes: the others cost nothing.  A fetch of very many waits in a task, which costs a little."""

    async def scenario(scene: Scene) -> None:
        partitions = [scene.disk.lead(f"t{number}", replicas=(0, FOLLOWER)) for number in range(count)]
        first = scene.handler.handle(fetch(0, 0, dict.fromkeys(partitions, 0), wait_ms=0), context(VERSION))
        if isinstance(first, asyncio.Future):
            first = await first
        calls = Calls()
        for number in range(ROUNDS):
            changed = {partitions[0]: number} if number else {}
            with counted(calls):
                waiting = scene.handler.handle(fetch(first.session_id, 1 + number, changed), context(VERSION))
            assert isinstance(waiting, asyncio.Future)
            if count > READ_PER_SLICE_MAX:
                with counted(calls):
                    await asyncio.sleep(0)
            scene.disk.append(partitions[0], 1)
            with counted(calls):
                scene.disk.replicas.partitions_moved([partitions[0].topic_partition])
                response = await waiting
            assert [topic.topic for topic in response.responses] == ["t0"]
        assert calls.count <= calls_max * ROUNDS

    play(tmp_path, scenario)


@pytest.mark.parametrize("seed", range(10))
def test_session_returns_exactly_the_partitions_with_something_new(tmp_path: Path, seed: int) -> None:
    """Records, a new high watermark or a new start; the others are not even read."""

    async def scenario(scene: Scene) -> None:
        chance = random.Random(seed)
        partitions = [scene.disk.lead(f"t{number}", replicas=(0, FOLLOWER)) for number in range(5)]
        first = scene.handler.handle(fetch(0, 0, dict.fromkeys(partitions, 0), wait_ms=0), context(VERSION))
        assert isinstance(first, FetchResponse)
        assert len(first.responses) == len(partitions)
        sent = dict.fromkeys(partitions, (0, 0))
        offsets = dict.fromkeys(partitions, 0)
        for epoch in range(1, 60):
            changed = {}
            for partition in chance.sample(partitions, chance.randrange(4)):
                match chance.randrange(3):
                    case 0:
                        scene.disk.append(partition, 2)
                    case 1:
                        offsets[partition] = changed[partition] = partition.log.log_end_offset
                    case 2:
                        partition.log.increment_log_start_offset(min(partition.high_watermark, offsets[partition]))
            request = fetch(first.session_id, epoch, changed, wait_ms=0)
            response = scene.handler.handle(request, context(VERSION))
            assert isinstance(response, FetchResponse)
            now = {partition: (partition.high_watermark, partition.log.log_start_offset) for partition in partitions}
            new = {
                partition
                for partition in partitions
                if offsets[partition] < partition.log.log_end_offset or now[partition] != sent[partition]
            }
            assert {topic.topic for topic in response.responses} == {moved.topic_partition.topic for moved in new}
            sent = now

    play(tmp_path, scenario)


class GrowingLeader(OneLeader):
    """A leader that has one more record in each response."""

    def __init__(self) -> None:
        super().__init__(session_id=1)
        self.offset = -1
        self._batches = [
            build_batch([Record(0, 1, b"key", b"value")], base_offset=offset) for offset in range(ROUNDS + 2)
        ]

    def reply(self, requested: FetchPartition) -> PartitionData:
        assert requested.fetch_offset == self.offset + 1
        self.offset = requested.fetch_offset
        records = memoryview(self._batches[self.offset])
        return PartitionData(partition_index=0, error_code=0, high_watermark=self.offset, records=records)


@pytest.mark.parametrize("topics", [1, PARTITIONS])
@pytest.mark.long
def test_calls_of_a_follower_per_fetch(tmp_path: Path, topics: int) -> None:
    """From one request to the next, with the append of a record to one of the topics; without the connection."""
    calls = Calls()

    async def follow(loop: SimLoop) -> int:
        disk, leader = Disk(loop, tmp_path, live=(0, 1)), GrowingLeader()
        fetchers = fetchers_of(disk, leader)
        for name in ("orders", *map(str, range(1, topics))):
            fetchers.follow(disk.lead(name, leader=1, replicas=(0, 1)))
        await asyncio.sleep(FETCH_S * 1.5)
        with counted(calls):
            await asyncio.sleep(FETCH_S * ROUNDS)
        await fetchers.close()
        disk.close()
        assert leader.listed == [topics, *([1] * (leader.fetches - 1))]
        return leader.fetches

    assert simulate(follow, seed=1) == ROUNDS + 2
    assert calls.count <= FOLLOWER_CALLS_MAX * ROUNDS


def test_calls_of_a_client_per_request() -> None:
    """Encoding the request, the response's arrival and decoding it, on a connection that was used before."""

    async def main(port: int) -> int:
        connection = await AsyncioTransport().connect(
            "127.0.0.1", port, client_id="test", connect_timeout_ms=60_000, timeout_ms=60_000
        )
        try:
            await connection.send(ListGroupsRequest(), ListGroupsResponse)
            calls = Calls()
            with counted(calls):
                for _ in range(ROUNDS):
                    await connection.send(ListGroupsRequest(), ListGroupsResponse)
            return calls.count
        finally:
            await connection.close()

    with FakeCluster() as cluster:
        assert asyncio.run(main(cluster.ports[0])) <= 36 * ROUNDS

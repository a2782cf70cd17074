"""Fetch by followers and from followers: throttles, preferred read replicas, reads from followers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kctl.config.subjects.replication import RACK_AWARE_SELECTOR
from kctl.errors import ErrorCode
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kctl.protocol.apis.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataRequest
from kctl.records.batch import iterate_batches
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.handlers.fetch import FetchHandler
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.fetching.fetch_session import FetchSessionCache
from kctl.server.replication.fetching.replica_selector import ReplicaSelector
from kctl.server.replication.partition import Partition
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.server.requests.record_work import RecordWork
from kctl.storage.log.lookup import RecordsSlice
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import context

CONSUMER = -1
FOLLOWER = 1
RACKS = {0: "a", 1: "b"}


class NoIsrChanges:
    """A state store that keeps the in-sync replicas of the test."""

    def __init__(self) -> None:
        self.candidates: list[int] = []

    def may_expand(self, partition: Partition, replica_id: int) -> None:
        """Reports that a replica may join the ISR."""
        self.candidates.append(replica_id)


class Scene:
    """Broker 0 with a fetch handler during the scenario."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.isr_changes = NoIsrChanges()
        endpoint = UpdateMetadataEndpoint(port=9092, host="host", listener="PLAINTEXT", security_protocol=0)
        disk.metadata.update(
            UpdateMetadataRequest(
                controller_id=0,
                controller_epoch=1,
                live_brokers=[
                    UpdateMetadataBroker(id=broker, endpoints=[endpoint], rack=rack) for broker, rack in RACKS.items()
                ],
            )
        )
        self.handler = FetchHandler(
            disk.replicas,
            disk.replicas._fetch_purgatory,
            FetchSessionCache(10),
            self.isr_changes,  # type: ignore[arg-type]
            throttles=ReplicationThrottles(0, disk.configs),
            selector=ReplicaSelector(disk.metadata, RACK_AWARE_SELECTOR),
            clock=disk.clock,
            random=random.Random(1),
            work=RecordWork(),
            fetch_max_bytes=57_671_680,
            metadata=MetadataCache(),
        )

    async def fetch(
        self,
        *topics: str,
        offset: int = 0,
        replica_id: int = CONSUMER,
        version: int = 11,
        wait_ms: int = 0,
        rack: str = "",
        last_fetched_epoch: int = -1,
    ) -> dict[str, PartitionData]:
        requested = [
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=offset,
                        partition_max_bytes=1 << 20,
                        last_fetched_epoch=last_fetched_epoch,
                    )
                ],
            )
            for topic in topics
        ]
        request = FetchRequest(
            replica_id=replica_id, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, rack_id=rack, topics=requested
        )
        response = self.handler.handle(request, context(version))
        if isinstance(response, asyncio.Future):
            response = await response
        return {topic.topic: topic.partitions[0] for topic in response.responses}

    def throttle(self, topic: str, rate: int) -> None:
        self.disk.configs.set_topic(topic, {"leader.replication.throttled.replicas": "*"})
        self.disk.configs.set_dynamic_broker({"leader.replication.throttled.rate": str(rate)})


def play(folder: Path, scene: Callable[[Scene], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, folder, live=(0, 1))
        try:
            await scene(Scene(disk))
        finally:
            disk.close()

    simulate(main, seed=1)


def follow(disk: Disk, count: int, high_watermark: int) -> Partition:
    """Broker 0 follows broker 1 and has `count` of its records, some of them committed."""
    partition = disk.lead("a", leader=1, replicas=(0, 1))
    for number in range(count):
        batch = build_batch([Record(0, 1000, b"key", b"value %d" % number)], base_offset=number)
        partition.log.append_as_follower(memoryview(batch), now_ms=disk.clock.now_ms())
    partition.follow_high_watermark(high_watermark)
    return partition


def offsets(reply: PartitionData) -> list[int]:
    assert reply.error_code == ErrorCode.NONE
    records = reply.records.read() if isinstance(reply.records, RecordsSlice) else reply.records
    assert records is None or isinstance(records, (memoryview, bytes))
    return [header.base_offset for header in iterate_batches(records or b"")]


# Throttles


def test_a_follower_out_of_sync_gets_nothing_of_a_throttled_partition_while_its_quota_is_used_up(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        moved = scene.disk.lead("moved", replicas=(0, 1), isr=(0,))
        other = scene.disk.lead("other", replicas=(0, 1), isr=(0,))
        scene.disk.append(moved, 3)
        scene.disk.append(other, 3)
        scene.throttle("moved", rate=1)
        first = await scene.fetch("moved", "other", replica_id=FOLLOWER)
        assert offsets(first["moved"]) == [0, 1, 2]  # nothing was counted yet
        second = await scene.fetch("moved", "other", replica_id=FOLLOWER)
        assert offsets(second["moved"]) == []
        assert offsets(second["other"]) == [0, 1, 2]
        await asyncio.sleep(11)  # the window
        third = await scene.fetch("moved", "other", replica_id=FOLLOWER)
        assert offsets(third["moved"]) == [0, 1, 2]

    play(tmp_path, scenario)


def test_a_follower_in_sync_and_a_consumer_are_not_throttled(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        moved = scene.disk.lead("moved", replicas=(0, 1))
        scene.disk.append(moved, 3)
        scene.throttle("moved", rate=1)
        for _ in range(2):
            reply = await scene.fetch("moved", replica_id=FOLLOWER)
            assert offsets(reply["moved"]) == [0, 1, 2]
        moved.record_fetch(FOLLOWER, 3, 0, scene.disk.clock.monotonic_ms())
        assert offsets((await scene.fetch("moved"))["moved"]) == [0, 1, 2]

    play(tmp_path, scenario)


def test_a_throttled_follower_waits_although_there_are_records(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        moved = scene.disk.lead("moved", replicas=(0, 1), isr=(0,))
        scene.disk.append(moved, 3)
        scene.throttle("moved", rate=1)
        await scene.fetch("moved", replica_id=FOLLOWER)
        before_ms = scene.disk.clock.monotonic_ms()
        reply = await scene.fetch("moved", replica_id=FOLLOWER, wait_ms=500)
        assert offsets(reply["moved"]) == []
        assert scene.disk.clock.monotonic_ms() - before_ms >= 500

    play(tmp_path, scenario)


# Responses to a follower


def test_a_follower_gets_a_new_high_watermark_with_the_next_records_or_after_its_wait(tmp_path: Path) -> None:
    """KAFKA-9952.  Sent at once, it would cost a second fetch per append."""

    async def scenario(scene: Scene) -> None:
        partition = scene.disk.lead("a", replicas=(0, 1))
        scene.disk.append(partition, 3)
        await scene.fetch("a", replica_id=FOLLOWER)
        before_ms = scene.disk.clock.monotonic_ms()
        reply = await scene.fetch("a", offset=3, replica_id=FOLLOWER, wait_ms=500)
        assert reply["a"].high_watermark == 3
        assert scene.disk.clock.monotonic_ms() - before_ms == 500
        waiting = asyncio.ensure_future(scene.fetch("a", offset=3, replica_id=FOLLOWER, wait_ms=500))
        await asyncio.sleep(0.1)
        scene.disk.append(partition, 1)
        scene.disk.replicas.partition_moved(partition.topic_partition)
        assert offsets((await waiting)["a"]) == [3]
        assert scene.disk.clock.monotonic_ms() - before_ms == 600

    play(tmp_path, scenario)


def test_replicated_appends_cost_each_follower_one_fetch(tmp_path: Path) -> None:
    """Both followers always wait with a fetch: the next append completes it, the new high watermark does not."""

    async def scenario(scene: Scene) -> None:
        partition = scene.disk.lead("a", replicas=(0, 1, 2))
        fetches = 0

        async def follow(replica_id: int) -> None:
            nonlocal fetches
            offset = 0
            while offset < 20:
                fetches += 1
                offset += len(offsets((await scene.fetch("a", offset=offset, replica_id=replica_id, wait_ms=500))["a"]))
            await scene.fetch("a", offset=offset, replica_id=replica_id)

        followers = [asyncio.ensure_future(follow(replica_id)) for replica_id in (1, 2)]
        for number in range(20):
            await asyncio.sleep(0.01)
            assert partition.high_watermark == number
            scene.disk.append(partition, 1)
            scene.disk.replicas.partition_moved(partition.topic_partition)
        await asyncio.gather(*followers)
        assert partition.high_watermark == 20
        assert fetches == 40

    play(tmp_path, scenario)


# Follower state on the leader


@pytest.mark.parametrize(("offset", "last_fetched_epoch"), [(5, 1), (9, 1), (9, -1)])
def test_a_diverging_follower_does_not_advance_the_high_watermark(
    tmp_path: Path, offset: int, last_fetched_epoch: int
) -> None:
    """The follower led the previous epoch and fetches beyond records that only it has, which it will truncate."""

    async def scenario(scene: Scene) -> None:
        scene.disk.append(scene.disk.lead("a", replicas=(0, 1)), 3)
        partition = scene.disk.lead("a", replicas=(0, 1))
        scene.disk.append(partition, 3)
        reply = await scene.fetch(
            "a", offset=offset, last_fetched_epoch=last_fetched_epoch, replica_id=FOLLOWER, version=12
        )
        diverging = reply["a"].diverging_epoch
        if last_fetched_epoch >= 0:
            assert diverging is not None
            assert (diverging.epoch, diverging.end_offset) == (1, 3)
        else:
            assert reply["a"].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.high_watermark == 0
        assert scene.isr_changes.candidates == []
        reply = await scene.fetch("a", offset=3, last_fetched_epoch=1, replica_id=FOLLOWER, version=12)
        assert offsets(reply["a"]) == [3, 4, 5]
        assert partition.high_watermark == 3
        assert scene.isr_changes.candidates == [FOLLOWER]

    play(tmp_path, scenario)


# Consumers and followers


def test_a_consumer_reads_from_a_follower_up_to_its_high_watermark(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        follow(scene.disk, 5, high_watermark=3)
        reply = (await scene.fetch("a"))["a"]
        assert offsets(reply) == [0, 1, 2]
        assert reply.high_watermark == 3
        assert offsets((await scene.fetch("a", offset=4))["a"]) == []  # present, but not known to be committed

    play(tmp_path, scenario)


def test_offsets_beyond_the_end_of_a_follower_are_not_available(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        follow(scene.disk, 5, high_watermark=3)
        assert (await scene.fetch("a", offset=6))["a"].error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    play(tmp_path, scenario)


@pytest.mark.parametrize(("version", "replica_id"), [(10, CONSUMER), (11, FOLLOWER)])
def test_older_consumers_and_followers_need_the_leader(tmp_path: Path, version: int, replica_id: int) -> None:
    async def scenario(scene: Scene) -> None:
        follow(scene.disk, 5, high_watermark=3)
        reply = (await scene.fetch("a", version=version, replica_id=replica_id))["a"]
        assert reply.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(tmp_path, scenario)


def test_a_consumer_waiting_at_a_follower_gets_newly_committed_records(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        partition = follow(scene.disk, 5, high_watermark=3)
        waiting = asyncio.ensure_future(scene.fetch("a", offset=3, wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        partition.follow_high_watermark(5)
        scene.disk.replicas.partition_moved(partition.topic_partition)
        await asyncio.sleep(0)
        assert offsets((await waiting)["a"]) == [3, 4]
        assert scene.disk.clock.monotonic_ms() < 60_000

    play(tmp_path, scenario)


def test_the_leader_names_a_preferred_read_replica_at_once_without_records(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.disk.lead("a", replicas=(0, 1))
        scene.disk.append(partition, 3)
        await scene.fetch("a", offset=3, replica_id=FOLLOWER)
        reply = (await scene.fetch("a", rack="b", wait_ms=60_000))["a"]
        assert (reply.preferred_read_replica, offsets(reply), reply.high_watermark) == (1, [], 3)
        near = (await scene.fetch("a", rack="a"))["a"]
        assert (near.preferred_read_replica, offsets(near)) == (-1, [0, 1, 2])

    play(tmp_path, scenario)


def test_the_preferred_read_replica_has_the_offset_and_is_in_sync(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.disk.lead("a", replicas=(0, 1))
        scene.disk.append(partition, 3)
        await scene.fetch("a", offset=1, replica_id=FOLLOWER)
        assert (await scene.fetch("a", offset=2, rack="b"))["a"].preferred_read_replica == -1
        partition = scene.disk.lead("a", replicas=(0, 1), isr=(0,))
        await scene.fetch("a", offset=3, replica_id=FOLLOWER)
        assert (await scene.fetch("a", offset=2, rack="b"))["a"].preferred_read_replica == -1

    play(tmp_path, scenario)

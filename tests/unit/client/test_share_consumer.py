"""The share consumers beside a deserializer that waits, on a cluster in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from kctl.client import AsyncShareConsumer, ShareConsumer, ShareConsumerConfig, ShareRecord, WokenUp
from kctl.client.application.consumer_records import Unprepared
from kctl.protocol.apis.share_acknowledge import LeaderIdAndEpoch, ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kctl.protocol.apis.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kctl.protocol.apis.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers import probe
from tests.unit.client.fake_cluster import FakeCluster

WAIT_S = 60
ORDERS = UUID(int=1)
BATCH = build_batch([Record(0, 1, None, b"ready"), Record(1, 1, None, b"wait"), Record(2, 1, None, b"wait")])
LATER = build_batch([Record(3, 1, None, b"later")], base_offset=3)


class WaitingDeserializer:
    """Values as text; for the value "wait" something has to be prepared first, which lasts until `responds` is set."""

    def __init__(self) -> None:
        self.responds = threading.Event()
        self.waits = threading.Event()
        """Set when a preparation has begun."""
        self.prepared = 0

    def prepare(self) -> None:
        self.waits.set()
        assert self.responds.wait(WAIT_S)
        self.prepared += 1

    def __call__(self, data: bytes | None) -> str:
        if data == b"wait" and not self.prepared:
            self.prepare()
        return (data or b"").decode()

    def without_waiting(self, data: bytes | None) -> str:
        if data == b"wait" and not self.prepared:
            raise Unprepared(self.prepare)
        return (data or b"").decode()


def fetched(records: bytes, first_offset: int, last_offset: int) -> ShareFetchableTopicResponse:
    data = PartitionData(
        partition_index=0,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=records,
        acquired_records=[AcquiredRecords(first_offset=first_offset, last_offset=last_offset, delivery_count=1)],
    )
    return ShareFetchableTopicResponse(topic_id=ORDERS, partitions=[data])


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """With a share group whose member gets three records, and one more with a fetch that acknowledges others."""
    with FakeCluster() as started:
        started.create("orders")

        def heartbeat(request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
            assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=ORDERS, partitions=[0])])
            return ShareGroupHeartbeatResponse(
                error_code=0,
                member_id=request.member_id,
                member_epoch=max(request.member_epoch, 1),
                heartbeat_interval_ms=1,
                assignment=assignment,
            )

        def fetch(request: ShareFetchRequest) -> ShareFetchResponse:
            responses = []
            acknowledges = any(
                partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
            )
            if request.share_session_epoch == 0:
                responses = [fetched(BATCH, 0, 2)]
            elif acknowledges:
                responses = [fetched(LATER, 3, 3)]
            return ShareFetchResponse(
                node_endpoints=[], error_code=0, acquisition_lock_timeout_ms=3_600_000, responses=responses
            )

        started.intercept(ShareGroupHeartbeatRequest, heartbeat)
        started.intercept(ShareFetchRequest, fetch)
        started.intercept(
            ShareAcknowledgeRequest, lambda _: ShareAcknowledgeResponse(error_code=0, responses=[], node_endpoints=[])
        )
        yield started


def config(cluster: FakeCluster) -> ShareConsumerConfig:
    return ShareConsumerConfig(bootstrap_servers=cluster.bootstrap, group_id="g")


def respond_after_heartbeats(cluster: FakeCluster, deserializer: WaitingDeserializer) -> bool:
    """Let the preparation end after two more heartbeats; return whether there were any."""
    try:
        assert deserializer.waits.wait(WAIT_S)
        before = len(cluster.requested(ShareGroupHeartbeatRequest))
        probe.wait_until(
            lambda: len(cluster.requested(ShareGroupHeartbeatRequest)) >= before + 2,
            what="heartbeats while a deserializer waits",
            timeout_s=WAIT_S / 2,
        )
    finally:
        deserializer.responds.set()
    return True


def accepted(cluster: FakeCluster) -> set[int]:
    """The offsets that were accepted."""
    requests = [*cluster.requested(ShareAcknowledgeRequest), *cluster.requested(ShareFetchRequest)]
    batches = [
        batch
        for _, request in requests
        for topic in request.topics
        for partition in topic.partitions
        for batch in partition.acknowledgement_batches
        if set(batch.acknowledge_types) == {1}
    ]
    return {offset for batch in batches for offset in range(batch.first_offset, batch.last_offset + 1)}


def test_heartbeats_of_a_share_consumer_go_on_while_a_deserializer_waits(cluster: FakeCluster) -> None:
    deserializer = WaitingDeserializer()
    records: list[ShareRecord] = []
    with (
        ThreadPoolExecutor(1) as pool,
        ShareConsumer(config(cluster), key_deserializer=lambda _: None, value_deserializer=deserializer) as consumer,
    ):
        watching = pool.submit(respond_after_heartbeats, cluster, deserializer)
        consumer.subscribe(["orders"])
        while len(records) < 3:
            records += consumer.poll(WAIT_S * 1000)
        assert watching.result()
    assert [(record.offset, record.value) for record in records] == [(0, "ready"), (1, "wait"), (2, "wait")]
    assert deserializer.prepared == 1
    assert accepted(cluster) == {0, 1, 2}


def test_poll_of_an_async_share_consumer_ends_in_time_while_a_deserializer_waits(cluster: FakeCluster) -> None:
    deserializer = WaitingDeserializer()

    async def run() -> list[str]:
        async with AsyncShareConsumer(
            config(cluster), key_deserializer=lambda _: None, value_deserializer=deserializer
        ) as consumer:
            await consumer.subscribe(["orders"])
            first = await consumer.poll(WAIT_S * 1000)
            assert await consumer.poll(10) == []
            await asyncio.to_thread(deserializer.waits.wait, WAIT_S)
            polling = asyncio.create_task(consumer.poll(WAIT_S * 1000))
            await asyncio.sleep(0)
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            consumer.wakeup()
            with pytest.raises(WokenUp):
                await consumer.poll(WAIT_S * 1000)
            watching = asyncio.create_task(asyncio.to_thread(respond_after_heartbeats, cluster, deserializer))
            others = await consumer.poll(WAIT_S * 1000)
            assert await watching
            return [record.value for record in (*first, *others)]

    assert asyncio.run(run()) == ["ready", "wait", "wait"]
    assert deserializer.prepared == 1
    assert accepted(cluster) == {0, 1, 2}


def test_records_that_arrive_with_a_wakeup_are_returned_by_the_next_poll(cluster: FakeCluster) -> None:
    async def run() -> list[int]:
        consumer: AsyncShareConsumer
        async with AsyncShareConsumer(config(cluster), on_acknowledged=lambda *_: consumer.wakeup()) as consumer:
            await consumer.subscribe(["orders"])
            first = await consumer.poll(WAIT_S * 1000)
            with pytest.raises(WokenUp):  # by the response that has the record
                await consumer.poll(WAIT_S * 1000)
            return [record.offset for record in (*first, *await consumer.poll(1_000))]

    assert asyncio.run(run()) == [0, 1, 2, 3]

"""The verdict LOSING of `kctl top`: the same as that of `kctl groups lag`, with a bounded number of requests."""

from __future__ import annotations

import time

from kctl.admin.groups.lag import LagOptions, LagReader
from kctl.admin.groups.offsets import commit_offsets
from kctl.admin.sampling.sample import ClusterSample, GroupVerdicts
from kctl.admin.sampling.sampler import RETENTION_CACHED_MS, Sampler
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.model import TopicPartition
from kctl.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.requests.recorder import RequestRecorder
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate

ORDERS = TopicPartition("orders", 0)
PROPERTIES = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
RETENTION_MS = 100 * 3_600_000
GROUPS = {"near": 0, "far": 1, "done": 2}
"""Committed offsets: the record at 0 is nearly as old as the retention, the one at 1 is new."""


async def fill(client: ClusterClient) -> None:
    """A topic with an old and a new record, and the groups."""
    now_ms = round(time.time() * 1000)
    config = CreatableTopicConfig(name="retention.ms", value=str(RETENTION_MS))
    topic = CreatableTopic(name=ORDERS.topic, num_partitions=1, replication_factor=1, assignments=[], configs=[config])
    creation = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    await client.on_controller(lambda connection: connection.send(creation, CreateTopicsResponse))
    for timestamp_ms in (now_ms - RETENTION_MS * 95 // 100, now_ms):
        await produce(client, timestamp_ms)
    for group, offset in GROUPS.items():
        await commit_offsets(client, group, {ORDERS: CommittedOffset(offset)})


async def produce(client: ClusterClient, timestamp_ms: int) -> None:
    batch = build_batch([Record(0, timestamp_ms, None, b"v")])
    data = [TopicProduceData(name=ORDERS.topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data)
    response = await client.on_any_broker(lambda connection: connection.send(request, ProduceResponse))
    assert response.responses[0].partition_responses[0].error_code == 0


async def judged(client: ClusterClient, samples: list[ClusterSample]) -> dict[str, tuple[str | None, str]]:
    """The verdicts of the groups after these samples, and those of `kctl groups lag`."""
    verdicts = GroupVerdicts()
    for sample in samples:
        verdicts.observe(sample)
    lag = await LagReader(LagOptions()).read(client, list(GROUPS), round(time.time() * 1000))
    return {group.outcome.name: (verdicts.of(group.outcome.name), group.verdict.name) for group in lag}


def test_a_group_whose_records_are_about_to_expire_is_losing_as_in_groups_lag() -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, properties=PROPERTIES)
        await cluster.start(1)
        async with cluster.client() as client:
            await fill(client)
            sampler = Sampler(client, {}, reads_metrics=False)
            samples = [await sampler.take() for _ in range(2)]
            assert [sample.problems for sample in samples] == [(), ()]
            found = await judged(client, samples)
        await cluster.stop()
        assert found == {"near": ("LOSING",) * 2, "far": ("OK",) * 2, "done": ("OK",) * 2}

    simulate(main, seed=1)


def test_limits_and_timestamps_are_read_once_while_nothing_changes() -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, properties=PROPERTIES)
        await cluster.start(1)
        broker = cluster.brokers[0].broker
        assert broker is not None
        async with cluster.client() as client:
            await fill(client)
            recorder = broker._dispatcher.recorder = RequestRecorder(loop.time)
            counts = []
            sampler = Sampler(client, {}, reads_metrics=False)
            for action in ("", "", "", "produce", "", "wait"):
                if action == "produce":
                    await produce(client, round(time.time() * 1000))
                if action == "wait":
                    await client.transport.sleep(RETENTION_CACHED_MS)
                sample = await sampler.take()
                counts.append(tuple(recorder.apis[name].count for name in ("describe_configs", "fetch")))
            assert sample.unread.keys() == {(ORDERS, offset) for offset in GROUPS.values()}
        await cluster.stop()
        # The first sample does not know the starts of logs.  A record after a group that had read everything is new.
        assert counts == [(0, 0), (1, 1), (1, 1), (1, 2), (1, 2), (2, 2)]

    simulate(main, seed=1)

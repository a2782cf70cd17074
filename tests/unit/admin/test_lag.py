"""What is read for the lag of groups."""

from __future__ import annotations

import asyncio
import time

from kctl.admin.groups.history import LAG_COMMITS_MAX, CommitHistory
from kctl.admin.groups.lag import LagOptions, LagReader
from kctl.admin.sampling.sample import GroupVerdicts
from kctl.admin.sampling.sampler import Sampler
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.lag.facts import Position
from kctl.lag.rules import GroupLag
from kctl.model import TopicPartition
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.topics import OffsetCommitValue, encode_offset_commit_key, encode_offset_commit_value
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup

ORDERS = TopicPartition("orders", 0)


def test_the_leaders_of_the_topics_of_all_groups_are_looked_up_once() -> None:
    with FakeCluster(brokers=2) as cluster:
        for name in ("orders", "bills"):
            for partition in cluster.create(name, 2):
                partition.append(build_batch([Record(0, 1, b"k", b"v")]))
            cluster.groups[f"of-{name}"] = FakeGroup({TopicPartition(name, number): 0 for number in range(2)})

        async def main() -> list[GroupLag]:
            async with ClusterClient(cluster.settings(), AsyncioTransport()) as client:
                return await LagReader(LagOptions()).read(client, ["of-orders", "of-bills"], now_ms=1000)

        groups = asyncio.run(main())
        lags = {
            partition.tp: partition.judgement.lag
            for group in groups
            for partition in group.partitions
            if partition.judgement
        }
        assert lags == {TopicPartition(name, number): 1 for name in ("bills", "orders") for number in range(2)}
        asked = [{topic.name for topic in request.topics} for _, request in cluster.requested(MetadataRequest)]
        assert asked.count({"orders", "bills"}) == 1
        assert not any("orders" in names for names in asked if names != {"orders", "bills"})


def commit(cluster: FakeCluster, group: str, offset: int, time_ms: int) -> None:
    """Adds to the history of commits, and sets the offset of the group."""
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=time_ms)
    record = Record(0, time_ms, encode_offset_commit_key(group, ORDERS.topic, 0), encode_offset_commit_value(value))
    cluster.topics["__consumer_offsets"][0].append(build_batch([record]))
    cluster.groups[group] = FakeGroup({ORDERS: offset})


def test_the_history_has_the_earlier_commits_of_a_group_that_is_asked_for_later() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create("__consumer_offsets", 1)
        commit(cluster, "one", 1, 1000)
        commit(cluster, "two", 2, 2000)

        async def main() -> CommitHistory:
            async with ClusterClient(cluster.settings(), AsyncioTransport()) as client:
                history = CommitHistory()
                await history.read(client, ["one"], since_ms=0)
                await history.read(client, ["one", "two"], since_ms=0)
                return history

        history = asyncio.run(main())
        assert (history.of("one", ORDERS), history.of("two", ORDERS)) == ((Position(1000, 1),), (Position(2000, 2),))


def test_commits_that_are_kept_are_bounded() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create("__consumer_offsets", 1)
        for number in range(3 * LAG_COMMITS_MAX):
            commit(cluster, "one", number, 1000 + number)

        async def main() -> CommitHistory:
            async with ClusterClient(cluster.settings(), AsyncioTransport()) as client:
                history = CommitHistory()
                await history.read(client, ["one"], since_ms=0)
                return history

        kept = asyncio.run(main()).of("one", ORDERS)
        assert len(kept) <= LAG_COMMITS_MAX
        assert (kept[0].offset, kept[-1].offset) == (0, 3 * LAG_COMMITS_MAX - 1)


def test_samples_of_top_have_the_commits_of_groups_that_are_behind() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create("__consumer_offsets", 1)
        (log,) = cluster.create(ORDERS.topic, 1)
        now_ms = round(time.time() * 1000)
        log.append(build_batch([Record(0, now_ms, None, b"v")]))
        commit(cluster, "behind", 0, now_ms - 1000)
        commit(cluster, "done", 1, now_ms - 1000)

        async def main() -> list[str | None]:
            async with ClusterClient(cluster.settings(), AsyncioTransport()) as client:
                sampler, verdicts = Sampler(client, {}, reads_metrics=False), GroupVerdicts()
                for _ in range(2):
                    verdicts.observe(sample := await sampler.take())
                assert sample.commits.keys() == {("behind", ORDERS)}
                assert [position.offset for position in sample.commits["behind", ORDERS]] == [0]
                return [verdicts.of("behind"), verdicts.of("done")]

        assert asyncio.run(main()) == ["OK", "OK"]

"""The requests that reading the lag of groups takes."""

from __future__ import annotations

import asyncio

from kctl.admin.group_lag import GroupLag
from kctl.admin.lag import LagOptions, LagReader
from kctl.client.asyncio_transport import AsyncioTransport
from kctl.client.cluster import ClusterClient
from kctl.model import TopicPartition
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup


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
        lags = {one.tp: one.judgement.lag for group in groups for one in group.partitions if one.judgement}
        assert lags == {TopicPartition(name, number): 1 for name in ("bills", "orders") for number in range(2)}
        asked = [{topic.name for topic in request.topics} for _, request in cluster.requested(MetadataRequest)]
        assert asked.count({"orders", "bills"}) == 1
        assert not any("orders" in names for names in asked if names != {"orders", "bills"})

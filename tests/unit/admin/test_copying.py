"""A copy that is interrupted keeps what it has written, and the fake cluster's group has the offsets."""

from __future__ import annotations

import asyncio

from kctl.admin.copy.copying import Copier, CopyPlan
from kctl.admin.copy.groups import CopiedGroups
from kctl.admin.records.selection import RecordFilter
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.producing.producer import ProducerSettings
from kctl.model import TopicPartition
from kctl.protocol.apis.offset_commit import OffsetCommitRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.client.fake_cluster import FakeCluster

SOURCE = TopicPartition("orders", 0)
RECORDS = 5


class StoppingTransport(AsyncioTransport):
    """Cancels the task at a pause of `stops_at_ms` or more, and takes other pauses at once."""

    def __init__(self, stops_at_ms: int) -> None:
        super().__init__()
        self.stops_at_ms = stops_at_ms
        self.pauses = 0

    async def sleep(self, duration_ms: int) -> None:
        """Counts the pauses."""
        self.pauses += 1
        if duration_ms >= self.stops_at_ms:
            raise asyncio.CancelledError


def plan_for(cluster: FakeCluster, bytes_per_s: int | None) -> CopyPlan:
    log = cluster.create("orders")[0]
    cluster.create("copy")
    for number in range(RECORDS):
        log.append(build_batch([Record(0, number, b"k", b"x" * 99, ())]))
    return CopyPlan(
        target="copy",
        bounds={SOURCE: (1, RECORDS)},
        records=RecordFilter(),
        records_max=None,
        keeps_partitions=True,
        bytes_per_s=bytes_per_s,
        isolation=IsolationLevel.READ_COMMITTED,
        progress_group="g",
        progress_topic="orders",
    )


def run(
    cluster: FakeCluster,
    plan: CopyPlan,
    transport: StoppingTransport,
    groups: dict[str, dict[TopicPartition, int]] | None = None,
) -> Copier:
    async def main() -> Copier:
        source = ClusterClient(cluster.settings(), transport)
        async with source, ClusterClient(cluster.settings(), AsyncioTransport()) as target:
            begins = {tp: begin for tp, (begin, _) in plan.bounds.items()}
            mirrored = CopiedGroups.of(target, plan.target, groups, begins) if groups else None
            copier = Copier(plan, source, target, ProducerSettings(), groups=mirrored)
            try:
                await copier.run()
            except asyncio.CancelledError:
                assert transport.pauses
            return copier

    return asyncio.run(main())


def test_an_interrupted_copy_commits_what_it_has_written() -> None:
    with FakeCluster() as cluster:
        copier = run(cluster, plan_for(cluster, bytes_per_s=100), StoppingTransport(stops_at_ms=900))
        assert copier.counts.positions == {SOURCE: 2}
        assert [record.timestamp for record in cluster.records_of("copy", 0)] == [1]
        assert cluster.groups["g"].offsets == {SOURCE: 2}


def test_an_interrupted_copy_commits_offsets_of_groups_up_to_its_progress() -> None:
    with FakeCluster() as cluster:
        groups = {"first": {SOURCE: 1}, "next": {SOURCE: 2}, "later": {SOURCE: 3}}
        transport = StoppingTransport(stops_at_ms=900)
        run(cluster, plan_for(cluster, bytes_per_s=100), transport, groups)
        copy = TopicPartition("copy", 0)
        assert cluster.groups["g"].offsets == {SOURCE: 2}
        assert {name: cluster.groups[name].offsets[copy] for name in groups if name in cluster.groups} == {
            "first": 0,
            "next": 1,
        }


def test_progress_is_committed_before_a_long_pause() -> None:
    """A transaction would be open during the pause otherwise."""
    with FakeCluster() as cluster:
        run(cluster, plan_for(cluster, bytes_per_s=50), StoppingTransport(stops_at_ms=10**9))
        commits = [
            part.committed_offset
            for _, request in cluster.requested(OffsetCommitRequest)
            for topic in request.topics
            for part in topic.partitions
        ]
        assert commits == [1, 2, 3, 4, 5]


def test_without_a_rate_there_is_no_pause() -> None:
    with FakeCluster() as cluster:
        transport = StoppingTransport(stops_at_ms=0)
        copier = run(cluster, plan_for(cluster, bytes_per_s=None), transport)
        assert (transport.pauses, copier.counts.selected) == (0, RECORDS - 1)
        assert cluster.groups["g"].offsets == {SOURCE: RECORDS}

"""Dynamic properties of the broker take effect on its partitions without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl.config.broker import BROKER_PROPERTIES
from kctl.config.definition import Dynamic
from kctl.config.topic import TOPIC_PROPERTIES
from kctl.model import TopicPartition
from kctl.server.cluster.configs.broker import BrokerConfigUpdates
from kctl.server.peers.versions import inter_broker_versions
from kctl.server.replication.follower.fetcher import FetchSettings
from kctl.server.replication.follower.fetchers import ReplicaFetchers
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.storage.config import LogConfig
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.server.test_fetchers import UnreachablePeers

CHANGES: dict[str, tuple[str, Callable[[LogConfig], object]]] = {
    "log.cleanup.policy": ("compact", lambda config: config.is_compacted),
    "compression.type": ("zstd", lambda config: config.compression_type),
    "log.cleaner.delete.retention.ms": ("1", lambda config: config.delete_retention_ms),
    "log.segment.delete.delay.ms": ("1", lambda config: config.file_delete_delay_ms),
    "log.flush.interval.messages": ("1", lambda config: config.flush_messages),
    "log.flush.interval.ms": ("1", lambda config: config.flush_ms),
    "log.index.interval.bytes": ("1", lambda config: config.index_interval_bytes),
    "log.cleaner.max.compaction.lag.ms": ("1", lambda config: config.max_compaction_lag_ms),
    "message.max.bytes": ("1", lambda config: config.max_message_bytes),
    "log.message.timestamp.difference.max.ms": ("1", lambda config: config.message_timestamp_difference_max_ms),
    "log.message.timestamp.type": ("LogAppendTime", lambda config: config.message_timestamp_type),
    "log.cleaner.min.cleanable.ratio": ("0.1", lambda config: config.min_cleanable_dirty_ratio),
    "log.cleaner.min.compaction.lag.ms": ("1", lambda config: config.min_compaction_lag_ms),
    "log.preallocate": ("true", lambda config: config.preallocate),
    "log.retention.bytes": ("1", lambda config: config.retention_bytes),
    "log.retention.ms": ("1", lambda config: config.retention_ms),
    "log.segment.bytes": ("14", lambda config: config.segment_bytes),
    "log.index.size.max.bytes": ("24", lambda config: config.segment_index_bytes),
    "log.roll.jitter.ms": ("1", lambda config: config.segment_jitter_ms),
    "log.roll.ms": ("1", lambda config: config.segment_ms),
}
READ_WHEN_USED = {"log.message.downconversion.enable", "min.insync.replicas", "unclean.leader.election.enable"}
"""Handlers and the controller read them from the configuration of the topic, for each request."""


def updates_of(disk: Disk, fetchers: ReplicaFetchers, elections: list[str]) -> BrokerConfigUpdates:
    return BrokerConfigUpdates(
        disk.configs,
        replicas=disk.replicas,
        fetchers=fetchers,
        unclean_election_changed=lambda: elections.append("now"),
        listeners_changed=unchanged,
    )


async def unchanged() -> None:
    """The advertised endpoints stay."""


def fetchers_of(disk: Disk, per_leader: int = 1) -> ReplicaFetchers:
    return ReplicaFetchers(
        replicas=disk.replicas,
        peers=UnreachablePeers(),
        clock=disk.clock,
        settings=FetchSettings(500, 1, 1 << 20, 1 << 20, 1000, inter_broker_versions("2.8")),
        quota=ReplicationThrottles(0, disk.configs).follower,
        per_leader=per_leader,
    )


def test_every_dynamic_default_of_topics_is_in_the_table() -> None:
    dynamic = {
        server
        for described in TOPIC_PROPERTIES.values()
        if (server := described.server) is not None and BROKER_PROPERTIES[server].dynamic is not Dynamic.READ_ONLY
    }
    assert dynamic == CHANGES.keys() | READ_WHEN_USED


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_default_for_topics_applies_to_existing_logs_and_is_taken_back(name: str, tmp_path: Path) -> None:
    text, value_of = CHANGES[name]

    async def scene(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path)
        updates = updates_of(disk, fetchers_of(disk), [])
        updates.start()
        partition, other = disk.lead("orders"), disk.lead("payments")
        disk.configs.set_topic("payments", {})
        before = value_of(partition.log.config)
        assert disk.configs.set_dynamic_default({name: text}) == []
        await asyncio.sleep(1)
        assert value_of(partition.log.config) != before
        assert partition.log.config == other.log.config == LogConfig.of(disk.configs.topic("orders"))
        disk.configs.set_dynamic_default({})
        await asyncio.sleep(1)
        assert value_of(partition.log.config) == before
        await updates.close()
        disk.close()

    simulate(scene, seed=1)


def test_a_topics_own_value_is_kept(tmp_path: Path) -> None:
    async def scene(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path)
        updates = updates_of(disk, fetchers_of(disk), [])
        updates.start()
        partition = disk.lead("orders")
        disk.configs.set_topic("orders", {"retention.ms": "5000"})
        disk.replicas.topic_configs_changed(["orders"])
        disk.configs.set_dynamic_default({"log.retention.ms": "7000", "log.segment.bytes": "1000"})
        await asyncio.sleep(1)
        assert (partition.log.config.retention_ms, partition.log.config.segment_bytes) == (5000, 1000)
        await updates.close()
        disk.close()

    simulate(scene, seed=1)


def test_the_number_of_fetchers_follows_its_property_and_no_partition_is_lost(tmp_path: Path) -> None:
    async def scene(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path, live=(0, 1))
        fetchers = fetchers_of(disk)
        updates = updates_of(disk, fetchers, [])
        updates.start()
        for index in range(8):
            fetchers.follow(disk.lead("orders", index, leader=1, replicas=(0, 1)))
        followed = {TopicPartition("orders", index) for index in range(8)}
        for number in (4, 3, 1):
            disk.configs.set_dynamic_broker({"num.replica.fetchers": str(number)})
            await asyncio.sleep(1)
            assert set(fetchers.fetchers) == {(1, number) for number in range(number)}
            parts = [
                partition.topic_partition for fetcher in fetchers.fetchers.values() for partition in fetcher.partitions
            ]
            assert (len(parts), set(parts)) == (8, followed)
        await updates.close()
        await fetchers.close()
        disk.close()

    simulate(scene, seed=1)


def test_the_controller_learns_whether_unclean_elections_are_allowed(tmp_path: Path) -> None:
    async def scene(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path)
        elections: list[str] = []
        updates = updates_of(disk, fetchers_of(disk), elections)
        updates.start()
        for value, count in (("false", 0), ("true", 1), ("true", 1), ("false", 2), ("true", 3)):
            disk.configs.set_dynamic_default({"unclean.leader.election.enable": value})
            await asyncio.sleep(1)
            assert len(elections) == count
        await updates.close()
        disk.close()

    simulate(scene, seed=1)

"""Features gated by inter.broker.protocol.version besides request versions."""

from __future__ import annotations

import random

import pytest

from kctl.config.config_loading import load_broker_config
from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol.codec import version_of
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.records.validate import AppendRules, validate_produced
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import CommitRequest
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.peers.versions import allows_zstd, registration_version, uses_topic_ids
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper
from kctl.zookeeper import paths, znodes
from tests.unit.groups.hosting import Host, settled
from tests.unit.handlers.world import World, play

T0 = TopicPartition("t", 0)
RECORD = Record(0, 1000, b"key", b"value")


@pytest.mark.parametrize(("codec", "stored"), [(Codec.ZSTD, None), (Codec.GZIP, Codec.ZSTD)])
def test_zstd_is_refused_while_brokers_that_cannot_read_it_may_follow(codec: Codec, stored: Codec | None) -> None:
    batch = build_batch([RECORD], codec=codec)
    rules = AppendRules(max_message_bytes=10_000, segment_bytes=100_000, codec=stored, allows_zstd=False)
    with pytest.raises(ApiError) as refused:
        validate_produced(bytearray(batch), rules, now_ms=0, request_version=9)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_is_taken_where_another_codec_is_stored() -> None:
    rules = AppendRules(max_message_bytes=10_000, segment_bytes=100_000, codec=Codec.GZIP, allows_zstd=False)
    batch = bytearray(build_batch([RECORD], codec=Codec.ZSTD))
    (header,) = validate_produced(batch, rules, now_ms=0, request_version=9).headers
    assert header.codec is Codec.GZIP


@pytest.mark.parametrize(
    ("version", "zstd", "ids", "registration"),
    [
        ("2.0", False, False, 4),
        ("2.1-IV0", True, False, 4),
        ("2.6", True, False, 4),
        ("2.7-IV0", True, False, 5),
        ("2.8-IV0", True, True, 5),
    ],
)
def test_feature_gates_follow_the_inter_broker_version(version: str, zstd: bool, ids: bool, registration: int) -> None:
    assert (allows_zstd(version), uses_topic_ids(version), registration_version(version)) == (zstd, ids, registration)


def test_new_topic_has_no_id_before_all_brokers_support_topic_ids() -> None:
    async def main(_loop: SimLoop) -> None:
        zookeeper = SimZooKeeper().session()
        await zookeeper.start(10_000)
        await zookeeper.create(paths.TOPICS, None, make_parents=True)
        writer = TopicWriter(zookeeper, random.Random(1), has_topic_ids=False)
        assert await writer.create("t", {0: (0,)}, {}) == ZERO_UUID
        data, _ = await zookeeper.get(paths.topic("t"))
        assert znodes.decode_topic("t", data).topic_id is None
        await zookeeper.close()

    simulate(main, seed=1)


def test_controller_assigns_no_topic_ids_before_all_brokers_support_them() -> None:
    async def scene(world: World) -> None:
        world.controller._znodes._has_topic_ids = False
        await world.zookeeper.create(paths.topic("t"), znodes.encode_topic(znodes.TopicAssignment({0: (0,)})))
        await world.until(lambda: world.metadata.has_leaders("t", 1))
        data, _ = await world.zookeeper.get(paths.topic("t"))
        assert znodes.decode_topic("t", data).topic_id is None

    play(scene)


@pytest.mark.parametrize(
    ("version", "commit", "group"), [("2.0", 1, 1), ("2.1-IV0", 2, 2), ("2.1", 3, 2), ("2.3", 3, 3), ("2.8", 3, 3)]
)
def test_group_records_are_written_in_a_version_that_every_coordinator_reads(
    version: str, commit: int, group: int
) -> None:
    values = value_versions(version)
    assert values == {"commit": commit, "group": group}


def value_versions(version: str) -> dict[str, int]:
    """The versions of the values in __consumer_offsets after a commit and a rebalance."""
    config = GroupConfig.of(load_broker_config({"inter.broker.protocol.version": version})[0])
    found: dict[str, int] = {}

    async def main(loop: SimLoop) -> None:
        host = Host(
            loop,
            offset_commit_value_version=config.offset_commit_value_version,
            group_metadata_value_version=config.group_metadata_value_version,
        )
        await host.start()
        offsets = {T0: OffsetAndMetadata(5, leader_epoch=3)}
        await settled(host.coordinator.commit("simple", CommitRequest(offsets=offsets)))
        await host.stable()
        for record in host.log.records():
            assert record.key is not None
            assert record.value is not None
            found["group" if version_of(record.key) == 2 else "commit"] = version_of(record.value)
        await host.coordinator.stop()

    simulate(main, seed=1)
    return found


def test_static_member_is_refused_while_some_coordinator_cannot_store_instance_ids() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, allows_static_members=False).start()
        assert (await settled(host.join(group_instance_id="i"))).error is ErrorCode.UNSUPPORTED_VERSION
        await host.coordinator.stop()

    simulate(main, seed=1)

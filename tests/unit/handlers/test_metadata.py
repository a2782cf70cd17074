"""Metadata of a broker that has just started."""

from __future__ import annotations

import asyncio
import random

import pytest

from kctl.config.dynamic import ConfigView
from kctl.errors import ErrorCode
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.server.cluster.topics.automatic import AutoTopics
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.handlers.metadata import FIRST_METADATA_WAIT_S, MetadataHandler
from kctl.server.peers.metadata import MetadataCache
from kctl.server.policies import Policies
from kctl.server.requests.context import EVERYTHING_ALLOWED, EverythingAllowed
from kctl.server.requests.quotas.accounts import RequestAccount
from kctl.server.requests.quotas.meters import BucketMeter, LimitedClient, QuotaWindows
from kctl.testing.sim_zookeeper import SimZooKeeper
from tests.unit.handlers.world import World, context, known, play


def test_a_topic_before_its_first_update_metadata_exists_without_a_leader() -> None:
    configs, cache = ConfigView({"auto.create.topics.enable": "false"}), MetadataCache()
    chance = random.Random(1)
    writer = TopicWriter(SimZooKeeper().session(), chance)
    handler = MetadataHandler(
        "cluster", cache, AutoTopics(writer, cache, configs, chance, Policies()), configs, known()
    )
    configs.set_topic("old", {})

    def errors() -> dict[str | None, int]:
        topics = [MetadataRequestTopic(name=name) for name in ("old", "unknown")]
        response = handler.handle(MetadataRequest(topics=topics), context(9))
        assert isinstance(response, MetadataResponse)
        return {topic.name: topic.error_code for topic in response.topics}

    assert errors() == {"old": ErrorCode.LEADER_NOT_AVAILABLE, "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    state = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=0, leader_epoch=0, isr=[0], zk_version=0, replicas=[0]
    )
    reported = UpdateMetadataTopicState(topic_name="another", partition_states=[state])
    cache.update(UpdateMetadataRequest(controller_id=0, controller_epoch=1, topic_states=[reported], live_brokers=[]))
    assert errors() == dict.fromkeys(("old", "unknown"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class NothingAllowed(EverythingAllowed):
    def allows(self, *_: object, **__: object) -> bool:
        return False


def test_an_id_of_a_topic_that_the_client_may_not_describe_has_no_name() -> None:
    async def scene(world: World) -> None:
        await world.topic("secret")
        automatic = AutoTopics(world.topics, world.metadata, world.configs, world.random, world.policies)
        handler = MetadataHandler("cluster", world.metadata, automatic, world.configs, known())
        asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=world.metadata.topic_id("secret"), name=None)])
        for access, expected in (
            (EVERYTHING_ALLOWED, ("secret", ErrorCode.NONE)),
            (NothingAllowed(), (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
        ):
            requested = context(12)
            requested.access = access
            response = handler.handle(asked, requested)
            assert isinstance(response, MetadataResponse)
            assert [(topic.name, topic.error_code) for topic in response.topics] == [expected]

    play(scene)


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_request_waits_for_the_first_metadata_of_a_controller_but_not_for_long(is_sent: bool) -> None:
    """librdkafka does not ask again for a minute after a response without the controller."""

    async def scene(world: World) -> None:
        cache, first = MetadataCache(), asyncio.Event()
        automatic = AutoTopics(world.topics, cache, world.configs, world.random, world.policies)
        handler = MetadataHandler("cluster", cache, automatic, world.configs, first)
        pending = asyncio.ensure_future(handler.handle(MetadataRequest(topics=[]), context(9)))  # type: ignore[arg-type]
        await asyncio.sleep(FIRST_METADATA_WAIT_S - 1)
        assert not pending.done()
        if is_sent:
            endpoint = UpdateMetadataEndpoint(port=9092, host="host", listener="PLAINTEXT", security_protocol=0)
            broker = UpdateMetadataBroker(id=3, endpoints=[endpoint])
            cache.update(
                UpdateMetadataRequest(controller_id=3, controller_epoch=1, topic_states=[], live_brokers=[broker])
            )
            first.set()
        response = await pending
        expected = (3, [3]) if is_sent else (-1, [])
        assert (response.controller_id, [broker.node_id for broker in response.brokers]) == expected

    play(scene)


def test_topics_that_are_created_automatically_count_for_the_quota_of_changes() -> None:
    """As in Kafka permissively: the topic is created, and Metadata itself is not throttled."""

    async def scene(world: World) -> None:
        clock = world.clock
        meter = BucketMeter(1.0, QuotaWindows(11, 1000))
        account = RequestAccount(LimitedClient(None, None, None, meter), world.loop.time, 100)
        meter.take(12, clock.monotonic_ms())
        automatic = AutoTopics(world.topics, world.metadata, world.configs, world.random, world.policies)
        handler = MetadataHandler("cluster", world.metadata, automatic, world.configs, known())
        requested = context(9)
        requested.opened_account = account
        for _ in range(2):
            handler.handle(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), requested)
        assert meter.usage(clock.monotonic_ms()) == 11 - 12 - 3
        assert account.settle(3, 100) == 0
        await world.until(lambda: world.metadata.has_leaders("new", 3))
        automatic.request("__consumer_offsets", account)
        assert meter.usage(clock.monotonic_ms()) < -50

    play(scene, properties={"num.partitions": "3", "offsets.topic.replication.factor": "1"})

"""Configuration changes in ZooKeeper, as applied by a running broker."""

from __future__ import annotations

from kctl.zookeeper import paths
from tests.unit.handlers.world import World, play


def test_the_overrides_of_a_new_topic_are_read_without_a_config_change_notification() -> None:
    async def scene(world: World) -> None:
        await world.topics.create("a", {0: (0,)}, {"retention.ms": "5"})
        await world.until(lambda: world.configs.topic("a").retention_ms == 5)
        assert await world.zookeeper.children(paths.CONFIG_CHANGES) == []

    play(scene)


def test_a_recreated_topic_has_its_new_overrides() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"retention.ms": "5"})
        await world.topics.request_deletion("a")
        await world.until(lambda: world.metadata.partitions("a") is None)
        assert world.configs.topic("a").retention_ms == 604_800_000
        await world.topic("a", overrides={"retention.ms": "6"})
        await world.until(lambda: world.configs.topic("a").retention_ms == 6)

    play(scene)


def test_a_config_change_notification_is_applied() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        await world.topics.change_config("topics/a", {"retention.ms": "5"})
        await world.topics.change_config("brokers/0", {"message.max.bytes": "6"})
        await world.topics.change_config("brokers/1", {"message.max.bytes": "7"})
        await world.topics.change_config("brokers/<default>", {"log.segment.bytes": "800"})
        await world.until(lambda: world.configs.topic("a").segment_bytes == 800)
        assert world.configs.topic("a").retention_ms == 5
        assert world.configs.current.message_max_bytes == 6

    play(scene)


def test_a_starting_broker_reads_the_stored_overrides() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"retention.ms": "5"})
        again = World(world.loop, {})
        again.changes = type(again.changes)(
            0, world.zookeeper, again.configs, (again.credentials, again.quotas), again.clock, lambda _: None
        )
        await again.changes.load()
        assert again.configs.topic("a").retention_ms == 5

    play(scene)

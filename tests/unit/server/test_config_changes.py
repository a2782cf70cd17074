"""Configuration changes in ZooKeeper, as applied by a running broker."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Mapping
from itertools import pairwise

import pytest

from kctl.config.dynamic import ConfigView
from kctl.security.scram import Mechanism, credential_of_password, credential_text
from kctl.server.cluster.configs.changes import CONFIGS_APPLIED_PER_SLICE, CONFIGS_READ_TOGETHER
from kctl.zookeeper import paths, znodes
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


def test_overrides_that_are_read_while_their_topic_is_deleted_are_not_applied() -> None:
    """Otherwise a topic that is created again at once would keep those of the former one."""

    async def scene(world: World) -> None:
        for name in ("a", "b"):
            await world.zookeeper.create(paths.topic_config(name), znodes.encode_config({"retention.ms": "5"}))
        world.changes.topics_appeared(["a"])
        await asyncio.sleep(0)  # The read has been sent.
        world.changes.topics_deleted(["a"])
        world.changes.topics_appeared(["b"])
        await world.until(lambda: "b" in world.configs.topic_overrides)  # It is read afterwards.
        assert "a" not in world.configs.topic_overrides

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


@pytest.mark.long
def test_the_overrides_of_many_new_topics_are_applied_in_slices() -> None:
    """One iteration of the event loop applied those of 64 topics, each of which visited all logs of the broker."""
    count = 3 * CONFIGS_READ_TOGETHER
    names = [f"t{number}" for number in range(count)]
    changed: list[Collection[str]] = []

    async def scene(world: World) -> None:
        for name in names:
            await world.topics.create(name, {0: (0,)}, {"retention.ms": "5"})
        iterations: list[int] = []
        applied: set[str] = set()

        def note(topics: Collection[str]) -> None:
            changed.append(topics)
            applied.update(topics)

        again = World(world.loop, {})
        changes = type(again.changes)(
            0, world.zookeeper, again.configs, (again.credentials, again.quotas), again.clock, note
        )
        changes.topics_appeared(names)
        while len(applied) < count:
            iterations.append(len(changed))
            await asyncio.sleep(0)
        iterations.append(len(changed))
        await changes.close()
        assert max(after - before for before, after in pairwise(iterations)) == 1
        assert again.configs.topic("t0").retention_ms == 5

    play(scene)
    assert max(map(len, changed)) == CONFIGS_APPLIED_PER_SLICE
    assert [name for some in changed for name in some] == names


def test_topics_without_overrides_share_a_configuration() -> None:
    view = ConfigView({})
    view.set_topic("a", {})
    view.set_topic("c", {"retention.ms": "5"})
    assert view.topic("a") is view.topic("b")
    assert view.topic("c").retention_ms == 5
    view.set_dynamic_default({"log.retention.ms": "7"})
    assert view.topic("a") is view.topic("b")
    assert (view.topic("a").retention_ms, view.topic("c").retention_ms) == (7, 5)


MALFORMED = [b"{", b"[]", b'{"version": 1}', b'{"config": 5}', b'{"config": [["a", "b"]]}', b"\xff", b"[" * 100_000]


async def stored(world: World, entity: str, data: bytes) -> None:
    """Writes a configuration as another program does, with a notification."""
    path = paths.config_entity(entity)
    if await world.zookeeper.exists(path) is None:
        await world.zookeeper.create(path, data, make_parents=True)
    else:
        await world.zookeeper.set(path, data)
    change = json.dumps({"version": 2, "entity_path": entity}).encode()
    await world.zookeeper.create(paths.CONFIG_CHANGES + "/config_change_", change, sequence=True)


@pytest.mark.parametrize("data", MALFORMED)
def test_a_malformed_znode_is_logged_once_and_keeps_what_is_in_use(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"retention.ms": "5"})
        for entity in ("brokers/0", "brokers/<default>", "topics/a"):
            for _ in range(3):
                await stored(world, entity, data)
        await stored(world, "clients/c", json.dumps({"config": {"producer_byte_rate": "7"}}).encode())
        await world.until(lambda: world.quotas.client("User:x", "c") is not None)
        assert world.configs.topic("a").retention_ms == 5

    with caplog.at_level(logging.ERROR):
        play(scene)
    for entity in ("brokers/0", "brokers/<default>", "topics/a"):
        assert caplog.text.count(f"path=/config/{entity} error") == 1


@pytest.mark.parametrize("data", MALFORMED)
def test_a_malformed_znode_of_a_user_leaves_no_credential_and_keeps_the_quota(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    mechanism = Mechanism.SCRAM_SHA_256
    credential = credential_of_password(mechanism, "sesame", salt=b"salt" * 5, iterations=4096)
    config = {mechanism.config_key: credential_text(credential), "producer_byte_rate": "7"}

    async def scene(world: World) -> None:
        await stored(world, "users/eve", json.dumps({"version": 1, "config": config}).encode())
        await world.until(lambda: world.credentials.credential(mechanism, "eve") == credential)
        for _ in range(3):
            await stored(world, "users/eve", data)
        await world.until(lambda: world.credentials.credential(mechanism, "eve") != credential)
        await world.changes.load()
        assert world.credentials.credential(mechanism, "eve") != credential
        limited = world.quotas.client("User:eve", "c")
        assert limited is not None
        assert limited.produce is not None
        assert limited.produce.limit == 7

    with caplog.at_level(logging.ERROR):
        play(scene)
    assert caplog.text.count("path=/config/users/eve error") == 1


@pytest.mark.parametrize(
    "config",
    [
        {"log.cleaner.threads": "many"},
        {"log.cleaner.threads": 1e99},
        {"log.cleaner.threads": True},
        {"log.cleaner.threads": "1" * 5000},
        {"message.max.bytes": None},
        {"process.roles": "broker"},
        {"max.connections.per.ip.overrides": "10.0.0.1:²"},
        {"leader.replication.throttled.rate": "-1"},
        {"broker.id": "7"},
        {"listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1/"},
        {"ssl.keystore.password": "not encrypted"},
    ],
)
def test_an_invalid_property_written_by_hand_is_logged_once_and_the_others_are_used(
    config: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        before = world.configs.current
        for size in range(1000, 1003):
            data = json.dumps({"version": 1, "config": {**config, "log.segment.bytes": f"{size}"}}).encode()
            await stored(world, "brokers/0", data)
            await world.until(lambda size=size: world.configs.current.log_segment_bytes == size)  # type: ignore[misc]
        await world.changes.load()
        for name in config:
            attribute = name.replace(".", "_")
            assert getattr(world.configs.current, attribute, None) == getattr(before, attribute, None)
            assert name not in world.configs.properties
        assert world.configs.current.log_segment_bytes == 1002

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert caplog.text.count("ignoring invalid property path=/config/brokers/0") == 1


class Clients:
    """config_changes.ClientConfigs that keeps what it was given."""

    def __init__(self) -> None:
        self.configs: dict[str, Mapping[str, str] | None] = {}

    async def replace(self, configs: Mapping[str, Mapping[str, str] | None]) -> None:
        self.configs = dict(configs)

    async def change(self, path: str, config: Mapping[str, str] | None) -> None:
        self.configs[path] = config


def test_many_users_are_read_some_at_a_time_and_with_one_request_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start with 100,000 users sent 200,000 requests, all of which waited in memory."""
    count = 3 * CONFIGS_READ_TOGETHER

    async def scene(world: World) -> None:
        for number in range(count):
            await world.topics.change_config(f"users/u{number}", {"producer_byte_rate": "5"})
        await world.topics.change_config("users/u1/clients/c", {"consumer_byte_rate": "6"})
        requests: list[str] = []
        waiting = [0, 0]

        def counted(name: str) -> None:
            call = getattr(world.zookeeper, name)

            async def counting(path: str, **options: bool) -> object:
                if not path.startswith(f"{paths.CONFIG}/users/"):
                    return await call(path, **options)
                requests.append(path)
                waiting[0] += 1
                waiting[1] = max(waiting)
                result = await call(path, **options)
                waiting[0] -= 1
                return result

            monkeypatch.setattr(world.zookeeper, name, counting)

        counted("get")
        counted("children")
        again = World(world.loop, {})
        clients = Clients()
        changes = type(again.changes)(0, world.zookeeper, again.configs, (clients,), again.clock, lambda _: None)
        await changes.load()
        assert len(requests) == count + 2
        assert waiting[1] <= CONFIGS_READ_TOGETHER
        assert clients.configs.pop("users/u1/clients/c") == {"consumer_byte_rate": "6"}
        assert clients.configs == {f"users/u{number}": {"producer_byte_rate": "5"} for number in range(count)}

    play(scene)

"""DescribeConfigs: topics, brokers, loggers, version by version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kctl.server.handlers.describe_configs import DESCRIBED_AT_ONCE, DescribeConfigsHandler
from kctl.zookeeper import paths, znodes
from tests.rows import for_rows
from tests.unit.handlers.world import BROKER_ID, World, context, exchange, play

TOPIC, BROKER, LOGGER = 2, 4, 8


async def describe(
    world: World,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> Any:
    handler = DescribeConfigsHandler(BROKER_ID, world.configs, world.metadata, world.watched_configs)
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = (await exchange(handler.handle, request, version)).results
    return result


def by_name(result: Any) -> dict[str, Any]:
    assert ErrorCode(result.error_code) is ErrorCode.NONE, result.error_message
    return {entry.name: entry for entry in result.configs}


def test_version_0_contains_only_a_flag_for_defaults() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"retention.ms": "5"})
        entries = by_name(await describe(world, TOPIC, "a", version=0))
        assert (entries["retention.ms"].value, entries["retention.ms"].is_default) == ("5", False)
        assert (entries["cleanup.policy"].value, entries["cleanup.policy"].is_default) == ("delete", True)

    play(scene)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_later_versions_give_source_and_on_demand_synonyms(version: int) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"segment.bytes": "500"})
        entry = by_name(await describe(world, TOPIC, "a", ["segment.bytes"], version=version))["segment.bytes"]
        assert (entry.config_source, entry.synonyms) == (1, [])
        entry = by_name(await describe(world, TOPIC, "a", ["segment.bytes"], version=version, synonyms=True))
        assert [(synonym.name, synonym.source) for synonym in entry["segment.bytes"].synonyms] == [
            ("segment.bytes", 1),
            ("log.segment.bytes", 4),
            ("log.segment.bytes", 5),
        ]

    play(scene, properties={"log.segment.bytes": "600"})


def test_version_3_gives_types_and_on_demand_documentation() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        entry = by_name(await describe(world, TOPIC, "a", ["retention.ms"]))["retention.ms"]
        assert (entry.config_type, entry.documentation) == (5, None)
        entry = by_name(await describe(world, TOPIC, "a", ["retention.ms"], documentation=True))["retention.ms"]
        assert "deleted" in entry.documentation

    play(scene)


@pytest.mark.parametrize("version", [0, 4])
def test_a_successful_response_has_an_empty_error_message_as_in_kafka(version: int) -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        for resource_type, name in ((TOPIC, "a"), (BROKER, "0"), (BROKER, ""), (LOGGER, "0")):
            assert (await describe(world, resource_type, name, version=version)).error_message == ""

    play(scene)


@pytest.mark.parametrize("keys", [None, []])
def test_without_keys_all_configs_are_described(keys: list[str] | None) -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        assert len(by_name(await describe(world, TOPIC, "a", keys))) == 26
        assert len(by_name(await describe(world, BROKER, "0", keys))) > 200

    play(scene)


def test_a_topic_is_described_as_stored_in_zookeeper() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"flush.ms": "5"})
        await world.zookeeper.set(paths.topic_config("a"), znodes.encode_config({"flush.ms": "6"}))
        assert by_name(await describe(world, TOPIC, "a", ["flush.ms"]))["flush.ms"].value == "6"

    play(scene)


def test_a_topic_is_described_from_the_cache_when_the_zookeeper_session_is_lost() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"flush.ms": "5"})
        world.zookeeper.expire()
        assert by_name(await describe(world, TOPIC, "a", ["flush.ms"]))["flush.ms"].value == "5"

    play(scene)


def test_unknown_keys_are_left_out() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        assert list(by_name(await describe(world, TOPIC, "a", ["nope", "flush.ms"]))) == ["flush.ms"]

    play(scene)


def test_a_broker_describes_itself_and_hides_secrets() -> None:
    async def scene(world: World) -> None:
        entries = by_name(await describe(world, BROKER, "0", synonyms=True))
        assert entries["broker.id"].read_only
        assert not entries["log.retention.ms"].read_only
        secret = entries["ssl.key.password"]
        assert (secret.value, secret.is_sensitive) == (None, True)
        assert [synonym.value for synonym in secret.synonyms] == [None]

    play(scene, properties={"ssl.key.password": "s3cret"})


def test_the_empty_broker_name_means_the_defaults_for_all() -> None:
    async def scene(world: World) -> None:
        assert by_name(await describe(world, BROKER, "")) == {}
        world.configs.set_dynamic_default({"message.max.bytes": "7"})
        assert {name: (e.value, e.config_source) for name, e in by_name(await describe(world, BROKER, "")).items()} == {
            "message.max.bytes": ("7", 3)
        }

    play(scene)


def test_logger_levels_are_described() -> None:
    async def scene(world: World) -> None:
        entries = by_name(await describe(world, LOGGER, "0"))
        kafkas = {"kafka.controller.KafkaController", "kafka.server.KafkaApis", "kafka.request.logger"}
        assert {"root", "kctl", *kafkas} <= set(entries)
        assert (entries["kctl"].config_source, entries["kctl"].config_type) == (6, 0)
        assert entries["kafka.server.KafkaApis"].value == entries["kctl"].value

    play(scene)


@for_rows(
    "resource_type, name, code",
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (99, "a", ErrorCode.INVALID_REQUEST),
    ],
)
def test_unsupported_resources_are_not_described(resource_type: int, name: str, code: ErrorCode) -> None:
    async def scene(world: World) -> None:
        result = await describe(world, resource_type, name)
        assert (ErrorCode(result.error_code), result.configs) == (code, [])
        assert (result.resource_type, result.resource_name) == (resource_type, name)

    play(scene)


def test_overrides_of_many_topics_are_read_from_zookeeper_side_by_side_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(world: World) -> None:
        names = [f"topic-{number}" for number in range(2 * DESCRIBED_AT_ONCE + 1)]
        for name in names:
            await world.topic(name, overrides={"retention.ms": "5"} if name == names[-1] else {})
        reading = most = 0
        read, names_read = world.watched_configs.read, []

        async def counted(topic: str) -> Mapping[str, str]:
            nonlocal reading, most
            names_read.append(topic)
            reading += 1
            most = max(most, reading)
            found = await read(topic)
            reading -= 1
            return found

        monkeypatch.setattr(world.watched_configs, "read", counted)
        handler = DescribeConfigsHandler(BROKER_ID, world.configs, world.metadata, world.watched_configs)
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names
        ]
        results = (await exchange(handler.handle, DescribeConfigsRequest(resources=resources), 4)).results
        assert most == DESCRIBED_AT_ONCE
        assert [result.resource_name for result in results] == names
        values = [by_name(result)["retention.ms"].value for result in results]
        assert (set(values[:-1]), values[-1]) == ({"604800000"}, "5")
        assert names_read == names

        await world.topics.change_config(f"topics/{names[0]}", {"retention.ms": "6"})
        results = (await exchange(handler.handle, DescribeConfigsRequest(resources=resources), 4)).results
        assert names_read == [*names, names[0]]
        values = [by_name(result)["retention.ms"].value for result in results]
        assert (values[0], set(values[1:-1]), values[-1]) == ("6", {"604800000"}, "5")

    play(scene)


def test_properties_that_topics_share_are_built_once() -> None:
    async def scene(world: World) -> None:
        for name in "abc":
            await world.topic(name, overrides={"retention.ms": "5"} if name == "b" else None)
        handler = DescribeConfigsHandler(BROKER_ID, world.configs, world.metadata, world.watched_configs)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
                for name in "abc"
            ]
        )
        first, with_override, last = (await handler.handle(request, context(4))).results
        assert first.configs is last.configs
        assert by_name(with_override)["retention.ms"].value == "5"
        assert by_name(last)["retention.ms"].value != "5"

    play(scene)

"""AlterConfigs and IncrementalAlterConfigs: the stored and effective properties, and refusals."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.protocol.apis import alter_configs, incremental_alter_configs
from kctl.server.cluster.configs.loggers import KAFKA_LOGGERS, logger_levels
from kctl.server.handlers.alter_configs import AlterConfigsHandler
from kctl.server.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from kctl.server.replication.replica_manager import state_log
from kctl.server.requests.request_log import log as request_log
from kctl.server.security.authorization.access import log as audit_log
from tests.rows import for_rows
from tests.unit.handlers.world import BROKER_ID, World, exchange, play

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
ROOT = Path(__file__).parents[3]

Resource = tuple[int, str]


async def replace(
    world: World,
    *resources: tuple[Resource, dict[str, str | None]],
    validate_only: bool = False,
    version: int = 2,
) -> dict[Resource, ErrorCode]:
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs.items()],
            )
            for (resource_type, name), configs in resources
        ],
        validate_only=validate_only,
    )
    return codes(await exchange(AlterConfigsHandler(world.resources).handle, request, version))


async def alter(
    world: World,
    resource: Resource,
    *operations: tuple[int, str, str | None],
    validate_only: bool = False,
    version: int = 1,
) -> ErrorCode:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
                    for operation, name, value in operations
                ],
            )
        ],
        validate_only=validate_only,
    )
    handler = IncrementalAlterConfigsHandler(BROKER_ID, world.resources, lambda: None)
    return codes(await exchange(handler.handle, request, version))[resource]


def codes(response: Any) -> dict[Resource, ErrorCode]:
    return {
        (response.resource_type, response.resource_name): ErrorCode(response.error_code)
        for response in response.responses
    }


@pytest.mark.parametrize("version", range(3))
def test_replacing_takes_away_what_is_not_given(version: int) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"retention.ms": "5", "segment.bytes": "100"})
        outcome = await replace(world, ((TOPIC, "a"), {"retention.ms": "6"}), version=version)
        assert outcome == {(TOPIC, "a"): ErrorCode.NONE}
        assert await world.topics.config("topics/a") == {"retention.ms": "6"}
        await world.until(lambda: world.configs.topic("a").retention_ms == 6)
        assert world.configs.topic("a").segment_bytes == 1 << 30

    play(scene)


@pytest.mark.parametrize("version", range(2))
def test_single_overrides_are_set_and_deleted(version: int) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"retention.ms": "5", "segment.bytes": "100"})
        operations = ((SET, "flush.ms", "9"), (DELETE, "retention.ms", None), (DELETE, "preallocate", None))
        assert await alter(world, (TOPIC, "a"), *operations, version=version) is ErrorCode.NONE
        assert await world.topics.config("topics/a") == {"segment.bytes": "100", "flush.ms": "9"}

    play(scene)


def test_lists_are_appended_to_and_subtracted_from() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        policy = "cleanup.policy"
        assert await alter(world, (TOPIC, "a"), (APPEND, policy, "compact")) is ErrorCode.NONE
        assert await world.topics.config("topics/a") == {policy: "delete,compact"}
        assert await alter(world, (TOPIC, "a"), (APPEND, policy, "compact,delete")) is ErrorCode.NONE
        assert await world.topics.config("topics/a") == {policy: "delete,compact"}
        assert await alter(world, (TOPIC, "a"), (SUBTRACT, policy, "delete")) is ErrorCode.NONE
        assert await world.topics.config("topics/a") == {policy: "compact"}
        assert await alter(world, (TOPIC, "a"), (SUBTRACT, policy, "compact")) is ErrorCode.NONE
        assert await world.topics.config("topics/a") == {policy: ""}

    play(scene)


@for_rows(
    "operation, code",
    [
        ((SET, "retention.ms", "soon"), ErrorCode.INVALID_REQUEST),
        ((SET, "no.such", "1"), ErrorCode.INVALID_CONFIG),
        ((SET, "retention.ms", None), ErrorCode.INVALID_REQUEST),
        ((APPEND, "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        ((SUBTRACT, "no.such", "1"), ErrorCode.INVALID_CONFIG),
        ((9, "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_topic_configs_are_refused(operation: tuple[int, str, str | None], code: ErrorCode) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", overrides={"flush.ms": "1"})
        assert await alter(world, (TOPIC, "a"), operation) is code
        assert await world.topics.config("topics/a") == {"flush.ms": "1"}

    play(scene)


def test_a_property_may_be_altered_once() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        operations = ((SET, "flush.ms", "1"), (DELETE, "flush.ms", None))
        assert await alter(world, (TOPIC, "a"), *operations) is ErrorCode.INVALID_REQUEST

    play(scene)


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((TOPIC, "nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((BROKER, "1"), ErrorCode.INVALID_REQUEST),
        ((BROKER, "x"), ErrorCode.INVALID_REQUEST),
        ((99, "a"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_unsupported_config_resources_are_refused(resource: Resource, code: ErrorCode) -> None:
    async def scene(world: World) -> None:
        assert await alter(world, resource, (SET, "flush.ms", "1")) is code
        assert await replace(world, (resource, {"flush.ms": "1"})) == {resource: code}

    play(scene)


def test_an_empty_topic_name_is_refused_as_by_kafka() -> None:
    async def scene(world: World) -> None:
        assert await alter(world, (TOPIC, ""), (SET, "flush.ms", "1")) is ErrorCode.INVALID_REQUEST
        outcome = await replace(world, ((TOPIC, ""), {"flush.ms": "1"}))
        assert outcome == {(TOPIC, ""): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    play(scene)


def test_a_null_value_is_refused_before_the_topic_is_looked_up() -> None:
    async def scene(world: World) -> None:
        assert await alter(world, (TOPIC, "nope"), (SET, "flush.ms", None)) is ErrorCode.INVALID_REQUEST
        assert await alter(world, (TOPIC, "nope"), (DELETE, "flush.ms", None)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scene)


def test_loggers_are_not_replaced() -> None:
    async def scene(world: World) -> None:
        assert await replace(world, ((LOGGER, "0"), {"kctl": "INFO"})) == {(LOGGER, "0"): ErrorCode.INVALID_REQUEST}

    play(scene)


def test_each_resource_succeeds_or_fails_by_itself_and_none_twice() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        await world.topic("b")
        good, bad = (TOPIC, "a"), (TOPIC, "b")
        outcome = await replace(world, (good, {"flush.ms": "1"}), (bad, {"flush.ms": None}))
        assert outcome == {good: ErrorCode.NONE, bad: ErrorCode.INVALID_REQUEST}
        assert await replace(world, (good, {}), (good, {})) == {good: ErrorCode.INVALID_REQUEST}

    play(scene)


def test_validate_only_changes_nothing() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        assert await alter(world, (TOPIC, "a"), (SET, "flush.ms", "1"), validate_only=True) is ErrorCode.NONE
        assert await replace(world, ((TOPIC, "a"), {"flush.ms": "1"}), validate_only=True) == {
            (TOPIC, "a"): ErrorCode.NONE
        }
        assert await world.topics.config("topics/a") == {}

    play(scene)


def test_a_broker_changes_while_it_runs() -> None:
    async def scene(world: World) -> None:
        assert await alter(world, (BROKER, "0"), (SET, "message.max.bytes", "7")) is ErrorCode.NONE
        assert await alter(world, (BROKER, ""), (SET, "log.retention.ms", "8")) is ErrorCode.NONE
        await world.until(lambda: world.configs.current.retention_ms == 8)
        assert world.configs.current.message_max_bytes == 7
        assert await world.topics.config("brokers/<default>") == {"log.retention.ms": "8"}
        assert await alter(world, (BROKER, "0"), (DELETE, "message.max.bytes", None)) is ErrorCode.NONE
        await world.until(lambda: world.configs.current.message_max_bytes == 1048588)

    play(scene)


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("0", (SET, "broker.id", "5")),
        ("0", (SET, "message.max.bytes", "many")),
        ("", (SET, "listeners", "PLAINTEXT://:1")),
    ],
)
def test_read_only_broker_configs_are_refused(name: str, operation: tuple[int, str, str]) -> None:
    async def scene(world: World) -> None:
        assert await alter(world, (BROKER, name), operation) is ErrorCode.INVALID_REQUEST

    play(scene)


def test_the_level_of_a_logger_is_set_and_reset() -> None:
    logger = logging.getLogger("kctl.server.handlers.example")

    async def scene(world: World) -> None:
        assert await alter(world, (LOGGER, "0"), (SET, logger.name, "ERROR")) is ErrorCode.NONE
        assert logger.level == logging.ERROR
        assert await alter(world, (LOGGER, "0"), (DELETE, logger.name, None)) is ErrorCode.NONE
        assert logger.level == logging.NOTSET

    play(scene)


def test_a_level_under_kafkas_logger_name_is_set_and_reset() -> None:
    ours = [logging.getLogger(name) for name in KAFKA_LOGGERS["kafka.log.LogCleaner"]]
    assert len(ours) > 1

    async def scene(world: World) -> None:
        assert await alter(world, (LOGGER, "0"), (SET, "kafka.log.LogCleaner", "DEBUG")) is ErrorCode.NONE
        assert [logger.level for logger in ours] == [logging.DEBUG] * len(ours)
        assert logger_levels()["kafka.log.LogCleaner"] == "DEBUG"
        assert await alter(world, (LOGGER, "0"), (DELETE, "kafka.log.LogCleaner", None)) is ErrorCode.NONE
        assert [logger.level for logger in ours] == [logging.NOTSET] * len(ours)

    play(scene)


@for_rows("name", sorted({ours for names in KAFKA_LOGGERS.values() for ours in names}))
def test_each_kafka_logger_name_maps_to_an_existing_logger(name: str) -> None:
    """Renaming a module renames its logger; one without log lines would have no effect."""
    of_their_own = {state_log.name, audit_log.name, request_log.name}
    if name in of_their_own:
        return
    path = ROOT / name.replace(".", "/")
    modules = [*path.rglob("*.py")] if path.is_dir() else [path.with_suffix(".py")]
    assert any("logging.getLogger(__name__)" in module.read_text() for module in modules)


@pytest.mark.parametrize(
    ("name", "operation", "code"),
    [
        ("0", (SET, "no.such.logger", "INFO"), ErrorCode.INVALID_REQUEST),
        ("0", (SET, "kctl", "LOUD"), ErrorCode.INVALID_REQUEST),
        ("0", (APPEND, "kctl", "INFO"), ErrorCode.INVALID_REQUEST),
        ("0", (DELETE, "root", None), ErrorCode.INVALID_REQUEST),
        ("1", (SET, "kctl", "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_logger_levels_are_refused(name: str, operation: tuple[int, str, str | None], code: ErrorCode) -> None:
    async def scene(world: World) -> None:
        before = logging.getLogger("kctl").level
        assert await alter(world, (LOGGER, name), operation) is code
        assert logging.getLogger("kctl").level == before

    play(scene)

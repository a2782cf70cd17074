"""AlterClientQuotas and DescribeClientQuotas: storage and filters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kctl.errors import ErrorCode
from kctl.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from kctl.protocol.apis.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from kctl.server.handlers.alter_client_quotas import AlterClientQuotasHandler
from kctl.server.handlers.describe_client_quotas import DescribeClientQuotasHandler
from kctl.zookeeper import paths, znodes
from tests.rows import for_rows
from tests.unit.handlers.world import World, exchange, play

USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = range(3)

Entity = Sequence[tuple[str, str | None]]


async def only_numbers(name: str) -> bool:
    """A resolver without host names."""
    return name.replace(".", "").isdigit()


async def alter(
    world: World, entity: Entity, quotas: dict[str, float | None], *, validate_only: bool = False, version: int = 1
) -> ErrorCode:
    request = AlterClientQuotasRequest(
        entries=[
            RequestEntryData(
                entity=[RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
            )
        ],
        validate_only=validate_only,
    )
    response = await exchange(AlterClientQuotasHandler(world.topics, only_numbers).handle, request, version)
    (entry,) = response.entries
    assert sorted((part.entity_type, part.entity_name or "") for part in entry.entity) == sorted(
        (kind, name or "") for kind, name in dict(entity).items()
    )
    return ErrorCode(entry.error_code)


async def describe(
    world: World, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    entries = (await response_to(world, *components, strict=strict, version=version)).entries
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in entries
    }


async def response_to(
    world: World, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )
    return await exchange(DescribeClientQuotasHandler(world.topics).handle, request, version)


async def stored(world: World, entity_path: str) -> dict[str, str]:
    path = paths.config_entity(entity_path)
    data, _ = await world.zookeeper.get(path)
    return znodes.decode_config(path, data)


@for_rows(
    "entity, path",
    [
        ([(USER, "alice")], "users/alice"),
        ([(USER, None)], "users/<default>"),
        ([(USER, "<default>")], "users/%3Cdefault%3E"),
        ([(CLIENT, "app 1/~*")], "clients/app%201%2F%7E%2A"),
        ([(CLIENT, "app"), (USER, "alice")], "users/alice/clients/app"),
        ([(USER, None), (CLIENT, None)], "users/<default>/clients/<default>"),
    ],
)
def test_quotas_are_stored_and_announced_where_kafka_keeps_them(entity: Entity, path: str) -> None:
    async def scene(world: World) -> None:
        assert await alter(world, entity, {"producer_byte_rate": 1e7, "request_percentage": 1e-5}) is ErrorCode.NONE
        assert await stored(world, path) == {"producer_byte_rate": "10000000", "request_percentage": "1.0E-5"}
        (change,) = await world.zookeeper.children(paths.CONFIG_CHANGES)
        data, _ = await world.zookeeper.get(f"{paths.CONFIG_CHANGES}/{change}")
        assert znodes.decode_config_change(change, data) == path
        expected = {"producer_byte_rate": 1e7, "request_percentage": 1e-5}
        assert list((await describe(world)).values()) == [expected]

    play(scene)


def test_an_address_has_quotas_of_its_own_kind() -> None:
    async def scene(world: World) -> None:
        assert await alter(world, [(IP, "10.0.0.1")], {"connection_creation_rate": 5.0}) is ErrorCode.NONE
        assert await stored(world, "ips/10.0.0.1") == {"connection_creation_rate": "5"}
        for entity, key in (
            ([(IP, "10.0.0.1")], "producer_byte_rate"),
            ([(USER, "alice")], "connection_creation_rate"),
            ([(IP, "nowhere.invalid")], "connection_creation_rate"),
            ([(IP, "10.0.0.1"), (USER, "alice")], "connection_creation_rate"),
        ):
            assert await alter(world, entity, {key: 1.0}) is ErrorCode.INVALID_REQUEST

    play(scene)


def test_names_of_hosts_are_looked_up_one_at_a_time() -> None:
    """Each lookup occupies a thread, and lookups of unknown names take long."""
    running = most = 0

    async def resolves(_name: str) -> bool:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)  # Virtual time.
        running -= 1
        return True

    async def scene(world: World) -> None:
        handler = AlterClientQuotasHandler(world.topics, resolves)
        entity = [RequestEntityData(entity_type=IP, entity_name="host")]
        op = OpData(key="connection_creation_rate", value=1.0, remove=False)
        request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=[op])], validate_only=True)
        await asyncio.gather(*(exchange(handler.handle, request, 1) for _ in range(5)))
        assert (running, most) == (0, 1)

    play(scene)


def test_validate_only_stores_nothing() -> None:
    async def scene(world: World) -> None:
        assert await alter(world, [(USER, "a")], {"producer_byte_rate": 1.0}, validate_only=True) is ErrorCode.NONE
        code = await alter(world, [(USER, "a")], {"producer_byte_rate": 1.5}, validate_only=True)
        assert code is ErrorCode.INVALID_REQUEST
        assert await world.topics.config_entities("users") == []

    play(scene)


def test_other_configs_of_a_user_are_kept() -> None:
    async def scene(world: World) -> None:
        await world.topics.change_config("users/alice", {"SCRAM-SHA-256": "secret", "producer_byte_rate": "1"})
        quotas = {"producer_byte_rate": None, "SCRAM-SHA-256": None, "consumer_byte_rate": 2.0}
        assert await alter(world, [(USER, "alice")], quotas) is ErrorCode.NONE
        assert await stored(world, "users/alice") == {"SCRAM-SHA-256": "secret", "consumer_byte_rate": "2"}

    play(scene)


def test_concurrent_quota_changes_are_all_applied() -> None:
    async def scene(world: World) -> None:
        keys = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]
        codes = await asyncio.gather(*(alter(world, [(USER, "alice")], {key: 1.0}) for key in keys))
        assert set(codes) == {ErrorCode.NONE}
        assert (await stored(world, "users/alice")).keys() == set(keys)

    play(scene)


@for_rows(
    "components, strict, found",
    [
        ([], False, {"u", "u0", "c", "uc", "uc0", "i"}),
        ([], True, set()),
        ([(USER, ANY, None)], False, {"u", "u0", "uc", "uc0"}),
        ([(USER, ANY, None)], True, {"u", "u0"}),
        ([(USER, DEFAULT, None)], False, {"u0"}),
        ([(USER, EXACT, "u")], False, {"u", "uc", "uc0"}),
        ([(CLIENT, ANY, None)], False, {"c", "uc", "uc0"}),
        ([(CLIENT, DEFAULT, None)], False, {"uc0"}),
        ([(CLIENT, EXACT, "c")], True, {"c"}),
        ([(USER, EXACT, "u"), (CLIENT, EXACT, "c")], True, {"uc"}),
        ([(IP, ANY, None)], True, {"i"}),
        ([(IP, EXACT, "10.0.0.2")], False, set()),
    ],
)
def test_a_filter_finds_entities_of_its_types_and_strictly_no_others(
    components: list[tuple[str, int, str | None]], strict: bool, found: set[str]
) -> None:
    entities: dict[str, Entity] = {
        "u": [(USER, "u")],
        "u0": [(USER, None)],
        "c": [(CLIENT, "c")],
        "uc": [(USER, "u"), (CLIENT, "c")],
        "uc0": [(USER, "u"), (CLIENT, None)],
        "i": [(IP, "10.0.0.1")],
    }

    async def scene(world: World) -> None:
        for entity in entities.values():
            key = "connection_creation_rate" if (IP, "10.0.0.1") in entity else "producer_byte_rate"
            assert await alter(world, entity, {key: 1.0}) is ErrorCode.NONE
        response = await describe(world, *components, strict=strict)
        assert response.keys() == {tuple(entities[name]) for name in found}

    play(scene)


@for_rows(
    "components, code",
    [
        ([(USER, ANY, None), (USER, EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([(USER, ANY, None), (IP, ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 3, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_an_invalid_filter_is_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    async def scene(world: World) -> None:
        response = await response_to(world, *components)
        assert (response.error_code, response.entries) == (code, None)
        assert response.error_message

    play(scene)


def test_without_zookeeper_describing_fails_as_a_whole() -> None:
    async def scene(world: World) -> None:
        world.zookeeper.expire()
        response = await response_to(world)
        assert (response.error_code, response.entries) == (ErrorCode.NOT_CONTROLLER, None)

    play(scene)

"""AlterUserScramCredentials and DescribeUserScramCredentials: storage, permissions and refusals."""

from __future__ import annotations

import asyncio

from kctl.errors import ErrorCode
from kctl.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kctl.protocol.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kctl.server.handlers.alter_user_scram_credentials import AlterUserScramCredentialsHandler
from kctl.server.handlers.describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from tests.unit.handlers.world import World, exchange, play

SHA_256, SHA_512 = 1, 2


async def set_credential(
    world: World, user: str, mechanism: int = SHA_256, *, iterations: int = 4096, password: bytes = b"salted"
) -> ErrorCode:
    upsertion = ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=password
    )
    return await alter(world, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))


async def delete_credential(world: World, user: str, mechanism: int = SHA_256) -> ErrorCode:
    deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
    return await alter(world, AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))


async def alter(world: World, request: AlterUserScramCredentialsRequest) -> ErrorCode:
    handler = AlterUserScramCredentialsHandler(world.topics, is_controller=world.is_controller)
    (result,) = (await exchange(handler.handle, request, 0)).results
    return ErrorCode(result.error_code)


async def describe(world: World, *users: str) -> dict[str, tuple[ErrorCode, dict[int, int]]]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])
    response = await exchange(DescribeUserScramCredentialsHandler(world.topics).handle, request, 0)
    assert response.error_code == ErrorCode.NONE
    return {
        result.user: (
            ErrorCode(result.error_code),
            {info.mechanism: info.iterations for info in result.credential_infos},
        )
        for result in response.results
    }


def test_a_credential_is_stored_as_apache_kafka_stores_it() -> None:
    async def scene(world: World) -> None:
        assert await set_credential(world, "sam/1", SHA_256, iterations=5000, password=b"pw3") is ErrorCode.NONE
        assert await world.topics.config("users/sam%2F1") == {
            "SCRAM-SHA-256": "salt=c2FsdA==,stored_key=8kVIXwwFVnbjLILo/nb5kvdqfXNUV8u2doQwNT30JRY=,"
            "server_key=9aihkaV8dU5kvvei7La/oyGBshdC/ozJ+K/BRFAi0TM=,iterations=5000"
        }

    play(scene)


def test_credentials_are_described_by_user_name_without_secrets() -> None:
    async def scene(world: World) -> None:
        await set_credential(world, "ü/1")
        await set_credential(world, "ü/1", SHA_512, iterations=16_384)
        await world.topics.change_config("users/bob", {"producer_byte_rate": "1"})
        expected = {"ü/1": (ErrorCode.NONE, {SHA_256: 4096, SHA_512: 16_384})}
        assert await describe(world) == expected
        assert await describe(world, "ü/1", "bob", "bob", "") == {
            **expected,
            "bob": (ErrorCode.DUPLICATE_RESOURCE, {}),
            "": (ErrorCode.RESOURCE_NOT_FOUND, {}),
        }
        assert await describe(world, "bob") == {"bob": (ErrorCode.RESOURCE_NOT_FOUND, {})}

    play(scene)


def test_a_deleted_credential_is_gone_and_cannot_be_deleted_again() -> None:
    async def scene(world: World) -> None:
        await set_credential(world, "sam")
        assert await delete_credential(world, "sam", SHA_512) is ErrorCode.RESOURCE_NOT_FOUND
        assert await delete_credential(world, "sam") is ErrorCode.NONE
        assert await delete_credential(world, "sam") is ErrorCode.RESOURCE_NOT_FOUND
        assert await world.topics.config("users/sam") == {}

    play(scene)


def test_unacceptable_credentials_are_refused() -> None:
    async def scene(world: World) -> None:
        assert await set_credential(world, "sam", 3) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert await set_credential(world, "") is ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert await set_credential(world, "sam", password=b"") is ErrorCode.UNACCEPTABLE_CREDENTIAL
        for iterations in (-1, 4095, 16_385):
            assert await set_credential(world, "sam", iterations=iterations) is ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert await world.topics.config_entities("users") == []

    play(scene)


def test_only_the_controller_alters_credentials() -> None:
    async def scene(world: World) -> None:
        world.is_active = False
        assert await set_credential(world, "sam") is ErrorCode.NOT_CONTROLLER
        assert await world.topics.config_entities("users") == []

    play(scene)


def test_concurrent_credential_changes_are_all_stored() -> None:
    async def scene(world: World) -> None:
        await world.topics.change_config("users/sam", {})
        await asyncio.gather(set_credential(world, "sam"), set_credential(world, "sam", SHA_512))
        assert await describe(world, "sam") == {"sam": (ErrorCode.NONE, {SHA_256: 4096, SHA_512: 4096})}

    play(scene)


def test_a_stored_credential_that_cannot_be_read_is_not_shown() -> None:
    async def scene(world: World) -> None:
        await world.topics.change_config("users/sam", {"SCRAM-SHA-256": "stored_key=secret"})
        request = DescribeUserScramCredentialsRequest(users=[UserName(name="sam")])
        response = await exchange(DescribeUserScramCredentialsHandler(world.topics).handle, request, 0)
        (result,) = response.results
        assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "secret" not in result.error_message

    play(scene)

"""DeleteTopics: by name and by id, refusals, and timeouts."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kctl.server.handlers.delete_topics import DeleteTopicsHandler
from kctl.zookeeper import paths
from tests.rows import for_rows
from tests.unit.handlers.world import World, exchange, play

SOME_ID = UUID("12345678-1234-5678-1234-567812345678")


async def delete(
    world: World, *names: str, version: int = 5, timeout_ms: int = 5000, topics: list[DeleteTopicState] | None = None
) -> Any:
    handler = DeleteTopicsHandler(
        world.topics, world.metadata, world.waits, world.configs, is_controller=world.is_controller
    )
    if version >= 6:
        states = topics or [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
        request = DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    return await exchange(handler.handle, request, version)


def codes(response: Any) -> dict[str | None, ErrorCode]:
    return {result.name: ErrorCode(result.error_code) for result in response.responses}


@for_rows("version", range(7))
def test_every_version_deletes_and_waits_until_the_topic_is_gone(version: int) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0,), (0,))
        response = await delete(world, "a", "nope", version=version)
        assert codes(response) == {"a": ErrorCode.NONE, "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert world.metadata.partitions("a") is None

    play(scene)


def test_topics_are_deleted_by_id() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        topic_id = world.metadata.topic_id("a")
        requested = [DeleteTopicState(name=None, topic_id=topic_id), DeleteTopicState(name=None, topic_id=SOME_ID)]
        response = await delete(world, version=6, topics=requested)
        known, unknown = response.responses
        assert (known.name, known.topic_id, ErrorCode(known.error_code)) == ("a", topic_id, ErrorCode.NONE)
        assert (unknown.name, ErrorCode(unknown.error_code)) == (None, ErrorCode.UNKNOWN_TOPIC_ID)

    play(scene)


def test_a_name_together_with_an_id_is_refused() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        requested = [DeleteTopicState(name="a", topic_id=SOME_ID), DeleteTopicState(name="a", topic_id=ZERO_UUID)]
        response = await delete(world, version=6, topics=requested)
        assert [result.error_code for result in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
        assert world.metadata.partitions("a") is not None

    play(scene)


def test_neither_name_nor_id_is_refused() -> None:
    async def scene(world: World) -> None:
        response = await delete(world, version=6, topics=[DeleteTopicState(name=None, topic_id=ZERO_UUID)])
        assert codes(response) == {None: ErrorCode.INVALID_REQUEST}

    play(scene)


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_may_be_disabled(version: int, code: ErrorCode) -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        assert codes(await delete(world, "a", version=version)) == {"a": code}

    play(scene, properties={"delete.topic.enable": "false"})


def test_a_slow_deletion_times_out_and_completes_later() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        world.is_silent = True
        started_s = world.loop.time()
        assert codes(await delete(world, "a", timeout_ms=2000)) == {"a": ErrorCode.REQUEST_TIMED_OUT}
        assert world.loop.time() - started_s == pytest.approx(2, abs=0.1)
        assert await world.zookeeper.exists(paths.topic("a")) is None

    play(scene)


def test_with_a_timeout_of_zero_the_deletion_starts_and_the_request_times_out() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        assert codes(await delete(world, "a", timeout_ms=0)) == {"a": ErrorCode.REQUEST_TIMED_OUT}
        await world.until(lambda: world.metadata.partitions("a") is None)

    play(scene)


def test_only_the_controller_deletes() -> None:
    async def scene(world: World) -> None:
        world.is_active = False
        assert codes(await delete(world, "a")) == {"a": ErrorCode.NOT_CONTROLLER}

    play(scene)

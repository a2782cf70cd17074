"""CreatePartitions: added partitions, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kctl.server.handlers.create_partitions import CreatePartitionsHandler
from kctl.zookeeper import paths, znodes
from tests.rows import for_rows
from tests.unit.handlers.world import World, exchange, play


def topic(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = (
        None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=assignment) for assignment in assignments]
    )
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


async def grow(
    world: World,
    *topics: CreatePartitionsTopic,
    version: int = 3,
    timeout_ms: int = 5000,
    validate_only: bool = False,
) -> Any:
    handler = CreatePartitionsHandler(
        world.topics, world.zookeeper, world.metadata, world.waits, is_controller=world.is_controller
    )
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    return await exchange(handler.handle, request, version)


def codes(response: Any) -> dict[str, ErrorCode]:
    return {result.name: ErrorCode(result.error_code) for result in response.results}


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions_with_leaders(version: int) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1))
        assert codes(await grow(world, topic("a", 3), version=version)) == {"a": ErrorCode.NONE}
        assert world.metadata.has_leaders("a", 3)
        assert (await world.topics.assignment("a")).replicas == {0: (0, 1), 1: (1, 2), 2: (2, 0)}

    play(scene, others=2)


def test_the_topic_keeps_its_id() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        before = world.metadata.topic_id("a")
        await grow(world, topic("a", 2))
        assert (await world.topics.assignment("a")).topic_id == before

    play(scene)


def test_replicas_may_be_given() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1))
        assert codes(await grow(world, topic("a", 3, [[1, 2], [2, 1]]))) == {"a": ErrorCode.NONE}
        assert (await world.topics.assignment("a")).replicas == {0: (0, 1), 1: (1, 2), 2: (2, 1)}

    play(scene, others=2)


@for_rows(
    "requested, code",
    [
        (topic("nope", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic("a", 2), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 1), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, [[0, 1], [1, 0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, [[0, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, [[0, 0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, [[0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refused_requests_change_nothing(requested: CreatePartitionsTopic, code: ErrorCode) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1), (1, 0))
        assert codes(await grow(world, requested)) == {requested.name: code}
        assert len((await world.topics.assignment("a")).replicas) == 2

    play(scene, others=1)


def test_partitions_are_not_added_to_a_topic_being_deleted() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        await world.zookeeper.create(paths.delete_topic("a"), None)
        assert codes(await grow(world, topic("a", 2))) == {"a": ErrorCode.INVALID_TOPIC_EXCEPTION}

    play(scene)


def test_partitions_are_not_added_to_a_topic_being_reassigned() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0,))
        znode = znodes.TopicAssignment({0: (0, 1)}, world.metadata.topic_id("a"), {0: (1,)}, {})
        await world.zookeeper.set(paths.topic("a"), znodes.encode_topic(znode))
        assert codes(await grow(world, topic("a", 2))) == {"a": ErrorCode.REASSIGNMENT_IN_PROGRESS}

    play(scene, others=1)


def test_validate_only_and_names_given_twice() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        await world.topic("b")
        response = await grow(world, topic("a", 2), topic("b", 2), topic("b", 3), validate_only=True)
        assert codes(response) == {"a": ErrorCode.NONE, "b": ErrorCode.INVALID_REQUEST}
        assert world.metadata.partition_count("a") == 1

    play(scene)


def test_with_a_timeout_of_zero_partitions_are_added_and_the_request_times_out() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        assert codes(await grow(world, topic("a", 2), timeout_ms=0)) == {"a": ErrorCode.REQUEST_TIMED_OUT}
        await world.until(lambda: world.metadata.has_leaders("a", 2))

    play(scene)


def test_only_the_controller_adds() -> None:
    async def scene(world: World) -> None:
        world.is_active = False
        assert codes(await grow(world, topic("a", 2))) == {"a": ErrorCode.NOT_CONTROLLER}

    play(scene)

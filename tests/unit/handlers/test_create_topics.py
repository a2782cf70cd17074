"""CreateTopics: created topics, refusals with their codes, and timeouts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kctl.server.handlers.create_topics import CreateTopicsHandler
from kctl.zookeeper import paths
from tests.rows import for_rows
from tests.unit.handlers.world import World, exchange, play


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignment: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=brokers)
            for partition, brokers in (assignment or {}).items()
        ],
        configs=[CreatableTopicConfig(name=config.replace("_", "."), value=value) for config, value in configs.items()],
    )


def handler_of(world: World) -> CreateTopicsHandler:
    return CreateTopicsHandler(
        world.topics,
        world.deletions,
        world.metadata,
        world.waits,
        world.configs,
        world.random,
        is_controller=world.is_controller,
        policies=world.policies,
    )


async def create(
    world: World,
    *topics: CreatableTopic,
    version: int = 7,
    timeout_ms: int = 5000,
    validate_only: bool = False,
    handler: CreateTopicsHandler | None = None,
) -> Any:
    handler = handler or handler_of(world)
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    return await exchange(handler.handle, request, version)


def codes(response: Any) -> dict[str, ErrorCode]:
    return {result.name: ErrorCode(result.error_code) for result in response.topics}


def test_the_response_is_sent_when_all_partitions_have_leaders_and_describes_the_topic() -> None:
    async def scene(world: World) -> None:
        response = await create(world, topic("orders", 6, 2, retention_ms="5"))
        (result,) = response.topics
        assert ErrorCode(result.error_code) is ErrorCode.NONE
        assert (result.num_partitions, result.replication_factor) == (6, 2)
        assert result.topic_id == world.metadata.topic_id("orders") != ZERO_UUID
        assert world.metadata.has_leaders("orders", 6)
        configs = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
        assert configs["retention.ms"] == ("5", 1)
        assert configs["cleanup.policy"] == ("delete", 5)
        assert await world.topics.config("topics/orders") == {"retention.ms": "5"}
        assert world.configs.topic("orders").retention_ms == 5

    play(scene, others=2)


@for_rows("version", range(8))
def test_every_version_creates(version: int) -> None:
    async def scene(world: World) -> None:
        response = await create(world, topic("a", 2), version=version)
        assert codes(response) == {"a": ErrorCode.NONE}
        assert world.metadata.partition_count("a") == 2

    play(scene)


def test_missing_counts_default_to_the_brokers_configuration() -> None:
    async def scene(world: World) -> None:
        await create(world, topic("a", -1, -1))
        assert world.metadata.partition_count("a") == 3
        assert all(len(info.replicas) == 2 for info in (world.metadata.partitions("a") or {}).values())

    play(scene, properties={"num.partitions": "3", "default.replication.factor": "2"}, others=1)


def test_a_given_assignment_is_taken_even_with_brokers_that_do_not_exist() -> None:
    async def scene(world: World) -> None:
        response = await create(world, topic("a", assignment={0: [0, 7], 1: [0, 8]}))
        assert codes(response) == {"a": ErrorCode.NONE}
        assert (await world.topics.assignment("a")).replicas == {0: (0, 7), 1: (0, 8)}

    play(scene)


def test_validate_only_writes_nothing() -> None:
    async def scene(world: World) -> None:
        response = await create(world, topic("a", 4), topic("a.b", 0), validate_only=True)
        assert codes(response) == {"a": ErrorCode.NONE, "a.b": ErrorCode.INVALID_PARTITIONS}
        assert response.topics[0].num_partitions == 4
        assert await world.zookeeper.exists(paths.topic("a")) is None

    play(scene)


@for_rows(
    "requested, code",
    [
        (topic("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("a", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", retention_ms=None), ErrorCode.INVALID_REQUEST),
        (topic("a", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("a", no_such="1"), ErrorCode.INVALID_CONFIG),
        (topic("a", assignment={0: [0], 2: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", assignment={0: [0], 1: [0, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", assignment={0: [0, 0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", assignment={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@pytest.mark.long
def test_refused_topics_are_not_written(requested: CreatableTopic, code: ErrorCode) -> None:
    async def scene(world: World) -> None:
        await world.topic("taken")
        await world.topic("with.dot")
        response = await create(world, requested, topic("good"))
        assert codes(response) == {requested.name: code, "good": ErrorCode.NONE}
        assert sorted(await world.zookeeper.children(paths.TOPICS)) == ["good", "taken", "with.dot"]
        if code is not ErrorCode.INVALID_TOPIC_EXCEPTION:
            assert response.topics[0].error_message

    play(scene, others=1)


def test_numbers_and_an_assignment_exclude_each_other() -> None:
    async def scene(world: World) -> None:
        requested = topic("a", assignment={0: [0]})
        requested.num_partitions = 1
        assert codes(await create(world, requested)) == {"a": ErrorCode.INVALID_REQUEST}

    play(scene)


def test_a_name_given_twice_is_refused_both_times() -> None:
    async def scene(world: World) -> None:
        response = await create(world, topic("a"), topic("a", 2), topic("b"))
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", ErrorCode.INVALID_REQUEST),
            ("a", ErrorCode.INVALID_REQUEST),
            ("b", ErrorCode.NONE),
        ]

    play(scene)


def test_names_that_collide_within_one_request() -> None:
    async def scene(world: World) -> None:
        response = await create(world, topic("a.b"), topic("a_b"))
        assert codes(response) == {"a.b": ErrorCode.NONE, "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}

    play(scene)


def test_without_leaders_in_time_the_topic_exists_but_the_request_timed_out() -> None:
    async def scene(world: World) -> None:
        world.is_silent = True
        started_s = world.loop.time()
        response = await create(world, topic("a"), timeout_ms=3000)
        assert codes(response) == {"a": ErrorCode.REQUEST_TIMED_OUT}
        assert world.loop.time() - started_s == pytest.approx(3, abs=0.1)
        assert await world.zookeeper.exists(paths.topic("a")) is not None

    play(scene)


def test_with_a_timeout_of_zero_the_topic_is_created_and_the_request_times_out() -> None:
    async def scene(world: World) -> None:
        assert codes(await create(world, topic("a"), timeout_ms=0)) == {"a": ErrorCode.REQUEST_TIMED_OUT}
        await world.until(lambda: world.metadata.has_leaders("a", 1))

    play(scene)


def test_two_requests_for_one_topic_create_the_first_one() -> None:
    async def scene(world: World) -> None:
        handler = handler_of(world)
        first, second = await asyncio.gather(
            create(world, topic("a", flush_ms="1"), handler=handler),
            create(world, topic("a", flush_ms="2"), handler=handler),
        )
        assert (codes(first)["a"], codes(second)["a"]) == (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert await world.topics.config("topics/a") == {"flush.ms": "1"}

    play(scene)


def test_a_topic_that_is_created_in_two_ways_at_once_exists_afterwards() -> None:
    async def scene(world: World) -> None:
        responses = await asyncio.gather(create(world, topic("a")), create(world, topic("a")))
        assert sorted(codes(response)["a"] for response in responses) == [
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
        ]

    play(scene)


def test_only_the_controller_creates() -> None:
    async def scene(world: World) -> None:
        world.is_active = False
        assert codes(await create(world, topic("a"), version=0)) == {"a": ErrorCode.NOT_CONTROLLER}

    play(scene)


def test_racks_on_some_brokers_only_are_an_error() -> None:
    async def scene(world: World) -> None:
        world.metadata.brokers[0] = type(world.metadata.brokers[0])(0, world.metadata.brokers[0].endpoints, "rack")
        assert codes(await create(world, topic("a"))) == {"a": ErrorCode.UNKNOWN_SERVER_ERROR}

    play(scene, others=1)


def test_a_lost_session_sends_the_client_to_the_next_controller() -> None:
    async def scene(world: World) -> None:
        world.zookeeper.expire()
        world.zookeeper.break_connection()
        world.zookeeper.heal()
        await asyncio.sleep(1)
        assert codes(await create(world, topic("a"))) == {"a": ErrorCode.NOT_CONTROLLER}

    play(scene)


@pytest.mark.parametrize("is_in_metadata", [True, False])
def test_a_creation_waits_until_a_topic_of_the_same_name_is_deleted(is_in_metadata: bool) -> None:
    """Also after the topic is gone from the metadata: DeleteTopics responds then, before its znodes are deleted."""

    async def scene(world: World) -> None:
        await create(world, topic("a", 2, flush_ms="1"))
        old = world.metadata.topic_id("a")
        await world.topics.request_deletion("a")
        while not is_in_metadata and world.metadata.partitions("a") is not None:  # noqa: ASYNC110 - each turn counts
            await asyncio.sleep(0)
        response = await create(world, topic("a", 3, flush_ms="2"), topic("other"))
        assert codes(response) == {"a": ErrorCode.NONE, "other": ErrorCode.NONE}
        assert world.metadata.topic_id("a") not in {old, ZERO_UUID}
        assert world.metadata.partition_count("a") == 3
        assert await world.topics.config("topics/a") == {"flush.ms": "2"}
        assert await world.zookeeper.children(paths.DELETE_TOPICS) == []

    play(scene)


def test_a_creation_that_does_not_wait_for_a_deletion_is_told_of_it() -> None:
    """The replica on broker 7, which does not exist, cannot be deleted."""

    async def scene(world: World) -> None:
        await create(world, topic("a", assignment={0: [0, 7]}))
        await world.topics.request_deletion("a")
        await world.until(lambda: "a" in world.controller.state.deleting)
        started_s = world.loop.time()
        for options in ({"validate_only": True}, {"timeout_ms": 0}):
            (result,) = (await create(world, topic("a"), **options)).topics
            assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert "marked for deletion, which waits for replicas on brokers" in result.error_message
        assert world.loop.time() - started_s < 1
        refused = await create(world, topic("a", 0))
        assert codes(refused) == {"a": ErrorCode.INVALID_PARTITIONS}
        response = await create(world, topic("a"), topic("b"), timeout_ms=3000)
        assert codes(response) == {"a": ErrorCode.TOPIC_ALREADY_EXISTS, "b": ErrorCode.NONE}
        assert world.loop.time() - started_s == pytest.approx(3, abs=0.5)
        assert "not available: 7" in response.topics[0].error_message

    play(scene)


def test_a_creation_that_waits_for_a_deletion_is_sent_to_the_next_controller() -> None:
    async def scene(world: World) -> None:
        await create(world, topic("a", assignment={0: [0, 7]}))
        await world.topics.request_deletion("a")
        creation = asyncio.ensure_future(create(world, topic("a"), timeout_ms=60_000))
        await world.until(lambda: len(world.waits.purgatory) == 1)
        world.controller.session_expired()
        assert codes(await creation) == {"a": ErrorCode.NOT_CONTROLLER}
        assert len(world.waits.purgatory) == 0

    play(scene)


def test_only_so_many_creations_wait_for_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.server.cluster.control.deletions.CREATIONS_AWAITING_DELETION_MAX", 1)

    async def scene(world: World) -> None:
        await create(world, topic("a", assignment={0: [0, 7]}), topic("b", assignment={0: [0, 7]}))
        for name in ("a", "b"):
            await world.topics.request_deletion(name)
        await world.until(lambda: world.controller.state.deleting == {"a", "b"})
        first = asyncio.ensure_future(create(world, topic("a"), timeout_ms=5000))
        await world.until(lambda: len(world.waits.purgatory) == 1)
        started_s = world.loop.time()
        assert codes(await create(world, topic("b"), timeout_ms=5000)) == {"b": ErrorCode.TOPIC_ALREADY_EXISTS}
        assert world.loop.time() - started_s < 1
        assert codes(await first) == {"a": ErrorCode.TOPIC_ALREADY_EXISTS}

    play(scene)

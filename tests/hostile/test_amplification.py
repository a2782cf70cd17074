"""Short requests that cause much work or long responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.limits import CONFIG_PROPERTIES_MAX, PARTITIONS_PER_TOPIC_MAX, SLICE_OBJECTS
from kctl.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from kctl.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kctl.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kctl.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kctl.protocol.apis.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kctl.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from kctl.server.cluster.configs.alterations import ResourceType
from kctl.server.cluster.topics.automatic import AUTO_CREATIONS_MAX, AutoTopics
from kctl.server.cluster.topics.plans import (
    PARTITIONS_CREATED_PER_REQUEST_MAX,
    PARTITIONS_PER_CLUSTER_MAX,
    REPLICAS_PER_TOPIC_MAX,
    PartitionRoom,
    plan_new_topic,
)
from kctl.server.handlers.metadata import MetadataHandler
from kctl.server.loop.slices import sliced
from tests.hostile.control_requests import controller_id
from tests.hostile.raw_client import Attacker, wait_until
from tests.peers.kctl_broker import KctlBroker
from tests.unit.handlers.world import World, context, known, play

INVALID_PARTITIONS = ErrorCode.INVALID_PARTITIONS
SET, APPEND = 0, 2


def creatable(
    name: str, partitions: int, assignments: list[CreatableReplicaAssignment] | None = None
) -> CreatableTopic:
    factor = -1 if assignments else 1
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor, assignments=assignments or [], configs=[]
    )


def create(attacker: Attacker, *topics: CreatableTopic, validate_only: bool = True) -> list[tuple[int, str]]:
    """Error codes and messages."""
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=60_000, validate_only=validate_only)
    completed = attacker.call(request, CreateTopicsResponse, 5)
    return [(topic.error_code, topic.error_message or "") for topic in completed.topics]


@pytest.mark.parametrize("count", [2**31 - 1, PARTITIONS_PER_TOPIC_MAX + 1])
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_topic_of_more_partitions_than_the_bound_is_refused(
    attacker: Attacker, count: int, validate_only: bool
) -> None:
    ((code, message),) = create(attacker, creatable("huge", count), validate_only=validate_only)
    assert code == INVALID_PARTITIONS
    assert str(PARTITIONS_PER_TOPIC_MAX) in message


def test_topics_of_one_request_share_a_bound(attacker: Attacker) -> None:
    half = PARTITIONS_CREATED_PER_REQUEST_MAX // 2
    topics = [creatable(f"part-{number}", half) for number in range(3)]
    assert [code for code, _ in create(attacker, *topics)] == [ErrorCode.NONE, ErrorCode.NONE, INVALID_PARTITIONS]


def test_more_assigned_partitions_than_the_bound_are_refused(attacker: Attacker) -> None:
    given = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[0])
        for index in range(PARTITIONS_PER_TOPIC_MAX + 1)
    ]
    ((code, message),) = create(attacker, creatable("assigned", -1, given))
    assert code == INVALID_PARTITIONS
    assert str(PARTITIONS_PER_TOPIC_MAX) in message


def test_more_assigned_replicas_than_the_bound_are_refused() -> None:

    given = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(range(REPLICAS_PER_TOPIC_MAX // 10)))
        for index in range(11)
    ]

    async def scene(world: World) -> None:
        with pytest.raises(ApiError) as refused:
            plan_new_topic(
                creatable("assigned", -1, given),
                existing=(),
                brokers={0: None},
                config=world.configs.current,
                random=world.random,
                room=PartitionRoom(0),
            )
        assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    play(scene)


@pytest.mark.parametrize("count", [2**31 - 1, PARTITIONS_PER_TOPIC_MAX + 1])
def test_partitions_over_the_bound_are_not_added(attacker: Attacker, count: int) -> None:
    create(attacker, creatable("growing", 1), validate_only=False)
    topics = [CreatePartitionsTopic(name="growing", count=count, assignments=None)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=60_000, validate_only=False)
    (reply,) = attacker.call(request, CreatePartitionsResponse, 1).results
    assert reply.error_code == INVALID_PARTITIONS
    assert str(PARTITIONS_PER_TOPIC_MAX) in (reply.error_message or "")


def test_partitions_of_a_topic_with_an_impossible_name_are_refused(attacker: Attacker) -> None:
    topics = [CreatePartitionsTopic(name="a/partitions", count=2, assignments=None)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=60_000, validate_only=False)
    (reply,) = attacker.call(request, CreatePartitionsResponse, 1).results
    assert reply.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_full_cluster_takes_no_more_partitions() -> None:
    room = PartitionRoom(PARTITIONS_PER_CLUSTER_MAX - 1)
    room.take(1)
    with pytest.raises(ApiError) as refused:
        room.take(1)
    assert refused.value.code is INVALID_PARTITIONS


def auto_topics(world: World) -> AutoTopics:
    return AutoTopics(world.topics, world.metadata, world.configs, world.random, world.policies)


def test_num_partitions_over_the_bound_is_refused_when_topics_are_created_by_default() -> None:
    async def scene(world: World) -> ErrorCode:
        return auto_topics(world).request("asked-for")

    assert play(scene, properties={"num.partitions": str(2**31 - 1)}) is INVALID_PARTITIONS


def test_requested_topics_are_created_a_bounded_number_at_a_time() -> None:
    async def scene(world: World) -> int:
        topics = auto_topics(world)
        codes = {topics.request(f"asked-for-{number}") for number in range(AUTO_CREATIONS_MAX * 3)}
        assert codes == {ErrorCode.LEADER_NOT_AVAILABLE}
        await world.until(lambda: len(list(world.metadata.topics)) == AUTO_CREATIONS_MAX)
        return len(list(world.metadata.topics))

    assert play(scene) == AUTO_CREATIONS_MAX


def test_a_broker_named_three_thousand_times_is_described_once(attacker: Attacker) -> None:
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=str(controller_id(attacker)), configuration_keys=None
    )
    reply = attacker.call(DescribeConfigsRequest(resources=[resource] * 3_000), DescribeConfigsResponse, 3)
    assert [result.error_code for result in reply.results] == [ErrorCode.NONE]


def test_groups_transactions_and_partitions_named_repeatedly_are_described_once(attacker: Attacker) -> None:
    groups = attacker.call(DescribeGroupsRequest(groups=["g"] * 3_000), DescribeGroupsResponse, 3)
    assert len(groups.groups) == 1
    transactions = attacker.call(
        DescribeTransactionsRequest(transactional_ids=["t"] * 3_000), DescribeTransactionsResponse, 0
    )
    assert len(transactions.transaction_states) == 1
    topics = [TopicRequest(name="growing", partition_indexes=[0, 0])] * 1_000
    producers = attacker.call(DescribeProducersRequest(topics=topics), DescribeProducersResponse, 0)
    assert [len(topic.partitions) for topic in producers.topics] == [1]


async def turns_while(work: Awaitable[Any]) -> int:
    """How often the event loop runs other callbacks until the work is complete."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def test_metadata_of_many_topics_yields_to_other_connections() -> None:
    names = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(SLICE_OBJECTS * 5)]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)

    async def scene(world: World) -> int:
        handler = MetadataHandler("cluster", world.metadata, auto_topics(world), world.configs, known())
        reply = handler.handle(request, context(9))
        assert isinstance(reply, Awaitable)
        return await turns_while(reply)

    assert play(scene) >= 5


def test_a_slice_ends_by_the_size_of_what_was_made() -> None:
    async def made() -> list[int]:
        return [part async for part in sliced(range(10), SLICE_OBJECTS, lambda _: SLICE_OBJECTS)]

    async def main() -> int:
        return await turns_while(made())

    assert asyncio.run(main()) >= 10


def test_a_list_that_grew_over_the_bound_is_refused_and_the_topic_can_still_be_described(attacker: Attacker) -> None:
    create(attacker, creatable("listed", 1), validate_only=False)
    codes = set()
    for number in range(40):
        replicas = ",".join(f"{number * 1_000 + index}:0" for index in range(1_000))
        entry = AlterableConfig(
            name="leader.replication.throttled.replicas", config_operation=APPEND, value=replicas[:9_000].rstrip(":,")
        )
        resource = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="listed", configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        codes.add(attacker.call(request, IncrementalAlterConfigsResponse, 0).responses[0].error_code)
    assert ErrorCode.INVALID_CONFIG in codes
    described = DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name="listed", configuration_keys=None
    )
    reply = attacker.call(DescribeConfigsRequest(resources=[described]), DescribeConfigsResponse, 1)
    assert [result.error_code for result in reply.results] == [ErrorCode.NONE]


def overrides(names: Sequence[str], value: str) -> AlterConfigsResource:
    """Properties of broker 0 that it does not know, which it stores for plug-ins."""
    configs = [AlterableConfig(name=name, config_operation=SET, value=value) for name in names]
    return AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="0", configs=configs)


@pytest.mark.parametrize(
    "refused",
    [
        overrides([f"p{number}" for number in range(CONFIG_PROPERTIES_MAX + 1)], ""),
        overrides([f"p{number}" for number in range(15)], "\x01" * 30_000),
        overrides(["\u6c34" * 9_000 + str(number) for number in range(40)], ""),
    ],
    ids=["too many", "control characters", "long names"],
)
def test_overrides_that_do_not_fit_into_a_znode_are_refused(attacker: Attacker, refused: AlterConfigsResource) -> None:
    request = IncrementalAlterConfigsRequest(resources=[refused], validate_only=True)
    response = attacker.call(request, IncrementalAlterConfigsResponse, 0)
    assert response.responses[0].error_code == ErrorCode.INVALID_CONFIG


def test_refused_moves_between_log_directories_log_one_line(broker: KctlBroker, attacker: Attacker) -> None:
    before = broker.log_text.count("refused moves between log directories")
    topics = [AlterReplicaLogDirTopic(name="nowhere", partitions=list(range(1_000)))]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="x" * 30_000, topics=topics)])
    response = attacker.call(request, AlterReplicaLogDirsResponse, 1)
    assert len(response.results[0].partitions) == 1_000
    wait_until(
        lambda: broker.log_text.count("refused moves between log directories") == before + 1, "the refusal is logged"
    )

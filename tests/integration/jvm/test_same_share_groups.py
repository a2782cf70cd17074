"""Share groups on our broker and on Apache Kafka 4.3.1: the same answers, and records that each can read."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kctl.client import AsyncProducer, ProducerConfig
from kctl.client.connections.asyncio_transport import AsyncioConnection, AsyncioTransport
from kctl.errors import ErrorCode
from kctl.model import uuid_text
from kctl.protocol import registry
from kctl.protocol.apis.alter_share_group_offsets import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
)
from kctl.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from kctl.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.delete_share_group_offsets import DeletedTopic, DeleteShareGroupOffsetsRequest
from kctl.protocol.apis.delete_share_group_state import DeletedPartition, DeleteShareGroupStateRequest
from kctl.protocol.apis.delete_share_group_state import DeletedTopic as DeletedStateTopic
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestedGroup,
    RequestedTopic,
)
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kctl.protocol.apis.initialize_share_group_state import (
    InitializedPartition,
    InitializedTopic,
    InitializeShareGroupStateRequest,
)
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.apis.list_groups import ListGroupsRequest
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from kctl.protocol.apis.read_share_group_state import (
    ReadPartition,
    ReadShareGroupStateRequest,
    ReadTopic,
    StateBatch,
)
from kctl.protocol.apis.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    SummaryPartition,
    SummaryTopic,
)
from kctl.protocol.apis.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kctl.protocol.apis.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kctl.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from kctl.protocol.apis.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kctl.protocol.apis.write_share_group_state import WriteShareGroupStateRequest, WrittenPartition, WrittenTopic
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kctl.records.batch import iterate_records
from kctl.records.header import Record
from kctl.records.salvage import cut_all
from kctl.server.coordination.groups import newer_records as group_records
from kctl.server.coordination.newer_groups import Change
from kctl.server.coordination.share_groups.group import RecordType
from kctl.server.coordination.share_state.records import decode_record, state_record
from kctl.server.coordination.share_state.state import Snapshot, Update
from tests.integration.clients.confluent import Confluent
from tests.integration.jvm.side_by_side import comparable
from tests.peers import probe
from tests.peers.apache_kafka import NEWEST_BROKER, apache_kafka
from tests.peers.kctl_broker import kctl_broker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

TOPICS = {"t": 2, "u": 1}
PROPERTIES = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.session.timeout.ms": "50000",
    "group.share.max.size": "3",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
APACHE = {"group.share.max.session.timeout.ms": "60000", "group.share.min.heartbeat.interval.ms": "100"}
GROUP = 32
"""The type of a group among the resources of configurations."""
STORED = "a start offset is stored when it is determined, and with what moves it"
CURRENT = "current"
"""The epoch of the last response to the member."""


@dataclasses.dataclass
class World:
    """What requests depend on."""

    ids: dict[str, UUID]
    epochs: dict[str, int] = dataclasses.field(default_factory=dict)


Build = Callable[[World], Any]


class Step(NamedTuple):
    """A request, whose response is compared; `difference` is why ours is intended to differ."""

    name: str
    build: Build
    version: int | None = None
    difference: str = ""
    until: Callable[[Any], bool] | None = None
    """The request is sent again until this holds."""


def beat(member_id: str, epoch: int | str, **fields: Any) -> Build:
    def build(world: World) -> ShareGroupHeartbeatRequest:
        if epoch == 0:
            fields.setdefault("subscribed_topic_names", ["t"])
        known = world.epochs.get(member_id, 0)
        number = known if isinstance(epoch, str) else epoch
        return ShareGroupHeartbeatRequest(**{"group_id": "g"} | fields, member_id=member_id, member_epoch=number)

    return build


def next_epoch(member_id: str, by: int) -> Build:
    return lambda world: ShareGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=world.epochs[member_id] + by
    )


def has_partitions(response: ShareGroupHeartbeatResponse) -> bool:
    return response.assignment is not None and bool(response.assignment.topic_partitions)


def fetch(
    member_id: str,
    epoch: int,
    acknowledged: dict[int, list[tuple[int, int, list[int]]]] | None = None,
    partitions: tuple[int, ...] = (0,),
    topic: str = "t",
    forgotten: tuple[int, ...] = (),
    **fields: Any,
) -> Build:
    def build(world: World) -> ShareFetchRequest:
        answers = acknowledged or {}
        numbers = dict.fromkeys((*partitions, *answers))
        listed = [
            FetchPartition(
                partition_index=number, acknowledgement_batches=batches((acknowledged or {}).get(number, []))
            )
            for number in numbers
        ]
        ids = world.ids | {"none": UUID(int=1 << 100)}
        settings: dict[str, Any] = {
            "group_id": "g",
            "max_wait_ms": 3_000,
            "min_bytes": 1,
            "max_records": 500,
            "batch_size": 500,
        }
        return ShareFetchRequest(
            **settings | fields,
            member_id=member_id,
            share_session_epoch=epoch,
            topics=[FetchTopic(topic_id=ids[topic], partitions=listed)] if listed else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=ids[topic], partitions=[*forgotten])] if forgotten else [],
        )

    return build


def batches(ranges: list[tuple[int, int, list[int]]]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in ranges
    ]


def acknowledge(member_id: str, epoch: int, *ranges: tuple[int, int, list[int]], **fields: Any) -> Build:
    def build(world: World) -> ShareAcknowledgeRequest:
        partitions = [AcknowledgePartition(partition_index=0, acknowledgement_batches=batches([*ranges]))]
        topics = [AcknowledgeTopic(topic_id=world.ids["t"], partitions=partitions)] if ranges else []
        return ShareAcknowledgeRequest(
            **{"group_id": "g"} | fields, member_id=member_id, share_session_epoch=epoch, topics=topics
        )

    return build


def describe(*groups: str) -> Build:
    return lambda _: ShareGroupDescribeRequest(group_ids=[*groups])


def offsets(group: str, topics: dict[str, list[int]] | None = None) -> Build:
    named = None
    if topics is not None:
        named = [RequestedTopic(topic_name=name, partitions=numbers) for name, numbers in topics.items()]
    return lambda _: DescribeShareGroupOffsetsRequest(groups=[RequestedGroup(group_id=group, topics=named)])


def alter(group: str, topic: str, partition: int, offset: int) -> Build:
    altered = AlteredPartition(partition_index=partition, start_offset=offset)
    return lambda _: AlterShareGroupOffsetsRequest(
        group_id=group, topics=[AlteredTopic(topic_name=topic, partitions=[altered])]
    )


def delete_offsets(group: str, *topics: str) -> Build:
    return lambda _: DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeletedTopic(topic_name=topic) for topic in topics]
    )


def configure(name: str, value: str, group: str = "g") -> Build:
    configs = [AlterableConfig(name=name, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    return lambda _: IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def describe_properties(*names: str) -> Build:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name="g", configuration_keys=[*names])
    return lambda _: DescribeConfigsRequest(resources=[resource])


def join_classic(group: str) -> Build:
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=["t"]))
    return lambda _: JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id="static",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )


STEPS = (
    Step("begin with the first record", configure("share.auto.offset.reset", "earliest"), 1),
    Step("another group begins with the first record", configure("share.auto.offset.reset", "earliest", "b"), 1),
    Step("an unknown property", configure("share.none", "1"), 1),
    Step("an invalid property", configure("share.auto.offset.reset", "first"), 1),
    Step("an invalid duration", configure("share.isolation.level", "none"), 1),
    Step("its properties", describe_properties("share.auto.offset.reset", "share.record.lock.duration.ms"), 4),
    Step("a group that does not exist", beat("m1", 5)),
    Step("leave a group that does not exist", beat("m1", -1)),
    Step("no group id", beat("m1", 0, group_id="")),
    Step("no member id", beat("", 0)),
    Step("an epoch below -1", beat("m1", -2)),
    Step("no subscription", beat("m1", 0, subscribed_topic_names=None)),
    Step("an empty subscription", beat("m1", 0, subscribed_topic_names=[])),
    Step("an empty rack", beat("m1", 0, rack_id="")),
    Step("the first member", beat("m1", 0)),
    Step("it has partitions", beat("m1", CURRENT, subscribed_topic_names=["t"]), until=has_partitions),
    Step("nothing has changed", beat("m1", CURRENT)),
    Step("a member that does not exist", beat("m9", 1)),
    Step("a greater epoch", next_epoch("m1", 1)),
    Step("a smaller epoch", next_epoch("m1", -2)),
    Step("describe one member", describe("g", "none")),
    Step("list by type", lambda _: ListGroupsRequest(types_filter=["Share"])),
    Step("list by state", lambda _: ListGroupsRequest(states_filter=["stable"])),
    Step("describe as a classic group", lambda _: DescribeGroupsRequest(groups=["g"]), 5),
    Step("describe as a consumer group", lambda _: ConsumerGroupDescribeRequest(group_ids=["g"])),
    Step("a fetch without a session", fetch("m1", 1)),
    Step("acknowledgements without a session", acknowledge("m1", 1, (0, 0, [1]))),
    Step("a session that begins with acknowledgements", fetch("m1", 0, {0: [(0, 0, [1])]})),
    Step("acknowledgements that begin a session", acknowledge("m1", 0, (0, 0, [1]))),
    Step("the first fetch", fetch("m1", 0, max_records=5, share_acquire_mode=1)),
    Step("the epoch of the first fetch", fetch("m1", 3)),
    Step("what is left", fetch("m1", 1, partitions=(), max_records=1, share_acquire_mode=1)),
    Step("another member joins", beat("m2", 0)),
    Step("another member fetches", fetch("m2", 0, partitions=(0, 1), max_records=3, share_acquire_mode=1)),
    Step("accept some", acknowledge("m1", 2, (0, 1, [1]))),
    Step("accept again", acknowledge("m1", 3, (0, 1, [1]))),
    Step("accept those of another", acknowledge("m1", 4, (6, 6, [1]))),
    Step("accept what was never handed out", acknowledge("m1", 5, (100, 100, [1]))),
    Step("overlapping batches", acknowledge("m1", 6, (2, 3, [1]), (3, 4, [1]))),
    Step("descending batches", acknowledge("m1", 7, (4, 4, [1]), (2, 2, [1]))),
    Step("the last before the first", acknowledge("m1", 8, (3, 2, [1]))),
    Step("no types", acknowledge("m1", 9, (2, 3, []))),
    Step("more types than offsets", acknowledge("m1", 10, (2, 3, [1, 1, 1]))),
    Step("an unknown type", acknowledge("m1", 11, (2, 2, [7]))),
    Step("a renewal that is not announced", acknowledge("m1", 12, (2, 2, [4]))),
    Step("an unknown member acknowledges", acknowledge("m9", 1, (2, 2, [1]))),
    Step("release one", acknowledge("m1", 13, (2, 2, [2]))),
    Step("renew one", acknowledge("m1", 14, (3, 3, [4]), is_renew_ack=True)),
    Step("get what was released", fetch("m1", 15, partitions=(), max_records=1, share_acquire_mode=1)),
    Step("acknowledge with a fetch", fetch("m1", 16, {0: [(2, 4, [1, 3, 0])]}, (), max_records=1)),
    Step(
        "a topic that does not exist",
        fetch("m1", 17, partitions=(0,), topic="none", max_wait_ms=100),
        difference="Kafka fails",
    ),
    Step("forget it", fetch("m1", 18, partitions=(), topic="none", forgotten=(0,), max_wait_ms=0)),
    Step("a partition that does not exist", fetch("m1", 19, partitions=(7,), max_wait_ms=100)),
    Step("forget that", fetch("m1", 20, partitions=(), forgotten=(7,), max_wait_ms=0)),
    Step(
        "offsets with members",
        offsets("g", {"t": [0, 1], "u": [0], "none": [0]}),
        difference=STORED,
    ),
    Step("all offsets", offsets("g"), difference=STORED),
    Step("offsets of a group that does not exist", offsets("none")),
    Step("alter with members", alter("g", "t", 0, 3)),
    Step("delete offsets with members", delete_offsets("g", "t")),
    Step("delete with members", lambda _: DeleteGroupsRequest(groups_names=["g"])),
    Step("close the session", acknowledge("m1", -1, (5, 5, [1]))),
    Step("close it again", acknowledge("m1", -1)),
    Step("the other gets what was released", fetch("m2", 1, {0: [(6, 8, [1])]}, (), max_records=10)),
    Step("close the other's by a fetch", fetch("m2", -1, {0: [(9, 9, [1])]}, ())),
    Step("a classic member", join_classic("g")),
    Step(
        "commit",
        lambda _: OffsetCommitRequest(
            group_id="g",
            member_id="",
            generation_id=-1,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
                    ],
                )
            ],
        ),
        9,
    ),
    Step(
        "fetch commits",
        lambda _: OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    member_id=None,
                    member_epoch=-1,
                    topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
                )
            ]
        ),
        9,
    ),
    Step(
        "a member of the consumer protocol",
        lambda _: ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="c1",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
    ),
    Step("a third member", beat("m3", 0, subscribed_topic_names=["t", "u"])),
    Step("a fourth member", beat("m4", 0)),
    Step("the second leaves", beat("m2", -1)),
    Step("the third leaves", beat("m3", -1)),
    Step("the first leaves", beat("m1", -1)),
    Step("the first leaves again", beat("m1", -1)),
    Step("describe an empty group", describe("g")),
    Step("a classic member of an empty group", join_classic("g")),
    Step(
        "offsets of an empty group",
        offsets("g", {"t": [0, 1]}),
        difference=STORED,
    ),
    Step("alter", alter("g", "t", 0, 3)),
    Step("alter another topic", alter("g", "none", 0, 3)),
    Step("alter another partition", alter("g", "t", 9, 3)),
    Step("alter another group", alter("none", "t", 0, 3)),
    Step("altered offsets", offsets("g", {"t": [0, 1]}), difference=STORED),
    Step("delete offsets", delete_offsets("g", "t", "none")),
    Step("deleted offsets", offsets("g", {"t": [0, 1]})),
    Step(
        "delete",
        lambda _: DeleteGroupsRequest(groups_names=["g", "none"]),
        difference="Kafka fails after that",
    ),
    Step("describe a deleted group", describe("g"), difference="Kafka has not deleted it"),
    Step("a classic group", join_classic("c")),
    Step("join a classic group", beat("m1", 0, group_id="c")),
    Step("describe a group of another type", describe("c")),
)


async def write(bootstrap: str) -> None:
    async with AsyncProducer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
        for number in range(10):
            await producer.send("t", b"%d" % number, partition=0)


def state_steps() -> tuple[Step, ...]:
    """The life of the state of a share-partition, in all versions of the requests between brokers."""

    def initialize(epoch: int, offset: int) -> Build:
        partition = InitializedPartition(partition=0, state_epoch=epoch, start_offset=offset)
        return lambda world: InitializeShareGroupStateRequest(
            group_id="s", topics=[InitializedTopic(topic_id=world.ids["u"], partitions=[partition])]
        )

    def read(leader_epoch: int) -> Build:
        return lambda world: ReadShareGroupStateRequest(
            group_id="s",
            topics=[
                ReadTopic(topic_id=world.ids["u"], partitions=[ReadPartition(partition=0, leader_epoch=leader_epoch)])
            ],
        )

    def summary(world: World) -> ReadShareGroupStateSummaryRequest:
        topics = [SummaryTopic(topic_id=world.ids["u"], partitions=[SummaryPartition(partition=0, leader_epoch=-1)])]
        return ReadShareGroupStateSummaryRequest(group_id="s", topics=topics)

    def write(state_epoch: int, leader_epoch: int, start: int, *batches: StateBatch, done: int = -1) -> Build:
        partition = WrittenPartition(
            partition=0,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=done,
            state_batches=[*batches],
        )
        return lambda world: WriteShareGroupStateRequest(
            group_id="s", topics=[WrittenTopic(topic_id=world.ids["u"], partitions=[partition])]
        )

    def batch(first: int, last: int, state: int, count: int) -> StateBatch:
        return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)

    def delete(world: World) -> DeleteShareGroupStateRequest:
        topics = [DeletedStateTopic(topic_id=world.ids["u"], partitions=[DeletedPartition(partition=0)])]
        return DeleteShareGroupStateRequest(group_id="s", topics=topics)

    def find(world: World) -> FindCoordinatorRequest:
        return FindCoordinatorRequest(key_type=2, coordinator_keys=[f"s:{uuid_text(world.ids['u'])}:0"])

    return (
        Step("find the share coordinator", find, 6),
        Step("find it by a wrong key", lambda _: FindCoordinatorRequest(key_type=2, coordinator_keys=["s"]), 6),
        Step("find it with an old version", find, 5),
        Step("read no state", read(0)),
        Step("write no state", write(0, 0, 0)),
        Step("a summary of no state", summary),
        Step("delete no state", delete),
        Step("begin a state", initialize(1, 5)),
        Step("read a state", read(1)),
        Step("write in version 0", write(1, 1, 5, batch(5, 9, 0, 1)), 0),
        Step("write in version 1", write(1, 1, 5, batch(7, 8, 2, 1), done=2), 1),
        Step("read what was written", read(1)),
        Step("a write that is late", write(1, 1, 5, batch(8, 8, 0, 1)), 1),
        Step("read after it", read(1)),
        Step("a write of a former leader", write(1, 0, 5)),
        Step("a read of a former leader", read(0)),
        Step("a write with a former state epoch", write(0, 1, 5)),
        Step("the start moves", write(1, 1, 8)),
        Step("read from the start on", read(1)),
        Step("a summary in version 0", summary, 0),
        Step("a summary in version 1", summary, 1),
        Step("a former state epoch", initialize(0, 3)),
        Step("begin anew", initialize(2, 3)),
        Step("read a new state", read(2)),
        Step("delete the state", delete),
        Step("read a deleted state", read(3)),
    )


async def play(bootstrap: str) -> tuple[World, dict[str, Any]]:
    """Sends all requests one after the other."""
    host, port = probe.address(bootstrap)
    transport = AsyncioTransport()
    connection = await transport.connect(host, port, client_id="c", connect_timeout_ms=30_000, timeout_ms=60_000)
    try:
        named = [MetadataRequestTopic(name=name) for name in TOPICS]
        metadata = await connection.send(MetadataRequest(topics=named), MetadataResponse, version=10)
        world = World({topic.name or "": topic.topic_id for topic in metadata.topics})
        await until_coordinated(connection)
        answers = {step.name: await answer(connection, step, world) for step in (*STEPS, *state_steps())}
        return world, answers | await fetch_in_parts(connection, world, bootstrap)
    finally:
        await connection.close()


SIZED = (
    Step("its member", beat("b1", 0, group_id="b")),
    Step("its partitions", beat("b1", CURRENT, group_id="b", subscribed_topic_names=["t"]), until=has_partitions),
    Step("ranges of three", fetch("b1", 0, None, (1,), group_id="b", max_records=7, batch_size=3)),
    Step("a range for each batch", fetch("b1", 1, None, (), group_id="b", max_records=2, batch_size=1)),
    Step("too few bytes until the time is up", fetch("b1", 2, None, (), group_id="b", min_bytes=900, max_wait_ms=50)),
    Step("no bytes are enough", fetch("b1", 3, None, (), group_id="b", min_bytes=0, max_wait_ms=50)),
)
ENOUGH = Step("enough bytes", fetch("b1", 4, None, (), group_id="b", min_bytes=900, max_wait_ms=20_000))


async def fetch_in_parts(connection: AsyncioConnection, world: World, bootstrap: str) -> dict[str, Any]:
    """The answers of fetches with a batch size and with a minimum of bytes, which are written while the last waits."""
    async with AsyncProducer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
        for number in range(10):
            await producer.send("t", b"%d" % number, partition=1)
            await producer.flush()
        answers = {step.name: await answer(connection, step, world) for step in SIZED}
        await producer.send("t", b"too small", partition=1)
        await producer.flush()
        waiting = asyncio.create_task(answer(connection, ENOUGH, world))
        await producer.send("t", b"still too small", partition=1)
        await producer.flush()
        await producer.send("t", bytes(1_000), partition=1)
        answers[ENOUGH.name] = await waiting
    return answers


async def until_coordinated(connection: AsyncioConnection) -> None:
    """Creates the offsets topic, and waits until the group is coordinated."""
    async with asyncio.timeout(60):
        while True:
            request = FindCoordinatorRequest(key="g", key_type=0)
            await connection.send(request, registry.api_of(type(request)).response, version=3)
            response = await connection.send(beat("m", 1)(World({})), ShareGroupHeartbeatResponse, version=1)
            if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return
            await asyncio.sleep(0.1)


async def answer(connection: AsyncioConnection, step: Step, world: World) -> Any:
    async with asyncio.timeout(30):
        while True:
            request = step.build(world)
            api = registry.api_of(type(request))
            newest = {"join_group": 7}
            version = newest.get(api.name, api.versions[-1]) if step.version is None else step.version
            response: Any = await connection.send(request, api.response, version=version)
            if isinstance(response, ShareGroupHeartbeatResponse) and response.member_id and response.member_epoch > 0:
                world.epochs[response.member_id] = response.member_epoch
            if step.until is None or step.until(response):
                return response
            await asyncio.sleep(0.1)


def plain(response: Any, world: World) -> Any:
    """The response with names of topics, and without what clients do not compare."""
    names = {topic_id: name for name, topic_id in world.ids.items()}

    def named(value: Any) -> Any:
        if isinstance(value, UUID):
            return names.get(value, "?")
        if isinstance(value, TopicPartitions):
            # Which ones depends on the order of Kafka's hash tables.
            return {"topic": names[value.topic_id], "partitions": len(value.partitions)}
        if dataclasses.is_dataclass(value):
            left_out = ("throttle_time_ms", "error_message", "acknowledge_error_message", "records", "node_endpoints")
            return {
                field.name: named(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name not in (*left_out, "current_leader")
            }
        return sorted(map(named, value), key=repr) if isinstance(value, list) else value

    kind = registry.api_of(type(response)).name
    if kind == "find_coordinator":
        return [coordinator.error_code for coordinator in response.coordinators]
    if kind == "join_group":
        return {"error_code": response.error_code}
    return named(response) if "share" in kind else comparable(response)


Played = dict[str, tuple[Path, World, dict[str, Any]]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Logs, ids of topics and answers of both brokers, which have been stopped."""
    folder = tmp_path_factory.mktemp("played")
    found: Played = {}

    def exercise(who: str, bootstrap: str, logs: Path) -> None:
        client = Confluent(bootstrap)
        for topic, partitions in TOPICS.items():
            client.create_topic(topic, partitions)
        asyncio.run(write(bootstrap))
        found[who] = (logs, *asyncio.run(play(bootstrap)))

    with kctl_broker(folder / "ours", properties=PROPERTIES) as broker:
        exercise("ours", broker.bootstrap, broker.logs_dir)
    with apache_kafka(NEWEST_BROKER, folder / "apache", properties=PROPERTIES | APACHE) as bootstrap:
        exercise("apache", bootstrap, folder / "apache" / "logs")
    return found


def test_answers_are_those_of_apache_kafka(played: Played) -> None:
    _, apache_world, apache = played["apache"]
    _, our_world, ours = played["ours"]
    wrong = []
    for step in (*STEPS, *state_steps(), *SIZED, ENOUGH):
        expected, given = plain(apache[step.name], apache_world), plain(ours[step.name], our_world)
        if (expected != given) != bool(step.difference):
            wrong.append(f"{step.name} ({step.difference}):\n  apache {expected}\n  ours   {given}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_ranges_have_the_size_of_batches_and_a_fetch_waits_for_its_bytes(played: Played) -> None:
    for _, _, answers in played.values():
        ranges = {}
        for name in ("ranges of three", "a range for each batch", ENOUGH.name):
            (topic,) = answers[name].responses
            (partition,) = topic.partitions
            ranges[name] = [(part.first_offset, part.last_offset) for part in partition.acquired_records]
        assert ranges["ranges of three"] == [(0, 2), (3, 5), (6, 6)]
        assert ranges["a range for each batch"] == [(7, 7), (8, 8)]
        assert ranges[ENOUGH.name][-1][1] == 12, "it has waited for the last record"


def test_fetched_records_begin_and_end_with_acquired_ones(played: Played) -> None:
    for _, _, answers in played.values():
        for response in answers.values():
            if isinstance(response, ShareFetchResponse):
                for topic in response.responses:
                    for partition in topic.partitions:
                        assert bool(len(partition.records)) >= bool(partition.acquired_records)


def read_records(folder: Path) -> Iterator[Record]:
    for segment in sorted(folder.glob("*.log")):
        written = segment.read_bytes()
        # A batch may end with a zero, for no headers; what follows are zeros of a segment that is allocated ahead.
        piece = cut_all(written[: len(written.rstrip(b"\0")) + 1], end_offset=1 << 40)
        for header in piece.batches:
            if not header.is_control:
                yield from iterate_records(piece.data, header)


def test_records_of_apache_kafka_are_read_and_written_again(played: Played) -> None:
    logs, _, _ = played["apache"]
    types = set()
    for record in read_records(logs / "__consumer_offsets-0"):
        decoded = group_records.decode_key(record.key or b"")
        if decoded is None or not isinstance(decoded[1].type, RecordType):
            continue
        group_id, key = decoded
        types.add(key.type)
        assert group_records.encode_key(group_id, key) == record.key
        if record.value is not None:
            value = group_records.decode_value(key.type, record.value)
            encoded = group_records.encode_value(Change(key, value))
            # Kafka lists topics in the order of its hash tables.
            assert encoded is not None
            assert sorted(encoded) == sorted(record.value)
    assert types == set(RecordType)
    kinds = set()
    for record in read_records(logs / "__share_group_state-0"):
        state = decode_record(record.key or b"", record.value)
        assert state is not None
        share_key, change = state
        kinds.add(type(change))
        written = state_record(share_key, change, record.timestamp)
        assert (written.key, written.value) == (record.key, record.value)
    assert kinds >= {Snapshot, Update}


def test_records_have_the_keys_of_those_of_apache_kafka(played: Played) -> None:
    groups, states = {}, {}
    for who, (logs, _, _) in played.items():
        keys = [group_records.decode_key(record.key or b"") for record in read_records(logs / "__consumer_offsets-0")]
        groups[who] = {found for found in keys if found is not None and isinstance(found[1].type, RecordType)}
        records = read_records(logs / "__share_group_state-0")
        changes = [decode_record(record.key or b"", record.value) for record in records]
        states[who] = {(decoded[0].group_id, decoded[0].partition) for decoded in changes if decoded is not None}
    assert groups["ours"] == groups["apache"]
    assert states["ours"] == states["apache"]

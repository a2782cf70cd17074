"""Streams groups on our broker and on Apache Kafka 4.3.1: the same answers, and records that each can read."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection, AsyncioTransport
from kctl.errors import ErrorCode
from kctl.protocol import registry
from kctl.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from kctl.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.apis.list_groups import ListGroupsRequest
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from kctl.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from kctl.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest
from kctl.protocol.apis.streams_group_describe import TaskIds as DescribedTasks
from kctl.protocol.apis.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kctl.records.batch import iterate_records
from kctl.records.header import Record
from kctl.records.salvage import cut_all
from kctl.server.coordination.groups.newer_records import decode_key, decode_value, encode_key, encode_value
from kctl.server.coordination.newer_groups import Change
from kctl.server.coordination.streams_groups.state import RecordType
from tests.integration.clients.confluent import Confluent
from tests.integration.jvm.side_by_side import comparable
from tests.peers import probe
from tests.peers.apache_kafka import NEWEST_BROKER, apache_kafka
from tests.peers.kctl_broker import kctl_broker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

TOPICS = {"t": 2, "u": 2, "w": 3}
PROPERTIES = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.session.timeout.ms": "50000",
    "group.streams.max.size": "3",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
APACHE = {"group.streams.max.session.timeout.ms": "60000", "group.streams.min.heartbeat.interval.ms": "100"}
GROUP = 32
"""The type of a group among the resources of configurations."""
CURRENT = "current"
"""The epoch of the last response to the member."""
UNEXPECTED = "Kafka answers with an unexpected error"


@dataclasses.dataclass
class World:
    """What requests depend on: epochs and tasks of the last responses, by member."""

    epochs: dict[str, int] = dataclasses.field(default_factory=dict)
    tasks: dict[str, list[list[TaskIds]]] = dataclasses.field(default_factory=dict)


Build = Callable[[World], Any]


class Step(NamedTuple):
    """A request, whose response is compared; `difference` is why ours is intended to differ."""

    name: str
    build: Build
    version: int | None = None
    difference: str = ""
    until: Callable[[Any], bool] | None = None
    """The request is sent again until this holds."""
    is_drawn: bool = False
    """Which member has which tasks depends on the order of Kafka's hash tables."""


def subtopology(name: str = "0", *sources: str, **fields: Any) -> Subtopology:
    empty: dict[str, Any] = {
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    return Subtopology(**empty | fields, subtopology_id=name, source_topics=[*sources])


def topic(name: str, partitions: int = 0, factor: int = 0, **configs: str) -> TopicInfo:
    pairs = [KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=factor, topic_configs=pairs)


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=[*subtopologies])


COUNTS = topology(
    subtopology("0", "t", state_changelog_topics=[topic("counts", cleanup_policy="compact")]), subtopology("1", "w")
)
"""Five tasks, of which two have a state."""


def beat(member_id: str, epoch: int | str, **fields: Any) -> Build:
    def build(world: World) -> StreamsGroupHeartbeatRequest:
        usual: dict[str, Any] = {"group_id": "g", "endpoint_information_epoch": 0}
        if epoch == 0:
            usual |= {
                "rebalance_timeout_ms": 30_000,
                "topology": COUNTS,
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
                "process_id": f"process of {member_id}",
                "client_tags": [],
            }
        number = world.epochs.get(member_id, 0) if isinstance(epoch, str) else epoch
        return StreamsGroupHeartbeatRequest(**usual | fields, member_id=member_id, member_epoch=number)

    return build


def other_epoch(member_id: str, by: int, **fields: Any) -> Build:
    return lambda world: beat(member_id, world.epochs[member_id] + by, **fields)(world)


def owning(member_id: str, by: int = 0, **fields: Any) -> Build:
    """A heartbeat with the tasks of the last response."""

    def build(world: World) -> Any:
        active, standby, warmup = world.tasks[member_id]
        roles = {"active_tasks": active, "standby_tasks": standby, "warmup_tasks": warmup}
        return other_epoch(member_id, by, **roles | fields)(world)

    return build


def tasks(name: str, *numbers: int) -> dict[str, Any]:
    ids = [TaskIds(subtopology_id=name, partitions=[*numbers])]
    return {"active_tasks": ids, "standby_tasks": [], "warmup_tasks": []}


def describe(*groups: str) -> Build:
    return lambda _: StreamsGroupDescribeRequest(group_ids=[*groups])


def configure(group: str, name: str, value: str) -> Build:
    configs = [AlterableConfig(name=name, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    return lambda _: IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def describe_properties(group: str, *names: str) -> Build:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[*names])
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


def commit(group: str, member_id: str, by: int | None = 0, topic: str = "t", partition: int = 0) -> Build:
    """`by` is the difference to the epoch of the member; None for no member."""
    listed = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata="")]
    return lambda world: OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id=-1 if by is None else world.epochs.get(member_id, 0) + by,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=listed)],
    )


def fetch_offsets(group: str, member_id: str | None, by: int = 0) -> Build:
    return lambda world: OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                member_id=member_id,
                member_epoch=-1 if member_id is None else world.epochs.get(member_id, 0) + by,
                topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
            )
        ]
    )


def delete_offsets(group: str) -> Build:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in ("t", "u")]
    return lambda _: OffsetDeleteRequest(group_id=group, topics=topics)


def has_tasks(response: StreamsGroupHeartbeatResponse) -> bool:
    return bool(response.active_tasks)


def has_value(value: str) -> Callable[[Any], bool]:
    return lambda response: [config.value for config in response.results[0].configs] == [value]


def is_stable(response: Any) -> bool:
    return all(group.group_state == "Stable" for group in response.groups)


INVALID = (
    Step("a group that does not exist", beat("m1", 5)),
    Step("leave a group that does not exist", beat("m1", -1)),
    Step("no group id", beat("m1", 0, group_id="")),
    Step("no member id", beat("", 0)),
    Step("an empty rack", beat("m1", 0, rack_id="")),
    Step("an epoch below -2", beat("m1", -3)),
    Step("a static member leaves", beat("m1", -2)),
    Step("no rebalance timeout", beat("m1", 0, rebalance_timeout_ms=-1)),
    Step("no topology", beat("m1", 0, topology=None)),
    Step("a topology later", beat("m1", 3, topology=COUNTS)),
    Step("no tasks", beat("m1", 0, active_tasks=None, standby_tasks=None, warmup_tasks=None)),
    Step("tasks of one role", beat("m1", 3, active_tasks=[])),
    Step("a member that joins with tasks", beat("m1", 0, **tasks("0", 1))),
    Step("an instance id", beat("m1", 0, instance_id="i")),
    Step("offsets of tasks", beat("m1", 0, task_offsets=[TaskOffset(subtopology_id="0", partition=0, offset=1)])),
    Step("no offsets of tasks", beat("m1", 0, task_end_offsets=[])),
    Step("warm-up tasks", beat("m1", 0, warmup_tasks=[TaskIds(subtopology_id="0", partitions=[1])])),
    Step("a regular expression", beat("m1", 0, topology=topology(subtopology(source_topic_regex=["t.*"])))),
    Step(
        "a changelog with partitions",
        beat("m1", 0, topology=topology(subtopology("0", "t", state_changelog_topics=[topic("c", 3)]))),
    ),
    Step("an internal topic of Kafka", beat("m1", 0, topology=topology(subtopology("0", "__consumer_offsets")))),
    Step("an invalid topic", beat("m1", 0, topology=topology(subtopology("0", "a/b")))),
    Step(
        "a repartition topic that nobody writes",
        beat("m1", 0, topology=topology(subtopology("0", "t", repartition_source_topics=[topic("r")]))),
    ),
    Step(
        "a loop",
        beat(
            "m1",
            0,
            topology=topology(
                subtopology("0", repartition_source_topics=[topic("r")], repartition_sink_topics=["s"]),
                subtopology("1", repartition_source_topics=[topic("s")], repartition_sink_topics=["r"]),
            ),
        ),
    ),
    Step("a subtopology without topics", beat("m1", 0, topology=topology(subtopology("0")))),
    Step(
        "the same subtopology twice",
        beat("m1", 0, topology=topology(subtopology("0", "t"), subtopology("0", "u"))),
        difference=UNEXPECTED,
    ),
    Step("a negative epoch", beat("m1", 0, topology=topology(subtopology("0", "t"), epoch=-1)), difference=UNEXPECTED),
    Step(
        "an unknown topic of a co-partition group",
        beat(
            "m1",
            0,
            topology=topology(
                subtopology(
                    "0",
                    "t",
                    copartition_groups=[
                        CopartitionGroup(source_topics=[3], source_topic_regex=[], repartition_source_topics=[])
                    ],
                )
            ),
        ),
        difference=UNEXPECTED,
    ),
    Step("still no group", describe("g")),
)


def copartitioned(*sources: str, given: int = 0) -> Topology:
    group = CopartitionGroup(
        source_topics=[*range(len(sources))], source_topic_regex=[], repartition_source_topics=[0] if given else []
    )
    repartition = [topic("y-r", given)] if given else []
    reader = subtopology("0", *sources, repartition_source_topics=repartition, copartition_groups=[group])
    return topology(reader, subtopology("1", "t", repartition_sink_topics=["y-r"] if given else []))


def simple(epoch: int, source: str = "t") -> Topology:
    return topology(subtopology("0", source), epoch=epoch)


TOPOLOGIES = (
    Step("a missing source", beat("m1", 0, group_id="x", topology=topology(subtopology("0", "t", "none")))),
    Step("the same with an endpoint", beat("m1", CURRENT, group_id="x")),
    Step("describe a group that is not ready", describe("x")),
    Step(
        "many missing sources",
        beat("m1", 0, group_id="x4", topology=topology(subtopology("0", "d", "b", "a", "c", "e"))),
    ),
    Step("different partitions", beat("m1", 0, group_id="y", topology=copartitioned("t", "w"))),
    Step("a given number of partitions", beat("m1", 0, group_id="y2", topology=copartitioned("t", given=5))),
    Step("the same partitions", beat("m1", 0, group_id="y3", topology=copartitioned("t", "u"))),
    Step(
        "an internal topic that exists",
        beat("m1", 0, group_id="y4", topology=topology(subtopology("0", "t", state_changelog_topics=[topic("w")]))),
    ),
    Step(
        "a topic that cannot be created",
        beat(
            "m1",
            0,
            group_id="y5",
            topology=topology(subtopology("0", "t", state_changelog_topics=[topic("y5-c", factor=9)])),
        ),
        difference="Kafka says so with the next heartbeat",
    ),
    Step("list those that are not ready", lambda _: ListGroupsRequest(states_filter=["not_ready"])),
    Step(
        "the first topology of a group", beat("m1", 0, group_id="s", topology=topology(subtopology("0", "t"), epoch=2))
    ),
    Step("a former topology", beat("m2", 0, group_id="s", topology=simple(1, "u"))),
    Step("a later topology", beat("m3", 0, group_id="s", topology=simple(3))),
    Step("another topology", beat("m3", 0, group_id="s", topology=simple(2, "u"))),
    Step("describe members with two topologies", describe("s")),
)

MEMBERS = (
    Step("an unknown property", configure("g", "streams.none", "1"), 1),
    Step("an invalid property", configure("g", "streams.num.standby.replicas", "-1"), 1),
    Step("the first member", beat("m1", 0)),
    Step("it has tasks", beat("m1", CURRENT), until=has_tasks),
    Step("nothing has changed", owning("m1")),
    Step("it is stable", describe("g"), until=is_stable),
    Step("list by type", lambda _: ListGroupsRequest(types_filter=["Streams"], states_filter=["stable"])),
    Step("describe as a classic group", lambda _: DescribeGroupsRequest(groups=["g"]), 5),
    Step("describe as a consumer group", lambda _: ConsumerGroupDescribeRequest(group_ids=["g"])),
    Step("describe none", describe("none")),
    Step("a member that does not exist", beat("m9", 1)),
    Step("a greater epoch", other_epoch("m1", 1)),
    Step("a smaller epoch", other_epoch("m1", -2)),
    Step("the epoch before, without tasks", other_epoch("m1", -1)),
    Step("the epoch before, with its tasks", owning("m1", -1), difference="Kafka does not repeat the tasks"),
    Step("an unknown subtopology", beat("m1", CURRENT, **tasks("9", 0))),
    Step("an unknown task", beat("m1", CURRENT, **tasks("0", 7))),
    Step("a negative task", beat("m1", CURRENT, **tasks("0", -1))),
    Step("commit with the epoch", commit("g", "m1"), 9),
    Step("commit with a greater epoch", commit("g", "m1", 1), 9),
    Step("commit with an epoch before its task", commit("g", "m1", -2), 9),
    Step("commit with an old version", commit("g", "m1"), 8),
    Step("commit of an unknown member", commit("g", "m9"), 9),
    Step("commit without a member", commit("g", "", None), 9),
    Step("commit for another topic", commit("g", "m1", topic="u"), 9),
    Step("fetch with the epoch", fetch_offsets("g", "m1"), 9),
    Step("fetch with another epoch", fetch_offsets("g", "m1", -1), 9),
    Step("fetch of an unknown member", fetch_offsets("g", "m9"), 9),
    Step("fetch without a member", fetch_offsets("g", None), 9),
    Step("another process joins", beat("m2", 0)),
    Step("the first has to revoke", owning("m1"), is_drawn=True),
    Step("it has not revoked yet", beat("m1", CURRENT)),
    Step("the second waits", owning("m2")),
    Step("describe while it revokes", describe("g"), is_drawn=True),
    Step("the first has revoked", owning("m1")),
    Step("the second gets tasks", owning("m2"), until=has_tasks, is_drawn=True),
    Step("both are stable", describe("g"), until=is_stable, is_drawn=True),
    Step("commit with an epoch since its task", commit("g", "m1", -1), 9),
    Step("its properties", describe_properties("g", "streams.num.standby.replicas", "streams.session.timeout.ms"), 4),
    Step("standby tasks", configure("g", "streams.num.standby.replicas", "1"), 1),
    Step("they are in force", describe_properties("g", "streams.num.standby.replicas"), 4, until=has_value("1")),
    Step("the first sees the new property", owning("m1"), is_drawn=True),
    Step("so does the second", owning("m2"), is_drawn=True),
    Step("the first again", owning("m1"), is_drawn=True),
    Step("the second again", owning("m2"), is_drawn=True),
    Step("describe standby tasks", describe("g"), until=is_stable, is_drawn=True),
    Step(
        "an endpoint",
        owning("m1", user_endpoint=Endpoint(host="h", port=65_535), client_tags=[KeyValue(key="z", value="1")]),
        is_drawn=True,
    ),
    Step("the second reads endpoints", owning("m2", endpoint_information_epoch=-1), is_drawn=True),
    Step("describe an endpoint", describe("g"), is_drawn=True),
    Step("the same thread joins again", beat("m1", 0), is_drawn=True),
    Step("a third member", beat("m3", 0, process_id="process of m1"), is_drawn=True),
    Step("a fourth member", beat("m4", 0)),
    Step("delete with members", lambda _: DeleteGroupsRequest(groups_names=["g"])),
    Step("delete offsets with members", delete_offsets("g")),
    Step("a classic member", join_classic("g")),
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
    Step(
        "a member of a share group",
        lambda _: ShareGroupHeartbeatRequest(
            group_id="g", member_id="s1", member_epoch=0, subscribed_topic_names=["t"]
        ),
    ),
    Step("the third requests a shutdown", beat("m3", CURRENT, shutdown_application=True), is_drawn=True),
    Step("the second leaves", beat("m2", -1)),
    Step("the third leaves", beat("m3", -1)),
    Step("the third leaves again", beat("m3", -1)),
    Step("the first leaves", beat("m1", -1)),
    Step("describe an empty group", describe("g")),
    Step("a member after the shutdown", beat("m5", 0)),
    Step("it leaves", beat("m5", -1)),
    Step("delete", lambda _: DeleteGroupsRequest(groups_names=["g", "none"])),
    Step("describe a deleted group", describe("g")),
    Step("a delay", configure("d", "streams.initial.rebalance.delay.ms", "1500"), 1),
    Step("it is in force", describe_properties("d", "streams.initial.rebalance.delay.ms"), 4, until=has_value("1500")),
    Step("a member that is delayed", beat("m1", 0, group_id="d")),
    Step("it is still delayed", beat("m1", CURRENT, group_id="d")),
    Step("the delay is over", beat("m1", CURRENT, group_id="d"), until=has_tasks),
    Step("describe it", describe("d"), until=is_stable),
    Step("a classic group", join_classic("c")),
    Step("join a classic group", beat("m1", 0, group_id="c")),
    Step("go on in a classic group", beat("m1", 3, group_id="c")),
    Step("describe a group of another type", describe("c")),
    Step("a member of another group", beat("m1", 0, group_id="f", topology=simple(0))),
    Step("it leaves that group", beat("m1", -1, group_id="f")),
    Step("a classic member of an empty group", join_classic("f")),
    Step("describe what was a streams group", describe("f")),
    Step("commits of a group", commit("e", "", None), 9),
    Step("the group becomes a streams group", beat("m1", 0, group_id="e", topology=topology(subtopology("0", "t")))),
    Step("its commits are left", fetch_offsets("e", None), 9),
)
STEPS = (*INVALID, *TOPOLOGIES, *MEMBERS)


async def play(bootstrap: str) -> dict[str, Any]:
    """Sends all requests one after the other."""
    host, port = probe.address(bootstrap)
    transport = AsyncioTransport()
    connection = await transport.connect(host, port, client_id="c", connect_timeout_ms=30_000, timeout_ms=60_000)
    try:
        named = [MetadataRequestTopic(name=name) for name in TOPICS]
        await connection.send(MetadataRequest(topics=named), MetadataResponse, version=10)
        await until_coordinated(connection)
        world = World()
        return {step.name: await answer(connection, step, world) for step in STEPS}
    finally:
        await connection.close()


async def until_coordinated(connection: AsyncioConnection) -> None:
    """Creates the offsets topic, and waits until the group is coordinated."""
    async with asyncio.timeout(60):
        while True:
            request = FindCoordinatorRequest(key="g", key_type=0)
            await connection.send(request, registry.api_of(type(request)).response, version=3)
            response = await connection.send(beat("m", 1)(World()), StreamsGroupHeartbeatResponse, version=0)
            if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return
            await asyncio.sleep(0.1)


async def answer(connection: AsyncioConnection, step: Step, world: World) -> Any:
    async with asyncio.timeout(15):
        while True:
            request = step.build(world)
            api = registry.api_of(type(request))
            version = {"join_group": 7}.get(api.name, api.versions[-1]) if step.version is None else step.version
            response: Any = await connection.send(request, api.response, version=version)
            if isinstance(response, StreamsGroupHeartbeatResponse) and response.member_id:
                if response.member_epoch > 0:
                    world.epochs[response.member_id] = response.member_epoch
                if response.active_tasks is not None:
                    roles = (response.active_tasks, response.standby_tasks, response.warmup_tasks)
                    world.tasks[response.member_id] = [role or [] for role in roles]
            if step.until is None or step.until(response):
                return response
            await asyncio.sleep(0.1)


TASKS = ("active_tasks", "standby_tasks", "warmup_tasks", "active_partitions", "standby_partitions")


def plain(response: Any, *, is_drawn: bool) -> Any:
    """The response without what clients do not compare."""
    left_out = ("throttle_time_ms", "error_message", *(TASKS if is_drawn else ()))

    def named(value: Any) -> Any:
        if isinstance(value, TaskIds | DescribedTasks):
            # Which ones depends on the order of Kafka's hash tables.
            return {"subtopology": value.subtopology_id, "tasks": len(value.partitions)}
        if dataclasses.is_dataclass(value):
            return {
                field.name: named(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name not in left_out
            }
        return sorted(map(named, value), key=repr) if isinstance(value, list) else value

    kind = registry.api_of(type(response)).name
    if kind == "join_group":
        return {"error_code": response.error_code}
    return named(response) if "streams" in kind else comparable(response)


Played = dict[str, tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Logs and answers of both brokers, which have been stopped."""
    folder = tmp_path_factory.mktemp("played")
    found: Played = {}

    def exercise(who: str, bootstrap: str, logs: Path) -> None:
        client = Confluent(bootstrap)
        for name, partitions in TOPICS.items():
            client.create_topic(name, partitions)
        found[who] = logs, asyncio.run(play(bootstrap))

    with kctl_broker(folder / "ours", properties=PROPERTIES) as broker:
        exercise("ours", broker.bootstrap, broker.logs_dir)
    with apache_kafka(NEWEST_BROKER, folder / "apache", properties=PROPERTIES | APACHE) as bootstrap:
        exercise("apache", bootstrap, folder / "apache" / "logs")
    return found


def test_answers_are_those_of_apache_kafka(played: Played) -> None:
    _, apache = played["apache"]
    _, ours = played["ours"]
    wrong = []
    for step in STEPS:
        expected, given = (plain(answers[step.name], is_drawn=step.is_drawn) for answers in (apache, ours))
        if (expected != given) != bool(step.difference):
            wrong.append(f"{step.name} ({step.difference}):\n  apache {expected}\n  ours   {given}")
    assert not wrong, "\n" + "\n".join(wrong)


def read_records(logs: Path) -> Iterator[Record]:
    for segment in sorted((logs / "__consumer_offsets-0").glob("*.log")):
        written = segment.read_bytes()
        # A batch may end with a zero, for no headers; what follows are zeros of a segment that is allocated ahead.
        piece = cut_all(written[: len(written.rstrip(b"\0")) + 1], end_offset=1 << 40)
        for header in piece.batches:
            if not header.is_control:
                yield from iterate_records(piece.data, header)


def test_records_of_apache_kafka_are_read_and_written_again(played: Played) -> None:
    logs, _ = played["apache"]
    types = set()
    for record in read_records(logs):
        decoded = decode_key(record.key or b"")
        if decoded is None or not isinstance(decoded[1].type, RecordType):
            continue
        group_id, key = decoded
        types.add(key.type)
        assert encode_key(group_id, key) == record.key
        if record.value is not None:
            assert encode_value(Change(key, decode_value(key.type, record.value))) == record.value
    assert types == set(RecordType)


def test_records_are_those_of_apache_kafka_in_the_same_order(played: Played) -> None:
    """The keys of the batches of group "s": no record depends on when internal topics were created."""
    keys = {}
    for who, (logs, _) in played.items():
        decoded = [(decode_key(record.key or b""), record.value is None) for record in read_records(logs)]
        keys[who] = [(found, gone) for found, gone in decoded if found is not None and found[0] == "s"]
    assert keys["ours"] == keys["apache"]
    assert len(keys["ours"]) > len(RecordType)

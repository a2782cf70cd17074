"""Groups of the consumer protocol on our broker and on Apache Kafka 4.3.1: the same answers and the same records."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection, AsyncioTransport
from kctl.errors import ErrorCode
from kctl.protocol import registry
from kctl.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from kctl.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kctl.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.apis.list_groups import ListGroupsRequest
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kctl.records.batch import iterate_records
from kctl.records.header import Record
from kctl.records.salvage import cut_all
from kctl.server.coordination.consumer_groups.state import MemberAssignment, RecordType, ResolvedRegex
from kctl.server.coordination.consumer_groups.topics import topics_hash
from kctl.server.coordination.groups.newer_records import decode_key, decode_value, encode_key, encode_value
from kctl.server.coordination.newer_groups import Change, GroupEpoch, TargetEpoch
from tests.integration.clients.confluent import Confluent
from tests.integration.jvm.side_by_side import comparable
from tests.peers import probe
from tests.peers.apache_kafka import NEWEST_BROKER, apache_kafka
from tests.peers.kctl_broker import kctl_broker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

TOPICS = {"t": 4, "u": 2}
PROPERTIES = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "50000",
    "group.consumer.max.size": "4",
    # Each change is assigned at once, so that the answers do not depend on the time.
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.migration.policy": "disabled",
}
APACHE = {
    "group.consumer.max.session.timeout.ms": "60000",
}

Ids = dict[str, UUID]
FIRST = 1
"""The epoch of a group before its first member."""
Build = Callable[[Ids], Any]


class Step(NamedTuple):
    """A request, whose response is compared; `difference` is why ours is intended to differ."""

    name: str
    build: Build
    version: int | None = None
    difference: str = ""
    until: Callable[[Any], bool] | None = None
    """The request is sent again until this holds: Kafka resolves regular expressions later."""


def beat(member_id: str, epoch: int, owned: dict[str, Sequence[int]] | None = None, **fields: Any) -> Build:
    def build(ids: Ids) -> ConsumerGroupHeartbeatRequest:
        partitions = owned
        if epoch == 0:
            fields.setdefault("rebalance_timeout_ms", 30_000)
            fields.setdefault("subscribed_topic_names", ["t"])
            partitions = {} if owned is None else owned
        topics = [TopicPartitions(topic_id=ids[name], partitions=[*of]) for name, of in (partitions or {}).items()]
        return ConsumerGroupHeartbeatRequest(
            **{"group_id": "g"} | fields,
            member_id=member_id,
            member_epoch=epoch + FIRST if epoch > 0 else epoch,
            topic_partitions=None if partitions is None else topics,
        )

    return build


def without_owned(ids: Ids) -> ConsumerGroupHeartbeatRequest:
    request: ConsumerGroupHeartbeatRequest = beat("m1", 0)(ids)
    return dataclasses.replace(request, topic_partitions=None)


def commit(member_id: str, epoch: int, partition: int = 0, group: str = "g") -> Build:
    offsets = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata=""),
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=offsets)]
    generation = epoch + FIRST if epoch > 0 else epoch
    return lambda _: OffsetCommitRequest(group_id=group, member_id=member_id, generation_id=generation, topics=topics)


def fetch(member_id: str | None, epoch: int, group: str = "g") -> Build:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    asked = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch + FIRST, topics=topics)
    return lambda _: OffsetFetchRequest(groups=[asked])


def describe(*groups: str) -> Build:
    return lambda _: ConsumerGroupDescribeRequest(group_ids=[*groups], include_authorized_operations=False)


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
    Step("a group that does not exist", beat("m1", 5)),
    Step("leave a group that does not exist", beat("m1", -1)),
    Step("no group id", beat("m1", 0, group_id="")),
    Step("no member id", beat("", 0)),
    Step("no member id in version 0 to leave", beat("", -1), 0),
    Step("an epoch below -2", beat("m1", -3)),
    Step("no rebalance timeout", beat("m1", 0, rebalance_timeout_ms=-1)),
    Step("owned partitions of a new member", beat("m1", 0, {"t": [0]})),
    Step("no owned partitions", without_owned),
    Step("no subscription", beat("m1", 0, subscribed_topic_names=None)),
    Step("an empty instance id", beat("m1", 0, instance_id="")),
    Step("an empty rack", beat("m1", 0, rack_id="")),
    Step("a dynamic member leaves as a static one", beat("m1", -2)),
    Step("an unknown assignor", beat("m1", 0, server_assignor="sticky")),
    Step("an invalid expression", beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex="([")),
    Step("look ahead", beat("m1", 0, subscribed_topic_names=None, subscribed_topic_regex="t(?=x)")),
    Step("the first member", beat("m1", 0)),
    Step("it owns its partitions", beat("m1", 1, {"t": range(4)})),
    Step("nothing has changed", beat("m1", 1)),
    Step("a member that does not exist", beat("m9", 1)),
    Step("a greater epoch", beat("m1", 2)),
    Step("a smaller epoch", beat("m1", -1, instance_id="x")),
    Step("describe one member", describe("g", "none")),
    Step("the second member", beat("m2", 0)),
    Step("describe while it waits", describe("g")),
    Step("the first has to revoke", beat("m1", 1, {"t": range(4)})),
    Step("it has not revoked yet", beat("m1", 1)),
    Step("the second still waits", beat("m2", 2, {})),
    Step("describe while the first revokes", describe("g")),
    Step("commit what is being revoked", commit("m1", 1, 3)),
    Step("the first has revoked", beat("m1", 1, {"t": [0, 1]})),
    Step("its last epoch is accepted once", beat("m1", 1, {"t": [0, 1]})),
    Step("its last epoch with more partitions is not", beat("m1", 1, {"t": [0, 1, 2]})),
    Step("the second gets them", beat("m2", 2, {})),
    Step("the second owns them", beat("m2", 2, {"t": [2, 3]})),
    Step("describe when all is done", describe("g")),
    Step("commit", commit("m1", 2)),
    Step("commit with an older epoch", commit("m1", 1)),
    Step("commit another's with an older epoch", commit("m2", 1, 0)),
    Step("commit another's", commit("m2", 2, 0)),
    Step("commit with a greater epoch", commit("m1", 3)),
    Step("commit of an unknown member", commit("m9", 2)),
    Step("commit without a member", commit("", -1)),
    Step("commit in version 8", commit("m1", 2), 8),
    Step("commit to a group that does not exist", commit("m1", 2, group="none")),
    Step("commit to a group that does not exist in version 8", commit("m1", 2, group="none"), 8),
    Step("fetch", fetch("m1", 2)),
    Step("fetch without a member", fetch(None, -1 - FIRST)),
    Step("fetch with an older epoch", fetch("m1", 1)),
    Step("fetch of an unknown member", fetch("m9", 1)),
    Step("fetch of a group that does not exist", fetch("m9", 1, "none")),
    Step("subscribe to more", beat("m2", 2, {"t": [2, 3]}, subscribed_topic_names=["t", "u"])),
    Step("more partitions", beat("m2", 3, {"t": [2, 3]})),
    Step("the first follows", beat("m1", 2, {"t": [0, 1]})),
    Step("subscribe to less", beat("m2", 3, {"t": [2, 3], "u": [0, 1]}, subscribed_topic_names=["u"])),
    Step("less is owned", beat("m2", 3, {"u": [0, 1]})),
    Step("the first gets the rest", beat("m1", 3, {"t": [0, 1]})),
    Step("describe different subscriptions", describe("g")),
    Step("a static member", beat("s1", 0, instance_id="i")),
    Step("another process of the static member", beat("s2", 0, instance_id="i")),
    Step("a heartbeat of the other process", beat("s2", 5, instance_id="i")),
    Step("an unknown instance", beat("s2", 5, instance_id="j")),
    Step("the first makes room", beat("m1", 4, {"t": range(4)})),
    Step("the first has made room", beat("m1", 4, {"t": [0, 1]})),
    Step("the static member gets its part", beat("s1", 5, {}, instance_id="i")),
    Step("the static member leaves for some time", beat("s1", -2, instance_id="i")),
    Step("describe while it is away", describe("g")),
    Step("it comes back as another process", beat("s2", 0, instance_id="i")),
    Step("its old process", beat("s1", 5, instance_id="i")),
    Step("describe when it is back", describe("g")),
    Step("list", lambda _: ListGroupsRequest()),
    Step("list by type", lambda _: ListGroupsRequest(types_filter=["Consumer"])),
    Step("list another type", lambda _: ListGroupsRequest(types_filter=["classic"])),
    Step("list by state", lambda _: ListGroupsRequest(states_filter=["stable", "Reconciling"])),
    Step("describe as a classic group", lambda _: DescribeGroupsRequest(groups=["g"]), 5),
    Step(
        "a classic heartbeat",
        lambda _: HeartbeatRequest(group_id="g", generation_id=5, member_id="m9", group_instance_id=None),
    ),
    Step("delete with members", lambda _: DeleteGroupsRequest(groups_names=["g"])),
    Step(
        "delete offsets",
        lambda _: OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        ),
    ),
    Step(
        "an administrator removes members",
        lambda _: LeaveGroupRequest(
            group_id="g",
            members=[
                MemberIdentity(member_id="", group_instance_id="i"),
                MemberIdentity(member_id="", group_instance_id="none"),
            ],
        ),
    ),
    Step("the second leaves", beat("m2", -1)),
    Step("the first leaves", beat("m1", -1)),
    Step("the first leaves again", beat("m1", -1)),
    Step("describe an empty group", describe("g")),
    Step("a member of the range assignor", beat("r1", 0, group_id="r", server_assignor="range")),
    Step("another one", beat("r2", 0, group_id="r", server_assignor="range")),
    Step("describe ranges", describe("r")),
    *(
        Step(f"member {number} of four", beat(f"f{number}", 0, group_id="f", subscribed_topic_names=[topic]))
        for number, topic in enumerate("tutut")
    ),
    Step("describe a full group", describe("f")),
    Step("an unknown topic", beat("n1", 0, group_id="n", subscribed_topic_names=["none-such"])),
    Step("no topics", beat("n2", 0, group_id="n", subscribed_topic_names=[])),
    Step("a classic group joins", join_classic("c")),
    Step("a heartbeat of a classic group", beat("m1", 3, group_id="c")),
    Step("join a classic group", beat("m1", 0, group_id="c")),
    Step("describe a classic group", describe("c")),
    Step("the empty group becomes classic", join_classic("g")),
    Step("describe it", describe("g")),
    Step(
        "an expression",
        beat("x1", 0, group_id="x", subscribed_topic_names=None, subscribed_topic_regex="[tu]|v.*"),
        until=lambda response: response.error_code == ErrorCode.NONE,
    ),
    Step(
        "its topics",
        beat("x1", 0, group_id="x", subscribed_topic_names=None, subscribed_topic_regex="[tu]|v.*"),
        until=lambda response: bool(response.assignment and response.assignment.topic_partitions),
    ),
    Step("describe an expression", describe("x")),
    Step("a classic member joins others", join_classic("r")),
    Step("no expression", beat("x1", 1, {"t": range(4), "u": range(2)}, group_id="x", subscribed_topic_regex="")),
)


async def play(bootstrap: str) -> tuple[Ids, dict[str, Any]]:
    """Sends all requests one after the other."""
    host, port = probe.address(bootstrap)
    transport = AsyncioTransport()
    connection = await transport.connect(host, port, client_id="c", connect_timeout_ms=30_000, timeout_ms=60_000)
    try:
        named = [MetadataRequestTopic(name=name) for name in TOPICS]
        metadata = await connection.send(MetadataRequest(topics=named), MetadataResponse, version=10)
        ids = {topic.name or "": topic.topic_id for topic in metadata.topics}
        await until_coordinated(connection)
        return ids, {step.name: await answer(connection, step, ids) for step in STEPS}
    finally:
        await connection.close()


async def until_coordinated(connection: AsyncioConnection) -> None:
    """Creates the offsets topic, and waits until the group is coordinated."""
    async with asyncio.timeout(60):
        while True:
            request = FindCoordinatorRequest(key="g", key_type=0)
            await connection.send(request, registry.api_of(type(request)).response, version=3)
            response = await connection.send(
                ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1),
                ConsumerGroupHeartbeatResponse,
                version=1,
            )
            if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return
            await asyncio.sleep(0.1)


async def answer(connection: AsyncioConnection, step: Step, ids: Ids) -> Any:
    request = step.build(ids)
    api = registry.api_of(type(request))
    newest = {"join_group": 7, "describe_groups": 5, "offset_commit": 9, "offset_fetch": 9}
    version = newest.get(api.name, api.versions[-1]) if step.version is None else step.version
    async with asyncio.timeout(30):
        while True:
            response: Any = await connection.send(request, api.response, version=version)
            if step.until is None or step.until(response):
                return response
            await asyncio.sleep(0.1)


def plain(response: Any, ids: Ids) -> Any:
    """The response with names of topics, and without what clients do not compare."""
    if isinstance(response, JoinGroupResponse):
        return {"error_code": response.error_code, "generation_id": response.generation_id}
    names = {topic_id: name for name, topic_id in ids.items()}

    def named(value: Any) -> Any:
        if isinstance(value, TopicPartitions):
            return {"topic": names[value.topic_id], "partitions": sorted(value.partitions)}
        if dataclasses.is_dataclass(value):
            return {field.name: named(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return sorted(map(named, value), key=repr) if isinstance(value, list) else value

    return (
        comparable(response)
        if not _has_ids(response)
        else {name: value for name, value in named(response).items() if name != "throttle_time_ms"}
    )


def _has_ids(response: Any) -> bool:
    return isinstance(response, ConsumerGroupHeartbeatResponse)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Ids, dict[str, Any]]]:
    """Logs, ids of topics and answers of both brokers, which have been stopped."""
    folder = tmp_path_factory.mktemp("played")
    found: dict[str, tuple[Path, Ids, dict[str, Any]]] = {}

    def exercise(who: str, bootstrap: str, logs: Path) -> None:
        for topic, partitions in TOPICS.items():
            Confluent(bootstrap).create_topic(topic, partitions)
        found[who] = (logs, *asyncio.run(play(bootstrap)))

    with apache_kafka(NEWEST_BROKER, folder / "apache", properties=PROPERTIES | APACHE) as bootstrap:
        exercise("apache", bootstrap, folder / "apache" / "logs")
    with kctl_broker(folder / "ours", properties=PROPERTIES) as broker:
        exercise("ours", broker.bootstrap, broker.logs_dir)
    return found


def test_answers_are_those_of_apache_kafka(played: dict[str, tuple[Path, Ids, dict[str, Any]]]) -> None:
    _, apache_ids, apache = played["apache"]
    _, our_ids, ours = played["ours"]
    wrong = []
    for step in STEPS:
        expected, given = plain(apache[step.name], apache_ids), plain(ours[step.name], our_ids)
        if (expected != given) != bool(step.difference):
            wrong.append(f"{step.name} ({step.difference}):\n  apache {expected}\n  ours   {given}")
    assert not wrong, "\n" + "\n".join(wrong)


class Batch(NamedTuple):
    """The records of groups of the consumer protocol in one batch."""

    records: tuple[Record, ...]


def read_batches(logs: Path) -> list[list[Record]]:
    """The records of each batch of the offsets topic."""
    batches = []
    for segment in sorted((logs / "__consumer_offsets-0").glob("*.log")):
        piece = cut_all(segment.read_bytes().rstrip(b"\0"), end_offset=1 << 40)
        batches += [list(iterate_records(piece.data, header)) for header in piece.batches if not header.is_control]
    return batches


def changes_of(records: Sequence[Record]) -> Iterator[tuple[str, Change, Record]]:
    for record in records:
        decoded = decode_key(record.key or b"")
        if decoded is not None:
            group_id, key = decoded
            value = None if record.value is None else decode_value(key.type, record.value)
            yield group_id, Change(key, value), record


def test_records_of_apache_kafka_are_read_and_written_again_byte_for_byte(
    played: dict[str, tuple[Path, Ids, dict[str, Any]]],
) -> None:
    logs, ids, _ = played["apache"]
    types = set()
    for batch in read_batches(logs):
        for group_id, change, record in changes_of(batch):
            types.add(change.key.type)
            assert encode_key(group_id, change.key) == record.key
            if change.value is None or change.key.type is RecordType.TOPICS:
                continue
            encoded = encode_value(change)
            assert encoded is not None
            assert record.value is not None
            # Kafka lists topics and partitions in the order of its hash tables.
            assert sorted(encoded) == sorted(record.value)
            if len(change.value if isinstance(change.value, dict) else ()) < 2:
                assert decode_value(change.key.type, encoded) == change.value
    assert types == set(RecordType)
    topics = Topics(ids)
    hashes = {
        change.value.metadata_hash
        for batch in read_batches(logs)
        for _, change, _ in changes_of(batch)
        if isinstance(change.value, GroupEpoch)
    }
    assert hashes == {topics_hash(names, topics) for names in ((), ("t",), ("u",), ("t", "u"))} & hashes


class Topics:
    """state.ClusterTopics of the test."""

    topics_version = 1

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def topic_id(self, topic: str) -> UUID:
        return self._ids[topic]

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def partition_count(self, topic: str) -> int | None:
        return TOPICS.get(topic)

    def partition_racks(self, topic: str) -> list[list[str]]:
        return [[] for _ in range(TOPICS[topic])]


def test_records_are_those_of_apache_kafka(played: dict[str, tuple[Path, Ids, dict[str, Any]]]) -> None:
    written = {}
    for who, (logs, ids, _) in played.items():
        topics = Topics(ids)
        hashes = {topics_hash(names, topics): ",".join(names) for names in ((), ("t",), ("u",), ("t", "u"))}
        per_group: dict[str, list[list[str]]] = {}
        for batch in read_batches(logs):
            changes = [(group_id, without_ids(change, topics, hashes)) for group_id, change, _ in changes_of(batch)]
            if changes:
                # Kafka writes members in the order of its hash tables.
                per_group.setdefault(changes[0][0], []).append(sorted(text for _, text in changes))
        # How often the group with the expression is asked depends on the time.
        written[who] = {group_id: batches for group_id, batches in per_group.items() if group_id != "x"}
    for group_id, batches in written["apache"].items():
        assert batches == written["ours"][group_id], group_id


def without_ids(change: Change, topics: Topics, hashes: dict[int, str]) -> str:
    value: Any = change.value
    match value:
        case GroupEpoch(epoch, metadata_hash):
            value = (epoch, hashes[metadata_hash])
        case TargetEpoch(epoch):
            value = epoch
        case MemberAssignment():
            partitions = named(value.assigned, topics), named(value.revoking, topics)
            value = (value.epoch, value.previous_epoch, value.state, *partitions)
        case ResolvedRegex(names):
            value = names
        case dict():
            value = named(value, topics)
    return f"{change.key.type.name} {change.key.name} {value}"


def named(partitions: Mapping[UUID, Any], topics: Topics) -> list[tuple[str | None, Any]]:
    return sorted(
        (topics.topic_name(topic_id), dict(numbers) if isinstance(numbers, dict) else sorted(numbers))
        for topic_id, numbers in partitions.items()
    )

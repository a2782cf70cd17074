"""Groups that are converted with their members, on our broker and on Apache Kafka 4.3.1: the same answers and records.

Members of the classic and of the consumer protocol share groups; ids of members are replaced by the names that the
story gives them.
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

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
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.apis.list_groups import ListGroupsRequest
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kctl.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kctl.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from kctl.protocol.consumer_protocol import TopicPartitions as Owned
from kctl.records.internal.topics import GroupMetadataKey, decode_group_metadata_value, decode_offsets_key
from kctl.server.coordination.consumer_groups.topics import topics_hash
from tests.integration.clients.confluent import Confluent
from tests.integration.jvm import test_same_consumer_groups as plain_groups
from tests.integration.jvm.side_by_side import comparable
from tests.integration.jvm.test_same_consumer_groups import TOPICS, Ids, Topics, until_coordinated, without_ids
from tests.peers import probe
from tests.peers.apache_kafka import NEWEST_BROKER, apache_kafka
from tests.peers.kctl_broker import kctl_broker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

PROPERTIES = plain_groups.PROPERTIES | {"group.consumer.migration.policy": "bidirectional"}
VERSIONS = {"join_group": 7, "leave_group": 4, "describe_groups": 5, "offset_commit": 8, "offset_fetch": 9}


def subscription(*owned: int, version: int = 1, topics: tuple[str, ...] = ("t",)) -> bytes:
    partitions = [Owned(topic="t", partitions=[*owned])] if owned else []
    return encode_subscription(ConsumerProtocolSubscription(topics=[*topics], owned_partitions=partitions), version)


class Story:
    """The members of groups, which send requests one after the other."""

    def __init__(self, connection: AsyncioConnection, ids: Ids) -> None:
        self.answers: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        """What stands for the ids of members."""
        self._connection = connection
        self._ids = ids
        self._members: dict[str, str] = {}

    async def ask(self, what: str, request: Any, version: int | None = None) -> Any:
        api = registry.api_of(type(request))
        newest = VERSIONS.get(api.name, api.versions[-1]) if version is None else version
        async with asyncio.timeout(30):
            response: Any = await self._connection.send(request, api.response, version=newest)
        assert what not in self.answers, what
        self.answers[what] = self.plain(response)
        return response

    def plain(self, value: Any) -> Any:
        """The value with names instead of ids, assignments decoded, and without times."""
        topics = {topic_id: name for name, topic_id in self._ids.items()}
        if dataclasses.is_dataclass(value):
            inner = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            inner.pop("throttle_time_ms", None)
            # Kafka's text names the id; only whether there is one is compared otherwise.
            if inner.get("error_message") is not None and not isinstance(value, ConsumerGroupHeartbeatResponse):
                inner["error_message"] = "text"
            if isinstance(inner.get("assignment"), bytes):
                blob = inner["assignment"]
                inner["assignment"] = comparable(decode_assignment(blob)) if blob else None
            return {name: self.plain(field) for name, field in inner.items()}
        if isinstance(value, list):
            return sorted(map(self.plain, value), key=repr)
        if isinstance(value, str):
            for member_id, name in self.names.items():
                value = value.replace(member_id, name)
        return topics.get(value, value) if not isinstance(value, list | dict) else value

    async def join(
        self, what: str, name: str, group: str = "g", *, instance: str | None = None, protocols: Any = None, **more: Any
    ) -> int:
        """JoinGroup, with a second one if the first one only gets a member id; returns the generation."""
        wanted = protocols or [("range", subscription())]
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self._members.get(name, ""),
            group_instance_id=instance,
            protocol_type=more.get("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=each, metadata=metadata) for each, metadata in wanted],
        )
        api = registry.api_of(JoinGroupRequest)
        response: Any = await self._connection.send(request, api.response, version=7)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._knows(name, response.member_id)
            response = await self._connection.send(
                dataclasses.replace(request, member_id=response.member_id), api.response, version=7
            )
        if response.error_code == ErrorCode.NONE:
            self._knows(name, response.member_id)
        self.answers[what] = self.plain(response)
        generation: int = response.generation_id
        return generation

    def _knows(self, name: str, member_id: str) -> None:
        self._members[name] = member_id
        self.names[member_id] = name

    async def sync(self, what: str, name: str, generation: int, group: str = "g", **more: Any) -> None:
        given: dict[str, list[int]] = more.pop("given", {})
        assignments = [
            SyncGroupRequestAssignment(
                member_id=self._members[to],
                assignment=encode_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[Owned(topic="t", partitions=numbers)], user_data=more.get("user_data")
                    ),
                    1,
                ),
            )
            for to, numbers in given.items()
        ]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=self._members.get(name, name),
            group_instance_id=more.get("instance"),
            protocol_type=more.get("protocol_type", "consumer"),
            protocol_name=more.get("protocol_name", "range"),
            assignments=assignments,
        )
        await self.ask(what, request)

    async def beat(self, what: str, name: str, generation: int, group: str = "g", instance: str | None = None) -> None:
        member_id = self._members.get(name, name)
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        await self.ask(what, request)

    async def hear(
        self, what: str, name: str, epoch: int, owned: list[int] | None = None, group: str = "g", **more: Any
    ) -> Any:
        """ConsumerGroupHeartbeat."""
        if epoch == 0:
            more = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"]} | more
            owned = owned or []
        topics = None if owned is None else [TopicPartitions(topic_id=self._ids["t"], partitions=owned)] * bool(owned)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=name, member_epoch=epoch, topic_partitions=topics, **more
        )
        return await self.ask(what, request)

    async def commit(self, what: str, name: str, generation: int, partition: int = 0, version: int = 8) -> None:
        partitions = [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata="")
        ]
        request = OffsetCommitRequest(
            group_id="g",
            member_id=self._members.get(name, name),
            generation_id=generation,
            topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
        )
        await self.ask(what, request, version)

    async def leave(self, what: str, *leavers: tuple[str, str | None], group: str = "g") -> None:
        members = [
            MemberIdentity(member_id=self._members.get(name, name), group_instance_id=instance)
            for name, instance in leavers
        ]
        await self.ask(what, LeaveGroupRequest(group_id=group, members=members))

    async def describe(self, what: str, group: str = "g") -> None:
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        await self.ask(what, request)


async def tell(story: Story) -> None:
    """Roll a group to the consumer protocol and back."""
    # To the consumer protocol.
    generation = await story.join("the first", "c1")
    await story.sync("it leads", "c1", generation, given={"c1": [0, 1, 2, 3]})
    await story.hear("a member of the consumer protocol", "m1", 0)
    await story.describe("both protocols")
    await story.ask("describe it as a classic group", DescribeGroupsRequest(groups=["g"]))
    await story.ask("list", ListGroupsRequest())
    await story.beat("the first has to join again", "c1", generation)
    await story.commit("it commits", "c1", generation)
    await story.commit("it commits with another generation", "c1", generation + 1)
    await story.sync("it cannot sync", "c1", generation)
    again = await story.join("it joins again", "c1", protocols=[("range", subscription(0, 1, 2, 3))])
    await story.sync("it keeps a part", "c1", again)
    await story.beat("it has to give up the rest", "c1", again)
    await story.describe("while it revokes")
    await story.hear("the other has to wait", "m1", 2, [])
    again = await story.join("it has given up the rest", "c1", protocols=[("range", subscription(0, 1))])
    await story.sync("it has its part", "c1", again)
    await story.beat("it is done", "c1", again)
    await story.hear("the other gets the rest", "m1", 2, [])
    await story.hear("and owns it", "m1", 2, [2, 3])
    await story.describe("when all is done")
    # Errors.
    await story.beat("another generation", "c1", again - 1)
    await story.beat("an unknown member", "none", again)
    await story.beat("a member of the other protocol", "m1", 2)
    await story.beat("an unknown instance", "c1", again, instance="none")
    await story.sync("sync with another generation", "c1", again - 1)
    await story.sync("sync with another protocol", "c1", again, protocol_name="roundrobin")
    await story.sync("sync with another protocol type", "c1", again, protocol_type="connect")
    await story.sync("an unknown member syncs", "none", again)
    await story.join("no protocol in common", "c9", protocols=[("roundrobin", subscription())])
    await story.join("another protocol type", "c9", protocol_type="connect")
    await story.join("a malformed subscription", "c9", instance="c9", protocols=[("range", b"\0\1\0\0")])
    await story.commit("commit as before", "c1", again)
    await story.commit("commit with the generation before", "c1", again - 1)
    await story.commit("commit what it does not own", "c1", again - 1, 3)
    await story.commit("commit with a later generation", "c1", again + 1)
    await story.commit("a member of the other protocol in an old version", "m1", 2)
    asked = OffsetFetchRequestGroup(group_id="g", member_id=story_id(story, "c1"), member_epoch=again + 1, topics=None)
    await story.ask("fetch offsets with another generation", OffsetFetchRequest(groups=[asked]))
    # Static members.
    other = [("range", subscription(topics=("u",)))]
    static = await story.join("a static member", "s1", instance="i", protocols=other)
    await story.sync("it syncs", "s1", static, instance="i")
    await story.join("another process", "s2", instance="i", protocols=other)
    await story.beat("the old process", "s1", static, instance="i")
    await story.hear("a process of the other protocol", "s3", 0, instance_id="i", subscribed_topic_names=["u"])
    await story.beat("the second process", "s2", static, instance="i")
    await story.describe("with a static member")
    await story.leave("leave", ("none", None), ("", "i"), ("none", "i"), ("", "none"))
    await story.describe("without the static member")
    await story.hear("it follows", "m1", 2, [2, 3])
    # Back to the classic protocol.
    await story.hear("the last one of the consumer protocol leaves", "m1", -1)
    await story.ask("list classic groups", ListGroupsRequest(types_filter=["classic"]))
    await story.describe("describe it as a consumer group")
    generation = await story.join("the first joins once more", "c1")
    await story.sync("it leads once more", "c1", generation, given={"c1": [0, 1, 2, 3]})
    await story.beat("it is stable", "c1", generation)
    await story.leave("it leaves", ("c1", None))
    # The last member of the consumer protocol is a static one, which is replaced.
    generation = await story.join("a static group", "h1", "h", instance="i")
    await story.sync("a static group syncs", "h1", generation, "h", instance="i", given={"h1": [0, 1, 2, 3]})
    await story.hear("it is replaced", "h2", 0, group="h", instance_id="i")
    await story.describe("after that", "h")
    generation = await story.join("it is replaced by a classic one", "h3", "h", instance="i")
    await story.ask("list once more", ListGroupsRequest(types_filter=["classic"]))
    await story.sync("it has its assignment", "h3", generation, "h", instance="i")
    # Groups that are not converted.
    generation = await story.join("data of an assignor", "u1", "u")
    await story.sync("it is opaque", "u1", generation, "u", given={"u1": [0]}, user_data=b"x")
    await story.hear("it would be lost", "m1", 0, group="u")
    await story.join("not a consumer", "k1", "k", protocol_type="connect")
    await story.hear("which stays", "m1", 0, group="k")


def story_id(story: Story, name: str) -> str:
    return next(member_id for member_id, known in story.names.items() if known == name)


async def play(bootstrap: str) -> tuple[Ids, Story]:
    host, port = probe.address(bootstrap)
    transport = AsyncioTransport()
    connection = await transport.connect(host, port, client_id="c", connect_timeout_ms=30_000, timeout_ms=60_000)
    try:
        named = [MetadataRequestTopic(name=name) for name in TOPICS]
        metadata = await connection.send(MetadataRequest(topics=named), MetadataResponse, version=10)
        ids = {topic.name or "": topic.topic_id for topic in metadata.topics}
        await until_coordinated(connection)
        story = Story(connection, ids)
        await tell(story)
        return ids, story
    finally:
        await connection.close()


def record_texts(logs: Path, ids: Ids, story: Story) -> dict[str, list[list[str]]]:
    """The records of each batch, by group, with names instead of ids."""
    topics = Topics(ids)
    hashes = {topics_hash(names, topics): ",".join(names) for names in ((), ("t",), ("u",), ("t", "u"))}
    groups: dict[str, list[list[str]]] = {}
    for batch in plain_groups.read_batches(logs):
        changes = list(plain_groups.changes_of(batch))
        texts = [without_ids(change, topics, hashes) for _, change, _ in changes]
        for record in batch:
            key = decode_offsets_key(record.key or b"")
            if isinstance(key, GroupMetadataKey) and changes:
                text = "deleted" if record.value is None else classic_text(record.value)
                texts.append(f"classic group {text}")
        if changes:
            for member_id, name in story.names.items():
                texts = [text.replace(member_id, name) for text in texts]
            # Kafka writes members in the order of its hash tables.
            groups.setdefault(changes[0][0], []).append(sorted(texts))
    return groups


def classic_text(value: bytes) -> str:
    group = decode_group_metadata_value(value)
    members = [
        (
            member.member_id,
            member.group_instance_id,
            member.rebalance_timeout,
            member.session_timeout,
            comparable(decode_assignment(member.assignment)),
            bytes(member.subscription),
        )
        for member in group.members
    ]
    return f"{group.generation} {group.protocol_type} {group.protocol} {group.leader} {members}"


def test_groups_are_converted_as_by_apache_kafka(tmp_path: Path) -> None:
    stories: dict[str, Story] = {}
    records: dict[str, dict[str, list[list[str]]]] = {}

    def exercise(who: str, bootstrap: str, logs: Path) -> None:
        for topic, partitions in TOPICS.items():
            Confluent(bootstrap).create_topic(topic, partitions)
        ids, stories[who] = asyncio.run(play(bootstrap))
        records[who] = record_texts(logs, ids, stories[who])

    with apache_kafka(NEWEST_BROKER, tmp_path / "apache", properties=PROPERTIES | plain_groups.APACHE) as bootstrap:
        exercise("apache", bootstrap, tmp_path / "apache" / "logs")
    with kctl_broker(tmp_path / "ours", properties=PROPERTIES) as broker:
        exercise("ours", broker.bootstrap, broker.logs_dir)
    wrong = [
        f"{what}:\n  apache {expected}\n  ours   {stories['ours'].answers[what]}"
        for what, expected in stories["apache"].answers.items()
        if expected != stories["ours"].answers[what]
    ]
    assert not wrong, "\n" + "\n".join(wrong)
    for group_id, batches in records["apache"].items():
        assert batches == records["ours"][group_id], group_id

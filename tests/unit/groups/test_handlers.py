"""The handlers of the group APIs in every version, from request bytes to response bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kctl.errors import ErrorCode, ZooKeeperError
from kctl.model import ZERO_UUID
from kctl.protocol import codec, registry
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.apis.list_groups import ListGroupsRequest
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
from kctl.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kctl.server.coordination.ports import CoordinatorNode
from kctl.server.handlers.delete_groups import DeleteGroupsHandler
from kctl.server.handlers.describe_groups import DescribeGroupsHandler
from kctl.server.handlers.find_coordinator import (
    LOOKUP_CLIENTS_MAX,
    LOOKUPS_MS,
    LOOKUPS_WITHOUT_GROUP,
    WAIT_FOR_GROUP_MS,
    FindCoordinatorHandler,
    UselessLookups,
)
from kctl.server.handlers.heartbeat import HeartbeatHandler
from kctl.server.handlers.join_group import JoinGroupHandler
from kctl.server.handlers.leave_group import LeaveGroupHandler
from kctl.server.handlers.list_groups import ListGroupsHandler
from kctl.server.handlers.offset_commit import OffsetCommitHandler
from kctl.server.handlers.offset_delete import OffsetDeleteHandler
from kctl.server.handlers.offset_fetch import OffsetFetchHandler
from kctl.server.handlers.sync_group import SyncGroupHandler
from kctl.server.handlers.txn_offset_commit import TxnOffsetCommitHandler
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.requests.quotas.accounts import RequestAccount
from kctl.system.environment import TimerTask
from kctl.testing.sim_loop import SimLoop, simulate
from tests.rows import for_rows
from tests.unit.groups.hosting import Host
from tests.unit.groups.world import subscription


class Topics:
    """ports.TopicNames: topic "t" has partitions 0 and 1."""

    topic_id_of_t = UUID(int=7)

    def has_partition(self, topic: str, partition: int) -> bool:
        return topic == "t" and partition in {0, 1}

    def topic_name(self, topic_id: UUID) -> str | None:
        return "t" if topic_id == self.topic_id_of_t else None

    def topic_id(self, topic: str) -> UUID:
        return self.topic_id_of_t if topic == "t" else ZERO_UUID


class OldOffsets:
    """ports.ConsumerOffsetsInZooKeeper in a dict; topic partition ("t", 1) fails."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, str, int], int] = {}

    async def get(self, group_id: str, topic: str, partition: int) -> int | None:
        if partition == 1:
            raise ZooKeeperError("gone")
        return self.offsets.get((group_id, topic, partition))

    async def set(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        if partition == 1:
            raise ZooKeeperError("gone")
        self.offsets[group_id, topic, partition] = offset


class Broker:
    """All group handlers over one coordinator, called through encoded requests and responses as by dispatch."""

    def __init__(self, loop: SimLoop, **config: Any) -> None:
        self.host = Host(loop, group_initial_rebalance_delay_ms=0, offset_metadata_max_bytes=10, **config)
        coordinator, topics, zookeeper = self.host.coordinator, Topics(), OldOffsets()
        self.zookeeper = zookeeper
        self._handlers: dict[str, Any] = {
            "JoinGroup": JoinGroupHandler(coordinator),
            "SyncGroup": SyncGroupHandler(coordinator),
            "Heartbeat": HeartbeatHandler(coordinator),
            "LeaveGroup": LeaveGroupHandler(coordinator),
            "OffsetCommit": OffsetCommitHandler(
                coordinator, topics, zookeeper, config=self.host.config, clock=self.host.clock
            ),
            "OffsetFetch": OffsetFetchHandler(coordinator, topics, zookeeper),
            "DescribeGroups": DescribeGroupsHandler(coordinator),
            "ListGroups": ListGroupsHandler(coordinator),
            "DeleteGroups": DeleteGroupsHandler(coordinator),
            "OffsetDelete": OffsetDeleteHandler(coordinator, topics),
            "TxnOffsetCommit": TxnOffsetCommitHandler(coordinator, topics, self.host.clock),
        }

    async def call(self, request: Any, version: int) -> Any:
        api = registry.api_of(type(request))
        request, _ = codec.decode(type(request), codec.encode_bytes(request, version), version)
        response = self._handlers[api.kafka_name].handle(request, context(version))
        if isinstance(response, Awaitable):
            response = await response
        return codec.decode(api.response, codec.encode_bytes(response, version), version)[0]

    async def member(self, version: int = 5, group_id: str = "g") -> tuple[str, int]:
        """A stable group with one member: its member id and generation."""
        joined = await self.call(join(group_id=group_id), version)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = await self.call(join(group_id=group_id, member_id=joined.member_id), version)
        assert joined.error_code == ErrorCode.NONE
        await self.call(sync(joined, group_id=group_id), 0)
        return joined.member_id, joined.generation_id


def context(version: int) -> RequestContext:
    return RequestContext(version, 1, "client", Peer("/127.0.0.1", "PLAINTEXT"))


def join(*, group_id: str = "g", member_id: str = "", instance: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
    )


def sync(joined: Any, *, group_id: str = "g", **options: Any) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
        **options,
    )


def commit(*partitions: tuple[str, int], metadata: str | None = "m", **options: Any) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=5, committed_metadata=metadata
                    )
                ],
            )
            for topic, partition in partitions
        ],
        **options,
    )


def fetch(*partitions: int, topic: str = "t", group_id: str = "g") -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))]
    return OffsetFetchRequest(group_id=group_id, topics=topics)


def on_a_broker(play: Any) -> None:
    async def main(loop: SimLoop) -> None:
        broker = Broker(loop)
        await broker.host.start()
        await play(broker)
        await broker.host.coordinator.stop()

    simulate(main, seed=1)


def errors_of(response: Any) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_commit_with_the_maximum_retention_never_expires(version: int) -> None:
    async def play(broker: Broker) -> None:
        requested = commit(("t", 0), retention_time_ms=(1 << 63) - 1)
        assert errors_of(await broker.call(requested, version)) == [ErrorCode.NONE]
        stable = fetch(0)
        stable.require_stable = True
        [topic] = (await broker.call(stable, 7)).topics
        assert (topic.partitions[0].error_code, topic.partitions[0].committed_offset) == (ErrorCode.NONE, 5)

    on_a_broker(play)


def commit_by_id(*topic_ids: UUID) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")
    topics = [OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition]) for topic_id in topic_ids]
    return OffsetCommitRequest(group_id="g", topics=topics)


def fetch_by_id(*topic_ids: UUID, is_all: bool = False) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopic(topic_id=topic_id, partition_indexes=[0]) for topic_id in topic_ids]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None if is_all else topics)])


def test_offsets_are_committed_and_fetched_by_topic_id() -> None:
    async def play(broker: Broker) -> None:
        here, nowhere = Topics.topic_id_of_t, UUID(int=8)
        committed = await broker.call(commit_by_id(here, nowhere), 10)
        assert [topic.topic_id for topic in committed.topics] == [here, nowhere]
        assert errors_of(committed) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
        [group] = (await broker.call(fetch_by_id(nowhere, here), 10)).groups
        assert [
            (topic.topic_id, partition.error_code, partition.committed_offset)
            for topic in group.topics
            for partition in topic.partitions
        ] == [(here, ErrorCode.NONE, 5), (nowhere, ErrorCode.UNKNOWN_TOPIC_ID, -1)]
        [group] = (await broker.call(fetch_by_id(is_all=True), 10)).groups
        assert [(topic.topic_id, len(topic.partitions)) for topic in group.topics] == [(here, 1)]

    on_a_broker(play)


def test_a_group_that_does_not_exist_is_an_error_from_version_6_on() -> None:
    async def play(broker: Broker) -> None:
        for version, error, message in (
            (5, ErrorCode.NONE, None),
            (6, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
        ):
            [group] = (await broker.call(DescribeGroupsRequest(groups=["g"]), version)).groups
            assert (group.error_code, group.group_state, group.error_message) == (error, "Dead", message)

    on_a_broker(play)


@for_rows("version", range(10))
def test_join_group_of_every_version(version: int) -> None:
    async def play(broker: Broker) -> None:
        joined = await broker.call(join(), version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert (joined.generation_id, joined.leader, joined.members) == (-1, "", [])
            assert joined.protocol_name == (None if version >= 7 else "")
            joined = await broker.call(join(member_id=joined.member_id), version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert joined.leader == joined.member_id == joined.members[0].member_id
        assert joined.members[0].metadata == subscription("t")
        assert joined.member_id.startswith("client-")

    on_a_broker(play)


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9])
def test_join_group_of_a_static_member(version: int) -> None:
    async def play(broker: Broker) -> None:
        joined = await broker.call(join(instance="i"), version)
        assert joined.error_code == ErrorCode.NONE
        assert joined.members[0].group_instance_id == "i"
        again = await broker.call(join(instance="i"), version)
        assert again.error_code == ErrorCode.NONE

    on_a_broker(play)


def test_static_members_are_listed_for_a_leader_with_an_older_version() -> None:
    """A JoinGroup v2 leader and a v5 static follower in one group."""

    async def play(broker: Broker) -> None:
        leader = asyncio.ensure_future(broker.call(join(), 2))
        await asyncio.sleep(0)
        follower = asyncio.ensure_future(broker.call(join(instance="i"), 5))
        assert len((await leader).members) == 2
        assert (await follower).error_code == ErrorCode.NONE

    on_a_broker(play)


@pytest.mark.parametrize("version", [0, 1])
def test_join_group_v0_uses_the_session_timeout_as_rebalance_timeout(version: int) -> None:
    async def play(broker: Broker) -> None:
        await broker.member(version)
        late = asyncio.ensure_future(broker.call(join(), version))
        await asyncio.sleep(9.9)
        assert not late.done()
        await asyncio.sleep(0.2)
        assert late.done()

    on_a_broker(play)


@for_rows("version", range(6))
def test_sync_group_of_every_version(version: int) -> None:
    async def play(broker: Broker) -> None:
        joined = await broker.call(join(), 3)
        protocol = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        synced = await broker.call(sync(joined, **protocol), version)
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        assert synced.protocol_name == ("range" if version >= 5 else None)

    on_a_broker(play)


def test_sync_group_v5_must_name_the_protocol() -> None:
    async def play(broker: Broker) -> None:
        joined = await broker.call(join(), 3)
        refused = await broker.call(sync(joined, protocol_type="consumer"), 5)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    on_a_broker(play)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat_checks_the_member(version: int) -> None:
    async def play(broker: Broker) -> None:
        member_id, generation = await broker.member()
        beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        assert (await broker.call(beat, version)).error_code == ErrorCode.NONE
        beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id="unknown-member")
        assert (await broker.call(beat, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    on_a_broker(play)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_leave_group_of_one_member(version: int) -> None:
    async def play(broker: Broker) -> None:
        member_id, _ = await broker.member()
        for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            left = await broker.call(LeaveGroupRequest(group_id="g", member_id=member_id), version)
            assert left.error_code == expected
        left = await broker.call(LeaveGroupRequest(group_id="", member_id=member_id), version)
        assert left.error_code == ErrorCode.INVALID_GROUP_ID

    on_a_broker(play)


@pytest.mark.parametrize("version", [3, 4])
def test_leave_group_of_many_members(version: int) -> None:
    async def play(broker: Broker) -> None:
        member_id, _ = await broker.member()
        members = [MemberIdentity(member_id=member_id), MemberIdentity(member_id="", group_instance_id="i")]
        left = await broker.call(LeaveGroupRequest(group_id="g", members=members), version)
        assert left.error_code == ErrorCode.NONE
        assert [(m.member_id, m.group_instance_id, m.error_code) for m in left.members] == [
            (member_id, None, ErrorCode.NONE),
            ("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
        refused = await broker.call(LeaveGroupRequest(group_id="", members=members), version)
        assert (refused.error_code, refused.members) == (ErrorCode.INVALID_GROUP_ID, [])

    on_a_broker(play)


@for_rows("version", range(1, 9))
def test_offset_commit_of_every_version(version: int) -> None:
    async def play(broker: Broker) -> None:
        member_id, generation = await broker.member()
        request = commit(("t", 0), ("x", 0), ("t", 9), generation_id=generation, member_id=member_id)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors_of(await broker.call(request, version)) == [ErrorCode.NONE, unknown, unknown]
        found = await broker.call(fetch(0), 7)
        assert found.topics[0].partitions[0].committed_offset == 5
        assert found.topics[0].partitions[0].metadata == "m"

    on_a_broker(play)


@pytest.mark.parametrize("metadata", [None, ""])
def test_offset_commit_without_metadata_stores_none(metadata: str | None) -> None:
    async def play(broker: Broker) -> None:
        await broker.call(commit(("t", 0), metadata=metadata), 2)
        assert (await broker.call(fetch(0), 7)).topics[0].partitions[0].metadata == ""

    on_a_broker(play)


def test_offset_commit_with_too_much_metadata_is_refused() -> None:
    async def play(broker: Broker) -> None:
        for version in (0, 8):
            refused = await broker.call(commit(("t", 0), metadata="x" * 11), version)
            assert errors_of(refused) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]

    on_a_broker(play)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_commit_with_a_retention_time_expires_by_it(version: int) -> None:
    async def play(broker: Broker) -> None:
        await broker.call(commit(("t", 0), retention_time_ms=60_000), version)
        broker.host.coordinator.expire()
        assert (await broker.call(fetch(0), 7)).topics[0].partitions[0].committed_offset == 5
        await asyncio.sleep(61)
        broker.host.coordinator.expire()
        assert (await broker.call(fetch(0), 7)).topics[0].partitions[0].committed_offset == -1

    on_a_broker(play)


def test_offset_commit_and_fetch_v0_use_zookeeper() -> None:
    async def play(broker: Broker) -> None:
        completed = await broker.call(commit(("t", 0), ("t", 1), ("x", 0)), 0)
        assert errors_of(completed) == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert broker.zookeeper.offsets == {("g", "t", 0): 5}
        found = await broker.call(fetch(0, 1), 0)
        assert [p.committed_offset for p in found.topics[0].partitions] == [5, -1]
        assert errors_of(found) == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]
        missing = await broker.call(fetch(0, group_id="other"), 0)
        assert errors_of(missing) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert (await broker.call(fetch(0), 1)).topics[0].partitions[0].committed_offset == -1

    on_a_broker(play)


@for_rows("version", range(1, 8))
def test_offset_fetch_of_every_version(version: int) -> None:
    async def play(broker: Broker) -> None:
        await broker.call(commit(("t", 0)), 8)
        found = await broker.call(fetch(0, 1), version)
        offsets = [(p.partition_index, p.committed_offset, p.error_code) for p in found.topics[0].partitions]
        assert offsets == [(0, 5, ErrorCode.NONE), (1, -1, ErrorCode.NONE)]
        assert found.error_code == ErrorCode.NONE

    on_a_broker(play)


@for_rows("version", range(2, 8))
def test_offset_fetch_of_all_partitions(version: int) -> None:
    async def play(broker: Broker) -> None:
        await broker.call(commit(("t", 0)), 8)
        found = await broker.call(OffsetFetchRequest(group_id="g", topics=None), version)
        assert [(topic.name, len(topic.partitions)) for topic in found.topics] == [("t", 1)]

    on_a_broker(play)


@for_rows("version", range(1, 8))
def test_offset_fetch_puts_the_group_error_in_the_field_of_its_version(version: int) -> None:
    async def play(broker: Broker) -> None:
        broker.host.log.partitions = None
        refused = await broker.call(fetch(0, 1), version)
        if version == 1:
            assert errors_of(refused) == [ErrorCode.NOT_COORDINATOR] * 2
        else:
            assert (refused.error_code, refused.topics) == (ErrorCode.NOT_COORDINATOR, [])

    on_a_broker(play)


@for_rows("version", range(6))
def test_describe_groups_of_every_version(version: int) -> None:
    async def play(broker: Broker) -> None:
        member_id, _ = await broker.member()
        requested = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=version >= 3)
        group, missing = (await broker.call(requested, version)).groups
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"mine")
        assert (missing.error_code, missing.group_state, missing.members) == (ErrorCode.NONE, "Dead", [])
        assert group.authorized_operations == (328 if version >= 3 else -(2**31))
        broker.host.log.partitions = None
        (refused,) = (await broker.call(DescribeGroupsRequest(groups=["other"]), version)).groups
        assert (refused.error_code, refused.group_state) == (ErrorCode.NOT_COORDINATOR, "")

    on_a_broker(play)


@pytest.mark.parametrize("version", range(5))
def test_list_groups_of_every_version(version: int) -> None:
    async def play(broker: Broker) -> None:
        await broker.member()
        (group,) = (await broker.call(ListGroupsRequest(), version)).groups
        state = "Stable" if version >= 4 else ""
        assert (group.group_id, group.protocol_type, group.group_state) == ("g", "consumer", state)

    on_a_broker(play)


def test_list_groups_v4_filters_by_state() -> None:
    async def play(broker: Broker) -> None:
        await broker.member()
        listed = await broker.call(ListGroupsRequest(states_filter=["Empty", "Dead"]), 4)
        assert listed.groups == []

    on_a_broker(play)


@pytest.mark.parametrize("version", range(3))
def test_delete_groups_of_every_version(version: int) -> None:
    async def play(broker: Broker) -> None:
        await broker.member(group_id="full")
        await broker.call(commit(("t", 0)), 8)
        deleted = await broker.call(DeleteGroupsRequest(groups_names=["g", "full", "none"]), version)
        assert [(result.group_id, result.error_code) for result in deleted.results] == [
            ("g", ErrorCode.NONE),
            ("full", ErrorCode.NON_EMPTY_GROUP),
            ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ]

    on_a_broker(play)


def test_offset_delete_removes_the_last_offset_and_the_group() -> None:
    async def play(broker: Broker) -> None:
        await broker.call(commit(("t", 0)), 8)
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
        deleted = await broker.call(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert deleted.error_code == ErrorCode.NONE
        assert errors_of(deleted) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        again = await broker.call(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert (again.error_code, again.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    on_a_broker(play)


class KnownTopics:
    """ports.InternalTopics: the offsets topic exists once it was requested."""

    def __init__(self) -> None:
        self.requested_items: list[str] = []
        self.partitions: int | None = None
        self.leader: CoordinatorNode | None = None

    def partition_count(self, topic: str) -> int | None:
        return self.partitions

    def leader_of(self, topic: str, partition: int, listener: str) -> CoordinatorNode | None:
        assert (topic, partition, listener) == ("__consumer_offsets", 3, "PLAINTEXT")
        return self.leader

    def ensure_topic(self, topic: str, account: RequestAccount | None) -> None:
        self.requested_items.append(topic)


class CollectingTimer:
    """environment.Timer that the test fires."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> TimerTask:
        assert delay_ms == WAIT_FOR_GROUP_MS
        self.callbacks.append(callback)
        return self

    def cancel(self) -> None:
        self.callbacks.clear()


def find(topics: KnownTopics, version: int, **options: Any) -> Any:
    request = FindCoordinatorRequest(key="g", **options)
    handler = FindCoordinatorHandler(topics, is_unknown_here=lambda _: False, now_ms=lambda: 0, timer=CollectingTimer())
    response = handler.handle(request, context(version))
    return codec.decode(type(response), codec.encode_bytes(response, version), version)[0]


def test_client_that_looks_up_a_coordinator_and_never_joins_is_noted_once() -> None:
    lookups = UselessLookups()
    slow = [lookups.note("slow", "g", number * LOOKUPS_MS) for number in range(10)]
    fast = [lookups.note("fast", "g", number) for number in range(10)]
    assert not any(slow)
    assert [number for number, is_noted in enumerate(fast) if is_noted] == [LOOKUPS_WITHOUT_GROUP - 1]
    for number in range(2 * LOOKUP_CLIENTS_MAX):
        lookups.note(f"client-{number}", "g", 0)
    assert len(lookups._seen) == LOOKUP_CLIENTS_MAX


@pytest.mark.parametrize("joins", [True, False])
def test_a_client_is_named_only_if_its_group_is_unknown_some_time_later(
    joins: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topics, timer, known = KnownTopics(), CollectingTimer(), set[str]()
    topics.partitions, topics.leader = 50, CoordinatorNode(2, "example", 9092)
    handler = FindCoordinatorHandler(
        topics, is_unknown_here=lambda group: group not in known, now_ms=lambda: 0, timer=timer
    )
    for _ in range(2 * LOOKUPS_WITHOUT_GROUP):
        handler.handle(FindCoordinatorRequest(key="g"), context(3))
    assert not caplog.records
    if joins:
        known.add("g")
    (warn_if_unused,) = timer.callbacks
    warn_if_unused()
    assert ["does not join it" in record.getMessage() for record in caplog.records] == ([] if joins else [True])


@pytest.mark.parametrize("version", range(4))
def test_find_coordinator_of_every_version(version: int) -> None:
    topics = KnownTopics()
    found = find(topics, version)
    assert (found.error_code, found.node_id, found.host, found.port) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        -1,
        "",
        -1,
    )
    assert bool(found.error_message) is (version >= 1)
    assert topics.requested_items == ["__consumer_offsets"]
    topics.partitions = 50
    assert find(topics, version).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    topics.leader = CoordinatorNode(2, "example", 9092)
    found = find(topics, version)
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.NONE, 2, "example", 9092)
    assert topics.requested_items == ["__consumer_offsets"]


def test_find_coordinator_of_a_transactional_id_creates_the_transaction_topic() -> None:
    topics = KnownTopics()
    assert find(topics, 1, key_type=1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert topics.requested_items == ["__transaction_state"]


def test_find_coordinator_of_an_unknown_kind_is_refused() -> None:
    assert find(KnownTopics(), 3, key_type=2).error_code == ErrorCode.INVALID_REQUEST

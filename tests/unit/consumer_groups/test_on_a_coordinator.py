"""Groups of the consumer protocol on a coordinator: failing appends, time, conversions, commits, deletion, loading."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID, ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.consumer_groups.requests import (
    MEMBERS_MAX,
    OWNED_PARTITIONS_MAX,
    SUBSCRIBED_TOPICS_MAX,
    ConsumerGroupSettings,
    HeartbeatOutcome,
    HeartbeatRequest,
)
from kctl.server.coordination.groups.actions import GroupType
from kctl.server.coordination.groups.events import CommitRequest, Leaver, TransactionalCommit
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.replies import Reply
from kctl.testing.sim_loop import SimLoop, simulate
from tests.rows import for_rows
from tests.unit.groups.hosting import Host, MemoryOffsetsLog, settled

IDS = {"t": UUID(int=1), "u": UUID(int=2), "big": UUID(int=3)}
ALL = frozenset(range(4))
T0 = TopicPartition("t", 0)
SETTINGS = ConsumerGroupSettings(session_timeout_ms=6_000, heartbeat_interval_ms=500, assignment_interval_ms=0)


class Topics:
    """state.ClusterTopics of a small cluster."""

    def __init__(self) -> None:
        self.topics_version = 1
        self.counts = {"t": 4, "u": 2, "big": 30_000}

    def set(self, topic: str, partitions: int) -> None:
        self.topics_version += 1
        self.counts[topic] = partitions

    def topic_id(self, topic: str) -> UUID:
        return IDS.get(topic, ZERO_UUID)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, known in IDS.items() if known == topic_id), None)

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def partition_racks(self, topic: str) -> list[list[str]]:
        return [[] for _ in range(self.counts[topic])]


class Cluster:
    """A coordinator with topics, and short ways to call it."""

    def __init__(self, loop: SimLoop, log: MemoryOffsetsLog | None = None, **settings: Any) -> None:
        self.topics = Topics()
        consumer = ConsumerGroupSettings(**{"assignment_interval_ms": 0, "session_timeout_ms": 6_000} | settings)
        self.host = Host(loop, log, topics=self.topics, topic_names=lambda: self.topics.counts, consumer=consumer)
        self.coordinator = self.host.coordinator

    async def start(self, epoch: int = 0) -> Cluster:
        await self.host.start(epoch)
        return self

    def beat(self, member_id: str, epoch: int = 0, group: str = "g", **fields: Any) -> Reply[HeartbeatOutcome]:
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 5_000, "topic_names": ("t",), "owned": {}} | fields
        request = HeartbeatRequest(member_id=member_id, member_epoch=epoch, **fields)
        return self.coordinator.consumer_heartbeat(group, request, 1)

    async def heard(self, member_id: str, epoch: int = 0, **fields: Any) -> HeartbeatOutcome:
        return await settled(self.beat(member_id, epoch, **fields))

    async def commit(self, member_id: str = "", epoch: int = -1, *, knows: bool = True) -> ErrorCode:
        offsets = {T0: OffsetAndMetadata(5, commit_timestamp_ms=self.host.clock.now_ms())}
        request = CommitRequest(member_id=member_id, generation=epoch, knows_epochs=knows, offsets=offsets)
        return (await settled(self.coordinator.commit("g", request)))[T0]

    def members(self) -> set[str]:
        return set(self.coordinator.find("g", ConsumerGroup).members)

    async def overview(self) -> list[tuple[str, str, str]]:
        _, groups = await self.coordinator.groups()
        return [(group.group_id, group.state, group.type.value) for group in groups]


Story = Callable[[Cluster], Awaitable[None]]


def play(story: Story, **settings: Any) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = await Cluster(loop, **settings).start()
        await story(cluster)
        await cluster.coordinator.stop()

    simulate(main, seed=1)


def test_refused_append_takes_back_what_a_heartbeat_has_changed() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.host.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await cluster.heard("a")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await cluster.overview() == []
        cluster.host.log.error = ErrorCode.NONE
        first = await cluster.heard("a")
        assert (first.member_epoch, first.assignment) == (2, {IDS["t"]: ALL})
        cluster.host.log.error = ErrorCode.MESSAGE_TOO_LARGE
        assert (await cluster.heard("b")).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await cluster.heard("a", 2, topic_names=("u",))).error is ErrorCode.UNKNOWN_SERVER_ERROR
        cluster.host.log.error = ErrorCode.NONE
        assert cluster.members() == {"a"}
        assert (await cluster.heard("a", 2)) == HeartbeatOutcome(
            member_id="a", member_epoch=2, heartbeat_interval_ms=5_000
        )

    play(story)


def test_removal_that_the_log_refuses_is_tried_again() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a")
        cluster.host.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        await asyncio.sleep(7)
        assert cluster.members() == {"a"}
        cluster.host.log.error = ErrorCode.NONE
        await asyncio.sleep(1)
        assert cluster.members() == set()

    play(story)


def test_responses_wait_until_what_they_tell_is_replicated() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.host.log.holds = True
        first = cluster.beat("a")
        second = cluster.beat("a", 2, owned={IDS["t"]: ALL})
        assert isinstance(first, asyncio.Future)
        assert isinstance(second, asyncio.Future)
        await asyncio.sleep(0.1)
        assert not first.done()
        assert not second.done()
        cluster.host.log.release()
        assert ((await first).member_epoch, (await second).member_epoch) == (2, 2)

    play(story)


def test_member_without_heartbeats_is_removed_and_its_partitions_go_to_others() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a")
        outcome = await cluster.heard("b")
        while outcome.member_epoch == 3:
            await asyncio.sleep(1)
            outcome = await cluster.heard("b", 3)
        assert cluster.members() == {"b"}
        assert outcome.assignment == {IDS["t"]: ALL}

    play(story)


def test_member_that_does_not_revoke_in_time_is_removed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a", rebalance_timeout_ms=2_000)
        await cluster.heard("b")
        assert (await cluster.heard("a", 2, owned={IDS["t"]: ALL})).assignment == {IDS["t"]: frozenset({0, 1})}
        await asyncio.sleep(1)
        assert (await cluster.heard("a", 2, owned={IDS["t"]: ALL})).error is ErrorCode.NONE
        await asyncio.sleep(1.5)
        assert (await cluster.heard("a", 2)).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await cluster.heard("b", 3)).assignment == {IDS["t"]: ALL}

    play(story)


def test_members_that_join_within_the_interval_are_assigned_together() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a")
        assert (await cluster.heard("b")).member_epoch == 2
        assert (await cluster.heard("c")).member_epoch == 2
        await asyncio.sleep(1)
        assert (await cluster.heard("a", 2, owned={IDS["t"]: ALL})).assignment == {IDS["t"]: frozenset({0, 1})}
        group = cluster.coordinator.find("g", ConsumerGroup)
        assert (group.epoch.epoch, group.target.epoch) == (4, 4)

    play(story, assignment_interval_ms=900)


def test_new_partitions_and_new_topics_are_assigned() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a", topic_names=("t", "later"))
        cluster.topics.set("t", 5)
        assert (await cluster.heard("a", 2)).assignment == {IDS["t"]: frozenset(range(5))}
        cluster.topics.set("unrelated", 5)
        assert (await cluster.heard("a", 3)).member_epoch == 3

    play(story)


def test_group_without_members_becomes_one_of_the_other_protocol_and_keeps_its_offsets() -> None:
    async def story(cluster: Cluster) -> None:
        joined = await cluster.host.stable()
        assert (await cluster.heard("a")).error is ErrorCode.GROUP_ID_NOT_FOUND
        await settled(cluster.coordinator.leave("g", [Leaver(joined.member_id)]))
        assert await cluster.commit() is ErrorCode.NONE
        assert (await cluster.heard("a")).error is ErrorCode.NONE
        assert await cluster.overview() == [("g", "Stable", "consumer")]
        assert (await settled(cluster.host.join())).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await cluster.heard("a", -1)
        assert await cluster.overview() == [("g", "Empty", "consumer")]
        again = await cluster.host.stable()
        assert again.error is ErrorCode.NONE
        assert await cluster.overview() == [("g", "Stable", "classic")]
        assert cluster.coordinator.committed("g", [T0])[1][T0][1].offset == 5
        reloaded = await reload(cluster)
        assert await reloaded.overview() == [("g", "Stable", "classic")]
        await reloaded.coordinator.stop()

    play(story, migration_policy="disabled")


async def reload(cluster: Cluster) -> Cluster:
    """Another coordinator with the same log."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return await Cluster(loop, cluster.host.log).start(epoch=1)


def test_group_goes_on_with_another_coordinator() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a", topic_regex="t|u", topic_names=None)
        await asyncio.sleep(0)
        await cluster.heard("b", topic_regex="t|u", topic_names=None)
        await asyncio.sleep(0.1)
        await cluster.heard("a", 1, owned={})
        before = cluster.coordinator.find("g", ConsumerGroup)
        other = await reload(cluster)
        after = other.coordinator.find("g", ConsumerGroup)
        assert list(before.values()) == list(after.values())
        assert after.regexes["t|u"].topics == {"t", "u"}
        await asyncio.sleep(7)
        assert other.members() == set(), "sessions began with the load"
        await other.coordinator.stop()

    play(story)


def test_empty_group_is_deleted_from_the_log_when_it_expires() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a")
        assert await cluster.coordinator.delete("g") is ErrorCode.NON_EMPTY_GROUP
        cluster.coordinator.expire()
        await cluster.heard("a", -1)
        other = await reload(cluster)
        assert await other.overview() == [("g", "Empty", "consumer")], "the records of an empty group are found"
        await other.coordinator.stop()
        cluster.coordinator.expire()
        assert await cluster.overview() == []
        last: dict[bytes | None, bytes | None] = {}
        for record in cluster.host.log.records():
            last[record.key] = record.value
        assert set(last.values()) == {None}

    play(story)


def test_delete_and_offsets_of_subscribed_topics() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a")
        assert await cluster.commit("a", 2) is ErrorCode.NONE
        outcome = await cluster.coordinator.delete_offsets("g", [T0, TopicPartition("u", 0)])
        assert outcome.partitions[T0] is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert outcome.partitions[TopicPartition("u", 0)] is ErrorCode.NONE
        await cluster.heard("a", -1)
        assert await cluster.coordinator.delete("g") is ErrorCode.NONE
        assert await cluster.overview() == []

    play(story)


def test_commits_in_transactions_are_checked_with_the_epoch_too() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a")

        async def commit(member_id: str, epoch: int) -> ErrorCode:
            request = TransactionalCommit(
                producer=ProducerIdAndEpoch(1, 0),
                member_id=member_id,
                generation=epoch,
                offsets={T0: OffsetAndMetadata(5)},
            )
            return (await settled(cluster.coordinator.commit_in_transaction("g", request)))[T0]

        assert await commit("a", 2) is ErrorCode.NONE
        assert await commit("", -1) is ErrorCode.NONE
        assert await commit("a", 3) is ErrorCode.ILLEGAL_GENERATION
        assert await commit("b", 2) is ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


def test_administrator_removes_static_members() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a", instance_id="i")
        outcome = await settled(cluster.coordinator.leave("g", [Leaver("", "i"), Leaver("", "j"), Leaver("x")]))
        assert outcome.leavers == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID)
        assert cluster.members() == set()

    play(story)


def test_requests_above_a_bound_change_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        names = tuple(f"topic-{number}" for number in range(SUBSCRIBED_TOPICS_MAX + 1))
        owned = {IDS["t"]: frozenset(range(OWNED_PARTITIONS_MAX + 1))}
        for fields, error in (
            ({"topic_names": names}, ErrorCode.INVALID_REQUEST),
            ({"topic_names": ("x" * (1 << 19) + "x",)}, ErrorCode.INVALID_REQUEST),
            ({"instance_id": "i" * 1_001}, ErrorCode.INVALID_REQUEST),
            ({"topic_names": ("big",)}, ErrorCode.INVALID_REQUEST),
            ({"topic_names": None, "topic_regex": "a" * 1_001}, ErrorCode.INVALID_REGULAR_EXPRESSION),
            ({"topic_names": None, "topic_regex": "((a{100}){100}){100}"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ):
            assert (await cluster.heard("a", **fields)).error is error, fields
            assert await cluster.overview() == []
        await cluster.heard("a")
        assert (await cluster.heard("a", 2, owned=owned)).error is ErrorCode.INVALID_REQUEST
        cluster.topics.set("t", 30_000)
        assert (await cluster.heard("a", 2)).member_epoch == 2, "the last assignment stays"

    play(story)


@pytest.mark.long
def test_members_and_their_topics_have_a_bound_together() -> None:
    async def story(cluster: Cluster) -> None:
        names = tuple(f"topic-{number}" for number in range(5_000))
        cluster.topics.counts |= dict.fromkeys(names, 1)
        IDS.update((name, UUID(int=1_000 + number)) for number, name in enumerate(names))
        outcomes = [(await cluster.heard(f"m{number}", topic_names=names)).error for number in range(5)]
        assert outcomes == [ErrorCode.NONE] * 4 + [ErrorCode.INVALID_REQUEST]
        assert cluster.members() == {"m0", "m1", "m2", "m3"}

    play(story)


@pytest.mark.long
def test_group_has_a_largest_size() -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(MEMBERS_MAX):
            assert (await cluster.heard(f"m{number}", topic_names=())).error is ErrorCode.NONE
        assert (await cluster.heard("one more", topic_names=())).error is ErrorCode.GROUP_MAX_SIZE_REACHED

    play(story, assignment_interval_ms=600_000)


def test_expressions_of_a_group_are_limited_and_match_only_what_the_client_may_see() -> None:
    async def story(cluster: Cluster) -> None:
        def denied(topics: Any) -> frozenset[str]:
            return frozenset(topics) & {"u", "big"}

        await cluster.heard("a", topic_names=None, topic_regex=".*", denied=denied)
        await asyncio.sleep(0.1)
        assert (await cluster.heard("a", 1, owned={})).assignment == {IDS["t"]: ALL}
        outcomes = [
            (await cluster.heard(f"m{number}", topic_names=None, topic_regex=f"t{number}")).error
            for number in range(50)
        ]
        assert outcomes == [ErrorCode.NONE] * 49 + [ErrorCode.INVALID_REQUEST]

    play(story)


@for_rows(
    "member, epoch, knows, error",
    [
        ("a", 2, True, ErrorCode.NONE),
        ("a", 2, False, ErrorCode.UNSUPPORTED_VERSION),
        ("a", 1, True, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 3, True, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, True, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commit_of_a_member(member: str, epoch: int, knows: bool, error: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        assert await cluster.commit("a", 2) is ErrorCode.GROUP_ID_NOT_FOUND
        await cluster.heard("a")
        assert await cluster.commit(member, epoch, knows=knows) is error

    play(story)


def test_type_is_listed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.host.stable("classic")
        await cluster.heard("a")
        for kind, name in ((GroupType.CLASSIC, "classic"), (GroupType.CONSUMER, "g")):
            _, groups = await cluster.coordinator.groups((), [kind.value])
            assert [group.group_id for group in groups] == [name]

    play(story)

"""Requests to the group coordinator in any order, repeated, malformed and wrong, against a model of Kafka's rules.

Goal: every request is answered with Kafka's error code, and one that is refused changes nothing.  Method: random
requests of all versions go through the handlers, as bytes, and to the model; after each of them answers, state, members
and offsets must agree.  The seed is the failure.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.model import partition_for_key
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
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
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kctl.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kctl.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kctl.testing.sim_loop import SimLoop
from tests.property import group_model
from tests.property.group_model import At, GroupModel, Protocols, TieError
from tests.property.model_comparison import compare, pass_turns, run_with_seeds
from tests.unit.groups.test_handlers import Broker
from tests.unit.groups.world import subscription

GROUP = "g"
KNOWN = [("t", 0), ("t", 1)]
PARTITIONS = [*KNOWN, ("t", 9), ("t", -1), ("nothing", 0)]
INSTANCES = (None, None, None, "i", "j")
PRODUCERS = (7, 8)
PROTOCOLS: tuple[Protocols, ...] = (
    (("range", "t"),),
    (("range", "t"), ("sticky", "t")),
    (("sticky", "u"), ("range", "u")),
    (("sticky", "t"),),
    (),
)
SIZES_MAX = (2, 3, 1_000)
KINDS = ("consumer",) * 6 + ("connect", "")


class Comparison:
    """Sends the same requests to the broker's handlers and to the model."""

    def __init__(self, broker: Broker, chance: Random) -> None:
        self._broker = broker
        self._chance = chance
        self._model = GroupModel(broker.host.config.group_max_size)
        self._known_ids = ["nobody"]
        self._calls: dict[int, asyncio.Task[Any]] = {}
        self._kinds: dict[int, str] = {}
        self._in_zookeeper: dict[At, int] = {}

    async def join(self) -> None:
        version = self._chance.randint(1, 7)
        instance = self._chance.choice(INSTANCES) if version >= 5 else None
        member_id = self._any_member(instance) if self._chance.random() < 0.7 else ""
        kind, protocols = self._chance.choice(KINDS), self._chance.choice(PROTOCOLS)
        await self._join(member_id, version, instance, kind, protocols)

    async def all_join(self) -> None:
        for member_id, member in list(self._members().items()):
            if member_id in self._known_ids and self._chance.random() < 0.9:
                await self._join(member_id, 5, member.instance, "consumer", (("range", "t"),))

    async def come(self) -> None:
        await self._join("", self._chance.choice((3, 6)), None, "consumer", (("range", "t"),))

    async def join_badly(self) -> None:
        """A session timeout out of bounds, or a group without a name."""
        session_ms = self._chance.choice((0, -1, group_model.SESSION_MS_MIN - 1, 2**31 - 1))
        completed = await self._broker.call(self._join_request("", 5, None, "consumer", (), session_ms=session_ms), 5)
        assert completed.error_code == group_model.INVALID_SESSION_TIMEOUT
        completed = await self._broker.call(self._join_request("", 5, None, "consumer", (), group_id=""), 5)
        assert completed.error_code == group_model.INVALID_GROUP_ID

    async def sync(self) -> None:
        instance = self._chance.choice(INSTANCES)
        await self._sync(self._any_member(instance), instance, self._generation())

    async def all_sync(self) -> None:
        for member_id, member in list(self._members().items()):
            if member_id in self._known_ids and self._chance.random() < 0.8:
                await self._sync(member_id, member.instance, self._right_generation)

    async def heartbeat(self) -> None:
        instance = self._chance.choice(INSTANCES)
        member_id, generation = self._any_member(instance), self._generation()
        request = HeartbeatRequest(
            group_id=GROUP, member_id=member_id, generation_id=generation, group_instance_id=instance
        )
        completed = await self._broker.call(request, self._chance.randint(3, 4))
        assert completed.error_code == self._model.heartbeat(member_id, generation, instance)

    async def leave(self) -> None:
        version = self._chance.randint(0, 4)
        instance = self._chance.choice(INSTANCES) if version >= 3 else None
        member_id = self._any_member(instance)
        if version < 3:
            completed = await self._broker.call(LeaveGroupRequest(group_id=GROUP, member_id=member_id), version)
            assert completed.error_code == self._model.leave(member_id, None)
            return
        # Named twice: the second time it is gone.
        leavers = [MemberIdentity(member_id=member_id, group_instance_id=instance)] * self._chance.randint(1, 2)
        completed = await self._broker.call(LeaveGroupRequest(group_id=GROUP, members=leavers), version)
        assert completed.error_code == ErrorCode.NONE
        assert [member.error_code for member in completed.members] == [
            self._model.leave(member_id, instance) for _ in leavers
        ]

    async def commit(self) -> None:
        version = self._chance.choice((1, 2, 3, 4, 5, 6, 7, 7, 8, 8))
        member_id, generation, instance = self._committer()
        if version < 7:
            instance = None
        retention_ms = self._chance.choice((-1, -1, 3, 2_503)) if 2 <= version <= 4 else -1
        expected = self._offsets()
        request = self._commit_request(expected, member_id, generation, instance)
        request.retention_time_ms = retention_ms
        completed = await self._broker.call(request, version)
        known = {at: value for at, value in expected if at in KNOWN}
        errors = self._model.commit(member_id, generation, instance, known, retention_ms=retention_ms) if known else {}
        self._compare(completed, expected, errors)

    async def commit_v0(self) -> None:
        """OffsetCommit v0 goes to ZooKeeper, whatever the group's state; for one of the partitions ZooKeeper fails."""
        expected = self._offsets()
        completed = await self._broker.call(self._commit_request(expected, "", -1, None), 0)
        errors = {at: self._error_of_old(*at, metadata) for at, (_, metadata) in expected if at in KNOWN}
        self._compare(completed, expected, errors)
        self._in_zookeeper |= {at: offset for at, (offset, _) in expected if errors.get(at) == ErrorCode.NONE}
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        fetched = await self._broker.call(OffsetFetchRequest(group_id=GROUP, topics=topics), 0)
        assert fetched.topics[0].partitions[0].committed_offset == self._in_zookeeper.get(("t", 0), -1)

    def _error_of_old(self, _topic: str, index: int, metadata: str) -> int:
        if len(metadata) > group_model.METADATA_MAX:
            return group_model.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.UNKNOWN_SERVER_ERROR if index == 1 else ErrorCode.NONE

    async def expire(self) -> None:
        self._broker.host.coordinator.expire()
        self._model.expire()

    async def commit_in_transaction(self) -> None:
        member_id, generation, instance = self._committer()
        expected, producer = self._offsets(), self._chance.choice(PRODUCERS)
        request = TxnOffsetCommitRequest(
            transactional_id="id",
            group_id=GROUP,
            producer_id=producer,
            producer_epoch=0,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata or None
                        )
                    ],
                )
                for (topic, index), (offset, metadata) in expected
            ],
        )
        completed = await self._broker.call(request, 3)
        known = {at: value for at, value in expected if at in KNOWN}
        errors = self._model.commit_in_transaction(producer, member_id, generation, instance, known) if known else {}
        self._compare(completed, expected, errors)

    async def end_transaction(self) -> None:
        producer, committed = self._chance.choice(PRODUCERS), self._chance.random() < 0.5
        partition = partition_for_key(GROUP, self._broker.host.log.partitions or 0)
        self._broker.host.coordinator.transaction_completed(partition, producer, committed=committed)
        self._model.end_transaction(producer, committed=committed)

    async def delete_offsets(self) -> None:
        requested = self._chance.sample(PARTITIONS, 2)
        topics = [
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for topic, index in requested
        ]
        completed = await self._broker.call(OffsetDeleteRequest(group_id=GROUP, topics=topics), 0)
        error, errors = self._model.delete_offsets([at for at in requested if at in KNOWN])
        assert completed.error_code == error
        if not error:
            reported = {
                (topic.name, partition.partition_index): partition.error_code
                for topic in completed.topics
                for partition in topic.partitions
            }
            assert reported == {at: errors.get(at, group_model.UNKNOWN_TOPIC_OR_PARTITION) for at in requested}

    async def delete(self) -> None:
        # Named twice it is deleted once.
        completed = await self._broker.call(DeleteGroupsRequest(groups_names=[GROUP, GROUP]), 1)
        assert [result.error_code for result in completed.results] == [self._model.delete()]

    async def wait(self) -> None:
        milliseconds = self._chance.choice((100, 100, 1_000, 6_000, 10_000))
        await asyncio.sleep(milliseconds / 1000)
        self._model.advance(milliseconds)

    async def check(self) -> None:
        """The visible state of the group and every response agree with the model."""
        await pass_turns()
        self._model.advance(0)
        for call, task in list(self._calls.items()):
            assert task.done() == (call in self._model.responses), f"{self._kinds[call]} {call}"
            if task.done():
                self._compare_response(call, task.result())
                del self._calls[call]
        group = self._model.group
        described = (await self._broker.call(DescribeGroupsRequest(groups=[GROUP]), 4)).groups[0]
        assert described.group_state == ("Dead" if group is None else group.state)
        members = {} if group is None else group.members
        assert [member.member_id for member in described.members] == list(members)
        assert [member.group_instance_id for member in described.members] == [
            member.instance for member in members.values()
        ]
        if group is not None and group.state == "Stable":
            assert described.protocol_data == group.protocol
            assert [member.member_assignment for member in described.members] == [
                m.assignment for m in members.values()
            ]
        for stable in (False, True):
            topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            request = OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=stable)
            fetched = await self._broker.call(request, 7)
            reported = [
                (partition.error_code, partition.committed_offset) for partition in fetched.topics[0].partitions
            ]
            assert reported == [self._model.fetch(at, stable=stable) for at in KNOWN]

    async def _join(self, member_id: str, version: int, instance: str | None, kind: str, protocols: Protocols) -> None:
        call = self._send(self._join_request(member_id, version, instance, kind, protocols), version)
        await pass_turns()
        fresh_id = "" if member_id else await self._new_member(call)
        self._model.join(call, member_id, fresh_id, version=version, instance=instance, kind=kind, protocols=protocols)

    async def _new_member(self, call: int) -> str:
        """The member id chosen by the broker, the only value the model has to be given."""
        task = self._calls[call]
        if task.done():
            return str(task.result().member_id)
        described = (await self._broker.call(DescribeGroupsRequest(groups=[GROUP]), 4)).groups[0]
        fresh = [member.member_id for member in described.members if member.member_id not in self._members()]
        assert len(fresh) == 1
        return str(fresh[0])

    async def _sync(self, member_id: str, instance: str | None, generation: int) -> None:
        version = self._chance.randint(3, 5)
        kind, name = self._chance.choice(
            ((None, None), ("consumer", self._protocol), ("consumer", self._protocol), ("x", "y"))
        )
        if version < 5:
            kind = name = None
        elif kind is None and self._chance.random() < 0.7:
            kind, name = "consumer", self._protocol
        plan = {owner: f"{generation} {owner}".encode() for owner in self._members() if self._chance.random() < 0.9}
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=name,
            assignments=[
                SyncGroupRequestAssignment(member_id=assigned_id, assignment=data) for assigned_id, data in plan.items()
            ],
        )
        call = self._send(request, version)
        await pass_turns()
        self._model.sync(
            call, member_id, generation, instance=instance, kind=kind, name=name, must_name=version >= 5, plan=plan
        )

    def _send(self, request: Any, version: int) -> int:
        call = len(self._kinds)
        self._calls[call] = asyncio.ensure_future(self._broker.call(request, version))
        self._kinds[call] = type(request).__name__
        return call

    def _join_request(
        self,
        member_id: str,
        version: int,
        instance: str | None,
        kind: str,
        protocols: Protocols,
        *,
        session_ms: int = group_model.SESSION_MS,
        group_id: str = GROUP,
    ) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=group_model.REBALANCE_MS,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription(topic)) for name, topic in protocols],
        )

    def _compare_response(self, call: int, completed: Any) -> None:
        error, outcome = self._model.responses[call]
        assert completed.error_code == error, self._kinds[call]
        if self._kinds[call] == "SyncGroupRequest":
            assert completed.assignment == (outcome or b"")
            return
        self._known_ids.append(completed.member_id)
        assert completed.generation_id == (-1 if outcome is None else outcome)

    def _compare(self, completed: Any, expected: list[tuple[At, tuple[int, str]]], errors: dict[At, int]) -> None:
        reported = [
            (topic.name, partition.partition_index, partition.error_code)
            for topic in completed.topics
            for partition in topic.partitions
        ]
        unknown = group_model.UNKNOWN_TOPIC_OR_PARTITION
        assert reported == [(*at, errors.get(at, unknown)) for at, _ in expected]

    def _commit_request(
        self, expected: list[tuple[At, tuple[int, str]]], member_id: str, generation: int, instance: str | None
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata or None
                        )
                    ],
                )
                for (topic, index), (offset, metadata) in expected
            ],
        )

    def _members(self) -> dict[str, group_model.Member]:
        return {} if self._model.group is None else self._model.group.members

    @property
    def _protocol(self) -> str | None:
        return None if self._model.group is None else self._model.group.protocol

    @property
    def _right_generation(self) -> int:
        return 0 if self._model.group is None else self._model.group.generation

    def _generation(self) -> int:
        """Sometimes a wrong one."""
        return self._chance.choice((*(self._right_generation,) * 6, self._right_generation - 1, -1, 2**31 - 1))

    def _any_member(self, instance: str | None) -> str:
        """A member, mostly the owner of the instance id if there is one, or a former member, or an unknown id."""
        holders = [member_id for member_id, member in self._members().items() if member.instance == instance]
        known = [holder for holder in holders if holder in self._known_ids]
        return self._chance.choice([*known, *known, *known, *self._known_ids[-3:], ""])

    def _committer(self) -> tuple[str, int, str | None]:
        if self._chance.random() < 0.3:
            return "", -1, None
        instance = self._chance.choice(INSTANCES)
        return self._any_member(instance), self._generation(), instance

    def _offsets(self) -> list[tuple[At, tuple[int, str]]]:
        """Some partitions, a few of which do not exist, one or the other twice with the same offset."""
        expected = []
        values: defaultdict[At, tuple[int, str]] = defaultdict(
            lambda: (self._chance.randrange(100), self._chance.choice(("", "m", "far too much metadata")))
        )
        for _ in range(self._chance.randint(1, 3)):
            at = self._chance.choice([*KNOWN, *KNOWN, *PARTITIONS])
            expected.append((at, values[at]))
        return expected


OPERATIONS: tuple[Callable[[Comparison], Any], ...] = (
    Comparison.join,
    Comparison.join,
    Comparison.all_join,
    Comparison.all_join,
    Comparison.come,
    Comparison.join_badly,
    Comparison.sync,
    Comparison.all_sync,
    Comparison.all_sync,
    Comparison.heartbeat,
    Comparison.leave,
    Comparison.commit,
    Comparison.commit,
    Comparison.commit_v0,
    Comparison.expire,
    Comparison.commit_in_transaction,
    Comparison.end_transaction,
    Comparison.delete_offsets,
    Comparison.delete,
    Comparison.wait,
    Comparison.wait,
)


@pytest.mark.long
def test_every_response_equals_that_of_kafka_and_refusals_change_nothing() -> None:
    run_with_seeds(play)


async def play(loop: SimLoop) -> None:
    chance = Random(loop.seed)
    broker = Broker(loop, group_max_size=chance.choice(SIZES_MAX))
    await broker.host.start()
    with contextlib.suppress(TieError):
        await compare(Comparison(broker, chance), OPERATIONS, chance)
    await broker.host.coordinator.stop()

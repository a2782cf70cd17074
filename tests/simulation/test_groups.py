"""Consumer groups on whole brokers under virtual time: brokers fail, connections break, requests are duplicated.

Members join, share partitions out, commit what they have read, leave or stop without leaving.  Whatever happens, a
generation has one assignment, a commit that was answered is never behind an earlier one that was, every request is
answered, and when the trouble is over all members work again.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any, TypeVar

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kctl.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kctl.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop
from tests.simulation.faults import CLIENT, PLAYS, Fault
from tests.simulation.scene import at_times_twice, create_topic, raise_for, restart_the_dead, traced

T = TypeVar("T")

TOPIC = "orders"
PARTITIONS = 5
BROKERS = 3
SECONDS = 30
WITH_NAMES: dict[type, int] = {OffsetCommitRequest: 8, OffsetFetchRequest: 7}
"""Versions of members of classic groups, with names of topics."""
GROUPS = ("g", "another group")
MEMBERS = ("a", "b", "c", "d")
STATIC = "d"
SESSION_MS = 6_000
REBALANCE_MS = 5_000
RESPONSE_S_MAX = 60
"""Nothing that a coordinator waits for takes so long, and the way from and to the clients is never blocked."""
PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "300",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "4000",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "leader.imbalance.check.interval.seconds": "5",
}


class Member:
    """One consumer after the other in one place of a group; each has its own connections, as its requests may wait."""

    def __init__(self, run: Run, group_id: str, name: str) -> None:
        self.generation = -1
        self.is_working = False
        self.commits = 0
        """The number of responses since the faults have ended."""
        self._run = run
        self._chance = run.chance
        self._group_id = group_id
        self._instance = name if name == STATIC else None
        self._member_id = ""
        self._before: tuple[str, int] | None = None
        """Member id and generation of the last one that was in this place."""
        self._owned: list[int] = []
        self._positions: dict[int, int] = {}
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC]))
        self._protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription)]

    async def live(self) -> None:
        while not self._run.is_over:
            async with self._run.cluster.client() as client, self._run.cluster.client() as second:
                try:
                    while not self._run.is_over:
                        await self._take_part(client, second)
                except (ApiError, ConnectionLost, ClusterUnreachable):
                    pass
            self.is_working = False
            if self._chance.random() < 0.3 and not self._run.is_quiet:
                self._member_id = ""  # A new process; the old one did not leave the group.
            await asyncio.sleep(self._chance.expovariate(1 / 0.3))

    async def _take_part(self, client: ClusterClient, second: ClusterClient) -> None:
        """From a join to the end of the generation."""
        try:
            await self._join(client, second)
            await self._send_stale_commit(client)
            await self._fetch(client)
            self.is_working = True
            while not self._run.is_over:
                await asyncio.sleep(self._chance.expovariate(1 / 0.4))
                await self._heartbeat(client, second)
                await self._commit(client, second)
                if self._chance.random() < 0.02 and not self._run.is_quiet:
                    await self._leave(client)
        except ApiError as error:
            if error.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
                self._member_id = ""
            elif error.code not in {
                *(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REQUEST_TIMED_OUT),
                *(ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *COORDINATOR_MOVED),
            }:
                self._run.unexpected.add(error.code)
        finally:
            self.is_working = False

    async def _join(self, client: ClusterClient, second: ClusterClient) -> None:
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=self._instance,
            protocol_type="consumer",
            protocols=self._protocols,
        )
        joined = await self._call(client, second, request, JoinGroupResponse, codes={ErrorCode.MEMBER_ID_REQUIRED})
        self._member_id = joined.member_id
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            await self._join(client, second)
            return
        self.generation = joined.generation_id
        plan = self._run.plan([member.member_id for member in joined.members])
        sync = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=part) for member_id, part in plan.items()
            ],
        )
        synced = await self._call(client, second, sync, SyncGroupResponse)
        who = self._instance or self._member_id
        self._owned = self._run.note_assignment(self._group_id, self.generation, who, bytes(synced.assignment))

    async def _send_stale_commit(self, client: ClusterClient) -> None:
        """Requests with an old generation or a replaced member id are refused."""
        me = self._member_id, self.generation
        before = self._before
        if before is not None and before != me and self._chance.random() < 0.5:
            member_id, generation = before
            partition = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1_000_000, committed_metadata=""
            )
            request = OffsetCommitRequest(
                group_id=self._group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=self._instance,
                topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
            )
            completed = await self._call(client, None, request, OffsetCommitResponse)
            assert completed.topics[0].partitions[0].error_code != ErrorCode.NONE, "a member of the past was heard"
        self._before = me

    async def _fetch(self, client: ClusterClient) -> None:
        topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=self._owned)]
        request = OffsetFetchRequest(group_id=self._group_id, topics=topics, require_stable=True)
        fetched = await self._call(client, None, request, OffsetFetchResponse)
        self._positions = {}
        for partition in fetched.topics[0].partitions if fetched.topics else []:
            raise_for(partition.error_code)
            self._positions[partition.partition_index] = partition.committed_offset

    async def _heartbeat(self, client: ClusterClient, second: ClusterClient) -> None:
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance,
        )
        await self._call(client, second, request, HeartbeatResponse)

    async def _commit(self, client: ClusterClient, second: ClusterClient) -> None:
        expected = {partition: position + 1 for partition, position in self._positions.items()}
        if not expected:
            return
        partitions = [
            OffsetCommitRequestPartition(partition_index=tp, committed_offset=offset, committed_metadata="")
            for tp, offset in expected.items()
        ]
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        floors = {partition: self._run.acknowledged[self._group_id, partition] for partition in expected}
        self._run.note_attempt(self._group_id, expected)
        completed = await self._call(client, second, request, OffsetCommitResponse)
        for partition in completed.topics[0].partitions:
            raise_for(partition.error_code)
            assert expected[partition.partition_index] >= floors[partition.partition_index], (
                "a commit went back silently"
            )
        self._run.note_commit(self._group_id, expected)
        self._positions = expected
        self.commits += self._run.is_quiet

    async def _leave(self, client: ClusterClient) -> None:
        leaver = MemberIdentity(member_id=self._member_id, group_instance_id=self._instance)
        request = LeaveGroupRequest(group_id=self._group_id, members=[leaver])
        await self._call(client, None, request, LeaveGroupResponse)
        self._member_id = ""
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    async def _call(
        self,
        client: ClusterClient,
        second: ClusterClient | None,
        request: Any,
        response_class: type[T],
        codes: frozenset[ErrorCode] | set[ErrorCode] = frozenset(),
    ) -> T:
        """Retries after lost responses; sometimes sends a request twice, over two connections."""

        async def call(who: ClusterClient) -> T:
            return await self._send_once(who, request, response_class, codes)

        return await (call(client) if second is None else at_times_twice(self._chance, call, client, second))

    async def _send_once(
        self, client: ClusterClient, request: Any, response_class: type[T], codes: frozenset[ErrorCode] | set[ErrorCode]
    ) -> T:
        async def call(connection: Connection) -> T:
            started = self._run.loop.time()
            try:
                response = await connection.send(
                    request, response_class, version=WITH_NAMES.get(type(request)), timeout_ms=RESPONSE_S_MAX * 1000
                )
            except ConnectionLost:
                assert self._run.loop.time() - started < RESPONSE_S_MAX, f"{request} was never answered"
                raise
            code = getattr(response, "error_code", ErrorCode.NONE)
            if code not in codes:
                raise_for(code)
            return response

        return await client.on_coordinator(self._group_id, call)


class Run:
    """Three brokers, two groups, and the responses their members got."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.chance = random.Random(f"{loop.seed} groups")
        self.cluster = SimCluster(loop, properties=PROPERTIES)
        self.is_quiet = False
        """No further faults."""
        self.is_over = False
        self.acknowledged: defaultdict[tuple[str, int], int] = defaultdict(lambda: -1)
        self.unexpected: set[ErrorCode] = set()
        self._attempted: defaultdict[tuple[str, int], int] = defaultdict(lambda: -1)
        self._plans: dict[tuple[str, int], str] = {}
        self._parts: dict[tuple[str, int, str], list[int]] = {}
        self._plan_count = 0

    async def play(self, fault: Fault) -> None:
        await self.cluster.start(BROKERS)
        with self.cluster.network.on_host(CLIENT):
            async with self.cluster.client() as client:
                await create_topic(client, TOPIC, PARTITIONS)
                members = [Member(self, group_id, name) for group_id in GROUPS for name in MEMBERS]
                async with asyncio.TaskGroup() as tasks:
                    for member in members:
                        tasks.create_task(member.live())
                    trouble = asyncio.ensure_future(fault(self.cluster, self.chance))
                    await asyncio.sleep(SECONDS)
                    await trouble
                    await self._recover(members)
                    self.is_over = True
                await self._check(client)
        await self.cluster.stop()

    def plan(self, members: list[str]) -> dict[str, bytes]:
        """The assignment, and a number that identifies the plan."""
        self._plan_count += 1
        return {
            member_id: f"{self._plan_count}:{','.join(map(str, range(number, PARTITIONS, len(members))))}".encode()
            for number, member_id in enumerate(members)
        }

    def note_assignment(self, group_id: str, generation: int, who: str, assignment: bytes) -> list[int]:
        """Records a member's assignment.  A static member may be in a generation under several ids."""
        plan, _, owned = assignment.decode().partition(":")
        part = [int(word) for word in owned.split(",") if word]
        if plan:
            known = self._plans.setdefault((group_id, generation), plan)
            assert known == plan, f"generation {generation} of {group_id} has two assignments"
            for (other_group, other_generation, other), others in self._parts.items():
                if (other_group, other_generation) == (group_id, generation) and other != who:
                    assert not set(others) & set(part), "a partition is owned twice"
            self._parts[group_id, generation, who] = part
        return part

    def note_attempt(self, group_id: str, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            self._attempted[group_id, partition] = max(self._attempted[group_id, partition], offset)

    def note_commit(self, group_id: str, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            self.acknowledged[group_id, partition] = max(self.acknowledged[group_id, partition], offset)

    async def _recover(self, members: list[Member]) -> None:
        """Waits until every member has committed again in the current generation of its group."""
        await restart_the_dead(self.cluster)
        self.is_quiet = True
        for member in members:
            member.commits = 0
        async with asyncio.timeout(180):
            while True:
                await asyncio.sleep(0.5)
                if self._all_work(members):
                    return

    def _all_work(self, members: list[Member]) -> bool:
        by_group = [members[: len(MEMBERS)], members[len(MEMBERS) :]]
        return all(member.is_working and member.commits > 2 for member in members) and all(
            len({member.generation for member in group}) == 1 for group in by_group
        )

    async def _check(self, client: ClusterClient) -> None:
        for group_id in GROUPS:
            topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
            request = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)

            async def call(connection: Connection, request: OffsetFetchRequest = request) -> OffsetFetchResponse:
                response = await connection.send(request, OffsetFetchResponse, version=WITH_NAMES[OffsetFetchRequest])
                raise_for(response.error_code)
                return response

            fetched = await client.on_coordinator(group_id, call)
            for partition in fetched.topics[0].partitions:
                at = group_id, partition.partition_index
                assert self.acknowledged[at] <= partition.committed_offset <= self._attempted[at]
                assert self.acknowledged[at] > 3, "something was done"
        assert not self.unexpected
        assert len(self._plans) >= len(GROUPS)


def run(fault: Fault, seed: int) -> str:
    return traced(lambda loop: Run(loop).play(fault), seed)


@pytest.mark.parametrize(("fault", "seed"), PLAYS)
def test_group_invariants_hold_despite_faults(fault: Fault, seed: int) -> None:
    run(fault, seed)

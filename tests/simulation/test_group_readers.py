"""kctl's group consumers on whole brokers under virtual time: they join, leave and stall, and brokers fail.

Whatever happens, what is read has no gap, a generation has one owner of a partition, and in the end everything is read
and committed.  When nothing goes wrong every record is read once.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.consuming.committed_offsets import committed_offsets
from kctl.client.consuming.groups.consumer import GroupConsumer, decode_records
from kctl.client.consuming.membership.member import MembershipSettings, Phase
from kctl.client.consuming.positions import Position
from kctl.client.producing.producer import Delivery
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.records.header import Record
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop
from tests.simulation.faults import CLIENT, Fault, brokers_killed, connections_reset, nothing, random_faults
from tests.simulation.scene import create_topic, eager_producer, restart_the_dead, traced

GROUP = "readers"
TOPIC = "orders"
PARTITIONS = tuple(TopicPartition(TOPIC, number) for number in range(5))
BROKERS = 3
PLACES = 4
SECONDS = 30
SESSION_MS = 6_000
REBALANCE_MS = 5_000
CATCH_UP_S = 180
WAITING_S = 3
"""Less than the rebalance timeout of the group."""
PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "300",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "4000",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
}

COOPERATIVE = (("cooperative-sticky",),)
CHANGING_OVER = (("range", "cooperative-sticky"), ("cooperative-sticky",))
EAGER = (("sticky", "range"),)


class Run:
    """A topic that is written to, and readers of one group."""

    def __init__(self, loop: SimLoop, assignors: tuple[tuple[str, ...], ...]) -> None:
        self.loop = loop
        self.chance = random.Random(f"{loop.seed} readers")
        self.cluster = SimCluster(loop, properties=PROPERTIES)
        self.read_to = dict.fromkeys(PARTITIONS, 0)
        """The offset after the last record that any member has read."""
        self.read = 0
        """How many records were read, those among them that were read before."""
        self.consumers: set[GroupConsumer[Record]] = set()
        self.failures: set[ErrorCode | None] = set()
        self._assignors = assignors
        self._owners: dict[tuple[int, TopicPartition], GroupConsumer[Record]] = {}
        self._written: defaultdict[TopicPartition, int] = defaultdict(int)
        self.is_writing = True
        self._is_quiet = False
        self._is_over = False
        self._is_stalling = True

    @asynccontextmanager
    async def stage(self) -> AsyncIterator[ClusterClient]:
        """Brokers with the topic, and an administrative client."""
        await self.cluster.start(BROKERS)
        with self.cluster.network.on_host(CLIENT):
            async with self.cluster.client() as client:
                await create_topic(client, TOPIC, len(PARTITIONS))
                yield client
        await self.cluster.stop()

    async def play(self, fault: Fault) -> None:
        """Readers that sometimes leave or stall, until all have caught up."""
        self._is_stalling = fault is not nothing
        async with self.stage() as client, asyncio.TaskGroup() as tasks:
            tasks.create_task(self.write(client))
            for _ in range(PLACES):
                tasks.create_task(self._live())
            trouble = asyncio.ensure_future(fault(self.cluster, self.chance))
            await asyncio.sleep(SECONDS)
            await trouble
            await restart_the_dead(self.cluster)
            self.is_writing, self._is_quiet = False, True
            async with asyncio.timeout(CATCH_UP_S):
                while not await self._have_caught_up(client):  # noqa: ASYNC110 - virtual time costs nothing
                    await asyncio.sleep(0.5)
            self._is_over = True
        if fault is nothing:
            assert self.read == sum(self.read_to.values()), "a record was read twice"

    async def write(self, client: ClusterClient) -> None:
        """Writes a record from time to time, until the writing is over."""
        producer = eager_producer(client, self.loop, self._delivered)
        while self.is_writing:
            await producer.send(TOPIC, b"x", partition=self.chance.randrange(len(PARTITIONS)))
            await asyncio.sleep(0.05)
        await producer.flush()

    def _delivered(self, delivery: Delivery) -> None:
        if delivery.error is None:
            end = delivery.base_offset + len(delivery.records)
            self._written[delivery.tp] = max(self._written[delivery.tp], end)

    async def _live(self) -> None:
        """One reader after the other."""
        while not self._is_over:
            async with self.cluster.client(timeout_ms=20_000) as client:
                consumer = self.join(client, self.chance.choice(self._assignors))
                end = self.loop.time() + self.chance.uniform(3, 20)
                try:
                    while not self._is_over and (self._is_quiet or self.loop.time() < end or not is_settled(consumer)):
                        await self.poll(consumer)
                        if self._is_stalling and not self._is_quiet and self.chance.random() < 0.005:
                            await asyncio.sleep(self.chance.choice((1, 4, 9)))
                except (ApiError, ClusterUnreachable) as error:
                    self.failures.add(error.code if isinstance(error, ApiError) else None)
                finally:
                    await self.leave(consumer)
            await asyncio.sleep(self.chance.uniform(0, 2))

    def join(self, client: ClusterClient, assignors: tuple[str, ...]) -> GroupConsumer[Record]:
        settings = MembershipSettings(
            GROUP,
            (TOPIC,),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            heartbeat_interval_ms=500,
            assignors=assignors,
        )
        consumer = GroupConsumer(client, settings, _from_the_start, decode_records, auto_commit_interval_ms=1_000)
        self.consumers.add(consumer)
        return consumer

    async def leave(self, consumer: GroupConsumer[Record]) -> None:
        self.consumers.discard(consumer)
        consumer.confirm()
        await consumer.close()

    async def poll(self, consumer: GroupConsumer[Record]) -> None:
        """Runs the simulation once and checks the result."""
        for tp, records in await consumer.poll():
            for record in records:
                assert record.offset <= self.read_to[tp], f"{tp}: not read: {self.read_to[tp]}"
                self.read_to[tp] = max(self.read_to[tp], record.offset + 1)
                self.read += 1
        member = consumer.member
        if member.phase is Phase.STABLE:
            for tp in member.owned:
                owner = self._owners.setdefault((member.generation, tp), consumer)
                assert owner is consumer, f"{tp} has two owners in generation {member.generation}"

    async def share(self, *readers: GroupConsumer[Record]) -> None:
        """Waits until each of them has something to read."""
        async with asyncio.timeout(CATCH_UP_S):
            while not all(reader.member.owned and is_settled(reader) for reader in readers):
                await asyncio.gather(*map(self.poll, readers))

    async def _have_caught_up(self, client: ClusterClient) -> bool:
        try:
            commits = await committed_offsets(await client.coordinator(GROUP), GROUP, PARTITIONS)
        except (ApiError, ConnectionLost):
            client.forget_coordinator(GROUP)  # The trouble has just ended.
            return False
        owned = sorted(tp for consumer in self.consumers for tp in consumer.member.owned)
        return (
            all(
                self._written[tp] <= self.read_to[tp] == (commits[tp].offset if tp in commits else 0)
                for tp in PARTITIONS
            )
            and len(self.consumers) == PLACES
            and all(is_settled(consumer) for consumer in self.consumers)
            and owned == list(PARTITIONS)
        )


def is_settled(consumer: GroupConsumer[Record]) -> bool:
    return consumer.member.phase is Phase.STABLE


async def _from_the_start(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Position]:
    return dict.fromkeys(partitions, Position(0))


async def read_beside_a_slow_one(run: Run) -> None:
    """The group waits for a member that does not poll, because a third one has joined."""
    async with (
        run.stage() as client,
        run.cluster.client() as one,
        run.cluster.client() as two,
        run.cluster.client() as three,
    ):
        steady, slow, third = (run.join(member, *COOPERATIVE) for member in (one, two, three))
        writing = asyncio.create_task(run.write(client))
        await run.share(steady, slow)
        coming = asyncio.create_task(run.poll(third))
        while steady.member.phase is not Phase.JOINING:
            await run.poll(steady)
        before = dict(run.read_to)
        end = run.loop.time() + WAITING_S
        while run.loop.time() < end:
            await run.poll(steady)
        assert steady.member.phase is Phase.JOINING, "the slow one has not come yet"
        committed = await committed_offsets(await client.coordinator(GROUP), GROUP, PARTITIONS)
        assert all(before[tp] < committed[tp].offset <= run.read_to[tp] for tp in steady.member.owned)
        assert not coming.done()
        run.is_writing = False
        await writing
        await asyncio.gather(coming, run.poll(steady), run.poll(slow))
        assert not third.member.owned
        expected_more = third.expects_more
        await run.share(steady, slow, third)
        assert (expected_more, third.expects_more) == (True, False), "the others give up its share first"
        for reader in (steady, slow, third):
            await run.leave(reader)


def run(fault: Fault, seed: int) -> str:
    return traced(lambda loop: Run(loop, COOPERATIVE).play(fault), seed)


@pytest.mark.parametrize(
    "assignors",
    [
        pytest.param(CHANGING_OVER, id="changing"),
        pytest.param(COOPERATIVE, id="cooperative", marks=pytest.mark.matrix),
        pytest.param(EAGER, id="eager", marks=pytest.mark.matrix),
    ],
)
def test_every_record_is_read_once_while_members_join_and_leave(assignors: tuple[tuple[str, ...], ...]) -> None:
    traced(lambda loop: Run(loop, assignors).play(nothing), 1)


@pytest.mark.parametrize("fault", [brokers_killed, connections_reset, random_faults])
def test_no_record_is_skipped_and_all_offsets_are_committed_despite_faults(fault: Fault) -> None:
    run(fault, 1)


def test_cooperative_member_keeps_reading_and_committing_during_a_rebalance() -> None:
    traced(lambda loop: read_beside_a_slow_one(Run(loop, COOPERATIVE)), 1)

"""Transactions on whole brokers under virtual time: brokers fail, producers are replaced, atomicity holds.

Each transaction writes a record to each of some partitions and commits, for a group of its producer's own, its number
as an offset.  Producers die or take too long in the middle, requests come twice or late, and those that were replaced
go on writing.  While that happens the last stable offsets are compared with full readings of the logs, a reader of
committed records reads along, and a client checks the committed offsets.

In the end the records of a transaction are there all together or not at all, the reader has seen nothing else, the
committed offset is the number of the last transaction that is there, no fenced producer has appended, and the
indexes of aborted transactions are those that a full reading makes.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import AsyncExitStack

import pytest

from kctl.client.cluster import ClusterClient, CoordinatorType
from kctl.client.connections.transport import Connection
from kctl.client.consuming.consumer import Consumer
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import GROUP_METADATA_TOPIC, TopicPartition
from kctl.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop
from tests.simulation.faults import CLIENT, HOUR_MS, PLAYS, Fault, clocks_jump, nothing, random_faults, until_whole
from tests.simulation.scene import create_topic, raise_for, restart_the_dead, traced
from tests.simulation.transaction_reading import TransactionInvariants, check_log
from tests.simulation.transactional_producer import (
    FENCED,
    NOT_THERE,
    NOT_YET,
    PARTITIONS,
    SOURCE,
    TIMEOUT_MS,
    TOPIC,
    Call,
    Producer,
    ProducerOfVersion2,
    insist,
    send_late,
)

PRODUCERS = ("a", "b", "c")
BROKERS = 3
SECONDS = 30
PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "4000",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
    # Clocks jump by days, which would delete old segments; compaction is not tested here either.
    "log.roll.hours": "10000",
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
    "transactional.id.expiration.ms": "2000000000",
    "producer.id.expiration.ms": "2000000000",
    # Leaders, and with them coordinators, move back soon after a broker has come back.
    "leader.imbalance.check.interval.seconds": "5",
}
AT_LEVEL_2 = {"served.release": "4.3"}
"""A new cluster has level 2 of transaction.version then."""
TRUTHFUL: set[Fault] = {nothing, clocks_jump}
"""With other faults a former coordinator may respond with outdated state."""


class ProducerDied(Exception):
    """During a transaction."""


class Run:
    """Three brokers and three producers, each of which is replaced when it fails."""

    def __init__(self, loop: SimLoop, kind: type[Producer] = Producer) -> None:
        self.loop = loop
        self.kind = kind
        self.chance = random.Random(f"{loop.seed} transactions")
        is_of_version_2 = kind is ProducerOfVersion2
        self.cluster = SimCluster(loop, properties=PROPERTIES | (AT_LEVEL_2 if is_of_version_2 else {}))
        self.partitions_of: dict[tuple[str, int], set[int]] = {}
        """The records that each transaction wrote, by producer and number."""
        self.committed: set[tuple[str, int]] = set()
        self.unknown: set[tuple[str, int]] = set()
        self.unexpected: set[ErrorCode] = set()
        self._zombies: defaultdict[str, list[Producer]] = defaultdict(list)
        self._is_truthful = False
        self._is_over = False
        self._tasks: asyncio.TaskGroup

    async def play(self, fault: Fault) -> None:
        self._is_truthful = fault in TRUTHFUL
        await self.cluster.start(BROKERS)
        self.loop.on_step = TransactionInvariants(self.cluster, TOPIC).look
        with self.cluster.network.on_host(CLIENT):
            async with self.cluster.client() as client, self.cluster.client() as reader:
                await create_topic(client, TOPIC, PARTITIONS)
                reading = asyncio.create_task(self._read_along(reader))
                async with asyncio.TaskGroup() as self._tasks:
                    for name in PRODUCERS:
                        self._tasks.create_task(self._produce(name))
                        self._tasks.create_task(self._watch_offsets(name))
                    self._tasks.create_task(fault(self.cluster, self.chance))
                await restart_the_dead(self.cluster)
                await self._come_to_rest(client)
                self._is_over = True
                await self._check(client, await reading)
        self.loop.on_step = None
        await self.cluster.stop()

    async def _produce(self, name: str) -> None:
        number = 0
        while self.loop.time() < SECONDS:
            async with AsyncExitStack() as stack:
                # Short timeouts, so that instances follow each other.
                client = await stack.enter_async_context(self.cluster.client(timeout_ms=6_000))
                twin = await stack.enter_async_context(self.cluster.client(timeout_ms=6_000))
                producer = self.kind(self.loop, self.chance, name, client, twin)
                try:
                    await producer.start()
                    for zombie in self._some_zombies(name):
                        await zombie.come_back(client)
                    self._zombies[name].append(producer)
                    while self.loop.time() < SECONDS:
                        number += 1
                        await asyncio.sleep(self.chance.expovariate(1 / 0.3))
                        await self._transact(producer, name, number)
                        if self.chance.random() < 0.05:
                            for zombie in self._zombies[name][-2:-1]:
                                await zombie.come_back(client)
                except ProducerDied:
                    for request in producer.late_requests():
                        self._tasks.create_task(self._send_late(request))
                except ApiError as error:
                    if error.code not in {*FENCED, *NOT_YET, *NOT_THERE, *producer.ended_by}:
                        self.unexpected.add(error.code)
                except ClusterUnreachable:
                    pass

    def _some_zombies(self, name: str) -> list[Producer]:
        """The last one, and an earlier one."""
        known = self._zombies[name]
        return [*known[-1:], *self.chance.sample(known[:-1], min(1, len(known[:-1])))]

    async def _send_late(self, request: Call) -> None:
        async with self.cluster.client(timeout_ms=2_000) as client:
            await send_late(client, request, self.chance.uniform(0, 1.5 * TIMEOUT_MS / 1000))

    async def _transact(self, producer: Producer, name: str, number: int) -> None:
        partitions = sorted(self.chance.sample(range(PARTITIONS), self.chance.randint(1, 3)))
        self.partitions_of[name, number] = set(partitions)
        await producer.add(partitions)
        await self._live()
        for partition in partitions:
            await producer.produce(partition, f"{name} {number}".encode())
            await self._live()
        await producer.send_offset(number)
        await self._live()
        if self.chance.random() < 0.2:
            await self._end(producer, committed=False)
            return
        self.unknown.add((name, number))
        await self._end(producer, committed=True)
        self.unknown.remove((name, number))
        self.committed.add((name, number))

    async def _end(self, producer: Producer, *, committed: bool) -> None:
        patience_s = self.chance.uniform(0, 0.02) if self.chance.random() < 0.05 else None
        try:
            async with asyncio.timeout(patience_s):
                await producer.end(committed=committed)
        except TimeoutError:
            raise ProducerDied from None

    async def _live(self) -> None:
        """The producer crashes, or pauses so long that its transaction may have timed out."""
        fate = self.chance.random()
        if fate < 0.02:
            raise ProducerDied
        if fate < 0.03:
            await asyncio.sleep(self.chance.uniform(0.7, 1.5) * TIMEOUT_MS / 1000)

    async def _read_along(self, client: ClusterClient) -> dict[TopicPartition, list[bytes]]:
        """The records that a reader of committed records gets during the faults."""
        consumer = Consumer(client, {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)})
        values: dict[TopicPartition, list[bytes]] = {partition: [] for partition in consumer.positions}
        while True:
            before = dict(consumer.positions)
            was_over = self._is_over
            try:
                for partition, records in await consumer.poll():
                    values[partition] += [record.value or b"" for record in records]
            except (ApiError, ClusterUnreachable) as error:
                if isinstance(error, ApiError) and error.code not in NOT_THERE:
                    raise
                await asyncio.sleep(0.1)
                consumer = Consumer(client, consumer.positions)
                continue
            if was_over and consumer.positions == before:
                return values

    async def _watch_offsets(self, name: str) -> None:
        """An offset is never visible before its commit was requested, and stable offsets are up to date."""
        last = -1
        async with self.cluster.client(timeout_ms=6_000) as client:
            while self.loop.time() < SECONDS:
                await asyncio.sleep(self.chance.expovariate(1 / 0.3))
                stable = self.chance.random() < 0.5
                decided = self._last_committed(name)
                try:
                    offset = await self._offset(client, f"group-of-{name}", require_stable=stable)
                except (ApiError, ClusterUnreachable):
                    continue
                assert offset == -1 or (name, offset) in self.committed | self.unknown, "not committed yet"
                if self._is_truthful:
                    assert offset >= (decided if stable else last), "an offset went back"
                    last = offset

    def _last_committed(self, name: str) -> int:
        return max((number for writer, number in self.committed if writer == name), default=-1)

    async def _come_to_rest(self, client: ClusterClient) -> None:
        """Waits until timeouts have ended all abandoned transactions."""
        self._set_clocks_right()
        async with asyncio.timeout(180):
            while True:
                await asyncio.sleep(TIMEOUT_MS / 1000)
                try:
                    responses = [await self._unfinished(client, number) for number in range(BROKERS)]
                except (ApiError, ClusterUnreachable):
                    continue
                if not any(responses):
                    break
        await until_whole(self.cluster)

    def _set_clocks_right(self) -> None:
        """All to the same time, at which every transaction takes too long."""
        clocks = [broker.clock for broker in self.cluster.brokers.values()]
        latest_ms = max(clock.now_ms() for clock in clocks) + HOUR_MS
        for clock in clocks:
            clock.drift(0)
            clock.jump(latest_ms - clock.now_ms())

    async def _unfinished(self, client: ClusterClient, broker: int) -> list[str]:
        connection = await client.broker(broker)
        states = ["Ongoing", "PrepareCommit", "PrepareAbort"]
        request = ListTransactionsRequest(state_filters=states, producer_id_filters=[])
        response = await connection.send(request, ListTransactionsResponse)
        raise_for(response.error_code)
        return [state.transactional_id for state in response.transaction_states]

    async def _check(self, client: ClusterClient, read: dict[TopicPartition, list[bytes]]) -> None:
        seen: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        for partition, values in self._committed_in_logs().items():
            assert read[partition] == values, f"{partition}: who read along saw something else"
            for value in values:
                name, number = value.decode().split()
                assert partition.partition not in seen[name, int(number)], "nothing is there twice"
                seen[name, int(number)].add(partition.partition)
        for transaction, partitions in seen.items():
            assert partitions == self.partitions_of[transaction], "a transaction is there as a whole or not at all"
        assert self.committed <= set(seen) <= self.committed | self.unknown
        assert len(self.committed) > 10, "something was done"
        for name in PRODUCERS:
            numbers = [number for writer, number in seen if writer == name]
            assert await self._offset(client, f"group-of-{name}", require_stable=True) == max(numbers, default=-1)
        assert not self.unexpected

    def _committed_in_logs(self) -> dict[TopicPartition, list[bytes]]:
        """Committed values by partition; reads every replica of the partitions and of the committed offsets."""
        found: dict[TopicPartition, list[bytes]] = {}
        for running in self.cluster.brokers.values():
            assert running.broker is not None
            assert running.broker.replicas is not None
            for tp, replica in running.broker.replicas.partitions.items():
                if tp.topic not in {TOPIC, GROUP_METADATA_TOPIC}:
                    continue
                committed = check_log(replica.log, is_from_clients=tp.topic == TOPIC).committed
                if replica.is_leader:
                    assert replica.last_stable_offset == replica.log.log_end_offset, f"{tp} is held up"
                if tp.topic == TOPIC:
                    values = [value for _, value in sorted(committed.items())]
                    assert found.setdefault(tp, values) == values, f"{tp}: replicas differ"
        return found

    async def _offset(self, client: ClusterClient, group: str, *, require_stable: bool) -> int:
        topics = [OffsetFetchRequestTopic(name=SOURCE.topic, partition_indexes=[SOURCE.partition])]
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)

        async def call(connection: Connection) -> int:
            response = await connection.send(request, OffsetFetchResponse, version=7)  # The last one with one group.
            raise_for(response.error_code)
            (reply,) = response.topics[0].partitions
            raise_for(reply.error_code)
            return reply.committed_offset

        codes = {*COORDINATOR_MOVED, ErrorCode.UNSTABLE_OFFSET_COMMIT}
        return await insist(client, group, CoordinatorType.GROUP, call, codes)


def run(fault: Fault, seed: int) -> str:
    return traced(lambda loop: Run(loop).play(fault), seed)


def run_at_level_2(fault: Fault, seed: int) -> str:
    return traced(lambda loop: Run(loop, ProducerOfVersion2).play(fault), seed)


@pytest.mark.parametrize(("fault", "seed"), PLAYS)
def test_transactions_are_atomic_despite_faults(fault: Fault, seed: int) -> None:
    run(fault, seed)


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        (random_faults, 1),
        *(pytest.param(*play.values, id=play.id, marks=pytest.mark.matrix) for play in PLAYS),
    ],
)
def test_transactions_with_raised_epochs_are_atomic_despite_faults(fault: Fault, seed: int) -> None:
    run_at_level_2(fault, seed)

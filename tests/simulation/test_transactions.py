"""Transactions on whole brokers under virtual time: brokers die, producers are replaced, and nothing is seen in part.

Each transaction writes one record to each of some partitions and commits, for a group of its producer's own, its
number as an offset.  In the end the records of a transaction are there all together or not at all, and the committed
offset is the number of the last transaction that is there: two coordinators and many leaders have agreed.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from kctl.client.cluster import ClusterClient, CoordinatorType
from kctl.client.consumer import Consumer
from kctl.client.retrying import COORDINATOR_MOVED, LEADER_MOVED, retry
from kctl.client.transport import Connection
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kctl.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate

T = TypeVar("T")

TOPIC = "orders"
PARTITIONS = 4
SOURCE = TopicPartition(TOPIC, 0)
PRODUCERS = ("a", "b", "c")
BROKERS = 3
SECONDS = 30
TIMEOUT_MS = 8_000
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
}
NOT_YET = {*COORDINATOR_MOVED, ErrorCode.CONCURRENT_TRANSACTIONS}
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
"""What a producer is told that was replaced; NOT_YET when the coordinator was not found in time."""
NOT_THERE = {
    *LEADER_MOVED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
}

Fault = Callable[[SimCluster, random.Random], Awaitable[None]]


class Producer:
    """One instance of a transactional producer, as plainly as the protocol allows."""

    def __init__(self, client: ClusterClient, transactional_id: str) -> None:
        self._client = client
        self._id = transactional_id
        self._me = ProducerIdAndEpoch(-1, -1)
        self._sequences: defaultdict[int, int] = defaultdict(int)

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self._id,
            "producer_id": self._me.producer_id,
            "producer_epoch": self._me.epoch,
        }

    async def start(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS)
        response = await self._ask_coordinator(request, InitProducerIdResponse)
        self._me = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def add(self, partitions: list[int]) -> None:
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)]
        await self._ask_coordinator(
            AddPartitionsToTxnRequest(topics=topics, **self._identity), AddPartitionsToTxnResponse
        )

    async def produce(self, partition: int, value: bytes) -> None:
        batch = build_batch(
            [Record(0, 1, b"k", value)],
            producer_id=self._me.producer_id,
            producer_epoch=self._me.epoch,
            base_sequence=self._sequences[partition],
            is_transactional=True,
        )

        async def attempt() -> None:
            metadata = await self._client.metadata([TOPIC])
            leader, code = metadata.leader_of(TopicPartition(TOPIC, partition))
            _raise(code)
            connection = await self._client.broker(leader)
            data = PartitionProduceData(index=partition, records=batch)
            request = ProduceRequest(
                transactional_id=self._id,
                acks=-1,
                timeout_ms=5_000,
                topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
            )
            response = await connection.send(request, ProduceResponse)
            _raise(response.responses[0].partition_responses[0].error_code)

        await retry(attempt, deadline=self._client.deadline(), codes=NOT_THERE)
        self._sequences[partition] += 1

    async def send_offset(self, offset: int) -> None:
        group = f"group-of-{self._id}"
        await self._ask_coordinator(AddOffsetsToTxnRequest(group_id=group, **self._identity), AddOffsetsToTxnResponse)
        partition = TxnOffsetCommitRequestPartition(
            partition_index=SOURCE.partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            group_id=group,
            topics=[TxnOffsetCommitRequestTopic(name=SOURCE.topic, partitions=[partition])],
            **self._identity,
        )

        async def commit(connection: Connection) -> None:
            response = await connection.send(request, TxnOffsetCommitResponse)
            _raise(response.topics[0].partitions[0].error_code)

        codes = {*COORDINATOR_MOVED, *NOT_THERE}
        await _insist(self._client, group, CoordinatorType.GROUP, commit, codes)

    async def end(self, *, committed: bool) -> None:
        await self._ask_coordinator(EndTxnRequest(committed=committed, **self._identity), EndTxnResponse)

    async def come_back(self, client: ClusterClient) -> ErrorCode:
        """A zombie that goes on with what it has: the answer to its next transaction."""
        self._client = client
        try:
            await self.add([0])
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    async def _ask_coordinator(self, request: object, response_class: type[T]) -> T:
        async def ask(connection: Connection) -> T:
            response = await connection.send(request, response_class)
            if isinstance(response, AddPartitionsToTxnResponse):
                for topic in response.results:
                    for each in topic.results:
                        _raise(each.error_code)
            else:
                _raise(response.error_code)  # type: ignore[attr-defined]
            return response

        codes = {*NOT_YET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return await _insist(self._client, self._id, CoordinatorType.TRANSACTION, ask, codes)


async def _insist(
    client: ClusterClient,
    key: str,
    kind: CoordinatorType,
    work: Callable[[Connection], Awaitable[T]],
    codes: set[ErrorCode],
) -> T:
    async def attempt() -> T:
        return await client.on_coordinator(key, work, kind)

    return await retry(attempt, deadline=client.deadline(), codes=codes)


def _raise(code: int) -> None:
    if code != ErrorCode.NONE:
        raise ApiError(ErrorCode.of(code))


class Run:
    """Three brokers and three producers, each of which is replaced whenever it gets into trouble."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.chance = random.Random(f"{loop.seed} transactions")
        self.cluster = SimCluster(loop, properties=PROPERTIES)
        self.partitions_of: dict[tuple[str, int], set[int]] = {}
        """What each transaction wrote, by producer and number."""
        self.committed: set[tuple[str, int]] = set()
        self.unknown: set[tuple[str, int]] = set()

    async def play(self, fault: Fault) -> None:
        await self.cluster.start(BROKERS)
        with self.cluster.network.on_host("client"):
            async with self.cluster.client() as client:
                await self._create_topic(client)
                async with asyncio.TaskGroup() as group:
                    for name in PRODUCERS:
                        group.create_task(self._produce(name))
                    group.create_task(fault(self.cluster, self.chance))
                for number, broker in list(self.cluster.brokers.items()):
                    if not broker.is_running:
                        await self.cluster.start_broker(number)
                await self._come_to_rest(client)
                await self._check(client)
        await self.cluster.stop()

    async def _create_topic(self, client: ClusterClient) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3, assignments=[], configs=[])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        response = await client.on_controller(lambda connection: connection.send(request, CreateTopicsResponse))
        assert [each.error_code for each in response.topics] == [ErrorCode.NONE]

    async def _produce(self, name: str) -> None:
        number = 0
        before: Producer | None = None
        while self.loop.time() < SECONDS:
            # Impatient, so that instances follow upon each other.
            async with self.cluster.client(timeout_ms=6_000) as client:
                producer = Producer(client, name)
                try:
                    await producer.start()
                    if before is not None:
                        assert await before.come_back(client) in {*FENCED, *NOT_YET}
                    before = producer
                    while self.loop.time() < SECONDS:
                        number += 1
                        await asyncio.sleep(self.chance.expovariate(1 / 0.3))
                        await self._transact(producer, name, number)
                except (ApiError, ClusterUnreachable):
                    pass

    async def _transact(self, producer: Producer, name: str, number: int) -> None:
        partitions = sorted(self.chance.sample(range(PARTITIONS), self.chance.randint(1, 3)))
        self.partitions_of[name, number] = set(partitions)
        await producer.add(partitions)
        for partition in partitions:
            await producer.produce(partition, f"{name} {number}".encode())
        await producer.send_offset(number)
        if self.chance.random() < 0.2:
            await producer.end(committed=False)
            return
        self.unknown.add((name, number))
        await producer.end(committed=True)
        self.unknown.remove((name, number))
        self.committed.add((name, number))

    async def _come_to_rest(self, client: ClusterClient) -> None:
        """Until the time-outs have ended what nobody ends any more."""
        async with asyncio.timeout(120):
            while True:
                await asyncio.sleep(TIMEOUT_MS / 1000)
                try:
                    answers = [await self._unfinished(client, number) for number in range(BROKERS)]
                except (ApiError, ClusterUnreachable):
                    continue
                if not any(answers):
                    return

    async def _unfinished(self, client: ClusterClient, broker: int) -> list[str]:
        connection = await client.broker(broker)
        states = ["Ongoing", "PrepareCommit", "PrepareAbort"]
        request = ListTransactionsRequest(state_filters=states, producer_id_filters=[])
        response = await connection.send(request, ListTransactionsResponse)
        _raise(response.error_code)
        return [each.transactional_id for each in response.transaction_states]

    async def _check(self, client: ClusterClient) -> None:
        seen: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        for partition in range(PARTITIONS):
            for value in await self._read(client, TopicPartition(TOPIC, partition)):
                name, number = value.decode().split()
                assert partition not in seen[name, int(number)], "nothing is there twice"
                seen[name, int(number)].add(partition)
        for transaction, partitions in seen.items():
            assert partitions == self.partitions_of[transaction], "a transaction is there as a whole or not at all"
        assert self.committed <= set(seen) <= self.committed | self.unknown
        assert len(self.committed) > 10, "something was done"
        for name in PRODUCERS:
            numbers = [number for each, number in seen if each == name]
            assert await self._offset(client, f"group-of-{name}") == max(numbers, default=-1)

    async def _read(self, client: ClusterClient, partition: TopicPartition) -> list[bytes]:
        consumer = Consumer(client, {partition: 0})
        values: list[bytes] = []
        end = -1
        async with asyncio.timeout(60):
            while end < consumer.positions[partition]:
                end = consumer.positions[partition]
                for _, records in await consumer.poll():
                    values += [record.value or b"" for record in records]
        return values

    async def _offset(self, client: ClusterClient, group: str) -> int:
        topics = [OffsetFetchRequestTopic(name=SOURCE.topic, partition_indexes=[SOURCE.partition])]
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)

        async def ask(connection: Connection) -> int:
            response = await connection.send(request, OffsetFetchResponse)
            _raise(response.error_code)
            (answer,) = response.topics[0].partitions
            _raise(answer.error_code)
            return answer.committed_offset

        codes = {*COORDINATOR_MOVED, ErrorCode.UNSTABLE_OFFSET_COMMIT}
        return await _insist(client, group, CoordinatorType.GROUP, ask, codes)


async def nothing(_cluster: SimCluster, _chance: random.Random) -> None:
    """No fault."""


async def brokers_killed(cluster: SimCluster, chance: random.Random) -> None:
    for _ in range(3):
        await asyncio.sleep(chance.uniform(2, 6))
        victim = chance.randrange(BROKERS)
        cluster.kill(victim)
        await asyncio.sleep(chance.uniform(1, 10))
        await cluster.start_broker(victim)


async def brokers_restarted(cluster: SimCluster, chance: random.Random) -> None:
    for victim in range(BROKERS):
        await asyncio.sleep(chance.uniform(2, 5))
        await cluster.brokers[victim].stop()
        await asyncio.sleep(chance.uniform(0, 4))
        await cluster.start_broker(victim)


async def network_split(cluster: SimCluster, chance: random.Random) -> None:
    for _ in range(4):
        await asyncio.sleep(chance.uniform(2, 5))
        alone = chance.randrange(BROKERS)
        others = [f"broker-{number}" for number in range(BROKERS) if number != alone]
        cluster.network.partition([f"broker-{alone}"], others)
        await asyncio.sleep(chance.uniform(1, 6))
        cluster.network.heal()


async def connections_reset(cluster: SimCluster, chance: random.Random) -> None:
    for _ in range(20):
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        one, other = chance.sample([*(f"broker-{number}" for number in range(BROKERS)), "client"], 2)
        cluster.network.cut(one, other)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "fault",
    [nothing, brokers_killed, brokers_restarted, network_split, connections_reset],
    ids=lambda fault: fault.__name__,
)
def test_transactions_are_seen_as_a_whole_or_not_at_all(fault: Fault, seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        await Run(loop).play(fault)

    simulate(main, seed=seed)

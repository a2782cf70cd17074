"""A minimal transactional producer, and the zombie that remains when it is replaced.

A zombie is an instance that was replaced, or whose transaction timed out, without having been notified: it continues
to send requests to the coordinator, to write to the partitions of its open transaction, and to commit offsets in it.
A late request is one that an instance sent before it stopped, and that arrives afterwards.

A partition detects a fenced producer by the marker that ended its transaction there.  If the coordinator received the
end of the transaction, that marker has the epoch of the old instance; where no transaction was open, there is none.  So
zombies write only to partitions that they had open when another instance took over; what they could do to others is
fixed by KIP-890, which is later than 2.8.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kctl.client.cluster import ClusterClient, CoordinatorType
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.retrying import COORDINATOR_MOVED, LEADER_MOVED, retry
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kctl.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kctl.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.testing.sim_clock import START_MS
from kctl.testing.sim_loop import SimLoop
from tests.simulation.scene import at_times_twice, raise_for

T = TypeVar("T")

TOPIC = "orders"
PARTITIONS = 4
SOURCE = TopicPartition(TOPIC, 0)
"""The partition whose offsets the producers commit, without reading it; the offset is the number of the transaction."""
TIMEOUT_MS = 8_000
NOT_YET = {*COORDINATOR_MOVED, ErrorCode.CONCURRENT_TRANSACTIONS}
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
"""The error for a producer that was replaced; NOT_YET when the coordinator was not found in time."""
NOT_THERE = {
    *LEADER_MOVED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
}

Call = Callable[[ClusterClient], Awaitable[None]]


class Producer:
    """One instance.  Its requests come twice now and then, over `twin`."""

    produce_version: int | None = None
    commit_version: int | None = None
    """Of Produce and TxnOffsetCommit; None for the newest that the client sends."""
    ended_by: tuple[ErrorCode, ...] = ()
    """Errors, beside those of a fenced producer, from which it learns that its transaction has timed out."""

    def __init__(
        self, loop: SimLoop, chance: random.Random, transactional_id: str, client: ClusterClient, twin: ClusterClient
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._id = transactional_id
        self._client = client
        self._twin = twin
        self._me = ProducerIdAndEpoch(-1, -1)
        self._sequences: defaultdict[int, int] = defaultdict(int)
        self._open: dict[int, None] = {}
        self._has_offsets = False
        self._is_ending = False
        self._sent: list[Call] = []
        """The requests of this transaction that may arrive after the instance has stopped."""

    @property
    def group_id(self) -> str:
        return f"group-of-{self._id}"

    async def start(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS)

        async def call(client: ClusterClient) -> InitProducerIdResponse:
            return await self._call_coordinator(client, request, InitProducerIdResponse)

        response = await at_times_twice(self._chance, call, self._client, self._twin)
        self._me = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def add(self, partitions: list[int]) -> None:
        await self._do(lambda client: self._add(client, partitions))
        self._open.update(dict.fromkeys(partitions))

    async def produce(self, partition: int, value: bytes) -> None:
        batch = self._batch(self._sequences[partition], value)
        await self._do(lambda client: self._produce(client, partition, batch))
        self._sequences[partition] += 1

    async def send_offset(self, offset: int) -> None:
        request = AddOffsetsToTxnRequest(group_id=self.group_id, **self._identity)

        async def add(client: ClusterClient) -> None:
            await self._call_coordinator(client, request, AddOffsetsToTxnResponse)

        await self._do(add)
        self._has_offsets = True
        await self._do(lambda client: self._commit_offset(client, offset))

    async def end(self, *, committed: bool) -> None:
        # Batches of the transaction that arrive after its end cannot be refused before KIP-890.
        self._sent.clear()
        self._is_ending = True
        await self._do(lambda client: self._end(client, committed=committed))
        self._sent.clear()
        self._open.clear()
        self._has_offsets = self._is_ending = False

    async def come_back(self, client: ClusterClient) -> None:
        """The zombie continues after another instance has started; all its requests must be refused."""
        attempts: list[Call] = [lambda client: self._add(client, [0]), lambda client: self._end(client, committed=True)]
        if not self._is_ending:
            attempts += [self._late_write(partition) for partition in self._open]
            if self._has_offsets:
                attempts.append(lambda client: self._commit_offset(client, 1_000_000))
        for attempt in attempts:
            error = await _error_of(attempt(client))
            assert error in {*FENCED, *NOT_YET, *NOT_THERE}, f"zombie {self._id}, {self._me}, received {error.name}"

    def late_requests(self) -> list[Call]:
        """Delayed requests of this stopped instance."""
        return self._chance.sample(self._sent, min(len(self._sent), 2))

    def _late_write(self, partition: int) -> Call:
        """The next batch, the first one, or the last one again."""
        last = self._sequences[partition] - 1
        sequence = self._chance.choice([last + 1, 0, max(last, 0)])
        batch = self._batch(sequence, b"of a zombie", is_transactional=self._chance.random() < 0.8)
        return lambda client: self._produce(client, partition, batch)

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self._id,
            "producer_id": self._me.producer_id,
            "producer_epoch": self._me.epoch,
        }

    def _batch(self, sequence: int, value: bytes, *, is_transactional: bool = True) -> bytes:
        return build_batch(
            [Record(0, START_MS + int(self._loop.time() * 1000), b"k", value)],
            producer_id=self._me.producer_id,
            producer_epoch=self._me.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )

    async def _do(self, call: Call) -> None:
        self._sent.append(call)
        await at_times_twice(self._chance, call, self._client, self._twin)

    async def _add(self, client: ClusterClient, partitions: list[int]) -> None:
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)]
        request = AddPartitionsToTxnRequest(topics=topics, **self._identity)
        await self._call_coordinator(client, request, AddPartitionsToTxnResponse)

    async def _produce(self, client: ClusterClient, partition: int, batch: bytes) -> None:
        async def attempt() -> None:
            metadata = await client.metadata([TOPIC])
            leader, code = metadata.leader_of(TopicPartition(TOPIC, partition))
            raise_for(code)
            connection = await client.broker(leader)
            data = PartitionProduceData(index=partition, records=batch)
            request = ProduceRequest(
                transactional_id=self._id,
                acks=-1,
                timeout_ms=5_000,
                topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
            )
            response = await connection.send(request, ProduceResponse, version=self.produce_version)
            raise_for(response.responses[0].partition_responses[0].error_code)

        await retry(attempt, deadline=client.deadline(), codes={*NOT_THERE, ErrorCode.CONCURRENT_TRANSACTIONS})

    async def _commit_offset(self, client: ClusterClient, offset: int) -> None:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=SOURCE.partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            group_id=self.group_id,
            topics=[TxnOffsetCommitRequestTopic(name=SOURCE.topic, partitions=[partition])],
            **self._identity,
        )

        async def commit(connection: Connection) -> None:
            response = await connection.send(request, TxnOffsetCommitResponse, version=self.commit_version)
            raise_for(response.topics[0].partitions[0].error_code)

        codes = {*NOT_YET, *NOT_THERE}
        await insist(client, self.group_id, CoordinatorType.GROUP, commit, codes)

    async def _end(self, client: ClusterClient, *, committed: bool) -> None:
        await self._call_coordinator(client, EndTxnRequest(committed=committed, **self._identity), EndTxnResponse)

    async def _call_coordinator(
        self, client: ClusterClient, request: object, response_class: type[T], version: int | None = None
    ) -> T:
        async def call(connection: Connection) -> T:
            response = await connection.send(request, response_class, version=version)
            if isinstance(response, AddPartitionsToTxnResponse):
                for topic in response.results:
                    for result in topic.results:
                        raise_for(result.error_code)
            else:
                raise_for(response.error_code)  # type: ignore[attr-defined]
            return response

        codes = {*NOT_YET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return await insist(client, self._id, CoordinatorType.TRANSACTION, call, codes)


class ProducerOfVersion2(Producer):
    """One instance at level 2 of transaction.version: brokers add partitions, and each end raises the epoch (KIP-890).

    So its late requests and those of zombies are refused by all partitions, whatever happened to its transaction.
    """

    produce_version = 12
    commit_version = 5
    ended_by = (ErrorCode.INVALID_TXN_STATE,)

    async def add(self, partitions: list[int]) -> None:
        self._open.update(dict.fromkeys(partitions))

    async def send_offset(self, offset: int) -> None:
        self._has_offsets = True
        await self._do(lambda client: self._commit_offset(client, offset))

    async def end(self, *, committed: bool) -> None:
        self._is_ending = True
        request = EndTxnRequest(committed=committed, **self._identity)

        async def call(client: ClusterClient) -> EndTxnResponse:
            return await self._call_coordinator(client, request, EndTxnResponse, version=5)

        async def call_late(client: ClusterClient) -> None:
            await call(client)

        self._sent.append(call_late)
        response = await at_times_twice(self._chance, call, self._client, self._twin)
        self._me = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        self._sequences.clear()
        self._sent.clear()
        self._open.clear()
        self._has_offsets = self._is_ending = False

    async def come_back(self, client: ClusterClient) -> None:
        request = EndTxnRequest(committed=True, **self._identity)
        attempts: list[Call] = [self._write_first(partition) for partition in range(PARTITIONS)]
        attempts.append(lambda client: self._commit_offset(client, 1_000_000))
        for attempt in attempts:
            error = await _error_of(attempt(client))
            assert error in {*FENCED, *NOT_YET, *NOT_THERE}, f"zombie {self._id}, {self._me}, received {error.name}"
        error = await _error_of(self._end_late(client, request))
        assert error in {*FENCED, *NOT_YET}, f"zombie {self._id}, {self._me}, received {error.name}"

    def _write_first(self, partition: int) -> Call:
        batch = self._batch(self._sequences[partition], b"of a zombie")
        return lambda client: self._produce(client, partition, batch)

    async def _end_late(self, client: ClusterClient, request: EndTxnRequest) -> None:
        await self._call_coordinator(client, request, EndTxnResponse, version=5)


async def insist(
    client: ClusterClient,
    key: str,
    kind: CoordinatorType,
    work: Callable[[Connection], Awaitable[T]],
    codes: set[ErrorCode],
) -> T:
    """Retries on the coordinator of `key` until the client's timeout."""

    async def attempt() -> T:
        return await client.on_coordinator(key, work, kind)

    return await retry(attempt, deadline=client.deadline(), codes=codes)


async def send_late(client: ClusterClient, request: Call, delay_s: float) -> None:
    """Sends the request after `delay_s` and ignores its outcome."""
    await asyncio.sleep(delay_s)
    await _error_of(request(client))


async def _error_of(requesting: Awaitable[None]) -> ErrorCode:
    try:
        await requesting
    except ApiError as error:
        return error.code
    except (ClusterUnreachable, ConnectionLost):
        return ErrorCode.NETWORK_EXCEPTION
    return ErrorCode.NONE

"""At transaction.version 2 the broker responds to requests of producers as Apache Kafka 4.3.1 does (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection
from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch
from kctl.protocol.apis import (
    add_partitions_to_txn,
    create_topics,
    end_txn,
    find_coordinator,
    init_producer_id,
    produce,
    txn_offset_commit,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.integration.broker.test_every_version import on_connection
from tests.integration.transactions.conftest import PROPERTIES
from tests.peers.kctl_broker import kctl_broker

pytestmark = pytest.mark.long

GOLDEN = Path(__file__).parents[2] / "golden/transactions/raised-epochs.txt"
TOPIC, GROUP = "t", "g"
NOT_YET = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The end of the previous transaction is waited for."""
PAUSE_S, PAUSES = 0.05, 400

T = TypeVar("T")


class Requests:
    """Sends requests, and has a line for each response."""

    def __init__(self, connection: AsyncioConnection) -> None:
        self.lines: list[str] = []
        self._connection = connection
        self._first = 0

    async def start(self) -> None:
        """Creates the topic, and waits until the broker coordinates."""
        topic = create_topics.CreatableTopic(
            name=TOPIC, num_partitions=3, replication_factor=1, assignments=[], configs=[]
        )
        await self._send(
            create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000),
            create_topics.CreateTopicsResponse,
            5,
        )
        for key, kind in (("a", 1), (GROUP, 0)):
            request = find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)
            response_class = find_coordinator.FindCoordinatorResponse
            await self._repeat(lambda: self._send(request, response_class, 1), lambda response: response.error_code)  # noqa: B023

    async def init(self, name: str, producer: ProducerIdAndEpoch | None = None) -> ProducerIdAndEpoch:
        sent = producer or ProducerIdAndEpoch(-1, -1)
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, producer_id=sent[0], producer_epoch=sent[1]
        )
        response = await self._repeat(
            lambda: self._send(request, init_producer_id.InitProducerIdResponse, 5),
            lambda response: response.error_code,
        )
        if not self.lines:
            self._first = response.producer_id
        given = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        self._note(f"init {name} {self._text(sent)} -> {ErrorCode.of(response.error_code).name} {self._text(given)}")
        return given

    async def end(
        self, name: str, producer: ProducerIdAndEpoch, version: int = 5, *, committed: bool
    ) -> ProducerIdAndEpoch:
        request = end_txn.EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=committed
        )
        response = await self._repeat(
            lambda: self._send(request, end_txn.EndTxnResponse, version), lambda response: response.error_code
        )
        given = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        code = ErrorCode.of(response.error_code).name
        self._note(f"end {name} {self._text(producer)} {committed} {version} -> {code} {self._text(given)}")
        return given

    async def produce(
        self,
        name: str | None,
        producer: ProducerIdAndEpoch,
        sequence: int,
        version: int = 12,
        partition: int = 0,
        topic: str = TOPIC,
    ) -> None:
        batch = build_batch(
            [Record(0, 1_700_000_000_000, b"k", b"v")],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        data = [produce.PartitionProduceData(index=partition, records=batch)]
        request = produce.ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[produce.TopicProduceData(name=topic, partition_data=data)],
        )

        def error_of(response: Any) -> int:
            code: int = response.responses[0].partition_responses[0].error_code
            return code

        response = await self._repeat(lambda: self._send(request, produce.ProduceResponse, version), error_of)
        sent = f"{self._text(producer)} {sequence} {version} {partition}"
        self._note(f"prod {name} {sent} -> {ErrorCode.of(error_of(response)).name}")

    async def commit_offset(self, name: str, producer: ProducerIdAndEpoch, version: int = 5) -> None:
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=GROUP,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )

        def error_of(response: Any) -> int:
            code: int = response.topics[0].partitions[0].error_code
            return code

        response = await self._repeat(
            lambda: self._send(request, txn_offset_commit.TxnOffsetCommitResponse, version), error_of
        )
        self._note(f"toc {name} {self._text(producer)} {version} -> {ErrorCode.of(error_of(response)).name}")

    async def add(self, name: str, producer: ProducerIdAndEpoch) -> None:
        topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], topics=[topic]
        )

        def error_of(response: Any) -> int:
            code: int = response.results[0].results[0].error_code
            return code

        response = await self._repeat(
            lambda: self._send(request, add_partitions_to_txn.AddPartitionsToTxnResponse, 3), error_of
        )
        self._note(f"add {name} {self._text(producer)} 0 3 -> {ErrorCode.of(error_of(response)).name}")

    async def _send(self, request: object, response_class: type[T], version: int) -> Any:
        return await self._connection.send(request, response_class, version=version)

    async def _repeat(self, send: Callable[[], Awaitable[T]], error_of: Callable[[Any], int]) -> T:
        for _ in range(PAUSES):
            response = await send()
            if error_of(response) not in NOT_YET:
                return response
            await asyncio.sleep(PAUSE_S)
        raise TimeoutError

    def _text(self, producer: ProducerIdAndEpoch) -> str:
        """The id less the first one; -1 if there is none."""
        producer_id, epoch = producer
        return f"{producer_id - self._first if producer_id >= 0 else producer_id} {epoch}"

    def _note(self, line: str) -> None:
        self.lines.append(line)


async def play(requests: Requests) -> None:
    await play_ends(requests)
    await play_fences(requests)


async def play_ends(requests: Requests) -> None:
    end, produce_, commit_offset = requests.end, requests.produce, requests.commit_offset
    first = await requests.init("a")
    await end("a", first, committed=True)
    second = await end("a", first, committed=False)
    await end("a", first, committed=False)
    await end("a", first, committed=True)
    await produce_("a", first, 0)
    await produce_("a", second, 0)
    await produce_("a", second, 1)
    await produce_("a", second, 0, partition=1)
    third = await end("a", second, committed=True)
    await end("a", second, committed=True)
    await end("a", second, committed=False)
    await end("a", first, committed=True)
    await produce_("a", second, 2)
    await produce_("a", third, 0)
    await produce_("a", third, 5, partition=2)
    fourth = await end("a", third, committed=False)
    await end("a", third, committed=False)
    await end("a", third, committed=True)
    await end("a", fourth, committed=True)
    fifth = await end("a", fourth, committed=False)
    other = ProducerIdAndEpoch(fifth.producer_id + 100, 0)
    await end("a", other._replace(epoch=fifth.epoch), committed=True)
    await end("a", fifth._replace(epoch=fifth.epoch + 5), committed=True)
    await produce_("a", other, 0)
    await produce_("b", fifth, 0, partition=2)
    await produce_(None, fifth, 0, partition=2)
    await commit_offset("a", fifth)
    await commit_offset("a", fourth)
    await commit_offset("a", other)
    await commit_offset("a", fifth, 4)
    await commit_offset("a", fifth, 3)
    sixth = await end("a", fifth, committed=True)
    await commit_offset("a", sixth, 4)
    await commit_offset("a", sixth, 3)
    for version in (9, 10, 11):
        await produce_("a", sixth, 0, version)
    await requests.add("a", sixth)
    await produce_("a", sixth, 0, 11)
    await commit_offset("a", sixth, 4)
    await produce_("a", sixth, 0, 11, 1)
    await produce_("a", sixth, 0, 10, 1)
    await end("a", sixth, 4, committed=True)
    await end("a", sixth, 4, committed=True)
    await end("a", sixth, committed=True)
    seventh = await end("a", sixth, committed=False)
    await requests.add("a", seventh)
    await produce_("a", seventh, 0, 11)
    await end("a", seventh, committed=False)


async def play_fences(requests: Requests) -> None:
    fenced = await requests.init("c")
    await requests.produce("c", fenced, 0)
    present = await requests.init("c")
    await requests.produce("c", fenced, 1)
    await requests.produce("c", present, 0)
    await requests.end("c", fenced, committed=True)
    await requests.end("c", fenced, committed=False)
    raised = await requests.end("c", present, committed=True)
    await requests.init("c", raised)
    await requests.init("c", raised)
    await requests.init("c", present)
    of_a = ProducerIdAndEpoch(fenced.producer_id - 1, 0)
    await requests.end("nobody", of_a, committed=True)
    await requests.produce("nobody", of_a, 0, partition=2)
    await requests.commit_offset("nobody", of_a)
    newest = of_a._replace(epoch=7)
    await requests.produce("a", newest, 0, topic="none")
    await requests.produce("a", newest, 0, partition=9)


def test_responses_are_those_of_kafka_4_3(tmp_path: Path) -> None:
    lines: list[str] = []

    async def work(connection: AsyncioConnection) -> None:
        requests = Requests(connection)
        await requests.start()
        await play(requests)
        lines.extend(requests.lines)

    with kctl_broker(tmp_path / "data", properties=PROPERTIES, options=["--as-version", "4.3"]) as broker:
        on_connection(broker, work)
    expected = [line for line in GOLDEN.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines == expected

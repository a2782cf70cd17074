"""A transaction coordinator on a virtual loop: `__transaction_state` in memory, partitions that accept markers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.errors import ErrorCode, ZooKeeperError
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kctl.server.coordination.ports import AppendOutcome
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.events import ProducerOutcome
from kctl.server.coordination.transactions.markers import MarkerSender
from kctl.server.coordination.transactions.partition_markers import PartitionMarkers
from kctl.server.coordination.transactions.ports import TransactionConfig
from kctl.server.loop.timer import WheelTimer
from kctl.server.peers.connections import Purpose
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop
from tests.unit.groups.hosting import MemoryOffsetsLog, settled

BROKER_ID = 0


class CountingProducerIds:
    """ports.FreshProducerIds: 1000, 1001, ...; none while `is_lost`."""

    def __init__(self) -> None:
        self.last = 999
        self.is_lost = False
        self.gate: asyncio.Event | None = None

    async def next(self) -> int:
        if self.gate is not None:
            await self.gate.wait()
        if self.is_lost:
            raise ZooKeeperError("gone")
        self.last += 1
        return self.last


class Leaders:
    """ports.PartitionLeaders: partitions not listed are led here."""

    def __init__(self) -> None:
        self.others: dict[TopicPartition, int | None] = {}
        self.is_informed = True

    def leader_of(self, partition: TopicPartition) -> int | None:
        return self.others.get(partition, BROKER_ID)


class MarkedPartitions:
    """ports.PartitionAppends that records markers; `errors` refuse, `holds` waits for `release`."""

    def __init__(self) -> None:
        self.batches: list[tuple[TopicPartition, bytes]] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.absent: set[TopicPartition] = set()
        self.open: set[tuple[TopicPartition, ProducerIdAndEpoch]] = set()
        self.holds = False
        self._held: list[asyncio.Future[AppendOutcome]] = []

    def is_hosted(self, partition: TopicPartition) -> bool:
        return partition not in self.absent

    def is_open(self, partition: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        return (partition, producer) in self.open

    def append(
        self, partition: TopicPartition, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        assert required_acks == -1
        error = self.errors.get(partition, ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            return AppendOutcome(error)
        self.batches.append((partition, batch))
        if not self.holds:
            return AppendOutcome(ErrorCode.NONE, len(self.batches) - 1)
        future: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()
        self._held.append(future)
        return future

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        held, self._held = self._held, []
        for future in held:
            future.set_result(AppendOutcome(error))

    @property
    def marked(self) -> list[TopicPartition]:
        """The partitions that have a marker, in order."""
        return [partition for partition, _ in self.batches]


class ReportedGroups:
    """ports.GroupOffsets that records its calls."""

    def __init__(self) -> None:
        self.reported: list[tuple[int, int, bool]] = []

    def transaction_completed(self, partition: int, producer_id: int, *, committed: bool) -> None:
        self.reported.append((partition, producer_id, committed))


class OtherBrokers:
    """ports.Peers: brokers that respond to WriteTxnMarkers with the next of `responses`, then with NONE."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, WriteTxnMarkersRequest, int]] = []
        self.responses: list[ErrorCode | ConnectionLost] = []
        self.connects = 0
        self.gate: asyncio.Event | None = None

    async def connect(self, broker_id: int, purpose: Purpose) -> Connection:
        assert purpose is Purpose.TRANSACTION_MARKERS
        self.connects += 1
        return _OtherBroker(self, broker_id)  # type: ignore[return-value]  # only the methods that are used


class _OtherBroker:
    def __init__(self, brokers: OtherBrokers, broker_id: int) -> None:
        self.is_open = True
        self._brokers = brokers
        self._broker_id = broker_id

    async def send(
        self, request: WriteTxnMarkersRequest, _response_class: type, *, version: int
    ) -> WriteTxnMarkersResponse:
        brokers = self._brokers
        brokers.requests.append((self._broker_id, request, version))
        if brokers.gate is not None:
            await brokers.gate.wait()
        outcome = brokers.responses.pop(0) if brokers.responses else ErrorCode.NONE
        if isinstance(outcome, Exception):
            raise outcome
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=outcome)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    async def close(self) -> None:
        self.is_open = False


class Host:
    """A coordinator that leads every partition of the log, loaded and started."""

    def __init__(self, loop: SimLoop, state_log: MemoryOffsetsLog | None = None, **config: int) -> None:
        self.log = state_log if state_log is not None else MemoryOffsetsLog()
        self.clock = SimClock(loop.time)
        self.timer = WheelTimer(self.clock, loop)
        self.producer_ids = CountingProducerIds()
        self.leaders = Leaders()
        self.partitions = MarkedPartitions()
        self.groups = ReportedGroups()
        self.others = OtherBrokers()
        self.markers = MarkerSender(
            BROKER_ID,
            leaders=self.leaders,
            local=PartitionMarkers(self.partitions, self.groups, self.clock, timeout_ms=30_000),
            peers=self.others,
            version=lambda: 1,
            timer=self.timer,
            clock=self.clock,
        )
        self.coordinator = TransactionCoordinator(
            broker_id=BROKER_ID,
            config=TransactionConfig(**config),
            state_log=self.log,
            producer_ids=self.producer_ids,
            markers=self.markers,
            clock=self.clock,
            timer=self.timer,
        )

    async def start(self, epoch: int = 0) -> Host:
        self.coordinator.start()
        for partition in range(self.log.partitions or 0):
            self.coordinator.partitions.on_leader(partition, epoch)
        if self.log.gate is None:
            await self.coordinator.partitions.loaded()
        return self

    async def init(
        self, transactional_id: str = "id", *, timeout_ms: int = 60_000, expected: ProducerIdAndEpoch | None = None
    ) -> ProducerOutcome:
        return await settled(self.coordinator.init_producer(transactional_id, timeout_ms=timeout_ms, expected=expected))

    async def producer(self, transactional_id: str = "id") -> ProducerIdAndEpoch:
        outcome = await self.init(transactional_id)
        assert outcome.error is ErrorCode.NONE, outcome
        return outcome.producer

    async def add(
        self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, transactional_id: str = "id"
    ) -> ErrorCode:
        return await settled(self.coordinator.add_partitions(transactional_id, producer, partitions))

    async def end(
        self, producer: ProducerIdAndEpoch, *, committed: bool = True, transactional_id: str = "id"
    ) -> ErrorCode:
        return await settled(self.coordinator.end(transactional_id, producer, committed=committed))

    async def ongoing(self, *partitions: TopicPartition, transactional_id: str = "id") -> ProducerIdAndEpoch:
        producer = await self.producer(transactional_id)
        assert await self.add(producer, *partitions, transactional_id=transactional_id) is ErrorCode.NONE
        return producer

    def state(self, transactional_id: str = "id") -> str:
        error, snapshot = self.coordinator.describe(transactional_id)
        return error.name if snapshot is None else snapshot.state.label


def names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [str(partition) for partition in partitions]

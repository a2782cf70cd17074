"""Transactions under any mixture of requests, log failures, lost messages and crashes of their coordinator.

Goal: every transaction is there as a whole or not at all for readers of committed records, one that was answered as
committed is there, a producer that was replaced never appends, and nothing hangs.  Method: producers that behave as
client libraries do, on partition logs of the real storage and the real coordinator, in virtual time; the reference is a
list of what each transaction wrote and which responses its producer received.  The seed is the failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, TypeVar

from hypothesis import example, given
from hypothesis import strategies as st

from kctl.client.connections.transport import ConnectionLost
from kctl.errors import ApiError, ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.control import control_type
from kctl.records.internal.topics import TransactionLogKey, decode_transaction_key, decode_transaction_value
from kctl.records.salvage import Piece, cut_all
from kctl.server.coordination.ports import AppendOutcome
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.events import ProducerOutcome, TransactionState
from kctl.server.coordination.transactions.markers import MarkerSender
from kctl.server.coordination.transactions.partition_markers import PartitionMarkers
from kctl.server.coordination.transactions.ports import TransactionConfig
from kctl.server.handlers.write_txn_markers import WriteTxnMarkersHandler
from kctl.server.loop.timer import WheelTimer
from kctl.server.peers.connections import Purpose
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop, simulate
from tests.property.examples import examples
from tests.unit.groups.hosting import settled
from tests.unit.handlers.world import context
from tests.unit.storage.log_builder import LogOnDisk
from tests.unit.transactions.hosting import CountingProducerIds, ReportedGroups

T = TypeVar("T")

HERE, ELSEWHERE = 0, 1
PARTITIONS = {TopicPartition("t", index): (HERE, ELSEWHERE)[index % 2] for index in range(4)}
TRANSACTIONAL_IDS = ("a", "b")
STATE_PARTITIONS = 2
TIMEOUT_MS = 15_000
COME_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class StateLog:
    """ports.CoordinatorLog whose appends are replicated a little later, if the coordinator's broker still runs."""

    def __init__(self, loop: SimLoop, chance: Random) -> None:
        self.is_reliable = False
        self._loop = loop
        self._chance = chance
        self._batches: dict[int, list[bytes]] = {index: [] for index in range(STATE_PARTITIONS)}
        self._replicated = dict.fromkeys(range(STATE_PARTITIONS), 0)
        self._epoch = 0

    def partition_count(self) -> int:
        return STATE_PARTITIONS

    def append(
        self, partition: int, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        fate = 1.0 if self.is_reliable else self._chance.random()
        if fate < 0.05:
            return AppendOutcome(ErrorCode.NOT_ENOUGH_REPLICAS)
        batches = self._batches[partition]
        batches.append(len(batches).to_bytes(8, "big") + batch[8:])
        if fate > 0.6:
            self._replicated[partition] = len(batches)
            return AppendOutcome(ErrorCode.NONE, len(batches) - 1)
        future: asyncio.Future[AppendOutcome] = self._loop.create_future()
        is_in_time = fate > 0.1
        reply = (self._epoch, partition, len(batches), future, is_in_time)
        self._loop.call_later(self._chance.uniform(0, 0.3), self._respond, *reply)
        return future

    def _respond(
        self, epoch: int, partition: int, end: int, future: asyncio.Future[AppendOutcome], is_in_time: bool
    ) -> None:
        if epoch != self._epoch or future.done():
            return  # the broker that wrote it has stopped
        if is_in_time:
            self._replicated[partition] = max(self._replicated[partition], end)
            future.set_result(AppendOutcome(ErrorCode.NONE, end - 1))
        else:
            future.set_result(AppendOutcome(ErrorCode.REQUEST_TIMED_OUT))

    def crash(self) -> None:
        """Records that were not replicated are lost from some point on, or turn out to be replicated."""
        self._epoch += 1
        for partition, batches in self._batches.items():
            end = self._chance.randint(self._replicated[partition], len(batches))
            del batches[end:]
            self._replicated[partition] = end

    async def read_all(self, partition: int) -> AsyncIterator[Piece]:
        for batch in list(self._batches[partition]):
            await asyncio.sleep(self._chance.uniform(0, 0.002))
            yield cut_all(batch)

    def batch_bytes_max(self, partition: int) -> int:
        return 1 << 20

    async def until_replicated(self, partition: int) -> None:
        epoch, end = self._epoch, len(self._batches[partition])
        await asyncio.sleep(self._chance.uniform(0, 0.3))
        if epoch == self._epoch:
            self._replicated[partition] = max(self._replicated[partition], end)

    def histories(self) -> dict[str, list[TransactionState]]:
        """The states that each transactional id went through, on record."""
        found: defaultdict[str, list[TransactionState]] = defaultdict(list)
        for batches in self._batches.values():
            for batch in batches:
                for record in iterate_records(batch):
                    key = decode_transaction_key(record.key or b"")
                    assert isinstance(key, TransactionLogKey)
                    assert record.value is not None
                    status = decode_transaction_value(record.value).transaction_status
                    found[key.transactional_id].append(TransactionState(status))
        return found


class PartitionLogs:
    """ports.PartitionAppends and ports.PartitionLeaders over real logs on two brokers."""

    is_informed = True

    def __init__(self, loop: SimLoop, chance: Random) -> None:
        self.logs = {partition: LogOnDisk(at=f"/{partition}") for partition in PARTITIONS}
        self.is_reliable = False
        self._loop = loop
        self._chance = chance

    def leader_of(self, partition: TopicPartition) -> int | None:
        if not self.is_reliable and self._chance.random() < 0.05:
            return -1
        return PARTITIONS[partition]

    def is_hosted(self, partition: TopicPartition) -> bool:
        return self.is_reliable or self._chance.random() > 0.02

    def is_open(self, partition: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        return self.logs[partition].log.producer_state.is_open(*producer)

    def append(
        self, partition: TopicPartition, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        fate = 1.0 if self.is_reliable else self._chance.random()
        if fate < 0.05:
            return AppendOutcome(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            self.logs[partition].log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=1, from_client=False)
        except ApiError as error:
            return AppendOutcome(error.code)
        outcome = AppendOutcome(ErrorCode.REQUEST_TIMED_OUT if fate < 0.1 else ErrorCode.NONE, 0)
        if fate > 0.5:
            return outcome
        future: asyncio.Future[AppendOutcome] = self._loop.create_future()
        self._loop.call_later(self._chance.uniform(0, 0.2), future.set_result, outcome)
        return future

    def restart_a_leader(self) -> None:
        """Loads its producers from the disk."""
        partition = self._chance.choice(list(PARTITIONS))
        if self._chance.random() < 0.5:
            self.logs[partition].close_and_reopen()
        else:
            self.logs[partition].crash_and_reopen()

    def visible(self, partition: TopicPartition) -> list[bytes]:
        """The records that a reader of committed records gets, by the rules of clients."""
        log = self.logs[partition].log
        stable = log.last_stable_offset(log.log_end_offset)
        aborted = [
            (transaction.first_offset, transaction.producer_id) for transaction in log.aborted_transactions(0, stable)
        ]
        heapq.heapify(aborted)
        ignored: set[int] = set()
        values: list[bytes] = []
        data = log.read(0, 1 << 30, max_offset=stable).read()
        for header in iterate_batches(data):
            while aborted and aborted[0][0] <= header.last_offset:
                ignored.add(heapq.heappop(aborted)[1])
            if header.is_control:
                (record,) = iterate_records(data, header)
                if control_type(record).name == "ABORT":
                    ignored.discard(header.producer_id)
            elif header.producer_id not in ignored:
                values += [record.value or b"" for record in iterate_records(data, header)]
        return values


class OtherBroker:
    """ports.Peers with the broker that leads half of the partitions, over a network that loses messages."""

    is_open = True

    def __init__(self, loop: SimLoop, chance: Random, handler: WriteTxnMarkersHandler) -> None:
        self.is_reliable = False
        self._loop = loop
        self._chance = chance
        self._handler = handler
        self._working: set[asyncio.Task[Any]] = set()

    async def connect(self, _broker_id: int, _purpose: Purpose) -> Any:
        return self

    async def send(self, request: WriteTxnMarkersRequest, _class: type, *, version: int) -> WriteTxnMarkersResponse:
        fate = 1.0 if self.is_reliable else self._chance.random()
        if fate < 0.1:
            raise ConnectionLost("the request got lost")
        # Continues when the sender stops: what was sent arrives.
        task = self._loop.create_task(self._arrive(request))
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        response = await asyncio.shield(task)
        if fate < 0.2:
            raise ConnectionLost("the answer got lost")
        return response

    async def _arrive(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        await asyncio.sleep(self._chance.expovariate(1 / 0.05))
        return await self._handler.handle(request, context(1))

    async def close(self) -> None:
        """Connections of others continue."""


class DumpLine(Enum):
    """The responses to the producer of a transaction about its end."""

    COMMITTED = "committed"
    NOT_COMMITTED = "aborted, or never requested to be committed"
    NOTHING = "requested a commit, and received no response"


@dataclass
class Written:
    """One transaction in the reference model."""

    values: dict[TopicPartition, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    reported: DumpLine = DumpLine.NOT_COMMITTED


class World:
    """One broker after the other coordinates; producers come and go."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.chance = Random(f"{loop.seed} transactions")
        self.state_log = StateLog(loop, self.chance)
        self.partitions = PartitionLogs(loop, self.chance)
        self.transactions: list[Written] = []
        self.latest: dict[str, ProducerIdAndEpoch] = {}
        self._clock = SimClock(loop.time)
        self._timer = WheelTimer(self._clock, loop)
        self._producer_ids = CountingProducerIds()
        self._epoch = 0
        far = PartitionMarkers(self.partitions, ReportedGroups(), self._clock, timeout_ms=1)
        self.other = OtherBroker(loop, self.chance, WriteTxnMarkersHandler(far))
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self) -> TransactionCoordinator:
        markers = MarkerSender(
            HERE,
            leaders=self.partitions,
            local=PartitionMarkers(self.partitions, ReportedGroups(), self._clock, timeout_ms=1),
            peers=self.other,
            version=lambda: 1,
            timer=self._timer,
            clock=self._clock,
        )
        coordinator = TransactionCoordinator(
            broker_id=HERE,
            config=TransactionConfig(abort_check_interval_ms=1_000),
            state_log=self.state_log,
            producer_ids=self._producer_ids,
            markers=markers,
            clock=self._clock,
            timer=self._timer,
        )
        coordinator.start()
        self._lead(coordinator, range(STATE_PARTITIONS))
        return coordinator

    def _lead(self, coordinator: TransactionCoordinator, partitions: range) -> None:
        self._epoch += self.chance.choice((1, 2))
        for partition in partitions:
            coordinator.partitions.on_leader(partition, self._epoch)

    async def misfortune(self) -> None:
        """One thing that can happen to a cluster."""
        await asyncio.sleep(self.chance.expovariate(1 / 2))
        match self.chance.randrange(4):
            case 0:
                old = self.coordinator
                self.state_log.crash()
                await old.stop()
                self.coordinator = self._new_coordinator()
            case 1:
                self._epoch += 1  # an update with an epoch in which this broker still leads
                for partition in range(STATE_PARTITIONS):
                    self.coordinator.partitions.on_leader(partition, self._epoch)
            case 2:
                partition = self.chance.randrange(STATE_PARTITIONS)
                self.coordinator.partitions.on_resign(partition)
                await asyncio.sleep(self.chance.uniform(0, 0.5))
                self._lead(self.coordinator, range(partition, partition + 1))
            case 3:
                self.partitions.restart_a_leader()

    async def come_to_rest(self) -> None:
        """Failures end, and abandoned transactions are ended by their timeout."""
        self.state_log.is_reliable = self.partitions.is_reliable = self.other.is_reliable = True
        await asyncio.sleep(3 * TIMEOUT_MS / 1000)

    async def check(self) -> None:
        """The reference model agrees with what readers see."""
        visible = {partition: self.partitions.visible(partition) for partition in PARTITIONS}
        for partition, values in visible.items():
            log = self.partitions.logs[partition].log
            assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset, f"{partition} hangs"
            assert len(values) == len(set(values)), "nothing is there twice"
        everything = {(partition, value) for partition, values in visible.items() for value in values}
        for transaction in self.transactions:
            written = {(partition, value) for partition, values in transaction.values.items() for value in values}
            seen = written & everything
            assert seen in (set(), written), "a transaction is there as a whole or not at all"
            if transaction.reported is not DumpLine.NOTHING:
                assert seen == (written if transaction.reported is DumpLine.COMMITTED else set())
            everything -= seen
        assert not everything, "there are no unexpected records"
        for states in self.state_log.histories().values():
            check_history(states)
        _, _, unfinished = await self.coordinator.transactions(["Ongoing", "PrepareCommit", "PrepareAbort"])
        assert unfinished == []


def check_history(states: list[TransactionState]) -> None:
    """A completion follows the last decision, and there is one decision per transaction."""
    decided: TransactionState | None = None
    for state in states:
        match state:
            case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
                decided = state
            case TransactionState.COMPLETE_COMMIT:
                assert decided is TransactionState.PREPARE_COMMIT
            case TransactionState.COMPLETE_ABORT:
                assert decided is TransactionState.PREPARE_ABORT
            case _:
                pass


class Fenced(Exception):
    """Another instance replaced the producer, or it has failed."""


class Producer:
    """One instance that behaves as client libraries do: it writes to added partitions and retries where allowed."""

    def __init__(self, world: World, transactional_id: str) -> None:
        self._world = world
        self._chance = world.chance
        self._id = transactional_id
        self._me = ProducerIdAndEpoch(-1, -1)
        self._sequences: defaultdict[TopicPartition, int] = defaultdict(int)
        self._has_requested_end = False

    async def live(self) -> None:
        with contextlib.suppress(Fenced):
            await self._init(expected=None)
            for _ in range(self._chance.randint(1, 6)):
                await self._transact()
                if self._chance.random() < 0.1:
                    await self._init(expected=self._me)

    async def _init(self, *, expected: ProducerIdAndEpoch | None) -> None:
        outcome = ProducerOutcome(ErrorCode.NONE)

        async def call() -> ErrorCode:
            nonlocal outcome
            coordinator = self._world.coordinator
            outcome = await settled(coordinator.init_producer(self._id, timeout_ms=TIMEOUT_MS, expected=expected))
            if outcome.error is ErrorCode.NONE:
                # At this moment all earlier ones are replaced.
                self._world.latest[self._id] = outcome.producer
            return outcome.error

        await self._insist(call)
        self._me = outcome.producer
        self._sequences.clear()

    async def _transact(self) -> None:
        written = Written()
        self._world.transactions.append(written)
        added: set[TopicPartition] = set()
        self._has_requested_end = False
        try:
            for _ in range(self._chance.randint(1, 4)):
                partition = self._chance.choice(list(PARTITIONS))
                await self._add(partition)
                added.add(partition)
                self._produce(partition, written)
                await self._rest()
            await self._end(written)
        except Fenced:
            # A fenced producer without an error yet.  After it has requested the end no client writes: its request may
            # have arrived, and then its epoch counts in the partitions until the next producer writes there.
            await self._rest()
            for partition in [] if self._has_requested_end else sorted(added):
                with contextlib.suppress(Fenced):
                    self._produce(partition, written)
            raise

    async def _add(self, partition: TopicPartition) -> None:
        await self._insist(lambda: settled(self._world.coordinator.add_partitions(self._id, self._me, [partition])))

    def _produce(self, partition: TopicPartition, written: Written) -> None:
        value = b"%s-%d-%d" % (self._id.encode(), len(self._world.transactions), self._chance.getrandbits(40))
        builder = self._world.partitions.logs[partition]
        sequence = self._sequences[partition]
        try:
            builder.append(
                value,
                producer_id=self._me.producer_id,
                producer_epoch=self._me.epoch,
                sequence=sequence,
                transactional=True,
            )
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                raise
            raise Fenced from None
        assert self._world.latest[self._id] == self._me, "a producer that was replaced never appends"
        self._sequences[partition] = sequence + 1
        written.values[partition].append(value)

    async def _end(self, written: Written) -> None:
        match self._chance.choice(("commit", "commit", "abort", "die")):
            case "commit":
                self._has_requested_end = True
                written.reported = DumpLine.NOTHING
                await self._insist(self._request_end(committed=True))
                written.reported = DumpLine.COMMITTED
            case "abort":
                self._has_requested_end = True
                await self._insist(self._request_end(committed=False))
            case _:
                raise Fenced

    def _request_end(self, *, committed: bool) -> Callable[[], Awaitable[ErrorCode]]:
        return lambda: settled(self._world.coordinator.end(self._id, self._me, committed=committed))

    async def _insist(self, call: Callable[[], Awaitable[ErrorCode]]) -> None:
        """Retries until there is a response; raises Fenced on a fatal error or when it takes too long."""
        for _ in range(40):
            error = await call()
            if error is ErrorCode.NONE:
                return
            if error not in COME_AGAIN:
                break
            await self._rest()
        raise Fenced

    async def _rest(self) -> None:
        await asyncio.sleep(self._chance.expovariate(1 / 0.2))


async def several_instances(world: World, transactional_id: str) -> None:
    """Instances one after the other, or a new one while the old one still runs."""
    async with asyncio.TaskGroup() as group:
        for _ in range(world.chance.randint(1, 4)):
            group.create_task(Producer(world, transactional_id).live())
            await asyncio.sleep(world.chance.expovariate(1 / 3))


async def play(loop: SimLoop) -> None:
    world = World(loop)
    async with asyncio.TaskGroup() as group:
        for transactional_id in TRANSACTIONAL_IDS:
            group.create_task(several_instances(world, transactional_id))
        for _ in range(world.chance.randrange(6)):
            await world.misfortune()
    await world.come_to_rest()
    await world.check()
    await world.coordinator.stop()


@examples(150)
@given(seed=st.integers(0, 2**32))
@example(seed=28344905)  # A coordinator confirmed what it had read from its log and lost in a crash.
def test_every_transaction_is_atomic(seed: int) -> None:
    simulate(play, seed=seed)

"""Requests to the transaction coordinator in any order, repeated and wrong, against a model of Kafka's rules.

Goal: every request gets Kafka's error code, and one that is refused changes nothing.  Method: random
requests of all versions go through the handlers, as bytes, and to the model, which shares nothing with the coordinator;
then response, state, producer and partitions must agree.  Epochs start near their end in half of the runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, partition_for_key
from kctl.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from kctl.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kctl.protocol.apis.describe_transactions import DescribeTransactionsRequest
from kctl.protocol.apis.end_txn import EndTxnRequest
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest
from kctl.records.build import build_batch
from kctl.server.coordination.transactions.events import TransactionSnapshot, TransactionState
from kctl.server.coordination.transactions.records import transaction_record
from kctl.testing.sim_loop import SimLoop
from tests.property.model_comparison import compare, pass_turns, run_with_seeds
from tests.unit.transactions.test_handlers import Broker

ID = "id"
OFFSETS = ("__consumer_offsets", partition_for_key("g", 4))
KNOWN = [("t", 0), ("t", 1)]
ABSENT = [("t", 9), ("nothing", 0)]
TIMEOUTS = (4_000, 60_000)
TIMEOUT_MAX = 900_000
LOOK_FOR_TIMEOUTS_MS = 10_000
LAST_EPOCH_GIVEN = 32_766

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_NOT_AVAILABLE = 15
TOPIC_AUTHORIZATION_FAILED = 29
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
OPERATION_NOT_ATTEMPTED = 55
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105

At = tuple[str, int]
Identity = tuple[int, int]
NOBODY = (-1, -1)


@dataclass
class Model:
    """One transactional id.  `producer` is None before the first InitProducerId."""

    producer: Identity | None = None
    previous: Identity = NOBODY
    state: str = "Empty"
    timeout_ms: int = 0
    partitions: set[At] = field(default_factory=set)
    start_ms: int = 0
    now_ms: int = 0
    is_log_broken: bool = False
    are_markers_held: bool = False
    has_failed_fence: bool = False
    """An epoch that was incremented to fence a producer stays incremented if that could not be written, and is
    incremented once until the next decision.
    """

    def init(self, timeout_ms: int, expected: Identity) -> tuple[int, str]:
        """The error, or NONE and what is given: "fresh" for a new producer id, "next" epoch or the "same"."""
        if (expected[0] == -1) != (expected[1] == -1):
            return INVALID_REQUEST, ""
        if not 0 < timeout_ms <= TIMEOUT_MAX:
            return INVALID_TRANSACTION_TIMEOUT, ""
        if self.state in {"PrepareCommit", "PrepareAbort"}:
            return CONCURRENT_TRANSACTIONS, ""
        present = self.producer
        if present is not None and expected != NOBODY and expected[0] != present[0] and expected != self.previous:
            return PRODUCER_FENCED, ""
        if self.state == "Ongoing":
            return (CONCURRENT_TRANSACTIONS, "") if self._abort_and_fence() else (COORDINATOR_NOT_AVAILABLE, "")
        if present is not None and expected not in {NOBODY, present, self.previous}:
            return PRODUCER_FENCED, ""
        if self.is_log_broken:
            return COORDINATOR_NOT_AVAILABLE, ""
        self.state, self.partitions, self.timeout_ms = "Empty", set(), timeout_ms
        if present is None:
            self.previous = expected if expected == NOBODY else NOBODY
            return NONE, "fresh"
        if expected not in {NOBODY, present}:
            return NONE, "same"
        self.previous = present if expected != NOBODY else NOBODY
        return NONE, "next" if present[1] < LAST_EPOCH_GIVEN else "fresh"

    def add(self, producer: Identity, partitions: set[At]) -> int:
        if error := self._refusal(producer):
            return error
        if self.state == "Ongoing" and partitions <= self.partitions:
            return NONE
        if self.is_log_broken:
            return COORDINATOR_NOT_AVAILABLE
        if self.state != "Ongoing":
            self.start_ms, self.partitions = self.now_ms, set()
        self.state = "Ongoing"
        self.partitions |= partitions
        return NONE

    def end(self, producer: Identity, *, committed: bool) -> int:
        if error := self._refusal(producer):
            return error
        if self.state != "Ongoing":
            return NONE if self.state == ("CompleteCommit" if committed else "CompleteAbort") else INVALID_TXN_STATE
        if self.is_log_broken:
            return COORDINATOR_NOT_AVAILABLE
        self._decide("PrepareCommit" if committed else "PrepareAbort")
        return NONE

    def advance(self, milliseconds: int) -> None:
        for _ in range(milliseconds):
            self.now_ms += 1
            is_late = self.state == "Ongoing" and self.start_ms + self.timeout_ms < self.now_ms
            if self.now_ms % LOOK_FOR_TIMEOUTS_MS == 0 and is_late:
                self._abort_and_fence()

    def release_markers(self) -> None:
        self.are_markers_held = False
        self._complete()

    def _refusal(self, producer: Identity) -> int:
        if self.producer is None or producer[0] != self.producer[0]:
            return INVALID_PRODUCER_ID_MAPPING
        if producer[1] != self.producer[1]:
            return PRODUCER_FENCED
        return CONCURRENT_TRANSACTIONS if self.state.startswith("Prepare") else NONE

    def _abort_and_fence(self) -> bool:
        assert self.producer is not None
        if not self.has_failed_fence:
            self.producer = self.producer[0], min(self.producer[1], LAST_EPOCH_GIVEN) + 1
            self.previous = NOBODY
        if self.is_log_broken:
            self.has_failed_fence = True
            return False
        self._decide("PrepareAbort")
        return True

    def _decide(self, state: str) -> None:
        self.state, self.has_failed_fence = state, False
        self._complete()

    def _complete(self) -> None:
        if self.state.startswith("Prepare") and not self.are_markers_held:
            self.state = self.state.replace("Prepare", "Complete")
            self.partitions = set()


class Comparison:
    """Sends the same requests to the broker's handlers and to the model."""

    def __init__(self, broker: Broker, chance: Random) -> None:
        self._broker = broker
        self._chance = chance
        self._had: list[Identity] = [(999, 0)]
        self.model = Model()

    async def start_near_the_last_epoch(self) -> None:
        """An earlier coordinator has assigned nearly all epochs."""
        producer = ProducerIdAndEpoch(500, self._chance.randint(LAST_EPOCH_GIVEN - 4, LAST_EPOCH_GIVEN))
        snapshot = TransactionSnapshot(
            producer=producer,
            timeout_ms=60_000,
            state=TransactionState.COMPLETE_COMMIT,
            last_update_ms=2_000_000_000_000,
        )
        batch = build_batch([transaction_record(ID, snapshot, 1)])
        self._broker.host.log.append(partition_for_key(ID, 4), batch, required_acks=-1, timeout_ms=0)
        self.model.producer = (producer.producer_id, producer.epoch)
        self.model.state, self.model.timeout_ms = "CompleteCommit", 60_000

    async def init(self) -> None:
        version = self._chance.randint(0, 4)
        expected = self._chance.choice((NOBODY, self._any_producer(), (-1, 3), (5, -1))) if version >= 3 else NOBODY
        timeout_ms = self._chance.choice((*TIMEOUTS * 4, 0, -1, TIMEOUT_MAX + 1))
        await self._init(version, timeout_ms, expected)

    async def start(self) -> None:
        await self._init(4, 4_000, NOBODY)

    async def start_over(self) -> None:
        """KIP-360: a producer sends its current id and epoch."""
        await self._init(4, 60_000, self._chance.choice((self.model.producer, self.model.previous)) or NOBODY)

    async def malformed(self) -> None:
        """Invalid and unknown ids."""
        someone: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0}
        topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
        for transactional_id, error in (("", INVALID_REQUEST), ("nobody's", INVALID_PRODUCER_ID_MAPPING)):
            added = await self._broker.call(
                AddPartitionsToTxnRequest(transactional_id=transactional_id, topics=topics, **someone), 3
            )
            assert added.results[0].results[0].error_code == error
            ended = await self._broker.call(
                EndTxnRequest(transactional_id=transactional_id, committed=True, **someone), 3
            )
            assert ended.error_code == error
        started = await self._broker.call(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), 4)
        assert started.error_code == INVALID_REQUEST
        # Without a transactional id the other fields are ignored.
        started = await self._broker.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-5), 4)
        assert (started.error_code, started.producer_epoch) == (NONE, 0)

    async def add(self) -> None:
        requested = [self._chance.choice(KNOWN) for _ in range(self._chance.randint(1, 3))]
        absent = [self._chance.choice([*ABSENT, OFFSETS])] if self._chance.random() < 0.2 else []
        producer, version = self._any_producer(), self._chance.randint(0, 3)
        request = AddPartitionsToTxnRequest(
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in (*requested, *absent)],
            **self._identity(producer),
        )
        completed = await self._broker.call(request, version)
        reported = [result.error_code for topic in completed.results for result in topic.results]
        if absent:
            refused = TOPIC_AUTHORIZATION_FAILED if absent == [OFFSETS] else UNKNOWN_TOPIC_OR_PARTITION
            assert reported == [*[OPERATION_NOT_ATTEMPTED] * len(requested), refused]
        else:
            assert reported == [self._in_format_of(version, self.model.add(producer, set(requested)))] * len(requested)

    async def add_offsets(self) -> None:
        producer, version = self._any_producer(), self._chance.randint(0, 3)
        completed = await self._broker.call(AddOffsetsToTxnRequest(group_id="g", **self._identity(producer)), version)
        assert completed.error_code == self._in_format_of(version, self.model.add(producer, {OFFSETS}))

    async def end(self) -> None:
        producer, version, committed = self._any_producer(), self._chance.randint(0, 3), self._chance.random() < 0.5
        for _ in range(self._chance.randint(1, 2)):
            completed = await self._broker.call(EndTxnRequest(committed=committed, **self._identity(producer)), version)
            assert completed.error_code == self._in_format_of(version, self.model.end(producer, committed=committed))
            await pass_turns()

    async def break_the_log(self) -> None:
        """The next request that has to be written fails; those that change nothing succeed."""
        if self.model.state.startswith("Prepare"):
            return
        self._broker.host.log.error, self.model.is_log_broken = ErrorCode.NOT_ENOUGH_REPLICAS, True
        await self._chance.choice((self.start, self.add, self.end))()
        self._broker.host.log.error, self.model.is_log_broken = ErrorCode.NONE, False

    async def hold_markers(self) -> None:
        self._broker.host.partitions.holds = self.model.are_markers_held = True

    async def release_markers(self) -> None:
        self._broker.host.partitions.holds = False
        self._broker.host.partitions.release()
        await pass_turns()
        self.model.release_markers()

    async def wait(self) -> None:
        """Advances the clock, but not to a moment at which the coordinator checks timeouts, or a timeout expires."""
        milliseconds = self._chance.choice((2_500, 12_500))
        await asyncio.sleep(milliseconds / 1000)
        self.model.advance(milliseconds)

    async def check(self) -> None:
        await pass_turns()
        completed = await self._broker.call(DescribeTransactionsRequest(transactional_ids=[ID]), 0)
        (described,) = completed.transaction_states
        if self.model.producer is None:
            assert described.error_code == TRANSACTIONAL_ID_NOT_FOUND
            return
        assert described.transaction_state == self.model.state
        assert (described.producer_id, described.producer_epoch) == self.model.producer
        assert described.transaction_timeout_ms == self.model.timeout_ms
        reported = {(topic.topic, index) for topic in described.topics for index in topic.partitions}
        assert reported == self.model.partitions

    async def _init(self, version: int, timeout_ms: int, expected: Identity) -> None:
        output = {"producer_id": expected[0], "producer_epoch": expected[1]} if version >= 3 else {}
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=timeout_ms, **output)
        completed = await self._broker.call(request, version)
        error, given = self.model.init(timeout_ms, expected)
        assert completed.error_code == self._in_format_of(version, error, fenced_since=4)
        if error:
            assert (completed.producer_id, completed.producer_epoch) == NOBODY
            return
        got, present = (completed.producer_id, completed.producer_epoch), self.model.producer
        match given:
            case "fresh":
                assert got[1] == 0
                assert got[0] not in {producer_id for producer_id, _ in self._had}
            case "next":
                assert present is not None
                assert got == (present[0], present[1] + 1)
            case "same":
                assert got == present
        self.model.producer = got
        self._had.append(got)

    def _any_producer(self) -> Identity:
        """Mostly the current producer; else an earlier one, or one with an unassigned epoch."""
        present = self.model.producer or (1, 0)
        wrong = (*self._had[-3:], (present[0], present[1] - 1), (present[0], -2), (present[0] + 7, present[1]))
        return present if self._chance.random() < 0.7 else self._chance.choice(wrong)

    def _identity(self, producer: Identity) -> dict[str, Any]:
        return {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}

    def _in_format_of(self, version: int, error: int, *, fenced_since: int = 2) -> int:
        return INVALID_PRODUCER_EPOCH if error == PRODUCER_FENCED and version < fenced_since else error


OPERATIONS: tuple[Callable[[Comparison], Any], ...] = (
    Comparison.init,
    Comparison.start,
    Comparison.start,
    Comparison.start_over,
    Comparison.malformed,
    Comparison.add,
    Comparison.add,
    Comparison.add,
    Comparison.add_offsets,
    Comparison.end,
    Comparison.end,
    Comparison.break_the_log,
    Comparison.hold_markers,
    Comparison.release_markers,
    Comparison.release_markers,
    Comparison.wait,
)


@pytest.mark.long
def test_every_response_equals_that_of_kafka_and_refusals_change_nothing() -> None:
    run_with_seeds(play)


async def play(loop: SimLoop) -> None:
    chance = Random(loop.seed)
    broker = Broker(loop)
    comparison = Comparison(broker, chance)
    if chance.random() < 0.5:
        await comparison.start_near_the_last_epoch()
    await broker.host.start()
    await broker.groups.start()
    await asyncio.sleep(0.7)
    comparison.model.advance(700)
    await compare(comparison, OPERATIONS, chance)
    await broker.host.coordinator.stop()
    await broker.groups.coordinator.stop()

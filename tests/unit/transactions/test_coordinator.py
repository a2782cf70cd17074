"""The transaction coordinator: refusals, loading, unloading, timeouts and expiry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from kctl.errors import CorruptLog, ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition, partition_for_key
from kctl.records.batch import iterate_records
from kctl.records.build import build_batch
from kctl.records.control import parse_end_transaction_marker
from kctl.records.header import Record
from kctl.records.internal.topics import encode_transaction_key
from kctl.server.coordination.transactions.events import TransactionOverview, TransactionSnapshot, TransactionState
from kctl.server.coordination.transactions.records import transaction_record
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import MemoryOffsetsLog, settled
from tests.unit.transactions.hosting import Host
from tests.unit.transactions.world import T0, T1, U0

ANYBODY = ProducerIdAndEpoch(1, 0)
PARTITION = partition_for_key("id", 4)


def simulated(test: Callable[[SimLoop], Awaitable[None]]) -> Callable[[], None]:
    """The test runs on a virtual loop."""

    def run() -> None:
        simulate(test, seed=1)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def every_error(host: Host, transactional_id: str) -> dict[str, ErrorCode]:
    """The error of each call for this id."""
    return {
        "init": (await host.init(transactional_id)).error,
        "add": await host.add(ANYBODY, T0, transactional_id=transactional_id),
        "end": await host.end(ANYBODY, transactional_id=transactional_id),
        "describe": host.coordinator.describe(transactional_id)[0],
    }


@simulated
async def test_coordinator_that_was_not_started_is_not_available(loop: SimLoop) -> None:
    host = Host(loop)
    assert set((await every_error(host, "id")).values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (await host.coordinator.transactions())[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE


@simulated
async def test_id_of_a_partition_led_elsewhere_is_refused(loop: SimLoop) -> None:
    host = Host(loop)
    host.coordinator.start()
    assert set((await every_error(host, "id")).values()) == {ErrorCode.NOT_COORDINATOR}
    host.log.partitions = None
    assert set((await every_error(host, "id")).values()) == {ErrorCode.NOT_COORDINATOR}
    await host.coordinator.stop()


@simulated
async def test_loading_partition_responds_load_in_progress_and_does_not_block_others(loop: SimLoop) -> None:
    log = MemoryOffsetsLog()
    host = await Host(loop, log).start()
    log.gate = asyncio.Event()
    host.coordinator.partitions.on_resign(PARTITION)
    host.coordinator.partitions.on_leader(PARTITION, 5)
    assert set((await every_error(host, "id")).values()) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert (await host.coordinator.transactions())[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    other = next(name for name in "abcdef" if partition_for_key(name, 4) != PARTITION)
    assert (await host.init(other)).error is ErrorCode.NONE
    log.gate.set()
    await host.coordinator.partitions.loaded()
    assert (await host.init()).error is ErrorCode.NONE
    await host.coordinator.stop()


@simulated
async def test_empty_id_is_an_invalid_request(loop: SimLoop) -> None:
    host = await Host(loop).start()
    assert set((await every_error(host, "")).values()) == {ErrorCode.INVALID_REQUEST}
    await host.coordinator.stop()


@simulated
async def test_unknown_id_has_no_producer_and_no_transaction(loop: SimLoop) -> None:
    host = await Host(loop).start()
    assert await host.add(ANYBODY, T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await host.end(ANYBODY) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert host.coordinator.describe("id")[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    await host.coordinator.stop()


@pytest.mark.parametrize("timeout_ms", [-1, 0, 901])
def test_timeout_has_to_be_positive_and_not_above_the_maximum(timeout_ms: int) -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, max_timeout_ms=900).start()
        assert (await host.init(timeout_ms=timeout_ms)).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (await host.init(timeout_ms=900)).error is ErrorCode.NONE
        await host.coordinator.stop()

    simulate(main, seed=1)


@simulated
async def test_transaction_is_begun_written_and_committed(loop: SimLoop) -> None:
    host = await Host(loop).start(epoch=3)
    producer = await host.ongoing(T0, U0)
    assert host.state() == "Ongoing"
    assert await host.end(producer) is ErrorCode.NONE
    await asyncio.sleep(0.01)
    assert host.state() == "CompleteCommit"
    assert host.partitions.marked == [T0, U0]
    marker = parse_end_transaction_marker(next(iterate_records(host.partitions.batches[0][1])))
    assert marker is not None
    assert marker.coordinator_epoch == 3, "the leader epoch of the state partition"
    assert await host.add(producer, T1) is ErrorCode.NONE
    await host.coordinator.stop()


@simulated
async def test_refused_init_keeps_no_transactional_id(loop: SimLoop) -> None:
    host = await Host(loop).start()
    host.producer_ids.is_lost = True
    assert (await host.init()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.producer_ids.is_lost = False
    host.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await host.init()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await host.coordinator.transactions()) == (ErrorCode.NONE, [], [])
    await host.coordinator.stop()


@simulated
async def test_coordinator_that_resigns_during_init_responds_not_coordinator(loop: SimLoop) -> None:
    host = await Host(loop).start()
    host.producer_ids.gate = asyncio.Event()
    reply = host.coordinator.init_producer("id", timeout_ms=1, expected=None)
    host.coordinator.partitions.on_resign(PARTITION)
    host.producer_ids.gate.set()
    assert (await settled(reply)).error is ErrorCode.NOT_COORDINATOR
    assert host.log.records() == []
    await host.coordinator.stop()


@simulated
async def test_stop_completes_all_requests_and_leaves_markers_to_the_next_coordinator(loop: SimLoop) -> None:
    host = await Host(loop).start()
    producer = await host.ongoing(T0)
    host.log.holds = True
    ending = host.coordinator.end("id", producer, committed=True)
    host.producer_ids.gate = asyncio.Event()
    starting = host.coordinator.init_producer("other", timeout_ms=1, expected=None)
    await asyncio.sleep(0)
    await host.coordinator.stop()
    assert await settled(ending) is ErrorCode.NOT_COORDINATOR
    assert (await settled(starting)).error is ErrorCode.NOT_COORDINATOR
    host.log.release()
    await asyncio.sleep(1)
    assert host.partitions.marked == []


@simulated
async def test_new_coordinator_completes_prepared_transactions(loop: SimLoop) -> None:
    old = await Host(loop).start(epoch=0)
    producer = await old.ongoing(T0)
    old.partitions.errors[T0] = ErrorCode.NOT_ENOUGH_REPLICAS
    assert await old.end(producer) is ErrorCode.NONE
    await old.coordinator.stop()
    new = await Host(loop, old.log).start(epoch=2)
    await asyncio.sleep(0.01)
    assert new.partitions.marked == [T0]
    assert new.state() == "CompleteCommit"
    await new.coordinator.stop()


@simulated
async def test_resigned_coordinator_sends_no_more_markers(loop: SimLoop) -> None:
    host = await Host(loop).start()
    producer = await host.ongoing(T0)
    host.partitions.errors[T0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    await host.end(producer)
    await asyncio.sleep(0.05)
    host.coordinator.partitions.on_resign(PARTITION)
    host.partitions.errors.clear()
    await asyncio.sleep(1)
    assert host.partitions.marked == []
    assert host.state() == "NOT_COORDINATOR"
    await host.coordinator.stop()


@simulated
async def test_next_epoch_of_the_same_leader_keeps_the_state_in_memory(loop: SimLoop) -> None:
    host = await Host(loop).start(epoch=4)
    producer = await host.ongoing(T0)
    host.log.gate = asyncio.Event()
    host.coordinator.partitions.on_leader(PARTITION, 5)
    assert await host.end(producer) is ErrorCode.NONE
    await asyncio.sleep(0.01)
    marker = parse_end_transaction_marker(next(iterate_records(host.partitions.batches[0][1])))
    assert marker is not None
    assert marker.coordinator_epoch == 5
    host.coordinator.partitions.on_leader(PARTITION, 7)
    assert host.state() == "COORDINATOR_LOAD_IN_PROGRESS"
    await host.coordinator.stop()


@simulated
async def test_leadership_changes_of_older_epochs_are_ignored(loop: SimLoop) -> None:
    host = await Host(loop).start(epoch=4)
    await host.producer()
    host.coordinator.partitions.on_resign(PARTITION, 3)
    host.coordinator.partitions.on_leader(PARTITION, 2)
    assert host.state() == "Empty"
    host.coordinator.partitions.on_resign(PARTITION, 4)
    assert host.state() == "NOT_COORDINATOR"
    await host.coordinator.stop()


@simulated
async def test_unreadable_partition_stays_unavailable(loop: SimLoop) -> None:
    host = Host(loop)
    host.log.load_failure = CorruptLog("/t", 0, "torn")
    await host.start()
    assert (await host.init()).error is ErrorCode.NOT_COORDINATOR
    await host.coordinator.stop()


@simulated
async def test_timed_out_transactions_are_aborted_periodically(loop: SimLoop) -> None:
    host = await Host(loop, abort_check_interval_ms=10_000).start()
    producer = await host.ongoing(T0)
    await asyncio.sleep(60)
    assert host.state() == "Ongoing"
    await asyncio.sleep(11)
    assert host.state() == "CompleteAbort"
    assert await host.end(producer) is ErrorCode.PRODUCER_FENCED
    await host.coordinator.stop()


@simulated
async def test_unused_transactional_ids_are_expired_periodically(loop: SimLoop) -> None:
    host = await Host(loop, id_expiration_ms=100_000, expiration_check_interval_ms=60_000).start()
    await host.producer()
    await asyncio.sleep(90)
    assert host.state() == "Empty"
    await asyncio.sleep(60)
    assert host.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    new = await Host(loop, host.log).start(epoch=2)
    assert new.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert (await new.producer()).producer_id == 1000
    await new.coordinator.stop()
    await host.coordinator.stop()


@simulated
@pytest.mark.long
async def test_checks_of_many_ids_are_split_over_loop_turns(loop: SimLoop) -> None:
    host = await Host(loop).start()
    for number in range(1_200):
        await host.ongoing(T0, transactional_id=f"id-{number}")
    await asyncio.sleep(61)
    host.coordinator.abort_timed_out()
    await asyncio.sleep(1)
    _, _, ended = await host.coordinator.transactions(["CompleteAbort"])
    assert len(ended) == 1_200
    await host.coordinator.stop()


@simulated
async def test_completion_is_persisted_when_appends_succeed_again(loop: SimLoop) -> None:
    host = await Host(loop).start()
    producer = await host.ongoing(T0)
    host.partitions.holds = True
    await host.end(producer)
    await asyncio.sleep(0.01)
    host.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    host.partitions.release()
    await asyncio.sleep(1)
    assert host.state() == "PrepareCommit"
    host.log.error = ErrorCode.NONE
    await asyncio.sleep(1)
    assert host.state() == "CompleteCommit"
    assert len(host.partitions.batches) == 1
    await host.coordinator.stop()


@simulated
async def test_transactions_are_listed_by_state_and_producer(loop: SimLoop) -> None:
    host = await Host(loop).start()
    await host.ongoing(T0, transactional_id="a")
    await host.producer("b")
    a = TransactionOverview("a", 1000, TransactionState.ONGOING)
    b = TransactionOverview("b", 1001, TransactionState.EMPTY)
    listed = host.coordinator.transactions
    assert await listed() == (ErrorCode.NONE, [], [a, b])
    assert await listed(["Ongoing"]) == (ErrorCode.NONE, [], [a])
    assert await listed(["Ongoing", "Dead", "Sleepy"]) == (ErrorCode.NONE, ["Sleepy"], [a])
    assert await listed(["Sleepy"]) == (ErrorCode.NONE, ["Sleepy"], [])
    assert await listed([], [1001, 5]) == (ErrorCode.NONE, [], [b])
    assert await listed(["Ongoing"], [1001]) == (ErrorCode.NONE, [], [])
    await host.coordinator.stop()


@simulated
async def test_transaction_is_described_with_the_partitions_that_still_lack_a_marker(loop: SimLoop) -> None:
    host = await Host(loop).start()
    producer = await host.ongoing(T0, T1, U0)
    host.partitions.errors[T1] = ErrorCode.NOT_ENOUGH_REPLICAS
    start_ms = host.clock.now_ms()
    await host.end(producer, committed=False)
    await asyncio.sleep(0.05)
    error, described = host.coordinator.describe("id")
    assert error is ErrorCode.NONE
    assert described == TransactionSnapshot(
        producer=producer,
        timeout_ms=60_000,
        state=TransactionState.PREPARE_ABORT,
        partitions=(T1,),
        last_update_ms=start_ms,
        start_ms=start_ms,
    )
    await host.coordinator.stop()


class TestLoading:
    def test_the_last_record_of_an_id_is_loaded(self) -> None:
        async def main(loop: SimLoop) -> None:
            log = MemoryOffsetsLog()
            for epoch in range(3):
                log.append(PARTITION, build_batch([_record("id", epoch)]), required_acks=-1, timeout_ms=0)
            host = await Host(loop, log).start()
            assert host.coordinator.describe("id")[1] == _snapshot(2)
            assert await host.producer() == (5, 3)
            await host.coordinator.stop()

        simulate(main, seed=1)

    def test_a_malformed_record_is_skipped_with_one_log_line_and_the_rest_loads(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bad = Record(0, 1, encode_transaction_key("id"), b"\x00\x00\x00")
        strange = Record(0, 1, encode_transaction_key("strange"), transaction_record("x", _snapshot(0), 1).value)
        assert strange.value is not None
        broken_state = strange.value[:16] + b"\x06" + strange.value[17:]

        async def main(loop: SimLoop) -> None:
            log = MemoryOffsetsLog()
            records = [_record("id", 0), bad, strange._replace(value=broken_state), _record("good", 7)]
            log.append(PARTITION, build_batch(records), required_acks=-1, timeout_ms=0)
            host = await Host(loop, log).start()
            _, _, found = await host.coordinator.transactions()
            assert [listed.transactional_id for listed in found] == ["good"]
            await host.coordinator.stop()

        with caplog.at_level(logging.WARNING):
            simulate(main, seed=1)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 2
        assert "offset=1" in lines[0]
        assert "b'\\x00\\x00\\x00\\x02id'" in lines[0]
        assert "transaction state 6" in lines[1]

    def test_unknown_key_types_are_skipped_silently(self, caplog: pytest.LogCaptureFixture) -> None:
        async def main(loop: SimLoop) -> None:
            log = MemoryOffsetsLog()
            newer = Record(0, 1, b"\x00\x09whatever", b"\x00\x00")
            batch = build_batch([newer, _record("id", 1)])
            log.append(PARTITION, batch, required_acks=-1, timeout_ms=0)
            host = await Host(loop, log).start()
            assert host.state() == "Empty"
            await host.coordinator.stop()

        with caplog.at_level(logging.WARNING):
            simulate(main, seed=1)
        assert not caplog.records


def _snapshot(epoch: int) -> TransactionSnapshot:
    return TransactionSnapshot(
        producer=ProducerIdAndEpoch(5, epoch), timeout_ms=60_000, state=TransactionState.EMPTY, last_update_ms=1
    )


def _record(transactional_id: str, epoch: int) -> Record:
    return transaction_record(transactional_id, _snapshot(epoch), 1)


def test_partitions_of_a_record_are_restored_by_topic() -> None:
    partitions = (T0, U0, T1, TopicPartition("u", 3))
    record = transaction_record(
        "id",
        TransactionSnapshot(
            producer=ProducerIdAndEpoch(5, 1),
            timeout_ms=9,
            state=TransactionState.ONGOING,
            partitions=partitions,
            last_update_ms=2,
            start_ms=1,
        ),
        3,
    )

    async def main(loop: SimLoop) -> None:
        log = MemoryOffsetsLog()
        log.append(PARTITION, build_batch([record]), required_acks=-1, timeout_ms=0)
        host = await Host(loop, log).start()
        described = host.coordinator.describe("id")[1]
        assert described is not None
        assert described.partitions == (T0, T1, U0, TopicPartition("u", 3))
        assert (described.timeout_ms, described.last_update_ms, described.start_ms) == (9, 2, 1)
        await host.coordinator.stop()

    simulate(main, seed=1)

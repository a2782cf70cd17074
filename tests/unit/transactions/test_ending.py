"""A transaction from its first partition to its last marker: one decision, stored before the response."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch
from kctl.server.coordination.transactions.events import PREVIOUS_STATES, TransactionState, Unload
from tests.rows import for_rows
from tests.unit.transactions.world import EXPIRATION_MS, T0, T1, TIMEOUT_MS, U0, Token, TransactionWorld, response

BOTH_WAYS = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])


def prepared(*, committed: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT


def completed(*, committed: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT


def states_in_log(world: TransactionWorld) -> list[TransactionState]:
    return [snapshot.state for snapshot in world.log if snapshot is not None]


def test_partitions_are_persisted_before_the_response() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.holds_appends = True
    token = world.add(producer, T0, T1)
    assert response(token) is None
    world.finish_append()
    assert response(token) is ErrorCode.NONE
    assert world.log[-1] is not None
    assert world.log[-1].partitions == (T0, T1)


def test_partitions_add_up_and_the_start_is_that_of_the_first() -> None:
    world = TransactionWorld()
    world.elapsed_ms = 5
    producer = world.ongoing(T0)
    start_ms = world.transaction.start_ms
    world.elapsed_ms = 50
    world.add(producer, U0, T0)
    assert world.transaction.describe().partitions == (T0, U0)
    assert world.transaction.start_ms == start_ms
    assert world.transaction.last_update_ms == start_ms + 45


def test_adding_known_partitions_succeeds_without_a_record() -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0, T1)
    records = len(world.log)
    assert response(world.add(producer, T1)) is ErrorCode.NONE
    assert len(world.log) == records


def test_partitions_with_a_failed_append_are_not_in_the_transaction() -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert response(world.add(producer, T1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.transaction.describe().partitions == (T0,)


@BOTH_WAYS
def test_the_response_to_a_decision_follows_its_append_and_markers_follow(committed: bool) -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0, U0)
    world.holds_appends = world.holds_markers = True
    token = world.end(producer, committed=committed)
    assert response(token) is None
    assert world.sent == []
    world.finish_append()
    assert response(token) is ErrorCode.NONE
    assert (world.sent[0].committed, world.sent[0].partitions) == (committed, (T0, U0))
    assert world.sent[0].producer == producer
    assert world.transaction.state is prepared(committed=committed)


@BOTH_WAYS
def test_transaction_completes_with_its_last_marker(committed: bool) -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0, U0)
    world.holds_markers = True
    world.end(producer, committed=committed)
    world.write_markers([U0])
    assert world.transaction.state is prepared(committed=committed)
    assert world.owed == (T0,)
    world.write_markers([T0])
    assert world.transaction.state is completed(committed=committed)
    assert world.log[-1] is not None
    assert world.log[-1].partitions == ()
    assert states_in_log(world)[-2:] == [prepared(committed=committed), completed(committed=committed)]


@BOTH_WAYS
def test_pending_markers_respond_concurrent_transactions(committed: bool) -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    world.holds_markers = True
    world.end(producer, committed=committed)
    assert response(world.end(producer, committed=committed)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert response(world.end(producer, committed=not committed)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert response(world.add(producer, T1)) is ErrorCode.CONCURRENT_TRANSACTIONS


@BOTH_WAYS
def test_repeated_end_succeeds_and_the_opposite_end_is_refused(committed: bool) -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    world.end(producer, committed=committed)
    records = len(world.log)
    assert response(world.end(producer, committed=committed)) is ErrorCode.NONE
    assert response(world.end(producer, committed=not committed)) is ErrorCode.INVALID_TXN_STATE
    assert len(world.log) == records


@BOTH_WAYS
def test_ending_before_a_partition_was_added_is_refused(committed: bool) -> None:
    world = TransactionWorld()
    producer = world.producer()
    assert response(world.end(producer, committed=committed)) is ErrorCode.INVALID_TXN_STATE


@BOTH_WAYS
def test_next_transaction_starts_without_partitions(committed: bool) -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    world.end(producer, committed=committed)
    world.elapsed_ms = 1_000
    world.add(producer, T1)
    assert world.transaction.describe().partitions == (T1,)
    assert world.transaction.start_ms == world.now_ms
    assert world.transaction.state is TransactionState.ONGOING


@BOTH_WAYS
def test_transaction_without_partitions_completes_at_once(committed: bool) -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    assert response(world.end(producer, committed=committed)) is ErrorCode.NONE
    assert world.sent == []
    assert world.transaction.state is completed(committed=committed)


@BOTH_WAYS
def test_decision_with_a_failed_append_is_not_made(committed: bool) -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert response(world.end(producer, committed=committed)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.transaction.state is TransactionState.ONGOING
    assert world.sent == []
    world.append_error = ErrorCode.NONE
    assert response(world.end(producer, committed=not committed)) is ErrorCode.NONE
    assert world.sent[0].committed is not committed


def test_completion_with_a_failed_append_is_retried_without_markers() -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    world.holds_markers = True
    world.end(producer, committed=True)
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.write_markers()
    world.try_completion_again()
    assert world.completions_due == 1
    assert response(world.add(producer, T0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.append_error = ErrorCode.NONE
    world.try_completion_again()
    assert world.transaction.state is TransactionState.COMPLETE_COMMIT
    assert len(world.sent) == 1


@for_rows(
    "error, reported",
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_append_errors_become_coordinator_errors(error: ErrorCode, reported: ErrorCode) -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    world.append_error = error
    assert response(world.end(producer, committed=True)) is reported
    assert response(world.add(producer, T1)) is reported


class TestTimeout:
    def test_timed_out_transaction_is_aborted_with_a_fencing_epoch(self) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        world.elapsed_ms = TIMEOUT_MS + 1
        world.look_for_timeout()
        assert world.transaction.state is TransactionState.COMPLETE_ABORT
        assert world.sent[0].producer == (producer.producer_id, producer.epoch + 1)
        assert response(world.end(producer, committed=True)) is ErrorCode.PRODUCER_FENCED
        assert world.producer().epoch == producer.epoch + 2

    def test_transaction_is_not_aborted_before_its_timeout(self) -> None:
        world = TransactionWorld()
        world.ongoing(T0)
        world.elapsed_ms = TIMEOUT_MS
        world.look_for_timeout()
        assert world.transaction.state is TransactionState.ONGOING

    def test_timeout_runs_from_the_first_added_partition(self) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        world.elapsed_ms = TIMEOUT_MS
        world.add(producer, T1)
        world.elapsed_ms = TIMEOUT_MS + 1
        world.look_for_timeout()
        assert world.transaction.state is TransactionState.COMPLETE_ABORT

    def test_producer_without_a_transaction_does_not_time_out(self) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        world.end(producer, committed=True)
        world.elapsed_ms = 10 * TIMEOUT_MS
        world.look_for_timeout()
        assert world.transaction.state is TransactionState.COMPLETE_COMMIT

    def test_pending_decision_is_not_replaced_by_a_timeout(self) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        world.holds_appends = world.holds_markers = True
        token = world.end(producer, committed=True)
        world.elapsed_ms = 2 * TIMEOUT_MS
        world.look_for_timeout()
        world.finish_append()
        world.look_for_timeout()
        assert response(token) is ErrorCode.NONE
        assert world.transaction.state is TransactionState.PREPARE_COMMIT

    def test_abort_with_a_failed_append_is_retried_at_the_next_check(self) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        world.elapsed_ms = TIMEOUT_MS + 1
        world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        world.look_for_timeout()
        world.append_error = ErrorCode.NONE
        world.look_for_timeout()
        assert world.sent[0].producer == (producer.producer_id, producer.epoch + 1)

    def test_timeout_counts_from_the_same_start_on_a_new_coordinator(self) -> None:
        world = TransactionWorld()
        world.ongoing(T0)
        world = world.restart()
        world.elapsed_ms = TIMEOUT_MS + 1
        world.look_for_timeout()
        assert world.transaction.state is TransactionState.COMPLETE_ABORT


class TestExpiry:
    def test_unused_id_expires(self) -> None:
        world = TransactionWorld()
        world.producer()
        world.elapsed_ms = EXPIRATION_MS
        world.look_for_expiry()
        assert world.log[-1] is None
        assert world.is_discarded
        assert world.transaction.state is TransactionState.DEAD

    @BOTH_WAYS
    def test_id_with_a_completed_transaction_expires(self, committed: bool) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        world.end(producer, committed=committed)
        world.elapsed_ms = EXPIRATION_MS
        world.look_for_expiry()
        assert world.is_discarded

    def test_id_in_use_does_not_expire(self) -> None:
        world = TransactionWorld()
        world.producer()
        world.elapsed_ms = EXPIRATION_MS - 1
        world.look_for_expiry()
        assert not world.is_discarded

    def test_open_transaction_never_expires(self) -> None:
        world = TransactionWorld()
        world.ongoing(T0)
        world.elapsed_ms = 2 * EXPIRATION_MS
        world.look_for_expiry()
        assert world.transaction.state is TransactionState.ONGOING

    def test_id_with_a_failed_tombstone_append_is_kept(self) -> None:
        world = TransactionWorld()
        producer = world.producer()
        world.elapsed_ms = EXPIRATION_MS
        world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        world.look_for_expiry()
        world.append_error = ErrorCode.NONE
        assert not world.is_discarded
        assert response(world.add(producer, T0)) is ErrorCode.NONE

    def test_pending_tombstone_responds_concurrent_transactions(self) -> None:
        world = TransactionWorld()
        producer = world.producer()
        world.elapsed_ms = EXPIRATION_MS
        world.holds_appends = True
        world.look_for_expiry()
        assert response(world.add(producer, T0)) is ErrorCode.CONCURRENT_TRANSACTIONS


class TestAnotherCoordinator:
    @BOTH_WAYS
    def test_completes_prepared_transactions(self, committed: bool) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0, U0)
        world.holds_markers = True
        world.end(producer, committed=committed)
        world.write_markers([T0])
        new = world.restart()
        assert new.sent[0].partitions == (T0, U0), "which were written is not on record"
        assert new.sent[0].committed is committed
        new.write_markers()
        assert new.transaction.state is completed(committed=committed)

    def test_keeps_an_open_transaction_open(self) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        new = world.restart()
        assert response(new.add(producer, T1)) is ErrorCode.NONE
        assert response(new.end(producer, committed=True)) is ErrorCode.NONE
        assert new.sent[0].partitions == (T0, T1)

    def test_appended_decision_holds_although_its_response_was_an_error(self) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        world.append_error = ErrorCode.REQUEST_TIMED_OUT
        assert response(world.end(producer, committed=True)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        new = world.restart()
        assert new.transaction.state is TransactionState.COMPLETE_COMMIT
        assert response(new.end(producer, committed=True)) is ErrorCode.NONE

    @pytest.mark.parametrize("call", ["init", "add", "end"])
    def test_waiting_requests_get_not_coordinator(self, call: str) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        if call == "init":
            world.end(producer, committed=True)
        world.holds_appends = True
        calls: dict[str, Callable[[], Token]] = {
            "init": world.init,
            "add": lambda: world.add(producer, T1),
            "end": lambda: world.end(producer, committed=True),
        }
        token = calls[call]()
        world.do(Unload())
        outcome = response(token)
        assert (outcome.error if call == "init" else outcome) is ErrorCode.NOT_COORDINATOR  # type: ignore[union-attr]
        assert world.is_discarded


def test_prepared_state_can_only_complete() -> None:
    """KIP-98: one decision per transaction."""
    after_commit = {state for state, before in PREVIOUS_STATES.items() if TransactionState.PREPARE_COMMIT in before}
    after_abort = {state for state, before in PREVIOUS_STATES.items() if TransactionState.PREPARE_ABORT in before}
    assert after_commit == {TransactionState.COMPLETE_COMMIT}
    assert after_abort == {TransactionState.COMPLETE_ABORT}


def test_states_have_kafkas_names_and_numbers() -> None:
    assert {state.value: state.label for state in TransactionState} == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    }


def test_transactional_id_without_a_producer_is_unknown() -> None:
    world = TransactionWorld()
    nobody = ProducerIdAndEpoch(-1, -1)
    assert response(world.add(nobody, T0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert response(world.end(nobody, committed=True)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

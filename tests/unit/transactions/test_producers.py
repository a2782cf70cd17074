"""InitProducerId: assigned ids and epochs, and fencing.  KIP-98, KIP-360, KIP-588."""

from __future__ import annotations

import pytest

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch
from kctl.server.coordination.transactions.events import TransactionSnapshot, TransactionState
from kctl.server.coordination.transactions.transaction import EPOCH_MAX, Transaction
from tests.unit.transactions.world import (
    FIRST_PRODUCER_ID,
    START_MS,
    T0,
    TIMEOUT_MS,
    TransactionWorld,
    granted,
    refused,
    response,
)

LAST_EPOCH_OF_A_PRODUCER = EPOCH_MAX - 1


def world_at(epoch: int, state: TransactionState = TransactionState.EMPTY) -> TransactionWorld:
    """A transaction as loaded from the log, with this epoch."""
    snapshot = TransactionSnapshot(
        producer=ProducerIdAndEpoch(5, epoch),
        timeout_ms=TIMEOUT_MS,
        state=state,
        partitions=(T0,) if state is TransactionState.ONGOING else (),
        last_update_ms=START_MS,
        start_ms=START_MS if state is TransactionState.ONGOING else -1,
    )
    return TransactionWorld(Transaction.restored("id", snapshot))


def test_first_producer_gets_a_new_id_with_epoch_zero_and_it_is_persisted() -> None:
    world = TransactionWorld()
    assert world.producer() == (FIRST_PRODUCER_ID, 0)
    assert world.log == [
        TransactionSnapshot(
            producer=ProducerIdAndEpoch(FIRST_PRODUCER_ID, 0),
            timeout_ms=TIMEOUT_MS,
            state=TransactionState.EMPTY,
            last_update_ms=START_MS,
        )
    ]


def test_producer_gets_its_epoch_only_after_the_append() -> None:
    world = TransactionWorld()
    world.holds_appends = True
    token = world.init()
    assert response(token) is None
    world.finish_append()
    assert granted(token) == (FIRST_PRODUCER_ID, 0)


def test_next_producer_gets_the_next_epoch_and_its_own_timeout() -> None:
    world = TransactionWorld()
    world.producer()
    assert granted(world.init(timeout_ms=7)) == (FIRST_PRODUCER_ID, 1)
    assert world.transaction.timeout_ms == 7


def test_two_first_producers_at_once_share_one_id() -> None:
    world = TransactionWorld()
    world.holds_allocations = True
    one, other = world.init(), world.init()
    world.allocate()
    world.allocate()
    assert granted(one) == (FIRST_PRODUCER_ID, 0)
    assert granted(other) == (FIRST_PRODUCER_ID, 1)


def test_producer_with_a_failed_append_gets_no_epoch() -> None:
    world = TransactionWorld()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused(world.init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.is_discarded
    assert world.transaction.is_new


def test_epoch_with_a_failed_append_is_given_to_the_next_producer() -> None:
    world = TransactionWorld()
    world.producer()
    world.append_error = ErrorCode.REQUEST_TIMED_OUT
    assert refused(world.init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.append_error = ErrorCode.NONE
    assert world.producer() == (FIRST_PRODUCER_ID, 1)


def test_pending_append_responds_concurrent_transactions() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.holds_appends = True
    waiting = world.init()
    assert refused(world.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert response(world.add(producer, T0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert response(world.end(producer, committed=True)) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.finish_append()
    assert granted(waiting) == (FIRST_PRODUCER_ID, 1)


@pytest.mark.parametrize("committed", [True, False])
def test_pending_markers_respond_concurrent_transactions_to_a_new_producer(committed: bool) -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    world.holds_markers = True
    world.end(producer, committed=committed)
    assert refused(world.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    assert world.producer() == (FIRST_PRODUCER_ID, 1)


def test_new_producer_aborts_the_open_transaction_and_retries() -> None:
    world = TransactionWorld()
    old = world.ongoing(T0)
    world.holds_markers = True
    assert refused(world.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    states = [world.transaction.state]
    world.write_markers()
    states.append(world.transaction.state)
    assert states == [TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT]
    new = world.producer()
    assert new.epoch == old.epoch + 2


def test_fencing_abort_uses_an_epoch_that_no_producer_has() -> None:
    """So that partitions refuse later batches of the fenced producer."""
    world = TransactionWorld()
    old = world.ongoing(T0)
    world.init()
    (markers,) = world.sent
    assert markers.producer == (old.producer_id, old.epoch + 1)
    assert not markers.committed
    assert world.producer().epoch > markers.producer.epoch


def test_fenced_producer_is_refused_everything_and_changes_nothing() -> None:
    world = TransactionWorld()
    old = world.ongoing(T0)
    world.init()
    new = world.producer()
    before = world.transaction.describe()
    assert response(world.add(old, T0)) is ErrorCode.PRODUCER_FENCED
    assert response(world.end(old, committed=True)) is ErrorCode.PRODUCER_FENCED
    assert response(world.end(old, committed=False)) is ErrorCode.PRODUCER_FENCED
    assert refused(world.init(old)) is ErrorCode.PRODUCER_FENCED
    assert world.transaction.describe() == before
    assert response(world.add(new, T0)) is ErrorCode.NONE


def test_producer_with_a_higher_epoch_is_fenced_too() -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    ahead = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    assert response(world.end(ahead, committed=True)) is ErrorCode.PRODUCER_FENCED


def test_producer_with_another_producer_id_is_refused() -> None:
    world = TransactionWorld()
    producer = world.ongoing(T0)
    unauthenticated = ProducerIdAndEpoch(producer.producer_id + 1, producer.epoch)
    assert response(world.add(unauthenticated, T0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert response(world.end(unauthenticated, committed=True)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(world.init(unauthenticated)) is ErrorCode.PRODUCER_FENCED


class TestRecoveringProducer:
    """KIP-360: a producer that sends its current id and epoch."""

    def test_with_the_current_epoch_gets_the_next(self) -> None:
        world = TransactionWorld()
        producer = world.producer()
        assert granted(world.init(producer)).epoch == producer.epoch + 1

    def test_gets_the_same_response_after_a_lost_response(self) -> None:
        world = TransactionWorld()
        producer = world.producer()
        first = granted(world.init(producer))
        assert granted(world.init(producer)) == first
        assert granted(world.init(producer)) == first

    def test_is_fenced_if_another_instance_came_in_between(self) -> None:
        world = TransactionWorld()
        producer = world.producer()
        world.init(producer)
        world.producer()
        assert refused(world.init(producer)) is ErrorCode.PRODUCER_FENCED

    def test_is_fenced_after_a_fencing_abort(self) -> None:
        world = TransactionWorld()
        producer = world.ongoing(T0)
        assert refused(world.init(producer)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert refused(world.init(producer)) is ErrorCode.PRODUCER_FENCED

    def test_gets_a_new_id_if_its_id_expired(self) -> None:
        world = TransactionWorld()
        assert granted(world.init(ProducerIdAndEpoch(7, 3))) == (FIRST_PRODUCER_ID, 0)

    def test_a_lost_response_is_not_remembered_by_another_coordinator(self) -> None:
        """Kafka's record has no field for the previous epoch either."""
        world = TransactionWorld()
        producer = world.producer()
        world.init(producer)
        assert refused(world.restart().init(producer)) is ErrorCode.PRODUCER_FENCED


class TestExhaustedEpochs:
    def test_last_epoch_of_an_id_can_commit_a_transaction(self) -> None:
        world = world_at(LAST_EPOCH_OF_A_PRODUCER - 1)
        producer = world.producer()
        assert producer == (5, LAST_EPOCH_OF_A_PRODUCER)
        assert response(world.add(producer, T0)) is ErrorCode.NONE
        assert response(world.end(producer, committed=True)) is ErrorCode.NONE

    def test_after_the_last_epoch_a_new_id_is_assigned(self) -> None:
        world = world_at(LAST_EPOCH_OF_A_PRODUCER)
        assert world.producer() == (FIRST_PRODUCER_ID, 0)

    def test_recovering_producer_gets_a_new_id_and_may_repeat_the_request(self) -> None:
        world = world_at(LAST_EPOCH_OF_A_PRODUCER)
        exhausted = ProducerIdAndEpoch(5, LAST_EPOCH_OF_A_PRODUCER)
        first = granted(world.init(exhausted))
        assert first == (FIRST_PRODUCER_ID, 0)
        assert granted(world.init(exhausted)) == first

    def test_repeated_request_is_fenced_when_another_instance_took_the_new_id(self) -> None:
        world = world_at(LAST_EPOCH_OF_A_PRODUCER)
        exhausted = ProducerIdAndEpoch(5, LAST_EPOCH_OF_A_PRODUCER)
        world.init()
        assert refused(world.init(exhausted)) is ErrorCode.PRODUCER_FENCED

    def test_stale_producer_of_an_exhausted_id_is_fenced(self) -> None:
        world = world_at(LAST_EPOCH_OF_A_PRODUCER)
        assert refused(world.init(ProducerIdAndEpoch(5, 3))) is ErrorCode.PRODUCER_FENCED

    def test_last_epoch_can_still_be_fenced(self) -> None:
        world = world_at(LAST_EPOCH_OF_A_PRODUCER, TransactionState.ONGOING)
        assert refused(world.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert world.sent[0].producer == (5, EPOCH_MAX)
        assert world.producer() == (FIRST_PRODUCER_ID, 0)

    def test_transaction_of_an_unassigned_epoch_is_aborted_in_it(self) -> None:
        """A producer that guesses the epoch after a fenced one must not stop the coordinator."""
        world = world_at(EPOCH_MAX)
        assert response(world.add(ProducerIdAndEpoch(5, EPOCH_MAX), T0)) is ErrorCode.NONE
        assert refused(world.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert world.sent[0].producer == (5, EPOCH_MAX)
        assert world.producer() == (FIRST_PRODUCER_ID, 0)

    def test_failed_fencing_does_not_use_up_epochs(self) -> None:
        world = world_at(LAST_EPOCH_OF_A_PRODUCER, TransactionState.ONGOING)
        world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        for _ in range(3):
            assert refused(world.init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert world.transaction.producer == (5, EPOCH_MAX)
        world.append_error = ErrorCode.NONE
        world.init()
        assert world.sent[0].producer == (5, EPOCH_MAX)


def test_failed_fencing_still_fences() -> None:
    """The incremented epoch may be in the log, so the old one must not be used."""
    world = TransactionWorld()
    old = world.ongoing(T0)
    world.append_error = ErrorCode.REQUEST_TIMED_OUT
    world.init()
    world.append_error = ErrorCode.NONE
    assert response(world.end(old, committed=True)) is ErrorCode.PRODUCER_FENCED
    assert world.transaction.state is TransactionState.ONGOING


def test_fence_after_a_completed_one_raises_the_epoch_again() -> None:
    world = TransactionWorld()
    world.ongoing(T0)
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.init()
    world.append_error = ErrorCode.NONE
    world.init()
    producer = world.ongoing(T0)
    world.init()
    assert world.sent[-1].producer.epoch == producer.epoch + 1

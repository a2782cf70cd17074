"""`step(transaction, event, now_ms) -> actions`: the only way in which a transaction changes.

The caller performs the actions in order and passes their results as further events.  Errors are results; an exception
is a bug.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from kctl.errors import ErrorCode
from kctl.limits import Subject, bound
from kctl.model import ProducerIdAndEpoch
from kctl.server.coordination.replay import transaction_error
from kctl.server.coordination.transactions.events import (
    NO_PRODUCER,
    Action,
    AddPartitions,
    AllocateProducerId,
    AppendDone,
    CheckExpiry,
    CheckTimeout,
    CompletionDue,
    Discard,
    EndTransaction,
    Event,
    InitOutcome,
    InitProducer,
    Loaded,
    MarkersWritten,
    Persist,
    Respond,
    ScheduleCompletion,
    SendMarkers,
    Token,
    TransactionSnapshot,
    TransactionState,
    Unload,
)
from kctl.server.coordination.transactions.transaction import EPOCH_MAX, Transaction, Write

TRANSACTION_PARTITIONS_MAX = bound(
    Subject.COORDINATION,
    "partitions in one transaction",
    10_000,
    "partitions",
    on_excess="INVALID_REQUEST, and none of the partitions is added",
)
"""Each addition writes all partitions of the transaction into one record: 10,000 take 13 ms."""


def step(transaction: Transaction, event: Event, now_ms: int) -> list[Action]:
    """Update `transaction` for the event at this wall-clock time and return the actions to perform."""
    out: list[Action] = []
    match event:
        case InitProducer():
            _init_producer(transaction, event, now_ms, out)
        case AddPartitions():
            _add_partitions(transaction, event, now_ms, out)
        case EndTransaction():
            _end(transaction, event, now_ms, out)
        case AppendDone():
            _append_done(transaction, event, now_ms, out)
        case MarkersWritten():
            _markers_written(transaction, event, now_ms, out)
        case CompletionDue():
            _complete_if_all_written(transaction, now_ms, out)
        case CheckTimeout():
            _abort_if_timed_out(transaction, event, now_ms, out)
        case CheckExpiry():
            _expire_if_unused(transaction, event, now_ms, out)
        case Loaded():
            _resume_decision(transaction, now_ms, out)
        case Unload():
            _unload(transaction, out)
        case _:
            assert_never(event)
    return out


def _init_producer(transaction: Transaction, event: InitProducer, now_ms: int, out: list[Action]) -> None:
    expected = event.expected
    if transaction.is_busy:
        _refuse_init(event, ErrorCode.CONCURRENT_TRANSACTIONS, out)
    elif expected is not None and not _may_be_current(transaction, expected):
        _refuse_init(event, ErrorCode.PRODUCER_FENCED, out)
    elif transaction.state is TransactionState.ONGOING:
        # The client retries and gets the epoch after the fencing one, or another producer id.
        again = InitOutcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        _abort_and_fence(transaction, now_ms, out, token=event.token, outcome=again)
    else:
        _assign_epoch(transaction, event, now_ms, out)


def _may_be_current(transaction: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Return whether the id may be that of the current producer; its epoch is checked when a new one is assigned."""
    is_present_id = transaction.is_new or expected.producer_id == transaction.producer.producer_id
    return is_present_id or expected == transaction.previous


def _assign_epoch(transaction: Transaction, event: InitProducer, now_ms: int, out: list[Action]) -> None:
    expected = event.expected
    is_present = expected is None or transaction.is_new or expected == transaction.producer
    if not is_present and expected != transaction.previous:
        _refuse_init(event, ErrorCode.PRODUCER_FENCED, out)
        return
    # `expected` is the previous epoch if a response was lost: the same epoch is assigned again (KIP-360).
    previous = transaction.previous
    producer = transaction.producer
    if is_present:
        # Only a producer that sent its epoch can be recognised when it sends it again.
        previous = transaction.producer if expected is not None else NO_PRODUCER
        if not transaction.is_new and not transaction.is_epoch_exhausted:
            producer = transaction.next_epoch()
        elif event.fresh_producer_id is None:
            out.append(AllocateProducerId(event))
            return
        else:
            producer = ProducerIdAndEpoch(event.fresh_producer_id, 0)
    becomes = TransactionSnapshot(
        producer=producer,
        timeout_ms=event.timeout_ms,
        state=TransactionState.EMPTY,
        last_update_ms=now_ms,
    )
    outcome = InitOutcome(ErrorCode.NONE, producer)
    _persist(transaction, Write(becomes, event.token, outcome, previous=previous), out)


def _add_partitions(transaction: Transaction, event: AddPartitions, now_ms: int, out: list[Action]) -> None:
    error = _producer_error(transaction, event.producer)
    is_ongoing = transaction.state is TransactionState.ONGOING
    is_known = is_ongoing and all(partition in transaction.partitions for partition in event.partitions)
    # Partitions that the transaction has already need no record.
    if error is not ErrorCode.NONE or is_known:
        out.append(Respond(event.token, error))
        return
    partitions = tuple(dict.fromkeys((*transaction.partitions, *event.partitions)))
    if len(partitions) > TRANSACTION_PARTITIONS_MAX:
        out.append(Respond(event.token, ErrorCode.INVALID_REQUEST))
        return
    becomes = replace(
        transaction.snapshot(TransactionState.ONGOING, now_ms),
        partitions=partitions,
        start_ms=transaction.start_ms if is_ongoing else now_ms,
    )
    _persist(transaction, Write(becomes, event.token, ErrorCode.NONE), out)


def _end(transaction: Transaction, event: EndTransaction, now_ms: int, out: list[Action]) -> None:
    error = _producer_error(transaction, event.producer)
    if error is ErrorCode.NONE and transaction.state is TransactionState.ONGOING:
        decision = TransactionState.PREPARE_COMMIT if event.committed else TransactionState.PREPARE_ABORT
        becomes = transaction.snapshot(decision, now_ms)
        _persist(transaction, Write(becomes, event.token, ErrorCode.NONE), out)
        return
    ended_so = TransactionState.COMPLETE_COMMIT if event.committed else TransactionState.COMPLETE_ABORT
    if error is ErrorCode.NONE and transaction.state is not ended_so:
        error = ErrorCode.INVALID_TXN_STATE
    # NONE also for a retry whose first response was lost.
    out.append(Respond(event.token, error))


def _producer_error(transaction: Transaction, producer: ProducerIdAndEpoch) -> ErrorCode:
    """Return the error if this producer may not do anything now."""
    if transaction.is_new or producer.producer_id != transaction.producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.epoch != transaction.producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


def _abort_if_timed_out(transaction: Transaction, event: CheckTimeout, now_ms: int, out: list[Action]) -> None:
    # A record that is being written may end the transaction; the next check sees the outcome.
    is_ongoing = transaction.state is TransactionState.ONGOING and transaction.write is None
    if is_ongoing and (event.is_over_for_all or transaction.start_ms + transaction.timeout_ms < now_ms):
        _abort_and_fence(transaction, now_ms, out)


def _abort_and_fence(
    transaction: Transaction,
    now_ms: int,
    out: list[Action],
    *,
    token: Token | None = None,
    outcome: InitOutcome | None = None,
) -> None:
    # No producer was ever sent the last epoch, so no producer has to be fenced by a higher one.
    # An attempt whose record was refused has incremented the epoch already.
    if not transaction.has_failed_fence and transaction.producer.epoch < EPOCH_MAX:
        transaction.producer = transaction.next_epoch()
        transaction.previous = NO_PRODUCER
    becomes = transaction.snapshot(TransactionState.PREPARE_ABORT, now_ms)
    _persist(transaction, Write(becomes, token, outcome, is_fence=True), out)


def _expire_if_unused(transaction: Transaction, event: CheckExpiry, now_ms: int, out: list[Action]) -> None:
    is_idle = transaction.write is None and transaction.state.is_over
    if is_idle and transaction.last_update_ms <= now_ms - event.id_expiration_ms:
        _persist(transaction, Write(becomes=None), out)


def _persist(transaction: Transaction, write: Write, out: list[Action]) -> None:
    assert transaction.write is None
    transaction.write = write
    out.append(Persist(write.becomes))


def _append_done(transaction: Transaction, event: AppendDone, now_ms: int, out: list[Action]) -> None:
    write = transaction.write
    assert write is not None
    transaction.write = None
    error = transaction_error(event.error)
    if write.token is not None:
        out.append(Respond(write.token, _outcome(write, error)))
    if error is not ErrorCode.NONE:
        _not_written(transaction, write, out)
    elif write.becomes is None:
        transaction.state = TransactionState.DEAD
        out.append(Discard())
    else:
        if write.becomes.state is TransactionState.EMPTY:
            transaction.previous = write.previous
        transaction.become(write.becomes)
        _resume_decision(transaction, now_ms, out)


def _outcome(write: Write, error: ErrorCode) -> InitOutcome | ErrorCode:
    assert write.outcome is not None
    if error is ErrorCode.NONE:
        return write.outcome
    return InitOutcome(error) if isinstance(write.outcome, InitOutcome) else error


def _not_written(transaction: Transaction, write: Write, out: list[Action]) -> None:
    """Leave the state unchanged, except that a decision still has to be completed."""
    if write.is_fence:
        transaction.has_failed_fence = True
    if transaction.state.is_decided:
        out.append(ScheduleCompletion())
    elif transaction.is_vacant:
        out.append(Discard())


def _resume_decision(transaction: Transaction, now_ms: int, out: list[Action]) -> None:
    if not transaction.state.is_decided:
        return
    transaction.has_failed_fence = False
    if transaction.pending_markers:
        committed = transaction.state is TransactionState.PREPARE_COMMIT
        out.append(SendMarkers(transaction.producer, committed, transaction.pending_markers))
    else:
        _complete_if_all_written(transaction, now_ms, out)


def _markers_written(transaction: Transaction, event: MarkersWritten, now_ms: int, out: list[Action]) -> None:
    assert transaction.state.is_decided
    for partition in event.partitions:
        transaction.partitions.pop(partition, None)
    _complete_if_all_written(transaction, now_ms, out)


def _complete_if_all_written(transaction: Transaction, now_ms: int, out: list[Action]) -> None:
    # Markers are missing, or the record of the end is being written already.
    if not transaction.state.is_decided or transaction.pending_markers or transaction.write is not None:
        return
    is_commit = transaction.state is TransactionState.PREPARE_COMMIT
    done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    _persist(transaction, Write(transaction.snapshot(done, now_ms)), out)


def _unload(transaction: Transaction, out: list[Action]) -> None:
    """Complete parked requests with NOT_COORDINATOR; the new coordinator continues from the log."""
    write = transaction.write
    if write is not None and write.token is not None:
        out.append(Respond(write.token, _outcome(write, ErrorCode.NOT_COORDINATOR)))
    transaction.write = None
    out.append(Discard())


def _refuse_init(event: InitProducer, error: ErrorCode, out: list[Action]) -> None:
    out.append(Respond(event.token, InitOutcome(error)))

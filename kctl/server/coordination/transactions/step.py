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
    NO_PRODUCER_ID,
    VERSION_WITH_RAISED_EPOCHS,
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
    InitProducer,
    Loaded,
    MarkersWritten,
    Persist,
    ProducerOutcome,
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
        again = ProducerOutcome(ErrorCode.CONCURRENT_TRANSACTIONS)
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
        client_version=transaction.client_version,
        replaced_producer_id=_replaced_id(transaction, producer),
    )
    outcome = ProducerOutcome(ErrorCode.NONE, producer)
    _persist(transaction, Write(becomes, event.token, outcome, previous=previous), out)


def _replaced_id(transaction: Transaction, producer: ProducerIdAndEpoch) -> int:
    has_other = not transaction.is_new and producer.producer_id != transaction.producer.producer_id
    return transaction.producer.producer_id if has_other else NO_PRODUCER_ID


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
        client_version=event.client_version,
    )
    _persist(transaction, Write(becomes, event.token, ErrorCode.NONE), out)


def _end(transaction: Transaction, event: EndTransaction, now_ms: int, out: list[Action]) -> None:
    if event.raises_epoch:
        _end_and_raise(transaction, event, now_ms, out)
        return
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


def _end_and_raise(transaction: Transaction, event: EndTransaction, now_ms: int, out: list[Action]) -> None:
    """End a transaction of a client of version 2.  Kafka: TransactionCoordinator.endTransaction (4.3)."""
    error = _end_error(transaction, event)
    if error is not ErrorCode.NONE:
        out.append(Respond(event.token, ProducerOutcome(error)))
        return
    if _is_repeated_end(transaction, event):
        out.append(Respond(event.token, ProducerOutcome(ErrorCode.NONE, transaction.producer)))
        return
    fresh_id = event.fresh_producer_id
    if transaction.is_epoch_exhausted and fresh_id is None:
        out.append(AllocateProducerId(event))
    else:
        is_ongoing = transaction.state is TransactionState.ONGOING
        decided = replace(
            transaction.snapshot(
                TransactionState.PREPARE_COMMIT if event.committed else TransactionState.PREPARE_ABORT, now_ms
            ),
            producer=transaction.next_epoch(),
            start_ms=transaction.start_ms if is_ongoing else now_ms,
            client_version=VERSION_WITH_RAISED_EPOCHS,
            next_producer_id=NO_PRODUCER_ID if fresh_id is None or not transaction.is_epoch_exhausted else fresh_id,
        )
        outcome = ProducerOutcome(ErrorCode.NONE, _producer_after(decided))
        _persist(transaction, Write(decided, event.token, outcome, previous=transaction.producer), out)


def _is_repeated_end(transaction: Transaction, event: EndTransaction) -> bool:
    """Return whether the event has the epoch before the last end, whose response was lost."""
    sent, present = event.producer, transaction.producer
    if sent.epoch == EPOCH_MAX - 1 and present.epoch == 0:
        return sent.producer_id == transaction.replaced_producer_id
    return sent.producer_id == present.producer_id and sent.epoch + 1 == present.epoch


def _end_error(transaction: Transaction, event: EndTransaction) -> ErrorCode:
    """Return the error for an end that raises the epoch; NONE also for a repeated one that was done."""
    is_repeated = _is_repeated_end(transaction, event)
    is_present_id = event.producer.producer_id == transaction.producer.producer_id
    state = transaction.state
    if transaction.is_new or not (is_present_id or is_repeated):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_present = event.producer == transaction.producer
    if state.is_decided:
        is_valid = is_repeated
    elif state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        is_valid = is_repeated or is_present
    else:
        is_valid = is_present
    if not is_valid or transaction.producer.epoch == EPOCH_MAX:
        # The last epoch is never that of a producer: the next one has another id.
        return ErrorCode.PRODUCER_FENCED
    if transaction.write is not None and not state.is_decided:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _error_of_end_in(state, committed=event.committed, is_repeated=is_repeated)


def _error_of_end_in(state: TransactionState, *, committed: bool, is_repeated: bool) -> ErrorCode:
    match state:
        case TransactionState.ONGOING:
            return ErrorCode.NONE
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            is_same = committed == (state is TransactionState.PREPARE_COMMIT)
            return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE
        case TransactionState.COMPLETE_COMMIT:
            return ErrorCode.NONE if committed == is_repeated else ErrorCode.INVALID_TXN_STATE
        case _:
            # An abort of what has no partitions raises the epoch, which fences records that are on their way.
            return ErrorCode.INVALID_TXN_STATE if committed else ErrorCode.NONE


def _producer_after(decided: TransactionSnapshot) -> ProducerIdAndEpoch:
    """Return the producer of the next transaction."""
    if decided.next_producer_id == NO_PRODUCER_ID:
        return decided.producer
    return ProducerIdAndEpoch(decided.next_producer_id, 0)


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
    outcome: ProducerOutcome | None = None,
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
        if write.becomes.state is TransactionState.EMPTY or write.previous != NO_PRODUCER:
            transaction.previous = write.previous
        transaction.become(write.becomes)
        _resume_decision(transaction, now_ms, out)


def _outcome(write: Write, error: ErrorCode) -> ProducerOutcome | ErrorCode:
    assert write.outcome is not None
    if error is ErrorCode.NONE:
        return write.outcome
    return ProducerOutcome(error) if isinstance(write.outcome, ProducerOutcome) else error


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
        markers = SendMarkers(transaction.producer, committed, transaction.pending_markers, transaction.client_version)
        out.append(markers)
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
    complete = transaction.snapshot(done, now_ms)
    producer = _producer_after(complete)
    complete = replace(
        complete,
        producer=producer,
        next_producer_id=NO_PRODUCER_ID,
        replaced_producer_id=_replaced_id(transaction, producer),
    )
    _persist(transaction, Write(complete), out)


def _unload(transaction: Transaction, out: list[Action]) -> None:
    """Complete parked requests with NOT_COORDINATOR; the new coordinator continues from the log."""
    write = transaction.write
    if write is not None and write.token is not None:
        out.append(Respond(write.token, _outcome(write, ErrorCode.NOT_COORDINATOR)))
    transaction.write = None
    out.append(Discard())


def _refuse_init(event: InitProducer, error: ErrorCode, out: list[Action]) -> None:
    out.append(Respond(event.token, ProducerOutcome(error)))

"""Transactions of clients of version 2 (KIP-890): each end raises the epoch, or replaces the producer id."""

from __future__ import annotations

import base64

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch
from kctl.records.header import Record
from kctl.records.internal.topics import decode_transaction_value
from kctl.server.coordination.transactions.events import (
    NO_PRODUCER_ID,
    Loaded,
    ProducerOutcome,
    TransactionSnapshot,
    TransactionState,
)
from kctl.server.coordination.transactions.records import transaction_record, transaction_snapshot
from kctl.server.coordination.transactions.transaction import EPOCH_MAX, Transaction
from tests.unit.transactions.world import START_MS, T0, TIMEOUT_MS, TransactionWorld, response

LAST = EPOCH_MAX - 1
"""The last epoch of a producer."""


def restored(record: Record) -> Transaction:
    return Transaction.restored("id", transaction_snapshot(decode_transaction_value(record.value or b"")))


def world_at(epoch: int) -> TransactionWorld:
    """A world whose producer has this epoch, and no transaction."""
    producer = ProducerIdAndEpoch(7, epoch)
    snapshot = TransactionSnapshot(
        producer=producer, timeout_ms=TIMEOUT_MS, state=TransactionState.EMPTY, last_update_ms=START_MS
    )
    return TransactionWorld(Transaction.restored("id", snapshot))


def test_an_end_raises_the_epoch_before_the_markers_and_repeats_give_the_same() -> None:
    for committed in (True, False):
        world = world_at(5)
        producer, raised = ProducerIdAndEpoch(7, 5), ProducerIdAndEpoch(7, 6)
        world.add(producer, T0)
        world.holds_markers = True
        assert response(world.end_and_raise(producer, committed=committed)) == ProducerOutcome(ErrorCode.NONE, raised)
        assert (world.sent[-1].producer, world.sent[-1].client_version) == (raised, 2)
        pending = ProducerOutcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert response(world.end_and_raise(producer, committed=committed)) == pending
        world.write_markers(world.sent[-1].partitions)
        again = response(world.end_and_raise(producer, committed=committed))
        assert again == ProducerOutcome(ErrorCode.NONE, raised)
        other = response(world.end_and_raise(producer, committed=not committed))
        assert other == ProducerOutcome(ErrorCode.INVALID_TXN_STATE)


def test_an_abort_without_partitions_raises_the_epoch_and_a_commit_does_not() -> None:
    world = world_at(5)
    refused = response(world.end_and_raise(ProducerIdAndEpoch(7, 5), committed=True))
    assert refused == ProducerOutcome(ErrorCode.INVALID_TXN_STATE)
    for epoch in (5, 6, 7):
        aborted = response(world.end_and_raise(ProducerIdAndEpoch(7, epoch), committed=False))
        assert aborted == ProducerOutcome(ErrorCode.NONE, ProducerIdAndEpoch(7, epoch + 1))
    assert world.transaction.state is TransactionState.COMPLETE_ABORT
    assert world.sent == []


def test_the_last_epoch_is_followed_by_another_id_and_its_end_may_be_repeated() -> None:
    world = world_at(LAST)
    producer = ProducerIdAndEpoch(7, LAST)
    world.add(producer, T0)
    world.holds_markers = True
    outcome = response(world.end_and_raise(producer, committed=True))
    assert isinstance(outcome, ProducerOutcome)
    successor = outcome.producer
    assert (outcome.error, successor.epoch) == (ErrorCode.NONE, 0)
    assert successor.producer_id != 7
    assert world.sent[-1].producer == ProducerIdAndEpoch(7, EPOCH_MAX)
    # Another coordinator continues from the record.
    snapshot = world.log[-1]
    other = TransactionWorld(restored(transaction_record("id", snapshot, START_MS, 1)))
    for successor_world in (world, other):
        if successor_world is other:
            other.do(Loaded())
        else:
            world.write_markers(world.sent[-1].partitions)
        assert successor_world.transaction.producer == successor
        assert successor_world.transaction.next_producer_id == NO_PRODUCER_ID
        complete = successor_world.log[-1]
        assert complete is not None
        assert complete.replaced_producer_id == 7
        repeated = response(successor_world.end_and_raise(producer, committed=True))
        assert repeated == ProducerOutcome(ErrorCode.NONE, successor)


def test_a_fenced_producer_does_not_get_the_epoch_that_fenced_it_if_that_is_the_last() -> None:
    world = world_at(LAST)
    producer = ProducerIdAndEpoch(7, LAST)
    world.add(producer, T0)
    world.init()
    assert world.transaction.producer == ProducerIdAndEpoch(7, EPOCH_MAX)
    for sent in (producer, ProducerIdAndEpoch(7, EPOCH_MAX)):
        fenced = response(world.end_and_raise(sent, committed=False))
        assert fenced == ProducerOutcome(ErrorCode.PRODUCER_FENCED)


RECORDS_OF_4_3_1 = (
    "AAEAAAAAAAAAAAAAAAAnEAAAAAABoi5G12T//////////wEACAAAAAAAAAAA",
    "AAEAAAAAAAAAAAAAAAAnEAECAnQDAAAAAQAAAAAAAAABoi5G19QAAAGiLkbX1AIACAAAAAAAAAAAAgIAAg==",
    (
        "AAEAAAAAAAAAAAABAAAnEAIDAnQDAAAAAQAAAAAAE19fY29uc3VtZXJfb2Zmc2V0cwIAAAAAAAAAAaIuRtjUAAABoi5G19QCAAgAAAAAAAAAAAIC"
        "AAI="
    ),
    "AAEAAAAAAAAAAAABAAAnEAQBAAABoi5G2NoAAAGiLkbX1AIACAAAAAAAAAAAAgIAAg==",
)
"""Values in __transaction_state of Apache Kafka 4.3.1, written for a producer of kafka-clients 4.3.1: Empty, Ongoing,
PrepareCommit, CompleteCommit."""


def test_records_are_those_of_kafka_4_3() -> None:
    for encoded in RECORDS_OF_4_3_1:
        value = base64.b64decode(encoded)
        snapshot = transaction_snapshot(decode_transaction_value(value))
        assert transaction_record("id", snapshot, START_MS, 1).value == value

"""The output of Kafka's kafka-transactions, byte for byte, for scripts that parse it.  Pure.

TransactionsCommand of 3.9 and of 4.3, which print the same; tests compare with the tools themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kctl.admin.producers import ActiveProducer
from kctl.admin.transactions import ListedTransaction, OpenTransaction, Transaction
from kctl.commands.compat.hash_order import java_order
from kctl.commands.compat.java_text import java_length, padded
from kctl.model import TopicPartition

_NONE = "None"
_MINUTE_MS = 60_000
_LIST_TITLES = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBE_TITLES = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_PRODUCERS_TITLES = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING_TITLES = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)


def listed(transactions: Iterable[ListedTransaction]) -> str:
    """The output of `list`, in the order of the brokers' responses."""
    return _table(
        _LIST_TITLES,
        [(one.transactional_id, str(one.coordinator_id), str(one.producer_id), one.state) for one in transactions],
    )


def described(one: Transaction, coordinator_id: int, now_ms: int) -> str:
    """The output of `describe` for an existing transactional id."""
    has_start = one.start_ms >= 0
    return _table(
        _DESCRIBE_TITLES,
        [
            (
                *(str(coordinator_id), one.outcome.name, str(one.producer_id), str(one.producer_epoch), one.state),
                *(str(one.timeout_ms), str(one.start_ms) if has_start else _NONE),
                *(str(now_ms - one.start_ms) if has_start else _NONE, ",".join(map(str, java_order(one.partitions)))),
            )
        ],
    )


def producers(found: Iterable[ActiveProducer]) -> str:
    """The output of `describe-producers` for one partition, in the order of the broker's response."""
    return _table(
        _PRODUCERS_TITLES,
        [
            (
                *(str(one.producer_id), str(one.producer_epoch), str(one.coordinator_epoch), str(one.last_sequence)),
                *(str(one.last_timestamp_ms), str(one.txn_start_offset) if one.has_transaction else _NONE),
            )
            for one in found
        ],
    )


def hanging(found: Iterable[OpenTransaction], requested: Sequence[TopicPartition], now_ms: int) -> str:
    """The output of `find-hanging` for these partitions."""
    places = {tp: place for place, tp in enumerate(java_order(requested, room=len(requested)))}
    by_producer: dict[int, list[OpenTransaction]] = {}
    for one in sorted(found, key=lambda one: places[one.tp]):
        by_producer.setdefault(one.producer.producer_id, []).append(one)
    return _table(
        _HANGING_TITLES,
        [
            (
                *(one.tp.topic, str(one.tp.partition), str(producer_id), str(one.producer.producer_epoch)),
                *(str(one.producer.coordinator_epoch), str(one.producer.txn_start_offset)),
                *(str(one.producer.last_timestamp_ms), str((now_ms - one.producer.last_timestamp_ms) // _MINUTE_MS)),
            )
            for producer_id in java_order(by_producer)
            for one in by_producer[producer_id]
        ],
    )


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(java_length, column)) for column in zip(titles, *rows, strict=True)]
    lines = (zip(cells, widths, strict=True) for cells in (titles, *rows))
    return "".join("".join(f"{padded(cell, width)}\t" for cell, width in line) + "\n" for line in lines)

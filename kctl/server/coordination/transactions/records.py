"""Converts between a transaction and its record in `__transaction_state`."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.errors import MalformedRequest
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.records.header import BatchHeader, Record
from kctl.records.internal.topics import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from kctl.server.coordination.replay import pass_over
from kctl.server.coordination.transactions.events import NO_PRODUCER_ID, RECORDED, TransactionSnapshot, TransactionState
from kctl.server.coordination.transactions.transaction import Transaction

_POSITION_IN_BATCH = 0
"""build_batch sets the offsets of records."""


def transaction_record(
    transactional_id: str, snapshot: TransactionSnapshot | None, timestamp_ms: int, version: int = 0
) -> Record:
    """Return the record of the transaction, or a tombstone if `snapshot` is None; `version` is that of its value."""
    value = None if snapshot is None else encode_transaction_value(_value(snapshot), version)
    return Record(_POSITION_IN_BATCH, timestamp_ms, encode_transaction_key(transactional_id), value)


def transaction_snapshot(value: TransactionLogValue) -> TransactionSnapshot:
    """Return the transaction in a record.  Raises MalformedRequest for a state that is never stored."""
    state = RECORDED.get(value.transaction_status)
    if state is None:
        raise MalformedRequest(f"invalid transaction state {value.transaction_status} in a record")
    is_same = value.previous_producer_id == value.producer_id
    return TransactionSnapshot(
        producer=ProducerIdAndEpoch(value.producer_id, value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=tuple(
            TopicPartition(partition.topic, index)
            for partition in value.transaction_partitions or ()
            for index in partition.partition_ids
        ),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
        next_producer_id=value.next_producer_id,
        replaced_producer_id=NO_PRODUCER_ID if is_same else value.previous_producer_id,
    )


def _value(snapshot: TransactionSnapshot) -> TransactionLogValue:
    by_topic: dict[str, list[int]] = {}
    for topic, index in snapshot.partitions:
        by_topic.setdefault(topic, []).append(index)
    partitions = [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]
    is_same = snapshot.replaced_producer_id == NO_PRODUCER_ID
    return TransactionLogValue(
        producer_id=snapshot.producer.producer_id,
        producer_epoch=snapshot.producer.epoch,
        transaction_timeout_ms=snapshot.timeout_ms,
        transaction_status=snapshot.state.value,
        transaction_partitions=None if snapshot.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=snapshot.last_update_ms,
        transaction_start_timestamp_ms=snapshot.start_ms,
        client_transaction_version=snapshot.client_version,
        next_producer_id=snapshot.next_producer_id,
        previous_producer_id=snapshot.producer.producer_id if is_same else snapshot.replaced_producer_id,
    )


# Restores transactions from the records of a partition of `__transaction_state`.
#
# The last record of a key counts. If that one cannot be read, earlier records of the id are dropped as well: an
# earlier state may contradict what was decided later. Unknown key types are skipped silently (KIP-915).
#
# Pure: records in, transactions out. Kafka: TransactionStateManager.loadTransactionMetadata.


class TransactionPlayback:
    """coordinators.replay.Playback: replay the partition's records in order, then call `transactions`."""

    def __init__(self) -> None:
        self._snapshots: dict[str, TransactionSnapshot] = {}

    def record(self, record: Record, _header: BatchHeader) -> None:
        """Apply one record of a data batch."""
        key = decode_transaction_key(record.key or b"")
        if not isinstance(key, TransactionLogKey):
            pass_over(key)
            return
        # If this record is invalid, an older one must not count.
        self._snapshots.pop(key.transactional_id, None)
        if record.value is not None:
            snapshot = transaction_snapshot(decode_transaction_value(record.value))
            self._snapshots[key.transactional_id] = snapshot

    def marker(self, record: Record, header: BatchHeader) -> None:
        """Ignored: this topic is not written in transactions."""

    def transactions(self) -> Iterator[Transaction]:
        """Yield every transactional id that is not removed, once: what was read of it is dropped."""
        for transactional_id in list(self._snapshots):
            yield Transaction.restored(transactional_id, self._snapshots.pop(transactional_id))

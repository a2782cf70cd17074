"""Transactions out of the log: replays a partition of `__transaction_state` from its start to its end.

The last record of a key counts.  A record that cannot be read is skipped and reported, and so is the id's earlier word:
what a transaction was before may not be what was decided later.  Kinds of keys that we do not know are skipped silently
(KIP-915).

Pure: bytes in, transactions out.  Kafka: TransactionStateManager.loadTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kctl.errors import MalformedRequest
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.header import BatchHeader, CorruptBatch, Record
from kctl.records.internal_topics import TransactionLogKey, decode_transaction_key, decode_transaction_value
from kctl.server.transactions.records import transaction_snapshot
from kctl.server.transactions.snapshot import TransactionSnapshot
from kctl.server.transactions.transaction import Transaction

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record, or the rest of a batch, that could not be read."""

    offset: int
    key: bytes | None
    reason: str


class TransactionReplay:
    """Feed it the partition's batches in order, then take the transactions."""

    def __init__(self) -> None:
        self.skipped: list[SkippedRecord] = []
        self._snapshots: dict[str, TransactionSnapshot] = {}

    def batches(self, chunk: Buffer) -> Iterator[int]:
        """Takes in the batches of the chunk one at a time; yields how many records each had."""
        try:
            for header in iterate_batches(chunk):
                self._batch(chunk, header)
                yield header.record_count
        except CorruptBatch as error:
            self.skipped.append(SkippedRecord(-1, None, error.reason))

    def transactions(self) -> Iterator[Transaction]:
        """Every transactional id that is not forgotten."""
        for transactional_id, snapshot in self._snapshots.items():
            yield Transaction.restored(transactional_id, snapshot)

    def _batch(self, chunk: Buffer, header: BatchHeader) -> None:
        if header.is_control:
            return
        try:
            for record in iterate_records(chunk, header):
                self._record(record)
        except CorruptBatch as error:
            self.skipped.append(SkippedRecord(header.base_offset, None, error.reason))

    def _record(self, record: Record) -> None:
        try:
            key = decode_transaction_key(record.key or b"")
            if not isinstance(key, TransactionLogKey):
                return
            # Without this record there is none, whatever an older one says.
            self._snapshots.pop(key.transactional_id, None)
            if record.value is not None:
                snapshot = transaction_snapshot(decode_transaction_value(record.value))
                self._snapshots[key.transactional_id] = snapshot
        except MalformedRequest as error:
            self.skipped.append(SkippedRecord(record.offset, record.key, str(error)))

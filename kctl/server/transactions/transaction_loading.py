"""Restores transactions from the records of a partition of `__transaction_state`.

The last record of a key counts.  If that one cannot be read, earlier records of the id are dropped as well: an earlier
state may contradict what was decided later.  Unknown key types are skipped silently (KIP-915).

Pure: records in, transactions out.  Kafka: TransactionStateManager.loadTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterator

from kctl.records.header import BatchHeader, Record
from kctl.records.internal_topics import TransactionLogKey, decode_transaction_key, decode_transaction_value
from kctl.server.coordinators.replay import pass_over
from kctl.server.transactions.records import transaction_snapshot
from kctl.server.transactions.snapshot import TransactionSnapshot
from kctl.server.transactions.transaction import Transaction


class TransactionPlayback:
    """coordinators.replay.Playback: replay the partition's records in order, then call `transactions`."""

    def __init__(self) -> None:
        self._snapshots: dict[str, TransactionSnapshot] = {}

    def record(self, record: Record, _header: BatchHeader) -> None:
        """Applies one record of a data batch."""
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
        """Every transactional id that is not removed, once: what was read of it is dropped."""
        for transactional_id in list(self._snapshots):
            yield Transaction.restored(transactional_id, self._snapshots.pop(transactional_id))

"""Transactions out of the log: what the records of a partition of `__transaction_state` build up.

The last record of a key counts.  Where that one cannot be read the id's earlier word is dropped as well: what a
transaction was before may not be what was decided later.  Kinds of keys that we do not know are skipped silently
(KIP-915).

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
    """coordinators.replay.Playback: play the partition's records in order, then take the transactions."""

    def __init__(self) -> None:
        self._snapshots: dict[str, TransactionSnapshot] = {}

    def record(self, record: Record, _header: BatchHeader) -> None:
        key = decode_transaction_key(record.key or b"")
        if not isinstance(key, TransactionLogKey):
            pass_over(key)
            return
        # Without this record there is none, whatever an older one says.
        self._snapshots.pop(key.transactional_id, None)
        if record.value is not None:
            snapshot = transaction_snapshot(decode_transaction_value(record.value))
            self._snapshots[key.transactional_id] = snapshot

    def marker(self, record: Record, header: BatchHeader) -> None:
        """Nobody writes to this topic inside of a transaction."""

    def transactions(self) -> Iterator[Transaction]:
        """Every transactional id that is not forgotten."""
        for transactional_id, snapshot in self._snapshots.items():
            yield Transaction.restored(transactional_id, snapshot)

"""The producer state of a partition: epochs, sequence numbers, open transactions.  Pure.  KIP-98, KIP-360.

Per producer id: the epoch, up to five of its last batches (a client has at most five requests in flight to a leader, so
a retry is among them), the first offset of its open transaction, and the coordinator epoch of its last marker.

A batch from a client is
    a duplicate   same epoch, first and last sequence number as a retained batch: it gets the response of a new append
    an old duplicate
                  same epoch, appended in an earlier leader epoch, no longer retained: DUPLICATE_SEQUENCE_NUMBER, which
                  clients handle as a success, when the batch is committed
    fenced        lower epoch: INVALID_PRODUCER_EPOCH
    in order      its first sequence number follows the last one (2**31-1 is followed by 0); a new epoch starts at 0; an
                  unknown producer may start with any number, because its records may have been deleted
    out of order  otherwise: OUT_OF_ORDER_SEQUENCE_NUMBER

Old duplicates exist because Kafka's Java producer sends new batches to a new leader while the previous leader has not
responded to earlier ones; when it sends those again, five others may have followed.  Apache Kafka responds with
OUT_OF_ORDER_SEQUENCE_NUMBER, and the producer then sends the batch again until delivery.timeout.ms.  With Apache Kafka
this is rare, because it appends one request of a connection at a time; here up to five may be appended and not
responded to when the leader changes.

The last stable offset is the first offset of the oldest transaction that is open, or whose marker is not below the high
watermark.  Snapshots contain only the last batch of a producer.  Recovery reads the earlier ones from the end of the
log (`remember_earlier_batches`): a client whose five requests were appended and not answered when the broker stopped
sends all of them again.  Kafka's ProducerStateManager and ProducerAppendInfo.

Owner: event loop (recovery runs before the log is shared).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from kctl.errors import ApiError, ErrorCode
from kctl.limits import PRODUCERS_MAX, PRODUCERS_PER_PARTITION_MAX
from kctl.records.control import ControlType, EndTransactionMarker
from kctl.records.header import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SEQUENCE_MAX,
    BatchHeader,
)

BATCHES_REMEMBERED = 5
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1


class ProducerBatch(NamedTuple):
    """An appended batch of a producer; `timestamp` is in ms.

    In an old duplicate `first_offset` is NO_OFFSET, and `last_offset` an upper bound.
    """

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class SnapshotEntry(NamedTuple):
    """A producer in a snapshot; `offset_delta` is last minus first offset of its last batch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class CompletedTransaction(NamedTuple):
    """A transaction that was ended by the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


_PACKED_BATCH = struct.Struct("<iqiq")
"""First sequence number, first offset, last offset less the first, timestamp."""
_PACKED_BYTES_MAX = BATCHES_REMEMBERED * _PACKED_BATCH.size


class ProducerEntry:
    """The state of one producer id; 0.3 to 0.5 KB with its place in ProducerState, of which there may be millions."""

    __slots__ = (
        "_packed",
        "captures",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "first_sequence",
        "last_round",
        "last_timestamp",
        "leader_epoch",
        "leader_epoch_sequence",
        "producer_id",
    )

    def __init__(self, producer_id: int, captures: int = 0) -> None:
        self.producer_id = producer_id
        self.captures = captures
        """The number of captures of the state before this entry was created; later ones contain this object."""
        self.epoch = NO_PRODUCER_EPOCH
        self._packed = b""
        """The last batches: as objects they took 0.2 KB each."""
        self.current_txn_first_offset = NO_OFFSET
        self.first_sequence = NO_SEQUENCE
        """The first sequence number of the epoch of which it is known that it was appended."""
        self.leader_epoch = NO_LEADER_EPOCH
        """The leader epoch of the last batch."""
        self.leader_epoch_sequence = NO_SEQUENCE
        """The first sequence number in that leader epoch."""
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = -1
        self.last_round = 0
        """See ProducerState.last_round."""

    @property
    def batches(self) -> tuple[ProducerBatch, ...]:
        """The last batches of the epoch, at most BATCHES_REMEMBERED, in order."""
        return tuple(
            ProducerBatch(
                first_sequence,
                _last_sequence(first_sequence, offset_delta),
                first_offset,
                first_offset + offset_delta,
                timestamp,
            )
            for first_sequence, first_offset, offset_delta, timestamp in _PACKED_BATCH.iter_unpack(self._packed)
        )

    def add_batch(self, first_sequence: int, first_offset: int, offset_delta: int, timestamp: int) -> None:
        """Add the latest batch; `offset_delta` is its last less its first offset."""
        packed = self._packed + _PACKED_BATCH.pack(first_sequence, first_offset, offset_delta, timestamp)
        self._packed = packed[-_PACKED_BYTES_MAX:]

    def take_batches(self, other: ProducerEntry) -> None:
        """Take over what another entry of this producer knows of its batches."""
        self._packed = other._packed
        self.first_sequence = other.first_sequence
        self.leader_epoch = other.leader_epoch
        self.leader_epoch_sequence = other.leader_epoch_sequence

    def forget_batches(self) -> None:
        """Forget all batches: they are of an earlier epoch."""
        self._packed = b""

    @property
    def has_batches(self) -> bool:
        """Whether a data batch of the epoch is known."""
        return bool(self._packed)

    @property
    def last_sequence(self) -> int:
        """The last sequence number of the epoch, or NO_SEQUENCE."""
        if not self._packed:
            return NO_SEQUENCE
        first_sequence, _, offset_delta, _ = _PACKED_BATCH.unpack_from(self._packed, -_PACKED_BATCH.size)
        return _last_sequence(first_sequence, offset_delta)

    @property
    def next_sequence(self) -> int:
        """The expected sequence number of the next batch in this epoch."""
        return (self.last_sequence + 1) & SEQUENCE_MAX if self._packed else 0

    @property
    def last_offset(self) -> int:
        """Offset of the last data record, or -1 if only markers are known."""
        if not self._packed:
            return NO_OFFSET
        _, first_offset, offset_delta, _ = _PACKED_BATCH.unpack_from(self._packed, -_PACKED_BATCH.size)
        return int(first_offset + offset_delta)

    def is_old_duplicate(self, header: BatchHeader) -> bool:
        """Return whether a batch of this epoch was appended in an earlier leader epoch and is older than those
        retained.
        """
        batches = self.batches
        if not batches or header.base_sequence < 0:
            return False
        # Counted back from the last sequence number, because 0 follows 2**31-1; what is more than half of all numbers
        # back is ahead.
        last = self.last_sequence
        begin, end = (last - header.base_sequence) & SEQUENCE_MAX, (last - header.last_sequence) & SEQUENCE_MAX
        oldest = min((last - self.first_sequence) & SEQUENCE_MAX, SEQUENCE_MAX // 2)
        retained = (last - batches[0].first_sequence) & SEQUENCE_MAX
        present = (last - self.leader_epoch_sequence) & SEQUENCE_MAX
        return max(retained, present) < end <= begin <= oldest

    def copy(self, captures: int) -> ProducerEntry:
        """Return an entry with the same values that changes independently of this one."""
        copy = ProducerEntry(self.producer_id, captures)
        copy.epoch = self.epoch
        copy.take_batches(self)
        copy.current_txn_first_offset = self.current_txn_first_offset
        copy.coordinator_epoch = self.coordinator_epoch
        copy.last_timestamp = self.last_timestamp
        return copy


_FORGETTING_TRIES = 100
"""Producers with an open transaction that are skipped to find one to forget."""


class ProducerState:
    """The producers of one log up to `end_offset`."""

    __slots__ = (
        "_captures",
        "_first_round",
        "_open",
        "_round",
        "_unreplicated",
        "end_offset",
        "is_full",
        "producers",
    )

    def __init__(self, end_offset: int = 0) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self._captures = 0
        self.end_offset = end_offset
        """All batches before this offset have been applied."""
        self._first_round = self._round = 0
        self.is_full = False
        """True while batches of clients whose producer is not known are refused: the broker has too many producers."""
        # Both are keyed by first offset and in its order, because offsets only grow.
        self._open: dict[int, int] = {}
        self._unreplicated: dict[int, int] = {}

    def check(self, header: BatchHeader, *, with_sequence: bool = True) -> ProducerBatch | None:
        """Check a data batch with a producer id; return the first batch if it is a duplicate, else None.

        Without `with_sequence` sequence numbers are not checked, as for batches of coordinators.  Raises ApiError:
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, and THROTTLING_QUOTA_EXCEEDED, which
        clients retry, for a new producer of a broker that has too many.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            if header.producer_epoch < NO_PRODUCER_EPOCH:
                _check_epoch(ProducerEntry(header.producer_id), header)
            if self.is_full and with_sequence:
                raise ApiError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"this broker keeps the sequence numbers of {PRODUCERS_MAX} producers, and cannot accept producer "
                    f"{header.producer_id} before others have been idle for a time; use fewer producers",
                )
            return None
        is_of_epoch = with_sequence and header.producer_epoch == entry.epoch
        if not is_of_epoch or header.base_sequence != entry.next_sequence:
            last_sequence = header.last_sequence
            for batch in entry.batches if is_of_epoch else ():
                if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                    return batch
            if is_of_epoch and entry.is_old_duplicate(header):
                bound = entry.batches[0].first_offset - 1
                return ProducerBatch(header.base_sequence, last_sequence, NO_OFFSET, bound, NO_TIMESTAMP)
            _check_epoch(entry, header)
            if with_sequence:
                _check_sequence(entry, header)
        if entry.current_txn_first_offset != NO_OFFSET and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} sent a non-transactional batch during an open transaction",
            )
        return None

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction of this id and epoch is open."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.current_txn_first_offset != NO_OFFSET

    def may_begin(self, producer_id: int, epoch: int) -> bool:
        """Return whether the next records of this id and epoch begin a transaction: none is open, and no newer epoch
        refuses them.
        """
        entry = self.producers.get(producer_id)
        return entry is None or (entry.epoch <= epoch and not self.is_open(producer_id, epoch))

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        """Check a transaction marker from a coordinator.

        Raises ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        _check_epoch(entry, header)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} of the marker for producer {header.producer_id} "
                f"is below {entry.coordinator_epoch}",
            )

    def append(self, header: BatchHeader) -> None:
        """Apply a data batch with its offsets, without checks: it was appended by a leader."""
        self.end_offset = header.next_offset
        if header.producer_id < 0:
            return
        entry = self._entry(header.producer_id)
        _take_epoch(entry, header.producer_epoch)
        if not entry.has_batches:
            entry.first_sequence = entry.leader_epoch_sequence = header.base_sequence
            entry.leader_epoch = header.leader_epoch
        elif header.leader_epoch != entry.leader_epoch:
            entry.leader_epoch_sequence = header.base_sequence
            entry.leader_epoch = header.leader_epoch
        entry.add_batch(header.base_sequence, header.base_offset, header.last_offset_delta, header.max_timestamp)
        entry.last_timestamp = header.max_timestamp
        if header.is_transactional and entry.current_txn_first_offset == NO_OFFSET:
            entry.current_txn_first_offset = header.base_offset
            self._open[header.base_offset] = header.producer_id

    def append_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> CompletedTransaction | None:
        """Apply a transaction marker; return the transaction that it ends, if one was open."""
        self.end_offset = header.next_offset
        entry = self._entry(header.producer_id)
        first_offset = entry.current_txn_first_offset
        _take_epoch(entry, header.producer_epoch)
        entry.current_txn_first_offset = NO_OFFSET
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        entry.last_timestamp = header.max_timestamp
        if first_offset == NO_OFFSET:
            return None
        self._open.pop(first_offset, None)
        self._unreplicated[first_offset] = header.last_offset
        return CompletedTransaction(
            header.producer_id, first_offset, header.last_offset, marker.type is ControlType.ABORT
        )

    def skip_to(self, offset: int) -> None:
        """Advance the end offset over batches without a producer id."""
        self.end_offset = max(self.end_offset, offset)

    def stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset once this transaction is completed, ignoring the high watermark."""
        first_open = next(iter(self._open), None)
        return completed.last_offset + 1 if first_open is None else first_open

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget completed transactions whose markers are below the high watermark."""
        for first_offset, marker_offset in list(self._unreplicated.items()):
            if marker_offset < high_watermark:
                del self._unreplicated[first_offset]

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or whose marker may not be replicated; None if there
        is none.
        """
        candidates = [next(iter(self._open), None), min(self._unreplicated, default=None)]
        return min((offset for offset in candidates if offset is not None), default=None)

    @property
    def has_transactions(self) -> bool:
        """True if a transaction may hold the last stable offset below the high watermark."""
        return bool(self._open or self._unreplicated)

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Forget completed transactions whose records were deleted."""
        self.on_high_watermark(log_start_offset)
        self.skip_to(log_start_offset)

    def expire(self, producer_ids: Iterable[int], written_before: int, last_timestamp_max: int | None = None) -> int:
        """Forget those of these producers without an open transaction that wrote last before the round
        `written_before`, with a timestamp of at most `last_timestamp_max` if that is given; return their number.
        """
        expired = 0
        for producer_id in producer_ids:
            entry = self.producers.get(producer_id)
            if entry is None or entry.current_txn_first_offset != NO_OFFSET:
                continue
            is_idle = last_timestamp_max is None or entry.last_timestamp <= last_timestamp_max
            if is_idle and self.last_round(entry) < written_before:
                del self.producers[producer_id]
                expired += 1
        return expired

    def begin_round(self, number: int) -> None:
        """Begin a period of time; numbers grow.  What was written before the first one counts as written in it."""
        if self._first_round == 0:
            self._first_round = number
        self._round = number

    def last_round(self, entry: ProducerEntry) -> int:
        """Return the round in which the producer wrote last, whatever the timestamps of its batches."""
        return max(entry.last_round, self._first_round)

    def capture(self) -> list[ProducerEntry]:
        """Return all producers as they are now, for other threads: later changes are made in copies of the entries.

        The list is the caller's.  It takes about 10 ns per producer.
        """
        self._captures += 1
        return list(self.producers.values())

    def load(self, entries: Iterable[SnapshotEntry], end_offset: int) -> None:
        """Replace the state by the entries of a snapshot at `end_offset`."""
        self.clear(end_offset)
        transactions: list[tuple[int, int]] = []
        for saved in entries:
            entry = self._entry(saved.producer_id)
            entry.epoch = saved.producer_epoch
            entry.coordinator_epoch = saved.coordinator_epoch
            entry.last_timestamp = saved.timestamp
            entry.current_txn_first_offset = saved.current_txn_first_offset
            if saved.last_sequence != NO_SEQUENCE:
                first_sequence = (saved.last_sequence - saved.offset_delta) & SEQUENCE_MAX
                first_offset = saved.last_offset - saved.offset_delta
                entry.add_batch(first_sequence, first_offset, saved.offset_delta, saved.timestamp)
                entry.first_sequence = entry.leader_epoch_sequence = first_sequence
            if saved.current_txn_first_offset != NO_OFFSET:
                transactions.append((saved.current_txn_first_offset, saved.producer_id))
        self._open.update(sorted(transactions))

    def remember(self, headers: Iterable[BatchHeader]) -> None:
        """Add the batches before the last one of each producer, from the headers of the last batches of the log."""
        recent = ProducerState()
        for header in headers:
            if header.producer_id < 0 or header.is_control:
                continue
            entry = recent.producers.get(header.producer_id)
            if entry is not None and header.base_sequence != entry.next_sequence:
                # A new epoch, or the leader had forgotten the producer: what it skipped was never appended.
                del recent.producers[header.producer_id]
            recent.append(header)
        for producer_id, found in recent.producers.items():
            known = self.producers.get(producer_id)
            if known is not None and (known.epoch, known.last_sequence, known.last_offset) == (
                found.epoch,
                found.last_sequence,
                found.last_offset,
            ):
                known.take_batches(found)

    def clear(self, end_offset: int) -> None:
        """Forget all producers and set the end offset."""
        self.producers.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.end_offset = end_offset

    def _entry(self, producer_id: int) -> ProducerEntry:
        """Return the entry of a producer that has written, created if missing; it becomes the last one in order."""
        entry = self.producers.pop(producer_id, None)
        if entry is None:
            if len(self.producers) >= PRODUCERS_PER_PARTITION_MAX:
                self._forget_least_recent()
            entry = ProducerEntry(producer_id, self._captures)
        elif entry.captures != self._captures:
            entry = entry.copy(self._captures)
        entry.last_round = self._round
        self.producers[producer_id] = entry
        return entry

    def _forget_least_recent(self) -> None:
        """Forget the producer that wrote least recently; those with an open transaction move to the end of the order.

        The order depends on the log only, so that leader and followers forget the same producers.
        """
        for producer_id in list(islice(self.producers, _FORGETTING_TRIES)):
            entry = self.producers.pop(producer_id)
            if entry.current_txn_first_offset == NO_OFFSET:
                return
            self.producers[producer_id] = entry


def _check_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch < entry.epoch:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {header.producer_epoch} of producer {entry.producer_id} is below the last one seen, {entry.epoch}",
        )


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    if entry.epoch == NO_PRODUCER_EPOCH:
        return
    expected = entry.next_sequence if header.producer_epoch == entry.epoch else 0
    if header.base_sequence != expected:
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {header.base_sequence} of producer {entry.producer_id} epoch {header.producer_epoch} "
            f"came where {expected} was due",
        )


def _take_epoch(entry: ProducerEntry, epoch: int) -> None:
    if epoch != entry.epoch:
        entry.forget_batches()
        entry.epoch = epoch


def _last_sequence(first_sequence: int, offset_delta: int) -> int:
    """Return the sequence number of the last record of a batch; 2**31-1 is followed by 0."""
    return NO_SEQUENCE if first_sequence == NO_SEQUENCE else (first_sequence + offset_delta) & SEQUENCE_MAX


def release(producers: list[ProducerEntry]) -> None:
    """Free what `ProducerState.capture` returned, in a thread: the event loop may run in between."""
    while producers:
        del producers[-_RELEASED_AT_ONCE:]


_RELEASED_AT_ONCE = 1_000
"""Takes up to 0.3 ms."""


def snapshot_of(entry: ProducerEntry) -> SnapshotEntry:
    """Return the producer's entry in a snapshot."""
    last = entry.batches[-1] if entry.has_batches else None
    return SnapshotEntry(
        entry.producer_id,
        entry.epoch,
        NO_SEQUENCE if last is None else last.last_sequence,
        NO_OFFSET if last is None else last.last_offset,
        0 if last is None else last.last_offset - last.first_offset,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.current_txn_first_offset,
    )

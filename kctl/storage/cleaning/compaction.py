"""Which part of a log to compact, in which groups of segments, and which transaction data to remove.  Pure.

    | clean: one record per key  | dirty: may be compacted       | uncleanable for now           |
    log start            clean point                   end offset                       log end

The uncleanable part starts at the first segment that is active, reaches beyond the last stable offset, or has a record
younger than `min.compaction.lag.ms`.  Kafka's LogCleanerManager and Cleaner (2.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from kctl.records.control import ControlType
from kctl.records.header import BatchHeader
from kctl.storage.config import FOREVER, RELATIVE_OFFSET_MAX, LogConfig
from kctl.storage.segments.transaction_index import AbortedTransaction

NO_HORIZON = 0


class LogSegment(Protocol):
    """The properties of a segment that the rules need.  Reading a timestamp may read a file."""

    base_offset: int
    size: int

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of the records in ms, or -1."""

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch in ms, or -1."""


class Cleanable(NamedTuple):
    """The part of a log that may be compacted."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """For how long a dirty record has been older than `max.compaction.lag.ms`; 0 if none is."""

    @property
    def dirty_ratio(self) -> float:
        """Dirty bytes divided by clean and dirty bytes; `min.cleanable.dirty.ratio` is compared with it."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def is_due(self, config: LogConfig) -> bool:
        """Return whether the dirty ratio is high enough or `max.compaction.lag.ms` has passed."""
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio)


class SourceSegment(NamedTuple):
    """A closed segment that is to be cleaned."""

    path: str
    base_offset: int
    end_offset: int
    """Base offset of the next segment."""
    size: int
    index_size: int
    time_index_size: int
    modified_ms: int


def clean_point(checkpointed: int | None, *, log_start_offset: int, log_end_offset: int) -> int:
    """Return the first dirty offset; ignores a checkpoint outside of the log."""
    if checkpointed is None or not log_start_offset <= checkpointed <= log_end_offset:
        return log_start_offset
    return checkpointed


def cleanable(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    first_dirty_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> Cleanable:
    """Return the part of the log that may be compacted; the last of `segments` is the active one."""
    young_ms = now_ms - config.min_compaction_lag_ms
    old_ms = now_ms - config.max_compaction_lag_ms
    clean_bytes = dirty_bytes = 0
    end_offset = first_dirty_offset
    overdue_ms = 0
    for segment, following in pairwise(segments):
        if following.base_offset <= first_dirty_offset:
            clean_bytes += segment.size
            continue
        if following.base_offset > last_stable_offset:
            break
        if config.min_compaction_lag_ms > 0 and segment.largest_timestamp > young_ms:
            break
        end_offset = following.base_offset
        dirty_bytes += segment.size
        if config.max_compaction_lag_ms < FOREVER and segment.size and not overdue_ms:
            first_ms = segment.first_timestamp
            overdue_ms = max(old_ms - first_ms, 0) if first_ms > 0 else 0
    return Cleanable(first_dirty_offset, end_offset, clean_bytes, dirty_bytes, overdue_ms)


def removal_horizon_ms(segments: Iterable[SourceSegment], first_dirty_offset: int, config: LogConfig) -> int:
    """Return the delete horizon: segments last modified before it (ms) lose tombstones and unneeded markers.

    It is the modification time of the last clean segment minus `delete.retention.ms`, so a tombstone stays for at least
    that time after the cleaning that made it the only record of its key.  Cleaner.doClean (2.8).
    """
    modified = [segment.modified_ms for segment in segments if segment.base_offset < first_dirty_offset]
    return modified[-1] - config.delete_retention_ms if modified else NO_HORIZON


def group_segments(segments: Iterable[SourceSegment], config: LogConfig) -> list[list[SourceSegment]]:
    """Group adjacent segments that fit into one segment by size, index size and 31-bit relative offsets."""
    groups: list[list[SourceSegment]] = []
    size = index_size = time_index_size = 0
    for segment in segments:
        size += segment.size
        index_size += segment.index_size
        time_index_size += segment.time_index_size
        if (
            not groups
            or size > config.segment_bytes
            or max(index_size, time_index_size) > config.segment_index_bytes
            or segment.end_offset - 1 - groups[-1][0].base_offset > RELATIVE_OFFSET_MAX
        ):
            groups.append([])
            size, index_size, time_index_size = segment.size, segment.index_size, segment.time_index_size
        groups[-1].append(segment)
    return groups


class Transactions:
    """Tracks aborted transactions over the batches of a log, in offset order.

    A marker may be removed once its transaction has no batches left before it, that is one cleaning after its data.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        """Producers with data in their current transaction."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the data batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._come_to(header.last_offset)
        self._with_data.add(header.producer_id)
        transaction = self._aborted.get(header.producer_id)
        return transaction is not None and header.base_offset < transaction.last_offset

    def on_marker(self, header: BatchHeader, kind: ControlType) -> tuple[bool, AbortedTransaction | None]:
        """Return whether the marker's transaction still has data; the transaction ends with it."""
        self._come_to(header.last_offset)
        transaction = self._aborted.pop(header.producer_id, None)
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        return has_data, transaction if kind is ControlType.ABORT else None

    def _come_to(self, offset: int) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            transaction = self._ahead.pop()
            self._aborted[transaction.producer_id] = transaction

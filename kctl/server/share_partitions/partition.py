"""A share-partition: which of its records are available, which a member has, and which are done.

    start_offset                                              end_offset
         |  acknowledged | acquired by A | available | archived |  not handed out yet ...

    AVAILABLE --acquire--> ACQUIRED --accept--> ACKNOWLEDGED
        ^                   |   |
        +-----release, lock-+   +--reject, release or lock after the last delivery--> ARCHIVED

The window between both offsets consists of spans of offsets in the same state, so that its size depends on how the
members have split the records, at most on the records that are in flight.  The start offset moves over what is done.

An acknowledgement is staged (`becomes`), written to the share coordinator, and then done: the start offset never moves
over a record whose acknowledgement could be lost.  One write is under way at a time; what is staged meanwhile is in the
next one.  A record whose lock expires is available at once, because nothing is lost if that is not stored; the write
that follows is for its delivery count.

Invariants (checked by the simulation): a record is acquired by one member at a time; one that was acknowledged, with
success, is never handed out again; one that was not is handed out until it is archived.

Owner: event loop.  Pure.  Kafka: SharePartition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kctl.server.share_partitions.values import (
    DeliveryState,
    StateBatch,
    StateChange,
    StoredState,
    merge_neighbours,
)

_AVAILABLE, _ACQUIRED, _ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED, DeliveryState.ARCHIVED


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """Each field is a property of the broker or of the group."""

    delivery_count_max: int = 5
    """group.share.delivery.count.limit"""
    in_flight_max: int = 2_000
    """group.share.partition.max.record.locks"""
    lock_ms: int = 30_000
    """group.share.record.lock.duration.ms"""


class LogBatch(NamedTuple):
    """The offsets of a batch in the log; `is_hidden` for one of an aborted transaction."""

    first: int
    last: int
    is_hidden: bool = False


class AcquiredRange(NamedTuple):
    """Offsets that a member has acquired, from first to last, inclusive."""

    first: int
    last: int
    delivery_count: int


@dataclass(slots=True)
class Span:
    """Consecutive offsets in the same state."""

    first: int
    last: int
    state: DeliveryState
    delivery_count: int = 0
    member_id: str | None = None
    """The member that has acquired it."""
    deadline_ms: int = 0
    """When its lock expires."""
    becomes: DeliveryState | None = None
    """The state after an acknowledgement that is not stored yet."""
    is_writing: bool = False
    """The write that is under way has it."""
    is_changed: bool = False
    """It is in another state than the share coordinator has, without an acknowledgement."""

    @property
    def is_free(self) -> bool:
        """Whether a member may acquire it."""
        return self.state is _AVAILABLE

    @property
    def is_locked(self) -> bool:
        """Whether a member has it and has not acknowledged it."""
        return self.state is _ACQUIRED and self.becomes is None

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    def continues(self, before: Span) -> bool:
        """Return whether the span and the one before it can be one."""
        return (
            self.state is before.state
            and self.delivery_count == before.delivery_count
            and self.member_id == before.member_id
            and self.deadline_ms == before.deadline_ms
            and self.becomes is before.becomes
            and self.is_writing == before.is_writing
            and self.is_changed == before.is_changed
        )


class SharePartition:
    """The window of a share-partition.  Attributes are read-only for other modules."""

    def __init__(self, stored: StoredState, leader_epoch: int) -> None:
        """Begin with a stored state, whose start offset is known."""
        self.state_epoch = stored.state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = stored.start_offset
        self.end_offset = stored.start_offset
        """The offset after the window: the first one that was never handed out."""
        self.spans: list[Span] = []
        self.is_writing = False
        self._summary: tuple[int | None, int] | None = None
        """The first available offset, and the number in flight: each append of a producer asks for them."""
        self._stored_start = stored.start_offset
        self._written_start = stored.start_offset
        for batch in stored.batches:
            if batch.last < self.end_offset:
                continue
            first = max(batch.first, self.end_offset)
            if first > self.end_offset:
                self.spans.append(Span(self.end_offset, first - 1, _AVAILABLE))
            self.spans.append(Span(first, batch.last, batch.state, batch.delivery_count))
            self.end_offset = batch.last + 1
        self._advance_start()

    @property
    def in_flight(self) -> int:
        """The number of offsets in the window that are not done."""
        return self._summarize()[1]

    def next_offset(self, limits: ShareLimits) -> int | None:
        """Return the first offset that may be acquired; None while too many records are in flight."""
        free, in_flight = self._summarize()
        if free is not None:
            return free
        return self.end_offset if in_flight < limits.in_flight_max else None

    def _summarize(self) -> tuple[int | None, int]:
        if self._summary is None:
            free = next((span.first for span in self.spans if span.is_free), None)
            self._summary = free, sum(span.size for span in self.spans if not span.state.is_final)
        return self._summary

    def next_deadline_ms(self) -> int | None:
        """Return when the next lock expires; None without locks."""
        return min((span.deadline_ms for span in self.spans if span.is_locked), default=None)

    def acquire(
        self,
        member_id: str,
        batches: Iterable[LogBatch],
        *,
        position: int,
        records_max: int,
        is_exact: bool,
        limits: ShareLimits,
        now_ms: int,
    ) -> list[AcquiredRange]:
        """Lock what is available of these batches of the log, which was read from `position` on.

        At most `records_max`, unless `is_exact` is False: then the limit is exceeded up to the end of a batch.  Offsets
        between the batches have no records.
        """
        acquired: list[AcquiredRange] = []
        left = min(records_max, limits.in_flight_max)
        room = limits.in_flight_max - self.in_flight
        cursor = max(position, self.start_offset)
        for batch in batches:
            if cursor > self.end_offset:
                break  # A batch was cut, or there is no room for it.
            if batch.last < cursor:
                continue
            if batch.first > cursor:
                self._archive(cursor, batch.first - 1)
            first, last = max(batch.first, cursor), batch.last
            cursor = last + 1
            if batch.is_hidden:
                self._archive(first, last)
                continue
            if left <= 0:
                break
            if last >= self.end_offset:
                if room <= 0:
                    last = self.end_offset - 1
                else:
                    start = max(first, self.end_offset)
                    if is_exact:
                        last = min(last, start + min(left, room) - 1)
                    room -= last - start + 1
                    self._append(Span(start, last, _AVAILABLE))
            taken = self._lock(member_id, first, last, left if is_exact else None, limits, now_ms)
            acquired += taken
            left -= sum(part.last - part.first + 1 for part in taken)
        self._join()
        self._advance_start()
        return _joined(acquired)

    def _lock(
        self, member_id: str, first: int, last: int, most: int | None, limits: ShareLimits, now_ms: int
    ) -> list[AcquiredRange]:
        taken: list[AcquiredRange] = []
        for span in self.between(first, last):
            if not span.is_free:
                continue
            if most is not None and most <= 0:
                break
            if most is not None and span.size > most:
                self.split(span.first + most)
            span.state = _ACQUIRED
            span.member_id, span.deadline_ms = member_id, now_ms + limits.lock_ms
            span.delivery_count += 1
            # A write that is under way has the state before this one.
            span.is_changed = span.is_writing = False
            taken.append(AcquiredRange(span.first, span.last, span.delivery_count))
            if most is not None:
                most -= span.size
        return taken

    def _archive(self, first: int, last: int) -> None:
        """Note that there are no records at these offsets for members."""
        if last >= self.end_offset:
            self._append(Span(max(first, self.end_offset), last, _AVAILABLE))
        for span in self.between(first, last):
            if span.is_free:
                span.state, span.is_changed = _ARCHIVED, True

    # Locks.

    def expire_locks(self, limits: ShareLimits, now_ms: int) -> bool:
        """Release what was acquired for too long; return whether there was any."""
        return self._release_all([span for span in self.spans if span.is_locked and span.deadline_ms <= now_ms], limits)

    def release_member(self, member_id: str, limits: ShareLimits) -> bool:
        """Release all that a member has and has not acknowledged; return whether there was any."""
        return self._release_all(
            [span for span in self.spans if span.is_locked and span.member_id == member_id], limits
        )

    def _release_all(self, held: list[Span], limits: ShareLimits) -> bool:
        for span in held:
            _release(span, _state_after_release(span, limits))
        self._join()
        self._advance_start()
        return bool(held)

    def move_start(self, log_start_offset: int) -> bool:
        """Forget offsets before the start of the log; return whether there were any."""
        if log_start_offset <= self.start_offset:
            return False
        if log_start_offset < self.end_offset:
            self.split(log_start_offset)
        self.spans = [span for span in self.spans if span.first >= log_start_offset]
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self._advance_start()
        return True

    # Writing.

    def take_write(self) -> StateChange | None:
        """Return what is to be stored now; None if there is nothing, or a write is under way."""
        if self.is_writing:
            return None
        pending = [span for span in self.spans if span.becomes is not None or span.is_changed]
        if not pending and self.start_offset == self._stored_start:
            return None
        self.is_writing = True
        start = next((span.first for span in self.spans if not _after(span).is_final), self.end_offset)
        self._written_start = start
        for span in pending:
            span.is_writing = True
        changed = [
            StateBatch(span.first, span.last, _after(span), span.delivery_count)
            for span in pending
            if span.last >= start
        ]
        done = sum(span.size for span in self.spans if span.first >= start and _after(span).is_final)
        batches = merge_neighbours(changed)
        return StateChange(self.state_epoch, self.leader_epoch, start, batches, delivery_complete_count=done)

    def write_done(self, *, is_stored: bool) -> None:
        """End the write: what was acknowledged is done, or stays with its member if the write has failed."""
        self.is_writing = False
        if is_stored:
            self._stored_start = self._written_start
        for span in self.spans:
            if not span.is_writing:
                continue
            span.is_writing = False
            if span.becomes is None:
                # Otherwise a member has acquired it meanwhile, or it is written again with the next change.
                span.is_changed = span.is_changed and not is_stored
                continue
            becomes, span.becomes = span.becomes, None
            if is_stored:
                _release(span, becomes)
                span.is_changed = False
        self._join()
        self._advance_start()

    # Spans.

    def between(self, first: int, last: int) -> list[Span]:
        """Return the spans of these offsets, as far as they are in the window, after splitting those at the ends."""
        first, last = max(first, self.start_offset), min(last, self.end_offset - 1)
        if first > last:
            return []
        begin = self.split(first)
        end = self.split(last + 1)
        return self.spans[begin:end]

    def overlapping(self, first: int, last: int) -> list[Span]:
        """Return the spans that have one of these offsets, without splitting any."""
        begin = max(bisect_right(self.spans, first, key=_first_of) - 1, 0)
        end = bisect_right(self.spans, last, key=_first_of)
        return [span for span in self.spans[begin:end] if span.last >= first]

    def split(self, offset: int) -> int:
        """Let a span begin at this offset; return its index.  At the end of the window, the number of spans."""
        index = bisect_right(self.spans, offset, key=_first_of) - 1
        if index < 0:
            return 0
        span = self.spans[index]
        if span.first == offset:
            return index
        if span.last >= offset:
            self.spans.insert(index + 1, replace(span, first=offset))
            span.last = offset - 1
        return index + 1

    def _append(self, span: Span) -> None:
        """Extend the window, whose end is the first offset of the span or before it."""
        if span.first > self.end_offset:
            self.spans.append(Span(self.end_offset, span.first - 1, _ARCHIVED, is_changed=True))
        self.spans.append(span)
        self.end_offset = span.last + 1

    def _join(self) -> None:
        joined: list[Span] = []
        for span in self.spans:
            if joined and span.continues(joined[-1]):
                joined[-1].last = span.last
            else:
                joined.append(span)
        self.spans = joined

    def _advance_start(self) -> None:
        """Move the start over what is done, and stored if it was acknowledged.  Ends each change of states."""
        self._summary = None
        done = 0
        for span in self.spans:
            if not span.state.is_final or span.is_writing:
                break
            self.start_offset = span.last + 1
            done += 1
        del self.spans[:done]


def _first_of(span: Span) -> int:
    return span.first


def _after(span: Span) -> DeliveryState:
    """Return the state of a span when what is staged is stored."""
    return span.state if span.becomes is None else span.becomes


def _state_after_release(span: Span, limits: ShareLimits) -> DeliveryState:
    return _ARCHIVED if span.delivery_count >= limits.delivery_count_max else _AVAILABLE


def _release(span: Span, state: DeliveryState) -> None:
    span.state, span.member_id, span.deadline_ms = state, None, 0
    # What is being written is another state.
    span.is_changed, span.is_writing = True, False


def cut_ranges(ranges: Iterable[AcquiredRange], starts: Sequence[int], size: int) -> list[AcquiredRange]:
    """Cut ranges of more than `size` offsets where batches of the log begin, so that each part has at least `size`.

    `starts` are the first offsets of the batches, in order.  The last part may be shorter.  A member acknowledges and
    stores parts of about that size.  Kafka: SharePartition.createBatches.
    """
    parts: list[AcquiredRange] = []
    for first, last, delivery_count in ranges:
        begin = first
        if last - first >= size:
            for start in starts[bisect_right(starts, first) : bisect_right(starts, last)]:
                if start - begin >= size:
                    parts.append(AcquiredRange(begin, start - 1, delivery_count))
                    begin = start
        parts.append(AcquiredRange(begin, last, delivery_count))
    return parts


def _joined(ranges: Iterable[AcquiredRange]) -> list[AcquiredRange]:
    joined: list[AcquiredRange] = []
    for part in ranges:
        if joined and (joined[-1].last + 1, joined[-1].delivery_count) == (part.first, part.delivery_count):
            joined[-1] = joined[-1]._replace(last=part.last)
        else:
            joined.append(part)
    return joined

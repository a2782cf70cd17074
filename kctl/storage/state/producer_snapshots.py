"""The `.snapshot` files of a log: producer state at an offset, so that a start does not read the whole log.

A snapshot is captured at every roll and at a clean shutdown, and is written by the next flush: 100,000 producers take
150 ms to write.

    snapshots.capture(state)         loop: the producers as they are now
    draft = snapshots.take_drafts()  loop: part of a plan to flush the log
    draft.write()                    any thread: to a file of its own, synced
    snapshots.finish(draft)          loop: rename it, unless a truncation or a deletion has made it useless meanwhile

So a snapshot is either missing or complete.  Without one, its producers are read from an older one and the log: after a
crash, and after a truncation.  Kafka, too, syncs a snapshot only after the roll, with the closed segment (KAFKA-15046).

Recovery, which runs before the log is shared, writes at once.  Kept are the snapshots at the base offsets of the
segments (for recovery after a truncation) and the newest one.  A corrupt one is removed and the next older one is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from kctl.errors import CorruptLog
from kctl.limits import PRODUCERS_PER_PARTITION_MAX
from kctl.records.batch import iterate_records
from kctl.records.compression import Buffer
from kctl.records.control import EndTransactionMarker, parse_end_transaction_marker
from kctl.records.header import BatchHeader, CorruptBatch
from kctl.storage.files import File, Files
from kctl.storage.names import DELETED_SUFFIX, DRAFT_SUFFIX, SNAPSHOT_SUFFIX, offset_file_name
from kctl.storage.segments.batch_reader import read_headers, read_past_damage
from kctl.storage.segments.segment import Segment
from kctl.storage.segments.segments import SegmentList
from kctl.storage.segments.transaction_index import AbortedTransaction
from kctl.storage.state.checkpoints import parse_snapshot, snapshot_bytes
from kctl.storage.state.producer_state import ProducerEntry, ProducerState, release, snapshot_of

_logger = logging.getLogger(__name__)
READ_BACK_ENTRIES = 16
"""Enough for the requests in flight of several clients."""


class SnapshotDraft:
    """The producers at an offset, to be written in a thread."""

    __slots__ = ("_file", "_producers", "is_released", "offset", "path")

    def __init__(self, offset: int, producers: list[ProducerEntry]) -> None:
        self.offset = offset
        self._producers = producers
        self._file: File | None = None
        self.path = ""
        """The path when the file was opened; empty before that."""
        self.is_released = False
        """True if the producers are no longer in memory."""

    @property
    def producer_count(self) -> int:
        """The number of producers in memory."""
        return len(self._producers)

    def write_to(self, file: File) -> None:
        """Use this file for `write`; without one it only frees the producers."""
        self._file, self.path = file, file.path

    def write(self) -> list[File]:
        """Write the file, if any, and free the producers; return the file, which is to be synced.

        Any thread, once.  Raises OSError.
        """
        file, self._file = self._file, None
        try:
            if file is None:
                return []
            file.write_at(0, snapshot_bytes(map(snapshot_of, self._producers)))
            return [file]
        finally:
            release(self._producers)
            self.is_released = True


class ProducerSnapshots:
    """The snapshot files of one log.  Owner: event loop."""

    __slots__ = (
        "_captured",
        "_directory",
        "_draft_number",
        "_files",
        "_is_closed",
        "_offsets",
        "_releasing",
        "_unsynced",
        "_useless",
    )

    def __init__(self, files: Files, directory: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)
        # Tuples, because most logs have none of these: empty lists took 0.2 KB of each.
        self._unsynced: tuple[int, ...] = ()
        self._captured: dict[int, SnapshotDraft] = {}
        """Snapshots without a file, by offset."""
        self._useless: tuple[SnapshotDraft, ...] = ()
        """Drafts that were captured and are not to be written: they are freed in a thread, too."""
        self._releasing: tuple[SnapshotDraft, ...] = ()
        """Drafts that were taken and may still be in memory."""
        self._draft_number = 0
        self._is_closed = False

    @property
    def latest_offset(self) -> int | None:
        """The offset of the newest snapshot, written or captured, None if there is none."""
        return max([*self._offsets[-1:], *self._captured], default=None)

    @property
    def has_unsynced(self) -> bool:
        """True if a snapshot was captured or written since the last flush."""
        return bool(self._unsynced or self._captured)

    def moved_to(self, directory: str) -> None:
        """Use the new path of the log's directory."""
        self._directory = directory

    def path(self, offset: int) -> str:
        """Return the path of the snapshot at `offset`."""
        return f"{self._directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"

    def write(self, state: ProducerState) -> None:
        """Write a snapshot at the end offset of `state`, unless it exists.  It is synced with the next flush."""
        offset = state.end_offset
        if offset in self._offsets:
            return
        content = snapshot_bytes(map(snapshot_of, state.producers.values()))
        self._files.write_atomically(self.path(offset), content, sync=False)
        self._add(offset)
        self._unsynced += (offset,)

    # Captured, written by a flush

    def capture(self, state: ProducerState) -> None:
        """Capture a snapshot at the end offset of `state`, unless there is one.

        Nothing is captured while so many producers wait to be written that a log of short segments would fill the
        memory with copies of them.
        """
        offset = state.end_offset
        if offset in self._offsets or offset in self._captured:
            return
        self._releasing = tuple(draft for draft in self._releasing if not draft.is_released)
        unwritten = [*self._captured.values(), *self._useless, *self._releasing]
        in_memory = sum(draft.producer_count for draft in unwritten)
        if not in_memory or in_memory + len(state.producers) <= PRODUCERS_PER_PARTITION_MAX:
            self._captured[offset] = SnapshotDraft(offset, state.capture())

    def take_drafts(self, end: int) -> list[SnapshotDraft]:
        """Return the drafts to write, up to the offset `end`, or to free that were captured since the last call.

        Raises OSError.
        """
        drafts = list(self._useless)
        self._useless = ()
        for draft in self._captured.values():
            if not draft.path and draft.offset <= end:
                self._draft_number += 1
                path = f"{self.path(draft.offset)}.{self._draft_number}{DRAFT_SUFFIX}"
                draft.write_to(self._files.open(path, create=True))
                drafts.append(draft)
        self._releasing += tuple(drafts)
        return drafts

    def finish(self, draft: SnapshotDraft) -> None:
        """Make a written draft the snapshot at its offset, or remove it if it is useless now.  Raises OSError."""
        if not draft.path or self._is_closed:
            return
        path = f"{self._directory}/{draft.path.rpartition('/')[2]}"
        if self._captured.get(draft.offset) is draft:
            del self._captured[draft.offset]
            self._files.rename(path, self.path(draft.offset))
            self._add(draft.offset)
        else:
            self._files.remove(path)

    def release(self) -> None:
        """Forget what was captured: the log is closed or deleted, and its directory may soon belong to another log."""
        self._is_closed = True
        self._captured.clear()
        self._useless = ()

    def _add(self, offset: int) -> None:
        self._offsets.append(offset)
        self._offsets.sort()

    # Reading and removing

    def load_latest(self, state: ProducerState, *, at_most: int, at_least: int) -> None:
        """Load the newest readable file in the range; without one clear `state`, with the end offset `at_least`."""
        for offset in reversed([offset for offset in self._offsets if offset <= at_most]):
            if offset < at_least:
                break
            try:
                state.load(parse_snapshot(self._files.read(self.path(offset)), self.path(offset)), offset)
            except (CorruptLog, FileNotFoundError) as error:
                _logger.warning(
                    "cannot read producer snapshot, removing it and using an older one path=%s error=%s",
                    self._directory,
                    error,
                )
                self.remove(offset)
            else:
                return
        state.clear(at_least)

    def files(self, *, at_most: int, at_least: int) -> list[tuple[int, str]]:
        """Return offset and path of the written snapshots in the range."""
        return [(offset, self.path(offset)) for offset in self._offsets if at_least <= offset <= at_most]

    def take_unsynced(self) -> list[str]:
        """Return the existing snapshots written since the last call."""
        paths = [self.path(offset) for offset in self._unsynced if offset in self._offsets]
        self._unsynced = ()
        return paths

    def remove(self, offset: int) -> None:
        """Remove the snapshot at `offset`, if any."""
        self._discard(offset)
        if offset in self._offsets:
            self._offsets.remove(offset)
            self._files.remove(self.path(offset))

    def remove_after(self, offset: int) -> None:
        """Remove the snapshots after `offset`, which is the log end after a truncation."""
        for later in [other for other in (*self._offsets, *self._captured) if other > offset]:
            self.remove(later)

    def remove_all(self) -> None:
        """Remove all snapshots."""
        for offset in [*self._offsets, *self._captured]:
            self.remove(offset)

    def keep_only(self, base_offsets: Iterable[int]) -> None:
        """Remove all snapshots but the newest and those at a base offset of a segment."""
        keep = {*base_offsets, self.latest_offset}
        for offset in [other for other in (*self._offsets, *self._captured) if other not in keep]:
            self.remove(offset)

    def mark_deleted(self, offset: int) -> list[str]:
        """Rename the snapshot at `offset`, if any, to `.deleted`; return its new path."""
        if offset == self.latest_offset:
            return []
        self._discard(offset)
        if offset not in self._offsets:
            return []
        self._offsets.remove(offset)
        path = self.path(offset)
        self._files.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX]

    def _discard(self, offset: int) -> None:
        draft = self._captured.pop(offset, None)
        if draft is not None and not draft.path:
            self._useless += (draft,)


# Updates producer state from the batches of a log, at append and at recovery.


def apply_producer_batch(state: ProducerState, segment: Segment, header: BatchHeader, buffer: Buffer) -> None:
    """Update `state` from a batch with a producer id in `segment`; add an aborted transaction to its index."""
    if not header.is_control:
        state.append(header)
        return
    marker = marker_in(buffer, header)
    if marker is None:
        state.skip_to(header.next_offset)
        return
    completed = state.append_marker(header, marker)
    if completed is not None and completed.is_aborted:
        segment.transaction_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                state.stable_offset_after(completed),
            )
        )


def remember_earlier_batches(state: ProducerState, segments: Sequence[Segment]) -> None:
    """Add to a state from a snapshot the batches before the last one of each producer, from the end of the log.

    `segments` are those of the log, at least up to the end offset of `state`.  The batches of READ_BACK_ENTRIES index
    entries are read, 4 KB or one batch each.  Damage is left to those who read the records.
    """
    if not any(entry.has_batches for entry in state.producers.values()):
        return
    found: list[list[BatchHeader]] = []
    left = READ_BACK_ENTRIES
    for segment in reversed(segments):
        if segment.base_offset >= state.end_offset:
            continue
        try:
            found.append(list(segment.headers_before(state.end_offset, left)))
        except CorruptLog:
            break
        left -= 1 + len(segment.indexes.offset)
        if left <= 0:
            break
    state.remember(chain.from_iterable(reversed(found)))


def replay_producers(state: ProducerState, segments: SegmentList, end_offset: int) -> None:
    """Advance `state` to `end_offset` by reading the batches from its end offset on, skipping corrupt ones."""
    for segment in segments.from_index(segments.floor_index(state.end_offset)):
        if segment.base_offset >= end_offset:
            break
        try:
            start = segment.locate(state.end_offset)
            if start is not None:
                _replay(state, segment.headers(start.position), segment.file, end_offset)
        except CorruptLog:
            # Skip batches that were already replayed.
            sound = read_past_damage(segment.file, segment.base_offset, segment.size)
            _replay(state, sound, segment.file, end_offset)
    state.skip_to(end_offset)


def replay_headers(state: ProducerState, headers: Iterator[BatchHeader], file: File, end_offset: int) -> None:
    """Advance `state` by the batches that end at `end_offset` or before it."""
    for header in headers:
        if header.next_offset > end_offset:
            return
        replay_batch(state, header, file)


def _replay(state: ProducerState, headers: Iterator[BatchHeader], file: File, end_offset: int) -> None:
    for header in headers:
        if header.base_offset >= end_offset:
            return
        replay_batch(state, header, file)


def replay_batch(state: ProducerState, header: BatchHeader, file: File) -> None:
    """Update `state` from one batch of the log; only control batches are read."""
    if header.producer_id < 0 or header.last_offset < state.end_offset:
        state.skip_to(header.next_offset)
    elif header.is_control:
        marker = marker_in(file.read_at(header.position, header.size), header, position=0)
        if marker is None:
            state.skip_to(header.next_offset)
        else:
            state.append_marker(header, marker)
    else:
        state.append(header)


def marker_in(buffer: Buffer, header: BatchHeader, position: int | None = None) -> EndTransactionMarker | None:
    """Return the transaction marker of the control batch at `position` (by default the header's); None for other
    types.
    """
    view = memoryview(buffer)[header.position if position is None else position :]
    try:
        record = next(iterate_records(view), None)
    except CorruptBatch:
        return None
    return None if record is None else parse_end_transaction_marker(record)


# The producers of a log at an earlier offset, read by a thread before the log is truncated to it.
#
#     reload = log.plan_truncation(offset)   loop: which snapshots and batches to read
#     reload.run()                           any thread
#     log.truncate_to(offset, reload)        loop: its producers are used if nothing else truncated the log meanwhile
#     reload.release()                       any thread: frees the producers of before
#
# The snapshot of 100,000 producers takes 0.5 s to read, and a segment of small batches several seconds. What is read
# lies before the offset: appends do not change it, and the files of segments that retention or compaction removes
# stay open. Nothing is written, so that a crash leaves the log as it was.


class ReplayedFile(NamedTuple):
    """The batches of a segment that were in it when the truncation was planned."""

    base_offset: int
    file: File
    size: int


class ProducerReload:
    """What `run` reads, and its result."""

    __slots__ = ("_files", "_segments", "_snapshots", "log_start_offset", "offset", "state", "truncations")

    def __init__(
        self,
        offset: int,
        *,
        log_start_offset: int,
        truncations: int,
        snapshots: Sequence[tuple[int, str]],
        segments: Sequence[ReplayedFile],
        files: Files,
    ) -> None:
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.truncations = truncations
        """The number of truncations of the log when this was planned."""
        self.state: ProducerState | None = None
        """The producers at the offset; None before `run`, and if a file could not be read."""
        self._snapshots = snapshots
        self._segments = segments
        self._files = files

    def run(self) -> None:
        """Read the producers."""
        state = ProducerState()
        try:
            self._load(state)
            self._replay(state)
        except OSError:
            return  # The truncation reads them again, and reports the error.
        self.state = state

    def release(self) -> None:
        """Free the producers."""
        if self.state is not None:
            producers = self.state.capture()
            self.state.clear(self.offset)
            release(producers)
            self.state = None

    def _load(self, state: ProducerState) -> None:
        """Load the newest readable snapshot; the log removes damaged ones when it finds them itself."""
        for offset, path in reversed(self._snapshots):
            try:
                state.load(parse_snapshot(self._files.read(path), path), offset)
            except CorruptLog:
                continue
            return
        state.clear(self.log_start_offset)

    def _replay(self, state: ProducerState) -> None:
        for index, (base_offset, file, size) in enumerate(self._segments):
            if index + 1 < len(self._segments) and self._segments[index + 1].base_offset <= state.end_offset:
                continue
            try:
                replay_headers(state, read_headers(file, 0, size), file, self.offset)
            except CorruptLog:
                replay_headers(state, read_past_damage(file, base_offset, size), file, self.offset)
        state.skip_to(self.offset)

"""The log of one partition: appending, reading, rolling, truncating, deleting.

A log has a list of segments, the leader epochs and the producer state, and three offsets:

    log start offset   records below it are not readable, even if files still contain them
    recovery point     everything below it is on the disk; recovery starts at its segment
    log end offset     the offset of the next record

The high watermark belongs to replication and is an argument.  Order of an append: check everything, roll if due, write
the batches, index them, then update producers, epochs and the end offset.  A failure before the write changes nothing;
an OSError takes the log directory offline.

kctl.storage.recovery.recovery opens logs.  Kafka's UnifiedLog.  Owner: event loop.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from kctl.errors import ApiError, CorruptLog, ErrorCode
from kctl.model import TopicPartition
from kctl.records.allowance import Allowance
from kctl.records.compression import Buffer
from kctl.records.header import LEADER_EPOCH_POSITION, TimestampType
from kctl.records.validate import ValidBatches, validate_internal, validate_produced, validate_replicated
from kctl.storage.config import LogConfig, should_roll
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import File, Files
from kctl.storage.log import lookup
from kctl.storage.log.appending import NO_APPEND_TIME, AppendResult, check_producers, deletable_segments
from kctl.storage.log.flushing import FlushPlan, FlushState
from kctl.storage.log.lookup import RecordsSlice, TimestampOffset, TimestampScan, TimestampSearch, scan_allowance
from kctl.storage.log.watchers import Watchers
from kctl.storage.segments.draft import DraftedBatches, SegmentDraft
from kctl.storage.segments.segment import Segment
from kctl.storage.segments.segments import LocalLog, SegmentList
from kctl.storage.segments.transaction_index import AbortedTransaction
from kctl.storage.state.checkpoints import MetadataFiles
from kctl.storage.state.leader_epochs import LeaderEpochs
from kctl.storage.state.producer_snapshots import (
    ProducerReload,
    ProducerSnapshots,
    ReplayedFile,
    apply_producer_batch,
    replay_producers,
)
from kctl.storage.state.producer_state import ProducerState
from kctl.system.environment import Random

_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
"""A constant, because Python 3.11 takes 0.1 us to find a member of an enum."""
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")


@dataclass(slots=True)
class LogContents:
    """The state of a log as recovery found it in the log's directory."""

    segments: SegmentList
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    leader_epochs: LeaderEpochs
    producer_state: ProducerState
    snapshots: ProducerSnapshots
    metadata: MetadataFiles
    topic_id: UUID | None = None


class Log:
    """The log of one partition."""

    __slots__ = (
        "_files",
        "_flush",
        "_has_new_epochs",
        "_local",
        "_metadata",
        "_segments",
        "_truncated_to",
        "config",
        "leader_epochs",
        "log_directory",
        "log_end_offset",
        "log_start_offset",
        "producer_state",
        "snapshots",
        "topic_id",
        "topic_partition",
        "watchers",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        config: LogConfig,
        contents: LogContents,
        *,
        files: Files,
        log_directory: LogDirectory,
        removals: DelayedRemovals,
        random: Random,
        now_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        """May be replaced at any time."""
        self.topic_id = contents.topic_id
        self.log_directory = log_directory
        self.log_start_offset = contents.log_start_offset
        self.log_end_offset = contents.log_end_offset
        self._flush = FlushState(contents.recovery_point, now_ms)
        self.leader_epochs = contents.leader_epochs
        self.producer_state = contents.producer_state
        self.snapshots = contents.snapshots
        self._local = LocalLog(directory, contents.segments, files=files, removals=removals, random=random)
        self._segments = contents.segments
        self._metadata = contents.metadata
        self._files = files
        self._has_new_epochs = False
        """True if epochs are not in their file: a flush writes them, and recovery finds those of later batches."""
        self._truncated_to: int | None = None
        self.watchers = Watchers()

    @property
    def directory(self) -> str:
        """The current path of the log's directory."""
        return self._local.directory

    @property
    def segments(self) -> list[Segment]:
        """A copy of the list of segments, oldest first."""
        return self._segments.all()

    @property
    def first_base_offset(self) -> int:
        """The base offset of the first segment."""
        return self._segments.first.base_offset

    @property
    def segment_count(self) -> int:
        """The number of segments."""
        return len(self._segments)

    @property
    def active_segment(self) -> Segment:
        """The segment that takes appends."""
        return self._segments.active

    @property
    def size_bytes(self) -> int:
        """Size of all batches in bytes."""
        return self._segments.size

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is on the disk."""
        return self._flush.recovery_point

    @property
    def truncations(self) -> int:
        """The number of truncations since the start."""
        return self._flush.truncations

    @property
    def settled_end_offset(self) -> int:
        """Appends below this offset may be acknowledged: the log end offset, or less while `flush.messages` requires
        a sync.
        """
        unsettled_from = self._flush.unsettled_from
        return self.log_end_offset if unsettled_from is None else unsettled_from

    @property
    def awaits_flush(self) -> bool:
        """True if appends must be synced before they are acknowledged; the caller does so with plan_flush, run,
        flushed.
        """
        return self._flush.unsettled_from is not None

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: every transaction below it is complete and its marker replicated (KIP-98)."""
        state = self.producer_state
        if not state.has_transactions:
            return high_watermark
        state.on_high_watermark(high_watermark)
        first_unstable = state.first_unstable_offset
        return high_watermark if first_unstable is None else min(high_watermark, first_unstable)

    # Appending

    def append_as_leader(
        self,
        records: Buffer | ValidBatches,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool = True,
        request_version: int = 9,
        allowance: Allowance | None = None,
    ) -> AppendResult:
        """Assign offsets to the records and append them as the leader.

        A client's records may have been validated before, in a thread; otherwise `allowance` bounds the validation, and
        AllowanceExceeded is raised where it is not enough.  A writable buffer is changed in place (offsets, leader
        epoch; timestamps for LogAppendTime).  With `from_client` False, records may be several batches including
        control batches, and sequence numbers are not checked.  Raises LogDirFailure, and ApiError as described in
        kctl.records.validate and kctl.storage.state.producer_state.  UnifiedLog.appendAsLeader.
        """
        self.log_directory.check()
        rules = self.config.append_rules
        if isinstance(records, ValidBatches):
            valid = records
        elif from_client:
            valid = validate_produced(
                records, rules, now_ms=now_ms, request_version=request_version, allowance=allowance
            )
        else:
            valid = validate_internal(records, rules, now_ms=now_ms)
        append_time = NO_APPEND_TIME
        if rules.timestamp_type is _LOG_APPEND_TIME and valid.headers:
            append_time = valid.headers[-1].max_timestamp
        duplicate = check_producers(
            valid, self.producer_state, with_sequence=from_client, log_start_offset=self.log_start_offset
        )
        if duplicate is not None:
            return duplicate
        offset = self.log_end_offset
        for header in valid.headers:
            header.base_offset, header.leader_epoch = offset, leader_epoch
            _OFFSET.pack_into(valid.buffer, header.position, offset)
            _EPOCH.pack_into(valid.buffer, header.position + LEADER_EPOCH_POSITION, leader_epoch)
            offset = header.next_offset
        return self._append(valid, append_time, now_ms)

    def append_plain(self, batch: memoryview, count: int, max_timestamp: int, *, leader_epoch: int, now_ms: int) -> int:
        """As `append_as_leader`, for a valid batch without a producer id; return the offset of its first record.

        Return -1, and change nothing, if the append would do anything else: start a segment or an epoch, or require a
        flush.  Raises LogDirFailure.
        """
        flush, active, config, offset = self._flush, self._segments.active, self.config, self.log_end_offset
        end = offset + count
        if (
            not active.size
            or leader_epoch > self.leader_epochs.latest_epoch
            or flush.unsettled_from is not None
            or end - flush.recovery_point >= config.flush_messages
            or should_roll(
                active,
                config,
                append_size=len(batch),
                max_timestamp=max_timestamp,
                last_offset=end - 1,
                now_ms=now_ms,
            )
        ):
            return -1
        _OFFSET.pack_into(batch, 0, offset)
        _EPOCH.pack_into(batch, LEADER_EPOCH_POSITION, leader_epoch)
        try:
            active.append_one(batch, offset, end - 1, max_timestamp)
        except OSError as error:
            raise self.log_directory.fail(error) from error
        self.producer_state.end_offset = self.log_end_offset = end
        if self.watchers.watching:
            self.watchers.moved()
        return offset

    def new_draft(self) -> SegmentDraft:
        """Return a file for batches of more than APPENDED_INLINE_BYTES_MAX, which a thread writes before they are
        appended.

        The caller removes it if it was not taken.
        """
        return SegmentDraft(self._files, self.directory)

    def append_as_follower(self, records: Buffer | ValidBatches, *, now_ms: int = 0) -> AppendResult:
        """Append batches fetched from a leader, with their offsets and epochs; an incomplete batch at the end is
        ignored.

        An empty log may start with a batch that contains its start offset, because records may be deleted up to the
        middle of a batch.  Raises ApiError(CORRUPT_MESSAGE), ApiError(OFFSET_OUT_OF_RANGE) when the records do not
        continue this log, and LogDirFailure.  UnifiedLog.appendAsFollower.
        """
        self.log_directory.check()
        valid = records if isinstance(records, ValidBatches) else validate_replicated(records)
        expected = self.log_end_offset
        if valid.headers and self.log_start_offset == expected:
            first = valid.headers[0]
            if first.base_offset < expected <= first.last_offset:
                self.truncate_fully_and_start_at(first.base_offset)
                expected = first.base_offset
        for header in valid.headers:
            if header.base_offset < expected:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"batch has base offset {header.base_offset}, expected {expected}"
                )
            expected = header.next_offset
        return self._append(valid, NO_APPEND_TIME, now_ms)

    def _append(self, valid: ValidBatches, append_time: int, now_ms: int) -> AppendResult:
        headers = valid.headers
        if not headers:
            return AppendResult(self.log_end_offset, self.log_end_offset - 1, append_time, self.log_start_offset)
        last_offset = headers[-1].last_offset
        try:
            if isinstance(valid, DraftedBatches) and valid.draft.directory == self.directory:
                self._roll_at(headers[0].base_offset, now_ms)
                self._segments.active.append(valid.buffer, headers, valid.draft)
            else:
                self._segment_for(valid, last_offset, now_ms).append(valid.buffer, headers)
            self._apply_batches(valid)
        except OSError as error:
            raise self.log_directory.fail(error) from error
        flush = self._flush
        end = last_offset + 1
        if flush.unsettled_from is None and end - flush.recovery_point >= self.config.flush_messages:
            flush.unsettled_from = self.log_end_offset
        self.log_end_offset = end
        if self.watchers.watching:
            self.watchers.moved()
        return AppendResult(
            headers[0].base_offset,
            last_offset,
            append_time,
            self.log_start_offset,
            is_converted=valid.is_converted,
        )

    def _apply_batches(self, valid: ValidBatches) -> None:
        """Update epochs and producers from batches that were written to the active segment."""
        epochs, producers = self.leader_epochs, self.producer_state
        for header in valid.headers:
            if header.leader_epoch > epochs.latest_epoch:
                epochs.assign(header.leader_epoch, header.base_offset)
                self._has_new_epochs = True
            if header.producer_id < 0:
                producers.end_offset = header.next_offset
            else:
                apply_producer_batch(producers, self._segments.active, header, valid.buffer)

    def _segment_for(self, valid: ValidBatches, last_offset: int, now_ms: int) -> Segment:
        headers = valid.headers
        active = self._segments.active
        if not active.is_open:
            active.become_active()
        if active.size == 0 and headers[0].base_offset == active.base_offset:
            return active
        if should_roll(
            active,
            self.config,
            append_size=len(valid.buffer),
            max_timestamp=max(header.max_timestamp for header in headers)
            if len(headers) > 1
            else headers[0].max_timestamp,
            last_offset=last_offset,
            now_ms=now_ms,
        ):
            self._roll_at(headers[0].base_offset, now_ms)
        return self._segments.active

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Start `epoch` at `start_offset`; a new leader calls this before its first append."""
        if self.leader_epochs.assign(epoch, start_offset):
            self._has_new_epochs = True

    def _write_epochs(self) -> None:
        self._metadata.write_epochs(self.leader_epochs.entries)
        self._has_new_epochs = False

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Write `partition.metadata` (KIP-516) before the first append with a topic id.  Raises LogDirFailure."""
        with self.disk():
            self._metadata.write_topic_id(topic_id)
        self.topic_id = topic_id

    def write_first_metadata(self, topic_id: UUID | None, leader_epoch: int | None) -> None:
        """Write what is known of a new log, before it is shared: in any thread.  Raises OSError.

        Files of another topic of this name stay as they are.
        """
        if topic_id is not None and self.topic_id is None:
            self._metadata.write_topic_id(topic_id)
            self.topic_id = topic_id
        if leader_epoch is not None and topic_id in {None, self.topic_id}:
            self.assign_epoch(leader_epoch, self.log_end_offset)

    # Reading

    def read(self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool = True) -> RecordsSlice:
        """Return the batches from the one that contains `offset`, of one segment, that end before `max_offset`.

        For offsets from `max_offset` to the log end the result is empty.  Raises ApiError(OFFSET_OUT_OF_RANGE) outside
        of [log_start_offset, log_end_offset], and LogDirFailure.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is outside of {self.log_start_offset}.."
                f"{self.log_end_offset}",
            )
        self.log_directory.check()
        try:  # The context manager disk() would cost more than the rest of a read at the log end.
            return lookup.read_slice(
                self._segments,
                offset,
                max_bytes,
                max_offset=max_offset,
                log_end_offset=self.log_end_offset,
                min_one_batch=min_one_batch,
            )
        except OSError as error:
            raise self.log_directory.fail(error) from error
        except CorruptLog as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    def is_on_older_segment(self, records: RecordsSlice, end_offset: int) -> bool:
        """Return whether `records`, which were read from this log, are in a segment before the one that contains
        `end_offset`.

        A read ends with its segment, so a later read of the same offset returns nothing more.
        """
        return records.is_before_segment_of(end_offset, self._segments)

    def offset_for_timestamp(self, timestamp_ms: int, *, max_offset: int) -> TimestampOffset | None:
        """Return the first record at or after `timestamp_ms` and before `max_offset`; may block for long.

        Raises LogDirFailure, ApiError(CORRUPT_MESSAGE).
        """
        search = self.timestamp_search(timestamp_ms, max_offset=max_offset)
        while (scan := self.next_scan(search)) is not None:
            with self.disk():
                scan.run(scan_allowance())
        return search.found

    def timestamp_search(self, timestamp_ms: int, *, max_offset: int) -> TimestampSearch:
        """Return the same search, divided into scans of bounded cost; see `next_scan`."""
        return TimestampSearch(
            self._segments.all(), timestamp_ms, log_start_offset=self.log_start_offset, max_offset=max_offset
        )

    def next_scan(self, search: TimestampSearch) -> TimestampScan | None:
        """Return the next scan of the search, None at its end.  Raises LogDirFailure, ApiError(CORRUPT_MESSAGE)."""
        with self.disk():
            return search.next_scan()

    def end_offset_for_epoch(self, requested_epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest known epoch <= `requested_epoch`; see
        LeaderEpochs.end_offset_for.
        """
        return self.leader_epochs.end_offset_for(requested_epoch, log_end_offset=self.log_end_offset)

    def aborted_transactions(self, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [fetch_offset, upper_bound).  Raises LogDirFailure."""
        with self.disk():
            return lookup.aborted_transactions(self._segments, fetch_offset, upper_bound)

    # Rolling and flushing

    def roll(self, now_ms: int) -> None:
        """Close the active segment and start a new one at the log end, unless it is empty.  Raises LogDirFailure."""
        with self.disk():
            self._roll_at(self.log_end_offset, now_ms)

    def _roll_at(self, base_offset: int, now_ms: int) -> None:
        active = self._segments.active
        if active.size == 0 and active.base_offset == base_offset:
            return
        active.become_inactive()
        self._flush.segment_closed(active.base_offset, log_end_offset=self.log_end_offset)
        self.producer_state.skip_to(self.log_end_offset)
        self.snapshots.capture(self.producer_state)
        self._local.roll(base_offset, self.config, now_ms)

    def plan_due_flush(self, now_ms: int) -> FlushPlan | None:
        """Return the flush that is due: closed segments, or all records after `flush.ms`; else None.  Raises
        LogDirFailure.
        """
        active = self._segments.active.base_offset
        if not self._flush.is_due(now_ms, self.config, active_base_offset=active, log_end_offset=self.log_end_offset):
            return None
        return self.plan_flush(closed_segments_only=not self._flush.is_time_over(now_ms, self.config))

    def plan_flush(self, *, closed_segments_only: bool = False) -> FlushPlan:
        """Return a plan to sync all records, or only those of the next closed segments.  Raises LogDirFailure."""
        end = self._local.end_of_closed(self.recovery_point) if closed_segments_only else self.log_end_offset
        with self.disk():
            files = self._local.files_to_sync(self.recovery_point, end if closed_segments_only else None)
            if not closed_segments_only:
                self._flush.is_truncation_unsynced = False
            return self._plan_sync(files, end)

    def _plan_sync(self, files: Sequence[File], offset: int) -> FlushPlan:
        """Return a plan for these files, for the captured snapshots and for the unsynced files beside the segments."""
        if self._has_new_epochs:
            self._write_epochs()
        beside = [self._files.open(path) for path in self.snapshots.take_unsynced() + self._metadata.take_unsynced()]
        return FlushPlan(
            self._files,
            self.directory,
            [*files, *beside],
            offset=offset,
            truncations=self._flush.truncations,
            drafts=self.snapshots.take_drafts(offset),
        )

    def flushed(self, plan: FlushPlan, now_ms: int | None = None) -> None:
        """Advance the recovery point after `plan` has run.  Raises LogDirFailure."""
        if plan.drafts:
            with self.disk():
                for draft in plan.drafts:
                    self.snapshots.finish(draft)
        self._flush.flushed(plan, self.config, log_end_offset=self.log_end_offset, now_ms=now_ms)

    def flush(self) -> None:
        """Sync all records now.  Raises LogDirFailure."""
        plan = self.plan_flush()
        with self.disk():
            plan.run()
        self.flushed(plan)

    # Cutting

    def increment_log_start_offset(self, offset: int) -> bool:
        """Advance the log start offset; return True if it changed.  Raises ApiError(OFFSET_OUT_OF_RANGE)."""
        if offset > self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the log end offset {self.log_end_offset}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.watchers.moved()
        self.producer_state.on_log_start_offset(offset)
        # The file keeps the old epochs until it is written for another reason: they are removed whenever it is read.
        # Replacing a file may wait for a disk (Kafka writes it in another thread since KAFKA-15046).
        self.leader_epochs.truncate_from_start(offset)
        return True

    def plan_truncation(self, offset: int) -> ProducerReload | None:
        """Return what a thread is to read before `truncate_to(offset)`; None if nothing."""
        first = self._segments.first.base_offset
        if not first <= offset < min(self.log_end_offset, self.producer_state.end_offset):
            return None
        snapshots = self.snapshots.files(at_most=offset, at_least=self.log_start_offset)
        start = max(snapshots[0][0] if snapshots else self.log_start_offset, first)
        segments = [
            ReplayedFile(segment.base_offset, segment.file, segment.size)
            for segment in self._segments.from_index(self._segments.floor_index(start))
            if segment.base_offset < offset
        ]
        return ProducerReload(
            offset,
            log_start_offset=self.log_start_offset,
            truncations=self.truncations,
            snapshots=snapshots,
            segments=segments,
            files=self._files,
        )

    def truncate_to(self, offset: int, reload: ProducerReload | None = None) -> bool:
        """Make `offset` the log end offset; return True if anything changed.  Raises LogDirFailure.

        With what `plan_truncation` returned, after its `run`, the producers need not be read here.

        An epoch without records may be removed even if `offset` is the log end: its leader wrote nothing and its
        followers may not have it.  A follower that kept it would request the end of that epoch again and again.
        """
        with self.disk():
            if offset >= self.log_end_offset:
                if self.leader_epochs.truncate_from_end(offset):
                    self.watchers.moved()
                    self._write_epochs()
                return False
            if offset < self._segments.first.base_offset:
                self._start_over(offset)
                return True
            if reload is not None and (reload.offset, reload.truncations) != (offset, self.truncations):
                reload = None
            self._note_truncation(offset)
            self._local.truncate_to(offset)
            self._flush.is_truncation_unsynced = True
            self.log_end_offset = offset
            self.log_start_offset = min(self.log_start_offset, offset)
            self.watchers.moved()
            if self.leader_epochs.truncate_from_end(offset):
                self._write_epochs()
            self._reload_producers(reload)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Delete all records; the next one gets `offset`.  Raises LogDirFailure."""
        with self.disk():
            self._start_over(offset)

    def _start_over(self, offset: int) -> None:
        self._note_truncation(offset)
        self._local.clear()
        self.snapshots.remove_all()
        self._local.begin_at(offset, self.config)
        self.log_start_offset = self.log_end_offset = self._flush.recovery_point = offset
        self.watchers.moved()
        if self.leader_epochs.clear():
            self._write_epochs()
        if self.producer_state.producers:
            self._local.free_later(self.producer_state.capture())
        self.producer_state.clear(offset)

    def _note_truncation(self, offset: int) -> None:
        self._flush.truncated(offset)
        self._truncated_to = offset if self._truncated_to is None else min(self._truncated_to, offset)

    def take_truncation(self) -> int | None:
        """Return the lowest truncation offset since the last call, None if there was no truncation."""
        offset, self._truncated_to = self._truncated_to, None
        return offset

    def _reload_producers(self, reload: ProducerReload | None) -> None:
        end = self.log_end_offset
        self.snapshots.remove_after(end)
        if reload is not None and reload.state is not None:
            self.producer_state, reload.state = reload.state, self.producer_state
            self.producer_state.on_log_start_offset(self.log_start_offset)
        elif self.producer_state.end_offset > end:
            self.snapshots.load_latest(self.producer_state, at_most=end, at_least=self.log_start_offset)
            replay_producers(self.producer_state, self._segments, end)

    def delete_old_segments(self, now_ms: int, high_watermark: int, *, starts_only: bool = False) -> int:
        """Delete the segments that retention allows to delete; their files are removed after `file.delete.delay.ms`.

        With `starts_only` only those before the log start offset.  Return the number of segments.  Raises
        LogDirFailure.
        """
        with self.disk():
            count = deletable_segments(
                self._segments.all(),
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=high_watermark,
                now_ms=now_ms,
                starts_only=starts_only,
            )
            if not count:
                return 0
            if count == len(self._segments):
                self._roll_at(self.log_end_offset, now_ms)
            taken = self._segments.take_first(count)
            # Advance the start offset before deleting files, so that readers do not look for deleted segments.
            start = max(self.log_start_offset, self._segments.first.base_offset)
            self._flush.recovery_point = max(self._flush.recovery_point, self._segments.first.base_offset)
            self.increment_log_start_offset(start)
            due_ms = now_ms + self.config.file_delete_delay_ms
            for segment in taken:
                self._local.retire(segment, due_ms=due_ms)
                self._local.retire_files(self.snapshots.mark_deleted(segment.base_offset), due_ms=due_ms)
            return count

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Segment], *, now_ms: int) -> None:
        """Replace closed segments by the cleaner's drafts made from them.  Raises LogDirFailure."""
        with self.disk():
            self._local.replace(old, new, due_ms=now_ms + self.config.file_delete_delay_ms)
            self.snapshots.keep_only(segment.base_offset for segment in self._segments)

    # Closing

    def plan_close(self) -> FlushPlan | None:
        """Capture the producers, trim the indexes and return a plan for the remaining writes and sync.  Raises
        LogDirFailure.

        The plan is None if nothing changed since the last flush, which is the case for most logs of a large broker.
        Closed segments that are many are synced at once, so that few files are open.
        """
        while (end := self._local.end_of_closed(self.recovery_point)) < self._segments.active.base_offset:
            plan = self.plan_flush(closed_segments_only=True)
            with self.disk():
                plan.run()
            self.flushed(plan)
            if self.recovery_point < end:
                break  # The log was truncated below its recovery point.
        with self.disk():
            state = self.producer_state
            state.skip_to(self.log_end_offset)
            if state.end_offset > (self.snapshots.latest_offset or 0):
                self.snapshots.capture(state)
            active = self._segments.active
            has_closing_entry = active.become_inactive()
            if self.recovery_point < self.log_end_offset or has_closing_entry or self._flush.is_truncation_unsynced:
                return self.plan_flush()
            if self.snapshots.has_unsynced or self._metadata.has_unsynced:
                return self._plan_sync([], self.log_end_offset)
            return None

    def release(self) -> None:
        """Close the files without writing anything: the log's directory failed or is about to be deleted."""
        self._flush.unsettled_from = None
        self.snapshots.release()
        self._local.release()

    def moved_to(self, directory: str) -> None:
        """Use the new path of the directory for files opened from now on."""
        self._local.moved_to(directory)
        self.snapshots.moved_to(directory)
        self._metadata.moved_to(directory)

    @contextmanager
    def disk(self) -> Iterator[None]:
        """Turn OSError into LogDirFailure and CorruptLog into ApiError(CORRUPT_MESSAGE)."""
        self.log_directory.check()
        try:
            yield
        except OSError as error:
            raise self.log_directory.fail(error) from error
        except CorruptLog as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

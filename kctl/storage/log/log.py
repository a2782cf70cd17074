"""The log of one partition: appending, reading, truncating, deleting.

A log has a list of segments, the leader epochs and the producer state, and three offsets:

    log start offset   records below it are not readable, even if files still contain them
    recovery point     everything below it is on the disk; recovery starts at its segment
    log end offset     the offset of the next record

The high watermark belongs to replication and is an argument.  Order of an append: check everything, roll if due, write
the batches, index them, then update producers, epochs and the end offset.  A failure before the write changes nothing;
an OSError takes the log directory offline.

kctl.storage.recovery.recovery opens logs, kctl.storage.log.stored_log flushes and closes them.  Kafka's UnifiedLog.
Owner: event loop.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kctl.errors import ApiError, CorruptLog, ErrorCode
from kctl.records.allowance import Allowance
from kctl.records.compression import Buffer
from kctl.records.header import LEADER_EPOCH_POSITION, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader, TimestampType
from kctl.records.validate import ValidBatches, validate_internal, validate_produced, validate_replicated
from kctl.storage.config import room_in, should_roll
from kctl.storage.log import lookup
from kctl.storage.log.appending import NO_APPEND_TIME, AppendResult, check_producers, deletable_segments
from kctl.storage.log.lookup import RecordsSlice, TimestampOffset, TimestampScan, TimestampSearch, scan_allowance
from kctl.storage.log.stored_log import StoredLog
from kctl.storage.segments.draft import DraftedBatches, SegmentDraft
from kctl.storage.segments.segment import Segment
from kctl.storage.segments.transaction_index import AbortedTransaction
from kctl.storage.state.producer_snapshots import (
    ProducerReload,
    ReplayedFile,
    apply_producer_batch,
    replay_producers,
)

_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
"""A constant, because Python 3.11 takes 0.1 us to find a member of an enum."""
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_OFFSET_SIZE_EPOCH = struct.Struct(">qii")
"""The first fields of a batch."""


class Log(StoredLog):
    """The log of one partition."""

    __slots__ = ()

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

    def append_plain(
        self,
        batch: memoryview,
        size: int,
        count: int,
        max_timestamp: int,
        *,
        leader_epoch: int,
        now_ms: int,
        header: BatchHeader | None = None,
    ) -> int:
        """As `append_as_leader`, for a valid batch of `size` bytes; return the offset of its first record.

        `header` is that of a batch with a producer id.  Return -1, and change nothing, if the append would do anything
        else: open the segment, start one or an epoch, require a flush, or find a duplicate.  Raises LogDirFailure, and
        ApiError as ProducerState.check does.
        """
        flush, active, config, offset = self._flush, self._segments.active, self.config, self.log_end_offset
        end = offset + count
        if (
            not active.size
            or not active.is_open
            or leader_epoch > self.leader_epochs.latest_epoch
            or flush.unsettled_from is not None
            or end - flush.recovery_point >= config.flush_messages
        ):
            return -1
        room = active.room
        if room is None or room[0] is not config:
            room = active.room = room_in(active, config)
        _, size_max, last_offset_max, max_timestamp_max = room
        is_within = (
            active.size + size <= size_max
            and end <= last_offset_max
            and NO_TIMESTAMP < max_timestamp <= max_timestamp_max
        )
        if not is_within and should_roll(
            active, config, append_size=size, max_timestamp=max_timestamp, last_offset=end - 1, now_ms=now_ms
        ):
            return -1
        if header is not None:
            if self.producer_state.check(header) is not None:
                return -1
            header.base_offset, header.leader_epoch = offset, leader_epoch
        _OFFSET_SIZE_EPOCH.pack_into(batch, 0, offset, size - LOG_OVERHEAD, leader_epoch)
        try:
            active.append_one(batch, size, offset, end - 1, max_timestamp)
        except OSError as error:
            raise self.log_directory.fail(error) from error
        self.log_end_offset = end
        if header is None:
            self.producer_state.end_offset = end
        else:
            self.producer_state.append(header)
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

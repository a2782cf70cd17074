"""The state of the log of one partition, and how it reaches the disk: metadata, rolling, flushing, closing.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from kctl.errors import ApiError, CorruptLog, ErrorCode
from kctl.model import TopicPartition
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import File, Files
from kctl.storage.log.flushing import FlushPlan, FlushState
from kctl.storage.log.watchers import Watchers
from kctl.storage.segments.segment import Segment
from kctl.storage.segments.segments import LocalLog, SegmentList
from kctl.storage.state.checkpoints import MetadataFiles
from kctl.storage.state.leader_epochs import LeaderEpochs
from kctl.storage.state.producer_snapshots import ProducerSnapshots
from kctl.storage.state.producer_state import ProducerState
from kctl.system.environment import Random


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


class StoredLog:
    """The state of a log, without the operations on its records."""

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

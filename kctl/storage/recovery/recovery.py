"""Opens a log from its directory, whatever state it was left in.  Kafka's LogLoader.

    1. complete or undo interrupted work of a cleaner or a deletion (.deleted, .cleaned, .swap)
    2. list the segments; remove indexes without batches
    3. after an unclean shutdown, read every batch from the segment of the recovery point on: rebuild the indexes,
       epochs and producer state; truncate at the first invalid batch and delete all segments after it
    4. a log that ends before its checkpointed start offset is emptied and starts at that offset
    5. truncate epochs and producer state to the log
    6. find the aborted transactions of segments whose offset index is missing: who removes the indexes of a stopped
       broker, or copies files without them, gets all of them back, as in Kafka

After a clean shutdown, damage near the end of a log is left as it is, and appends go to a new segment.  Damage
elsewhere makes step 3 start from the first segment.  Logs are independent, so many can be opened in parallel in
threads.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from uuid import UUID

from kctl.errors import CorruptLog
from kctl.model import TopicPartition
from kctl.records.header import BatchHeader
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import Files
from kctl.storage.log.log import Log
from kctl.storage.log.stored_log import LogContents
from kctl.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    DRAFT_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kctl.storage.recovery.clean_logs import CleanLog, open_clean_log
from kctl.storage.segments.batch_reader import check_crc, read_past_damage
from kctl.storage.segments.segment import Segment
from kctl.storage.segments.segments import SegmentList
from kctl.storage.state.checkpoints import MetadataFiles
from kctl.storage.state.leader_epochs import LeaderEpochs
from kctl.storage.state.producer_snapshots import (
    ProducerSnapshots,
    apply_producer_batch,
    remember_earlier_batches,
    replay_batch,
    replay_producers,
)
from kctl.storage.state.producer_state import ProducerState
from kctl.system.environment import Random

# Completes or undoes work on segment files that a crash interrupted.
#
#     .deleted   scheduled for removal: remove it
#     .cleaned   unfinished output of the cleaner: remove it, and every .swap at or after it, because the output of a
#                group may be several segments of which not all were renamed to .swap
#     .swap      finished output: remove the segments that it replaces, then rename it to its final name
#
# A segment that was split or cleaned is therefore either old or new. Swapped files and their indexes were synced
# before, so nothing has to be read again.
#
# Indexes are renamed to their final names first and batches last, after all old files were renamed to `.deleted`:
# while an `.index.swap` exists, every file with a final name is old. Apache Kafka renames the batches first; it may
# leave indexes named `.swap` beside batches with their final name.


_logger = logging.getLogger(__name__)

_OFFSET_AFTER_ALL = 1 << 63
"""An offset after all offsets."""


def resolve_leftovers(files: Files, directory: str, config: LogConfig) -> None:
    """Leave only files with final names in the directory; can be interrupted at any point.  Raises OSError."""
    cleaned: dict[str, int] = {}
    swaps: dict[str, int] = {}
    for entry in files.list(directory):
        parsed = parse_offset_file_name(entry.name)
        if entry.name.endswith((DELETED_SUFFIX, DRAFT_SUFFIX)):
            files.remove(f"{directory}/{entry.name}")
        elif entry.name.endswith(CLEANED_SUFFIX):
            cleaned[entry.name] = parsed[0] if parsed is not None else _OFFSET_AFTER_ALL
        elif entry.name.endswith(SWAP_SUFFIX) and parsed is not None:
            swaps[entry.name] = parsed[0]
    first_draft = min(cleaned.values(), default=_OFFSET_AFTER_ALL)
    for name, offset in swaps.items():
        if offset >= first_draft:
            files.remove(f"{directory}/{name}")
    for name in cleaned:  # The files that depend on them were handled above.
        files.remove(f"{directory}/{name}")
    swapped = sorted(offset for name, offset in swaps.items() if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    swapped = [offset for offset in swapped if offset < first_draft]
    if swapped:
        _finish_swap(files, directory, config, swapped)
    _finish_indexes(files, directory)


def _finish_swap(files: Files, directory: str, config: LogConfig, swapped: list[int]) -> None:
    segments = [
        Segment(
            files,
            directory,
            offset,
            config,
            size=files.size(f"{directory}/{offset_file_name(offset, LOG_SUFFIX)}{SWAP_SUFFIX}"),
            suffix=SWAP_SUFFIX,
        )
        for offset in swapped
    ]
    end = max(_end_of(segment) for segment in segments)
    start = segments[0].base_offset
    under_way = {segment.base_offset for segment in segments if not files.exists(segment.path(INDEX_SUFFIX))}
    for entry in files.list(directory):
        parsed = parse_offset_file_name(entry.name)
        if parsed is None or parsed[2] or parsed[1] not in SEGMENT_SUFFIXES or parsed[0] in under_way:
            continue
        if start <= parsed[0] < max(end, start + 1):
            files.remove(f"{directory}/{entry.name}")
    for segment in segments:
        segment.change_suffix("")
        segment.close()
    files.sync_directory(directory)
    _logger.info("completed interrupted segment swap segments=%d path=%s", len(segments), directory)


def _end_of(segment: Segment) -> int:
    """Return the offset after the last valid batch; recovery handles the bytes after it."""
    offset = segment.base_offset
    try:
        for header in segment.headers():
            offset = header.next_offset
    except CorruptLog as error:
        _logger.warning(
            "cleaned segment is corrupt, recovery handles the rest of it file=%s error=%s",
            segment.path(LOG_SUFFIX),
            error,
        )
    return offset


def _finish_indexes(files: Files, directory: str) -> None:
    """Rename `.swap` indexes of segments whose batches have their final name; remove other `.swap` files."""
    for entry in files.list(directory):
        parsed = parse_offset_file_name(entry.name)
        if not entry.name.endswith(SWAP_SUFFIX):
            continue
        path = f"{directory}/{entry.name}"
        if parsed is not None and files.exists(f"{directory}/{offset_file_name(parsed[0], LOG_SUFFIX)}"):
            files.rename(path, path.removesuffix(SWAP_SUFFIX))
        else:
            files.remove(path)


_KINDS = frozenset({*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX})
"""Kinds of files that belong to an offset and may be removed; other files are ignored."""


def open_log(
    topic_partition: TopicPartition,
    directory: str,
    config: LogConfig,
    *,
    files: Files,
    log_directory: LogDirectory,
    removals: DelayedRemovals,
    random: Random,
    now_ms: int,
    was_clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: CleanLog | None = None,
) -> Log:
    """Open the log in `directory`, created if missing.

    The arguments from `was_clean` on are from the files of the log directory; `clean` is the state of the log after a
    clean shutdown, from which it is opened if it is unchanged.  Raises OSError.
    """
    try:
        contents = None
        if clean is not None:
            contents = open_clean_log(
                clean,
                directory,
                config,
                files=files,
                removals=removals,
                now_ms=now_ms,
                log_start_offset=log_start_offset,
            )
        if contents is None:
            loader = _Loader(files, directory, config, now_ms, log_start_offset)
            contents = loader.load(was_clean=was_clean, recovery_point=recovery_point)
    except CorruptLog as error:
        _logger.warning(
            "log is corrupt below its recovery point, recovering all segments path=%s error=%s", directory, error
        )
        loader = _Loader(files, directory, config, now_ms, log_start_offset)
        contents = loader.load(was_clean=False, recovery_point=0)
    # The active segment was opened without it; the logs of a broker are opened at the same time.
    contents.segments.active.roll_jitter_ms = config.random_jitter_ms(random)
    return Log(
        topic_partition,
        directory,
        config,
        contents,
        files=files,
        log_directory=log_directory,
        removals=removals,
        random=random,
        now_ms=now_ms,
    )


class _Loader:
    """The steps of opening one log and their results so far."""

    def __init__(
        self, files: Files, directory: str, config: LogConfig, now_ms: int, checkpointed_start_offset: int
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.log_start_offset = checkpointed_start_offset
        self.epochs = LeaderEpochs()
        self.epochs_on_disk = self.epochs.entries
        self.epochs_are_lost = False
        self.producers = ProducerState(checkpointed_start_offset)
        self.snapshots = ProducerSnapshots(files, directory)
        self.unindexed: set[int] = set()
        """Base offsets of segments without an offset index."""
        self.metadata = MetadataFiles(files, directory)

    def load(self, *, was_clean: bool, recovery_point: int) -> LogContents:
        """Run the steps and return the state of the log."""
        if not self.files.exists(self.directory):
            self.files.make_directory(self.directory)
        resolve_leftovers(self.files, self.directory, self.config)
        segments, topic_id = self._list()
        log_end_offset = self.log_start_offset
        if segments:
            self.log_start_offset = max(self.log_start_offset, segments[0].base_offset)
            if was_clean:
                log_end_offset = self._clean_end(segments, recovery_point)
            else:
                log_end_offset = self._recover(segments, _segment_of(segments, recovery_point))
            if self.epochs_are_lost:
                self._epochs_of_batches(segments)
            if log_end_offset < self.log_start_offset:
                _logger.warning(
                    "log ends before its start offset, starting it anew path=%s log_end_offset=%d log_start_offset=%d",
                    self.directory,
                    log_end_offset,
                    self.log_start_offset,
                )
                self._drop(segments)
                segments, log_end_offset = [], self.log_start_offset
        if not segments:
            segments = [self._new_segment(self.log_start_offset)]
            self.producers.clear(log_end_offset)
        else:
            segments[-1].become_active()
        contents = SegmentList(segments)
        self._truncate_epochs(log_end_offset)
        self._restore_producers(contents, log_end_offset)
        self._restore_transaction_indexes(contents)
        return LogContents(
            segments=contents,
            log_start_offset=self.log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=log_end_offset if was_clean else min(recovery_point, log_end_offset),
            leader_epochs=self.epochs,
            producer_state=self.producers,
            snapshots=self.snapshots,
            metadata=self.metadata,
            topic_id=topic_id,
        )

    def _clean_end(self, segments: list[Segment], recovery_point: int) -> int:
        """Return the end offset of a log that was shut down cleanly.

        It is read from the batches.  If the last ones are corrupt, the recovery point is used instead: nothing is
        truncated, because most of the batches may be valid, and a new segment is started there.
        """
        last = segments[-1]
        try:
            return last.next_offset()
        except CorruptLog as error:
            if recovery_point <= last.base_offset:
                raise
            _logger.error(
                "log is corrupt near its end, keeping it and appending to a new segment path=%s offset=%d error=%s",
                self.directory,
                recovery_point,
                error,
            )
        last.become_active()
        last.become_inactive()
        segments.append(self._new_segment(recovery_point))
        return recovery_point

    def _list(self) -> tuple[list[Segment], UUID | None]:
        """Return the segments in order and the topic id; sets epochs and snapshots."""
        sizes: dict[int, int] = {}
        others: list[tuple[int, str, str]] = []
        snapshot_offsets: list[int] = []
        topic_id: UUID | None = None
        for entry in self.files.list(self.directory):
            parsed = parse_offset_file_name(entry.name)
            path = f"{self.directory}/{entry.name}"
            if entry.is_directory and parsed is not None:
                raise IsADirectoryError(errno.EISDIR, "a directory where a file should be", path)
            if entry.name == PARTITION_METADATA:
                topic_id = self._topic_id()
            elif entry.name == LEADER_EPOCH_CHECKPOINT:
                self._read_epochs()
            elif parsed is None or parsed[2] or parsed[1] not in _KINDS:
                _logger.warning("ignoring unknown file path=%s", path)
            elif parsed[1] == LOG_SUFFIX:
                sizes[parsed[0]] = entry.size
            elif parsed[1] == SNAPSHOT_SUFFIX:
                snapshot_offsets.append(parsed[0])
            else:
                others.append((parsed[0], parsed[1], path))
        for offset, _, path in others:
            if offset not in sizes:
                _logger.warning("removing orphaned index path=%s", path)
                self.files.remove(path)
        self.snapshots = ProducerSnapshots(self.files, self.directory, snapshot_offsets)
        aborted = {offset for offset, kind, _ in others if kind == TRANSACTION_INDEX_SUFFIX}
        self.unindexed = sizes.keys() - {offset for offset, kind, _ in others if kind == INDEX_SUFFIX}
        segments = [
            Segment(
                self.files,
                self.directory,
                offset,
                self.config,
                size=sizes[offset],
                created_ms=self.now_ms,
                has_transaction_index=offset in aborted,
            )
            for offset in sorted(sizes)
        ]
        return segments, topic_id

    def _topic_id(self) -> UUID | None:
        """Return the topic id, None if the file is corrupt, as after a power failure: it is synced with the log, not at
        once.

        Kafka syncs it at once and takes the log directory offline if it is corrupt.
        """
        try:
            return self.metadata.read_topic_id()
        except CorruptLog as error:
            _logger.warning(
                "ignoring corrupt partition.metadata, rewriting it with the id from the controller path=%s error=%s",
                self.directory,
                error,
            )
            return None

    def _read_epochs(self) -> None:
        try:
            self.epochs = LeaderEpochs(self.metadata.read_epochs())
            self.epochs_on_disk = self.epochs.entries
        except CorruptLog as error:
            _logger.warning(
                "cannot read leader epochs, rebuilding them from the batches path=%s error=%s", self.directory, error
            )
            self.epochs = LeaderEpochs()
            self.epochs_are_lost = True

    def _epochs_of_batches(self, segments: list[Segment]) -> None:
        for segment in segments:
            for header in segment.headers():
                if header.leader_epoch > self.epochs.latest_epoch:
                    self.epochs.assign(header.leader_epoch, header.base_offset)

    def _recover(self, segments: list[Segment], first: int) -> int:
        start = segments[first].base_offset
        self.snapshots.remove_after(start)
        self.snapshots.load_latest(self.producers, at_most=start, at_least=self.log_start_offset)
        remember_earlier_batches(self.producers, segments)
        if self.producers.end_offset < start:
            replay_producers(self.producers, SegmentList(segments[: first + 1]), start)
        end_offset = segments[first].base_offset
        for index in range(first, len(segments)):
            segment = segments[index]
            if segment.base_offset > self.producers.end_offset:
                self.producers.skip_to(segment.base_offset)
            if index > first:
                self.snapshots.write(self.producers)
            end_offset, damage = self._recover_segment(segment, end_offset)
            if damage is not None:
                dropped = segments[index + 1 :]
                _logger.warning(
                    "truncated corrupt log path=%s position=%d file=%s segments_deleted=%d error=%s",
                    self.directory,
                    segment.size,
                    segment.path(LOG_SUFFIX),
                    len(dropped),
                    damage.reason,
                )
                self._drop(dropped)
                del segments[index + 1 :]
                break
        return end_offset

    def _recover_segment(self, segment: Segment, expected_offset: int) -> tuple[int, CorruptLog | None]:
        """Read the segment and rebuild its indexes; return its end offset, and why it was truncated, if it was."""
        progress = _Progress(segment, max(expected_offset, segment.base_offset))
        segment.transaction_index.clear()
        damage: CorruptLog | None = None
        try:
            segment.rebuild_indexes(self._sound_batches(progress))
        except CorruptLog as error:
            damage = error
            segment.cut_at(progress.position)
        return progress.next_offset, damage

    def _sound_batches(self, progress: _Progress) -> Iterator[BatchHeader]:
        """Yield the batches of the segment up to the first invalid one; applies each to epochs and producers."""
        segment = progress.segment
        for header, batch in segment.batches():
            path = segment.path(LOG_SUFFIX)
            if header.base_offset < progress.next_offset or header.last_offset_delta < 0 or header.record_count < 0:
                raise CorruptLog(
                    path,
                    header.position,
                    f"batch has base offset {header.base_offset}, expected at least {progress.next_offset}",
                )
            check_crc(segment.file, header, batch)
            yield header
            progress.position, progress.next_offset = header.end, header.next_offset
            if header.leader_epoch > self.epochs.latest_epoch:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.last_offset < self.producers.end_offset:
                continue
            if header.producer_id < 0:
                self.producers.end_offset = header.next_offset
            else:
                header.position = 0
                apply_producer_batch(self.producers, segment, header, batch)

    def _drop(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            segment.remove()

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(self.files, self.directory, base_offset, self.config, now_ms=self.now_ms)

    def _truncate_epochs(self, log_end_offset: int) -> None:
        self.epochs.truncate_from_end(log_end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        if self.epochs.entries != self.epochs_on_disk:
            self.metadata.write_epochs(self.epochs.entries)

    def _restore_producers(self, segments: SegmentList, log_end_offset: int) -> None:
        self.snapshots.remove_after(log_end_offset)
        if self.producers.end_offset < log_end_offset:
            self.snapshots.load_latest(self.producers, at_most=log_end_offset, at_least=self.log_start_offset)
            remember_earlier_batches(self.producers, segments.all())
            replay_producers(self.producers, segments, log_end_offset)
        if log_end_offset > (self.snapshots.latest_offset or 0):
            self.snapshots.write(self.producers)
        self.snapshots.keep_only(segment.base_offset for segment in segments)

    def _restore_transaction_indexes(self, segments: SegmentList) -> None:
        unindexed = [segment for segment in segments if segment.size and segment.base_offset in self.unindexed]
        if not unindexed:
            return
        state = ProducerState(self.log_start_offset)
        for segment in segments:
            if segment.base_offset > unindexed[-1].base_offset:
                return
            if segment in unindexed:
                segment.transaction_index.clear()
            for header in read_past_damage(segment.file, segment.base_offset, segment.size):
                is_marker = header.is_control and header.producer_id >= 0 and header.last_offset >= state.end_offset
                if is_marker and segment in unindexed:
                    marker = segment.file.read_at(header.position, header.size)
                    header.position = 0
                    apply_producer_batch(state, segment, header, marker)
                else:
                    replay_batch(state, header, segment.file)


def _segment_of(segments: list[Segment], recovery_point: int) -> int:
    """Return the index of the segment that contains the recovery point."""
    return max((index for index, segment in enumerate(segments) if segment.base_offset <= recovery_point), default=0)


class _Progress:
    """The state of the recovery of one segment."""

    __slots__ = ("next_offset", "position", "segment")

    def __init__(self, segment: Segment, next_offset: int) -> None:
        self.segment = segment
        self.next_offset = next_offset
        self.position = 0

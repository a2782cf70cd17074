"""Runs a task: writes one planned file, from the first fetch to its publication.

The file is written to a scratch file and published under the planned name (see files), so a task may run
twice, also concurrently, and may be killed at any point.  A planned file that exists was finished by an earlier attempt
of the same plan and is reused.

A file contains one range of one partition, or small ranges of several partitions of a topic, one after the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.errors import ApiError, ClusterUnreachable, KctlError
from kctl.model import TopicPartition
from kctl.records.header import BatchHeader, Record
from kctl.tables.exec.decoding.batch_decoder import BatchDecoder
from kctl.tables.exec.decoding.changed_rows import with_key_ids, with_plain_changes
from kctl.tables.exec.decoding.decode import decode
from kctl.tables.exec.decoding.rows import RowFilter, projected, selected
from kctl.tables.exec.file_task import FileList, FileTask, claim, dead_letters_path, read_list
from kctl.tables.exec.outcome import (
    UNREADABLE_RANGES_MAX,
    BadRecords,
    CorruptRecords,
    DataLoss,
    Failure,
    FileOutcome,
    Misfit,
    MisfitCount,
    PartOutcome,
    RangeFailure,
    Unreadable,
    WrittenFile,
)
from kctl.tables.exec.progress import Report, TaskProgress
from kctl.tables.exec.reading.chunk import Chunk, Memories, chunks
from kctl.tables.exec.reading.fetch import Fetched, OffsetRange, RangeReader, TopicLeaders
from kctl.tables.exec.schema.arrow_types import TIMESTAMP
from kctl.tables.exec.schema.column_types import Columns, columns_to_json
from kctl.tables.exec.selection.columns import (
    CALENDAR_US,
    changes_schema,
    formed,
    schema,
    with_incarnation,
    with_reason,
    within_calendar,
)
from kctl.tables.exec.selection.partitioning import Partitioning, Values
from kctl.tables.exec.selection.upserts import CHANGE
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.outputs import DeadLetters, Outputs, by_partition
from kctl.tables.exec.targets.target import open_files
from kctl.tables.exec.targets.writer import footer

RANGE_KEY = "kctl.range"
LOST_KEY = "kctl.lost"
COLUMNS_KEY = "kctl.columns"
"""How keys and values were decoded; absent if they were not."""
PARTS_KEY = "kctl.parts"
"""[records, lost, bad, filtered, bytes_in, unreadable] of each range; earlier files lack the last ones or the entry."""
MISFITS_KEY = "kctl.misfits"
"""[topic, column, type, values, partition, offset] of values in columns of the rest; absent if there are none."""
UNREADABLE_KEY = "kctl.unreadable"
"""[topic, partition, start, end, size, reason] of offsets that were left out; absent if there are none."""


class Reader(Protocol):
    """Source of the batches of a range; a context manager."""

    lost: int
    position: int
    on_unreadable: Callable[[Unreadable], None] | None

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def responses(self) -> Iterator[Fetched]:
        """See RangeReader."""
        ...


OpenReader = Callable[[OffsetRange], Reader]


@contextmanager
def leader_readers(task: FileTask) -> Iterator[OpenReader]:
    """Readers of a task's ranges from the partition leaders, with shared connections, used in sequence."""
    client = ClusterClient(task.settings, BlockingTransport())
    try:
        leaders = TopicLeaders(client)
        yield lambda range_: RangeReader(client, range_, may_skip=task.may_skip, leaders=leaders)
    finally:
        run_blocking(client.close())


def export_file(
    task: FileTask,
    *,
    files: Files | None = None,
    open_readers: Callable[[FileTask], AbstractContextManager[OpenReader]] = leader_readers,
    report: Report = lambda progress: None,
) -> FileOutcome:
    """Write the file unless it exists.  Expected failures are outcomes; only bugs raise."""
    try:
        files = files or open_files(task.target)
        return _find_finished(task, files) or _write(task, files, open_readers, report)
    except DataLoss as error:
        return FileOutcome(failure=Failure.DATA_LOSS, message=str(error))
    except BadRecords as error:
        return FileOutcome(failure=Failure.BAD_RECORDS, message=str(error))
    except ClusterUnreachable as error:
        return FileOutcome(failure=Failure.UNREACHABLE, message=str(error))
    except OSError as error:
        # Arrow's errors of full disks and the like do not name the file.
        is_about_file = error.filename is not None or not error.errno
        message = str(error) if is_about_file else f"{task.target}/{task.path}: {os.strerror(error.errno or 0)}"
        return FileOutcome(failure=Failure.FAILED, message=message)
    except KctlError as error:
        return FileOutcome(failure=Failure.FAILED, message=str(error))


def _find_finished(task: FileTask, files: Files) -> FileOutcome | None:
    if task.has_list:
        return _find_listed(task, files)
    size = files.size(task.path)
    if size is None:
        return None
    path = f"{files.location}/{task.path}"
    try:
        with files.open(task.path) as file:
            records, metadata, _ = footer(file)
    except pa.ArrowException as error:
        raise KctlError(f"{path} is in the way: it is no Parquet file ({error})") from error
    if metadata.get(RANGE_KEY) != task.identity:
        raise KctlError(f"{path} is in the way: it holds {metadata.get(RANGE_KEY)}, not {task.identity}")
    part_counts = json.loads(metadata.get(PARTS_KEY) or f"[[{records}, {metadata.get(LOST_KEY, '0')}]]")
    parts = tuple(
        PartOutcome(
            records=counts[0],
            lost=counts[1],
            bad=sum(counts[2:3]),
            filtered=sum(counts[3:4]),
            bytes_in=sum(counts[4:5]),
            unreadable=sum(counts[5:6]),
        )
        for counts in part_counts
    )
    bad = sum(part.bad for part in parts)
    letters_path = dead_letters_path(task.path)
    return FileOutcome(
        path=task.path,
        written=(WrittenFile(task.path, size, records),),
        parts=parts,
        bytes_out=size,
        dead_letters=WrittenFile(letters_path, files.size(letters_path) or 0, bad) if bad else None,
        is_reused=True,
        unreadable=tuple(
            Unreadable(TopicPartition(*stored[:2]), *stored[2:])
            for stored in json.loads(metadata.get(UNREADABLE_KEY, "[]"))
        ),
        misfits=tuple(Misfit(*stored) for stored in json.loads(metadata.get(MISFITS_KEY, "[]"))),
    )


def _find_listed(task: FileTask, files: Files) -> FileOutcome | None:
    listed = read_list(files, task.path, task.identity)
    if listed is None:
        return None
    sizes = {path: files.size(path) for path in listed.files}
    if None in sizes.values():
        return None
    written = tuple(
        WrittenFile(path, sizes[path] or 0, records, values) for path, (values, records) in listed.files.items()
    )
    return FileOutcome(
        path=task.path if written else "",
        written=written,
        parts=listed.parts,
        bytes_out=sum(file.size for file in written),
        dead_letters=listed.dead_letters,
        is_reused=True,
        unreadable=listed.unreadable,
        misfits=listed.misfits,
    )


def _write(
    task: FileTask, files: Files, open_readers: Callable[[FileTask], AbstractContextManager[OpenReader]], report: Report
) -> FileOutcome:
    metadata = {RANGE_KEY: task.identity}
    if task.columns.are_typed:
        metadata[COLUMNS_KEY] = json.dumps(columns_to_json(task.columns))
    columns = schema(
        include_headers=task.include_headers,
        has_incarnation=task.incarnation > 0,
        columns=task.columns,
        headers=task.headers,
    )
    columns = changes_schema(columns) if task.upsert else selected(columns, task.rows.select)
    outputs = Outputs(files, task, schema=columns, metadata=metadata)
    letters = DeadLetters(
        files, dead_letters_path(task.path), compression=task.compression, metadata={RANGE_KEY: task.identity}
    )
    copy = _Copy(task, outputs, letters, report)
    try:
        with open_readers(task) as open_reader:
            failed = [failure for range_ in task.ranges if (failure := _failure(copy, range_, open_reader))]
        if failed:
            outputs.abandon()
            letters.abandon()
            return FileOutcome(failure=failed[0].failure, message=failed[0].message, failed=tuple(failed))
        unreadable = tuple(copy.unreadable.ranges)
        own = FileList(outputs.listed(), tuple(copy.parts), letters.publish(), unreadable, copy.misfits.misfits)
        claimed = claim(files, task.path, task.identity, own) if task.has_list else own
        written, are_first = outputs.finish(
            {
                LOST_KEY: str(sum(part.lost for part in claimed.parts)),
                PARTS_KEY: json.dumps(
                    [
                        [part.records, part.lost, part.bad, part.filtered, part.bytes_in, part.unreadable]
                        for part in claimed.parts
                    ]
                ),
                **(
                    {UNREADABLE_KEY: json.dumps([[*range_.tp, *range_[1:]] for range_ in unreadable])}
                    if unreadable
                    else {}
                ),
                **({MISFITS_KEY: json.dumps(claimed.misfits)} if claimed.misfits else {}),
            },
            claimed.files,
        )
    except BaseException:
        outputs.abandon()
        letters.abandon()
        raise
    if not are_first and (finished := _find_finished(task, files)):
        return finished
    return FileOutcome(
        path=task.path if written else "",
        written=written,
        parts=claimed.parts,
        bytes_out=sum(file.size for file in written),
        dead_letters=claimed.dead_letters,
        reasons=dict(letters.reasons),
        message="; ".join(copy.losses),
        unreadable=claimed.unreadable,
        misfits=claimed.misfits,
    )


def _failure(copy: _Copy, range_: OffsetRange, open_reader: OpenReader) -> RangeFailure | None:
    """Copy a range, or say why it cannot be exported: then the other ranges of the file can be, without it."""
    try:
        copy.range(range_, open_reader)
    except (DataLoss, BadRecords, CorruptRecords, ApiError) as error:
        return RangeFailure(range_.tp, _FAILURES.get(type(error), Failure.FAILED), str(error))
    return None


_FAILURES = {
    DataLoss: Failure.DATA_LOSS,
    BadRecords: Failure.BAD_RECORDS,
    CorruptRecords: Failure.CORRUPT,
}


class LeftOut:
    """The corrupt batches that a task leaves out."""

    def __init__(self) -> None:
        self.ranges: list[Unreadable] = []
        """Neighbours are one range; at most UNREADABLE_RANGES_MAX."""
        self.offsets = 0

    def add(self, range_: Unreadable) -> None:
        """Add offsets, in ascending order within a partition."""
        self.offsets += range_.end - range_.start
        last = self.ranges[-1] if self.ranges else None
        if last is not None and (last.tp, last.end, last.reason) == (range_.tp, range_.start, range_.reason):
            size = None if last.size is None or range_.size is None else last.size + range_.size
            self.ranges[-1] = last._replace(end=range_.end, size=size)
        elif len(self.ranges) < UNREADABLE_RANGES_MAX:
            self.ranges.append(range_)


class _Copy:
    """Copies ranges into the file of a task."""

    def __init__(self, task: FileTask, outputs: Outputs, letters: DeadLetters, report: Report) -> None:
        self.parts: list[PartOutcome] = []
        """Results of the copied ranges."""
        self.losses: list[str] = []
        """Reasons of missing offsets, if the task may skip them."""
        self.unreadable = LeftOut()
        self.misfits = MisfitCount()
        self._task = task
        self._outputs = outputs
        self._letters = letters
        self._decoder = BatchDecoder(task.columns) if task.columns.are_typed else None
        self._filter = RowFilter(task.rows.where, task.columns) if task.rows.where else None
        self._filtered = 0
        self._report = report
        self._done = TaskProgress()
        self._memories = Memories()

    def range(self, range_: OffsetRange, open_reader: OpenReader) -> None:
        """Copy one range.  Raises DataLoss unless the task may skip; then the rest of the range counts as lost."""
        before = self._done
        bad_before, filtered_before, unreadable_before = self._letters.records, self._filtered, self.unreadable.offsets
        with open_reader(range_) as reader:
            reader.on_unreadable = self.unreadable.add if self._task.skips_corrupt else None
            lost_at_end = 0
            try:
                for fetched in reader.responses():
                    self._add(range_, fetched)
                    self._done = self._done._replace(offsets=before.offsets + reader.position - range_.start)
                    self._report(self._done)
            except DataLoss as error:
                if not self._task.may_skip:
                    raise
                self.losses.append(str(error))
                lost_at_end = range_.end - reader.position
        done = self._done
        self.parts.append(
            PartOutcome(
                done.records - before.records,
                done.bytes_in - before.bytes_in,
                reader.lost + lost_at_end,
                self._letters.records - bad_before,
                self._filtered - filtered_before,
                self.unreadable.offsets - unreadable_before,
            )
        )
        self._done = done._replace(offsets=before.offsets + range_.end - range_.start)
        self._report(self._done)

    def _add(self, range_: OffsetRange, fetched: Fetched) -> None:
        records = self._outputs.records
        try:
            for batch in self._record_batches(range_, fetched):
                if self._task.is_for_table:
                    batch = within_calendar(batch)  # noqa: PLW2901 - one step after the other
                batch = with_incarnation(batch, self._task.incarnation)  # noqa: PLW2901 - same
                decoded = self._keyed(range_, batch) if self._task.upsert else self._decoded(range_, batch)
                if self._filter:
                    decoded, removed = self._filter.filtered(decoded)
                    self._filtered += removed
                decoded = formed(decoded, self._task.headers)
                for unplaced in self._outputs.add(projected(decoded, self._outputs.schema)):
                    refused = batch.filter(pc.is_in(batch.column("offset"), unplaced.offsets))
                    self._refuse(range_, with_reason(refused, unplaced.reason))
        except CorruptRecords as error:
            raise CorruptRecords(f"{range_.tp}: {error}") from error
        self._done = TaskProgress(
            self._done.offsets,
            self._done.records + self._outputs.records - records,
            self._done.bytes_in + fetched.size,
        )

    def _record_batches(self, range_: OffsetRange, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """Yield the records of a response.  Raises CorruptRecords, unless the task leaves corrupt batches out."""
        if not self._task.skips_corrupt:
            for chunk in chunks(fetched.data, fetched.batches, memories=self._memories):
                yield self._records(range_, chunk)
            return

        def leave_out(batch: BatchHeader, reason: str) -> None:
            start, end = max(batch.base_offset, range_.start), min(batch.next_offset, range_.end)
            self.unreadable.add(Unreadable(range_.tp, start, end, batch.size, reason))

        for chunk in chunks(fetched.data, fetched.batches, memories=self._memories, on_corrupt=leave_out):
            try:
                yield self._records(range_, chunk)
            except CorruptRecords:
                # One of its batches has a valid checksum and invalid records.
                for batch in chunk.batches:
                    try:
                        for part in list(chunks(fetched.data, [batch])):
                            yield self._records(range_, part)
                    except CorruptRecords as error:
                        leave_out(batch, str(error))

    def _records(self, range_: OffsetRange, chunk: Chunk) -> pa.RecordBatch:
        return decode(
            chunk,
            topic=range_.tp.topic,
            partition=range_.tp.partition,
            start=range_.start,
            end=range_.end,
            include_headers=self._task.include_headers or self._task.letters_have_headers,
        )

    def _decoded(self, range_: OffsetRange, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the decoded records; the others go into the dead letters.

        Raises BadRecords unless the task keeps them.
        """
        if self._decoder is None:
            return batch
        fitting, bad, misplaced = self._decoder.decode(batch)
        if bad is not None:
            self._refuse(range_, bad)
        topic, partition = range_.tp
        for (column, wanted), (count, first) in misplaced.items():
            offset = batch.column("offset")[first].as_py()
            self.misfits.add(Misfit(topic, column, wanted, count, partition, offset))
        return fitting

    def _keyed(self, range_: OffsetRange, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the decoded changes with their keys; those without one go into the dead letters, as `_decoded`."""
        assert self._task.upsert is not None
        is_plain = not self._task.columns.value.has_changes
        decoded = self._decoded(range_, with_plain_changes(batch) if is_plain else batch)
        keyed, refusals = with_key_ids(decoded, self._task.upsert)
        for refused in refusals:
            self._refuse(
                range_, with_reason(batch.filter(pc.is_in(batch.column("offset"), refused.offsets)), refused.reason)
            )
        return keyed

    def _refuse(self, range_: OffsetRange, misfits: pa.RecordBatch) -> None:
        if not self._task.keeps_bad:
            raise BadRecords(first_bad(range_.tp, misfits))
        if CHANGE in misfits.schema.names:
            misfits = misfits.select([name for name in misfits.schema.names if name != CHANGE])
        self._letters.add(misfits)


def first_bad(tp: TopicPartition, misfits: pa.RecordBatch) -> str:
    """Return the first of the records that cannot be decoded, and why."""
    first = misfits.slice(0, 1).to_pylist()[0]
    return f"{tp}: the record at offset {first['offset']} cannot be exported: {first['reason']}"


def check_records(tp: TopicPartition, records: Sequence[Record], columns: Columns) -> None:
    """Raise BadRecords if a record cannot be decoded."""
    misfits = BatchDecoder(columns).decode(_batch_of(records)).misfits
    if misfits is not None:
        raise BadRecords(first_bad(tp, misfits))


def partitions_of(records: Sequence[Record], columns: Columns, by: Partitioning) -> set[Values]:
    """Return the partitions of the records that can be decoded."""
    fitting = BatchDecoder(columns).decode(_batch_of(records)).fitting
    return {values for values, _ in by_partition(fitting, by)} if fitting.num_rows else set()


def _batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    times = [min(max(record.timestamp * 1000, CALENDAR_US.start), CALENDAR_US.stop - 1) for record in records]
    columns = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "timestamp": pa.array(times, TIMESTAMP),
    }
    return pa.RecordBatch.from_pydict(columns)

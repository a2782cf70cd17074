"""One planned file, from the first fetch to its publication: what a Spark task does.

The file is written under a temporary name, synced, and published under the planned one (see files), so a task may run
twice, be killed anywhere, or run beside a copy of itself.  A planned file that exists already was finished by an
earlier attempt of the same plan and is used as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self
from uuid import uuid4

import pyarrow as pa

from kctl.client.blocking_transport import BlockingTransport
from kctl.client.cluster import ClusterClient
from kctl.client.settings import ClientSettings
from kctl.errors import ClusterUnreachable, KctlError
from kctl.spark.exec.chunk import chunks
from kctl.spark.exec.decode import decode
from kctl.spark.exec.fetch import Fetched, OffsetRange, RangeReader
from kctl.spark.exec.files import DiskFiles, Files
from kctl.spark.exec.outcome import CorruptRecords, DataLoss, Failure, FileOutcome
from kctl.spark.exec.writer import ParquetFile, footer

RANGE_KEY = "kctl.range"
LOST_KEY = "kctl.lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """All that an executor needs for one file; travels from the driver by pickle."""

    settings: ClientSettings
    folder: str
    path: str
    """Relative to the folder."""
    range: OffsetRange
    include_headers: bool
    compression: str
    may_skip: bool
    """Whether offsets that are gone are skipped and counted (--on-data-loss=warn)."""

    @property
    def identity(self) -> str:
        """What the file must say about itself to count as the result of this task."""
        return f"{self.range.tp} [{self.range.start}, {self.range.end}) {self.range.topic_id}"


class Reader(Protocol):
    """Where the records of a task come from; a context manager."""

    lost: int

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def answers(self) -> Iterator[Fetched]:
        """See RangeReader."""
        ...


def read_from_leader(task: FileTask) -> Reader:
    """The records of a task from the partition's leader."""
    client = ClusterClient(task.settings, BlockingTransport())
    return RangeReader(client, task.range, may_skip=task.may_skip)


def export_file(
    task: FileTask, *, files: Files | None = None, open_reader: Callable[[FileTask], Reader] = read_from_leader
) -> FileOutcome:
    """Write the file unless it is there.  Expected failures are outcomes; only defects raise."""
    try:
        return _find_finished(task) or _write(task, files or DiskFiles(), open_reader)
    except DataLoss as error:
        return FileOutcome(failure=Failure.DATA_LOSS, message=str(error))
    except ClusterUnreachable as error:
        return FileOutcome(failure=Failure.UNREACHABLE, message=str(error))
    except (KctlError, OSError) as error:
        return FileOutcome(failure=Failure.FAILED, message=str(error))


def _find_finished(task: FileTask) -> FileOutcome | None:
    path = Path(task.folder, task.path)
    if not path.exists():
        return None
    try:
        records, metadata = footer(path)
    except pa.ArrowException as error:
        raise KctlError(f"{path} is in the way: it is no Parquet file ({error})") from error
    if metadata.get(RANGE_KEY) != task.identity:
        raise KctlError(f"{path} is in the way: it holds {metadata.get(RANGE_KEY)}, not {task.identity}")
    lost = int(metadata.get(LOST_KEY, "0"))
    return FileOutcome(path=task.path, records=records, bytes_out=path.stat().st_size, lost=lost, is_reused=True)


def _write(task: FileTask, files: Files, open_reader: Callable[[FileTask], Reader]) -> FileOutcome:
    final = Path(task.folder, task.path)
    temporary = final.with_name(f".{final.name}.{uuid4().hex}.tmp")
    files.make_directory(final.parent)
    parquet = ParquetFile(
        temporary,
        include_headers=task.include_headers,
        compression=task.compression,
        metadata={RANGE_KEY: task.identity},
    )
    try:
        with open_reader(task) as reader:
            bytes_in = _copy(task, reader, parquet)
        lost = reader.lost
        parquet.finish({LOST_KEY: str(lost)})
    except BaseException:
        parquet.abandon()
        files.remove(temporary)
        raise
    if not parquet.records:
        files.remove(temporary)
        return FileOutcome(bytes_in=bytes_in, lost=lost)
    files.sync(temporary)
    size = os.path.getsize(temporary)
    files.publish(temporary, final)
    return FileOutcome(path=task.path, records=parquet.records, bytes_in=bytes_in, bytes_out=size, lost=lost)


def _copy(task: FileTask, reader: Reader, parquet: ParquetFile) -> int:
    """Everything from the range into the file; how many bytes were fetched."""
    bytes_in = 0
    topic, partition = task.range.tp
    for fetched in reader.answers():
        bytes_in += fetched.size
        try:
            for chunk in chunks(fetched.data, fetched.batches):
                batch = decode(
                    chunk,
                    topic=topic,
                    partition=partition,
                    start=task.range.start,
                    end=task.range.end,
                    include_headers=task.include_headers,
                )
                parquet.add(batch)
        except CorruptRecords as error:
            raise CorruptRecords(f"{task.range.tp}: {error}") from error
    return bytes_in

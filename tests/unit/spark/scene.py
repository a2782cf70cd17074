"""A cluster in memory and exporters with real files, without Spark and without sockets."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from uuid import UUID

import pyarrow.parquet as pq

from kctl.admin.topics.offsets import END, START
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.records.batch import iterate_batches
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.tables.engines.engine import EngineSettings
from kctl.tables.engines.job import JobProgress, TaskRunner
from kctl.tables.engines.session import SparkFailed, SparkSettings
from kctl.tables.exec.file_task import FileTask
from kctl.tables.exec.outcome import DataLoss, FileOutcome, Unreadable
from kctl.tables.exec.reading.fetch import Fetched, OffsetRange
from kctl.tables.exec.targets.files import DiskFiles, Files
from kctl.tables.exec.task import OpenReader, export_file
from kctl.tables.exports.export import Exporter, ExportReport, Listener
from kctl.tables.formats.kinds import TableOptions
from kctl.tables.plans.cluster_view import TopicSelection
from kctl.tables.plans.decodings import DecodingOptions
from kctl.tables.plans.density import Sample
from kctl.tables.plans.plan import (
    ClusterView,
    FileOptions,
    Isolation,
    OnCorruptBatch,
    OnDataLoss,
    PartitionView,
    Plan,
    TopicView,
)
from kctl.tables.plans.request import ExportRequest
from kctl.tables.plans.value_sample import RecordSample

RECORDS_PER_BATCH = 5
START_MS = 1_793_491_200_000
"""2026-11-01T00:00Z."""
SILENT = Listener(lambda plan, origin: None, lambda progress: None)


class StoppedClock:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 0


class Cluster:
    """One topic, `orders`, or several with equal records; every value contains its partition and offset."""

    def __init__(self, partitions: int = 2) -> None:
        self.topics = ["orders"]
        self.unreadable: set[str] = set()
        """Topics whose records were deleted after the plan."""
        self.topic_id = UUID(int=1)
        self.log_starts = [0] * partitions
        self.ends = [0] * partitions
        self.bytes_per_offset = 0
        self.hours_per_offset = 0
        """Between the timestamps of neighbours, which start at 2026-11-01T00."""
        self.exists = True
        self.gone_after_reads: int | None = None
        """Number of ranges that can be read before the topic is deleted."""
        self.is_reachable = True
        self.spark_starts = True
        self.on_start: Callable[[], None] = lambda: None
        """Called when Spark has started."""
        self.removed: set[tuple[int, int]] = set()
        """(partition, first offset) of batches that compaction has removed."""
        self.corrupt: set[tuple[int, int]] = set()
        """(partition, first offset) of batches whose checksum is wrong."""
        self.value: Callable[[int, int], bytes | None] = value
        """The value of the record of a partition with an offset."""
        self.key: Callable[[int, int], bytes | None] = lambda partition, offset: b"k"
        """The same of keys."""
        self.headers: Callable[[int], tuple[tuple[str, bytes | None], ...]] = lambda offset: ()

    def append(self, partition: int, count: int) -> None:
        self.ends[partition] += count

    def view(self, topics: Sequence[str] = ("orders",)) -> ClusterView:
        if not self.is_reachable:
            raise ClusterUnreachable("cannot reach 127.0.0.1:1")
        if not self.exists:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic orders does not exist")
        partitions = {
            p: PartitionView(
                log_start=start,
                end=end,
                high_watermark=end,
                start=start,
                until=end,
                size_bytes=(end - start) * self.bytes_per_offset,
            )
            for p, (start, end) in enumerate(zip(self.log_starts, self.ends, strict=True))
        }
        return ClusterView("cluster-a", {topic: TopicView(self.topic_id, partitions) for topic in topics})

    def allows_read(self) -> bool:
        """Whether the topic still exists for the next range."""
        if self.gone_after_reads is not None:
            self.exists = self.gone_after_reads > 0
            self.gone_after_reads -= 1
        return self.exists

    def timestamp_ms(self, offset: int) -> int:
        return START_MS + offset * self.hours_per_offset * 3_600_000 if self.hours_per_offset else offset

    def batches(self, partition: int, start: int, end: int) -> bytes:
        """Whole batches, which usually extend beyond [start, end)."""
        first = start - start % RECORDS_PER_BATCH
        return b"".join(
            self._stored(
                partition,
                base,
                [
                    Record(
                        0,
                        self.timestamp_ms(offset),
                        self.key(partition, offset),
                        self.value(partition, offset),
                        self.headers(offset),
                    )
                    for offset in range(base, base + RECORDS_PER_BATCH)
                ],
            )
            for base in range(first, end, RECORDS_PER_BATCH)
            if (partition, base) not in self.removed
        )

    def _stored(self, partition: int, base: int, records: Sequence[Record]) -> bytes:
        data = bytearray(build_batch(records, base_offset=base))
        if (partition, base) in self.corrupt:
            data[-1] ^= 1
        return bytes(data)


def value(partition: int, offset: int) -> bytes:
    """The value of the record at an offset."""
    return json.dumps({"partition": partition, "offset": offset}).encode()


class Beginning:
    """A target, and its cluster, as each step of a test finds them: made once, and restored from a copy.

    The path is the same at each step, because tables name their files by absolute paths.
    """

    def __init__(self, folder: Path, make: Callable[[Path], Cluster]) -> None:
        self._folder = folder
        self._cluster = make(folder)
        self._copy = folder.with_name(f"{folder.name}-copy")
        if folder.exists():
            shutil.copytree(folder, self._copy)

    def restored(self) -> Cluster:
        if self._folder.exists():
            shutil.rmtree(self._folder)
        if self._copy.exists():
            shutil.copytree(self._copy, self._folder)
        return copy.deepcopy(self._cluster)


class ClusterReader:
    """The records of a range of a Cluster, in one response."""

    def __init__(self, cluster: Cluster, range_: OffsetRange, *, may_skip: bool = False) -> None:
        self.lost = 0
        self._may_skip = may_skip
        self.position = range_.start
        self.on_unreadable: Callable[[Unreadable], None] | None = None
        self._cluster = cluster
        self._range = range_

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def responses(self) -> Iterator[Fetched]:
        if not self._cluster.allows_read() or self._range.tp.topic in self._cluster.unreadable:
            raise DataLoss(f"{self._range.tp} does not exist any more")
        if self._cluster.topic_id != self._range.topic_id:
            raise DataLoss(f"topic {self._range.tp.topic} was deleted and created again")
        partition, start = self._range.tp.partition, self._range.start
        first = min(max(start, self._cluster.log_starts[partition]), self._range.end)
        if first > start and not self._may_skip:
            raise DataLoss(f"{self._range.tp}: offsets {start} to {first - 1} are gone, the log starts at {first} now")
        self.lost = first - start
        data = memoryview(self._cluster.batches(partition, start, self._range.end))
        self.position = self._range.end
        yield Fetched(data, list(iterate_batches(data)), len(data))


class LoopRunner:
    """Executes tasks one after the other in this process."""

    app_id = "loop"

    def __init__(self, cluster: Cluster, files: Files) -> None:
        self._cluster = cluster
        self._files = files

    def run(self, tasks: Sequence[FileTask], on_progress: Callable[[JobProgress], None]) -> dict[str, FileOutcome]:
        @contextmanager
        def readers(task: FileTask) -> Iterator[OpenReader]:
            yield lambda range_: ClusterReader(self._cluster, range_, may_skip=task.may_skip)

        return {task.path: export_file(task, files=self._files, open_readers=readers) for task in tasks}


def exporter(
    cluster: Cluster,
    folder: Path,
    *,
    files: Files | None = None,
    on_data_loss: OnDataLoss = OnDataLoss.FAIL,
    on_corrupt_batch: OnCorruptBatch = OnCorruptBatch.FAIL,
    adopts: bool = False,
    table: TableOptions | None = None,
    include_headers: bool = False,
    decoding: DecodingOptions | None = None,
    target_file_bytes: int | None = None,
) -> Exporter:
    """An exporter of all topics in `cluster`, with about ten records per file."""
    files = files or DiskFiles(folder)
    request = ExportRequest(
        target=files.location,
        selection=TopicSelection(cluster.topics, START, END, Isolation.READ_COMMITTED),
        client=ClientSettings((("127.0.0.1", 1),)),
        options=FileOptions(include_headers=include_headers),
        table=table or TableOptions(),
        target_file_bytes=target_file_bytes or 10 * max(cluster.bytes_per_offset, 1),
        on_data_loss=on_data_loss,
        on_corrupt_batch=on_corrupt_batch,
        adopts=adopts,
        engine=SparkSettings(),
        decoding=decoding or DecodingOptions(),
    )

    @contextmanager
    def start(settings: EngineSettings, on_note: Callable[[str], None]) -> Iterator[TaskRunner]:
        if not cluster.spark_starts:
            raise SparkFailed("Spark did not start")
        cluster.on_start()
        yield LoopRunner(cluster, files)

    def sample(
        _: ExportRequest, selection: Mapping[TopicPartition, list[int]]
    ) -> dict[TopicPartition, tuple[Sample, ...]]:
        return {
            tp: tuple(Sample(offset, offset, offset + 1, max(cluster.bytes_per_offset, 1)) for offset in offsets)
            for tp, offsets in selection.items()
        }

    def take(_: ExportRequest, plan: Plan) -> RecordSample:
        return {
            range_.tp: [
                Record(offset, 0, cluster.key(range_.tp.partition, offset), cluster.value(range_.tp.partition, offset))
                for offset in range(range_.start, min(range_.start + 3, range_.end))
            ]
            for range_ in plan.ranges
        }

    return Exporter(
        request,
        StoppedClock(),
        files=files,
        look=lambda request, _: cluster.view(request.selection.topics),
        sample=sample,
        take=take,
        starts=lambda _, tps: {tp: cluster.log_starts[tp.partition] for tp in tps if cluster.exists},
        start_runner=start,
    )


def filled() -> Cluster:
    """Two partitions with 12 and 7 records."""
    cluster = Cluster()
    cluster.append(0, 12)
    cluster.append(1, 7)
    return cluster


def run(cluster: Cluster, folder: Path, **more: object) -> ExportReport:
    """One complete run."""
    return exporter(cluster, folder, **more).run(SILENT)  # type: ignore[arg-type]


def committed_files(folder: Path) -> list[str]:
    """The files that the commits name."""
    commits = sorted((folder / "_kctl" / "commits").glob("*.json"))
    return [file["path"] for commit in commits for file in json.loads(commit.read_text())["files"]]


def exported_values(folder: Path) -> list[bytes]:
    """All values in the folder as read without the commit log, sorted."""
    tables = [pq.read_table(path, partitioning=None) for path in sorted(folder.rglob("[!._]*.parquet"))]
    return sorted(value for table in tables for value in table.column("value").to_pylist())


def expected_values(cluster: Cluster) -> list[bytes]:
    """The expected values of a complete export; sorted."""
    return sorted(value(p, offset) for p, end in enumerate(cluster.ends) for offset in range(end))


def assert_exact(cluster: Cluster, folder: Path) -> None:
    """Checks that every record is there once, all files are committed, and no temporary files are left."""
    assert exported_values(folder) == expected_values(cluster)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}
    assert names == set(committed_files(folder))
    assert not list(folder.rglob(".*.tmp"))

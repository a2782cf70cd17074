"""A cluster in memory and exporters that work on it without Spark and without sockets, but with real files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Self
from uuid import UUID

import pyarrow.parquet as pq

from kctl.admin.offset_spec import END, START
from kctl.client.settings import ClientSettings
from kctl.records.batch import iterate_batches
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.spark.cluster_view import Wanted
from kctl.spark.exec.fetch import Fetched
from kctl.spark.exec.files import DiskFiles, Files
from kctl.spark.exec.outcome import FileOutcome
from kctl.spark.exec.task import FileTask, export_file
from kctl.spark.export import Exporter, ExportReport, ExportRequest, Listener
from kctl.spark.job import JobProgress, TaskRunner
from kctl.spark.plan import ClusterView, FileOptions, Isolation, OnDataLoss, PartitionView, TopicView
from kctl.spark.session import SparkSettings

RECORDS_PER_BATCH = 5


class StoppedClock:
    """It is always the same moment."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 0


class Cluster:
    """One topic, `orders`; every record says where it is."""

    def __init__(self, partitions: int = 2) -> None:
        self.topic_id = UUID(int=1)
        self.log_starts = [0] * partitions
        self.ends = [0] * partitions
        self.bytes_per_offset = 0

    def append(self, partition: int, count: int) -> None:
        self.ends[partition] += count

    def view(self) -> ClusterView:
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
        return ClusterView("cluster-a", {"orders": TopicView(self.topic_id, partitions)})

    def batches(self, partition: int, start: int, end: int) -> bytes:
        """Whole batches, so usually more than [start, end)."""
        first = start - start % RECORDS_PER_BATCH
        return b"".join(
            build_batch(
                [Record(0, offset, b"k", value(partition, offset)) for offset in range(base, base + RECORDS_PER_BATCH)],
                base_offset=base,
            )
            for base in range(first, end, RECORDS_PER_BATCH)
        )


def value(partition: int, offset: int) -> bytes:
    """The value of the record at an offset."""
    return json.dumps({"partition": partition, "offset": offset}).encode()


class ClusterReader:
    """The records of a task out of a Cluster, in a single answer."""

    def __init__(self, cluster: Cluster, task: FileTask) -> None:
        self.lost = 0
        self._data = memoryview(cluster.batches(task.range.tp.partition, task.range.start, task.range.end))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def answers(self) -> Iterator[Fetched]:
        yield Fetched(self._data, list(iterate_batches(self._data)), len(self._data))


class LoopRunner:
    """Carries out tasks one after the other in this process."""

    app_id = "loop"

    def __init__(self, cluster: Cluster, files: Files) -> None:
        self._cluster = cluster
        self._files = files

    def run(self, tasks: Sequence[FileTask], on_progress: Callable[[JobProgress], None]) -> dict[str, FileOutcome]:
        return {
            task.path: export_file(task, files=self._files, open_reader=lambda t: ClusterReader(self._cluster, t))
            for task in tasks
        }


def exporter(
    cluster: Cluster, folder: Path, *, files: Files | None = None, on_data_loss: OnDataLoss = OnDataLoss.FAIL
) -> Exporter:
    """An exporter of everything in `cluster`, cutting files of about ten records."""
    disk = files or DiskFiles()
    request = ExportRequest(
        folder=folder,
        wanted=Wanted(["orders"], START, END, Isolation.READ_COMMITTED),
        client=ClientSettings((("127.0.0.1", 1),)),
        options=FileOptions(),
        target_file_bytes=10 * max(cluster.bytes_per_offset, 1),
        on_data_loss=on_data_loss,
    )

    @contextmanager
    def start(settings: SparkSettings) -> Iterator[TaskRunner]:
        yield LoopRunner(cluster, disk)

    start_runner: Callable[[SparkSettings], AbstractContextManager[TaskRunner]] = start
    return Exporter(request, StoppedClock(), files=disk, look=lambda _: cluster.view(), start_runner=start_runner)


def run(cluster: Cluster, folder: Path, **more: object) -> ExportReport:
    """One run to its end."""
    return exporter(cluster, folder, **more).run(Listener(lambda plan, again: None, lambda progress: None))  # type: ignore[arg-type]


def committed_files(folder: Path) -> list[str]:
    """The files that the commits name."""
    commits = sorted((folder / "_kctl" / "commits").glob("*.json"))
    return [file["path"] for commit in commits for file in json.loads(commit.read_text())["files"]]


def exported_values(folder: Path) -> list[bytes]:
    """All values in the folder as a reader finds them that knows nothing of commits; sorted."""
    tables = [pq.read_table(path, partitioning=None) for path in sorted(folder.rglob("[!._]*.parquet"))]
    return sorted(value for table in tables for value in table.column("value").to_pylist())


def expected_values(cluster: Cluster) -> list[bytes]:
    """What an export of everything has to hold; sorted."""
    return sorted(value(p, offset) for p, end in enumerate(cluster.ends) for offset in range(end))


def assert_exact(cluster: Cluster, folder: Path) -> None:
    """Every record once, no file that is not committed, nothing left over."""
    assert exported_values(folder) == expected_values(cluster)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}
    assert names == set(committed_files(folder))
    assert not list(folder.rglob(".*.tmp"))

"""Progress counts running tasks, and shows records, bytes, rate and remaining time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kctl.tables.engines.engine import Pace
from kctl.tables.engines.job import JobProgress, tasks_of
from kctl.tables.exec.file_task import FileTask
from kctl.tables.exec.progress import TaskProgress, progress_file, running_tasks
from kctl.tables.exec.selection.partitioning import DATE, Partitioning
from kctl.tables.exec.task import OpenReader, export_file
from kctl.tables.formats.kinds import TableOptions
from tests.unit.spark.scene import Cluster, ClusterReader, exporter


def test_a_running_task_can_be_seen_from_the_driver(tmp_path: Path) -> None:
    with progress_file(tmp_path, "a", interval_s=0) as first, progress_file(tmp_path, "b", interval_s=0) as second:
        first(TaskProgress(10, 8, 800))
        second(TaskProgress(5, 5, 500))
        first(TaskProgress(20, 16, 1600))
        assert running_tasks(tmp_path) == TaskProgress(25, 21, 2100)
    assert running_tasks(tmp_path) == TaskProgress()
    assert not list(tmp_path.iterdir())


def test_reports_between_two_intervals_write_nothing(tmp_path: Path) -> None:
    now_s = 0.0
    with progress_file(tmp_path, "a", clock=lambda: now_s, interval_s=5) as report:
        report(TaskProgress(1, 1, 1))
        report(TaskProgress(2, 2, 2))
        assert running_tasks(tmp_path) == TaskProgress(1, 1, 1)
        now_s = 5.0
        report(TaskProgress(3, 3, 3))
        assert running_tasks(tmp_path) == TaskProgress(3, 3, 3)


def test_a_folder_that_cannot_be_written_to_does_not_fail_the_task(tmp_path: Path) -> None:
    with progress_file(tmp_path / "missing" / "progress", "a") as report:
        report(TaskProgress(1, 1, 1))
    assert running_tasks(tmp_path / "missing" / "progress") == TaskProgress()


def test_files_that_are_no_progress_are_ignored(tmp_path: Path) -> None:
    (tmp_path / ".empty.tmp").write_bytes(b"")
    (tmp_path / ".other.tmp").write_bytes(b"1 2")
    assert running_tasks(tmp_path) == TaskProgress()


def test_a_task_reports_after_every_response_and_range(tmp_path: Path) -> None:
    cluster = Cluster(partitions=2)
    cluster.bytes_per_offset = 1
    cluster.append(0, 5)
    cluster.append(1, 4)
    exporting = exporter(cluster, tmp_path)
    plan, _, _ = exporting.plan()
    assert plan is not None
    (task,) = tasks_of(plan, str(tmp_path), exporting._request.client, may_skip=False)

    @contextmanager
    def readers(_: FileTask) -> Iterator[OpenReader]:
        yield lambda range_: ClusterReader(cluster, range_)

    reports: list[TaskProgress] = []
    export_file(task, open_readers=readers, report=reports.append)
    assert [(report.offsets, report.records) for report in reports] == [(5, 5), (5, 5), (9, 9), (9, 9)]
    assert reports[-1].bytes_in > reports[0].bytes_in > 0


def test_progress_shows_records_bytes_files_rate_and_remaining_time() -> None:
    pace = Pace(1000, start_s=10.0)
    done = JobProgress(files_done=1, files_total=4, offsets=250, records=200, bytes_in=2_000_000)
    assert pace.observe(done, now_s=12.0) == (
        250,
        "0:06 left, 1.0 MB/s, 2.0 MB, 200 records, 1 of 4 files, 100 records/s",
    )


def test_files_of_an_interrupted_run_count_but_not_in_the_rates() -> None:
    reused = TaskProgress(offsets=500, records=500, bytes_in=5_000_000)
    pace = Pace(1000, start_s=10.0)
    assert pace.observe(JobProgress(2, 4, 500, 500, 5_000_000, reused), now_s=11.0) == (
        500,
        "5.0 MB, 500 records, 2 of 4 files",
    )
    assert pace.observe(JobProgress(3, 4, 750, 700, 7_000_000, reused), now_s=12.0) == (
        750,
        "0:02 left, 1.0 MB/s, 7.0 MB, 700 records, 3 of 4 files, 100 records/s",
    )


@pytest.mark.parametrize("table", [TableOptions(), TableOptions(partition_by=Partitioning(DATE))])
def test_a_file_of_an_interrupted_run_has_the_bytes_that_were_read_for_it(tmp_path: Path, table: TableOptions) -> None:
    cluster = Cluster(partitions=1)
    cluster.append(0, 9)
    exporting = exporter(cluster, tmp_path, table=table)
    plan, _, _ = exporting.plan()
    assert plan is not None
    (task,) = tasks_of(plan, str(tmp_path), exporting._request.client, may_skip=False, partition_by=table.partition_by)

    @contextmanager
    def readers(_: FileTask) -> Iterator[OpenReader]:
        yield lambda range_: ClusterReader(cluster, range_)

    written, found = (export_file(task, open_readers=readers) for _ in range(2))
    assert (written.is_reused, found.is_reused) == (False, True)
    assert found.parts == written.parts
    assert found.bytes_in > 0


def test_a_terminal_of_80_columns_shows_the_remaining_time_and_the_rate() -> None:
    line = "exported 1,234,567,890 of 4,000,000,000 (30%) offsets, "
    pace = Pace(4_000_000_000, start_s=0.0)
    _, note = pace.observe(JobProgress(12, 4000, 1_234_567_890, 1_234_567_890, 10**12), now_s=36_000.0)
    assert (line + note)[:79].endswith("22:24:00 left, 27.8 MB/s")


def test_progress_never_goes_back_and_never_beyond_the_end() -> None:
    pace = Pace(1000, start_s=0.0)
    steps = [0, 500, 400, 2000]
    seen = [pace.observe(JobProgress(0, 1, offsets, offsets, 0), now_s=60.0)[0] for offsets in steps]
    assert seen == [0, 500, 500, 1000]


def test_before_the_first_offset_no_remaining_time_is_shown() -> None:
    _, note = Pace(1000, start_s=0.0).observe(JobProgress(0, 4, 0, 0, 0), now_s=60.0)
    assert note == "0 B, 0 records, 0 of 4 files"

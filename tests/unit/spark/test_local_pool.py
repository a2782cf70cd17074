"""The local engine runs a single small task in the driver, and everything else in processes."""

from __future__ import annotations

import os
from uuid import UUID

import pytest

from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.settings import ClientSettings
from kctl.model import TopicPartition
from kctl.tables.engines.job import JobProgress
from kctl.tables.engines.local_pool import DRIVER_OFFSETS_MAX, LocalRunner
from kctl.tables.exec import task as task_module
from kctl.tables.exec.file_task import FileTask
from kctl.tables.exec.outcome import Failure, FileOutcome
from kctl.tables.exec.progress import Report, TaskProgress
from kctl.tables.exec.reading.fetch import OffsetRange


def task_of(folder: str, path: str, offsets: int) -> FileTask:
    range_ = OffsetRange(TopicPartition("orders", 0), UUID(int=1), 0, offsets, IsolationLevel.READ_COMMITTED)
    return FileTask(
        settings=ClientSettings((("127.0.0.1", 1),), timeout_ms=1),
        target=folder,
        path=path,
        ranges=(range_,),
        include_headers=False,
        compression="zstd",
        may_skip=False,
    )


@pytest.mark.parametrize(("count", "offsets", "is_here"), [
    (1, DRIVER_OFFSETS_MAX, True), (1, DRIVER_OFFSETS_MAX + 1, False), (2, 5, False),
])  # fmt: skip
@pytest.mark.long
def test_only_a_single_small_task_is_run_in_the_driver(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch, count: int, offsets: int, is_here: bool
) -> None:
    """Nothing is listening where the tasks connect to, so those in processes of their own fail."""

    def export_file(task: FileTask, *, report: Report) -> FileOutcome:
        report(TaskProgress(offsets=2))
        return FileOutcome(path=task.path)

    monkeypatch.setattr(task_module, "export_file", export_file)
    seen: list[JobProgress] = []
    tasks = [task_of(str(tmp_path), f"orders/{number}.parquet", offsets) for number in range(count)]
    outcomes = LocalRunner(1).run(tasks, seen.append)
    expected = None if is_here else Failure.UNREACHABLE
    assert {path: outcome.failure for path, outcome in outcomes.items()} == {task.path: expected for task in tasks}
    assert (seen[-1].files_done, seen[-1].offsets) == (count, count * offsets)
    if is_here:
        assert [progress.offsets for progress in seen] == [2, offsets]

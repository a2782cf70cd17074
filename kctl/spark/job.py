"""Carries out the tasks of one plan on Spark and watches them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.client.settings import ClientSettings
from kctl.errors import ClusterUnreachable, KctlError
from kctl.spark.cluster_view import ISOLATION_LEVELS
from kctl.spark.exec.outcome import DataLoss, Failure, FileOutcome
from kctl.spark.plan import Plan
from kctl.spark.session import RunningSpark

if TYPE_CHECKING:
    from kctl.spark.exec.task import FileTask

JOB_GROUP = "kctl-export"
POLL_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a batch is; records and bytes count finished files."""

    files_done: int
    files_total: int
    records: int
    bytes_in: int


def run_tasks(
    spark: RunningSpark, tasks: list[FileTask], on_progress: Callable[[JobProgress], None]
) -> dict[str, FileOutcome]:
    """What became of each task, by planned path.  Raises SparkFailed when Spark gave up.

    An interrupt (any BaseException in `on_progress` or from a signal) cancels the job and goes on to the caller.
    """
    from kctl.spark.exec.task import export_file  # noqa: PLC0415 - imports pyarrow and numpy

    context = spark.context
    records, bytes_in, files = (context.accumulator(0) for _ in range(3))

    def run(task: FileTask) -> FileOutcome:
        outcome = export_file(task)
        records.add(outcome.records)
        bytes_in.add(outcome.bytes_in)
        files.add(1)
        return outcome

    def collect() -> list[FileOutcome]:
        context.setJobGroup(JOB_GROUP, f"export {len(tasks)} files", interruptOnCancel=True)
        return context.parallelize(tasks, len(tasks)).map(run).collect()

    job = _in_background(collect)
    try:
        while not _is_done_within(job, POLL_INTERVAL_S):
            # Accumulators may count a task twice that ran twice, so they are for the eye; outcomes are what counts.
            done = min(files.value, len(tasks))
            on_progress(JobProgress(done, len(tasks), records.value, bytes_in.value))
    except BaseException:
        context.cancelJobGroup(JOB_GROUP)
        raise
    error = job.exception()
    if isinstance(error, Exception):
        raise spark.failure(error) from error
    return {task.path: outcome for task, outcome in zip(tasks, job.result(), strict=True)}


def tasks_of(plan: Plan, folder: Path, settings: ClientSettings, *, may_skip: bool) -> list[FileTask]:
    """One task per planned file, those that read most offsets first."""
    from kctl.spark.exec.fetch import OffsetRange  # noqa: PLC0415 - see run_tasks
    from kctl.spark.exec.task import FileTask  # noqa: PLC0415

    tasks = [
        FileTask(
            settings=settings,
            folder=str(folder),
            path=file.path,
            range=OffsetRange(
                range_.tp,
                plan.topics[range_.tp.topic].topic_id,
                file.start,
                file.end,
                ISOLATION_LEVELS[plan.options.isolation],
            ),
            include_headers=plan.options.include_headers,
            compression=plan.options.compression,
            may_skip=may_skip,
        )
        for range_ in plan.ranges
        for file in range_.files
    ]
    return sorted(tasks, key=lambda task: task.range.start - task.range.end)


def check_outcomes(outcomes: Mapping[str, FileOutcome]) -> None:
    """Raises DataLoss, ClusterUnreachable or KctlError when any task failed; the batch must not be committed then."""
    failed = [outcome for outcome in outcomes.values() if outcome.failure]
    if not failed:
        return
    kinds = {Failure.FAILED: KctlError, Failure.DATA_LOSS: DataLoss, Failure.UNREACHABLE: ClusterUnreachable}
    for kind, error in kinds.items():
        messages = sorted({outcome.message for outcome in failed if outcome.failure is kind})
        if messages:
            more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
            raise error(messages[0] + more)


def _in_background(work: Callable[[], list[FileOutcome]]) -> Future[list[FileOutcome]]:
    """A daemon thread: when the main thread is interrupted, nothing waits for Spark."""
    future: Future[list[FileOutcome]] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name="spark-job", daemon=True).start()
    return future


def _is_done_within(future: Future[list[FileOutcome]], timeout_s: float) -> bool:
    try:
        future.exception(timeout=timeout_s)
    except TimeoutError:
        return False
    return True

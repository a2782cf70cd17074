"""Runs the tasks of a plan on Spark and reports their progress."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kctl.client.settings import ClientSettings
from kctl.errors import ClusterUnreachable, KctlError
from kctl.model import TopicPartition
from kctl.tables.commits import layout
from kctl.tables.engines.session import RunningSpark, SparkSettings, running_spark
from kctl.tables.engines.submission import use_option
from kctl.tables.exec.file_task import FileTask
from kctl.tables.exec.outcome import BadRecords, CorruptRecords, DataLoss, Failure, FileOutcome
from kctl.tables.exec.progress import NOTHING, TaskProgress, running_tasks
from kctl.tables.exec.reading.fetch import OffsetRange
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT, ColumnLayout
from kctl.tables.exec.selection.partitioning import NO_PARTITIONS, Partitioning
from kctl.tables.exec.selection.row_selection import ALL_ROWS, HEADER_LIST, HeaderForm, RowSelection
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.exec.targets.target import is_object_store
from kctl.tables.plans.cluster_view import ISOLATION_LEVELS
from kctl.tables.plans.plan import Plan

JOB_GROUP = "kctl-export"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Progress of a batch, including running tasks."""

    files_done: int
    files_total: int
    offsets: int
    """Processed offsets; the plan has the total."""
    records: int
    bytes_in: int
    reused: TaskProgress = NOTHING
    """The part of these that an interrupted run had done."""


class TaskRunner(Protocol):
    """Runs tasks: Spark, or a loop in tests."""

    @property
    def app_id(self) -> str:
        """Spark's application id; empty for other runners."""
        ...

    def run(self, tasks: Sequence[FileTask], on_progress: Callable[[JobProgress], None]) -> dict[str, FileOutcome]:
        """Run the tasks and return their results by planned path.  Raises SparkFailed."""
        ...


@contextlib.contextmanager
def spark_runner(settings: SparkSettings, on_note: Callable[[str], None]) -> Iterator[TaskRunner]:
    """Start Spark for one run.  Raises SparkFailed, SparkMissing and UsageError."""
    with running_spark(settings, class_archive_option=use_option(), on_note=on_note) as spark:
        yield SparkRunner(spark)


class SparkRunner:
    """Tasks as partitions of an RDD, one record each."""

    def __init__(self, spark: RunningSpark) -> None:
        self._spark = spark

    @property
    def app_id(self) -> str:
        """Spark's id of the application."""
        return self._spark.app_id

    def run(self, tasks: Sequence[FileTask], on_progress: Callable[[JobProgress], None]) -> dict[str, FileOutcome]:
        """See TaskRunner.  A KeyboardInterrupt cancels the job and propagates."""
        with progress_directory(tasks[0].target) as directory:
            return self._run(tasks, on_progress, str(directory))

    def _run(
        self, tasks: Sequence[FileTask], on_progress: Callable[[JobProgress], None], progress_path: str
    ) -> dict[str, FileOutcome]:
        from kctl.tables.exec.worker import run_pickled  # noqa: PLC0415 - tasks refer to it by name

        context = self._spark.context
        offsets, records, bytes_in, files = (context.accumulator(0) for _ in range(4))
        reused_offsets, reused_records, reused_bytes = (context.accumulator(0) for _ in range(3))

        def carry_out(task: tuple[bytes, int]) -> FileOutcome:
            pickled, offset_count = task
            outcome = run_pickled(pickled, progress_path)
            offsets.add(offset_count)
            records.add(outcome.records)
            bytes_in.add(outcome.bytes_in)
            files.add(1)
            if outcome.is_reused:
                reused_offsets.add(offset_count)
                reused_records.add(outcome.records)
                reused_bytes.add(outcome.bytes_in)
            return outcome

        def collect() -> list[FileOutcome]:
            # Pickled here, because an executor can report missing packages only before it unpickles a task.
            settings = portable(tasks[0].settings)
            pickled = [(pickle.dumps(replace(task, settings=settings)), task.offset_count) for task in tasks]
            outcomes: list[FileOutcome] = context.parallelize(pickled, len(tasks)).map(carry_out).collect()
            return outcomes

        def report() -> None:
            # Accumulators count a repeated task twice, so they are used for display only.
            running = running_tasks(Path(progress_path))
            on_progress(
                JobProgress(
                    min(files.value, len(tasks)),
                    len(tasks),
                    offsets.value + running.offsets,
                    records.value + running.records,
                    bytes_in.value + running.bytes_in,
                    TaskProgress(reused_offsets.value, reused_records.value, reused_bytes.value),
                )
            )

        found = self._spark.run_job(JOB_GROUP, collect, report)
        return {task.path: outcome for task, outcome in zip(tasks, found, strict=True)}


def portable(settings: ClientSettings) -> ClientSettings:
    """Return the settings for processes on other machines: with the contents of TLS stores.  Raises ConfigError."""
    security = settings.security
    return settings if security is None else settings._replace(security=security.with_contents())


@contextlib.contextmanager
def progress_directory(target: str) -> Iterator[Path]:
    """Where running tasks write their progress: in the target, or on this machine if that is an object store.

    Executors on other machines then report only finished files.
    """
    if not is_object_store(target):
        yield Path(target, layout.PROGRESS)
        return
    with tempfile.TemporaryDirectory(prefix="kctl-export-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def tasks_of(
    plan: Plan,
    target: str,
    settings: ClientSettings,
    *,
    may_skip: bool,
    skips_corrupt: bool = False,
    keeps_bad: bool = False,
    is_for_table: bool = False,
    has_incarnation_column: bool = False,
    partition_by: Partitioning = NO_PARTITIONS,
    rows: RowSelection = ALL_ROWS,
    layout: ColumnLayout = PLAIN_LAYOUT,
    headers: HeaderForm = HEADER_LIST,
    letters_have_headers: bool = False,
    upsert: UpsertOptions | None = None,
) -> list[FileTask]:
    """Return one task per planned file, those with most offsets first.

    `is_for_table`: an Iceberg or Delta table.  `has_incarnation_column`: incarnations of a topic are distinguished by a
    column, not by folders.
    """
    isolation = ISOLATION_LEVELS[plan.options.isolation]
    tasks = [
        FileTask(
            settings=settings,
            target=target,
            path=path,
            ranges=tuple(
                OffsetRange(
                    range_.tp,
                    plan.topics[range_.tp.topic].topic_id,
                    file.start,
                    file.end,
                    isolation,
                    range_.history,
                )
                for range_, file in shares
            ),
            include_headers=plan.options.include_headers,
            compression=plan.options.compression.value,
            headers=headers,
            letters_have_headers=letters_have_headers,
            partition_by=partition_by,
            rows=rows,
            layout=layout,
            upsert=upsert,
            may_skip=may_skip,
            skips_corrupt=skips_corrupt,
            columns=plan.topics[shares[0][0].tp.topic].columns,
            keeps_bad=keeps_bad,
            is_for_table=is_for_table,
            incarnation=shares[0][0].incarnation if has_incarnation_column else 0,
        )
        for path, shares in plan.shares().items()
    ]
    return sorted(tasks, key=lambda task: -task.offset_count)


_ERRORS: Mapping[Failure, type[KctlError]] = {
    Failure.FAILED: KctlError,
    Failure.CORRUPT: CorruptRecords,
    Failure.DATA_LOSS: DataLoss,
    Failure.UNREACHABLE: ClusterUnreachable,
    Failure.BAD_RECORDS: BadRecords,
}


def failed_ranges(outcomes: Mapping[str, FileOutcome]) -> dict[TopicPartition, KctlError]:
    """Return the partitions because of which tasks failed; empty if a task failed for another reason, or none did."""
    failed = [outcome for outcome in outcomes.values() if outcome.failure]
    if not all(outcome.failed for outcome in failed):
        return {}
    found: dict[TopicPartition, KctlError] = {}
    for outcome in failed:
        for range_ in outcome.failed:
            found.setdefault(range_.tp, _ERRORS[range_.failure](range_.message))
    return found


def check_outcomes(outcomes: Mapping[str, FileOutcome]) -> None:
    """Raise DataLoss, ClusterUnreachable or KctlError if a task has failed; the batch must not be committed then."""
    failed = [outcome for outcome in outcomes.values() if outcome.failure]
    if not failed:
        return
    for kind, error in _ERRORS.items():
        messages = sorted({outcome.message for outcome in failed if outcome.failure is kind})
        if messages:
            more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
            raise error(messages[0] + more)

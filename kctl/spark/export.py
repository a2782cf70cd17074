"""A whole run of `kctl spark export`: recover what was interrupted, plan what is new, carry it out, commit.

The order is what makes it exactly once: lock, read the commit log, finish the pending plan if there is one, ask the
cluster, write the new plan, run its tasks, write its commit.  Being killed between any two steps leaves a folder that
the next run brings to the same state as an undisturbed run would have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from kctl.client.blocking_transport import BlockingTransport, run_blocking
from kctl.client.cluster import ClusterClient
from kctl.client.settings import ClientSettings
from kctl.environment import Clock
from kctl.spark.cluster_view import Wanted, view_cluster
from kctl.spark.commit_log import CommitLog, lost_in
from kctl.spark.exec.files import DiskFiles, Files
from kctl.spark.exec.outcome import Failure, FileOutcome
from kctl.spark.job import JobProgress, check_outcomes, run_tasks, tasks_of
from kctl.spark.plan import ClusterView, FileOptions, OnDataLoss, Plan, Positions, SplitRule, make_plan
from kctl.spark.session import RunningSpark, SparkSettings, require_spark, running_spark


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What the user asked for."""

    folder: Path
    wanted: Wanted
    client: ClientSettings
    options: FileOptions
    target_file_bytes: int
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    spark: SparkSettings = field(default_factory=SparkSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBatch:
    """One committed batch."""

    plan: Plan
    outcomes: dict[str, FileOutcome]
    is_recovered: bool
    """Whether an earlier run had planned it and was interrupted."""

    @property
    def lost(self) -> int:
        return sum(lost_in(range_, self.outcomes) for range_ in self.plan.ranges)


@dataclass(slots=True, kw_only=True)
class ExportReport:
    """What a run did.  No batches: nothing was new."""

    batches: list[FinishedBatch] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    app_id: str = ""
    """Spark's name for the job; empty when Spark was not needed."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of the steps: plan, start, run."""


@dataclass(frozen=True, slots=True)
class Listener:
    """What a run tells while it works."""

    on_plan: Callable[[Plan, bool], None]
    """A batch is about to start; True when it is one that was interrupted."""
    on_progress: Callable[[JobProgress], None]


def plan_export(
    request: ExportRequest, clock: Clock, files: Files | None = None
) -> tuple[Plan | None, bool, list[str]]:
    """What the next run would do: (plan, whether it is an interrupted one, warnings).

    Touches nothing and needs no Spark.  Raises as run_export does.
    """
    log = _log(request, files or DiskFiles())
    positions = log.positions()
    pending = log.pending(positions)
    if pending:
        return pending, True, []
    view = _view(request)
    plan, warnings = _make_plan(request, positions, view, clock)
    return plan, False, warnings


def run_export(request: ExportRequest, listener: Listener, clock: Clock, files: Files | None = None) -> ExportReport:
    """Export what is new.

    Raises DataLoss, Locked, LostRace, SparkMissing, SparkFailed, UsageError, ClusterUnreachable, ApiError and other
    KctlErrors; what was planned then stays pending.
    """
    require_spark()
    log = _log(request, files or DiskFiles())
    log.create()
    report = ExportReport()
    with log.lock(), contextlib.ExitStack() as stack:
        positions = log.positions()
        pending = log.pending(positions)
        run = _Run(request, listener, clock, log, report, stack)
        with run.timed("plan"):
            view = _view(request)
        if pending:
            positions = run.carry_out(pending, positions, is_recovered=True)
        with run.timed("plan"):
            plan, warnings = _make_plan(request, positions, view, clock)
            report.warnings += warnings
            if plan is None:
                return report
            log.write_plan(plan)
        run.carry_out(plan, positions, is_recovered=False)
    return report


class _Run:
    """One run under way; Spark starts when the first batch needs it and stays for the second."""

    def __init__(
        self,
        request: ExportRequest,
        listener: Listener,
        clock: Clock,
        log: CommitLog,
        report: ExportReport,
        stack: contextlib.ExitStack,
    ) -> None:
        self._request = request
        self._listener = listener
        self._clock = clock
        self._log = log
        self._report = report
        self._stack = stack
        self._spark: RunningSpark | None = None

    def carry_out(self, plan: Plan, positions: Positions, *, is_recovered: bool) -> Positions:
        """Run a plan that is written and commit it."""
        self._log.remove_unfinished(list(plan.topics))
        self._listener.on_plan(plan, is_recovered)
        outcomes: dict[str, FileOutcome] = {}
        if plan.file_count:
            may_skip = self._request.on_data_loss is OnDataLoss.WARN
            tasks = tasks_of(plan, self._request.folder, self._request.client, may_skip=may_skip)
            spark = self._start_spark()
            with self.timed("run"):
                outcomes = run_tasks(spark, tasks, self._listener.on_progress)
            outcomes = _as_lost(plan, outcomes) if may_skip else outcomes
            check_outcomes(outcomes)
            self._report.warnings += sorted({one.message for one in outcomes.values() if one.message})
        after = self._log.write_commit(plan, outcomes, positions, now_ms=self._clock.now_ms())
        self._report.batches.append(FinishedBatch(plan=plan, outcomes=outcomes, is_recovered=is_recovered))
        return after

    @contextlib.contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the wall time of the block to the report."""
        start_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            seconds = (self._clock.monotonic_ms() - start_ms) / 1000
            self._report.seconds[step] = round(self._report.seconds.get(step, 0) + seconds, 3)

    def _start_spark(self) -> RunningSpark:
        if self._spark is None:
            with self.timed("start"):
                self._spark = self._stack.enter_context(running_spark(self._request.spark, name="kctl spark export"))
            self._report.app_id = self._spark.app_id
        return self._spark


def _view(request: ExportRequest) -> ClusterView:
    async def ask() -> ClusterView:
        async with ClusterClient(request.client, BlockingTransport()) as client:
            return await view_cluster(client, request.wanted)

    return run_blocking(ask())


def _make_plan(
    request: ExportRequest, positions: Positions, view: ClusterView, clock: Clock
) -> tuple[Plan | None, list[str]]:
    return make_plan(
        positions,
        view,
        options=request.options,
        split=SplitRule(target_file_bytes=request.target_file_bytes, parallelism=request.spark.parallelism),
        on_data_loss=request.on_data_loss,
        now_ms=clock.now_ms(),
    )


def _log(request: ExportRequest, files: Files) -> CommitLog:
    return CommitLog(request.folder, files, writer=uuid4().hex)


def _as_lost(plan: Plan, outcomes: dict[str, FileOutcome]) -> dict[str, FileOutcome]:
    """Files whose topic has gone since planning count as lost offsets, where losses are to be tolerated."""
    sizes = {file.path: file.end - file.start for range_ in plan.ranges for file in range_.files}
    return {
        path: FileOutcome(lost=sizes[path], message=outcome.message)
        if outcome.failure is Failure.DATA_LOSS
        else outcome
        for path, outcome in outcomes.items()
    }

"""A whole run of `kctl spark export`: recover what was interrupted, plan what is new, carry it out, commit.

The order is what makes it exactly once: lock, read the commit log, finish the pending plan if there is one, ask the
cluster, write the new plan, run its tasks, write its commit.  Being killed between any two steps leaves a folder that
the next run brings to the same state as an undisturbed run would have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
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
from kctl.spark.job import JobProgress, TaskRunner, check_outcomes, spark_runner, tasks_of
from kctl.spark.plan import ClusterView, FileOptions, OnDataLoss, Plan, Positions, SplitRule, make_plan
from kctl.spark.session import SparkSettings, require_spark


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


class Exporter:
    """One run.  `files`, `look` and `start_runner` are its ports; the defaults are the real ones."""

    def __init__(
        self,
        request: ExportRequest,
        clock: Clock,
        *,
        files: Files | None = None,
        look: Callable[[ExportRequest], ClusterView] | None = None,
        start_runner: Callable[[SparkSettings], AbstractContextManager[TaskRunner]] | None = None,
    ) -> None:
        self._request = request
        self._clock = clock
        self._log = CommitLog(request.folder, files or DiskFiles(), writer=uuid4().hex)
        self._look = look or look_at_cluster
        self._start_runner = start_runner
        self._runner: TaskRunner | None = None
        self._stack = contextlib.ExitStack()
        self._report = ExportReport()

    def plan(self) -> tuple[Plan | None, bool, list[str]]:
        """What a run would do: (plan, whether it is an interrupted one, warnings).

        Touches nothing and needs no Spark.  Raises as `run` does.
        """
        positions = self._log.positions()
        pending = self._log.pending(positions)
        if pending:
            return pending, True, []
        plan, warnings = self._make_plan(positions, self._look(self._request))
        return plan, False, warnings

    def run(self, listener: Listener) -> ExportReport:
        """Export what is new.

        Raises DataLoss, Locked, LostRace, SparkMissing, SparkFailed, UsageError, ClusterUnreachable, ApiError and
        other KctlErrors; what was planned then stays pending.
        """
        if self._start_runner is None:
            require_spark()
        self._log.create()
        with self._log.lock(), self._stack:
            positions = self._log.positions()
            pending = self._log.pending(positions)
            self._log.remove_unfinished({*positions.topics, *(pending.topics if pending else ())})
            with self._timed("plan"):
                view = self._look(self._request)
            if pending:
                positions = self._carry_out(pending, positions, listener, is_recovered=True)
            with self._timed("plan"):
                plan, warnings = self._make_plan(positions, view)
                self._report.warnings += warnings
                if plan is None:
                    return self._report
                self._log.write_plan(plan)
            self._carry_out(plan, positions, listener, is_recovered=False)
        return self._report

    def _carry_out(self, plan: Plan, positions: Positions, listener: Listener, *, is_recovered: bool) -> Positions:
        """Run a plan that is written and commit it."""
        listener.on_plan(plan, is_recovered)
        outcomes: dict[str, FileOutcome] = {}
        if plan.file_count:
            may_skip = self._request.on_data_loss is OnDataLoss.WARN
            tasks = tasks_of(plan, self._request.folder, self._request.client, may_skip=may_skip)
            runner = self._started_runner()
            with self._timed("run"):
                outcomes = runner.run(tasks, listener.on_progress)
            outcomes = _as_lost(plan, outcomes) if may_skip else outcomes
            check_outcomes(outcomes)
            self._report.warnings += sorted({one.message for one in outcomes.values() if one.message})
        after = self._log.write_commit(plan, outcomes, positions, now_ms=self._clock.now_ms())
        # Of tasks that died and were tried again.
        self._log.remove_unfinished(plan.topics)
        self._report.batches.append(FinishedBatch(plan=plan, outcomes=outcomes, is_recovered=is_recovered))
        return after

    def _make_plan(self, positions: Positions, view: ClusterView) -> tuple[Plan | None, list[str]]:
        request = self._request
        return make_plan(
            positions,
            view,
            options=request.options,
            split=SplitRule(target_file_bytes=request.target_file_bytes, parallelism=request.spark.parallelism),
            on_data_loss=request.on_data_loss,
            now_ms=self._clock.now_ms(),
        )

    def _started_runner(self) -> TaskRunner:
        """Started when the first batch needs it, and kept for the second."""
        if self._runner is None:
            with self._timed("start"):
                start = self._start_runner or spark_runner
                self._runner = self._stack.enter_context(start(self._request.spark))
            self._report.app_id = self._runner.app_id
        return self._runner

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        """Add the wall time of the block to the report."""
        start_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            seconds = (self._clock.monotonic_ms() - start_ms) / 1000
            self._report.seconds[step] = round(self._report.seconds.get(step, 0) + seconds, 3)


def look_at_cluster(request: ExportRequest) -> ClusterView:
    """Ask the cluster over blocking sockets."""

    async def ask() -> ClusterView:
        async with ClusterClient(request.client, BlockingTransport()) as client:
            return await view_cluster(client, request.wanted)

    return run_blocking(ask())


def _as_lost(plan: Plan, outcomes: dict[str, FileOutcome]) -> dict[str, FileOutcome]:
    """Files whose topic has gone since planning count as lost offsets, where losses are to be tolerated."""
    sizes = {file.path: file.end - file.start for range_ in plan.ranges for file in range_.files}
    return {
        path: FileOutcome(lost=sizes[path], message=outcome.message)
        if outcome.failure is Failure.DATA_LOSS
        else outcome
        for path, outcome in outcomes.items()
    }

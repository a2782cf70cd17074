"""A run of `kctl export`: complete an interrupted batch, plan new records, execute, commit.

The order ensures exactly-once: lock, read the commit log, compare it with the files, complete the pending plan if there
is one, query the cluster, start the engine, write the new plan, run its tasks, write its commit.  After a crash between
any two steps the next run leads to the same state as a run without a crash.

A pending plan is completed before the cluster is queried, because the query fails for a topic that was deleted since.
The engine is started before a plan is written, so that an engine that cannot start leaves nothing pending.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kctl.client.registry.client import RegistryClient
from kctl.errors import ApiError, ClusterUnreachable, KctlError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.system.environment import Clock
from kctl.tables.commits.adoption import find_files, plan_adoption
from kctl.tables.commits.commit_json import parts_of
from kctl.tables.commits.inventory import Inventory, UnknownFiles
from kctl.tables.engines.engine import StartEngine, require_engine, start_engine
from kctl.tables.engines.job import JobProgress, TaskRunner, check_outcomes, failed_ranges, tasks_of
from kctl.tables.engines.session import SparkSettings
from kctl.tables.exec.file_task import FileTask, is_finished
from kctl.tables.exec.outcome import BadRecords, DataLoss, FileOutcome, Misfit, TooManyMisfits, Unreadable
from kctl.tables.exec.schema.column_types import Columns
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.target import open_files
from kctl.tables.exports.cluster_reads import (
    Samples,
    log_starts,
    look_at_cluster,
    sample_logs,
    take_record_sample,
)
from kctl.tables.exports.decided_columns import decided_columns
from kctl.tables.formats.kinds import TableKind, open_log
from kctl.tables.plans.decodings import check_held
from kctl.tables.plans.density import sample_offsets
from kctl.tables.plans.plan import (
    ClusterView,
    OnCorruptBatch,
    OnDataLoss,
    Plan,
    Positions,
    with_samples,
    without_partitions,
)
from kctl.tables.plans.planning import SplitRule, make_plan
from kctl.tables.plans.request import ExportRequest
from kctl.tables.plans.value_sample import RecordSample
from kctl.tables.upserts.changed_keys import STATE_FILE_BYTES, ChangedKeys


class Origin(StrEnum):
    """Origin of a batch, by its name in the summary."""

    NEW = "exported"
    INTERRUPTED = "recovered"
    """Planned by an interrupted run."""
    ADOPTED = "adopted"
    """Built from files without a commit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBatch:
    """One committed batch."""

    plan: Plan
    outcomes: dict[str, FileOutcome]
    origin: Origin
    keys: Mapping[str, ChangedKeys] = field(default_factory=dict)
    """What it has changed in the current state by key, by topic."""

    @property
    def lost(self) -> int:
        """Offsets of the batch that the brokers no longer had when it was planned or when it was read."""
        return sum(
            range_.lost + sum(part.lost for part in parts) for range_, parts in parts_of(self.plan, self.outcomes)
        )


@dataclass(slots=True, kw_only=True)
class ExportReport:
    """Result of a run, without batches if nothing was new."""

    batches: list[FinishedBatch] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    app_id: str = ""
    """Spark's application id; empty if Spark was not needed, or not used."""
    failed: dict[str, KctlError] = field(default_factory=dict)
    """Why some of the topics could not be exported; the others were."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of the steps: plan, start, run; with --mode upsert also state."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks of a run."""

    on_plan: Callable[[Plan, Origin], None]
    """A batch is about to start."""
    on_progress: Callable[[JobProgress], None]
    on_note: Callable[[str], None] = lambda text: None
    """The engine waits for something."""


class Exporter:
    """One run.

    `files`, `look`, `sample`, `take`, `starts`, `start_runner` and `write_letters` are its ports; the defaults are the
    real ones.
    """

    def __init__(
        self,
        request: ExportRequest,
        clock: Clock,
        *,
        files: Files | None = None,
        look: Callable[[ExportRequest, Positions], ClusterView] | None = None,
        sample: Callable[[ExportRequest, Mapping[TopicPartition, list[int]]], Samples] | None = None,
        take: Callable[[ExportRequest, Plan], RecordSample] | None = None,
        starts: Callable[[ExportRequest, Collection[TopicPartition]], Mapping[TopicPartition, int]] | None = None,
        start_runner: StartEngine | None = None,
        write_letters: Callable[[ExportRequest, Files], int] | None = None,
    ) -> None:
        self._request = request
        self._clock = clock
        self._files = files or open_files(request.target)
        self._log = open_log(
            request.table,
            self._files,
            request.selection.topics,
            bucket_bytes_max=min(request.target_file_bytes, STATE_FILE_BYTES),
        )
        self._look = look or look_at_cluster
        self._sample = sample or sample_logs
        self._take = take or take_record_sample
        self._starts = starts or log_starts
        self._write_letters = write_letters
        self._decided: tuple[tuple[object, ...], dict[str, Columns]] | None = None
        self._start_runner = start_runner
        self._runner: TaskRunner | None = None
        self._on_note: Callable[[str], None] = lambda text: None
        self._stack = contextlib.ExitStack()
        self._report = ExportReport()
        self._failed_ranges: dict[TopicPartition, KctlError] = {}
        """The partitions that cannot be read, while others can be."""
        self._uncommitted: tuple[Plan, dict[str, FileOutcome]] | None = None
        """A written plan of which no part could be carried out, with the results of its tasks."""

    def plan(self) -> tuple[Plan | None, bool, list[str]]:
        """Return the first step of a run: (plan, whether it is an interrupted one, warnings).

        Changes nothing and needs no engine.  Raises as `run` does.
        """
        self._request.decoding.require_packages()
        positions = self._log.positions()
        pending = self._log.pending(positions)
        inventory = self._check_files(positions, pending)
        if pending:
            return pending, True, self._report.warnings
        if inventory.unknown:
            view = self._look(self._request, positions)
            return self._adoption_plans(inventory.unknown, positions, view)[0], False, self._report.warnings
        view = self._plannable(positions)
        return self._make_plan(positions, view), False, self._report.warnings

    @property
    def failed(self) -> dict[str, KctlError]:
        """Why topics cannot be exported, while others can be."""
        return self._report.failed

    def run(self, listener: Listener) -> ExportReport:
        """Export new records.

        Raises DataLoss, Locked, LostRace, UnknownFiles, PackageMissing, SparkMissing, SparkFailed, UsageError,
        ClusterUnreachable, ApiError and other KctlErrors; a written plan stays pending then.
        """
        self._on_note = listener.on_note
        if self._start_runner is None:
            require_engine(self._request.engine)
        self._request.decoding.require_packages()
        if self._request.dead_letter_topic and self._write_letters is None:
            from kctl.tables.exports.dead_letter_topic import check_dead_letter_topic  # noqa: PLC0415 - only this option

            check_dead_letter_topic(self._request)
        with self._stack:
            view = self._prepare_new_folder() if self._log.is_new() else None
            self._log.create()
            # The engine ends before the lock is released.
            with self._log.lock(), self._stack:
                self._run_locked(view, listener)
                self._write_dead_letters()
        return self._report

    def _prepare_new_folder(self) -> ClusterView:
        """Perform all steps that may fail before the folder is created."""
        inventory = self._log.inventory(Positions(), None, self._request.selection.topics)
        if inventory.unknown and not (self._request.adopts and inventory.may_adopt):
            raise UnknownFiles(inventory.unknown_text())
        with self._timed("plan"):
            view = self._look(self._request, Positions()) if inventory.unknown else self._plannable(Positions())
            plan, _ = self._plan_from(Positions(), view)
            plan = self._with_columns(plan, Positions()) if plan else None
        if plan and plan.file_count:
            self._started_runner()
        return view

    def _run_locked(self, view: ClusterView | None, listener: Listener) -> None:
        positions = self._log.positions()
        pending = self._log.pending(positions)
        if positions.last_batch >= 0 or pending:
            # Another exporter has used the new folder meanwhile.  Its records may be beyond the ends in this older
            # view, which would be taken for a truncated topic.
            view = None
        inventory = self._check_files(positions, pending)
        self._log.remove_unfinished({*positions.topics, *(pending.topics if pending else ())})
        if pending:
            positions = self._carry_out(pending, positions, listener, Origin.INTERRUPTED)
        try:
            with self._timed("plan"):
                if view is None:
                    view = self._look(self._request, positions) if inventory.unknown else self._plannable(positions)
        except ApiError:
            self._report_failures()  # why the interrupted batch cannot be finished says more
            raise
        if inventory.unknown:
            positions = self._adopt(inventory.unknown, positions, view, listener)
        self._export_new(view, positions, listener)
        self._report_failures()

    def _export_new(self, view: ClusterView, positions: Positions, listener: Listener) -> None:
        """Export the new records; again without the partitions that cannot be read, as long as there are others."""
        while True:
            known = len(self._failed_ranges)
            rest = without_partitions(view, self._failed_ranges)
            with self._timed("plan"):
                plan = self._make_plan(positions, rest)
                if plan is not None and self._uncommitted is not None:
                    positions = self._abandon(positions)
                    plan = self._make_plan(positions, rest)
            if plan is None:
                return
            if self._begin(plan):
                positions = self._carry_out(plan, positions, listener, Origin.NEW)
            if len(self._failed_ranges) == known:
                return
            positions = self._log.positions()  # on which the next commit is based

    def _report_failures(self) -> None:
        """Raise the first error if nothing was exported; otherwise errors are reported by topic."""
        if self._failed_ranges and not self._report.batches and not self._report.failed:
            raise merged_errors(self._failed_ranges.values())
        for topic in sorted({tp.topic for tp in self._failed_ranges}):
            errors = [error for tp, error in self._failed_ranges.items() if tp.topic == topic]
            self._report.failed[topic] = merged_errors(errors)

    def _abandon(self, positions: Positions) -> Positions:
        """End the plan of which no part could be carried out; its records are planned again."""
        assert self._uncommitted is not None
        plan, outcomes = self._uncommitted
        self._uncommitted = None
        return self._log.abandon(plan, positions, now_ms=self._clock.now_ms(), dropped=_paths_of(outcomes.values()))

    def _write_dead_letters(self) -> None:
        """Write the dead letters of this run, and those of an interrupted one, to their topic."""
        if not self._request.dead_letter_topic:
            return
        from kctl.tables.exports.dead_letter_topic import write_dead_letters  # noqa: PLC0415 - only this option

        write = self._write_letters or write_dead_letters
        count = write(self._request, self._files)
        if count:
            self._on_note(f"{counted(count, 'dead letter')} written to the topic {self._request.dead_letter_topic}")

    def _plannable(self, positions: Positions) -> ClusterView:
        """Return the selected topics, from here on without those that cannot be planned while others can be.

        Raises what planning raises for the only topic, for each one, or for all together.
        """
        try:
            return self._planned_view(self._request, positions)
        except ClusterUnreachable:
            raise
        except KctlError:
            failed = self._failed_alone(positions)
            topics = [topic for topic in self._request.selection.topics if topic not in failed]
            if not failed or not topics:
                raise
        self._report.failed |= failed
        self._request = _of_topics(self._request, topics)
        return self._planned_view(self._request, positions)

    def _planned_view(self, request: ExportRequest, positions: Positions) -> ClusterView:
        """Return the topics of the request, for which there can be a plan."""
        view = without_partitions(self._look(request, positions), self._failed_ranges)
        plan, _ = self._plan_from(positions, view)
        self._check_formats(view, plan, positions)
        if plan is not None:
            self._with_columns(plan, positions)
        return view

    def _failed_alone(self, positions: Positions) -> dict[str, KctlError]:
        """Return the topics that cannot be planned each by itself, and why.  Raises ClusterUnreachable."""
        failed: dict[str, KctlError] = {}
        for topic in self._request.selection.topics:
            try:
                self._planned_view(_of_topics(self._request, [topic]), positions)
            except ClusterUnreachable:
                raise
            except KctlError as error:
                failed[topic] = error
        return failed

    def _check_files(self, positions: Positions, pending: Plan | None) -> Inventory:
        """Return the inventory; raise DataLoss for missing committed files, UnknownFiles for files without a commit."""
        inventory = self._log.inventory(positions, pending, self._request.selection.topics)
        if loss := inventory.loss_text():
            if self._request.on_data_loss is OnDataLoss.FAIL:
                raise DataLoss(loss)
            self._report.warnings.append(loss)
        if inventory.unknown and not (self._request.adopts and inventory.may_adopt):
            raise UnknownFiles(inventory.unknown_text())
        return inventory

    def _adopt(self, paths: tuple[str, ...], positions: Positions, view: ClusterView, listener: Listener) -> Positions:
        """Adopt files that no commit names; return the new positions."""
        for plan in self._adoption_plans(paths, positions, view):
            if not self._begin(plan):
                raise merged_errors(self._failed_ranges.values())
            positions = self._carry_out(plan, positions, listener, Origin.ADOPTED)
        return positions

    def _adoption_plans(self, paths: tuple[str, ...], positions: Positions, view: ClusterView) -> list[Plan]:
        return plan_adoption(
            find_files(self._files, paths),
            positions,
            cluster_id=view.cluster_id,
            options=self._request.options,
            now_ms=self._clock.now_ms(),
        )

    def _begin(self, plan: Plan) -> bool:
        """Write the plan; from here on it is executed by this run or the next one.

        False if offsets of it are gone meanwhile: then it must be made again without their partitions.
        """
        if plan.file_count:
            self._started_runner()
        # The start of Spark gives retention some time.
        if isinstance(self._request.engine, SparkSettings) and (losses := self._losses(plan)):
            self._failed_ranges |= losses
            return False
        self._log.write_plan(plan)
        return True

    def _losses(self, plan: Plan) -> dict[TopicPartition, KctlError]:
        """Return the partitions of which planned offsets are gone, unless that is tolerated.

        Tasks notice it as well.
        """
        if self._request.on_data_loss is OnDataLoss.WARN:
            return {}
        ranges = [range_ for task in self._tasks(plan) if not is_finished(task, self._files) for range_ in task.ranges]
        starts = self._starts(self._request, sorted({range_.tp for range_ in ranges})) if ranges else {}
        losses: dict[TopicPartition, KctlError] = {}
        for range_ in ranges:
            start = starts.get(range_.tp, range_.start)
            if start > range_.start:
                last = min(start, range_.end) - 1
                text = f"{range_.tp}: offsets {range_.start} to {last} are gone, the log starts at {start} now"
                losses.setdefault(range_.tp, DataLoss(text))
        return losses

    def _tasks(self, plan: Plan) -> list[FileTask]:
        table = self._request.table
        return tasks_of(
            plan,
            self._request.target,
            self._request.client,
            may_skip=self._request.on_data_loss is OnDataLoss.WARN,
            skips_corrupt=self._request.on_corrupt_batch is OnCorruptBatch.SKIP,
            keeps_bad=self._request.decoding.keeps_bad,
            is_for_table=table.kind is not TableKind.PARQUET,
            has_incarnation_column=table.has_incarnation_column,
            partition_by=table.partition_by,
            rows=table.rows,
            layout=table.layout,
            headers=table.headers,
            letters_have_headers=bool(self._request.dead_letter_topic),
            upsert=table.upsert,
        )

    def _carry_out(self, plan: Plan, positions: Positions, listener: Listener, origin: Origin) -> Positions:
        """Execute a written plan and commit it, up to the ranges that cannot be exported."""
        listener.on_plan(plan, origin)
        outcomes: dict[str, FileOutcome] = {}
        if plan.file_count:
            tasks = self._tasks(plan)
            runner = self._started_runner()
            with self._timed("run"):
                outcomes = runner.run(tasks, listener.on_progress)
        finished = plan
        if failed := failed_ranges(outcomes):
            self._failed_ranges |= failed
            finished = plan.without_files({path for path, outcome in outcomes.items() if outcome.failure})
            if not finished.ranges:
                self._uncommitted = plan, outcomes
                return positions
        left = _paths_of(outcomes[path] for path in plan.shares().keys() - finished.shares().keys())
        self._check_misfits(outcomes.values())
        with self._timed("state") if self._request.table.upsert else contextlib.nullcontext():
            committed, after = self._commit(finished, outcomes, positions, left)
        outcomes = {path: outcomes[path] for path in committed.shares()}
        self._report.warnings += sorted({outcome.message for outcome in outcomes.values() if outcome.message})
        self._report.warnings += [
            unreadable_text(range_) for outcome in outcomes.values() for range_ in outcome.unreadable
        ]
        # Files of tasks that failed and were repeated.
        self._log.remove_unfinished(committed.topics)
        keys = {topic: keys for topic, keys in self._log.changed_keys.items() if topic in committed.topics}
        self._report.warnings += [note for topic, changed in keys.items() for note in changed.notes(topic)]
        self._report.batches.append(FinishedBatch(plan=committed, outcomes=outcomes, origin=origin, keys=keys))
        return after

    def _check_misfits(self, outcomes: Iterable[FileOutcome]) -> None:
        """Raise TooManyMisfits before a batch with more than --max-misfits is committed."""
        misfits = [misfit for outcome in outcomes for misfit in outcome.misfits if misfit.type]
        count = sum(misfit.values for misfit in misfits)
        if self._request.misfits_max is not None and count > self._request.misfits_max:
            raise TooManyMisfits(
                f"{counted(count, 'value')} of the batch cannot be in their columns, more than --max-misfits "
                f"{self._request.misfits_max}: {misfit_text(misfits[0])}"
            )

    def _commit(
        self, plan: Plan, outcomes: Mapping[str, FileOutcome], positions: Positions, left: Collection[str]
    ) -> tuple[Plan, Positions]:
        """Commit the parts of the plan whose tasks have succeeded; return what was committed, and the new positions.

        `left` are finished files that are not in the plan.  Raises the first error if nothing was committed; otherwise
        it is in the report, by topic.
        """
        failed: dict[str, KctlError] = {}
        for part in self._log.commits_of(plan):
            of_part = {path: outcomes[path] for path in part.shares()}
            try:
                check_outcomes(of_part)
                now_ms = self._clock.now_ms()
                positions = self._log.write_commit(part, of_part, positions, now_ms=now_ms, dropped=left)
            except KctlError as error:
                failed |= dict.fromkeys(part.topics, error)
        if len(failed) == len(plan.topics):
            check_outcomes({path: outcomes[path] for path in plan.shares()})
            raise next(iter(failed.values()))
        self._report.failed |= failed
        return plan.of_topics([topic for topic in plan.topics if topic not in failed]), positions

    def _make_plan(self, positions: Positions, view: ClusterView) -> Plan | None:
        """Return the next batch; large ranges are sampled first, so that they are cut by size."""
        plan, warnings = self._plan_from(positions, view)
        if plan and (selection := _sample_offsets(plan)):
            plan, warnings = self._plan_from(positions, with_samples(view, self._sample(self._request, selection)))
        self._report.warnings += warnings
        return self._log.placed(self._with_columns(plan, positions)) if plan else None

    def _check_formats(self, view: ClusterView, plan: Plan | None, positions: Positions) -> None:
        """Refuse formats that topics without new records do not have in the export; the others are decided."""
        planned = plan.topics if plan else ()
        settled = [topic for topic in view.topics if topic not in planned]
        check_held(self._request.decoding, settled, positions.columns, self._registry())

    def _registry(self) -> RegistryClient | None:
        return RegistryClient(self._request.registry) if self._request.registry else None

    def _with_columns(self, plan: Plan, positions: Positions) -> Plan:
        """Return the plan with decodings; they are decided once for the same topics and columns of the export.

        Raises BadRecords if a record of the sample does not fit, unless such records are kept.
        """
        decided_for = (list(plan.topics), positions.columns)
        if self._decided is None or self._decided[0] != decided_for:
            columns, notes = decided_columns(self._request, plan, positions, self._take, self._registry())
            self._report.warnings += notes
            self._decided = decided_for, columns
        return plan.with_columns(self._decided[1])

    def _plan_from(self, positions: Positions, view: ClusterView) -> tuple[Plan | None, list[str]]:
        request = self._request
        plan, losses = make_plan(
            positions,
            view,
            options=request.options,
            split=SplitRule(target_file_bytes=request.target_file_bytes, parallelism=request.engine.parallelism),
            on_data_loss=request.on_data_loss,
            now_ms=self._clock.now_ms(),
        )
        return plan, losses

    def _started_runner(self) -> TaskRunner:
        """Return the runner, started with the first batch and kept for the second."""
        if self._runner is None:
            with self._timed("start"):
                start = self._start_runner or start_engine
                self._runner = self._stack.enter_context(start(self._request.engine, self._on_note))
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


def _paths_of(outcomes: Iterable[FileOutcome]) -> list[str]:
    """Return the files that tasks have finished."""
    found = [[*outcome.written, *([outcome.dead_letters] if outcome.dead_letters else [])] for outcome in outcomes]
    return [file.path for files in found for file in files]


def merged_errors(errors: Collection[KctlError]) -> KctlError:
    """Return the first error, of the most severe kind, with the number of the others."""
    first = next((error for error in errors if not isinstance(error, (DataLoss, BadRecords))), next(iter(errors)))
    return first if len(errors) == 1 else type(first)(f"{first} (and {len(errors) - 1} more)")


def misfit_text(misfit: Misfit) -> str:
    """Return a text about the values of a column that are in the rest."""
    rest = f"{misfit.column.partition('.')[0]}_rest"
    why = f"not {misfit.type}" if misfit.type else "without a column"
    values = counted(misfit.values, f"value of {misfit.column} is", f"values of {misfit.column} are")
    first = f"{TopicPartition(misfit.topic, misfit.partition)} at offset {misfit.offset}"
    return f"{values} {why}, and in {rest}: the first is in {first}"


def unreadable_text(found: Unreadable) -> str:
    """Return a text about what was left out."""
    size = "of unknown size" if found.size is None else counted(found.size, "byte")
    return f"{found.tp}: offsets {found.start} to {found.end - 1} ({size}) were left out: {found.reason}"


def _of_topics(request: ExportRequest, topics: list[str]) -> ExportRequest:
    return replace(request, selection=replace(request.selection, topics=topics))


def _sample_offsets(plan: Plan) -> dict[TopicPartition, list[int]]:
    """Return the offsets in every range that is cut into several files."""
    return {
        range_.tp: sample_offsets(range_.start, range_.end, len(range_.files))
        for range_ in plan.ranges
        if len(range_.files) > 1
    }

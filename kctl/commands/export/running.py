"""Runs, plans and repeats an export, and shows its progress and result."""

from __future__ import annotations

import contextlib
import shlex
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kctl.client.registry.schema import RegistryUnreachable, SchemaError
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.invocation import Invocation
from kctl.commands.reading.searches import NamePattern
from kctl.errors import KctlError
from kctl.output.quantities import counted
from kctl.server.loop.tasks import SystemClock
from kctl.tables.commits.commit_log import BrokenExportFolder, LostRace
from kctl.tables.commits.inventory import UnknownFiles
from kctl.tables.compaction.bins import KEEP_MS, MaintainedStep
from kctl.tables.engines.engine import Pace, require_engine
from kctl.tables.engines.session import SparkMissing, SparkSettings, require_spark
from kctl.tables.engines.submission import submit, without_secrets
from kctl.tables.exec.outcome import BadRecords, CorruptRecords, DataLoss, TooManyMisfits
from kctl.tables.exec.targets.files import Locked
from kctl.tables.exec.targets.target import PackageMissing, open_files
from kctl.tables.exports.cluster_reads import topic_names
from kctl.tables.exports.export import Exporter, Listener, misfit_text
from kctl.tables.exports.summary import (
    ExportSummary,
    RangeRow,
    bad_reasons,
    columns_of,
    document,
    misfits_of,
    planned_rows,
    rows_of,
    sentence,
)
from kctl.tables.plans.following import FollowState
from kctl.tables.plans.request import ExportRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kctl.output.console import Progress
    from kctl.tables.engines.job import JobProgress
    from kctl.tables.exports.export import ExportReport, Origin
    from kctl.tables.plans.plan import Plan

_CORRUPT_HINT = "; --on-corrupt-batch=skip leaves it out"


class Rounds(NamedTuple):
    """The options of --follow."""

    topic_regex: str | None
    """Selects the topics of each round; None for those of the request."""
    every_ms: int
    metrics_host: str
    metrics_port: int | None
    maintain_every_ms: int | None = None
    """Time between two maintenances of the tables; None for no maintenance."""


def run_export(
    run: Invocation,
    request: ExportRequest,
    command: list[str],
    rounds: Rounds | None,
    *,
    dry_run: bool,
    show_progress: bool,
) -> ExitStatus:
    """Run or plan the export; return the exit status for errors that only exports have."""
    try:
        if dry_run:
            if command:
                run.console.note(shlex.join(without_secrets(command)))
            return _show_plan(run, request)
        if isinstance(request.engine, SparkSettings) and request.engine.is_cluster_mode:
            require_spark()
            if status := submit(command):
                run.console.fail("SPARK_SUBMIT", f"spark-submit ended with status {status}; its output has the reason")
            return ExitStatus.FAILED if status else ExitStatus.DONE
        if rounds is not None:
            _follow(run, request, rounds, show_progress=show_progress)
            return ExitStatus.DONE
        return _export(run, request, show_progress=show_progress)
    except DataLoss as error:
        run.console.fail("DATA_LOSS", f"{error}; --on-data-loss=warn exports the records that exist")
        return ExitStatus.UNMET
    except BadRecords as error:
        run.console.fail("BAD_RECORDS", f"{error}; --on-bad-record=dead-letter keeps such records in DIR/_dead_letters")
        return ExitStatus.UNMET
    except TooManyMisfits as error:
        run.console.fail("TOO_MANY_MISFITS", f"{error}; nothing is committed")
        return ExitStatus.UNMET
    except CorruptRecords as error:
        run.console.fail("CORRUPT_RECORDS", f"{error}{_CORRUPT_HINT}")
        return ExitStatus.FAILED
    except (SchemaError, RegistryUnreachable) as error:
        run.console.fail("SCHEMA_REGISTRY", str(error))
        return ExitStatus.FAILED
    except SparkMissing as error:
        run.console.fail("SPARK_MISSING", str(error))
        return ExitStatus.FAILED
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    except (BrokenExportFolder, Locked, LostRace, UnknownFiles) as error:
        raise Refused(str(error)) from None


def _show_plan(run: Invocation, request: ExportRequest) -> ExitStatus:

    exporter = Exporter(request, SystemClock())
    plan, is_pending, warnings = exporter.plan()
    for warning in [*warnings, *_failures(exporter.failed)]:
        run.console.warn(warning)
    rows = planned_rows(plan, is_pending=is_pending) if plan else []
    for column in columns_of([plan] if plan else []):
        run.console.note(f"column of {column.topic}: {column.name} {column.type}")
    if plan is None:
        run.console.note("nothing new")
    elif is_pending:
        run.console.note(f"batch {plan.batch} was interrupted; the next run completes it before it exports new records")
    _show(run, document(request, rows, None, plan, failed=exporter.failed), rows)
    return _status_of(exporter.failed)


def _export(run: Invocation, request: ExportRequest, *, show_progress: bool) -> ExitStatus:

    with contextlib.ExitStack() as stack:
        notes = _ProgressNotes(run, stack, show_progress=show_progress)
        report = Exporter(request, SystemClock()).run(Listener(notes.on_plan, notes.on_progress, notes.on_note))
    _show_report(run, request, report)
    return _status_of(report.failed)


def _failures(failed: Mapping[str, KctlError]) -> list[str]:
    return [
        f"topic {topic} is not exported completely: {error}{_CORRUPT_HINT if isinstance(error, CorruptRecords) else ''}"
        for topic, error in failed.items()
    ]


def _status_of(failed: Mapping[str, KctlError]) -> ExitStatus:
    """Return the exit status of an export without some of its topics."""
    if not failed:
        return ExitStatus.DONE
    is_loss = all(isinstance(error, (DataLoss, BadRecords)) for error in failed.values())
    return ExitStatus.UNMET if is_loss else ExitStatus.FAILED


def _follow(run: Invocation, request: ExportRequest, rounds: Rounds, *, show_progress: bool) -> None:
    from kctl.commands.export.follow import FollowMetrics, Maintenance, follow  # noqa: PLC0415 - imports asyncio and HTTP

    def listener(stack: contextlib.ExitStack) -> Listener:
        notes = _ProgressNotes(run, stack, show_progress=show_progress)
        return Listener(notes.on_plan, notes.on_progress, notes.on_note)

    def show(report: ExportReport) -> None:
        if report.batches or report.warnings or report.failed:
            _show_report(run, request, report)
            run.console.header = None if run.console.header else run.console.header

    def next_request() -> ExportRequest:
        if rounds.topic_regex is None:
            return request
        names = NamePattern("--topic-regex", rounds.topic_regex).select(topic_names(request.client))
        if not names:
            raise KctlError(f"no topic matches --topic-regex '{rounds.topic_regex}'")
        return replace(request, selection=replace(request.selection, topics=sorted(names)))

    require_engine(request.engine)
    with FollowMetrics(FollowState(every_ms=rounds.every_ms)) as metrics:
        if rounds.metrics_port is not None:
            port = metrics.serve(rounds.metrics_host, rounds.metrics_port)
            host = f"[{rounds.metrics_host}]" if ":" in rounds.metrics_host else rounds.metrics_host
            run.console.note(f"serving http://{host}:{port}/metrics")
        every_ms = rounds.maintain_every_ms
        maintenance = None if every_ms is None else Maintenance(every_ms, partial(_maintain, request))
        follow(run, next_request, metrics, listener, show, maintenance)


def _maintain(request: ExportRequest) -> list[MaintainedStep]:
    from kctl.tables.compaction.maintenance import MaintainRequest, maintain_export  # noqa: PLC0415 - imports pyarrow

    table = request.table
    maintained = MaintainRequest(
        target_bytes=request.target_file_bytes, keep_ms=KEEP_MS, catalog=table.catalog, namespace=table.namespace
    )
    return maintain_export(maintained, open_files(request.target), SystemClock())


def _show_report(run: Invocation, request: ExportRequest, report: ExportReport) -> None:
    for warning in [*report.warnings, *_failures(report.failed)]:
        run.console.warn(warning)
    for reason, count in bad_reasons(report).items():
        undecoded = counted(count, "record could not be decoded and is", "records could not be decoded and are")
        run.console.warn(f"{undecoded} in {request.target}/_dead_letters: {reason}")
    for misfit in misfits_of(report):
        run.console.warn(misfit_text(misfit))
    rows = rows_of(report)
    _show(run, document(request, rows, report, failed=report.failed), rows)
    run.console.note(sentence(rows, report))


class _ProgressNotes:
    """Notes and progress on stderr while an export runs."""

    def __init__(self, run: Invocation, stack: contextlib.ExitStack, *, show_progress: bool) -> None:
        self._run = run
        self._stack = stack
        self._is_shown = show_progress
        self._progress: Progress | None = None
        self._pace: Pace | None = None

    def on_plan(self, plan: Plan, origin: Origin) -> None:
        doing = {"recovered": "finishing interrupted", "adopted": "adopting files as"}.get(origin, "exporting")
        self._run.console.note(
            f"{doing} batch {plan.batch}: {counted(plan.offset_count, 'offset')}"
            f" of {counted(len(plan.ranges), 'partition')} into {counted(plan.file_count, 'file')}"
        )
        if self._is_shown:
            progress = self._run.console.progress("exported", plan.offset_count, unit="offsets")
            self._progress = self._stack.enter_context(progress)
            self._pace = Pace(plan.offset_count, start_s=time.monotonic())

    def on_progress(self, done: JobProgress) -> None:
        if self._progress is not None and self._pace is not None:
            offsets, note = self._pace.observe(done, now_s=time.monotonic())
            self._progress.update(offsets, note=note)

    def on_note(self, text: str) -> None:
        if self._progress is not None:
            self._progress.hide()
        self._run.console.note(text)


def _show(run: Invocation, summary: ExportSummary, rows: list[RangeRow]) -> None:
    if run.console.format.is_document:
        run.console.show_one(summary)
    else:
        run.console.show(RangeRow, rows)

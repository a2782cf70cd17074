"""`kctl export --follow`: rounds of an export until a signal ends it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

from kctl.client.registry.schema import RegistryUnreachable
from kctl.commands.export.metrics import FollowMetrics as FollowMetrics  # noqa: PLC0414 - for the command
from kctl.commands.frame.invocation import Invocation
from kctl.errors import ApiError, ClusterUnreachable, KctlError
from kctl.output.quantities import format_duration
from kctl.server.loop.tasks import SystemClock
from kctl.tables.compaction.bins import MaintainedStep
from kctl.tables.engines.engine import EngineSettings, start_engine
from kctl.tables.engines.job import TaskRunner
from kctl.tables.engines.session import SparkFailed
from kctl.tables.exec.outcome import CorruptRecords
from kctl.tables.exec.targets.files import StoreFailed
from kctl.tables.exports.export import Exporter, ExportReport, Listener
from kctl.tables.exports.summary import RangeRow, rows_of
from kctl.tables.formats.table import TableFailed
from kctl.tables.plans import following
from kctl.tables.plans.following import TopicCounts
from kctl.tables.plans.request import ExportRequest

RETRIED = (CorruptRecords, ClusterUnreachable, TimeoutError, SparkFailed, StoreFailed, RegistryUnreachable)


def follow(
    run: Invocation,
    next_request: Callable[[], ExportRequest],
    metrics: FollowMetrics,
    listener: Callable[[contextlib.ExitStack], Listener],
    show: Callable[[ExportReport], None],
    maintenance: Maintenance | None = None,
) -> None:
    """Export until SIGINT or SIGTERM, which end it after the current commit.

    `next_request` returns the request of a round, whose topics may differ from those of the one before.  `listener`
    makes the listener of a round, whose resources are released at its end.  `maintenance` is carried out between
    rounds; its errors are warnings, and the next one repeats it.  Raises what the first round raises, and
    later errors that a retry cannot resolve.
    """
    clock = SystemClock()
    with StopSignals() as stop, _Engine() as engine:
        while not stop.is_requested:
            metrics.state = following.started(metrics.state, clock.monotonic_ms())
            try:
                with contextlib.ExitStack() as stack:
                    exporter = Exporter(next_request(), clock, start_runner=engine.start)
                    report = exporter.run(_observed(listener(stack), metrics))
            except (KctlError, OSError) as error:
                if not metrics.state.rounds or not is_retried(error):
                    raise
                engine.close()
                now_ms = clock.monotonic_ms()
                metrics.state = following.failed(metrics.state, str(error), now_ms)
                run.console.warn(f"{error}; the next round starts in {(metrics.state.due_ms - now_ms) // 1000} s")
            else:
                counts = counts_of(rows_of(report))
                now_ms = clock.monotonic_ms()
                metrics.state = following.succeeded(
                    metrics.state, counts, now_ms, commits=len(report.batches), incomplete=report.failed
                )
                show(report)
                run.console.flush()
                if maintenance is not None:
                    _maintain(run, maintenance, metrics, clock)
            stop.wait((metrics.state.due_ms - clock.monotonic_ms()) / 1000)


class Maintenance(NamedTuple):
    """What is done with the tables of an export from time to time."""

    every_ms: int
    carry_out: Callable[[], list[MaintainedStep]]


def _maintain(run: Invocation, maintenance: Maintenance, metrics: FollowMetrics, clock: SystemClock) -> None:
    if not following.is_maintenance_due(metrics.state, maintenance.every_ms, clock.monotonic_ms()):
        return
    try:
        for step in maintenance.carry_out():
            if step.removed:
                run.console.note(f"maintenance of {step.table}: {step.step}: {step.removed}")
    except (KctlError, OSError) as error:
        run.console.warn(f"maintenance: {error}; it is repeated after {format_duration(maintenance.every_ms)}")
    metrics.state = following.maintained(metrics.state, clock.monotonic_ms())


def is_retried(error: Exception) -> bool:
    """Return whether the next round may succeed: errors of the network, of brokers, stores, processes and disks."""
    if isinstance(error, ApiError):
        return error.code.retriable
    if isinstance(error, TableFailed):
        return not isinstance(error.__cause__, FileNotFoundError)  # metadata that was lost
    return isinstance(error, (*RETRIED, OSError)) or type(error) is KctlError


def counts_of(rows: Iterable[RangeRow]) -> dict[str, TopicCounts]:
    """Return the counts of a round, by topic."""
    counts: dict[str, TopicCounts] = {}
    for row in rows:
        before = counts.get(row.topic, TopicCounts())
        counts[row.topic] = before.plus(TopicCounts(row.records or 0, row.bytes_in or 0, row.lost, row.bad or 0))
    return counts


def _observed(listener: Listener, metrics: FollowMetrics) -> Listener:
    def on_plan(plan: Any, origin: Any) -> None:
        metrics.state = following.planned(metrics.state, plan)
        listener.on_plan(plan, origin)

    return Listener(on_plan, listener.on_progress, listener.on_note)


class _Engine:
    """The engine of all rounds, started when the first one needs it and again after a failure."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._runner: TaskRunner | None = None

    @contextlib.contextmanager
    def start(self, settings: EngineSettings, on_note: Callable[[str], None]) -> Iterator[TaskRunner]:
        """See Exporter; the engine outlives the round."""
        if self._runner is None:
            self._runner = self._stack.enter_context(start_engine(settings, on_note))
        yield self._runner

    def close(self) -> None:
        """End the engine."""
        self._runner = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StopSignals:
    """SIGINT and SIGTERM as a request to end; the second signal has its usual effect."""

    def __init__(self) -> None:
        self.is_requested = False
        self._before: dict[int, Any] = {}
        self._read, self._write = os.pipe()

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):  # shells let programs in the background ignore SIGINT
                self._before[number] = handler
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def wait(self, duration_s: float) -> None:
        """Return after this time, or when a signal arrives."""
        select.select([self._read], [], [], max(duration_s, 0))

    def _on_signal(self, number: int, frame: Any) -> None:
        if self.is_requested:
            self._before[number](number, frame)
        self.is_requested = True
        os.write(self._write, b"\0")

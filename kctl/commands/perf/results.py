"""Rows of `kctl perf`: intermediate results, the total, and the histogram."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple

from kctl.admin.perf.load_client import LoadRun
from kctl.admin.perf.measurement import NS_PER_S, LatencyHistogram, Load, Measurement, Summary
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.termination import noted_signals, terminable
from kctl.errors import KctlError
from kctl.output.console import JSON_ONLY, Column, Format, RowStream
from kctl.output.quantities import counted

MB = 1_000_000


class BucketRow(NamedTuple):
    """How many records had a latency in a range; `up_to_percent` counts this and all smaller latencies."""

    from_ms: float
    to_ms: float
    records: int
    percent: float
    up_to_percent: float


class ResultRow(NamedTuple):
    """The measurements of an interval, or of the whole run.  MB are 1,000,000 bytes; latencies are null if none is
    known.

    The histogram is that of the total with --histogram, and otherwise null.
    """

    kind: str
    client: str
    seconds: float
    records: int
    bytes: Annotated[int, JSON_ONLY]
    errors: int
    records_per_s: float
    mb_per_s: float
    mean_ms: Annotated[float | None, Column(is_rare=True)]
    p50_ms: Annotated[float | None, Column(is_rare=True)]
    p95_ms: Annotated[float | None, Column(is_rare=True)]
    p99_ms: Annotated[float | None, Column(is_rare=True)]
    p999_ms: Annotated[float | None, Column(is_rare=True)]
    max_ms: Annotated[float | None, Column(is_rare=True)]
    histogram: Annotated[list[BucketRow] | None, JSON_ONLY] = None


class Results:
    """Shows results while a load runs, and the total at its end, also when it is interrupted."""

    def __init__(self, run: Invocation, client: str, load: Load, *, interval_ns: int, histogram: bool) -> None:
        self._run = run
        self._console = run.console
        self._client = client
        self._histogram = histogram
        self._load = load
        self._interval_ns = interval_ns
        self._measured = Measurement(0)
        self._stream: RowStream | None = None
        self._raise_if_interrupted: Callable[[], None] = _return

    def _begin(self) -> LoadRun:
        if self._console.format is Format.JSONL or (self._console.format is Format.PLAIN and not self._histogram):
            self._stream = self._console.stream(ResultRow).__enter__()
        now_ns = time.perf_counter_ns()
        self._measured = Measurement(now_ns, warmup_ns=self._load.warmup_ns, interval_ns=self._interval_ns)
        return LoadRun(self._load, self._measured, self._report, terminable)

    def _report(self) -> None:
        """Show an interval when it is over: a row of plain and jsonl, else a note.  Raises KeyboardInterrupt."""
        self._raise_if_interrupted()
        summary = self._measured.interval(time.perf_counter_ns())
        if summary is None:
            return
        row = _row("interval", self._client, summary)
        if self._stream is not None:
            self._stream.write(row)
            self._console.flush()
        else:
            self._console.note(_text(row))

    @contextlib.contextmanager
    def shown(self) -> Iterator[LoadRun]:
        """Start the measurement; show the total at the end, also when the run was interrupted or failed."""
        try:
            with noted_signals() as self._raise_if_interrupted:
                yield self._begin()
        except KeyboardInterrupt:
            self._run.changes = None
            self._console.note("interrupted; this is what was measured until then")
            self._show()
            raise
        except KctlError:
            if not self._console.format.is_document:  # where the one document describes the error
                self._show()
            raise
        self._show()

    def status(self) -> ExitStatus:
        """FAILED if a record was not written; warns with the first reason."""
        total = self._measured.total()
        if not total.errors:
            return ExitStatus.DONE
        self._console.warn(
            f"{counted(total.errors, 'record was', 'records were')} not written: {self._measured.first_error}"
        )
        return ExitStatus.FAILED

    def _show(self) -> None:
        total = self._measured.total()
        row = _row("total", self._client, total)
        buckets = _buckets(total.latencies) if self._histogram else None
        if self._console.is_machine_readable:
            self._console.show_one(row._replace(histogram=buckets))
            return
        if buckets is not None and self._console.format is not Format.TABLE:
            # A program reads one table: that of the histogram.
            self._console.note(f"total of {row.client}: {counted(row.records, 'record')}, {_text(row)}")
            self._console.show(BucketRow, buckets)
            return
        if self._stream is not None:
            self._stream.write(row)
        else:
            self._console.show(ResultRow, [row])
        if buckets is not None:
            self._console.text("")
            self._console.show(BucketRow, buckets)


def _return() -> None:
    """Return at once: no signal is noted before a run."""


def _text(row: ResultRow) -> str:
    """Return the rates and latencies in words."""
    latency = "" if row.p99_ms is None else f", p50 {row.p50_ms} ms, p99 {row.p99_ms} ms, max {row.max_ms} ms"
    return f"{row.records_per_s:,.0f} records/s, {row.mb_per_s:,.2f} MB/s{latency}"


def _row(kind: str, client: str, summary: Summary) -> ResultRow:
    p50, p95, p99, p999 = (_ms(summary.latencies.quantile_us(share)) for share in (0.5, 0.95, 0.99, 0.999))
    return ResultRow(
        kind=kind,
        client=client,
        seconds=round(summary.elapsed_ns / NS_PER_S, 3),
        records=summary.records,
        bytes=summary.bytes,
        errors=summary.errors,
        records_per_s=round(summary.records_per_s, 1),
        mb_per_s=round(summary.bytes_per_s / MB, 3),
        mean_ms=_ms(summary.latencies.mean_us),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        p999_ms=p999,
        max_ms=_ms(summary.latencies.max_us) if summary.latencies.count else None,
    )


def _buckets(latencies: LatencyHistogram) -> list[BucketRow]:
    rows, seen = [], 0
    for low, high, count in latencies.buckets():
        seen += count
        share, up_to = 100 * count / latencies.count, 100 * seen / latencies.count
        rows.append(BucketRow(low / 1000, high / 1000, count, round(share, 4), round(up_to, 4)))
    return rows


def _ms(value_us: float | None) -> float | None:
    return None if value_us is None else round(value_us / 1000, 3)

"""What an export did or would do, as rows and as one JSON document.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kctl.spark.commit_log import lost_in
from kctl.spark.exec.outcome import FileOutcome
from kctl.spark.export import ExportReport, ExportRequest
from kctl.spark.plan import PartitionRange, Plan

API_VERSION = "kctl/v1"
KIND = "SparkExport"

_UNITS = ("B", "kB", "MB", "GB", "TB")


def rows_of(report: ExportReport) -> list[dict[str, Any]]:
    """One row per partition and batch of what was committed."""
    return [
        _row(batch.plan, range_, batch.outcomes, "recovered" if batch.is_recovered else "exported")
        for batch in report.batches
        for range_ in batch.plan.ranges
    ]


def planned_rows(plan: Plan, *, is_pending: bool) -> list[dict[str, Any]]:
    """The same rows for a plan that is only looked at."""
    return [_row(plan, range_, {}, "interrupted" if is_pending else "planned") for range_ in plan.ranges]


def document(request: ExportRequest, rows: list[dict[str, Any]], report: ExportReport | None) -> dict[str, Any]:
    """The summary as one document; without a report it is that of a dry run."""
    totals = {
        name: sum(row[name] or 0 for row in rows) for name in ("records", "bytes_in", "bytes_out", "files", "lost")
    }
    seconds = report.seconds if report else {}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "folder": str(request.folder),
        "dry_run": report is None,
        "batches": sorted({row["batch"] for row in rows}),
        **totals,
        "records_per_second": round(totals["records"] / seconds["run"]) if seconds.get("run") else None,
        "seconds": seconds,
        "master": request.spark.master,
        "app_id": (report.app_id if report else "") or None,
        "warnings": report.warnings if report else [],
        "partitions": rows,
    }


def _row(plan: Plan, range_: PartitionRange, outcomes: Mapping[str, FileOutcome], status: str) -> dict[str, Any]:
    done = [outcomes[file.path] for file in range_.files if file.path in outcomes]
    is_planned = len(done) < len(range_.files)
    return {
        "batch": plan.batch,
        "topic": range_.tp.topic,
        "partition": range_.tp.partition,
        "start": range_.start,
        "end": range_.end,
        "records": None if is_planned else sum(one.records for one in done),
        "bytes_in": None if is_planned else sum(one.bytes_in for one in done),
        "bytes_out": None if is_planned else sum(one.bytes_out for one in done),
        "files": len(range_.files) if is_planned else sum(1 for one in done if one.path),
        "lost": range_.lost if is_planned else lost_in(range_, outcomes),
        "status": status,
    }


def sentence(rows: list[dict[str, Any]], report: ExportReport) -> str:
    """What happened, in one line for people."""
    if not rows:
        return "nothing new"
    records, bytes_out, files = (sum(row[name] for row in rows) for name in ("records", "bytes_out", "files"))
    seconds = sum(report.seconds.values())
    numbers = ", ".join(str(batch) for batch in sorted({row["batch"] for row in rows}))
    return f"{records:,} records in {files:,} files ({_size(bytes_out)}), {seconds:.1f} s, batch {numbers}"


def _size(count: float) -> str:
    if count < 1000:
        return f"{count} B"
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.1f} {_UNITS[unit]}"

"""Summary of an export or a dry run, as rows and as a JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, Self

from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.output.table import JSON_ONLY, Column, nonzero
from kctl.tables.commits.commit_json import parts_of
from kctl.tables.engines.engine import size_text
from kctl.tables.engines.session import SparkSettings
from kctl.tables.exec.outcome import REASONS_MAX, Misfit, MisfitCount, PartOutcome
from kctl.tables.exec.schema.column_types import BINARY, STRING, Format, leaves, raw_name
from kctl.tables.exports.export import ExportReport, FinishedBatch
from kctl.tables.plans.plan import PartitionRange, Plan
from kctl.tables.plans.request import ExportRequest

API_VERSION = "kctl/v1"
KIND = "SparkExport"

_Share = tuple[str, TopicPartition, int]
"""(path, partition, start): one of the ranges that share a file."""


class RangeRow(NamedTuple):
    """The offsets `start` to `end` (exclusive) of a partition in one batch; counts are None before they are known."""

    batch: int
    topic: str
    partition: int
    start: int
    end: int
    records: int | None
    bytes_in: Annotated[int | None, JSON_ONLY]
    bytes_out: int | None
    files: int
    lost: int
    replaced: Annotated[
        int, Column(is_rare=True, shown=nonzero), "Offsets whose exported rows are of records that the topic lost."
    ]
    bad: int | None
    filtered: int | None
    unreadable: Annotated[
        int | None, Column(is_rare=True, shown=nonzero), "Offsets of corrupt batches that were left out."
    ]
    status: str


class FailedTopic(NamedTuple):
    """A topic that was not exported, while others were, and why."""

    topic: str
    message: str


class MisfitRow(NamedTuple):
    """Values that are not in the column `column`, but in the rest."""

    topic: str
    column: str
    type: Annotated[str | None, "The type of the column, which the values do not have; null if there is no column."]
    values: int
    partition: Annotated[int, "Of an example, as is `offset`."]
    offset: int

    @classmethod
    def of(cls, misfit: Misfit) -> Self:
        """Return the row of a misfit."""
        return cls(*misfit)._replace(type=misfit.type or None)


class ChangedKeysRow(NamedTuple):
    """What a batch has changed in the current state of a topic by key."""

    batch: int
    topic: str
    upserted: Annotated[int, "Rows that were added or replaced."]
    deleted: Annotated[int, "Rows that were removed."]
    outdated: Annotated[int, "Changes with a lower value of --order-by than the row has."]


class ColumnRow(NamedTuple):
    """A column that keys or values are decoded to: `value.items[].price`, `double`."""

    topic: str
    name: str
    type: str


class ExportSummary(NamedTuple):
    """The summary of an export as a JSON object.  Sizes are in bytes, `seconds` is the duration of each phase."""

    apiVersion: str  # noqa: N815 - the name that Kubernetes gave this member
    kind: str
    folder: str
    table: str
    dry_run: bool
    batches: list[int]
    records: int
    bytes_in: int
    bytes_out: int
    lost: int
    replaced: Annotated[int, "Offsets whose exported rows are of records that the topic lost; the exported rows stay."]
    bad: Annotated[int, "Records that could not be decoded, which are in the dead letters."]
    filtered: Annotated[int, "Records for which --where is not true."]
    unreadable: Annotated[int, "Offsets of corrupt batches that were left out; `warnings` names them."]
    bad_reasons: Mapping[str, int]
    misfits: Annotated[
        list[MisfitRow],
        "Values of JSON that are in value_rest or key_rest, by column; of at most 101 columns per task.",
    ]
    files: int
    records_per_second: int | None
    seconds: Mapping[str, float]
    engine: Annotated[str, "local or spark."]
    master: Annotated[str | None, "Spark's master."]
    app_id: str | None
    warnings: Sequence[str]
    failed: list[FailedTopic]
    partitions: list[RangeRow]
    keys: Annotated[list[ChangedKeysRow], "With --mode upsert: what has changed in each topic."]
    columns: Annotated[list[ColumnRow], "The columns of decoded keys and values; empty if nothing is decoded."]


def rows_of(report: ExportReport) -> list[RangeRow]:
    """Return one row per partition of each committed batch."""
    return [
        _committed_row(batch, range_, parts, sizes)
        for batch in report.batches
        for sizes in [_sizes(batch)]
        for range_, parts in parts_of(batch.plan, batch.outcomes)
    ]


def planned_rows(plan: Plan, *, is_pending: bool) -> list[RangeRow]:
    """Return one row per partition of the planned batch, for a dry run."""
    status = "interrupted" if is_pending else "planned"
    return [
        RangeRow(
            batch=plan.batch,
            topic=range_.tp.topic,
            partition=range_.tp.partition,
            start=range_.start,
            end=range_.end,
            records=None,
            bytes_in=None,
            bytes_out=None,
            files=len(range_.files),
            lost=range_.lost,
            replaced=_replaced(range_),
            bad=None,
            filtered=None,
            unreadable=None,
            status=status,
        )
        for range_ in plan.ranges
    ]


def document(
    request: ExportRequest,
    rows: list[RangeRow],
    report: ExportReport | None,
    plan: Plan | None = None,
    *,
    failed: Mapping[str, KctlError],
) -> ExportSummary:
    """Return the summary of a run, or of a dry run (`report` is None)."""
    seconds = report.seconds if report else {}
    records = sum(row.records or 0 for row in rows)
    return ExportSummary(
        apiVersion=API_VERSION,
        kind=KIND,
        folder=request.target,
        table=request.table.kind.value,
        dry_run=report is None,
        batches=sorted({row.batch for row in rows}),
        records=records,
        bytes_in=sum(row.bytes_in or 0 for row in rows),
        bytes_out=sum(row.bytes_out or 0 for row in rows),
        lost=sum(row.lost for row in rows),
        replaced=sum(row.replaced for row in rows),
        bad=sum(row.bad or 0 for row in rows),
        filtered=sum(row.filtered or 0 for row in rows),
        unreadable=sum(row.unreadable or 0 for row in rows),
        bad_reasons=bad_reasons(report) if report else {},
        misfits=[MisfitRow.of(misfit) for misfit in misfits_of(report)] if report else [],
        files=file_count(report) if report else plan.file_count if plan else 0,
        records_per_second=round(records / seconds["run"]) if seconds.get("run") else None,
        seconds=seconds,
        engine="spark" if isinstance(request.engine, SparkSettings) else "local",
        master=request.engine.master if isinstance(request.engine, SparkSettings) else None,
        app_id=(report.app_id if report else "") or None,
        warnings=report.warnings if report else [],
        failed=[FailedTopic(topic, str(error)) for topic, error in failed.items()],
        partitions=rows,
        keys=[
            ChangedKeysRow(batch.plan.batch, topic, changed.upserted, changed.deleted, changed.outdated)
            for batch in (report.batches if report else [])
            for topic, changed in batch.keys.items()
        ],
        columns=columns_of([plan] if plan else [batch.plan for batch in report.batches] if report else []),
    )


def columns_of(plans: Sequence[Plan]) -> list[ColumnRow]:
    """Return the columns of decoded keys and values in the last plan of each topic."""
    found = {topic: planned.columns for plan in plans for topic, planned in plan.topics.items()}
    return [
        ColumnRow(topic, path, type_)
        for topic, columns in sorted(found.items())
        for name, decoding in (("key", columns.key), ("value", columns.value))
        if decoding.format is not Format.BINARY
        for path, type_ in [
            *leaves(decoding.type, name),
            *([(f"{name}_rest", STRING)] if decoding.has_rest else []),
            *([(raw_name(name), BINARY)] if decoding.keeps_raw else []),
        ]
    ]


def bad_reasons(report: ExportReport) -> dict[str, int]:
    """Return the numbers of records by the reason why they could not be decoded, the most frequent first."""
    found: Counter[str] = Counter()
    for batch in report.batches:
        for outcome in batch.outcomes.values():
            found.update(outcome.reasons)
    return dict(found.most_common(REASONS_MAX))


def misfits_of(report: ExportReport) -> tuple[Misfit, ...]:
    """Return the values in columns of the rest, by column."""
    count = MisfitCount()
    for batch in report.batches:
        for outcome in batch.outcomes.values():
            for misfit in outcome.misfits:
                count.add(misfit)
    return count.misfits


def file_count(report: ExportReport) -> int:
    """Return the number of files of all batches of a run; partitions may share files."""
    return sum(len(outcome.written) for batch in report.batches for outcome in batch.outcomes.values())


def _committed_row(
    batch: FinishedBatch, range_: PartitionRange, parts: Sequence[PartOutcome], sizes: Mapping[_Share, int]
) -> RangeRow:
    written = [file for file in range_.files if batch.outcomes[file.path].path]
    return RangeRow(
        batch=batch.plan.batch,
        topic=range_.tp.topic,
        partition=range_.tp.partition,
        start=range_.start,
        end=range_.end,
        records=sum(part.records for part in parts),
        bytes_in=sum(part.bytes_in for part in parts),
        bytes_out=sum(sizes[file.path, range_.tp, file.start] for file in written),
        files=len(written),
        lost=range_.lost + sum(part.lost for part in parts),
        replaced=_replaced(range_),
        bad=sum(part.bad for part in parts),
        filtered=sum(part.filtered for part in parts),
        unreadable=sum(part.unreadable for part in parts),
        status=batch.origin.value,
    )


def _replaced(range_: PartitionRange) -> int:
    return range_.replaced.end - range_.replaced.start if range_.replaced else 0


def _sizes(batch: FinishedBatch) -> dict[_Share, int]:
    """Return the size of every file divided among its ranges in proportion to their records; the sum is exact."""
    sizes: dict[_Share, int] = {}
    for path, shares in batch.plan.shares().items():
        outcome = batch.outcomes[path]
        records = previous = 0
        for (range_, file), part in zip(shares, outcome.parts, strict=True):
            records += part.records
            reached = outcome.bytes_out * records // max(outcome.records, 1)
            sizes[path, range_.tp, file.start] = reached - previous
            previous = reached
    return sizes


def sentence(rows: list[RangeRow], report: ExportReport) -> str:
    """Return one line for the user."""
    if not rows:
        return "nothing new"
    records, bytes_out = sum(row.records or 0 for row in rows), sum(row.bytes_out or 0 for row in rows)
    files = file_count(report)
    seconds = sum(report.seconds.values())
    numbers = ", ".join(str(batch) for batch in sorted({row.batch for row in rows}))
    written = f"{counted(records, 'record')} in {counted(files, 'file')} ({size_text(bytes_out)})"
    keys = [changed for batch in report.batches for changed in batch.keys.values()]
    if keys:
        upserted, deleted = sum(changed.upserted for changed in keys), sum(changed.deleted for changed in keys)
        written = f"{counted(records, 'change')}: {counted(upserted, 'row')} written, {deleted:,} deleted"
    bad = sum(row.bad or 0 for row in rows)
    letters = f", {counted(bad, 'record')} in _dead_letters" if bad else ""
    return f"{written}{letters}, {seconds:.1f} s, batch {numbers}"

"""Decides the columns of the topics of a plan, from schemas or a sample of records, and checks options with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kctl.client.registry.client import RegistryClient
from kctl.errors import UsageError
from kctl.tables.exec.schema.changes import describes_changes
from kctl.tables.exec.schema.column_types import ChangeFormat, Columns, Struct, Type
from kctl.tables.exec.selection.row_selection import HEADERS
from kctl.tables.exec.selection.upserts import VERSION_COLUMNS, UpsertOptions
from kctl.tables.exports.cluster_reads import check_sample, partition_warning, sampled
from kctl.tables.formats.kinds import TableKind
from kctl.tables.plans.decodings import decide
from kctl.tables.plans.plan import HeldColumns, Plan, Positions
from kctl.tables.plans.request import ExportRequest
from kctl.tables.plans.value_sample import RecordSample


def decided_columns(
    request: ExportRequest,
    plan: Plan,
    positions: Positions,
    take: Callable[[ExportRequest, Plan], RecordSample],
    registry: RegistryClient | None,
) -> tuple[dict[str, Columns], list[str]]:
    """Return the columns of each topic of a plan, and notes for the user; `take` reads a sample of records.

    Raises UsageError for options that do not fit the columns, and BadRecords if a record of the sample does not fit,
    unless such records are kept.
    """
    options, table = request.decoding, request.table
    sample = take(request, plan) if options.are_typed else {}
    columns = decide(
        options,
        list(plan.topics),
        positions.columns,
        registry=registry,
        sample_of=partial(sampled, sample),
        is_shared=table.is_shared,
        keeps_raw=table.keeps_raw,
    )
    notes = []
    for topic, held in columns.items():
        if (before := positions.columns.get(topic)) is not None:
            columns[topic] = held = _without_collisions(request, held, before)  # noqa: PLW2901 - one step after the other
        table.partition_by.check(topic, held)
        if topic not in positions.topics and (note := partition_warning(sample, topic, held, table.partition_by)):
            notes.append(note)
        _check(request, topic, held)
    if not options.keeps_bad:
        check_sample(sample, columns)
    return columns, notes


def _without_collisions(request: ExportRequest, columns: Columns, held: HeldColumns) -> Columns:
    types = {"key": held.key, "value": held.value}
    return request.table.layout.without_collisions(columns, types, request.table.partition_by, _others(request))


def _others(request: ExportRequest) -> dict[str, Type]:
    """Return the types of the columns that not every export has."""
    upsert = request.table.upsert
    return {
        **({HEADERS: Struct()} if request.options.include_headers else {}),
        **(VERSION_COLUMNS if upsert and upsert.history else {}),
    }


def _check(request: ExportRequest, topic: str, columns: Columns) -> None:
    """Raise UsageError for options that do not fit the columns of a topic."""
    table = request.table
    has_headers = request.options.include_headers
    table.rows.check(columns, table.partition_by, include_headers=has_headers)
    table.layout.check(
        topic,
        columns,
        table.rows,
        table.partition_by,
        others=_others(request),
        are_hidden=table.kind is TableKind.ICEBERG,
    )
    if table.upsert:
        check_changes(topic, columns, table.upsert)
        table.upsert.check(columns)


def check_changes(topic: str, columns: Columns, upsert: UpsertOptions) -> None:
    """Raise UsageError for values that are certainly changes of Debezium, and would become rows as they are."""
    if upsert.changes is ChangeFormat.NONE and describes_changes(columns.value.type):
        raise UsageError(
            f"the values of topic {topic} are changes of Debezium, not rows: give --change-format debezium"
        )

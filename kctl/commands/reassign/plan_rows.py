"""Planned reassignments as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.rows import code_error
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ErrorCode
from kctl.quantities import counted

if TYPE_CHECKING:
    from kctl.admin.placement_summary import BrokerChange
    from kctl.admin.reassignment_plan import Move


def broker_columns(*, leaders_only: bool) -> tuple[Column, ...]:
    """A narrow terminal shows leaders of a plan that moves only these, else bytes."""
    bytes_order, leaders_order = (1, 0) if leaders_only else (0, 2)
    return (
        Column("broker", numeric=True),
        Column("rack", is_rare=True),
        Column("bytes_before", numeric=True, drop_order=bytes_order),
        Column("bytes_after", numeric=True, drop_order=bytes_order),
        Column("bytes_received", numeric=True, drop_order=bytes_order),
        Column("replicas_before", numeric=True, drop_order=4),
        Column("replicas_after", numeric=True, drop_order=5),
        Column("leaders_before", numeric=True, drop_order=leaders_order),
        Column("leaders_after", numeric=True, drop_order=leaders_order),
        Column("free_bytes", numeric=True, drop_order=1, is_rare=True),
        Column("free_bytes_after", numeric=True, drop_order=bytes_order, is_rare=True),
        *ERROR_COLUMNS,
    )


class BrokerRow(NamedTuple):
    """A broker before and after the reassignment; leaders are partitions that prefer it."""

    broker: int
    rack: str | None
    bytes_before: int | None
    bytes_after: int | None
    bytes_received: int | None
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    free_bytes: int | None
    free_bytes_after: int | None
    error: str | None = None
    message: str | None = None


class PlannedMove(NamedTuple):
    """The move of one partition."""

    topic: str
    partition: int
    replicas: list[int]
    target: list[int]
    bytes_to_move: int | None
    phase: int


class PlanReport(NamedTuple):
    """The JSON object of a plan."""

    partitions: int
    replicas_to_copy: int
    bytes_to_move: int | None
    """Null if no size is known."""
    bytes_across_racks: int | None
    duration_ms: int | None
    """The least duration with --throttle, of all phases one after the other."""
    brokers: list[BrokerRow]
    moves: list[PlannedMove]
    files: list[str]
    """One per phase."""
    rollback_file: str | None


def broker_row(change: BrokerChange) -> BrokerRow:
    """One broker; with an error if its free space is too small."""
    error = code_error(ErrorCode.NONE)
    if change.lacks_space:
        received, free = (counted(size or 0, "byte") for size in (change.bytes_received, change.free_bytes))
        text = f"receives {received} and has {free} free"
        error = {"error": ErrorCode.KAFKA_STORAGE_ERROR.name, "message": text}
    return BrokerRow(
        broker=change.broker,
        rack=change.rack,
        bytes_before=change.bytes_before,
        bytes_after=change.bytes_after,
        bytes_received=change.bytes_received,
        replicas_before=change.replicas_before,
        replicas_after=change.replicas_after,
        leaders_before=change.leaders_before,
        leaders_after=change.leaders_after,
        free_bytes=change.free_bytes,
        free_bytes_after=change.free_bytes_after,
        **error,
    )


def planned_move(move: Move, phase: int) -> PlannedMove:
    """One move; phases are counted from 1."""
    return PlannedMove(
        move.tp.topic, move.tp.partition, list(move.current), list(move.target), move.bytes_to_move, phase
    )

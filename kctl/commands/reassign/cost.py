"""Describes the cost of moves: replicas and bytes to copy, and the least duration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kctl.admin.move_progress import move_duration_ms
from kctl.admin.reassignment_plan import bytes_by_broker
from kctl.commands.values import parse_rate
from kctl.errors import UsageError
from kctl.quantities import counted

if TYPE_CHECKING:
    from kctl.admin.reassignment_plan import Move


def throttle_rate(throttle: str | None) -> int | None:
    """Bytes per second of --throttle.  Raises UsageError."""
    if throttle is None:
        return None
    rate = parse_rate(throttle)
    if rate == 0:
        raise UsageError("--throttle must be greater than 0")
    return rate


def least_duration_ms(moves: Sequence[Move], rate: int) -> int:
    """The least duration: that of the broker that sends or receives most."""
    incoming, outgoing = bytes_by_broker(moves)
    return move_duration_ms(max([*incoming.values(), *outgoing.values(), 0]), rate)


def cost_text(moves: Sequence[Move], rate: int | None) -> str:
    """Number of replicas and bytes to copy, and the least duration with a throttle."""
    possible = [move for move in moves if not move.problem]
    total = sum(move.bytes_to_move or 0 for move in possible)
    replicas = sum(len(move.adding) + len(move.relocating) for move in possible)
    text = f"{counted(replicas, 'replica')} to copy, {counted(total, 'byte')}"
    if rate is not None and (duration_ms := least_duration_ms(moves, rate)):
        text += f", about {duration_text(duration_ms)} with this throttle"
    return text


def duration_text(duration_ms: int) -> str:
    """A length of time, rounded up to seconds."""
    seconds = -(-duration_ms // 1000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds % 60:02}s" if minutes else f"{seconds}s"

"""Warnings about committed offsets: one for all partitions that it is about, however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kctl.admin.group_description import GroupDescription
    from kctl.admin.offset_document import GroupOffsets
    from kctl.admin.offset_reset import Reset
    from kctl.commands.invocation import Invocation

NAMED_MAX = 10
"""A warning names this many partitions and counts the others."""


def named(items: Sequence[str]) -> str:
    """The items with commas; of more than NAMED_MAX the first ones and the number of the others."""
    more = f" and {len(items) - NAMED_MAX} more" if len(items) > NAMED_MAX else ""
    return ", ".join(items[:NAMED_MAX]) + more


def warn_of_clamped(run: Invocation, resets: Iterable[Reset]) -> None:
    """Warns about offsets that are moved into the range of their partition."""
    moved = [(one.tp, one.unclamped, one.new, one.held) for one in resets if one.is_clamped and one.held is not None]
    if len(moved) == 1:
        ((tp, offset, new, held),) = moved
        run.console.warn(f"{tp}: offset {offset} lies outside of {held.start} to {held.end}; it becomes {new}")
    elif moved:
        shown = named([f"{tp} ({offset} becomes {new})" for tp, offset, new, _ in moved])
        run.console.warn(
            f"{counted(len(moved), 'offset')} outside of their partitions become the start or end: {shown}"
        )


def warn_of_unsaved(run: Invocation, groups: Iterable[GroupDescription], saved: GroupOffsets) -> None:
    """Warns about partitions that have a committed offset now and no saved one, once for each group."""
    for group in groups:
        name = group.outcome.name
        topics = {tp.topic for tp in saved[name]}
        kept = [
            (one.tp, one.committed_offset)
            for one in group.offsets
            if one.committed_offset >= 0 and one.tp.topic in topics and one.tp not in saved[name]
        ]
        if len(kept) == 1:
            ((tp, offset),) = kept
            run.console.warn(f"{name}: {tp} has no saved offset; it stays at {offset}")
        elif kept:
            shown = named([f"{tp} (stays at {offset})" for tp, offset in kept])
            run.console.warn(f"{name}: no saved offset for {counted(len(kept), 'partition')}: {shown}")


def warn_of_partitions(run: Invocation, reasons: Mapping[str, Sequence[object]]) -> None:
    """One warning for each reason, which follows the names of its partitions."""
    for reason, partitions in reasons.items():
        if partitions:
            run.console.warn(f"{named([str(tp) for tp in partitions])}: {reason}")

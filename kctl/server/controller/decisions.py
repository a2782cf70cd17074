"""Decisions about many partitions, made in slices.

A function that decides about every partition of a large topic, or of all topics, is a generator: it yields wherever the
event loop may serve other connections, and returns its actions.  Only the runner of the controller changes the state,
and it begins no other decision in between.

Pure.
"""

from __future__ import annotations

from collections.abc import Generator, Sized
from typing import TypeAlias

from kctl.limits import DECISIONS_PER_SLICE_MAX
from kctl.server.controller.actions import Action

Decision: TypeAlias = Generator[None, None, list[Action]]


def is_slice_full(number: int) -> bool:
    """True if a loop over partitions should yield before the partition with this number."""
    return number % DECISIONS_PER_SLICE_MAX == DECISIONS_PER_SLICE_MAX - 1


def is_long(objects: Sized) -> bool:
    """True if a loop over these objects without a pause should be in a slice of its own."""
    return len(objects) >= DECISIONS_PER_SLICE_MAX


def made_at_once(decision: Decision) -> list[Action]:
    """The actions, without a pause."""
    while True:
        try:
            next(decision)
        except StopIteration as end:
            actions: list[Action] = end.value
            return actions

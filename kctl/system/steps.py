"""Long pure work, which has no event loop to share: a generator that yields wherever a slice of it may end.

Whoever runs it decides what happens in between: the broker serves other connections (`run_steps` of
kctl/server/loop/slices.py), tests and simulations go on at once.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Yields where a slice may end, and returns its result."""


def run_at_once(steps: Steps[T]) -> T:
    """Run all steps without a pause and return the result; for work that is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result

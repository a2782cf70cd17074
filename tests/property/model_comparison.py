"""Sends the same random requests to a coordinator and to a model of it and compares the two after each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Protocol, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from kctl.testing.sim_loop import SimLoop, simulate
from tests.property.examples import examples

OPERATIONS = 80
TURNS = 10


class Comparison(Protocol):
    """A coordinator and its model."""

    async def check(self) -> None:
        """Raises AssertionError where the observable state differs from the model."""
        ...


D = TypeVar("D", bound=Comparison)


async def compare(comparison: D, operations: Sequence[Callable[[D], Awaitable[None]]], chance: Random) -> None:
    """Performs random operations and compares coordinator and model after each."""
    for _ in range(OPERATIONS):
        await chance.choice(operations)(comparison)
        await comparison.check()


async def pass_turns() -> None:
    """Runs the loop until all work that needs no virtual time is complete."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def run_with_seeds(play: Callable[[SimLoop], Awaitable[None]]) -> None:
    """Runs the scenario with many seeds; hypothesis reports the seed that fails."""

    @examples(150)
    @given(seed=st.integers(0, 2**32))
    def check(seed: int) -> None:
        simulate(play, seed=seed)

    check()

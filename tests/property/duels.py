"""Requests in any order to a coordinator and to a model of it, which are asked the same: the loop of such tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Protocol, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.testing.sim_loop import SimLoop, simulate

OPERATIONS = 80
TURNS = 10


class Duel(Protocol):
    """A coordinator and its model."""

    async def check(self) -> None:
        """Raises AssertionError where something that can be seen is not as the model says."""
        ...


D = TypeVar("D", bound=Duel)


async def fight(duel: D, operations: Sequence[Callable[[D], Awaitable[None]]], chance: Random) -> None:
    """Random operations, after each of which both must be of one mind."""
    for _ in range(OPERATIONS):
        await chance.choice(operations)(duel)
        await duel.check()


async def pass_turns() -> None:
    """Until all is done that needs no time."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def judge(play: Callable[[SimLoop], Awaitable[None]]) -> None:
    """Many plays; the seed of the one that fails is the failure."""

    @settings(max_examples=150)
    @given(seed=st.integers(0, 2**32))
    def check(seed: int) -> None:
        simulate(play, seed=seed)

    check()

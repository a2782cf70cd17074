"""Runs the live screen: reads keys, takes samples, draws.  `state.step` decides.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import contextlib

from kctl.admin.activity import activity
from kctl.admin.cluster_sample import ClusterSample
from kctl.admin.cluster_sampler import Sampler
from kctl.admin.group_verdicts import GroupVerdicts
from kctl.commands.top.keys import keys_of
from kctl.commands.top.screen import render
from kctl.commands.top.state import Event, KeyPressed, Sampled, SampleFailed, State, step
from kctl.console import Console
from kctl.errors import KctlError
from kctl.live_screen import LiveScreen


async def run_live(sampler: Sampler, console: Console, interval_ms: int) -> None:
    """Shows the cluster until the user quits.  A cluster that cannot be reached is shown as such, and tried again."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    state = State(interval_ms)
    is_done = asyncio.Event()

    def on_event(event: Event) -> None:
        nonlocal state
        state = step(state, event, round((loop.time() - started_s) * 1000))
        draw()
        if state.is_done:
            is_done.set()

    def draw() -> None:
        screen.draw(render(state, *screen.size))

    def on_input(received: bytes) -> None:
        for key in keys_of(received):
            on_event(KeyPressed(key))

    async def sample() -> None:
        old: ClusterSample | None = None
        verdicts = GroupVerdicts()
        while True:
            began_s = loop.time()
            try:
                new = await sampler.take()
                verdicts.observe(new)
                on_event(Sampled(activity(old, new, verdicts.of)))
                old = new
            except (KctlError, TimeoutError, OSError) as error:
                on_event(SampleFailed(str(error) or type(error).__name__))
            await asyncio.sleep(max(began_s + interval_ms / 1000 - loop.time(), interval_ms / 5000))

    screen = LiveScreen(console.stdin, console.stdout, color=console.color, on_input=on_input, on_resize=draw)
    with screen:
        draw()
        sampling = loop.create_task(sample(), name="sample")
        ends = loop.create_task(is_done.wait(), name="keys")
        try:
            await asyncio.wait({sampling, ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sampling, ends):
                task.cancel()
        if not is_done.is_set():
            await sampling
    with contextlib.suppress(asyncio.CancelledError):
        await sampling

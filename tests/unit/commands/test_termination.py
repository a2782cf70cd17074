"""SIGTERM while an event loop runs."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from kctl.commands.frame.exit_status import Terminated
from kctl.commands.frame.termination import terminable


def test_sigterm_cancels_all_that_is_awaited() -> None:
    ended: list[str] = []
    reported: list[object] = []

    async def one(name: str) -> None:
        try:
            if name == "c":  # The last one to begin.
                os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        await asyncio.gather(*map(one, "abc"))

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated):
        asyncio.run(terminable(main()))
    assert (sorted(ended), reported) == (["a", "b", "c"], [])
    assert signal.getsignal(signal.SIGTERM) is before


def test_second_sigterm_ends_work_that_does_not_end() -> None:
    async def main() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    with pytest.raises(Terminated):
        asyncio.run(terminable(main()))


def test_cancellation_by_others_stays_one() -> None:
    async def main() -> None:
        task = asyncio.get_running_loop().create_task(terminable(asyncio.Event().wait()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

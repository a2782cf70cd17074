"""Processes in a simulation: which code belongs to which, so that one can die without another noticing it by itself.

A context variable says on whose behalf code runs; tasks, timers and callbacks inherit it.  A process that is killed is
frozen: nothing of it runs again, not even cleanup, as with SIGKILL.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager

DEFAULT_HOST = "test"
EXECUTOR_DELAY_S = 0.0005


class SimProcess:
    """One process on a host; a restart is another process on the same host."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.is_alive = True
        self.executor_delay_s = EXECUTOR_DELAY_S
        """How long what runs in an executor takes, on average: mostly the disk's time."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Code in this block, and whatever it starts, belongs to the process."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: contextvars.ContextVar[SimProcess] = contextvars.ContextVar("kctl_sim_process")
_outside = SimProcess(DEFAULT_HOST)

NOBODY = contextvars.Context()
"""The context of what happens between processes, such as the arrival of bytes."""


def current_process() -> SimProcess:
    """Whose code runs; the test's own when nothing else was said."""
    return _current.get(_outside)


def process_of(context: contextvars.Context) -> SimProcess:
    """Whose code would run in this context."""
    return context.get(_current, _outside)

"""Simulated processes, which can be killed independently.

A context variable holds the current process; tasks, timers and callbacks inherit it.  A killed process is frozen: none
of its code runs again, not even cleanup, as after SIGKILL.
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
        """Mean duration of executor work, mainly disk operations."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Code in this block, and tasks that it starts, belong to the process."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: contextvars.ContextVar[SimProcess] = contextvars.ContextVar("kctl_sim_process")
_outside = SimProcess(DEFAULT_HOST)

NO_PROCESS = contextvars.Context()
"""Context of events outside of processes, such as the arrival of bytes."""


def current_process() -> SimProcess:
    """Return the current process; by default that of the test."""
    return _current.get(_outside)


def process_of(context: contextvars.Context) -> SimProcess:
    """Return the process of a context."""
    return context.get(_current, _outside)

"""Delays signals during a block that must not be interrupted."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """SIGINT and SIGTERM are delivered after the block; SIGKILL cannot be delayed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

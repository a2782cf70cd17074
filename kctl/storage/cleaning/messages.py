"""Messages between the broker and the processes of its log cleaners, over a socket pair.

    broker                                    worker, started for the first log
      |<------ (READY, version) ---------------|
      |------- (TASK, task, producers) ------->|      once for each log
      |<------ (DONE, NotedKeys) --------------|
      |------- (WRITE, first, end) ----------->|      for each group of segments
      |<------ (DONE, WrittenSegment) ---------|      or (FAILED, error)
      |------- (RATE, bytes per second) ------>|      at any time

A frame is its size in 4 bytes, and a pickled tuple: both ends are the same version of kctl, and nobody else has the
socket.  The end of the stream ends the worker.  Pure.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

from kctl.errors import CorruptLog, KctlError

READY, TASK, WRITE, RATE, DONE, FAILED = "ready", "task", "write", "rate", "done", "failed"
SIZE = struct.Struct(">I")


def frame_of(message: tuple[Any, ...]) -> bytes:
    """Return the bytes of a message."""
    payload = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return SIZE.pack(len(payload)) + payload


def read_message(receive: Callable[[int], bytes]) -> tuple[Any, ...] | None:
    """Return the next message; None at the end of the stream.  `receive(n)` returns up to n bytes, none at the end."""
    head = _read(receive, SIZE.size)
    payload = None if head is None else _read(receive, SIZE.unpack(head)[0])
    if payload is None:
        return None
    message: tuple[Any, ...] = pickle.loads(payload)  # noqa: S301 - of our own process
    return message


def _read(receive: Callable[[int], bytes], size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = receive(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def describe_error(error: Exception) -> tuple[Any, ...]:
    """Return the error in values, which `error_of` turns into the same error."""
    if isinstance(error, CorruptLog):
        return CorruptLog.__name__, error.path, error.position, error.reason
    if isinstance(error, OSError) and error.errno is not None:
        return OSError.__name__, error.errno, error.strerror, error.filename
    return type(error).__name__, str(error)


def error_of(name: str, *values: Any) -> Exception:
    """Return the error of a worker."""
    if name == CorruptLog.__name__:
        return CorruptLog(*values)
    if name == OSError.__name__:
        return OSError(*values)
    return KctlError(f"{name}: {values[0]}")

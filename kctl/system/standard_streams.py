"""The standard streams of a command, so that output which cannot be written is never taken for written.

- A stream that was closed when the process started fails when it is used, as with the tools of coreutils.  The null
  device takes its number, so that no file or socket of the process does.
- Output to a pipe or terminal that another process has made non-blocking waits until there is room.
- An error names the stream, and a reader that has left is told apart from a broken connection.
- A signal that ends the command also ends a write that waits for a slow reader, and none waits after it.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer


class ReaderLeft(BrokenPipeError):
    """A standard stream is a pipe, and its reader has closed it."""


class CannotWrite(OSError):
    """A standard stream cannot be written; `strerror` names it and the reason."""


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Replace the standard streams of this process, except those that tests have replaced, until the block ends."""
    before = sys.stdin, sys.stdout, sys.stderr
    _WRITING.error, _WRITING.has_ended = None, False
    # In the order of their numbers, because each takes the lowest free one.
    if sys.stdin is None:
        sys.stdin = open(os.open(os.devnull, os.O_WRONLY), encoding="utf-8")  # noqa: SIM115 - of the process
    sys.stdout = _guarded(sys.stdout, "stdout")
    sys.stderr = _guarded(sys.stderr, "stderr")
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def discard(stream: TextIO) -> None:
    """Replace the file of a stream by the null device, so that the flush at exit does not fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _guarded(stream: TextIO | None, name: str) -> TextIO:
    """Return a stream with the descriptor and the settings of a standard stream, else that stream."""
    if stream is None:
        return _text_stream(_Output(os.open(os.devnull, os.O_RDONLY), name, None), is_unbuffered=False)
    if type(stream) is not io.TextIOWrapper:
        return stream
    try:
        output = _Output(stream.fileno(), name, stream)
    except OSError:
        return stream
    return _text_stream(
        output,
        encoding=stream.encoding,
        errors=stream.errors,
        is_line_buffered=stream.line_buffering,
        is_unbuffered=stream.write_through,
    )


def _text_stream(
    output: _Output,
    *,
    encoding: str = "utf-8",
    errors: str | None = None,
    is_line_buffered: bool = False,
    is_unbuffered: bool,
) -> TextIO:
    buffer = _Unbuffered(output) if is_unbuffered else io.BufferedWriter(output)
    return io.TextIOWrapper(
        buffer,
        encoding=encoding,
        errors=errors,
        newline="\n",
        line_buffering=is_line_buffered,
        write_through=is_unbuffered,
    )


# The end of a command by a signal, while its output waits for a reader.


class _Writing:
    """The write of the main thread, which a handler of a signal may end.  Owner: the main thread."""

    def __init__(self) -> None:
        self.is_active = False
        self.error: type[BaseException] | None = None
        """What the next write raises."""
        self.has_ended = False
        """Whether output that cannot be written at once is discarded."""


_WRITING = _Writing()
_WAIT_AFTER_THE_END_S = 0.05
_BYTES_AT_ONCE_AFTER_THE_END = 256
"""A terminal takes so many without waiting, if it takes any."""


def end_writes(error: type[BaseException]) -> None:
    """Raise `error` if a write is active, else let the next write raise it; for handlers of signals.

    Later writes discard what the reader does not take at once.
    """
    _WRITING.has_ended = True
    if _WRITING.is_active:
        raise error
    _WRITING.error = error


def write_without_waiting() -> None:
    """Let later writes discard what the reader does not take at once."""
    _WRITING.has_ended, _WRITING.error = True, None


def take_end_of_writes() -> bool:
    """Return whether the error of `end_writes` is still to be raised, and let no write raise it."""
    was_left, _WRITING.error = _WRITING.error is not None, None
    return was_left


def watch_reader(stream: TextIO) -> int | None:
    """Return a new descriptor that becomes readable when the reader of a pipe or terminal has left; else None.

    It is None for a file, for a stream without a descriptor, and where the system has no epoll.
    """
    from kctl.system import operating_system  # noqa: PLC0415 - few commands wait for the end of their reader

    try:
        return operating_system.watch_hang_up(stream.fileno())
    except (OSError, ValueError):
        return None


class _Output(io.RawIOBase):
    """Writes to a descriptor, which stays open."""

    def __init__(self, descriptor: int, name: str, replaced: TextIO | None) -> None:
        """Keep `replaced`, which would close the descriptor if it was freed."""
        self._descriptor = descriptor
        self._name = name
        self._replaced = replaced

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Buffer, /) -> int:
        if threading.current_thread() is not threading.main_thread():
            return self._write(data)
        _WRITING.is_active = True
        try:
            if (error := _WRITING.error) is not None:
                _WRITING.error = None
                raise error
            return self._write_at_once(data) if _WRITING.has_ended else self._write(data)
        finally:
            _WRITING.is_active = False

    def _write_at_once(self, data: Buffer) -> int:
        """Write what the reader takes without waiting, and discard the rest."""
        view = memoryview(data)
        if not select.select([], [self._descriptor], [], _WAIT_AFTER_THE_END_S)[1]:
            return len(view)
        return self._write(view[:_BYTES_AT_ONCE_AFTER_THE_END])

    def _write(self, data: Buffer) -> int:
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except BrokenPipeError as error:
                raise ReaderLeft(error.errno, error.strerror) from None
            except OSError as error:
                raise CannotWrite(error.errno, f"cannot write to {self._name}: {error.strerror}") from None


class _Unbuffered(io.BufferedWriter):
    """Writes everything at once, as PYTHONUNBUFFERED requires; a raw stream may write a part."""

    def write(self, data: Buffer, /) -> int:
        count = super().write(data)
        self.flush()
        return count

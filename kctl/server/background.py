"""The output of a process that `start_detached` has started: all of it is in the output file of its data folder.

The process shares a pipe with the command that waits for it.  Until the folder is locked, the file may be that of
another broker, so that log lines are kept in memory.  Then they and everything after them are written to the file; the
pipe stays open until the broker serves, and gets the reason if it cannot.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from types import TracebackType
from typing import Self, TextIO

from kctl.errors import KctlError
from kctl.log_output.handler import continue_logging
from kctl.server.data_folder import DataFolder

log = logging.getLogger(__name__)

DETACHED = "KCTL_BROKER_DETACHED"
"""Environment variable of a process that `start_detached` has started, until it serves."""


def is_detached() -> bool:
    """Whether this process has been started by `start_detached` and does not serve yet."""
    return DETACHED in os.environ


def log_stream_of_start(stream: TextIO | None) -> TextIO | None:
    """The stream for log lines until `BackgroundOutput.begin`; None discards them."""
    return io.StringIO() if stream is not None and is_detached() else stream


class BackgroundOutput:
    """Use as a context manager around the run of a broker; does nothing in a process that is not detached.

    Call `begin` when the folder is locked, and `served` when the broker serves.
    """

    def __init__(self) -> None:
        self._is_detached = is_detached()
        self._pipe_fd: int | None = None

    def begin(self, folder: DataFolder) -> None:
        """Writes all output to the file of the folder, the log lines until now first.  Raises OSError."""
        if not self._is_detached:
            return
        sys.stderr.flush()
        fd = os.open(folder.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._pipe_fd = os.dup(2)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)
        continue_logging(sys.stderr)

    def served(self) -> None:
        """Closes the pipe: the command that waits returns."""
        os.environ.pop(DETACHED, None)
        if self._pipe_fd is not None:
            os.close(self._pipe_fd)
            self._pipe_fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Writes the reason of a failed start to the file; the caller, who reports it, writes to the pipe again."""
        if self._pipe_fd is None:
            return
        if isinstance(error, KctlError):
            log.error("cannot start error=%s", error)
        elif error is not None:
            log.error("cannot start error=%s", error, exc_info=error)
        sys.stderr.flush()
        os.dup2(self._pipe_fd, 2)
        os.close(self._pipe_fd)
        self._pipe_fd = None

"""The test's side of the socket that controls a broker; see kctl/server/process/test_control."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ANSWER_TIMEOUT_S = 60.0
_SOCKET = "control"
_RECEIVED_BYTES = 1 << 16


class ControlRefused(ValueError):
    """The broker has refused a command; nothing has changed."""


class ControlFailed(RuntimeError):
    """The broker has not answered a command: it does not run, or is paused."""


class Control:
    """The socket of one broker over its starts, in a private folder that exists while the broker runs."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    @property
    def path(self) -> Path:
        """The path of the socket, for a broker that is about to start."""
        if self._folder is None:
            # Not in the folder of the broker: the path of a socket has at most 107 characters.
            self._folder = Path(tempfile.mkdtemp(prefix="kctl-control-"))
        return self._folder / _SOCKET

    def close(self) -> None:
        """Remove the folder of a broker that has ended."""
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """Return the answer to a command.  Raises ControlRefused and ControlFailed."""
        if self._folder is None:
            raise ControlFailed(f"{command}: the broker does not run")
        line = json.dumps({"do": command, **arguments}).encode() + b"\n"
        answer = bytearray()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(ANSWER_TIMEOUT_S)
                connection.connect(os.fspath(self.path))
                connection.sendall(line)
                while not answer.endswith(b"\n"):
                    received = connection.recv(_RECEIVED_BYTES)
                    if not received:
                        raise ControlFailed(f"{command}: the broker has ended, or does not accept so long a command")
                    answer += received
        except TimeoutError:
            raise ControlFailed(f"{command}: no answer in {ANSWER_TIMEOUT_S:.0f} s; is the broker paused?") from None
        except OSError as error:
            raise ControlFailed(f"{command}: the broker does not run ({error.strerror})") from None
        parsed: dict[str, Any] = json.loads(answer)
        if "error" in parsed:
            raise ControlRefused(f"{command}: {parsed['error']}")
        return parsed


Ask = Callable[..., dict[str, Any]]

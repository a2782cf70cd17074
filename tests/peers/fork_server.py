"""Starts the process that commands of tests are forked from; see `tests.peers.forked_kctl`.

`./dev` imports this module, with a Python that has no packages.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVER = "KCTL_TEST_FORK_SERVER"
"""The environment variable with the address of a server that runs already, which `./dev` starts for all its parts."""


class ForkServer:
    """The process that commands are forked from.  It ends with its owner, which is this object."""

    def __init__(self, python: str, module: str = "tests.peers.forked_kctl") -> None:
        """`module` is the program that calls `serve`."""
        self._folder = tempfile.TemporaryDirectory(prefix="kctl-forks-")
        self.address = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen()
            self.process = subprocess.Popen(
                [python, "-m", module, str(listener.fileno())],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )

    def close(self) -> None:
        """Commands that still run are not ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self._folder.cleanup()

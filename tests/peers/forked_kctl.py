"""`kctl` as a process that starts in milliseconds: forked from one that has imported the commands.

Importing them is most of the CPU time of a short command, and tests run hundreds.  Tests that are about the start or
the end of the process run `python -m kctl`.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import kctl.commands
from kctl.cli import main

ROOT = Path(__file__).parents[2]
MAX_REQUEST_BYTES = 1 << 20
STANDARD_STREAMS = (0, 1, 2)
TIMEOUT_S = 180


class ForkedKctl:
    """Runs one command at a time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.peers.forked_kctl", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def run(
        self, words: Sequence[str], *, stdin: bytes, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Raises TimeoutError, and ConnectionError if the server has ended."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            request = json.dumps({"words": words, "environment": dict(environment)}).encode()
            socket.send_fds(self._socket, [request], [stream.fileno() for stream in (given, out, err)])
            self._socket.settimeout(timeout_s)
            status = self._socket.recv(64)
            if not status:
                raise ConnectionError("the server of forked commands has ended")
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, int(status), out.read(), err.read())

    def close(self) -> None:
        """The server ends at the end of its connection; a command that still runs is killed with it."""
        self._socket.close()
        try:
            self._server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self._server.pid, 9)
            self._server.wait()


@functools.cache
def forked_kctl() -> ForkedKctl:
    """One for all tests of this process."""
    started = ForkedKctl()
    atexit.register(started.close)
    return started


def run_kctl(
    *words: str | Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command, with the environment of the tests unless another one is given.  Raises TimeoutError."""
    variables = os.environ if environment is None else environment
    try:
        ran = forked_kctl().run([str(word) for word in words], stdin=stdin, environment=variables, timeout_s=TIMEOUT_S)
    except TimeoutError:
        forked_kctl().close()
        forked_kctl.cache_clear()
        raise
    return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def serve(connection: socket.socket) -> None:
    """Runs each request in a fork; returns the exit status, negative after a signal, as text."""
    while True:
        request, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, len(STANDARD_STREAMS))
        if not request:
            return
        process = os.fork()
        if process == 0:
            connection.close()
            os._exit(_status_of(json.loads(request), streams))
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(process, 0)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _status_of(request: dict[str, object], streams: Sequence[int]) -> int:
    """The exit status of the command, with arguments, environment and standard streams as in a process of its own."""
    for stream, number in zip(streams, STANDARD_STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    words, environment = request["words"], request["environment"]
    assert isinstance(words, list)
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = words
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _import_commands() -> None:
    for module in pkgutil.walk_packages(kctl.commands.__path__, "kctl.commands."):
        if not module.name.startswith(("kctl.commands.spark", "kctl.commands.mcp.server")):
            importlib.import_module(module.name)
    gc.freeze()


if __name__ == "__main__":
    _import_commands()
    serve(socket.socket(fileno=int(sys.argv[1])))

"""`kctl` as a process that starts in milliseconds: forked from one that has imported the commands.

Importing them, and compiling what reads and writes messages, is most of the CPU time of a short command, and of the
start of a broker, and tests run hundreds.  Tests that are about the start or the end of the process run `python -m
kctl`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import marshal
import os
import pkgutil
import select
import selectors
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import kctl.commands
from kctl.cli import main
from tests.peers.fork_server import ROOT, SERVER, ForkServer

MAX_REQUEST_BYTES = 1 << 20
STANDARD_STREAMS = (0, 1, 2)
MAX_FILES = len(STANDARD_STREAMS) + 2
"""The standard streams, the network namespace unless it is that of the server, and where to report to."""
OPEN_FILES_MAX = 1024
REPORT = struct.Struct("=i")
TIMEOUT_S = 180


class ForkedProcess:
    """A started command, with the methods of `subprocess.Popen` for its end."""

    def __init__(self, reports: int) -> None:
        """`reports` is read: the id of the process, and its exit status when it has ended."""
        self._reports = reports
        self.returncode: int | None = None
        self.pid = self._report()

    def poll(self) -> int | None:
        """The exit status, negative after a signal; None while it runs."""
        if self.returncode is None and select.select([self._reports], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status at the end.  Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._reports], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"forked kctl {self.pid}", timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = self._report()
        os.close(self._reports)

    def _report(self) -> int:
        report = os.read(self._reports, REPORT.size)
        if not report:
            raise ConnectionError("the server of forked commands has ended")
        (number,) = REPORT.unpack(report)
        return int(number)


class ForkedKctl:
    """Starts commands, each in a fork of a server."""

    def __init__(self, address: str) -> None:
        """Connects to the server; raises OSError."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(address)
        self.address = address

    def start(self, words: Sequence[str], *, streams: Sequence[int], environment: Mapping[str, str]) -> ForkedProcess:
        """Starts a command in a session of its own; `streams` are its standard streams, and then its network namespace
        if that is another one.
        """
        reports, theirs = os.pipe()
        try:
            request = marshal.dumps({"words": list(words), "environment": dict(environment), "folder": str(ROOT)})
            socket.send_fds(self._socket, [request], [*streams, theirs])
        except OSError:
            os.close(reports)
            raise
        finally:
            os.close(theirs)
        return ForkedProcess(reports)

    def run(
        self, words: Sequence[str], *, stdin: bytes, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Raises subprocess.TimeoutExpired, and OSError if the server has ended."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            streams = [stream.fileno() for stream in (given, out, err)]
            started = self.start(words, streams=streams, environment=environment)
            try:
                status = started.wait(timeout_s)
            except BaseException:
                started.kill()
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, status, out.read(), err.read())

    def close(self) -> None:
        self._socket.close()


@functools.cache
def forked_kctl() -> ForkedKctl:
    """One for all tests of this process, on the server that ./dev has started or on one of its own."""
    address = os.environ.get(SERVER)
    if address is None:
        server = ForkServer(sys.executable)
        atexit.register(server.close)
        address = server.address
    connected = ForkedKctl(address)
    atexit.register(connected.close)
    return connected


def program() -> tuple[str, ...]:
    """The words before those of a command for a process that has it forked, and that is given its signals."""
    return (sys.executable, "-IS", str(ROOT / "tests/peers/forked_program.py"), forked_kctl().address)


def write_program(folder: Path) -> Path:
    """Write a program `kctl` which does that, for the PATH of a shell; returns its folder, which is created."""
    folder.mkdir(parents=True)
    (folder / "kctl").write_text(f'#!/bin/sh\nexec {shlex.join(program())} "$@"\n')
    (folder / "kctl").chmod(0o755)
    return folder


def run_kctl(
    *words: str | Path,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Runs a command, with the environment of the tests unless another one is given.

    Raises subprocess.TimeoutExpired.
    """
    variables = os.environ if environment is None else environment
    ran = forked_kctl().run([str(word) for word in words], stdin=stdin, environment=variables, timeout_s=timeout_s)
    return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


class ForkedProcesses:
    """The commands that the server has started, and the streams that their ends are reported to."""

    def __init__(self) -> None:
        self.ended, self._wakeup = socket.socketpair()
        """The first is readable when one has ended."""
        for event in (self.ended, self._wakeup):
            event.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno())
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._reports: dict[int, int] = {}

    def start(self, request: dict[str, object], streams: Sequence[int]) -> None:
        """Forks; the last of the streams is the one for reports."""
        *given, reports = streams
        process = os.fork()
        if process == 0:
            _run_and_exit(request, given)
        for stream in given:
            os.close(stream)
        self._reports[process] = reports
        self._report(reports, process)

    def report_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.ended.recv(4096)
        for process, reports in list(self._reports.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self._report(reports, os.waitstatus_to_exitcode(status))
                os.close(reports)
                del self._reports[process]

    def _report(self, reports: int, number: int) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(reports, REPORT.pack(number))


def serve(listener: socket.socket) -> None:
    """Runs each request in a fork, until the end of standard input."""
    processes = ForkedProcesses()
    with selectors.DefaultSelector() as waiting:
        for event in (sys.stdin, listener, processes.ended):
            waiting.register(event, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is processes.ended:
                    processes.report_ends()
                elif key.fileobj is listener:
                    waiting.register(listener.accept()[0], selectors.EVENT_READ)
                else:
                    connection = key.fileobj
                    assert isinstance(connection, socket.socket)
                    request, files, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, MAX_FILES)
                    if request:
                        processes.start(marshal.loads(request), files)
                    else:
                        waiting.unregister(connection)
                        connection.close()


def _run_and_exit(request: dict[str, object], streams: Sequence[int]) -> NoReturn:
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = _status_of(request, streams)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _status_of(request: dict[str, object], streams: Sequence[int]) -> int:
    """The exit status of the command, with arguments, environment and standard streams as in a process of its own."""
    for network in streams[len(STANDARD_STREAMS) :]:
        _enter(network)
    for stream, number in zip(streams, STANDARD_STREAMS, strict=False):
        os.dup2(stream, number)
    os.closerange(len(STANDARD_STREAMS), OPEN_FILES_MAX)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    words, environment, folder = request["words"], request["environment"], request["folder"]
    assert isinstance(words, list)
    assert isinstance(environment, dict)
    assert isinstance(folder, str)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = words
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _enter(network: int) -> None:
    """Have the sockets of this process in another network namespace, unless it is the own one."""
    if not os.path.sameopenfile(network, own := os.open("/proc/self/ns/net", os.O_RDONLY)):
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(network, 0):
            raise OSError(ctypes.get_errno(), "setns")
    os.close(own)


def import_commands() -> None:
    """Imports all commands but those that need extra distributions, and makes their click commands."""
    # Not at the start of the module, which ./dev runs without typer to download what tests need.
    from kctl.commands.frame.lazy_group import load  # noqa: PLC0415
    from kctl.commands.frame.root import NOUNS  # noqa: PLC0415

    for module in pkgutil.walk_packages(kctl.commands.__path__, "kctl.commands."):
        if not module.name.startswith(("kctl.commands.tables.warmup", "kctl.commands.mcp.server")):
            importlib.import_module(module.name)
    for member in NOUNS.values():
        for verb in getattr(load(member), "members", {}).values():
            if verb.verb != "spark-warmup":
                load(verb)


def compile_codecs() -> None:
    """Compiles the codecs of the newest version of each API, and of the newest one that the broker serves."""
    from kctl.protocol.codec import decoder, encoder  # noqa: PLC0415 - as above
    from kctl.protocol.definition import definition_of  # noqa: PLC0415
    from kctl.protocol.registry import all_apis  # noqa: PLC0415

    for api in all_apis().values():
        for version in {definition_of(api.request).versions[-1], *api.served[-1:]}:
            for message in (api.request, api.response):
                encoder(message, version)
                decoder(message, version, True)


if __name__ == "__main__":
    import_commands()
    compile_codecs()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))

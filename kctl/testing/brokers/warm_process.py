"""A process that has imported the broker, from which brokers are forked in milliseconds.

Imports are most of the time that a broker takes to start.  The process has no threads, and ends when its standard
input does: with the process that has started it, also if that is killed.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, NoReturn

_END_TIMEOUT_S = 10.0
_OF_THE_COMMAND = (
    "kctl.cli",
    "kctl.commands.broker.start",
    "kctl.commands.compat.registration",
    "kctl.commands.frame.command_line",
    "kctl.commands.frame.root",
    "ctypes",
)
"""What a command that starts a broker imports beside the broker."""
_ENDED = "the process that brokers are forked from has ended"


class WarmProcess:
    """Starts commands of kctl, each in a fork of the process; may be used by several threads.

    The process starts with the first command.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._requests: deque[Future[ForkedProcess]] = deque()
        """Those that have not been answered, in order."""
        self._forked: dict[int, ForkedProcess] = {}

    def start(self, words: Sequence[str], output: Path, environment: Mapping[str, str]) -> ForkedProcess:
        """Run `kctl WORDS` in a session of its own, with its output appended to a file.

        Raises ConnectionError if the process has ended.
        """
        return self._ask({"words": list(words), "output": str(output), "environment": dict(environment)})

    def prepare(self) -> None:
        """Start the process, so that the first command is not the one that waits for it."""
        with self._lock:
            self._running()

    def pause(self, forked: ForkedProcess) -> None:
        """Stop a command without ending it (SIGSTOP), and return when it is stopped or has ended.

        Raises ConnectionError if the process has ended.
        """
        self._ask({"pause": forked.pid})

    def _ask(self, request: Mapping[str, object]) -> ForkedProcess:
        """Return the command that the process has started or paused."""
        answer: Future[ForkedProcess] = Future()
        with self._lock:
            stream = self._running().stdin
            assert stream is not None
            try:
                stream.write(json.dumps(request).encode() + b"\n")
                stream.flush()
            except OSError as error:
                raise ConnectionError(_ENDED) from error
            self._requests.append(answer)
        return answer.result()

    def close(self) -> None:
        """End the process; commands that run go on.  The next command starts another process."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            threading.Thread(target=self._read_reports, args=(self._process.stdout,), daemon=True).start()
        return self._process

    def _read_reports(self, reports: BinaryIO) -> None:
        with reports:
            for line in reports:
                report = json.loads(line)
                process = report["pid"]
                if "status" in report:
                    self._forked.pop(process).ended(report["status"])
                    continue
                forked = self._forked.get(process, ForkedProcess(process))
                if "paused" not in report:
                    self._forked[process] = forked
                with self._lock:
                    answer = self._requests.popleft()
                answer.set_result(forked)
        with self._lock:
            lost, self._requests = self._requests, deque()
        for started in lost:
            started.set_exception(ConnectionError(_ENDED))
        for forked in self._forked.values():
            forked.ended(None)
        self._forked.clear()


@cache
def warm_process() -> WarmProcess:
    """Return the process that all brokers of this one may be forked from, until this one ends."""
    warm = WarmProcess()
    atexit.register(warm.close)
    return warm


class ForkedProcess:
    """A started command, with the methods of subprocess.Popen for its end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._has_ended = threading.Event()

    def ended(self, status: int | None) -> None:
        """Take the exit status, negative after a signal; None if it is not known."""
        self.returncode = -signal.SIGKILL if status is None else status
        self._has_ended.set()

    def poll(self) -> int | None:
        """Return the exit status; None while the command runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status at the end.  Raises subprocess.TimeoutExpired."""
        if not self._has_ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"kctl, process {self.pid}", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if the command runs."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, if the command runs."""
        self.send_signal(signal.SIGKILL)


def import_broker() -> None:
    """Import everything that a broker needs, and compile the codecs of the requests that it serves."""
    import kctl.server  # noqa: PLC0415 - in the process that brokers are forked from
    from kctl.protocol.codec import decoder, encoder  # noqa: PLC0415
    from kctl.protocol.registry import all_apis  # noqa: PLC0415

    for module in pkgutil.walk_packages(kctl.server.__path__, "kctl.server."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _OF_THE_COMMAND:
        importlib.import_module(name)
    # The first look-up of a host imports codecs.
    socket.getaddrinfo("127.0.0.1", 0)
    "localhost".encode("idna")
    for api in all_apis().values():
        for version in api.served[-1:]:
            for message in (api.request, api.response):
                encoder(message, version)
                decoder(message, version, True)


def serve() -> None:
    """Fork for each request of standard input, and report starts and ends to standard output."""
    import_broker()
    gc.freeze()  # Otherwise a collection in a fork would copy all pages.
    # The standard streams of a fork are others.
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    requests = os.dup(0)
    wakeup, woken = os.pipe()
    for descriptor in (wakeup, woken):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    unread = b""
    while True:
        readable, _, _ = select.select([requests, wakeup], [], [])
        if wakeup in readable:
            with suppress(BlockingIOError):
                os.read(wakeup, 4096)
            _report_ends(reports.fileno())
        if requests in readable:
            read = os.read(requests, 1 << 16)
            if not read:
                return
            *lines, unread = (unread + read).split(b"\n")
            for line in lines:
                request = json.loads(line)
                if "pause" in request:
                    _pause(request["pause"])
                    _write(reports.fileno(), {"pid": request["pause"], "paused": 1})
                    continue
                process = os.fork()
                if process == 0:
                    _run(request)
                _write(reports.fileno(), {"pid": process})


def _pause(process: int) -> None:
    """Send SIGSTOP, and return when the process is stopped or has ended."""
    with suppress(ChildProcessError, ProcessLookupError):  # Its end has been reported.
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        os.kill(process, signal.SIGSTOP)
        os.waitid(os.P_PID, process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _report_ends(reports: int) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _write(reports, {"pid": ended[0], "status": os.waitstatus_to_exitcode(ended[1])})


def _write(reports: int, report: dict[str, int]) -> None:
    with suppress(BrokenPipeError):
        os.write(reports, json.dumps(report).encode() + b"\n")


def _run(request: dict[str, object]) -> NoReturn:
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        words, output, environment = request["words"], request["output"], request["environment"]
        assert isinstance(words, list)
        assert isinstance(output, str)
        assert isinstance(environment, dict)
        _redirect(output)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[1:] = words
        from kctl.cli import main  # noqa: PLC0415 - as above

        status = main()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _redirect(output: str) -> None:
    """Read nothing, and append standard output and error output to a file; close what else is open."""
    written = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, standard in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(descriptor, standard)
    os.closerange(3, min(1 << 16, os.sysconf("SC_OPEN_MAX")))
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115


if __name__ == "__main__":
    serve()

"""The processes that do the work of the log cleaners (kctl.storage.cleaning.worker).

A process is started for the first log that is large enough, is used again for the next one, and ends IDLE_S after the
last: a broker that has nothing to compact has none.  It ends with the broker.

Owner: event loop, except for the methods of `CleanerProcess` and of the work, which block a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import subprocess
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from kctl import __version__
from kctl.errors import KctlError
from kctl.storage.cleaning.cleaning import (
    CleaningAborted,
    CleaningTask,
    CleaningWork,
    NotedKeys,
    WorkerEnded,
    WrittenSegment,
    producer_batches,
)
from kctl.storage.cleaning.messages import FAILED, RATE, READY, TASK, WRITE, error_of, frame_of, read_message
from kctl.storage.state.producer_state import ProducerEntry
from kctl.system.operating_system import module_command

log = logging.getLogger(__name__)

COMMAND = module_command("kctl.storage.cleaning.worker")
IDLE_S = 10
"""How long a process waits for the next log.  A start takes 0.15 s of processor time, an idle process 26 MB."""
_RETRY_S = 300
"""How long no process is started after one could not be started."""


class CannotStart(KctlError):
    """The process cannot be started, or is another version of kctl."""


class CleanerProcess:
    """One process, which works on one log at a time.  The methods block, except for `kill`."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self.has_ended = False
        self.bytes_per_second = float("inf")
        """The limit on bytes that are read and written, which `send_rate` sends."""

    @property
    def is_started(self) -> bool:
        """True once the process has been started."""
        return self._process is not None

    @property
    def is_running(self) -> bool:
        """True from the start to the end of the process, whatever ends it."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id, None before the start."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and wait until it is ready.  Raises CannotStart."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # Signals of the terminal are for the broker.
                )
            except OSError as error:
                ours.close()
                raise CannotStart(str(error)) from None
            self._socket = ours
            if self._is_killed:
                self._process.kill()
        greeting = self._receive()
        if greeting != (READY, __version__):
            self.kill()
            end = self._end()
            raise CannotStart(end if greeting is None else f"kctl was upgraded to {greeting[1]}")

    def call(self, *message: Any) -> Any:
        """Send a message, and return the result.  Raises WorkerEnded, and the error of the worker."""
        self._send(message)
        answer = self._receive()
        if answer is None:
            raise WorkerEnded(self._end())
        kind, *values = answer
        if kind == FAILED:
            raise error_of(*values)
        return values[0]

    def send_rate(self) -> None:
        """Tell the process its limit."""
        assert self._socket is not None
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(frame_of((RATE, self.bytes_per_second)))

    def kill(self) -> None:
        """End the process with SIGKILL; a call that waits raises WorkerEnded once it has ended."""
        self._is_killed = True
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """End the process, which is idle, and wait for its end."""
        assert self._socket is not None
        self._socket.close()
        self._end()

    def _send(self, message: tuple[Any, ...]) -> None:
        assert self._socket is not None
        with self._lock, contextlib.suppress(OSError):  # The receiver notices the end of the process.
            self._socket.sendall(frame_of(message))

    def _receive(self) -> tuple[Any, ...] | None:
        assert self._socket is not None
        try:
            return read_message(self._socket.recv)
        except OSError:
            return None

    def _end(self) -> str:
        """Wait for the end of the process, and return what has ended it."""
        assert self._process is not None
        status = self._process.wait()
        if self._socket is not None:
            self._socket.close()
        self.has_ended = True
        what = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"the process of the cleaner has ended with {what}"


class CleanerProcesses:
    """The processes of all cleaners of a broker."""

    def __init__(
        self,
        run_in_thread: Callable[[Callable[[], object]], object],
        *,
        command: Sequence[str] = COMMAND,
        idle_s: float = IDLE_S,
    ) -> None:
        self._run_in_thread = run_in_thread
        self._command = command
        self._idle_s = idle_s
        self._idle: list[CleanerProcess] = []
        self._busy: list[CleanerProcess] = []
        self._bytes_per_second = float("inf")
        self._expiry: asyncio.TimerHandle | None = None
        self._not_before_s = 0.0
        self._is_stopped = False

    @property
    def busy_count(self) -> int:
        """How many processes work on a log."""
        return len(self._busy)

    @property
    def pids(self) -> list[int]:
        """The ids of all processes."""
        return [pid for process in (*self._busy, *self._idle) if (pid := process.pid) is not None]

    def work_on(self, task: CleaningTask, in_thread: Callable[[], CleaningWork]) -> CleaningWork:
        """Return the work on a log in a process; `in_thread` makes the work that is done if none can be started."""
        if asyncio.get_running_loop().time() < self._not_before_s:
            return in_thread()
        process = self._take_idle() or CleanerProcess(self._command)
        process.bytes_per_second = self._bytes_per_second
        self._busy.append(process)
        return _Work(self, process, task, in_thread)

    def _take_idle(self) -> CleanerProcess | None:
        while self._idle:
            process = self._idle.pop()
            if process.is_running:
                return process
            self._run_in_thread(process.end)
        return None

    def set_rate(self, bytes_per_second: float) -> None:
        """Limit each process that works."""
        if bytes_per_second == self._bytes_per_second:
            return
        self._bytes_per_second = bytes_per_second
        for process in self._busy:
            process.bytes_per_second = bytes_per_second
            if process.is_started:
                self._run_in_thread(process.send_rate)

    def stop(self) -> None:
        """End all processes; the work of those that are busy raises CleaningAborted."""
        self._is_stopped = True
        for process in self._busy:
            process.kill()
        self._end_idle()

    def release(self, process: CleanerProcess) -> None:
        """Keep a process whose work is over for the next log."""
        self._busy.remove(process)
        if process.has_ended or not process.is_started:
            return
        self._idle.append(process)
        if self._is_stopped:
            self._end_idle()
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    def _end_idle(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        idle, self._idle = self._idle, []
        for process in idle:
            self._run_in_thread(process.end)

    def cannot_start(self, reason: CannotStart) -> None:
        """Clean logs in threads for a while; called on the event loop."""
        self._not_before_s = asyncio.get_running_loop().time() + _RETRY_S
        log.warning("cannot start a process for the log cleaner, using a thread retry_s=%s error=%s", _RETRY_S, reason)

    def prepare(self, process: CleanerProcess) -> None:
        """Start the process if it is new, and send it the rate; in a thread.  Raises CannotStart, CleaningAborted."""
        if not process.is_started:
            try:
                process.start()
            except CannotStart:
                self.check_stopped()
                raise
        process.send_rate()

    def check_stopped(self) -> None:
        """Raise CleaningAborted if the broker stops."""
        if self._is_stopped:
            raise CleaningAborted("the broker is stopping")


class _Work:
    """The work on one log in a process: implements CleaningWork."""

    def __init__(
        self,
        processes: CleanerProcesses,
        process: CleanerProcess,
        task: CleaningTask,
        in_thread: Callable[[], CleaningWork],
    ) -> None:
        self._processes = processes
        self._process = process
        self._task = task
        self._make_in_thread = in_thread
        self._in_thread: CleaningWork | None = None
        self._reason: CannotStart | None = None

    def note_keys(self, producers: list[ProducerEntry]) -> NotedKeys:
        try:
            self._processes.prepare(self._process)
        except CannotStart as reason:
            self._reason = reason
            self._in_thread = self._make_in_thread()
            return self._in_thread.note_keys(producers)
        fields = array("q")
        for batch in producer_batches(producers, self._task):
            fields.extend(batch)
        noted: NotedKeys = self._call(TASK, self._task, fields)
        return noted

    def write(self, first: int, end: int) -> WrittenSegment:
        if self._in_thread is not None:
            return self._in_thread.write(first, end)
        written: WrittenSegment = self._call(WRITE, first, end)
        return written

    def close(self) -> None:
        self._processes.release(self._process)
        if self._reason is not None:
            self._processes.cannot_start(self._reason)

    def _call(self, *message: Any) -> Any:
        try:
            return self._process.call(*message)
        except WorkerEnded:
            self._processes.check_stopped()
            raise

"""A server process for the duration of a `with` block: output to a file, and its exit detected while waiting."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.peers import probe
from tests.peers.forked_kctl import ForkedProcess, forked_kctl

STOP_TIMEOUT_S = 90
LOG_TAIL_LINES = 40


class Process:
    """Started at once, in its own process group; leaving the block stops it: SIGTERM, then SIGKILL if necessary."""

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._popen = self._start(command, output, os.environ if environment is None else environment)

    def _start(
        self, command: Sequence[str], output: IO[bytes], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until(self, claim: Callable[[], bool], *, timeout_s: float) -> None:
        """Waits until the server is ready; raises with the end of its log if the process ends, or after the timeout."""

        def holds() -> bool:
            if not self.is_running:
                raise RuntimeError(f"{self.name} ended with {self._popen.returncode}:\n{self._tail()}")
            return claim()

        try:
            probe.wait_until(holds, what=self.name, timeout_s=timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self._tail()}") from None

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """Ends it and returns its exit status (negative: the signal that ended it)."""
        if self.is_running:
            self._popen.send_signal(signal_number)
        try:
            return self._popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()

    def _tail(self) -> str:
        return "\n".join(self.log_text.splitlines()[-LOG_TAIL_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class KctlProcess(Process):
    """`kctl` with these arguments, forked from a process that has imported it."""

    def __init__(self, name: str, words: Sequence[str], *, log: Path, network: Path | None = None) -> None:
        """`network` is the file of the network namespace that it runs in, if that is another one."""
        self._network = network
        super().__init__(name, words, log=log)

    def _start(self, command: Sequence[str], output: IO[bytes], environment: Mapping[str, str]) -> ForkedProcess:
        with contextlib.ExitStack() as stack:
            nothing = stack.enter_context(open(os.devnull, "rb"))
            files = [nothing.fileno(), output.fileno(), output.fileno()]
            if self._network is not None:
                files.append(stack.enter_context(self._network.open("rb")).fileno())
            return forked_kctl().start(command, streams=files, environment=environment)

"""One broker of a machine: runs its processes as `supervision` decides.  Owner: event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping

from kctl.errors import KctlError
from kctl.server.process.data_folder import DataFolderError
from kctl.server.process.machine import supervision
from kctl.server.process.machine.broker_process import STOP_WITHOUT_SUPERVISOR_S
from kctl.server.process.machine.supervision import (
    Action,
    Elapsed,
    Ended,
    Event,
    Fail,
    Heard,
    Launch,
    Phase,
    Ready,
    Signal,
)
from kctl.server.process.starting import DETACHED, StartOptions
from kctl.system.environment import Clock
from kctl.system.operating_system import module_command

log = logging.getLogger(__name__)

_POLL_S = 0.05
_UNLOCK_POLLS = int((STOP_WITHOUT_SUPERVISOR_S + 10) / _POLL_S)
_STATUS = "STATUS="


class SupervisedBroker:
    """Call `start`; `ended` when `stop` is complete.  `on_change` is called after each change of the state."""

    def __init__(
        self,
        options: StartOptions,
        properties: Mapping[str, str],
        *,
        clock: Clock,
        output: int | None,
        is_quiet: bool,
        on_change: Callable[[], None],
    ) -> None:
        """Prepare the processes, which write their log to the descriptor `output`, or to stderr for None."""
        self.folder = options.folder
        self.state = supervision.State()
        self.failure: KctlError | None = None
        """Why the service cannot start."""
        self._options = options
        self._properties = properties
        self._clock = clock
        self._output = output
        self._is_quiet = is_quiet
        self._on_change = on_change
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._supervising: asyncio.Task[None] | None = None
        self._reason = ""

    @property
    def index(self) -> int:
        """The number of the process."""
        assert self._options.process is not None
        return self._options.process

    def start(self) -> None:
        """Launch the first process."""
        self._launch()
        self._supervising = asyncio.create_task(self._supervise(), name=f"supervise-{self.index}")

    def stop(self) -> None:
        """Begin a controlled shutdown; the process is not started again."""
        self._events.put_nowait(supervision.Stop())

    async def ended(self) -> None:
        """Return when the process has ended and is not started again."""
        if self._supervising is not None:
            await self._supervising

    async def _supervise(self) -> None:
        while self.state.phase is not Phase.ENDED:
            event = await self._next()
            before = self.state.phase
            self.state, actions = supervision.step(self.state, event, self._clock.monotonic_ms())
            for action in actions:
                self._perform(action)
            if self.state.phase is not before:
                log.debug("broker process changes process=%s pid=%s phase=%s", self.index, self._pid, self.state.phase)
                self._on_change()

    async def _next(self) -> Event:
        due_ms = self.state.due_ms
        wait_s = None if due_ms is None else max(due_ms - self._clock.monotonic_ms(), 0) / 1000
        try:
            async with asyncio.timeout(wait_s):
                return await self._events.get()
        except TimeoutError:
            return Elapsed()

    def _perform(self, action: Action) -> None:
        match action:
            case Launch():
                self._launch()
            case Signal(number):
                self._signal(number)
            case supervision.RestartLater(delay_ms):
                log.warning("broker process has ended, starting it again process=%s delay_ms=%s", self.index, delay_ms)
            case Fail():
                self.failure = KctlError(f"process {self.index}: {self._reason}")

    def _launch(self) -> None:
        self._reason = "ended; its output has the reason"
        self._running = asyncio.create_task(self._run(), name=f"broker-process-{self.index}")

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            assert self._running is not None
            self._running.cancel()  # It is about to be launched.
        elif self._process.returncode is None:
            if number is not signal.SIGTERM:
                log.error("broker process does not respond process=%s pid=%s signal=%s", self.index, self._pid, number)
            self._process.send_signal(number)

    async def _run(self) -> None:
        """Run one process to its end."""
        try:
            await self._wait_for_the_folder()
            ours, theirs = socket.socketpair()
            with ours:  # Its end ends the process.
                with theirs:
                    self._process = await self._spawn(theirs)
                await self._listen(ours)
                status = await self._process.wait()
                log.info("broker process has ended process=%s pid=%s status=%s", self.index, self._pid, status)
        except (OSError, DataFolderError) as error:
            self._reason = str(error)
            log.warning("broker process cannot be started process=%s error=%s", self.index, error)
        finally:
            self._process = None
            self._events.put_nowait(Ended())

    async def _spawn(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C reaches the supervisor only, which stops all brokers.
        process = await asyncio.create_subprocess_exec(
            *module_command("kctl.server.process.machine.broker_process"),
            *(str(self.folder.path), str(theirs.fileno())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=self._output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={name: text for name, text in os.environ.items() if name != DETACHED},
        )
        document = {
            "properties": dict(self._properties),
            "process": self.index,
            "log_format": self._options.log_format,
            "is_quiet": self._is_quiet,
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(document).encode())
        process.stdin.close()
        return process

    async def _listen(self, ours: socket.socket) -> None:
        """Turn notifications into events, until the process closes the stream."""
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            while line := await reader.readline():
                text = line.decode("utf-8", "replace").strip()
                if text == "READY=1":
                    log.info("broker process is serving process=%s pid=%s", self.index, self._pid)
                    self._events.put_nowait(Ready())
                elif text == "WATCHDOG=1":
                    self._events.put_nowait(Heard())
                elif text.startswith(_STATUS):
                    self._reason = text.removeprefix(_STATUS)
        except OSError:
            pass  # The process was killed.
        finally:
            writer.close()

    async def _wait_for_the_folder(self) -> None:
        """Wait for the end of a process whose supervisor was killed, which needs some time."""
        if self.folder.is_locked():
            log.info("waiting for the previous broker of the folder process=%s folder=%s", self.index, self.folder.path)
        for _ in range(_UNLOCK_POLLS):
            if not self.folder.is_locked():
                return
            await asyncio.sleep(_POLL_S)

    @property
    def _pid(self) -> int | None:
        return None if self._process is None else self._process.pid

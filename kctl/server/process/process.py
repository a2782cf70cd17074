"""A broker as a process: configuration, log, signals."""

from __future__ import annotations

import asyncio
import faulthandler
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

from kctl.config.definition import BrokerConfigError
from kctl.errors import KctlError
from kctl.output.log_lines import LogFormat, continue_logging, set_up_logging
from kctl.server.loop import memory
from kctl.server.loop.lag import MeasuredEventLoop
from kctl.server.loop.tasks import started_pool, stop_at_end_of
from kctl.server.process import bundle
from kctl.server.process.data_folder import DataFolder, RunningBroker
from kctl.server.process.host import BrokerHost
from kctl.server.process.service_manager import ServiceManager
from kctl.server.process.starting import DETACHED, StartOptions, is_detached
from kctl.system.open_files import raise_limit
from kctl.system.operating_system import limit_freed_memory
from kctl.zookeeper.security import refuse_client_section

if TYPE_CHECKING:
    from kctl.server.process.test_control.control import BrokerControl

# The output of a process that `start_detached` has started: all of it is in the output file of its data folder.
#
# The process shares a pipe with the command that waits for it. Until the folder is locked, the file may be that of
# another broker, so that log lines are kept in memory. Then they and everything after them are written to the file;
# the pipe stays open until the broker serves, and gets the reason if it cannot.


log = logging.getLogger(__name__)


def log_stream_of_start(stream: TextIO | None) -> TextIO | None:
    """Return the stream for log lines until `BackgroundOutput.begin`; None discards them."""
    return io.StringIO() if stream is not None and is_detached() else stream


class BackgroundOutput:
    """Use as a context manager around the run of a broker; does nothing in a process that is not detached.

    Call `begin` when the folder is locked, and `served` when the broker serves.
    """

    def __init__(self) -> None:
        self._is_detached = is_detached()
        self._pipe_fd: int | None = None

    def begin(self, folder: DataFolder) -> None:
        """Write all output to the file of the folder, the log lines until now first.  Raises OSError."""
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
        """Close the pipe: the command that waits returns."""
        os.environ.pop(DETACHED, None)
        if self._pipe_fd is not None:
            os.close(self._pipe_fd)
            self._pipe_fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write the reason of a failed start to the file; the caller, who reports it, writes to the pipe again."""
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


MEASURE_LOOP_CPU = "KCTL_MEASURE_LOOP_CPU"
"""Environment variable that enables measuring the CPU time of event loop iterations, for tests."""
SWITCH_INTERVAL_S = 0.0005
"""How long a thread that reads records may hold the interpreter lock.  The event loop waits for it up to four times per
request.  With Python's 5 ms and two such threads, small produce requests took 5.4 ms (median) instead of 0.2 ms; with
0.5 ms they take 1.0 ms."""


class Host(Protocol):
    """The content of a process: one broker, or the supervisor of several."""

    folder: DataFolder

    @property
    def failed(self) -> asyncio.Future[None]:
        """Done with an exception when it cannot continue."""
        ...

    def take(self) -> None:
        """Take the ports and the data folder, before anything is written.

        Raises KctlError; `stop` is called then too.
        """
        ...

    async def start(self) -> RunningBroker:
        """Start what `take` has taken; return when it serves.  Raises KctlError; `stop` is called then too."""
        ...

    async def stop(self) -> None:
        """Stop, also what has been started in part."""
        ...


def run(
    options: StartOptions,
    *,
    on_serving: Callable[[RunningBroker], None],
    on_warning: Callable[[str], None] | None,
    log_stream: TextIO | None,
    service: ServiceManager | None = None,
    control: BrokerControl | None = None,
) -> None:
    """Run a broker until SIGINT or SIGTERM.  Raises KctlError if it cannot start; then nothing is left running.

    `service` is notified; by default it is the service manager that has started this process.  `control` is that of a
    test.
    """
    set_up(options, [options], on_warning=on_warning, log_stream=log_stream)
    properties = options.properties()
    user = None if options.secure is None else options.secure.user
    run_host(
        lambda: BrokerHost(
            options.folder, properties, options.embedded_zookeeper_port, user, options.stop_with, control
        ),
        properties,
        on_serving=on_serving,
        service=service,
        stop_with=options.stop_with,
        new_loop=None if control is None else control.new_loop,
    )


def set_up(
    options: StartOptions,
    brokers: Sequence[StartOptions],
    *,
    on_warning: Callable[[str], None] | None,
    log_stream: TextIO | None,
) -> None:
    """Prepare this process for brokers with these options: log, limits, warnings about properties.

    Raises BrokerConfigError with all problems of the properties.  With a JSON log, warnings are log lines.
    """
    refuse_client_section(os.environ)
    set_up_logging(log_stream_of_start(log_stream), options.log_format, options.process)
    examined = [broker.examine() for broker in brokers]
    problems = dict.fromkeys(problem for examination in examined for problem in examination.problems)
    if problems:
        raise BrokerConfigError(tuple(problems))
    for warning in dict.fromkeys(warning for examination in examined for warning in examination.warnings):
        if on_warning is None:
            continue
        if options.log_format is LogFormat.JSON and not is_detached():
            log.warning("%s", warning)
        else:
            on_warning(warning)
    # The watchdog of a service manager ends a process with SIGABRT; the stacks of its threads are written then.
    faulthandler.enable()
    raise_limit()
    limit_freed_memory()
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def run_host(
    host_of: Callable[[], Host],
    properties: Mapping[str, str],
    *,
    on_serving: Callable[[RunningBroker], None],
    service: ServiceManager | None = None,
    stop_with: int | None = None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run a host, made in the event loop, until SIGINT, SIGTERM or the end of the process `stop_with`.

    Raises KctlError; then nothing is left running.
    """
    loop_factory = new_loop or partial(MeasuredEventLoop, measures_cpu=MEASURE_LOOP_CPU in os.environ)
    with asyncio.Runner(loop_factory=loop_factory) as runner, BackgroundOutput() as output:
        runner.get_loop().set_default_executor(started_pool(_threads_max(), "asyncio"))
        serving = _serve(host_of, properties, on_serving, service or ServiceManager.of_process(), output, stop_with)
        runner.run(serving)


def _threads_max() -> int:
    """As many threads as asyncio's own executor has at most."""
    return min(32, (os.cpu_count() or 1) + 4)


async def _serve(
    host_of: Callable[[], Host],
    properties: Mapping[str, str],
    on_serving: Callable[[RunningBroker], None],
    service: ServiceManager,
    output: BackgroundOutput,
    stop_with: int | None,
) -> None:
    loop = asyncio.get_running_loop()
    memory.freeze()  # While thousands of logs are opened, Python would visit all of them again and again.
    host = host_of()
    stop = asyncio.Event()
    background: set[asyncio.Task[None]] = set()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if stop_with is not None:
        background.add(loop.create_task(stop_at_end_of(stop_with, stop.set), name="stop-with"))
    bundle.write_on_signal(host.folder.dump, partial(_numbers, loop), properties)
    try:
        host.take()
        output.begin(host.folder)
        starting = loop.create_task(host.start(), name="broker-start")
        stopping = loop.create_task(stop.wait(), name="broker-stop")
        waits: set[asyncio.Future[Any]] = {starting, stopping, host.failed}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            running = starting.result()
            memory.freeze_recent()
            background.add(loop.create_task(memory.return_free_pages(), name="free-memory"))
            if isinstance(loop, MeasuredEventLoop):
                loop.restart_measurements()
                lag = loop.lag
                collecting = memory.collect(lambda: lag.wall.sum_ms / 1000, lag.slow.collected)
                background.add(loop.create_task(collecting, name="garbage-collection"))
                loop.run_between_iterations(memory.collect_young, memory.YOUNG_INTERVAL_S)
            on_serving(running)
            await service.ready(f"serving on {running.address}")
            output.served()
            waits = {stopping, host.failed}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        else:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        stopping.cancel()
    finally:
        for task in background:
            task.cancel()
        await service.stopping()
        await host.stop()
        if isinstance(loop, MeasuredEventLoop):
            log.info("event_loop %s", loop.lag)
        await service.close()
    if host.failed.done():
        host.failed.result()


def _numbers(loop: asyncio.AbstractEventLoop) -> dict[str, str]:
    lag = {"event_loop": str(loop.lag)} if isinstance(loop, MeasuredEventLoop) else {}
    return {**bundle.process_numbers(), **lag}

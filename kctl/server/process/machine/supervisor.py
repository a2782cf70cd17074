"""Runs the brokers of one machine as processes, with the embedded ZooKeeper and the metrics that they share.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import os

from kctl import __version__
from kctl.config.dynamic import ConfigView
from kctl.errors import KctlError
from kctl.server.loop.tasks import SystemClock, in_thread
from kctl.server.process.data_folder import LOOPBACK, DataFolder, RunningBroker
from kctl.server.process.host import store_user
from kctl.server.process.machine.layout import MachineOptions, unexpected_data, with_zookeeper
from kctl.server.process.machine.metrics import MachineMetrics
from kctl.server.process.machine.supervised import SupervisedBroker
from kctl.server.process.machine.supervision import Phase
from kctl.server.process.preflight import port_problems
from kctl.server.process.starting import StartOptions, is_detached
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper


class Supervisor:
    """The `process.Host` of several brokers."""

    def __init__(self, options: MachineOptions, *, is_quiet: bool) -> None:
        """Raise UsageError if ports of the brokers are equal."""
        self.folder = options.service.folder
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._options = options
        self._processes = options.processes()
        self._is_quiet = is_quiet
        self._clock = SystemClock()
        self._embedded: EmbeddedZooKeeper | None = None
        self._brokers: list[SupervisedBroker] = []
        self._metrics: MachineMetrics | None = None
        self._metrics_url = ""
        self._output: int | None = None
        self._changed = asyncio.Event()

    def take(self) -> None:
        """Take the ports of the service, then its folder.

        Raises KctlError, also for a port of a broker that is in use now; the brokers take theirs when they start.
        """
        unexpected = unexpected_data(self.folder, self._options.count, self._options.service.given)
        if unexpected is not None:
            raise KctlError(unexpected)
        self._metrics_url = self._bind_metrics()
        if not self._options.has_ensemble:
            self._embedded = EmbeddedZooKeeper(
                self.folder.zookeeper,
                host=LOOPBACK,
                port=self._options.service.embedded_zookeeper_port or 0,
                port_option="--embedded-zookeeper-port",
                on_failure=self._zookeeper_failed,
            )
            self._embedded.bind()
        for index, options in enumerate(self._processes):
            if options.folder.is_locked():
                continue  # A broker whose supervisor was killed has the ports, and is waited for.
            for problem in port_problems(options.examine().config):
                raise KctlError(f"process {index}: {problem.message}")
        self.folder.acquire()

    async def start(self) -> RunningBroker:
        """Start all brokers, after `take`; return when each serves.  Raises KctlError when one of them cannot start."""
        self._output = _output_of(self.folder)
        connect = self._processes[0].given.get("zookeeper.connect", "").strip() or await self._start_zookeeper()
        await self._store_user(connect)
        self._brokers = [self._supervised(options, connect) for options in self._processes]
        if self._metrics is not None:
            await self._metrics.start(self._brokers)
        for broker in self._brokers:
            broker.start()
        first = await self._all_serving()
        running = RunningBroker(
            pid=os.getpid(),
            host=first.host,
            port=first.port,
            broker_id=first.broker_id,
            zookeeper=connect,
            started_ms=self._clock.now_ms(),
            version=__version__,
            metrics_url=self._metrics_url,
            processes=len(self._brokers),
        )
        self.folder.announce(running)
        return running

    async def stop(self) -> None:
        """Stop all brokers at the same time, each with a controlled shutdown, then their embedded ZooKeeper and
        metrics.
        """
        for broker in self._brokers:
            broker.stop()
        await asyncio.gather(*(broker.ended() for broker in self._brokers))
        if self._metrics is not None:
            await self._metrics.close()
        if self._embedded is not None:
            await self._embedded.stop()
        if self._output is not None:
            os.close(self._output)
        self.folder.release()

    def _bind_metrics(self) -> str:
        """Return the URL of the metrics; empty without an endpoint."""
        address = self._options.metrics_address
        if address is None:
            return ""
        self._metrics = MachineMetrics()
        host, port = address
        return f"http://{host}:{self._metrics.bind(host, port)}/metrics"

    async def _start_zookeeper(self) -> str:
        assert self._embedded is not None, "call take first"
        await self._embedded.start()
        return self._embedded.connect

    def _zookeeper_failed(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    async def _store_user(self, connect: str) -> None:
        secure = self._options.service.secure
        if secure is not None:
            configs = ConfigView(with_zookeeper(self._processes[0], connect))
            await store_user(connect, configs, *await in_thread(secure.user))

    def _supervised(self, options: StartOptions, connect: str) -> SupervisedBroker:
        return SupervisedBroker(
            options,
            with_zookeeper(options, connect),
            clock=self._clock,
            output=self._output,
            is_quiet=self._is_quiet,
            on_change=self._changed.set,
        )

    async def _all_serving(self) -> RunningBroker:
        """Return the first broker, when all serve."""
        while True:
            for broker in self._brokers:
                if broker.failure is not None:
                    raise broker.failure
            if all(broker.state.phase is Phase.SERVING for broker in self._brokers):
                first = self._brokers[0].folder.running()
                if first is not None:
                    return first
            self._changed.clear()
            await self._changed.wait()


def _output_of(folder: DataFolder) -> int | None:
    """Return the file for the output of the brokers if this process runs in the background; None for its stderr."""
    if not is_detached():
        return None
    return os.open(folder.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

"""The HTTP endpoint for the metrics of all brokers of a machine.

Each scrape reads the endpoints of the brokers, which are on free ports of the loopback interface.  Scrapes at the same
time in the same format share one reading.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from kctl.admin.cluster.metrics import get, scrape
from kctl.errors import ClusterUnreachable
from kctl.limits import METRICS_SEND_MS_MAX
from kctl.metrics.exposition import Families, Format, labelled, merged
from kctl.server.loop.tasks import SystemClock
from kctl.server.metrics.endpoint import MetricsEndpoint
from kctl.server.process.data_folder import RunningBroker
from kctl.server.process.machine.supervised import SupervisedBroker
from kctl.server.process.machine.supervision import Phase

_READ_MS = METRICS_SEND_MS_MAX - 5_000
"""Leaves time to send the response."""


class MachineMetrics:
    """Call `bind`, `start` and `close`."""

    def __init__(self) -> None:
        self._endpoint = MetricsEndpoint(self.scrape, self.not_ready, remark=self._health)
        self._brokers: Sequence[SupervisedBroker] = ()
        self._scrapes: dict[str, asyncio.Task[list[bytes]]] = {}

    def bind(self, host: str, port: int) -> int:
        """Bind the endpoint; return its port.  Raises ListenError."""
        return self._endpoint.bind(host, port)

    async def start(self, brokers: Sequence[SupervisedBroker]) -> None:
        """Accept scrapes."""
        self._brokers = brokers
        await self._endpoint.start()

    async def close(self) -> None:
        """Close the endpoint."""
        await self._endpoint.close()
        for scraping in list(self._scrapes.values()):
            scraping.cancel()

    async def scrape(self, accept: str) -> tuple[str, Sequence[bytes]]:
        """Return the content type and pieces of the exposition of all brokers that respond."""
        form = Format(accept)
        running = self._scrapes.get(form.content_type)
        if running is None:
            running = asyncio.create_task(self._read(form), name="scrape-brokers")
            self._scrapes[form.content_type] = running
            running.add_done_callback(lambda _: self._scrapes.pop(form.content_type))
        return form.content_type, await asyncio.shield(running)

    async def not_ready(self) -> str:
        """Return why one of the brokers does not serve clients now; empty if all do."""
        for broker in self._brokers:
            if broker.state.phase is not Phase.SERVING:
                return f"process {broker.index} is {broker.state.phase.value}"
        for broker in self._brokers:
            running = broker.folder.running()
            if running is None:
                return f"process {broker.index} is not serving"
            try:
                await asyncio.to_thread(_is_ready, running)
            except ClusterUnreachable as error:
                return f"process {broker.index} is not ready: {error}"
        return "" if self._brokers else "the brokers are not started"

    def _health(self) -> str:
        """Return the first broker that does not act as leader."""
        for broker in self._brokers:
            running = broker.folder.running()
            if running is not None and running.problem:
                return f"process {broker.index} is not acting as leader: {running.problem}"
        return ""

    async def _read(self, form: Format) -> list[bytes]:
        running = [broker.folder.running() for broker in self._brokers]
        found = await asyncio.gather(*(asyncio.to_thread(_families, broker, form) for broker in running if broker))
        pieces = [form.metrics(self._own())]
        pieces += await asyncio.to_thread(lambda: list(merged(families for families in found if families)))
        return [*pieces, form.end]

    def _own(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        serving = GaugeMetricFamily("kctl_process_serving", "1 if the broker serves clients", labels=["process"])
        restarts = CounterMetricFamily("kctl_process_restarts", "Restarts after the process ended", labels=["process"])
        for broker in self._brokers:
            serving.add_metric([str(broker.index)], float(broker.state.phase is Phase.SERVING))
            restarts.add_metric([str(broker.index)], broker.state.restarts)
        return [serving, restarts]


def _is_ready(running: RunningBroker) -> None:
    """Check, in a thread, that the broker acts as leader.  Raises ClusterUnreachable."""
    host, port = _address(running)
    get(host, port, "/readyz", _deadline())


def _families(running: RunningBroker, form: Format) -> Families | None:
    """Return the families of one broker; None if it does not respond.  Runs in a thread."""
    host, port = _address(running)
    try:
        text = scrape(host, port, _deadline(), accept=form.content_type)
    except ClusterUnreachable:
        return None
    return labelled(text, running.broker_id)


def _deadline() -> Callable[[], float]:
    """Return a function that returns how many seconds are left."""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + _READ_MS
    return lambda: (end_ms - clock.monotonic_ms()) / 1000


def _address(running: RunningBroker) -> tuple[str, int]:
    url = urlsplit(running.metrics_url)
    if url.hostname is None or url.port is None:
        raise ClusterUnreachable("the broker has no endpoint for metrics")
    return url.hostname, url.port

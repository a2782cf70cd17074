"""The metrics of one broker and their endpoint; exists only with metrics.port.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from prometheus_client.core import Metric

from kctl.admin.groups.lag import ClusterLag
from kctl.metrics.definitions import AnyFamily, Dialect
from kctl.metrics.exposition import Format, exposition
from kctl.server.loop.lag import LoopLag
from kctl.server.loop.tasks import in_thread
from kctl.server.metrics.catalogue import Catalogue
from kctl.server.metrics.endpoint import MetricsEndpoint
from kctl.server.metrics.group_lag import GroupLagReader
from kctl.server.metrics.sources import SAMPLE_EVERY_S, BrokerState, LastMinute, Sample, Sources
from kctl.server.metrics.subjects import lag as lag_metrics
from kctl.server.metrics.subjects.server import ProcessMetrics, loop_lag
from kctl.server.network.connection_limits import ConnectionLimits

log = logging.getLogger(__name__)


class BrokerMetrics:
    """Call `bind`, `start`, `serve` when the parts of the broker exist, and `close`."""

    def __init__(
        self, dialect: Dialect, limits: ConnectionLimits, lag: LoopLag, state: Callable[[], BrokerState]
    ) -> None:
        self.lag = lag
        self._dialect = dialect
        self._limits = limits
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._catalogue = Catalogue()
        self._process = ProcessMetrics()
        self._group_lag = GroupLagReader()
        self._sources: Sources | None = None
        self._scrapes: dict[str, asyncio.Task[list[bytes]]] = {}
        self._endpoint = MetricsEndpoint(self.scrape, self._not_ready, remark=self._health)
        self._started = self.sample()
        self.last_minute = LastMinute(self._started)
        self._sampling: asyncio.TimerHandle | None = None

    def bind(self, host: str, port: int) -> int:
        """Bind the endpoint; return its port.  Raises ListenError."""
        return self._endpoint.bind(host, port)

    async def start(self) -> None:
        """Accept scrapes; until `serve`, they contain the process only."""
        await self._endpoint.start()
        self._sample_regularly()

    def serve(self, sources: Sources) -> None:
        """Add the metrics of the broker's parts to the scrapes."""
        self._sources = sources

    async def close(self) -> None:
        """Close the endpoint."""
        if self._sampling is not None:
            self._sampling.cancel()
        await self._endpoint.close()
        for scrape in list(self._scrapes.values()):
            scrape.cancel()
        self._group_lag.cancel()

    def sample(self) -> Sample:
        """Return the counters from which rates are computed."""
        opened = dict(self._limits.admitted)
        still_open = self._limits.by_listener
        closed = {listener: count - still_open.get(listener, 0) for listener, count in opened.items()}
        groups = None if self._sources is None else replace(self._sources.parts.groups.counts)
        return Sample(self._loop.time(), self.lag.wall.sum_ms / 1000, opened, closed, groups)

    def idle_s(self) -> float:
        """Return how long the event loop has been idle since the start."""
        now = self.sample()
        return max(now.time_s - self._started.time_s - (now.busy_s - self._started.busy_s), 0.0)

    async def scrape(self, accept: str) -> tuple[str, Sequence[bytes]]:
        """Return the content type and pieces of an exposition in a format that the Accept header names.

        Concurrent scrapes in the same format share one exposition.
        """
        form = Format(accept)
        running = self._scrapes.get(form.content_type)
        if running is None:
            running = self._loop.create_task(self._make(form), name="scrape")
            self._scrapes[form.content_type] = running
            running.add_done_callback(lambda _: self._scrapes.pop(form.content_type))
        return form.content_type, await asyncio.shield(running)

    async def _make(self, form: Format) -> list[bytes]:
        process = await in_thread(self._process.collect)
        if self._sources is None or not self._sources.base.configs.current.metrics_consumer_lag:
            return await exposition(self._families(process, None), form, self._dialect)
        async with self._group_lag.read(self._sources) as lag:
            return await exposition(self._families(process, lag), form, self._dialect)

    def _families(self, process: list[Metric], lag: ClusterLag | None) -> Iterator[AnyFamily | Metric | None]:
        yield from process
        yield loop_lag(self.lag)
        if self._sources is not None:
            yield from self._catalogue.families(self._sources)
        if lag is not None:
            yield from lag_metrics.families(lag, of_exporter=False)

    async def _not_ready(self) -> str:
        state = self._state()
        if state is not BrokerState.RUNNING or self._sources is None:
            return f"the broker is in the state {state.name}"
        return self._sources.session.problem or self._sources.base.lease.problem

    def _health(self) -> str:
        """Return a remark: a broker that does not act as leader is not restarted for that, which would not help."""
        problem = "" if self._sources is None else self._sources.base.lease.problem
        return f"not acting as leader: {problem}" if problem else ""

    def _sample_regularly(self) -> None:
        self.last_minute.add(self.sample())
        self._sampling = self._loop.call_later(SAMPLE_EVERY_S, self._sample_regularly)

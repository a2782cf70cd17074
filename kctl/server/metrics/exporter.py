"""An exporter of consumer lag for any cluster, as a process of its own: `kctl metrics serve`.

The cluster is read when Prometheus scrapes.  Scrapes within a short time share one collection, also those that come
while it runs, so that their number does not matter to the cluster.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kctl.admin.groups.lag import ClusterLag, LagReader, read_cluster_lag
from kctl.client.cluster import ClusterClient
from kctl.errors import KctlError
from kctl.limits import METRICS_SEND_MS_MAX
from kctl.metrics.definitions import Dialect
from kctl.metrics.exposition import Format, exposition
from kctl.server.metrics.endpoint import AddressOptions, MetricsEndpoint, ScrapeFailed
from kctl.server.metrics.subjects import lag

_COLLECT_MS_MAX = METRICS_SEND_MS_MAX - 5_000
"""Leaves time to send the reason of a failure."""


class LagExporter:
    """Call `bind`, `start` and `close`."""

    def __init__(
        self,
        client: ClusterClient,
        reader: LagReader,
        *,
        cache_ms: int,
        now_ms: Callable[[], int],
        warn: Callable[[str], None],
    ) -> None:
        """Use each collection for `cache_ms`; `warn` gets each new reason why there is none."""
        self.endpoint = MetricsEndpoint(self.scrape, self._not_ready, AddressOptions("--port", "--listen"))
        self._client = client
        self._reader = reader
        self._cache_s = cache_ms / 1000
        self._now_ms = now_ms
        self._warn = warn
        self._loop = asyncio.get_running_loop()
        self._collecting: asyncio.Task[ClusterLag] | None = None
        self._collected_s = float("-inf")
        self._problem = ""

    async def scrape(self, accept: str) -> tuple[str, Sequence[bytes]]:
        """Return the content type and pieces of an exposition.  Raises ScrapeFailed if the cluster cannot be read."""
        form = Format(accept)
        task = self._collecting
        if task is None or (task.done() and self._loop.time() - self._collected_s >= self._cache_s):
            task = self._collecting = self._loop.create_task(self._collect(), name="collect-lag")
        try:
            found = await asyncio.shield(task)
        except KctlError as error:
            raise ScrapeFailed(str(error)) from None
        return form.content_type, await exposition(lag.families(found, of_exporter=True), form, Dialect.JMX)

    async def close(self) -> None:
        """Close the endpoint and end a collection."""
        await self.endpoint.close()
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)

    async def _not_ready(self) -> str:
        return self._problem

    async def _collect(self) -> ClusterLag:
        try:
            with self._client.budget.command(min(self._client.settings.timeout_ms, _COLLECT_MS_MAX)):
                found = await read_cluster_lag(self._client, self._reader, self._now_ms())
        except KctlError as error:
            if str(error) != self._problem:
                self._warn(f"the cluster cannot be read: {error}")
            self._problem = str(error)
            raise
        finally:
            self._collected_s = self._loop.time()
        self._problem = ""
        return found

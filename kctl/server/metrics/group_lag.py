"""The metrics of kafka_exporter that one broker serves: partitions that it leads, and groups that it coordinates.

So the brokers of a cluster together have each partition and each group once.  The lag of a group may be in partitions
of other brokers: it is read as a client of the cluster reads it, over the inter-broker listener, in a thread.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from kctl.admin.cluster_lag import ClusterLag, PartitionSummary
from kctl.admin.group_lag import GroupLag
from kctl.admin.lag import LagOptions, LagReader
from kctl.admin.lag_facts import LogRange
from kctl.client.settings import ClientSettings
from kctl.config.listeners import inter_broker_listener
from kctl.errors import KctlError
from kctl.limits import METRICS_LAG_CACHE_MS, METRICS_LAG_TIMEOUT_MS, METRICS_LAG_WAIT_MS
from kctl.model import TopicPartition
from kctl.server.metrics.sources import Sources

log = logging.getLogger(__name__)

_PARTITIONS_PER_SLICE = 500
_PAUSE_FACTOR = 10
"""A collection is used for this multiple of the time that it took, so that it takes a tenth of the time at most."""

Collect = Callable[[Sources], Awaitable[Sequence[GroupLag]]]
"""Reads the lag of the groups that a broker coordinates.  Raises KctlError."""


class GroupLagReader:
    """Reads the lag of the groups of this broker; a collection is shared by the scrapes of METRICS_LAG_CACHE_MS.

    Only the first is waited for.  With thousands of partitions it takes seconds; later scrapes, which wait no longer
    than METRICS_LAG_WAIT_MS, have the groups of the collection before.
    """

    def __init__(self, collect: Collect | None = None) -> None:
        self._collect_groups = _groups if collect is None else collect
        self._groups: Sequence[GroupLag] = ()
        self._use_until_s = float("-inf")
        self._collecting: asyncio.Task[None] | None = None
        self._has_collected = False
        self._problem = ""

    async def read(self, sources: Sources) -> ClusterLag:
        """The partitions now, and the groups as of the last completed collection."""
        return await _snapshot(sources, await self.groups(sources))

    async def groups(self, sources: Sources) -> Sequence[GroupLag]:
        """The groups as of the last completed collection."""
        loop = asyncio.get_running_loop()
        if self._collecting is None and loop.time() >= self._use_until_s:
            self._collecting = loop.create_task(self._collect(sources), name="collect-group-lag")
        if self._collecting is not None:
            timeout_s = METRICS_LAG_WAIT_MS / 1000 if self._has_collected else None
            done, _ = await asyncio.wait((self._collecting,), timeout=timeout_s)
            for task in done:
                task.result()
        return self._groups

    def cancel(self) -> None:
        """Ends a collection; its thread ends within METRICS_LAG_TIMEOUT_MS."""
        if self._collecting is not None:
            self._collecting.cancel()

    async def _collect(self, sources: Sources) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            self._groups = await self._collect_groups(sources)
            self._problem = ""
        except KctlError as error:
            self._groups = ()
            if str(error) != self._problem:
                log.warning("cannot read the lag of groups, leaving it out of the metrics error=%s", error)
            self._problem = str(error)
        finally:
            took_s = loop.time() - started_s
            self._has_collected = True
            self._use_until_s = loop.time() + max(METRICS_LAG_CACHE_MS / 1000, _PAUSE_FACTOR * took_s)
            self._collecting = None


async def _groups(sources: Sources) -> Sequence[GroupLag]:
    """The lag of the groups that this broker coordinates.  Raises KctlError."""
    names = list(sources.parts.groups.hosted)
    base, broker_id = sources.base, sources.parts.broker_id
    listener = inter_broker_listener(base.configs.current)
    broker = base.metadata.brokers.get(broker_id)
    endpoint = broker.endpoint(listener) if broker is not None else None
    if not names or endpoint is None:
        return ()
    settings = ClientSettings(
        bootstrap=((endpoint.host, endpoint.port),),
        client_id=f"broker-{broker_id}-metrics",
        timeout_ms=METRICS_LAG_TIMEOUT_MS,
        connect_timeout_ms=METRICS_LAG_TIMEOUT_MS,
        security=await base.peer_security.of(listener),
    )
    return await asyncio.to_thread(_read_in_thread, settings, names, broker_id, base.world.clock.now_ms())


def _read_in_thread(settings: ClientSettings, names: list[str], broker_id: int, now_ms: int) -> Sequence[GroupLag]:
    return asyncio.run(_read(settings, names, broker_id, now_ms))


async def _read(settings: ClientSettings, names: list[str], broker_id: int, now_ms: int) -> Sequence[GroupLag]:
    from kctl.client.asyncio_transport import AsyncioTransport  # noqa: PLC0415 - the broker has its own transport
    from kctl.client.cluster import ClusterClient  # noqa: PLC0415 - same

    async with ClusterClient(settings, AsyncioTransport()) as client:
        with client.one_deadline():
            await client.metadata([])
            client.cache_coordinators(dict.fromkeys(names, broker_id))
            return await LagReader(LagOptions(with_rates=False)).read(client, names, now_ms)


async def _snapshot(sources: Sources, groups: Sequence[GroupLag]) -> ClusterLag:
    """The brokers, and the partitions that this one leads.  Lets other work be done in between."""
    metadata, replicas = sources.base.metadata, sources.parts.replicas
    listener = inter_broker_listener(sources.base.configs.current)
    addresses: dict[int, str] = {}
    for broker in metadata.brokers.values():
        endpoint = broker.endpoint(listener)
        addresses[broker.broker_id] = f"{endpoint.host}:{endpoint.port}" if endpoint else ""
    partitions: dict[TopicPartition, PartitionSummary] = {}
    counts: dict[str, int] = {}
    for count, (tp, partition) in enumerate(list(replicas.partitions.items())):
        if partition.is_leader:
            end = partition.high_watermark
            log_range = LogRange(partition.log.log_start_offset, end, end)
            partitions[tp] = PartitionSummary(partition.leader, partition.replicas, partition.isr, log_range)
            if tp.partition == 0:
                # Only the leader of the first partition counts, so that a sum over brokers counts each once.
                counts[tp.topic] = metadata.partition_count(tp.topic) or 0
        if count % _PARTITIONS_PER_SLICE == _PARTITIONS_PER_SLICE - 1:
            await asyncio.sleep(0)
    return ClusterLag(addresses, counts, partitions, groups)

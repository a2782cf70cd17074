"""The metrics of kafka_exporter that one broker serves: partitions that it leads, and groups that it coordinates.

So the brokers of a cluster together have each partition and each group once.  The lag of a group may be in partitions
that other brokers lead: these are asked over the inter-broker listener, in a thread.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from kctl.admin.groups.lag import ClusterLag, PartitionSummary
from kctl.client.settings import ClientSettings
from kctl.config.listeners import inter_broker_listener
from kctl.errors import KctlError
from kctl.lag.facts import LogRange
from kctl.lag.rules import GroupLag
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.server.loop.tasks import in_thread
from kctl.server.metrics.local_lag import LocalLag, lag_of_groups, read_local_lag, read_missing_lag
from kctl.server.metrics.sources import Sources
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.replica_manager import ReplicaManager

METRICS_LAG_TIMEOUT_MS = bound(
    Subject.METRICS_ENDPOINT,
    "time to read the lag of groups for one scrape of a broker",
    5_000,
    "ms",
    on_excess="the scrape has no lag",
)
METRICS_LAG_CACHE_MS = bound(
    Subject.METRICS_ENDPOINT,
    "time for which the lag of groups in the metrics of a broker is used, at least",
    5_000,
    "ms",
    on_excess="it is read again, and used for ten times as long as that took",
)
METRICS_LAG_WAIT_MS = bound(
    Subject.METRICS_ENDPOINT,
    "time for which a scrape of a broker waits for the lag of groups, if there is an earlier one",
    50,
    "ms",
    on_excess="the scrape has the earlier one",
)


log = logging.getLogger(__name__)

_PAUSE_FACTOR = 10
"""A collection is used for this multiple of the time that it took, so that it takes a tenth of the time at most."""

Collect = Callable[[Sources], Awaitable[list[GroupLag]]]
"""Reads the lag of the groups that a broker coordinates.  Raises KctlError."""
Release = Callable[[list[GroupLag]], Awaitable[None]]


@dataclass(slots=True)
class _Collection:
    groups: list[GroupLag]
    uses: int = 0
    """Scrapes that read the groups now."""


async def _release_in_thread(groups: list[GroupLag]) -> None:
    """Free the groups, one partition after the other: 100,000 of them at once would take the event loop 13 ms."""
    await in_thread(partial(_free, groups))


def _free(groups: list[GroupLag]) -> None:
    while groups:
        partitions = list(groups.pop().partitions)
        while partitions:
            partitions.pop()


class GroupLagReader:
    """Reads the lag of the groups of this broker; a collection is shared by the scrapes of METRICS_LAG_CACHE_MS.

    Only the first is waited for.  With thousands of partitions it takes seconds; later scrapes, which wait no longer
    than METRICS_LAG_WAIT_MS, have the groups of the collection before.
    """

    def __init__(self, collect: Collect | None = None, release: Release = _release_in_thread) -> None:
        self._collect_groups = _groups if collect is None else collect
        self._release = release
        self._latest = _Collection([])
        self._use_until_s = float("-inf")
        self._collecting: asyncio.Task[None] | None = None
        self._has_collected = False
        self._problem = ""

    @asynccontextmanager
    async def read(self, sources: Sources) -> AsyncIterator[ClusterLag]:
        """Provide the partitions now, and the groups as of the last completed collection; in use until the context
        ends.
        """
        async with self.groups(sources) as groups:
            yield _snapshot(sources, groups)

    @asynccontextmanager
    async def groups(self, sources: Sources) -> AsyncIterator[Sequence[GroupLag]]:
        """Provide the groups as of the last completed collection."""
        await self._refresh(sources)
        collection = self._latest
        collection.uses += 1
        try:
            yield collection.groups
        finally:
            collection.uses -= 1
            if not collection.uses and collection is not self._latest:
                await self._release(collection.groups)

    async def _refresh(self, sources: Sources) -> None:
        """Begin a collection if it is time, and wait for it as long as a scrape may."""
        loop = asyncio.get_running_loop()
        if self._collecting is None and loop.time() >= self._use_until_s:
            self._collecting = loop.create_task(self._collect(sources), name="collect-group-lag")
        if self._collecting is not None:
            timeout_s = METRICS_LAG_WAIT_MS / 1000 if self._has_collected else None
            done, _ = await asyncio.wait((self._collecting,), timeout=timeout_s)
            for task in done:
                task.result()

    def cancel(self) -> None:
        """End a collection; its thread ends within METRICS_LAG_TIMEOUT_MS."""
        if self._collecting is not None:
            self._collecting.cancel()

    async def _collect(self, sources: Sources) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            groups = await self._collect_groups(sources)
            self._problem = ""
        except KctlError as error:
            groups = []
            if str(error) != self._problem:
                log.warning("cannot read the lag of groups, leaving it out of the metrics error=%s", error)
            self._problem = str(error)
        finally:
            took_s = loop.time() - started_s
            self._has_collected = True
            self._use_until_s = loop.time() + max(METRICS_LAG_CACHE_MS / 1000, _PAUSE_FACTOR * took_s)
            self._collecting = None
        before, self._latest = self._latest, _Collection(groups)
        if not before.uses:
            await self._release(before.groups)


async def _groups(sources: Sources) -> list[GroupLag]:
    """Return the lag of the groups that this broker coordinates.  Raises KctlError."""
    local = await read_local_lag(sources.parts.groups, sources.parts.replicas)
    settings = await _settings(sources) if local.missing else None
    return await in_thread(partial(_complete, local, settings, sources.base.world.clock.now_ms()))


async def _settings(sources: Sources) -> ClientSettings | None:
    """Return the settings of a client that begins with this broker; None before the broker knows its address."""
    base, broker_id = sources.base, sources.parts.broker_id
    listener = inter_broker_listener(base.configs.current)
    broker = base.metadata.brokers.get(broker_id)
    endpoint = broker.endpoint(listener) if broker is not None else None
    if endpoint is None:
        return None
    return ClientSettings(
        bootstrap=((endpoint.host, endpoint.port),),
        client_id=f"broker-{broker_id}-metrics",
        timeout_ms=METRICS_LAG_TIMEOUT_MS,
        connect_timeout_ms=METRICS_LAG_TIMEOUT_MS,
        security=await base.peer_security.of(listener),
    )


def _complete(local: LocalLag, settings: ClientSettings | None, now_ms: int) -> list[GroupLag]:
    """Add what other brokers know.  In a thread, which frees what has been read too."""
    try:
        if settings is not None:
            asyncio.run(_ask_others(local, settings))
        return lag_of_groups(local, now_ms)
    finally:
        local.clear()


async def _ask_others(local: LocalLag, settings: ClientSettings) -> None:
    from kctl.client.cluster import ClusterClient  # noqa: PLC0415 - same
    from kctl.client.connections.asyncio_transport import AsyncioTransport  # noqa: PLC0415 - the broker has its own transport

    async with ClusterClient(settings, AsyncioTransport()) as client:
        with client.one_deadline():
            await read_missing_lag(client, local)


def _snapshot(sources: Sources, groups: Sequence[GroupLag]) -> ClusterLag:
    """Return the brokers, and the partitions that this one leads, which are looked at when they are read."""
    metadata, replicas = sources.base.metadata, sources.parts.replicas
    listener = inter_broker_listener(sources.base.configs.current)
    addresses: dict[int, str] = {}
    for broker in metadata.brokers.values():
        endpoint = broker.endpoint(listener)
        addresses[broker.broker_id] = f"{endpoint.host}:{endpoint.port}" if endpoint else ""
    return ClusterLag(addresses, _counts(metadata, replicas), _led(replicas), groups)


def _counts(metadata: MetadataCache, replicas: ReplicaManager) -> Iterator[tuple[str, int]]:
    """Yield the partitions of the topics whose first one this broker leads, so that a sum over brokers counts each
    once.
    """
    for topic in list(metadata.topics):
        first = replicas.partitions.get(TopicPartition(topic, 0))
        if first is not None and first.is_leader:
            yield topic, metadata.partition_count(topic) or 0


def _led(replicas: ReplicaManager) -> Iterator[tuple[TopicPartition, PartitionSummary]]:
    for partition in list(replicas.partitions.values()):
        if partition.is_leader:
            end = partition.high_watermark
            log_range = LogRange(partition.log.log_start_offset, end, end)
            summary = PartitionSummary(partition.leader, partition.replicas, partition.isr, log_range)
            yield partition.topic_partition, summary

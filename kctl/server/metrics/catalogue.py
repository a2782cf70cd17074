"""All metrics of a broker: their definitions in one table, and their values in one scrape.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from kctl.metrics.definitions import AnyFamily, Definition
from kctl.server.metrics.sources import Sources
from kctl.server.metrics.subjects import (
    controller,
    coordinators,
    lag,
    logs,
    network,
    partitions,
    quotas,
    replication,
    requests,
    server,
    topics,
    zookeeper,
)

DEFINITIONS: tuple[Definition, ...] = (
    *server.DEFINITIONS,
    *topics.DEFINITIONS,
    *requests.DEFINITIONS,
    *network.DEFINITIONS,
    *replication.DEFINITIONS,
    *partitions.DEFINITIONS,
    *logs.DEFINITIONS,
    *controller.DEFINITIONS,
    *coordinators.DEFINITIONS,
    *zookeeper.DEFINITIONS,
    *quotas.DEFINITIONS,
    *lag.DEFINITIONS,
)


class Catalogue:
    """The state that is kept between scrapes."""

    def __init__(self) -> None:
        self._labels = partitions.PartitionLabels()
        self._fetch_rates = replication.FetchRates()

    def families(self, sources: Sources) -> Iterator[AnyFamily | None]:
        """Yield the values of all metrics.  None is a point at which other work may be done."""
        yield from server.families(sources)
        yield from topics.families(sources)
        yield from requests.families(sources)
        yield from network.families(sources)
        yield from replication.families(sources, self._fetch_rates)
        yield from partitions.families(sources, self._labels)
        yield from logs.families(sources)
        yield from controller.families(sources)
        yield from coordinators.families(sources)
        yield from zookeeper.families(sources)
        yield from quotas.families(sources)

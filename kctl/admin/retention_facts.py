"""The input of the verdict LOSING of `kctl top` beyond offsets: limits of topics, and timestamps of unread records.

Both are cached, and what one sample reads is bounded, so that a screen that is refreshed every two seconds costs a
cluster little: one DescribeConfigs for topics whose limits are older than RETENTION_CACHED_MS, and fetches of
TOP_UNREAD_BYTES_MAX.  A fetched timestamp stays valid as long as the group does not commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from kctl.admin.cluster_sample import GroupReading
from kctl.admin.lag_facts import LogRange, Retention, Unread
from kctl.admin.topic_retention import read_retentions
from kctl.admin.unread_records import SIZES, Search, find_unread
from kctl.client.cluster import ClusterClient
from kctl.limits import TOP_RETENTIONS_MAX, TOP_UNREAD_BYTES_MAX
from kctl.model import TopicPartition

RETENTION_CACHED_MS = 60_000
"""How long the limits of a topic are cached."""

Place = tuple[TopicPartition, int]
"""A committed offset."""


class RetentionFacts(NamedTuple):
    """The known limits and unread records; timestamps are those of the records."""

    retentions: Mapping[str, Retention]
    unread: Mapping[Place, Unread]

    def shifted(self, by_ms: int) -> RetentionFacts:
        """With the timestamps in another clock."""
        return self._replace(unread={place: _shifted(one, by_ms) for place, one in self.unread.items()})


def _shifted(unread: Unread, by_ms: int) -> Unread:
    timestamp_ms = unread.oldest_timestamp_ms
    return unread if timestamp_ms is None else unread._replace(oldest_timestamp_ms=timestamp_ms + by_ms)


class RetentionReader:
    """Call `read` with the groups of each sample.  Owner: one task."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._retentions: dict[str, tuple[int, Retention | None]] = {}
        """When the limits of a topic were read, and the limits; None if they could not be read."""
        self._unread: dict[Place, tuple[int, Unread]] = {}
        """The end of the log, and what was read before it."""
        self._tried: dict[TopicPartition, int] = {}
        """The number of the sample in which a partition was last read."""
        self._samples = 0

    async def read(
        self, groups: Iterable[GroupReading], logs: Mapping[TopicPartition, LogRange], now_ms: int
    ) -> RetentionFacts:
        """The facts of the partitions that groups have not read to the end.  Raises ClusterUnreachable."""
        behind = {
            (tp, committed)
            for group in groups
            for tp, committed in group.committed.items()
            if (log := logs.get(tp)) is not None and committed < log.end and log.start < log.end
        }
        await self._read_retentions({tp.topic for tp, _ in behind}, now_ms)
        await self._read_unread(behind, logs)
        known = {topic: found for topic, (_, found) in self._retentions.items() if found is not None}
        return RetentionFacts(known, {place: found for place, (_, found) in self._unread.items()})

    async def _read_retentions(self, topics: Collection[str], now_ms: int) -> None:
        """Topics whose limits are unknown come first, then those that were read longest ago."""
        self._retentions = {topic: found for topic, found in self._retentions.items() if topic in topics}
        read_ms = {topic: at_ms for topic, (at_ms, _) in self._retentions.items()}
        due = [topic for topic in topics if topic not in read_ms or now_ms - read_ms[topic] >= RETENTION_CACHED_MS]
        due = sorted(due, key=lambda topic: (read_ms.get(topic, -1), topic))[:TOP_RETENTIONS_MAX]
        found = await read_retentions(self._client, due)
        self._retentions |= {topic: (now_ms, found.get(topic)) for topic in due}

    async def _read_unread(self, behind: AbstractSet[Place], logs: Mapping[TopicPartition, LogRange]) -> None:
        """Partitions that were read longest ago come first."""
        self._samples += 1
        self._unread = {
            (tp, committed): (end, found) if end == logs[tp].end else (end, found._replace(records=None))
            for (tp, committed), (end, found) in self._unread.items()
            # Where no record was found, there may be one now.
            if (tp, committed) in behind and (end == logs[tp].end or found.records != 0)
        }
        self._tried = {tp: self._tried.get(tp, 0) for tp, _ in behind}
        missing = sorted(behind - self._unread.keys(), key=lambda place: (self._tried[place[0]], place))
        searches: dict[Place, Search] = {}
        for tp, committed in missing[: TOP_UNREAD_BYTES_MAX // SIZES[0][0]]:
            searches[tp, committed] = Search(tp, max(committed, logs[tp].start), logs[tp].end)
            self._tried[tp] = self._samples
        await find_unread(self._client, list(searches.values()), bytes_max=TOP_UNREAD_BYTES_MAX)
        self._unread |= {place: (one.end, one.unread) for place, one in searches.items() if one.is_over}

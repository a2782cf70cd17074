"""Takes samples of a cluster: what the protocol returns, and the metrics of brokers whose endpoint is known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from time import monotonic, time
from typing import NamedTuple, TypeVar

from kctl.admin.cluster.metrics import endpoint_of, is_of_broker, read_metrics
from kctl.admin.cluster.observation import read_quorum, unreachable_brokers
from kctl.admin.cluster.quorum import QuorumReading
from kctl.admin.groups.groups import list_groups, look_up_groups
from kctl.admin.groups.history import CommitHistory, Key
from kctl.admin.groups.lag import read_retentions
from kctl.admin.placement.log_dirs import describe_log_dirs, usable_bytes
from kctl.admin.placement.reassignment import Ongoing, ongoing_if_supported
from kctl.admin.sampling.sample import NAMES, BrokerReading, ClusterSample, GroupReading, reading_of
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, list_offsets
from kctl.client.metadata import ClusterMetadata
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.lag.facts import SHARE, WINDOW_MS, LogRange, Position, Retention, Unread
from kctl.lag.unread_records import SIZES, Search, find_unread
from kctl.limits import Subject, bound
from kctl.model import NO_LEADER, TopicPartition

TOP_GROUPS_MAX = bound(
    Subject.COMMANDS,
    "groups that kctl top reads in one refresh",
    1_000,
    "groups",
    on_excess="the first by name are shown, with a note",
)
TOP_RETENTIONS_MAX = bound(
    Subject.COMMANDS,
    "topics whose limits kctl top reads in one refresh",
    500,
    "topics",
    on_excess="the others are read in the next refreshes",
)
TOP_UNREAD_BYTES_MAX = bound(
    Subject.COMMANDS,
    "records that kctl top fetches in one refresh, for the age of what groups have not read",
    4 << 20,
    "bytes",
    on_excess="further partitions are read in the next refreshes",
)


# The input of the verdict LOSING of `kctl top` beyond offsets: limits of topics, and timestamps of unread records.
#
# Both are cached, and what one sample reads is bounded, so that a screen that is refreshed every two seconds costs a
# cluster little: one DescribeConfigs for topics whose limits are older than RETENTION_CACHED_MS, and fetches of
# TOP_UNREAD_BYTES_MAX. A fetched timestamp stays valid as long as the group does not commit.


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
        return self._replace(unread={place: _shifted(records, by_ms) for place, records in self.unread.items()})


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
        """Return the facts of the partitions that groups have not read to the end.  Raises ClusterUnreachable."""
        behind = {
            (tp, committed)
            for group in groups
            for tp, committed in group.committed.items()
            if (log := logs.get(tp)) is not None and committed < log.end and log.start < log.end
        }
        await self._read_retentions({tp.topic for tp, _ in behind}, now_ms)
        await self._read_unread(behind, logs)
        known = {topic: retention for topic, (_, retention) in self._retentions.items() if retention is not None}
        return RetentionFacts(known, {place: unread for place, (_, unread) in self._unread.items()})

    async def _read_retentions(self, topics: Collection[str], now_ms: int) -> None:
        """Topics whose limits are unknown come first, then those that were read longest ago."""
        self._retentions = {topic: retention for topic, retention in self._retentions.items() if topic in topics}
        read_ms = {topic: at_ms for topic, (at_ms, _) in self._retentions.items()}
        due = [topic for topic in topics if topic not in read_ms or now_ms - read_ms[topic] >= RETENTION_CACHED_MS]
        due = sorted(due, key=lambda topic: (read_ms.get(topic, -1), topic))[:TOP_RETENTIONS_MAX]
        retentions = await read_retentions(self._client, due)
        self._retentions |= {topic: (now_ms, retentions.get(topic)) for topic in due}

    async def _read_unread(self, behind: AbstractSet[Place], logs: Mapping[TopicPartition, LogRange]) -> None:
        """Partitions that were read longest ago come first."""
        self._samples += 1
        self._unread = {
            (tp, committed): (end, unread) if end == logs[tp].end else (end, unread._replace(records=None))
            for (tp, committed), (end, unread) in self._unread.items()
            # Where no record was found, there may be one now.
            if (tp, committed) in behind and (end == logs[tp].end or unread.records != 0)
        }
        self._tried = {tp: self._tried.get(tp, 0) for tp, _ in behind}
        missing = sorted(behind - self._unread.keys(), key=lambda place: (self._tried[place[0]], place))
        searches: dict[Place, Search] = {}
        for tp, committed in missing[: TOP_UNREAD_BYTES_MAX // SIZES[0][0]]:
            searches[tp, committed] = Search(tp, max(committed, logs[tp].start), logs[tp].end)
            self._tried[tp] = self._samples
        await find_unread(self._client, list(searches.values()), bytes_max=TOP_UNREAD_BYTES_MAX)
        self._unread |= {place: (search.end, search.unread) for place, search in searches.items() if search.is_over}


T = TypeVar("T")

ENDPOINT_REMEMBERED_MS = 60_000
"""How long the endpoint of a broker, or that it has none, is cached."""
SCRAPE_MS_MAX = 2_000
"""How long one endpoint may take: the rest of the screen does not wait longer for it."""

Endpoint = tuple[str, int]


class Sampler:
    """Takes samples with one client, on an event loop."""

    def __init__(self, client: ClusterClient, endpoints: Mapping[int, Endpoint], *, reads_metrics: bool = True) -> None:
        """`endpoints` are those that the user has named, by broker; others come from the brokers' properties."""
        self._client = client
        self._given = endpoints
        self._reads_metrics = reads_metrics
        self._found: dict[int, tuple[int, Endpoint | None]] = {}
        """When it was looked up, and the endpoint, by broker."""
        self._retention = RetentionReader(client)
        self._of_groups: set[TopicPartition] = set()
        """The partitions in which groups had committed, or that their members read, in the last sample."""
        self._lost_since_ms: int | None = None
        """When the metadata quorum was first seen without a leader; None while it has one."""
        self._history = CommitHistory()
        self._behind: set[str] = set()
        """The groups that had unread records in the last sample."""

    async def take(self) -> ClusterSample:
        """Return one sample within one timeout of the client.  Raises ClusterUnreachable if no broker responds."""
        client = self._client
        with client.one_deadline():
            metadata = await client.metadata()
            problems: list[str] = []
            quorum = await self._quorum(problems)
            if quorum.is_kraft:
                metadata = metadata._replace(controller_id=NO_LEADER if quorum.leader_id is None else quorum.leader_id)
            if quorum.lost is not None:
                # The list of brokers is frozen, too.
                away = await unreachable_brokers(client, metadata)
                problems += [f"broker {broker_id}: {problem}" for broker_id, problem in away.items()]
                alive = {number: broker for number, broker in metadata.brokers.items() if number not in away}
                metadata = metadata._replace(brokers=alive)
            log_dirs = await self._or_nothing(describe_log_dirs(client, metadata.brokers), "log directories", problems)
            ongoing: Mapping[TopicPartition, Ongoing] | None = None
            if quorum.lost is None:
                ongoing = await self._or_nothing(ongoing_if_supported(client), "reassignments", problems)
            led = self._led(metadata)
            # Starts before commits and ends after them, as otherwise a commit in between would be outside of the log.
            starts = await self._or_nothing(
                self._offsets(led & self._of_groups, EARLIEST, metadata), "offsets", problems
            )
            late, self._behind = self._behind, set()
            groups = await self._or_nothing(self._groups(late, problems), "groups", problems) or {}
            self._of_groups = {tp for group in groups.values() for tp in group.committed.keys() | group.assigned}
            at_ms = client.transport.monotonic_ms()
            ends = await self._or_nothing(self._offsets(led, LATEST, metadata), "offsets", problems)
            facts = await self._or_nothing(
                self._retention_facts(groups, starts or {}, ends or {}), "retention of topics", problems
            )
            readings = await self._readings(metadata)
        self._behind = {
            name
            for name, group in groups.items()
            if any(committed < (ends or {}).get(tp, 0) for tp, committed in group.committed.items())
        }
        directories, failed = log_dirs or ([], [])
        problems += [f"broker {outcome.name}: {outcome.message or outcome.error.name}" for outcome in failed]
        offline = dict.fromkeys((directory.broker_id for directory in directories), 0)
        for directory in directories:
            offline[directory.broker_id] += directory.error is not ErrorCode.NONE
        return ClusterSample(
            at_ms,
            metadata,
            ends or {},
            starts or {},
            {
                (directory.broker_id, replica.tp): replica.size_bytes
                for directory in directories
                for replica in directory.replicas
                if not replica.is_future
            },
            offline,
            usable_bytes(directories),
            ongoing or {},
            groups,
            facts.retentions if facts else {},
            facts.unread if facts else {},
            self._commits(late, groups),
            self._commits_since_ms({name for name in late if name in groups and groups[name].has_history}),
            readings,
            tuple(problems),
            quorum.frozen,
            quorum.refused is not None,
        )

    async def _quorum(self, problems: list[str]) -> QuorumReading:
        """Return the metadata quorum; without a leader with the time when that was seen first."""
        reading = await read_quorum(self._client)
        if reading.refused is not None:
            problems.append(f"active controller: {reading.refused}: this needs Describe on the cluster")
        if reading.lost is None:
            self._lost_since_ms = None
            return reading
        self._lost_since_ms = self._lost_since_ms or reading.asked_ms
        return replace(reading, asked_ms=self._lost_since_ms)

    async def _or_nothing(self, work: Awaitable[T], what: str, problems: list[str]) -> T | None:
        """Return the result, or None with an entry in `problems`: one part that fails does not hide the others."""
        try:
            return await work
        except (KctlError, TimeoutError) as error:
            problems.append(f"{what}: {error}")
            return None

    @staticmethod
    def _led(metadata: ClusterMetadata) -> set[TopicPartition]:
        """Return the partitions with a live leader: others would be waited for."""
        return {
            TopicPartition(topic.name, partition.partition)
            for topic in metadata.topics.values()
            for partition in topic.partitions
            if partition.leader in metadata.brokers
        }

    async def _offsets(
        self, partitions: Collection[TopicPartition], place: int, metadata: ClusterMetadata
    ) -> dict[TopicPartition, int]:
        """Return the first or the last offset of each partition, without those that have an error."""
        if not partitions:
            return {}
        offsets = await list_offsets(self._client, dict.fromkeys(partitions, place), known=metadata)
        return {tp: offset.offset for tp, offset in offsets.items() if not isinstance(offset, ApiError)}

    async def _groups(self, late: AbstractSet[str], problems: list[str]) -> dict[str, GroupReading]:
        """Return all groups.  The history of commits is read before the offsets, so that it has no newer commit."""
        listed, failed = await list_groups(self._client)
        problems += [f"groups of broker {outcome.name}: {outcome.message or outcome.error.name}" for outcome in failed]
        names = sorted({group.group_id for group in listed})
        if len(names) > TOP_GROUPS_MAX:
            problems.append(f"groups: only the first {TOP_GROUPS_MAX} of {len(names)} are read")
            names = names[:TOP_GROUPS_MAX]
        if not late.isdisjoint(names):
            since_ms = round(time() * 1000) - WINDOW_MS
            await self._or_nothing(self._history.read(self._client, names, since_ms), "commits of groups", problems)
            if self._history.problem:
                problems.append(f"commits of groups: {self._history.problem}")
        described = await look_up_groups(self._client, names) if names else []
        return {
            group.outcome.name: GroupReading(
                group.state,
                len(group.members),
                {offset.tp: offset.committed_offset for offset in group.offsets if offset.committed_offset >= 0},
                {tp: (member.client_id, member.host) for member in group.members for tp in member.assignment},
                group.has_left,
                group.type != SHARE,
            )
            for group in described
            if group.outcome.is_done
        }

    async def _retention_facts(
        self,
        groups: Mapping[str, GroupReading],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> RetentionFacts:
        """Return the known facts about unread records and the limits of their topics, in the time of the samples."""
        logs = {tp: LogRange(start, ends[tp], ends[tp]) for tp, start in starts.items() if tp in ends}
        facts = await self._retention.read(groups.values(), logs, self._client.transport.monotonic_ms())
        return facts.shifted(-self._shift_ms())

    def _commits(self, late: Collection[str], groups: Mapping[str, GroupReading]) -> dict[Key, tuple[Position, ...]]:
        """Return the known commits of the late groups, in the time of the samples."""
        shift_ms = self._shift_ms()
        present = {(name, tp) for name, group in groups.items() for tp in group.committed}
        self._history.keep(present)
        return {
            key: tuple(Position(position.time_ms - shift_ms, position.offset) for position in self._history.of(*key))
            for key in present
            if key[0] in late
        }

    def _commits_since_ms(self, late: Collection[str]) -> dict[str, int]:
        shift_ms = self._shift_ms()
        since = {name: self._history.since_ms(name) for name in late}
        return {name: since_ms - shift_ms for name, since_ms in since.items() if since_ms is not None}

    def _shift_ms(self) -> int:
        """Return the time since the epoch at the zero of the samples' clock."""
        return round(time() * 1000) - self._client.transport.monotonic_ms()

    async def _readings(self, metadata: ClusterMetadata) -> dict[int, BrokerReading]:
        if not self._reads_metrics:
            return {}
        ids = list(metadata.brokers)
        readings = await asyncio.gather(*(self._reading(metadata, broker_id) for broker_id in ids))
        return {broker_id: reading for broker_id, reading in zip(ids, readings, strict=True) if reading is not None}

    async def _reading(self, metadata: ClusterMetadata, broker_id: int) -> BrokerReading | None:
        """None without an endpoint, if it does not respond, and if it is the one of another broker."""
        endpoint = await self._endpoint(metadata, broker_id)
        if endpoint is None:
            return None
        end_s = monotonic() + min(self._client.deadline().remaining_ms, SCRAPE_MS_MAX) / 1000
        try:
            samples = await asyncio.to_thread(read_metrics, *endpoint, lambda: end_s - monotonic(), names=NAMES)
        except ClusterUnreachable:
            return None
        reading = reading_of(samples)
        return reading if reading.broker_id in {None, broker_id} else None

    async def _endpoint(self, metadata: ClusterMetadata, broker_id: int) -> Endpoint | None:
        if broker_id in self._given:
            return self._given[broker_id]
        now_ms = self._client.transport.monotonic_ms()
        known = self._found.get(broker_id)
        if known is not None and now_ms - known[0] < ENDPOINT_REMEMBERED_MS:
            return known[1]
        endpoint: Endpoint | None = None
        with contextlib.suppress(KctlError, TimeoutError):
            known_endpoint = await endpoint_of(self._client, broker_id)
            if known_endpoint is not None and is_of_broker(known_endpoint, metadata.brokers[broker_id].host):
                endpoint = known_endpoint
        self._found[broker_id] = (now_ms, endpoint)
        return endpoint

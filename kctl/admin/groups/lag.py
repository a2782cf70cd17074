"""Reads how far groups are behind: of some groups, or of all groups of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kctl.admin.groups.groups import list_groups, look_up_groups
from kctl.admin.groups.history import CommitHistory
from kctl.admin.topics.configs import ConfigResource, ResourceType, describe_configs, number_in
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, IsolationLevel, OffsetAt, list_offsets, list_offsets_at
from kctl.client.leaders import Outcomes
from kctl.client.metadata import ClusterMetadata
from kctl.errors import ApiError, ErrorCode
from kctl.lag.facts import (
    NO_LIMITS,
    NOTHING_FETCHED,
    OTHER_TYPES,
    SHARE,
    WINDOW_MS,
    Facts,
    GroupDescription,
    GroupMember,
    GroupOffset,
    LogRange,
    Look,
    Position,
    Retention,
    Unread,
)
from kctl.lag.rules import GroupLag, PartitionLag, judge
from kctl.lag.unread_records import Search, find_unread
from kctl.limits import Subject, bound
from kctl.model import NO_LEADER, TopicPartition

LAG_LOOKS_MAX = bound(
    Subject.COMMANDS,
    "earlier observations of a partition that `kctl groups lag --watch` keeps",
    64,
    "observations",
    on_excess="every second one is dropped",
)


# The limits after which the records of topics are deleted.


_RETENTION_MS, _RETENTION_BYTES, _POLICY = "retention.ms", "retention.bytes", "cleanup.policy"


async def read_retentions(client: ClusterClient, topics: Collection[str]) -> Mapping[str, Retention]:
    """Return the limits by topic; topics whose limits cannot be read are missing.  Raises ClusterUnreachable."""
    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
    names = [_RETENTION_MS, _RETENTION_BYTES, _POLICY]
    try:
        described = await describe_configs(client, resources, names=names, synonyms=False)
    except ApiError:
        return {}
    return {
        resource.name: _retention({entry.name: entry.value for entry in entries})
        for resource, entries in described.items()
        if isinstance(entries, list)
    }


def _retention(values: Mapping[str, str | None]) -> Retention:
    """Return the limits, if the topic's records are deleted by them."""
    if "delete" not in (values.get(_POLICY) or "delete"):
        return NO_LIMITS
    return Retention(_limit(values.get(_RETENTION_MS)), _limit(values.get(_RETENTION_BYTES)))


def _limit(text: str | None) -> int | None:
    value = number_in(text)
    return value if value is not None and value >= 0 else None


# Reads how far groups are behind: collects the facts of each partition and judges them by `lag_rules`.
#
# For all groups together there is a fixed number of requests to each broker, beside one OffsetFetch for each group,
# or for a hundred of them since Kafka 3.0. The committed offsets are read after the history of commits, so that it
# never has a newer one, and before the ends of the logs, so that a group that keeps up is never ahead of them.


Key = tuple[str, TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """Selects the groups, topics and facts that are read."""

    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    """With READ_COMMITTED the end is the last stable offset."""
    window_ms: int = WINDOW_MS
    topics: Mapping[str, Collection[int] | None] | None = None
    """Only these topics, and of them only these partitions, if they are not None."""
    matching: Callable[[Iterable[str]], Collection[str]] | None = None
    """Returns those of the names of topics that are selected; all without it."""
    with_rates: bool = True
    """Whether the commit history, the time index and the limits of topics are read."""


@dataclass(slots=True)
class LagReader:
    """Reads the lag of groups; earlier observations improve the rates of the next call.  Owner: one task."""

    options: LagOptions
    history: CommitHistory = field(default_factory=CommitHistory)
    _looks: dict[Key, list[Look]] = field(default_factory=dict)

    async def read(self, client: ClusterClient, group_ids: Collection[str], now_ms: int) -> list[GroupLag]:
        """Return the lag of the groups, by name.  Raises ClusterUnreachable."""
        if self.options.with_rates:
            await self.history.read(client, group_ids, now_ms - self.options.window_ms)
        groups = await look_up_groups(client, group_ids)
        offsets = self._matching({group.outcome.name: self._offsets_of(group) for group in groups})
        self._forget({(name, tp) for name, known in offsets.items() for tp in known})
        partitions = {tp for known in offsets.values() for tp in known}
        # Asked for once: with thousands of topics it is the longest response of all.
        metadata = await client.metadata({tp.topic for tp in partitions}) if partitions else None
        logs = await self._logs(client, partitions, metadata)
        before = await self._ends_before(client, logs, now_ms, metadata)
        behind = {tp for known in offsets.values() for tp in known if _may_be_behind(known[tp], logs[tp])}
        unread = await self._unread(client, offsets, logs, metadata)
        limits = await read_retentions(client, {tp.topic for tp in behind}) if self.options.with_rates else {}
        sizes = await self._sizes(client, {tp for tp in behind if limits.get(tp.topic, NO_LIMITS).bytes is not None})

        def lag_of(
            group: GroupDescription, tp: TopicPartition, offset: GroupOffset, member: GroupMember | None
        ) -> PartitionLag:
            committed = offset.committed_offset if offset.committed_offset >= 0 else None
            log = logs[tp]
            error = ApiError(offset.error) if offset.error is not ErrorCode.NONE else None
            if error is not None or isinstance(log, ApiError):
                failure = error or (log if isinstance(log, ApiError) else None)
                return PartitionLag(tp, committed, None, member, None, failure)
            key = group.outcome.name, tp
            facts = Facts(
                now_ms=now_ms,
                log=log,
                committed=committed,
                unread=unread.get((tp, committed), NOTHING_FETCHED),
                is_assigned=member is not None,
                has_left=group.has_left,
                commits=self.history.of(*key),
                # The history is that of __consumer_offsets.
                commits_since_ms=None if group.type == SHARE else self.history.since_ms(group.outcome.name),
                looks=tuple(self._looks.get(key, ())),
                end_before=before.get(tp),
                retention=limits.get(tp.topic, NO_LIMITS),
                size_bytes=sizes.get(tp),
                window_ms=self.options.window_ms,
            )
            self._remember(key, Look(now_ms, committed, log.start, log.end))
            judgement = judge(facts)
            if offset.reported_lag is not None:
                judgement = judgement._replace(lag=offset.reported_lag)
            return PartitionLag(tp, committed, log, member, judgement)

        lag_of_groups = []
        for group in groups:
            readers = {tp: member for member in reversed(group.members) for tp in member.assignment}
            known = offsets[group.outcome.name]
            lags = tuple(lag_of(group, tp, offset, readers.get(tp)) for tp, offset in known.items())
            lag_of_groups.append(GroupLag(group.outcome, group.state, len(group.members), lags))
        return lag_of_groups

    def _offsets_of(self, group: GroupDescription) -> dict[TopicPartition, GroupOffset]:
        """Return the committed offsets, and assigned partitions without one, of the selected topics."""
        committed = {offset.tp: offset for offset in group.offsets}
        assigned = {tp for member in group.members for tp in member.assignment}
        return {
            tp: committed.get(tp) or GroupOffset(tp, -1, -1, "", -1)
            for tp in sorted(committed.keys() | assigned)
            if self._is_selected(tp)
        }

    def _matching(
        self, offsets: dict[str, dict[TopicPartition, GroupOffset]]
    ) -> dict[str, dict[TopicPartition, GroupOffset]]:
        """Return the offsets of the topics that match."""
        if self.options.matching is None:
            return offsets
        chosen = set(self.options.matching(sorted({tp.topic for known in offsets.values() for tp in known})))
        return {
            name: {tp: offset for tp, offset in known.items() if tp.topic in chosen} for name, known in offsets.items()
        }

    def _is_selected(self, tp: TopicPartition) -> bool:
        topics = self.options.topics
        if topics is None:
            return True
        numbers = topics.get(tp.topic, ())
        return numbers is None or tp.partition in numbers

    async def _logs(
        self, client: ClusterClient, partitions: Collection[TopicPartition], known: ClusterMetadata | None
    ) -> Outcomes[LogRange]:
        """Return the first and last offsets of the partitions."""
        if not partitions:
            return {}
        ranges = await list_offsets_at(client, partitions, (EARLIEST, LATEST), known=known)
        stable: Outcomes[OffsetAt] = {}
        if self.options.isolation is IsolationLevel.READ_COMMITTED:
            led = [tp for tp, range_ in ranges.items() if not isinstance(range_, ApiError)]
            latest = dict.fromkeys(led, LATEST)
            stable = await list_offsets(client, latest, isolation=self.options.isolation, known=known)
        return {tp: _log_range(range_, stable.get(tp)) for tp, range_ in ranges.items()}

    async def _ends_before(
        self, client: ClusterClient, logs: Outcomes[LogRange], now_ms: int, known: ClusterMetadata | None
    ) -> Mapping[TopicPartition, Position]:
        """Return the first offsets of the window, by the time index; those of partitions without errors."""
        if not self.options.with_rates:
            return {}
        led = {tp: log for tp, log in logs.items() if isinstance(log, LogRange)}
        since_ms = now_ms - self.options.window_ms
        offsets = await list_offsets(client, dict.fromkeys(led, since_ms), known=known) if led else {}
        return {
            tp: Position(since_ms, led[tp].end if offset.offset < 0 else offset.offset)
            for tp, offset in offsets.items()
            if not isinstance(offset, ApiError)
        }

    async def _unread(
        self,
        client: ClusterClient,
        offsets: Mapping[str, Mapping[TopicPartition, GroupOffset]],
        logs: Outcomes[LogRange],
        known: ClusterMetadata | None,
    ) -> Mapping[tuple[TopicPartition, int | None], Unread]:
        """Return the unread records at each committed offset, from a fetch; groups with the same offset share one."""
        searches: dict[tuple[TopicPartition, int | None], Search] = {}
        for of_group in offsets.values():
            for tp, offset in of_group.items():
                log = logs[tp]
                if isinstance(log, LogRange) and _may_be_behind(offset, log):
                    search = Search(tp, max(offset.committed_offset, log.start), log.end)
                    searches.setdefault((tp, offset.committed_offset), search)
        await find_unread(client, list(searches.values()), known=known)
        return {key: search.unread for key, search in searches.items()}

    async def _sizes(
        self, client: ClusterClient, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the sizes of the leaders' logs."""
        if not partitions:
            return {}
        from kctl.admin.placement.log_dirs import describe_log_dirs  # noqa: PLC0415 - few topics have retention.bytes

        metadata = await client.metadata({tp.topic for tp in partitions})
        leaders = {tp: metadata.leader_of(tp)[0] for tp in partitions}
        directories, _ = await describe_log_dirs(client, set(leaders.values()) - {-1}, partitions)
        return {
            replica.tp: replica.size_bytes
            for directory in directories
            for replica in directory.replicas
            if not replica.is_future and leaders.get(replica.tp) == directory.broker_id
        }

    def _forget(self, present: Collection[Key]) -> None:
        """Drop the known facts about partitions that no group reads any more."""
        for key in self._looks.keys() - present:
            del self._looks[key]
        self.history.keep(present)

    def _remember(self, key: Key, look: Look) -> None:
        """Keep the observations of the window, and the last one before it."""
        looks = self._looks.setdefault(key, [])
        looks.append(look)
        start_ms = look.time_ms - self.options.window_ms
        while len(looks) > 1 and looks[1].time_ms <= start_ms:
            del looks[0]
        if len(looks) > LAG_LOOKS_MAX:
            del looks[1:-1:2]


def _log_range(range_: tuple[OffsetAt, ...] | ApiError, stable: OffsetAt | ApiError | None) -> LogRange | ApiError:
    if isinstance(range_, ApiError):
        return range_
    if isinstance(stable, ApiError):
        return stable
    start, end = (at.offset for at in range_)
    return LogRange(start, end if stable is None else stable.offset, end)


def _may_be_behind(offset: GroupOffset, log: LogRange | ApiError) -> bool:
    return isinstance(log, LogRange) and 0 <= offset.committed_offset < log.end and log.start < log.end


# The partitions of a cluster and the lag of its groups, at one time: the input of the metrics of kafka_exporter.


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition; without a leader the offsets are unknown."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log: LogRange | None


@dataclass(frozen=True, slots=True)
class ClusterLag:
    """Brokers by id with their addresses, and what may be read once: partitions by topic, and the partitions."""

    brokers: Mapping[int, str]
    partition_counts: Iterable[tuple[str, int]]
    partitions: Iterable[tuple[TopicPartition, PartitionSummary]]
    groups: Collection[GroupLag]
    failures: int = 0
    """Brokers and groups with an error."""


async def read_cluster_lag(client: ClusterClient, reader: LagReader, now_ms: int) -> ClusterLag:
    """Read all topics and all groups of consumers.  Raises ClusterUnreachable."""
    metadata = await client.metadata()
    listed, failed = await list_groups(client)
    groups = await reader.read(client, [group.group_id for group in listed if group.type not in OTHER_TYPES], now_ms)
    topics = [topic for topic in metadata.topics.values() if topic.error is ErrorCode.NONE]
    led = [
        TopicPartition(topic.name, partition.partition)
        for topic in topics
        for partition in topic.partitions
        if partition.leader in metadata.brokers
    ]
    ends = await list_offsets_at(client, led, (EARLIEST, LATEST)) if led else {}
    partitions = [
        (
            tp := TopicPartition(topic.name, partition.partition),
            PartitionSummary(
                partition.leader if partition.leader in metadata.brokers else NO_LEADER,
                partition.replicas,
                partition.isr,
                _log(ends.get(tp)),
            ),
        )
        for topic in topics
        for partition in topic.partitions
    ]
    return ClusterLag(
        {broker.node_id: broker.address for broker in metadata.brokers.values()},
        [(topic.name, len(topic.partitions)) for topic in topics],
        partitions,
        groups,
        len(failed) + sum(not group.outcome.is_done for group in groups),
    )


def _log(range_: object) -> LogRange | None:
    if range_ is None or isinstance(range_, ApiError):
        return None
    assert isinstance(range_, tuple)
    start, end = range_
    return LogRange(start.offset, end.offset, end.offset)

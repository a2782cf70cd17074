"""Checks, runs and reports a copy between two topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.copy_groups import CopiedGroups
from kctl.admin.copying import Copier, CopyPlan
from kctl.admin.offsets import offset_ranges, partitions_of, resolve
from kctl.client.asyncio_transport import AsyncioTransport
from kctl.client.cluster import ClusterClient
from kctl.client.committed_offsets import committed_offsets
from kctl.client.fetching import CHUNKS, FetchLimits
from kctl.client.list_offsets import IsolationLevel
from kctl.client.producer import ACKS_ALL, ProducerSettings
from kctl.client.property_settings import Writing, fetch_limits, writing_settings
from kctl.client.transaction import TRANSACTION_TIMEOUT_MS, Transaction
from kctl.commands.copy.mirroring import MIRRORED_COLUMNS, Mirrored, mirrored, mirrored_by_dry_run
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.partition_ranges import inside, select_partitions
from kctl.commands.scan_progress import ScanProgress
from kctl.console import Column
from kctl.errors import ApiError, ConfigError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.quantities import counted

if TYPE_CHECKING:
    from kctl.admin.offset_spec import OffsetSpec
    from kctl.client.transport import Connection
    from kctl.commands.invocation import Invocation
    from kctl.commands.record_options import Selecting
    from kctl.console import Console

_UNSTABLE = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})
"""A transaction with offsets of the group is open."""

COPIED_COLUMNS = (
    Column("partition", numeric=True),
    Column("start", numeric=True),
    Column("end", numeric=True),
    Column("position", numeric=True),
    Column("read", numeric=True),
    Column("copied", numeric=True),
    Column("bytes", numeric=True),
    Column("status"),
)


class Copying(NamedTuple):
    """The options of a copy."""

    source: str
    target: str
    lower: OffsetSpec
    upper: OffsetSpec | None
    selecting: Selecting
    records_max: int | None
    partitions: list[int] | None
    keeps_partitions: bool
    reads_committed: bool
    codec: str
    bytes_per_s: int | None
    resume_group: str | None
    transactional_id: str | None
    groups: tuple[str, ...]
    is_dry_run: bool

    @property
    def has_bound(self) -> bool:
        """Whether not all records of the topic are copied."""
        selects_all = self.selecting.records.selects_all
        return not selects_all or self.upper is not None or self.records_max is not None


class CopiedRow(NamedTuple):
    """The result of one source partition: offsets of the source, and counts."""

    partition: int
    start: int
    end: int
    position: int
    """Everything before it has been copied or left out."""
    read: int
    copied: int
    bytes: int
    status: str
    """copied, interrupted, or with --dry-run "would be copied"."""


class CopyDocument(NamedTuple):
    """The JSON document of a copy with --groups."""

    partitions: list[CopiedRow]
    groups: list[Mirrored]


def copy_topic(run: Invocation, source_side: Invocation, target_side: Invocation, copying: Copying) -> ExitStatus:
    """Copies the records; FAILED if offsets of a group could not be committed.  Raises KctlError and Refused."""
    limits = fetch_limits(source_side.consumer_properties(), CHUNKS)
    writing = writing_settings(
        target_side.producer_properties(),
        ProducerSettings(),
        request_timeout_ms=target_side.client_settings().response_timeout_ms,
        compression_type=copying.codec,
        transactional_id=copying.transactional_id,
    )
    if writing.settings.acks != ACKS_ALL:
        raise ConfigError("acks", writing.settings.acks, "a copy writes each record once, which requires acks=all")
    if not writing.settings.idempotent:
        raise ConfigError("enable.idempotence", "false", "a copy writes each record once, which requires true")

    async def work(source: ClusterClient) -> ExitStatus:
        async with ClusterClient(target_side.client_settings(), AsyncioTransport(), None) as target:
            return await _copy(run.console, source, target, copying, limits, writing)

    return source_side.on_cluster_concurrently(work)


async def _copy(
    console: Console,
    source: ClusterClient,
    target: ClusterClient,
    copying: Copying,
    limits: FetchLimits,
    writing: Writing,
) -> ExitStatus:
    topics = await _topics(source, target, copying)
    transaction = None
    if copying.transactional_id is not None and not copying.is_dry_run:
        # First: an earlier run with this id, which may still be active, must not commit further offsets.
        timeout_ms = writing.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS
        transaction = await Transaction.begin(target, copying.transactional_id, timeout_ms=timeout_ms)
    plan = await _plan(console, source, target, copying, topics)
    groups = await _groups(source, target, plan, copying) if copying.groups else None
    with ScanProgress(console, plan.bounds) as progress:
        copier = Copier(
            plan,
            source,
            None if copying.is_dry_run else target,
            writing.settings,
            limits=limits,
            partitioner=writing.partitioner,
            transaction=transaction,
            groups=None if copying.is_dry_run else groups,
            on_poll=lambda: progress.update(copier.counts.positions, found=copier.counts.selected),
        )
        try:
            await copier.run()
        except BaseException:
            _summarise(console, copier, copying, "interrupted")
            raise
    copying.selecting.warn_of_shortened(console)
    of_groups: list[Mirrored] = []
    if groups is not None and copying.is_dry_run:
        of_groups = mirrored_by_dry_run(groups, copier.counts.positions)
    elif groups is not None:
        await groups.find_earlier()
        of_groups = mirrored(groups)
    rows = _rows(copier, "would be copied" if copying.is_dry_run else "copied")
    if copying.groups and console.is_machine_readable:
        console.show_one(CopyDocument(rows, of_groups))
    else:
        console.show(COPIED_COLUMNS, rows)
        if of_groups:
            console.show(MIRRORED_COLUMNS, of_groups)
    _summarise(console, copier, copying, "")
    return ExitStatus.FAILED if any(one.error for one in of_groups) else ExitStatus.DONE


class _Topics(NamedTuple):
    """The partitions to read, and the topic that the offsets of --resume-group name."""

    tps: list[TopicPartition]
    progress_topic: str


async def _topics(source: ClusterClient, target: ClusterClient, copying: Copying) -> _Topics:
    """Raises ApiError, UsageError and Refused for topics between which nothing can be copied."""
    with source.one_deadline(follows_elections=True), target.one_deadline(follows_elections=True):
        tps = select_partitions(
            await partitions_of(source, [copying.source]), copying.partitions, copying.selecting.key_for_partition
        )
        targets = await _targets(target, copying.target, len(tps))
        is_same_cluster = await _cluster_id(source) == await _cluster_id(target)
    if is_same_cluster and copying.source == copying.target and not copying.has_bound:
        raise Refused(
            f"'{copying.source}' would be copied onto itself; add --until, --limit or an option that selects records"
        )
    highest = max((tp.partition for tp in tps), default=0)
    needs_partition = copying.keeps_partitions or (copying.resume_group is not None and not is_same_cluster)
    if needs_partition and highest >= len(targets):
        remedy = "use --partitions hash" if copying.keeps_partitions else "--resume-group needs as many partitions"
        raise UsageError(
            f"{copying.target} has no partition {highest}, because it has {counted(len(targets), 'partition')};"
            f" {remedy}"
        )
    return _Topics(tps, copying.source if is_same_cluster else copying.target)


async def _targets(target: ClusterClient, topic: str, partitions: int) -> list[TopicPartition]:
    """The partitions of the target topic.  Raises ApiError, which for a topic that does not exist names the remedy."""
    try:
        return await partitions_of(target, [topic])
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        text = f"topic '{topic}' does not exist: 'kctl topics create {topic} --partitions {partitions}' creates it"
        raise ApiError(error.code, text) from None


async def _plan(
    console: Console, source: ClusterClient, target: ClusterClient, copying: Copying, topics: _Topics
) -> CopyPlan:
    isolation = IsolationLevel.READ_COMMITTED if copying.reads_committed else IsolationLevel.READ_UNCOMMITTED
    with source.one_deadline(follows_elections=True), target.one_deadline(follows_elections=True):
        held = await offset_ranges(source, topics.tps, isolation=isolation)
        starts = await resolve(source, held, copying.lower)
        ends = await resolve(source, held, copying.upper) if copying.upper is not None else {}
        resumed = await _resumed(target, copying.resume_group, topics)
    bounds, begins = {}, {}
    for tp, range_ in held.items():
        start = resumed.get(tp, starts[tp])
        if tp in resumed and start < range_.start:
            console.warn(f"{tp}: records from {start} to {range_.start} were deleted before they were copied")
        is_from_start = tp not in resumed and start <= range_.start
        start = inside(range_, start)
        begins[tp] = 0 if is_from_start else resumed.get(tp, start)
        bounds[tp] = (start, max(start, min(ends.get(tp, range_.end), range_.end)))
    return CopyPlan(
        target=copying.target,
        bounds=bounds,
        records=copying.selecting.records,
        records_max=copying.records_max,
        keeps_partitions=copying.keeps_partitions,
        bytes_per_s=copying.bytes_per_s,
        isolation=isolation,
        progress_group=copying.resume_group,
        progress_topic=topics.progress_topic,
        begins=begins,
    )


async def _cluster_id(client: ClusterClient) -> str | None:
    return (await client.metadata([])).cluster_id


async def _resumed(target: ClusterClient, group: str | None, topics: _Topics) -> dict[TopicPartition, int]:
    """Where the partitions of the source were left, by their committed offsets in the target cluster."""
    if group is None:
        return {}
    named = {TopicPartition(topics.progress_topic, tp.partition): tp for tp in topics.tps}

    async def look_up(connection: Connection) -> dict[TopicPartition, int]:
        return await committed_offsets(connection, group, named)

    found = await target.on_coordinator(group, look_up, codes=_UNSTABLE)
    return {named[tp]: offset for tp, offset in found.items() if tp in named}


async def _groups(source: ClusterClient, target: ClusterClient, plan: CopyPlan, copying: Copying) -> CopiedGroups:
    """The groups to copy, with their offsets as they are before the copy.  Raises ApiError for one without any."""

    async def look_up(group: str) -> dict[TopicPartition, int]:
        async def send_to(connection: Connection) -> dict[TopicPartition, int]:
            return await committed_offsets(connection, group, plan.bounds)

        found = await source.on_coordinator(group, send_to, codes=_UNSTABLE)
        offsets = {tp: offset for tp, offset in found.items() if tp in plan.bounds}
        if not offsets:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group}' has no committed offset in {copying.source}")
        return offsets

    offsets = {group: await look_up(group) for group in copying.groups}
    return CopiedGroups.of(target, plan.target, offsets, plan.begins)


def _rows(copier: Copier, status: str) -> list[CopiedRow]:
    return [
        CopiedRow(tp.partition, *copier.plan.bounds[tp], one.position, one.read, one.selected, one.size, status)
        for tp, one in sorted(copier.counts.partitions.items())
    ]


def _summarise(console: Console, copier: Copier, copying: Copying, problem: str) -> None:
    counts = copier.counts
    read = sum(one.read for one in counts.partitions.values())
    what = "would be copied" if copying.is_dry_run else "sent" if problem else "copied"
    console.note(
        f"{counts.selected:,} of {counted(read, 'record')} {what} from {copying.source} to {copying.target}"
        + (f"; {problem}" if problem else "")
    )
    if problem and copying.resume_group is not None and not copying.is_dry_run:
        aborted = ", which copies the records of the aborted transaction again" if copying.transactional_id else ""
        console.note(f"repeat the command to continue{aborted}")

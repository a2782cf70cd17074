"""Checks, runs and reports a copy between two topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from kctl.admin.copy_groups import CopiedGroups
from kctl.admin.copying import Copier, CopyPlan
from kctl.admin.kept_progress import (
    Distrust,
    PartitionFacts,
    ProgressMark,
    committed_position,
    distrusted,
    find_divergences,
)
from kctl.admin.offsets import offset_ranges, partitions_of, resolve
from kctl.client.asyncio_transport import AsyncioTransport
from kctl.client.cluster import ClusterClient
from kctl.client.committed_offsets import CommittedOffset, committed_offsets
from kctl.client.fetching import CHUNKS, FetchLimits
from kctl.client.list_offsets import IsolationLevel
from kctl.client.positions import LogTruncated, Position
from kctl.client.producer import ACKS_ALL, ProducerSettings
from kctl.client.property_settings import Writing, fetch_limits, writing_settings
from kctl.client.transaction import TRANSACTION_TIMEOUT_MS, Transaction
from kctl.commands.copy.mirroring import MIRRORED_COLUMNS, Mirrored, mirrored, mirrored_by_dry_run
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.partition_ranges import inside, named_partitions, select_partitions
from kctl.commands.scan_progress import ScanProgress
from kctl.console import Column
from kctl.errors import ApiError, ConfigError, ErrorCode, PositionLost, UsageError
from kctl.model import TopicPartition
from kctl.quantities import counted

if TYPE_CHECKING:
    from kctl.admin.offset_spec import OffsetSpec
    from kctl.client.transport import Connection
    from kctl.commands.invocation import Invocation
    from kctl.commands.record_options import Selecting
    from kctl.console import Console

Progress = Literal["check", "accept", "rewind", "reset"]
"""What happens with progress that cannot be trusted: an error, or continue there, where the logs part, or at --from."""

_DISTRUST_SHOWN = 10

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
    progress: Progress
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
        except LogTruncated as truncated:
            _summarise(console, copier, copying, "stopped")
            raise PositionLost(f"{truncated}: {_remedy(copying)}") from truncated
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


def _remedy(copying: Copying) -> str:
    """What to do after a truncation while a copy runs."""
    if copying.resume_group is None:
        return "records that were lost since may have been copied"
    return "the progress is checked when the command is repeated, and --progress decides where to continue"


class _Topics(NamedTuple):
    """The partitions to read and those that are written, and the topic that the offsets of --resume-group name."""

    tps: list[TopicPartition]
    targets: list[TopicPartition]
    progress_topic: str
    mark: ProgressMark
    """The identities of both topics."""


async def _topics(source: ClusterClient, target: ClusterClient, copying: Copying) -> _Topics:
    """Raises ApiError, UsageError and Refused for topics between which nothing can be copied."""
    with source.one_deadline(follows_elections=True), target.one_deadline(follows_elections=True):
        all_tps = await partitions_of(source, [copying.source])
        tps = select_partitions(all_tps, copying.partitions, copying.selecting.key_for_partition)
        targets = await _targets(target, copying.target, len(tps))
        of_source, of_target = await source.metadata([copying.source]), await target.metadata([copying.target])
        is_same_cluster = of_source.cluster_id == of_target.cluster_id
        mark = ProgressMark.of(
            of_source.topics[copying.source].topic_id,
            of_target.topics[copying.target].topic_id,
            of_source.cluster_id,
            of_target.cluster_id,
            len(all_tps),
        )
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
    return _Topics(tps, targets, copying.source if is_same_cluster else copying.target, mark)


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
        positions = await _resumed(console, source, target, copying, topics)
    resumed = {tp: position.offset for tp, position in positions.items()}
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
        positions=positions,
        mark=topics.mark.text(),
        begins=begins,
    )


async def _resumed(
    console: Console, source: ClusterClient, target: ClusterClient, copying: Copying, topics: _Topics
) -> dict[TopicPartition, Position]:
    """Where the partitions of the source were left, by their committed offsets in the target cluster.

    Raises Refused for progress that cannot be trusted, unless an option decides what happens with it.
    """
    group = copying.resume_group
    if group is None:
        return {}
    named = {TopicPartition(topics.progress_topic, tp.partition): tp for tp in topics.tps}

    async def look_up(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
        return await committed_offsets(connection, group, named)

    found = await target.on_coordinator(group, look_up, codes=_UNSTABLE)
    commits = {named[tp]: commit for tp, commit in found.items() if tp in named}
    ends = await offset_ranges(source, topics.tps)
    target_ends = {tp.partition: range_.end for tp, range_ in (await offset_ranges(target, topics.targets)).items()}
    divergences = await find_divergences(source, commits)
    facts = {
        tp: PartitionFacts(
            commits.get(tp),
            ends[tp].end,
            divergences.get(tp),
            target_ends.get(tp.partition, 0) if copying.keeps_partitions else max(target_ends.values(), default=0),
        )
        for tp in topics.tps
    }
    problems, unidentified = distrusted(facts, topics.mark)
    if unidentified:
        console.warn(
            f"group '{group}' does not say which topics its offsets are of, so it is not checked whether "
            f"{copying.source} and {copying.target} were deleted and created again: {named_partitions(unidentified)}"
        )
    return _with_choice(console, copying, {tp: committed_position(commit) for tp, commit in commits.items()}, problems)


def _with_choice(
    console: Console, copying: Copying, positions: dict[TopicPartition, Position], problems: list[Distrust]
) -> dict[TopicPartition, Position]:
    """The positions, those that are not trusted by the choice of --progress.  Raises Refused without one."""
    undecided: list[Distrust] = []
    for problem in problems:
        tp = problem.tp
        if copying.progress == "rewind" and problem.parting is not None:
            positions[tp] = problem.parting
        elif copying.progress == "reset":
            positions.pop(tp, None)
        elif copying.progress != "accept":
            undecided.append(problem)
            continue
        elif tp in positions:
            positions[tp] = Position(positions[tp].offset)  # without the epoch, which the log does not have
        where = f"offset {positions[tp].offset}" if tp in positions else "--from"
        console.warn(f"{tp}: {problem.reason}; continuing at {where}")
    if undecided:
        shown = [f"{one.tp}: {one.reason}" for one in undecided[:_DISTRUST_SHOWN]]
        more = [f"and {len(undecided) - _DISTRUST_SHOWN} more partitions"] if len(undecided) > _DISTRUST_SHOWN else []
        rewind = "'--progress rewind' (continue where the logs part), " if all(one.parting for one in undecided) else ""
        raise Refused(
            f"the progress of group '{copying.resume_group}' cannot be trusted: {'; '.join([*shown, *more])}.  "
            f"Nothing was copied.  Choose '--progress accept' (continue at the offsets that are committed), {rewind}or "
            "'--progress reset' with --from start (copy all records again), @TIME, end or an offset"
        )
    return positions


async def _groups(source: ClusterClient, target: ClusterClient, plan: CopyPlan, copying: Copying) -> CopiedGroups:
    """The groups to copy, with their offsets as they are before the copy.  Raises ApiError for one without any."""

    async def look_up(group: str) -> dict[TopicPartition, int]:
        async def send_to(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
            return await committed_offsets(connection, group, plan.bounds)

        found = await source.on_coordinator(group, send_to, codes=_UNSTABLE)
        offsets = {tp: commit.offset for tp, commit in found.items() if tp in plan.bounds}
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

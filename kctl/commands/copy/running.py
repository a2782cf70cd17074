"""Checks, runs and reports a copy between two topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from kctl.admin.copy.copying import Copier, CopyPlan, Pacer
from kctl.admin.copy.groups import CopiedGroups
from kctl.admin.copy.kept_progress import (
    Distrust,
    PartitionFacts,
    ProgressMark,
    committed_position,
    distrusted,
    find_divergences,
)
from kctl.admin.topics.offsets import offset_ranges, partitions_of, resolve
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.consuming.committed_offsets import CommittedOffset, committed_offsets
from kctl.client.consuming.fetching.batches import CHUNKS, FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.positions import LogTruncated, Position
from kctl.client.producing.producer import ACKS_ALL, ProducerSettings
from kctl.client.producing.transaction import TRANSACTION_TIMEOUT_MS, Transaction
from kctl.client.properties.settings import Writing, fetch_limits, writing_settings
from kctl.commands.copy.rows import CopiedRow, CopyDocument, Mirrored, mirrored, mirrored_by_dry_run
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.invocation import Invocation
from kctl.commands.reading.options import ScanProgress, inside, named_partitions, select_partitions
from kctl.errors import ApiError, ConfigError, ErrorCode, PositionLost, UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Collection

    from kctl.admin.topics.offsets import OffsetSpec
    from kctl.client.connections.transport import Connection
    from kctl.client.metadata import ClusterMetadata
    from kctl.commands.reading.options import Selecting
    from kctl.output.console import Console

Progress = Literal["check", "accept", "rewind", "reset"]
"""What happens with progress that cannot be trusted: an error, or continue there, where the logs part, or at --from."""

_DISTRUST_SHOWN = 10

_UNSTABLE = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})
"""A transaction with offsets of the group is open."""


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
    creates_target: bool = False
    """For a dry run: the target does not exist, and would be created with the partitions of the source."""
    may_be_two_topics: bool = False
    """Whether the command line does not say if the target is meant, or a second topic of the source."""

    @property
    def has_bound(self) -> bool:
        """Whether not all records of the topic are copied."""
        selects_all = self.selecting.records.selects_all
        return not selects_all or self.upper is not None or self.records_max is not None


class Sides(NamedTuple):
    """The two clusters of a copy, and how records are read and written."""

    source: Invocation
    target: Invocation
    limits: FetchLimits
    writing: Writing

    @classmethod
    def of(cls, source: Invocation, target: Invocation, copying: Copying, limits: FetchLimits = CHUNKS) -> Self:
        """Return the sides with the properties of their files; `limits` are those without such properties.

        Raises ConfigError.
        """
        writing = writing_settings(
            target.producer_properties(),
            ProducerSettings(),
            request_timeout_ms=target.client_settings().response_timeout_ms,
            compression_type=copying.codec,
            transactional_id=copying.transactional_id,
        )
        if writing.settings.acks != ACKS_ALL:
            raise ConfigError("acks", writing.settings.acks, "a copy writes each record once, which requires acks=all")
        if not writing.settings.idempotent:
            raise ConfigError("enable.idempotence", "false", "a copy writes each record once, which requires true")
        return cls(source, target, fetch_limits(source.consumer_properties(), limits), writing)

    def target_client(self) -> ClusterClient:
        """Return a client of the target on the event loop, as a context manager."""
        return ClusterClient(self.target.client_settings(), AsyncioTransport(), None)

    def source_client(self) -> ClusterClient:
        """Return a further client of the source on the event loop, as a context manager."""
        return ClusterClient(self.source.client_settings(), AsyncioTransport(), None)


def copy_topic(run: Invocation, source_side: Invocation, target_side: Invocation, copying: Copying) -> ExitStatus:
    """Copy the records; return FAILED if offsets of a group could not be committed.  Raises KctlError and Refused."""
    sides = Sides.of(source_side, target_side, copying)

    async def work(source: ClusterClient) -> ExitStatus:
        async with sides.target_client() as target:
            return await _copy(run.console, source, target, copying, sides)

    return source_side.on_cluster_concurrently(work)


async def _copy(
    console: Console, source: ClusterClient, target: ClusterClient, copying: Copying, sides: Sides
) -> ExitStatus:
    prepared = await prepare(console, source, target, copying, sides)
    copier = prepared.copier
    with ScanProgress(console, copier.plan.bounds) as progress:
        copier.on_poll = lambda: progress.update(copier.counts.positions, found=copier.counts.selected)
        try:
            await copier.run()
        except LogTruncated as truncated:
            _summarise(console, copier, copying, "stopped")
            raise PositionLost(f"{truncated}: {remedy_for(copying)}") from truncated
        except BaseException:
            _summarise(console, copier, copying, "interrupted")
            raise
    copying.selecting.warn_of_shortened(console)
    of_groups = await prepared.offsets_of_groups()
    rows = _rows(copier, "would be copied" if copying.is_dry_run else "copied")
    if copying.groups and console.is_machine_readable:
        console.show_one(CopyDocument(rows, of_groups))
    else:
        console.show(CopiedRow, rows)
        if of_groups:
            console.show(Mirrored, of_groups)
    _summarise(console, copier, copying, "")
    return ExitStatus.FAILED if any(group.error for group in of_groups) else ExitStatus.DONE


class Prepared(NamedTuple):
    """A copy of one topic that is checked and can run."""

    copier: Copier
    groups: CopiedGroups | None
    is_dry_run: bool

    async def offsets_of_groups(self) -> list[Mirrored]:
        """Return the rows of the groups' offsets after the copy.  Raises KctlError."""
        if self.groups is None:
            return []
        if self.is_dry_run:
            return mirrored_by_dry_run(self.groups, self.copier.counts.positions)
        await self.groups.find_earlier()
        return mirrored(self.groups)


async def prepare(
    console: Console,
    source: ClusterClient,
    target: ClusterClient,
    copying: Copying,
    sides: Sides,
    pacer: Pacer | None = None,
) -> Prepared:
    """Check the topics and the progress, and plan the copy.  Raises KctlError and Refused.

    With `pacer` several copies share their rate.
    """
    topics = await _topics(source, target, copying)
    transaction = None
    if copying.transactional_id is not None and not copying.is_dry_run:
        # First: an earlier run with this id, which may still be active, must not commit further offsets.
        timeout_ms = sides.writing.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS
        transaction = await Transaction.begin(target, copying.transactional_id, timeout_ms=timeout_ms)
    plan = await _plan(console, source, target, copying, topics)
    groups = await _groups(source, target, plan, copying) if copying.groups else None
    copier = Copier(
        plan,
        source,
        None if copying.is_dry_run else target,
        sides.writing.settings,
        limits=sides.limits,
        partitioner=sides.writing.partitioner,
        transaction=transaction,
        groups=None if copying.is_dry_run else groups,
        pacer=pacer,
    )
    return Prepared(copier, groups, copying.is_dry_run)


def remedy_for(copying: Copying) -> str:
    """Return what to do after a truncation while a copy runs."""
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
    """Read the topics; raise ApiError, UsageError and Refused for those between which nothing can be copied."""
    with source.one_deadline(follows_elections=True), target.one_deadline(follows_elections=True):
        all_tps = await partitions_of(source, [copying.source])
        tps = select_partitions(all_tps, copying.partitions, copying.selecting.key_for_partition)
        of_source = await source.metadata({copying.source, copying.target})
        is_same_cluster = of_source.cluster_id == (await target.metadata([])).cluster_id
        if copying.may_be_two_topics and not is_same_cluster and copying.source != copying.target:
            _refuse_two_topics(of_source, copying)
        targets = [] if copying.creates_target else await _targets(target, copying.target, len(tps))
        of_target = await target.metadata([copying.target])
        mark = ProgressMark.of(
            of_source.topics[copying.source].topic_id,
            of_target.topics[copying.target].topic_id,
            of_source.cluster_id,
            of_target.cluster_id,
            len(all_tps),
        )
    if is_same_cluster and copying.source == copying.target and not copying.has_bound:
        raise Refused(
            f"'{copying.source}' would be copied onto itself; add --until, --max-messages or an option that "
            "selects records"
        )
    highest = max((tp.partition for tp in tps), default=0)
    needs_partition = copying.keeps_partitions or (copying.resume_group is not None and not is_same_cluster)
    if needs_partition and highest >= len(targets) and not copying.creates_target:
        remedy = "use --partitions hash" if copying.keeps_partitions else "--resume-group needs as many partitions"
        raise UsageError(
            f"{copying.target} has no partition {highest}, because it has {counted(len(targets), 'partition')};"
            f" {remedy}"
        )
    return _Topics(tps, targets, copying.source if is_same_cluster else copying.target, mark)


def _refuse_two_topics(of_source: ClusterMetadata, copying: Copying) -> None:
    """Raise Refused if SRC DST could be two topics of the source, each of which is to be copied."""
    second = of_source.topics.get(copying.target)
    if second is None or second.error is not ErrorCode.NONE:
        return
    pair = f"{copying.source} {copying.target}"
    raise Refused(
        f"'{copying.target}' is a topic of the source too: 'kctl copy {pair} --each ...' copies each of them to one "
        f"of its name; 'kctl copy {pair} --no-each ...' copies the records of {copying.source} to {copying.target}"
    )


async def _targets(target: ClusterClient, topic: str, partitions: int) -> list[TopicPartition]:
    """Return the partitions of the target topic.

    Raises ApiError, which for a topic that does not exist names the remedy.
    """
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
        marks={copying.source: topics.mark},
        begins=begins,
    )


async def _resumed(
    console: Console, source: ClusterClient, target: ClusterClient, copying: Copying, topics: _Topics
) -> dict[TopicPartition, Position]:
    """Return where the partitions of the source were left, by their committed offsets in the target cluster.

    Raises Refused for progress that cannot be trusted, unless an option decides what happens with it.
    """
    group = copying.resume_group
    if group is None or copying.creates_target:
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
    """Return the positions, those that are not trusted by the choice of --progress.  Raises Refused without one."""
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
        shown = [f"{distrust.tp}: {distrust.reason}" for distrust in undecided[:_DISTRUST_SHOWN]]
        more = [f"and {len(undecided) - _DISTRUST_SHOWN} more partitions"] if len(undecided) > _DISTRUST_SHOWN else []
        rewind = (
            "'--progress rewind' (continue where the logs part), "
            if all(distrust.parting for distrust in undecided)
            else ""
        )
        raise Refused(
            f"the progress of group '{copying.resume_group}' cannot be trusted: {'; '.join([*shown, *more])}.  "
            f"Nothing was copied.  Choose '--progress accept' (continue at the offsets that are committed), {rewind}or "
            "'--progress reset' with --from start (copy all records again), @TIME, end or an offset"
        )
    return positions


async def _groups(source: ClusterClient, target: ClusterClient, plan: CopyPlan, copying: Copying) -> CopiedGroups:
    """Return the groups to copy, with their offsets as they are before the copy.

    Raises ApiError for one without any.
    """
    offsets = {group: await committed_in(source, group, plan.bounds) for group in copying.groups}
    for group, of_group in offsets.items():
        if not of_group:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group}' has no committed offset in {copying.source}")
    return CopiedGroups.of(target, plan.target, offsets, plan.begins)


async def committed_in(source: ClusterClient, group: str, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offsets that the group has committed in these partitions.  Raises ApiError and ClusterUnreachable."""

    async def look_up(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
        return await committed_offsets(connection, group, tps)

    commits = await source.on_coordinator(group, look_up, codes=_UNSTABLE)
    return {tp: commit.offset for tp, commit in commits.items() if tp in tps}


def _rows(copier: Copier, status: str) -> list[CopiedRow]:
    return [
        CopiedRow(
            tp.partition,
            *copier.plan.bounds[tp],
            counts_of_partition.position,
            counts_of_partition.read,
            counts_of_partition.selected,
            counts_of_partition.size,
            status,
        )
        for tp, counts_of_partition in sorted(copier.counts.partitions.items())
    ]


def _summarise(console: Console, copier: Copier, copying: Copying, problem: str) -> None:
    counts = copier.counts
    read = sum(partition.read for partition in counts.partitions.values())
    what = "would be copied" if copying.is_dry_run else "sent" if problem else "copied"
    console.note(
        f"{counts.selected:,} of {counted(read, 'record')} {what} from {copying.source} to {copying.target}"
        + (f"; {problem}" if problem else "")
    )
    if problem and copying.resume_group is not None and not copying.is_dry_run:
        aborted = ", which copies the records of the aborted transaction again" if copying.transactional_id else ""
        console.note(f"repeat the command to continue{aborted}")

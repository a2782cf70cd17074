"""`kctl copy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.copy.copying import Copier, CopyPlan
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
from kctl.commands.frame.command import ConfirmedCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Offset, Rate, list_of
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.options.values import check_offset_range
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.reading.options import (
    From,
    Limit,
    Partition,
    ScanProgress,
    SelectOptions,
    inside,
    named_partitions,
    select_partitions,
    selecting,
)
from kctl.errors import ApiError, ConfigError, ErrorCode, PositionLost, UsageError
from kctl.model import TopicPartition
from kctl.output.console import ErrorName, ErrorText
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kctl.admin.copy.groups import Translated
    from kctl.admin.topics.offsets import OffsetSpec
    from kctl.client.connections.transport import Connection
    from kctl.commands.reading.options import Selecting
    from kctl.output.console import Console


# Rows of the offsets of groups that `kctl copy` translates.


class Mirrored(NamedTuple):
    """The offset of a group in one partition; `target_offset` is None without a translation."""

    group: str
    partition: int
    source_offset: int
    target_offset: int | None
    status: Annotated[
        str, "committed, not copied, kept (the group is further in the target), would be committed, or failed."
    ]
    error: ErrorName = None
    message: ErrorText = None


def mirrored(groups: CopiedGroups) -> list[Mirrored]:
    """Return the rows of the offsets after the copy."""
    return [_row(group, tp, offset, groups.done[group, tp]) for group, tp, offset in _items(groups)]


def mirrored_by_dry_run(groups: CopiedGroups, positions: Mapping[TopicPartition, int]) -> list[Mirrored]:
    """Return the rows of the offsets that a copy up to these positions would commit."""
    return [
        Mirrored(group, tp.partition, offset, None, "would be committed" if is_copied else "not copied")
        for group, tp, offset in _items(groups)
        for is_copied in (groups.translations[tp].begin <= offset <= positions[tp],)
    ]


def _items(groups: CopiedGroups) -> Iterator[tuple[str, TopicPartition, int]]:
    for group, offsets in groups.offsets.items():
        for tp, offset in sorted(offsets.items()):
            yield group, tp, offset


def _row(group: str, tp: TopicPartition, offset: int, result: Translated) -> Mirrored:
    if result.outcome.is_done:
        status = "kept" if result.is_kept else "committed"
    else:
        status = "not copied" if result.offset is None else "failed"
    return Mirrored(group, tp.partition, offset, result.offset, status, **outcome_error(result.outcome))


# Checks, runs and reports a copy between two topics.


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
    position: Annotated[int, "Everything before it has been copied or left out."]
    read: int
    copied: int
    bytes: int
    status: Annotated[str, 'copied, interrupted, or with --dry-run "would be copied".']


class CopyDocument(NamedTuple):
    """The JSON document of a copy with --groups."""

    partitions: list[CopiedRow]
    groups: list[Mirrored]


def copy_topic(run: Invocation, source_side: Invocation, target_side: Invocation, copying: Copying) -> ExitStatus:
    """Copy the records; return FAILED if offsets of a group could not be committed.  Raises KctlError and Refused."""
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
        console.show(CopiedRow, rows)
        if of_groups:
            console.show(Mirrored, of_groups)
    _summarise(console, copier, copying, "")
    return ExitStatus.FAILED if any(group.error for group in of_groups) else ExitStatus.DONE


def _remedy(copying: Copying) -> str:
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
            f"'{copying.source}' would be copied onto itself; add --until, --max-messages or an option that "
            "selects records"
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
        mark=topics.mark.text(),
        begins=begins,
    )


async def _resumed(
    console: Console, source: ClusterClient, target: ClusterClient, copying: Copying, topics: _Topics
) -> dict[TopicPartition, Position]:
    """Return where the partitions of the source were left, by their committed offsets in the target cluster.

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


# `kctl copy`.


app = typer.Typer(add_completion=False)

CLUSTERS_PANEL = "Clusters"


@app.command(
    "copy",
    cls=ConfirmedCommand,
    epilog=examples(
        "kctl copy orders orders-replay --from @10:00 --until @10:05 --key customer-7 --dry-run",
        "kctl copy orders orders-replay --where 'value.status == \"failed\"' --partitions hash",
        "kctl copy orders orders --to-cluster dr.example.org:9092 --resume-group copy-orders --rate 5m",
        "kctl copy orders orders --to-cluster dr.example.org:9092 --groups billing,audit",
        "kctl copy orders archive --resume-group copy-orders --transactional-id copy-orders",
    ),
)
@shows("kctl.commands.copy:CopiedRow", instead="kctl.commands.copy:CopyDocument")
@with_groups
def copy(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="Topic to read.", metavar="SRC")],
    target: Annotated[str, typer.Argument(help="Topic to write to.  It must exist.", metavar="DST")],
    *,
    from_cluster: Annotated[
        str | None,
        typer.Option(
            "--from-cluster",
            metavar="HOST:PORT[,...]",
            help="Brokers of the cluster to read from.  Default: --bootstrap-server.",
            rich_help_panel=CLUSTERS_PANEL,
        ),
    ] = None,
    from_config: Annotated[
        str | None,
        typer.Option(
            "--from-config",
            metavar="FILE",
            help="Properties file with client settings for the cluster to read from.",
            rich_help_panel=CLUSTERS_PANEL,
        ),
    ] = None,
    from_profile: Annotated[
        str | None,
        typer.Option(
            "--from-profile",
            metavar="PROFILE",
            help="Profile of the cluster to read from.",
            rich_help_panel=CLUSTERS_PANEL,
        ),
    ] = None,
    to_cluster: Annotated[
        str | None,
        typer.Option(
            "--to-cluster",
            metavar="HOST:PORT[,...]",
            help="Brokers of the cluster to write to.  Default: --bootstrap-server.",
            rich_help_panel=CLUSTERS_PANEL,
        ),
    ] = None,
    to_config: Annotated[
        str | None,
        typer.Option(
            "--to-config",
            metavar="FILE",
            help="Properties file with client settings for the cluster to write to.",
            rich_help_panel=CLUSTERS_PANEL,
        ),
    ] = None,
    to_profile: Annotated[
        str | None,
        typer.Option(
            "--to-profile",
            metavar="PROFILE",
            help="Profile of the cluster to write to.",
            rich_help_panel=CLUSTERS_PANEL,
        ),
    ] = None,
    from_: From = Offset("start"),
    until: Annotated[
        Offset | None,
        typer.Option(
            "--until", parser=Offset, help="Where to stop, exclusive.  Default: the end when the command starts."
        ),
    ] = None,
    select: SelectOptions,
    max_records: Limit = None,
    partition: Partition = None,
    partitions: Annotated[
        Literal["keep", "hash"],
        typer.Option(
            "--partitions", help="Write to the partition of the same number, or to the one that the key selects."
        ),
    ] = "keep",
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        typer.Option("--isolation-level", help="Whether records of open and aborted transactions are copied."),
    ] = "read_committed",
    codec: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        typer.Option("--compression-codec", help="Compression codec of the batches that are written."),
    ] = "none",
    rate: Annotated[
        Rate | None,
        typer.Option("--rate", parser=Rate.within("1"), help="Write at most so many bytes per second, such as 5m."),
    ] = None,
    resume_group: Annotated[
        str | None,
        typer.Option(
            "--resume-group",
            metavar="GROUP",
            help="Continue where the offsets of this group in the target cluster are, and commit them while copying.",
        ),
    ] = None,
    progress: Annotated[
        Progress,
        typer.Option(
            "--progress",
            help="With --resume-group, for progress that cannot be trusted: exit status 5, or continue at the "
            "committed offsets, where the logs part, or at --from.",
        ),
    ] = "check",
    transactional_id: Annotated[
        str | None,
        typer.Option(
            "--transactional-id",
            metavar="ID",
            help="With --resume-group: write records and offsets in transactions, so that each is copied exactly once.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups",
            metavar="GROUP[,...]",
            help="Commit the offsets that these groups have in SRC, translated, for DST.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and count the records that would be copied; write nothing.")
    ] = False,
) -> ExitStatus:
    """Copy records of a topic to another topic, which may be in another cluster.

    Keys, values, headers and timestamps are copied byte for byte; a topic with message.timestamp.type=LogAppendTime
    sets its own timestamps.  The options that select records are those of 'kctl consume'.  The command ends at the
    offsets that were the end of the partitions when it started.  The order of records is kept within a partition.

    With --resume-group an interrupted copy continues where it stopped; records of at most the last second may be copied
    twice, with --transactional-id none.  The offsets of the group name SRC if both topics are in the same cluster, else
    the partitions of DST.  They take precedence over --from.

    Progress is an offset, a leader epoch and the ids of both topics.  It is not trusted if SRC or DST was deleted and
    created again, if the log of SRC was truncated (an unclean leader election), or if there is none although DST has
    had records (it expires with the offsets of the group, offsets.retention.minutes).  Then nothing is copied and the
    exit status is 5; --progress is the choice: accept continues at the committed offsets, or at --from where there is
    none; rewind where the logs part, which copies the records that replaced lost ones; reset at --from.  Other
    partitions continue where they are.  Without topic ids (before Kafka 2.8) re-creation is found by offsets and leader
    epochs only, with a warning.

    A side with options of its own (--from-cluster, --to-config, ...) uses neither --command-config nor the environment.
    Its file may set the properties of Kafka's consumer or producer (docs/reference/client-properties.md);
    --isolation-level and --compression-codec take precedence.

    With --groups, an offset is translated to that of the first copied record at or after it.  Offsets before the range
    of this run have no translation: the exit status is 1, unless an earlier run with --resume-group has committed them.
    Offsets that a group already has in DST are not moved back.

    A topic is not copied onto itself without --until, --max-messages or an option that selects records (exit status 5).
    """
    run: Invocation = ctx.obj
    run.console.outlive_reader()
    if transactional_id is not None and resume_group is None:
        raise UsageError("--transactional-id requires --resume-group")
    if progress != "check" and resume_group is None:
        raise UsageError("--progress requires --resume-group")
    if groups is not None and partitions == "hash":
        raise UsageError("--groups requires --partitions keep: offsets of one partition have no translation otherwise")
    chosen = selecting(select)
    check_offset_range(from_, until)
    source_side = run.of_side(from_cluster, from_config, from_profile)
    target_side = run.of_side(to_cluster, to_config, to_profile)
    source_side.consumer_properties()
    target_side.producer_properties()
    used = ["--partitions hash"] if partitions == "hash" else []
    used += ["--transactional-id"] if transactional_id is not None else []
    for side in {id(side): side for side in (source_side, target_side)}.values():
        side.note_unused("copy", *used)
    copying = Copying(
        source=source,
        target=target,
        lower=from_,
        upper=until,
        selecting=chosen,
        records_max=max_records,
        partitions=list_of(partition),
        keeps_partitions=partitions == "keep",
        reads_committed=source_side.setting(ctx, "isolation", "isolation.level") == "read_committed",
        codec=target_side.setting(ctx, "codec", "compression.type"),
        bytes_per_s=rate,
        resume_group=resume_group,
        progress=progress,
        transactional_id=transactional_id,
        groups=tuple(dict.fromkeys(group for group in (groups or "").split(",") if group)),
        is_dry_run=dry_run,
    )
    if not dry_run:
        target_side.authorize_change(ctx.command_path)
    return copy_topic(run, source_side, target_side, copying)

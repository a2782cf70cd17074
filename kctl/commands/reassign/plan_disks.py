"""`kctl reassign plan-disks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.placement.balance import disk_changes, plan_disks
from kctl.admin.placement.log_dirs import describe_log_dirs, sizes_in
from kctl.admin.placement.plan import plan_moves
from kctl.admin.placement.reassignment import ongoing_if_supported
from kctl.client.outcome import Outcome, absent_broker, topic_error
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.rows import code_error
from kctl.commands.frame.output.shown import shows_one
from kctl.commands.reassign.plan import PlanFiles, note_files
from kctl.commands.reassign.rows import PlanOutput, broker_ids, cost_text
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.output.console import Column, ErrorName, ErrorText
from kctl.output.quantities import counted, parse_integer

if TYPE_CHECKING:
    from kctl.admin.placement.balance import DiskChange
    from kctl.admin.placement.log_dirs import LogDir, Replica
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import ClusterMetadata

verbs = typer.Typer(add_completion=False)


class DiskRow(NamedTuple):
    """A log directory before and after the moves; nothing but the error is known of one that is offline."""

    broker: int
    log_dir: str
    bytes_before: int | None = None
    bytes_after: int | None = None
    bytes_received: int | None = None
    replicas_before: Annotated[int | None, Column(drop_order=1)] = None
    replicas_after: Annotated[int | None, Column(drop_order=2)] = None
    free_bytes: Annotated[int | None, Column(is_rare=True)] = None
    error: ErrorName = None
    message: ErrorText = None


class PlannedDiskMove(NamedTuple):
    """The move of one replica to another directory of its broker."""

    topic: str
    partition: int
    broker: int
    log_dir: str
    target: str
    bytes_to_move: int


class DiskPlanReport(NamedTuple):
    """The JSON object of a plan."""

    replicas_to_copy: int
    bytes_to_move: int
    disks: list[DiskRow]
    moves: list[PlannedDiskMove]
    files: list[str]
    rollback_file: str | None


@verbs.command(
    "plan-disks",
    cls=ClusterCommand,
    epilog=examples(
        "kctl reassign plan-disks --output disks.json",
        "kctl reassign plan-disks 1,2 --topic orders",
        "kctl reassign plan-disks --drain 3:/disk2/kafka --output empty-disk2.json",
    ),
)
@shows_one(DiskPlanReport)
def plan_disks_of(
    ctx: typer.Context,
    brokers: Annotated[
        str | None,
        typer.Argument(help="The brokers whose disks are balanced, such as 1,2.  Default: those of --drain, else all."),
    ] = None,
    *,
    drain: Annotated[
        list[str] | None,
        typer.Option(
            "--drain",
            metavar="BROKER:DIR",
            help="Move all replicas out of this log directory, for example to replace its disk.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Move only partitions of these topics.  Default: all."),
    ] = None,
    output: PlanOutput = None,
) -> ExitStatus:
    """Plan moves of replicas between the log directories of each broker, so that these hold the same number of bytes.

    Nothing is copied from one broker to another.  Directories that differ from the mean of their broker by less than
    5 % stay as they are, and so do those that are offline.  With --drain, the other directories of that broker are
    balanced as well.

    Nothing is changed: 'kctl reassign execute' executes the plan (Kafka 1.1 or later).  The same cluster gives the same
    plan.  No directory receives more than it has free, where brokers report that (Kafka 3.3).

    One row per log directory; with --format json also the moves.  Existing files are not overwritten.
    """
    run: Invocation = ctx.obj
    chosen = broker_ids(brokers)
    drained = [_directory(text) for text in drain or []]
    files = PlanFiles(output)
    metadata, log_dirs, failed = run.on_brokers(lambda client: _read(client, chosen, drained))
    _check_drained(log_dirs, drained)
    targets = plan_disks(log_dirs, drained=drained, movable=_movable(metadata, topic))
    replicas = {tp: _replicas(metadata, tp) for tp in sorted({tp for _, tp in targets})}
    sizes = sizes_in(log_dirs, failed)
    moves = plan_moves(replicas, metadata, {}, sizes, targets)
    written = files.write([moves], is_split=False) if moves else None
    planned = [
        PlannedDiskMove(tp.topic, tp.partition, broker, sizes.places[broker, tp], path, sizes.bytes[broker, tp])
        for (broker, tp), path in targets.items()
    ]
    rows = [_row(change, log_dir) for change, log_dir in zip(disk_changes(log_dirs, targets), log_dirs, strict=True)]
    report = DiskPlanReport(
        replicas_to_copy=len(targets),
        bytes_to_move=sum(move.bytes_to_move for move in planned),
        disks=rows,
        moves=planned,
        files=[str(path) for path in written[0]] if written else [],
        rollback_file=str(written[1]) if written else None,
    )
    if run.console.is_machine_readable:
        run.console.show_one(report)
    else:
        run.console.show(DiskRow, rows)
    for outcome in failed:
        run.console.warn(f"broker {outcome.name} did not describe its log directories: {outcome.message}")
    if moves:
        run.console.note(f"{counted(len(moves), 'partition')} to change, {cost_text(moves, None)}")
        note_files(run, report.files, report.rollback_file, None)
    else:
        run.console.note("nothing to move")
    return ExitStatus.FAILED if failed else run.status_of(rows)


async def _read(
    client: ClusterClient, chosen: list[int] | None, drained: list[tuple[int, str]]
) -> tuple[ClusterMetadata, list[LogDir], list[Outcome]]:
    """Return the cluster and the log directories, by broker and path.  Raises ApiError, and Refused during moves."""
    ongoing = await ongoing_if_supported(client)
    if ongoing:
        raise Refused(
            f"{counted(len(ongoing), 'partition is', 'partitions are')} being moved: wait, or cancel the moves"
        )
    metadata = await client.metadata()
    named = {*(chosen or []), *(broker for broker, _ in drained)}
    wanted = named or metadata.brokers.keys()
    for broker in sorted(wanted - metadata.brokers.keys()):
        raise absent_broker(broker, metadata.brokers)
    log_dirs, failed = await describe_log_dirs(client, wanted)
    copied = next((replica.tp for log_dir in log_dirs for replica in log_dir.replicas if replica.is_future), None)
    if copied is not None:
        raise Refused(f"replicas are being moved between log directories ({copied}, ...): wait, or cancel the moves")
    return metadata, sorted(log_dirs, key=lambda log_dir: (log_dir.broker_id, log_dir.path)), failed


def _directory(text: str) -> tuple[int, str]:
    broker, colon, path = text.partition(":")
    if not colon or not path.startswith("/"):
        raise UsageError(f"--drain {text}: write BROKER:DIR, such as 3:/disk2/kafka")
    return parse_integer(broker, f"the broker of --drain {text}", low=0), path


def _check_drained(log_dirs: list[LogDir], drained: list[tuple[int, str]]) -> None:
    for broker, path in drained:
        own = {log_dir.path: log_dir.error for log_dir in log_dirs if log_dir.broker_id == broker}
        if path not in own:
            text = f"broker {broker} has no log directory {path}; it has {', '.join(sorted(own)) or 'none'}"
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, text)
        if own[path] is not ErrorCode.NONE:
            raise Refused(
                f"log directory {path} of broker {broker} is offline: its replicas cannot be copied from there"
            )


def _movable(metadata: ClusterMetadata, topics: list[str] | None) -> set[Replica]:
    """Return the replicas of the topics.  Raises ApiError for an unknown topic."""
    for name in topics or []:
        if name not in metadata.topics:
            raise topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {
        (broker, TopicPartition(topic.name, partition.partition))
        for topic in metadata.topics.values()
        if topics is None or topic.name in topics
        for partition in topic.partitions
        for broker in partition.replicas
    }


def _replicas(metadata: ClusterMetadata, tp: TopicPartition) -> tuple[int, ...]:
    partition = metadata.topics[tp.topic].partition(tp.partition)
    return () if partition is None else partition.replicas


def _row(change: DiskChange, log_dir: LogDir) -> DiskRow:
    if log_dir.error is not ErrorCode.NONE:
        return DiskRow(change.broker_id, change.path, **code_error(log_dir.error))
    return DiskRow(
        broker=change.broker_id,
        log_dir=change.path,
        bytes_before=change.bytes_before,
        bytes_after=change.bytes_after,
        bytes_received=change.bytes_received,
        replicas_before=change.replicas_before,
        replicas_after=change.replicas_after,
        free_bytes=change.free_bytes,
    )

"""`kctl copy`."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import typer

from kctl.commands.command import ConfirmedCommand, examples
from kctl.commands.copy.copying import Copying, Progress, copy_topic
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.record_options import (
    From,
    Grep,
    Key,
    Limit,
    Partition,
    PartitionOfKey,
    RecordHeader,
    Where,
    selecting,
)
from kctl.commands.shown import shows
from kctl.commands.values import parse_offset_range, parse_partitions, parse_rate
from kctl.errors import UsageError

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
@shows("kctl.commands.copy.copying:CopiedRow", instead="kctl.commands.copy.copying:CopyDocument")
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
    from_: From = "start",
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="OFFSET", help="Where to stop, exclusive.  Default: the end when the command starts."
        ),
    ] = None,
    key: Key = None,
    partition_of_key: PartitionOfKey = False,
    grep: Grep = None,
    where: Where = None,
    record_header: RecordHeader = None,
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
        typer.Option("--isolation", help="Whether records of open and aborted transactions are copied."),
    ] = "read_committed",
    codec: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        typer.Option("--codec", help="Compression codec of the batches that are written."),
    ] = "none",
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="BYTES_PER_S", help="Write at most so many bytes per second, such as 5m."),
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
    Its file may set the properties of Kafka's consumer or producer (docs/reference/client-properties.md); --isolation
    and --codec take precedence.

    With --groups, an offset is translated to that of the first copied record at or after it.  Offsets before the range
    of this run have no translation: the exit status is 1, unless an earlier run with --resume-group has committed them.
    Offsets that a group already has in DST are not moved back.

    A topic is not copied onto itself without --until, --limit or an option that selects records (exit status 5).
    """
    run: Invocation = ctx.obj
    run.console.outlive_reader()
    now_ms = round(time.time() * 1000)
    if transactional_id is not None and resume_group is None:
        raise UsageError("--transactional-id requires --resume-group")
    if progress != "check" and resume_group is None:
        raise UsageError("--progress requires --resume-group")
    if groups is not None and partitions == "hash":
        raise UsageError("--groups requires --partitions keep: offsets of one partition have no translation otherwise")
    bytes_per_s = None if rate is None else parse_rate(rate)
    if bytes_per_s == 0:
        raise UsageError("--rate must be greater than 0")
    chosen = selecting(key=key, partition_of_key=partition_of_key, grep=grep, where=where, headers=record_header)
    lower, upper = parse_offset_range(from_, until or None, now_ms=now_ms)
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
        lower=lower,
        upper=upper,
        selecting=chosen,
        records_max=max_records,
        partitions=parse_partitions(partition),
        keeps_partitions=partitions == "keep",
        reads_committed=source_side.setting(ctx, "isolation", "isolation.level") == "read_committed",
        codec=target_side.setting(ctx, "codec", "compression.type"),
        bytes_per_s=bytes_per_s,
        resume_group=resume_group,
        progress=progress,
        transactional_id=transactional_id,
        groups=tuple(dict.fromkeys(one for one in (groups or "").split(",") if one)),
        is_dry_run=dry_run,
    )
    if not dry_run:
        target_side.authorize_change(ctx.command_path)
    return copy_topic(run, source_side, target_side, copying)

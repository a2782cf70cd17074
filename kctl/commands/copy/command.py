"""`kctl copy`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kctl.commands.copy.running import Copying, Progress, copy_topic
from kctl.commands.copy.several import Several, copy_topics
from kctl.commands.frame.command import ConfirmedCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Offset, Rate, list_of
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.options.values import check_offset_range
from kctl.commands.frame.output.shown import shows
from kctl.commands.reading.options import From, Limit, Partition, SelectOptions, selecting
from kctl.commands.reading.topics import TopicRegex, topic_selection
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
        "kctl copy 'orders-*' payments --to-cluster dr.example.org:9092 --transactional-id move",
        "kctl copy --topic-regex '.*' --to-cluster dr.example.org:9092 --groups billing,audit --dry-run",
    ),
)
@shows(
    "kctl.commands.copy.rows:CopiedRow",
    "kctl.commands.copy.rows:TopicRow",
    instead="kctl.commands.copy.rows:CopyDocument",
)
@with_groups
def copy(
    ctx: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            help="SRC DST: the topic to read, and the one to write to, which must exist.  Or topics to copy each to "
            "one of the same name; * and ? are wildcards.",
            metavar="SRC",
        ),
    ] = None,
    *,
    topic_regex: TopicRegex = None,
    to_own_names: Annotated[
        bool | None,
        typer.Option(
            "--each/--no-each",
            help="Two topics are copied each to one of its name, or one to the other.  Required if both are topics of "
            "the source and the target is another cluster.",
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="TEXT", help="Copy each topic to the one with this text before its name."),
    ] = None,
    acls: Annotated[
        bool,
        typer.Option(
            "--acls",
            help="With several topics: also create the ACLs of the topics, by name and prefix, in the target.",
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify/--no-verify", help="With several topics: compare each topic with its copy at the end."),
    ] = True,
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
    """Copy records of topics to other topics, which may be in another cluster.

    SRC DST copies one topic to another.  Any other number of topics, a pattern, --prefix or --each copies each topic to
    one of the same name, which is created if it does not exist: with as many partitions, the properties that are set
    for the topic, and its replication factor, or one per broker of the target if these are fewer.  Nothing is written
    if a target has another number of partitions.  Four topics are copied at the same time.  A topic that fails does not
    stop the others.

    Each of several topics is then compared with its copy, record by record; the status is "different" and the exit
    status 3 if they are not equal.  In compacted topics the last values of the keys are compared.  The progress is kept
    in the group of --resume-group, by default 'kctl-copy-CLUSTER', with the id of the source cluster and after it the
    prefix: the command continues when it is repeated.  After SIGKILL without --transactional-id a topic can have
    records of the last second twice, and is "different".  The transactional id of each topic is ID-TOPIC.

    --acls creates the ACLs of the topics, those with their names and those with a prefix of them, for the copies; none
    is removed, and ACLs of all topics (*) are left out.  --dry-run shows them.

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
    Two topics of the source are not copied to another cluster without --each or --no-each (exit status 5): what is
    meant may be a copy of each.
    """
    run: Invocation = ctx.obj
    run.console.outlive_reader()
    selection = topic_selection(ctx, topics, topic_regex)
    source, target, has_several = "", "", True
    if topics is not None and len(topics) == 2 and selection.pattern is None and not to_own_names and prefix is None:
        (source, target), has_several = topics, False
    if has_several:
        _check_several(max_records, partition, partitions)
    else:
        _check_single(resume_group, progress, transactional_id)
        if acls or not verify:
            raise UsageError(f"{'--acls' if acls else '--no-verify'} is for several topics; SRC DST copies one")
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
        may_be_two_topics=to_own_names is None,
    )
    if not dry_run:
        target_side.authorize_change(ctx.command_path)
    if has_several:
        return copy_topics(run, source_side, target_side, copying, Several(selection, prefix or "", verify, acls))
    return copy_topic(run, source_side, target_side, copying)


def _check_single(resume_group: str | None, progress: Progress, transactional_id: str | None) -> None:
    """Raise UsageError for options that need a group, which a copy of several topics has by default."""
    if transactional_id is not None and resume_group is None:
        raise UsageError("--transactional-id requires --resume-group")
    if progress != "check" and resume_group is None:
        raise UsageError("--progress requires --resume-group")


def _check_several(max_records: int | None, partition: object, partitions: str) -> None:
    """Raise UsageError for options of one topic."""
    given = {
        "--max-messages": max_records is not None,
        "--partition": partition is not None,
        "--partitions hash": partitions == "hash",
    }
    if wrong := [option for option, is_given in given.items() if is_given]:
        raise UsageError(f"{wrong[0]} is for one topic: SRC DST")

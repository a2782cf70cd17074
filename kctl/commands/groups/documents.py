"""`kctl groups`: export, import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kctl.admin.groups.offsets import (
    COLUMNS_OF_SEVERAL,
    GroupOffsets,
    OffsetDocument,
    committed_of,
    format_document,
    format_offsets,
    parse_document,
    parse_offsets,
    rows_of,
)
from kctl.admin.groups.undo_files import write_new
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.commands.frame.command import ChangingCommand, ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.commands.groups.backups import Origin, in_scope, origin_of, restore_offsets
from kctl.commands.groups.resets import identities, look_up, now_text
from kctl.commands.groups.selection import (
    AcceptLost,
    All,
    BackupDir,
    DryRun,
    Execute,
    GroupRegex,
    NoBackup,
    ResetRow,
    TopicRegex,
    Topics,
    all_selected_groups,
    group_pattern,
)
from kctl.errors import KctlError, UsageError
from kctl.output.quantities import counted
from kctl.system.user_files import read_text

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.lag.facts import GroupDescription


# `kctl groups export`.


verbs = typer.Typer(add_completion=False)


@verbs.command(
    "export",
    cls=ClusterCommand,
    epilog=examples(
        "kctl groups export billing --file billing.json",
        "kctl groups export --all > offsets.json",
        "kctl groups export billing --topic orders --as csv > orders.csv    (for Kafka's --from-file)",
    ),
)
def export(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Groups to export.", metavar="GROUP")] = None,
    *,
    all_: All = False,
    group_regex: GroupRegex = None,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    as_: Annotated[
        Literal["json", "csv"],
        typer.Option(
            "--as",
            help="json, with metadata; or the CSV of kafka-consumer-groups: topic,partition,offset, and the group in"
            " front if several groups are exported.",
        ),
    ] = "json",
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="Write this new file, which must not exist.  Default: stdout."),
    ] = None,
) -> ExitStatus:
    """Print the committed offsets of groups for 'kctl groups import' and 'restore --backup', whatever --format is."""
    run: Invocation = ctx.obj
    pattern = group_pattern(names, group_regex, all_=all_)
    if not (names or all_ or pattern):
        raise UsageError("name the groups to export, or use --all or --group-regex")

    async def read(client: ClusterClient) -> list[GroupDescription]:
        requested = await all_selected_groups(run, client, names, pattern)
        return await look_up(client, requested)

    groups = run.on_brokers(read)
    committed = committed_of(groups)
    missing = (
        [described.outcome.name for described in groups if described.outcome.name not in committed] if names else []
    )
    if missing:
        raise KctlError(f"no committed offsets: {', '.join(missing)}")
    # With --all, a cluster without groups is an empty document.
    offsets = in_scope(committed, topic, topic_regex) if committed or not all_ else {}
    if as_ == "csv":
        lines = ((group, tp, offsets[group][tp].offset) for group in sorted(offsets) for tp in sorted(offsets[group]))
        text = format_offsets(lines, with_group=len(offsets) > 1)
    else:
        cluster_id, topic_ids = run.on_brokers(lambda client: identities(client, offsets))
        text = format_document(OffsetDocument(cluster_id, now_text(), "export", offsets, topic_ids))
    if file is None:
        run.console.verbatim(text)
        return ExitStatus.DONE
    try:
        write_new(Path(file), text)
    except FileExistsError:
        raise Refused(f"{file} exists and is not overwritten: give another --file") from None
    run.console.note(
        f"{counted(sum(map(len, offsets.values())), 'offset')} of {counted(len(offsets), 'group')} written to {file}"
    )
    return ExitStatus.DONE


# `kctl groups import`.


@verbs.command(
    "import",
    cls=ChangingCommand,
    epilog=examples(
        "kctl groups import offsets.json --bootstrap-server other:9092",
        "kctl groups import offsets.json --group billing --yes",
        "kctl groups import orders.csv --group billing --yes",
    ),
)
@shows(ResetRow)
def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="File of 'kctl groups export', JSON or CSV.", metavar="FILE")],
    *,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="Only this group.  Default: all in the file.")
    ] = None,
    group_regex: GroupRegex = None,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    accept_lost: AcceptLost = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
) -> ExitStatus:
    """Commit the offsets in a file for groups without members; groups that do not exist are created.

    Offsets are imported as they are: they are those of another cluster only if its topics are exact copies, with the
    same offsets.  Nothing is changed without --yes, which also saves a backup first.  A group with members is
    refused with exit status 5, and so are offsets of this cluster whose records are not in the log any more (see 'kctl
    groups restore').  An offset outside the range of a partition is moved to its start or end, with a warning.
    """
    run: Invocation = ctx.obj
    execute = execute and not dry_run
    pattern = group_pattern(group, group_regex)
    text = read_text(file)
    try:
        document = parse_document(text) if text.lstrip()[:1] in {"{", "["} else None
        saved = _of_csv(text, group or ()) if document is None else document.groups
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    missing = sorted(set(group or ()) - saved.keys())
    if missing:
        raise UsageError(f"{file} has no offsets of {', '.join(missing)}")
    chosen = group or (sorted(saved) if pattern is None else pattern.select(sorted(saved)))
    if not chosen:
        raise UsageError(f"{file} has no offsets of a group that matches {pattern}")
    return restore_offsets(
        run,
        in_scope({name: saved[name] for name in chosen}, topic, topic_regex),
        "import",
        Origin(False, {}) if document is None else origin_of(run, document),
        accepts_lost=accept_lost,
        status="imported",
        execute=execute,
        no_backup=no_backup,
        backup_dir=backup_dir,
    )


def _of_csv(text: str, groups: list[str] | tuple[str, ...]) -> GroupOffsets:
    """Return the offsets in Kafka's CSV; without groups, those of all groups in the file."""
    if not groups:
        groups = sorted({fields[0] for _, fields in rows_of(text) if len(fields) == COLUMNS_OF_SEVERAL})
        if not groups:
            raise UsageError("the file names no groups: give --group")
    offsets = parse_offsets(text, groups)
    return {
        name: {tp: CommittedOffset(offset) for tp, offset in of_group.items()}
        for name, of_group in offsets.items()
        if of_group
    }

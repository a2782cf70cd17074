"""`kctl groups restore`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.backup_files import backups_of
from kctl.admin.group_history import read_group_records
from kctl.admin.offset_document import parse_document
from kctl.admin.past_commits import OffsetsAt
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.groups.backup import backup_folder
from kctl.commands.groups.change_rows import ResetRow
from kctl.commands.groups.offset_warnings import warn_of_partitions
from kctl.commands.groups.options import AcceptLost, BackupDir, DryRun, NoBackup, TopicRegex, Topics
from kctl.commands.groups.restoring import Origin, in_scope, origin_of, restore_offsets
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.commands.times import parse_time_ms
from kctl.commands.values import format_time
from kctl.errors import KctlError, UsageError
from kctl.input_files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kctl.admin.offset_document import OffsetDocument
    from kctl.client.committed_offsets import CommittedOffset
    from kctl.model import TopicPartition

app = typer.Typer(add_completion=False)


@app.command(
    "restore",
    cls=ChangingCommand,
    epilog=examples(
        "kctl groups restore billing    (shows what the latest backup would restore)",
        "kctl groups restore billing --execute",
        "kctl groups restore billing --at -1h --topic orders --execute",
        "kctl groups restore billing --backup before.json --execute",
    ),
)
@shows(ResetRow)
def restore(
    ctx: typer.Context,
    group: Annotated[str, typer.Argument(help="Group whose offsets to restore.", metavar="GROUP")],
    *,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Restore the offsets that were committed at that time, from the records of __consumer_offsets: RFC"
            " 3339 (UTC without a zone), a date, 10 digits of epoch seconds or 13 of milliseconds, or a duration back"
            " from now such as -1h.",
        ),
    ] = None,
    backup: Annotated[
        str | None, typer.Option("--backup", metavar="FILE", help="Restore the offsets in this backup or export.")
    ] = None,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    execute: Annotated[bool, typer.Option("--execute", help="Commit the offsets.")] = False,
    dry_run: DryRun = False,
    accept_lost: AcceptLost = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
) -> ExitStatus:
    """Restore committed offsets of a group without members, from a backup or from the history of the cluster.

    'kctl groups reset-offsets', 'delete-offsets', 'delete' and 'import' save a backup before they change anything.
    Without --at and --backup, the latest backup of the group is used.  Nothing is changed without --execute, which also
    saves a backup first.  A group with members is refused with exit status 5.

    --at finds what compaction has left: partitions whose commits of that time have been replaced and removed are
    reported and keep their offsets.  An offset before the start of a partition is moved there, with a warning.

    An offset whose records are not in the log any more is refused with exit status 5, unless --accept-lost is given:
    the topic was deleted and created again since (a backup has its id), the log was truncated by an unclean leader
    election (found by the leader epoch of the commit, KIP-320), or it ends before the offset.
    """
    run: Invocation = ctx.obj
    if execute and dry_run:
        raise UsageError("--dry-run and --execute cannot be combined")
    if at is not None and backup is not None:
        raise UsageError("--at and --backup cannot be combined")
    if at is not None:
        now_ms = round(time.time() * 1000)
        time_ms = parse_time_ms(at, now_ms=now_ms)
        if time_ms > now_ms:
            raise UsageError(f"--at {at} is in the future: {format_time(time_ms)}")
        saved, origin = _committed_at(run, group, time_ms), Origin(True, {})
    elif backup is not None:
        document = _in_file(group, backup)
        saved, origin = document.groups[group], origin_of(run, document)
    else:
        document = _latest(run, group, backup_dir)
        saved, origin = document.groups[group], origin_of(run, document)
    return restore_offsets(
        run,
        in_scope({group: saved}, topic, topic_regex),
        "restore",
        origin,
        accepts_lost=accept_lost,
        status="restored",
        execute=execute,
        no_backup=no_backup,
        backup_dir=backup_dir,
    )


def _committed_at(run: Invocation, group: str, time_ms: int) -> Mapping[TopicPartition, CommittedOffset]:
    found = OffsetsAt(time_ms)
    is_complete = run.on_brokers(lambda client: read_group_records(client, group, found.add))
    if not is_complete or found.is_excessive:
        raise Refused("the history of the group is too long to be read as a whole: restore a backup with --backup")
    then = format_time(time_ms)
    warn_of_partitions(
        run,
        {
            f"there is no commit at or before {then}, or compaction has removed it; what is committed now stays": (
                found.unknown
            ),
            f"the committed offset had been deleted before {then}; what is committed now stays": sorted(
                found.offsets.keys() - found.committed.keys()
            ),
        },
    )
    if not found.committed:
        raise KctlError(f"no offsets of group '{group}' are known that were committed at {format_time(time_ms)}")
    return found.committed


def _in_file(group: str, path: str) -> OffsetDocument:
    text = read_text(path)
    try:
        document = parse_document(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if group not in document.groups:
        present = ", ".join(sorted(document.groups)) or "none"
        raise UsageError(f"{path} has no offsets of group '{group}', but of {present}")
    return document


def _latest(run: Invocation, group: str, backup_dir: str | None) -> OffsetDocument:
    cluster_id = run.on_brokers(lambda client: client.metadata([])).cluster_id
    folder = backup_folder(backup_dir, cluster_id)
    for path, document in backups_of(folder, group):
        run.console.note(f"restoring {path}, saved before {document.reason} at {document.created}")
        return document
    raise UsageError(f"{folder} has no backup of group '{group}': give --at or --backup")

"""`kctl groups import`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.offset_document import GroupOffsets, parse_document
from kctl.admin.reset_file import COLUMNS_OF_SEVERAL, parse_offsets, rows_of
from kctl.client.committed_offsets import CommittedOffset
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups.change_rows import ResetRow
from kctl.commands.groups.options import AcceptLost, BackupDir, DryRun, GroupRegex, NoBackup, TopicRegex, Topics
from kctl.commands.groups.restoring import Origin, in_scope, origin_of, restore_offsets
from kctl.commands.groups.selection import group_pattern
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.errors import UsageError
from kctl.input_files import read_text

app = typer.Typer(add_completion=False)


@app.command(
    "import",
    cls=ChangingCommand,
    epilog=examples(
        "kctl groups import offsets.json --bootstrap-server other:9092",
        "kctl groups import offsets.json --group billing --execute",
        "kctl groups import orders.csv --group billing --execute",
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
    execute: Annotated[bool, typer.Option("--execute", help="Commit the offsets.")] = False,
    dry_run: DryRun = False,
    accept_lost: AcceptLost = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
) -> ExitStatus:
    """Commit the offsets in a file for groups without members; groups that do not exist are created.

    Offsets are imported as they are: they are those of another cluster only if its topics are exact copies, with the
    same offsets.  Nothing is changed without --execute, which also saves a backup first.  A group with members is
    refused with exit status 5, and so are offsets of this cluster whose records are not in the log any more (see 'kctl
    groups restore').  An offset outside the range of a partition is moved to its start or end, with a warning.
    """
    run: Invocation = ctx.obj
    if execute and dry_run:
        raise UsageError("--dry-run and --execute cannot be combined")
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
    """The offsets in Kafka's CSV; without groups, those of all groups in the file."""
    if not groups:
        groups = sorted({one[0] for _, one in rows_of(text) if len(one) == COLUMNS_OF_SEVERAL})
        if not groups:
            raise UsageError("the file names no groups: give --group")
    offsets = parse_offsets(text, groups)
    return {
        name: {tp: CommittedOffset(offset) for tp, offset in of_group.items()}
        for name, of_group in offsets.items()
        if of_group
    }

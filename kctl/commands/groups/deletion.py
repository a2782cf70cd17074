"""`kctl groups`: delete, delete-offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.groups.groups import delete_groups, look_up_group, look_up_groups
from kctl.admin.groups.offsets import MESSAGES, delete_share_offsets
from kctl.admin.groups.offsets import delete_offsets as request_deletion
from kctl.client.outcome import Outcome
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.groups.resets import HINT, back_up, parse_scope, unreadable
from kctl.commands.groups.selection import (
    All,
    BackupDir,
    DryRun,
    EmptyName,
    GroupDeletionRow,
    GroupRegex,
    NoBackup,
    OffsetDeletionRow,
    TopicRegex,
    Topics,
    all_selected_groups,
    deleted_offset_row,
    group_pattern,
    topic_pattern,
    with_empty_name,
    with_matching_topics,
)
from kctl.errors import ErrorCode, UsageError
from kctl.lag.facts import OTHER_TYPES, SHARE, GroupDescription
from kctl.model import TopicPartition
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient


# Predicts the deletions of `kctl groups delete` and `delete-offsets`, and whether the broker would refuse them.


def committed_in_scope(
    committed: dict[TopicPartition, int], scope: dict[str, list[int] | None] | None
) -> list[TopicPartition]:
    """Return the named partitions, and the partitions with a committed offset of the named topics."""
    if scope is None:
        return sorted(committed)
    named = {TopicPartition(topic, number) for topic, numbers in scope.items() for number in numbers or ()}
    return sorted(named | {tp for tp in committed if tp.topic in scope and scope[tp.topic] is None})


def previewed_deletion(group: GroupDescription) -> Outcome:
    """Return the expected outcome of deleting the whole group, whose type may not support DescribeGroups."""
    name, code = group.outcome.name, ErrorCode.NON_EMPTY_GROUP
    if group.members or (group.type in OTHER_TYPES and group.state != "Empty"):
        return Outcome(name, code, code.description)
    return Outcome(name) if group.type in OTHER_TYPES else group.outcome


def previewed_deletions(group: GroupDescription, requested: Sequence[TopicPartition]) -> dict[TopicPartition, Outcome]:
    """Return the expected outcome of deleting offsets, as far as it is known."""
    read = {tp.topic for member in group.members for tp in member.assignment}
    read.update(topic for member in group.members for topic in member.subscribed_topics or ())
    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return {tp: Outcome(str(tp), code, MESSAGES[code]) if tp.topic in read else Outcome(str(tp)) for tp in requested}


# `kctl groups delete`.


THE_EMPTY_NAME = "the group with the empty name"

verbs = typer.Typer(add_completion=False)


@verbs.command(
    "delete",
    cls=ChangingCommand,
    epilog=examples("kctl groups delete billing --yes", "kctl groups delete --all --dry-run"),
)
@shows(GroupDeletionRow)
def delete(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Groups to delete.", metavar="GROUP")] = None,
    *,
    all_: All = False,
    group_regex: GroupRegex = None,
    empty_name: EmptyName = False,
    dry_run: DryRun = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
) -> ExitStatus:
    """Delete empty consumer groups with their committed offsets.

    The broker refuses to delete a group with members.  Groups of type share or streams must be named.  Asks for
    confirmation on a terminal; elsewhere --yes is required (exit status 5).  The committed offsets of the groups are
    first saved to a file; 'kctl groups restore' restores them.
    """
    run: Invocation = ctx.obj
    names = with_empty_name(names, empty_name=empty_name)
    pattern = group_pattern(names, group_regex, all_=all_)
    if not (names or all_ or pattern):
        raise UsageError("name the groups to delete, or use --all or --group-regex")
    requested = run.on_brokers(lambda client: all_selected_groups(run, client, names, pattern))

    async def preview(client: ClusterClient) -> list[Outcome]:
        return [previewed_deletion(group) for group in await look_up_groups(client, requested)]

    unsaved: dict[str, Outcome] = {}

    async def act(client: ClusterClient) -> list[Outcome]:
        chosen = [name for name in requested if name not in unsaved]
        deleted = await delete_groups(client, chosen) if chosen else []
        return sorted([*unsaved.values(), *deleted], key=lambda row: row.name)

    if not dry_run:
        run.consent(f"Delete {', '.join(name or THE_EMPTY_NAME for name in requested)} with all committed offsets?")
        if requested and not no_backup:
            groups = run.on_brokers(lambda client: look_up_groups(client, requested))
            unsaved = unreadable(groups)
            for name in unsaved:
                run.console.warn(f"group '{name}' is not deleted: its offsets cannot be backed up{HINT}")
            readable = [group for group in groups if group.outcome.name not in unsaved]
            back_up(run, readable, "delete", backup_dir=backup_dir)
    outcomes = run.on_brokers(preview if dry_run else act)
    status = "would be deleted" if dry_run else "deleted"
    rows = [
        GroupDeletionRow(outcome.name, status if outcome.is_done else None, **outcome_error(outcome))
        for outcome in outcomes
    ]
    run.console.show(GroupDeletionRow, rows)
    return run.status_of(rows)


# `kctl groups delete-offsets`.


@verbs.command(
    "delete-offsets",
    cls=ChangingCommand,
    epilog=examples(
        "kctl groups delete-offsets billing --topic orders --dry-run",
        "kctl groups delete-offsets billing --topic orders:0,3-5 --topic payments --yes",
    ),
)
@shows(OffsetDeletionRow, GroupDeletionRow)
def delete_offsets(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Group whose offsets to delete.", metavar="GROUP")],
    *,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    dry_run: DryRun = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
) -> ExitStatus:
    """Delete committed offsets of a group; of a share group its start offsets, of whole topics.

    The broker refuses to delete offsets of topics that members of the group subscribe to.  Asks for confirmation on a
    terminal; elsewhere --yes is required (exit status 5).  The committed offsets of the group are first saved to a
    file; 'kctl groups restore' restores them.
    """
    run: Invocation = ctx.obj
    scope = parse_scope(topic, topic_regex, all_topics=all_topics)
    topics = topic_pattern(topic_regex)
    group = run.on_brokers(lambda client: look_up_group(client, name))
    if not group.outcome.is_done:
        run.console.show(OffsetDeletionRow, [GroupDeletionRow(name, None, **outcome_error(group.outcome))])
        return ExitStatus.FAILED
    if group.type == SHARE and any(numbers is not None for numbers in (scope or {}).values()):
        raise UsageError("offsets of a share group can only be deleted for whole topics: give --topic TOPIC")
    (chosen,) = [group] if topics is None else with_matching_topics([group], topics)
    committed = {offset.tp: offset.committed_offset for offset in chosen.offsets if offset.committed_offset >= 0}
    requested = committed_in_scope(committed, scope)
    if not dry_run:
        run.consent(f"Delete {counted(len(requested), 'committed offset')} of {name}?")
        if requested and not no_backup:
            back_up(run, [group], "delete-offsets", backup_dir=backup_dir)
        ask = delete_share_offsets if group.type == SHARE else request_deletion
        outcomes = run.on_brokers(lambda client: ask(client, name, requested)) if requested else {}
    else:
        outcomes = previewed_deletions(group, requested)
    status = "would be deleted" if dry_run else "deleted"
    rows = [deleted_offset_row(name, tp, committed.get(tp), status, outcomes[tp]) for tp in requested]
    rows += [
        OffsetDeletionRow(name, topic_name, partition=None, offset=None, status="nothing committed")
        for topic_name in sorted(set(scope or ()) - {tp.topic for tp in requested})
    ]
    run.console.show(OffsetDeletionRow, rows)
    return run.status_of(rows)

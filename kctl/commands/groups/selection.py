"""The groups that a command applies to, and of them the topics: named ones, those that match, or all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.groups.groups import list_groups as query
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.reading.searches import NamePattern
from kctl.errors import ApiError, KctlError, UsageError
from kctl.lag.facts import DESCRIBING_APIS, OTHER_TYPES
from kctl.output.console import JSON_ONLY, ErrorName, ErrorText
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kctl.admin.groups.offsets import GroupOffsets
    from kctl.admin.groups.resets import Reset
    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome
    from kctl.lag.facts import GroupDescription
    from kctl.model import TopicPartition


def group_pattern(names: list[str] | None, group_regex: str | None, *, all_: bool = False) -> NamePattern | None:
    """Return the pattern of --group-regex; None without it.

    Raises UsageError if groups are selected in several ways.
    """
    if bool(names) + all_ + (group_regex is not None) > 1:
        raise UsageError("name groups or give --all or --group-regex, only one of them")
    return None if group_regex is None else NamePattern("--group-regex", group_regex)


def with_empty_name(names: list[str] | None, *, empty_name: bool) -> list[str] | None:
    """Return the named groups, and with --empty-name the one without a name.

    As an argument an empty name is refused, because it is usually a shell variable that is not set.
    """
    return [*(names or ()), ""] if empty_name else names


def topic_pattern(topic_regex: str | None) -> NamePattern | None:
    """Return the pattern of --topic-regex; None without it."""
    return None if topic_regex is None else NamePattern("--topic-regex", topic_regex)


async def all_selected_groups(
    run: Invocation, client: ClusterClient, names: list[str] | None, pattern: NamePattern | None
) -> list[str]:
    """Return the result of `selected_groups`.  Raises ApiError for the error of a broker, KctlError without a match."""
    requested, failed = await selected_groups(run, client, names, pattern, with_other_types=False)
    if failed:
        raise ApiError(failed[0].error, f"broker {failed[0].name} cannot list its groups: {failed[0].message}")
    if pattern is not None and not requested:
        raise KctlError(f"no group matches {pattern}")
    return requested


async def selected_groups(
    run: Invocation,
    client: ClusterClient,
    names: list[str] | None,
    pattern: NamePattern | None,
    *,
    with_other_types: bool = True,
) -> tuple[list[str], list[Outcome]]:
    """Return the named groups, those that match or all groups, and the brokers with an error.

    Share and streams groups that are not named are omitted with a warning where brokers do not describe them, before
    Kafka 4.1, and without `with_other_types`.
    """
    if names:
        return sorted(set(names)), []
    groups, failed = await query(client)
    types = {group.group_id: group.type for group in groups}
    chosen = sorted(types) if pattern is None else pattern.select(sorted(types))
    left_out = set(OTHER_TYPES)
    if with_other_types:
        left_out = {kind for kind, (key, version) in DESCRIBING_APIS.items() if not _is_served(client, key, version)}
    for name in chosen:
        if types[name] in left_out:
            why = (
                f"which the brokers do not describe, see {OTHER_TYPES[types[name]]}"
                if with_other_types
                else "which must be named"
            )
            run.console.warn(f"group '{name}' is left out: it is a {types[name]} group, {why}")
    return [name for name in chosen if types[name] not in left_out], failed


def _is_served(client: ClusterClient, key: int, version: int) -> bool:
    return any(connection.versions.has(key, version) for connection in client.open_connections())


def with_matching_topics(groups: Iterable[GroupDescription], pattern: NamePattern) -> list[GroupDescription]:
    """Return the groups with the offsets of the topics that match only.  Raises KctlError if no topic matches."""
    described = list(groups)
    topics = matching_topics(pattern, (offset.tp.topic for group in described for offset in group.offsets))
    return [
        replace(group, offsets=tuple(offset for offset in group.offsets if offset.tp.topic in topics))
        for group in described
    ]


def matching_topics(pattern: NamePattern, names: Iterable[str]) -> Collection[str]:
    """Return the topics that match.  Raises KctlError if there is none."""
    chosen = pattern.select(sorted(set(names)))
    if not chosen:
        raise KctlError(f"no topic with offsets of the groups matches {pattern}")
    return set(chosen)


# Arguments and options that several verbs of `kctl groups` take.


Names = Annotated[list[str] | None, typer.Argument(help="Groups.  Default: all.", metavar="GROUP")]
EmptyName = Annotated[
    bool,
    typer.Option(
        "--empty-name",
        help="The group whose name is empty: Kafka accepts offsets for it from consumers without a group.",
    ),
]
All = Annotated[
    bool, typer.Option("--all", help="All groups; what changes groups leaves out those of type share and streams.")
]
GroupRegex = Annotated[
    str | None,
    typer.Option("--group-regex", metavar="RE", help="Groups whose name matches this regular expression as a whole."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:N,N-N]", help="This topic, or some of its partitions."),
]
TopicRegex = Annotated[
    str | None,
    typer.Option(
        "--topic-regex",
        metavar="RE",
        help="Topics with offsets of the groups whose name matches this regular expression as a whole.",
    ),
]
Execute = Annotated[bool, typer.Option("--yes", "-y", help="Commit the offsets; without it they are only shown.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")]
BackupDir = Annotated[
    str | None,
    typer.Option(
        "--backup-dir",
        metavar="DIR",
        help="Folder of the backups of committed offsets.  Default: kctl/offsets under XDG_STATE_HOME, which is"
        " ~/.local/state.",
    ),
]
NoBackup = Annotated[
    bool, typer.Option("--no-backup", help="Do not save the committed offsets of the groups to a file first.")
]

AcceptLost = Annotated[
    bool,
    typer.Option(
        "--accept-lost", help="Also restore offsets whose records are not in the log any more, or of another topic."
    ),
]


# Rows of the verbs that delete groups and delete or reset committed offsets.


class GroupDeletionRow(NamedTuple):
    """A group that is deleted, or whose offsets could not be looked up."""

    group: str
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


class OffsetDeletionRow(NamedTuple):
    """A committed offset that is deleted, or a topic without any."""

    group: str
    topic: str
    partition: int | None
    offset: int | None
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


class ResetRow(NamedTuple):
    """A partition whose committed offset is reset."""

    group: str
    topic: str
    partition: int | None
    old_offset: int | None
    new_offset: int | None
    delta: int | None
    log_start_offset: Annotated[int | None, JSON_ONLY]
    log_end_offset: Annotated[int | None, JSON_ONLY]
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


def deleted_offset_row(
    group: str, tp: TopicPartition, offset: int | None, status: str, outcome: Outcome
) -> OffsetDeletionRow:
    """Return one committed offset that is deleted."""
    return OffsetDeletionRow(
        group=group,
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        status=status if outcome.is_done else None,
        **outcome_error(outcome),
    )


def reset_row(reset: Reset, status: str, outcome: Outcome | None = None) -> ResetRow:
    """Return one partition of a group whose offset is reset; `outcome` is that of the commit, if there was one."""
    result = outcome or reset.outcome
    return ResetRow(
        group=reset.group,
        topic=reset.topic,
        partition=reset.partition,
        old_offset=reset.old,
        new_offset=reset.new,
        delta=reset.delta,
        log_start_offset=reset.held.start if reset.held else None,
        log_end_offset=reset.held.end if reset.held else None,
        status=status if result.is_done else None,
        **outcome_error(result),
    )


# Warnings about committed offsets: one for all partitions that it is about, however many there are.


NAMED_MAX = 10
"""A warning names this many partitions and counts the others."""


def named(items: Sequence[str]) -> str:
    """Return the items with commas; of more than NAMED_MAX the first ones and the number of the others."""
    more = f" and {len(items) - NAMED_MAX} more" if len(items) > NAMED_MAX else ""
    return ", ".join(items[:NAMED_MAX]) + more


def warn_of_clamped(run: Invocation, resets: Iterable[Reset]) -> None:
    """Warn about offsets that are moved into the range of their partition."""
    moved = [
        (reset.tp, reset.unclamped, reset.new, reset.held)
        for reset in resets
        if reset.is_clamped and reset.held is not None
    ]
    if len(moved) == 1:
        ((tp, offset, new, held),) = moved
        run.console.warn(f"{tp}: offset {offset} lies outside of {held.start} to {held.end}; it becomes {new}")
    elif moved:
        shown = named([f"{tp} ({offset} becomes {new})" for tp, offset, new, _ in moved])
        run.console.warn(
            f"{counted(len(moved), 'offset')} outside of their partitions become the start or end: {shown}"
        )


def warn_of_unsaved(run: Invocation, groups: Iterable[GroupDescription], saved: GroupOffsets) -> None:
    """Warn about partitions that have a committed offset now and no saved one, once for each group."""
    for group in groups:
        name = group.outcome.name
        topics = {tp.topic for tp in saved[name]}
        kept = [
            (current.tp, current.committed_offset)
            for current in group.offsets
            if current.committed_offset >= 0 and current.tp.topic in topics and current.tp not in saved[name]
        ]
        if len(kept) == 1:
            ((tp, offset),) = kept
            run.console.warn(f"{name}: {tp} has no saved offset; it stays at {offset}")
        elif kept:
            shown = named([f"{tp} (stays at {offset})" for tp, offset in kept])
            run.console.warn(f"{name}: no saved offset for {counted(len(kept), 'partition')}: {shown}")


def warn_of_partitions(run: Invocation, reasons: Mapping[str, Sequence[object]]) -> None:
    """One warning for each reason, which follows the names of its partitions."""
    for reason, partitions in reasons.items():
        if partitions:
            run.console.warn(f"{named([str(tp) for tp in partitions])}: {reason}")

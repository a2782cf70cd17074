"""Commits saved offsets: what `kctl groups restore` and `import` have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kctl.admin.offset_reset import Scenario, Target, plan_resets
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups import reset as group_reset
from kctl.commands.groups.backup import back_up
from kctl.commands.groups.change_rows import RESET_COLUMNS, reset_row
from kctl.commands.groups.offset_warnings import warn_of_clamped, warn_of_unsaved
from kctl.commands.groups.selection import matching_topics, topic_pattern
from kctl.errors import KctlError
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.group_description import GroupDescription
    from kctl.admin.offset_document import GroupOffsets
    from kctl.admin.offset_reset import Reset
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient
    from kctl.client.committed_offsets import CommittedOffset
    from kctl.commands.invocation import Invocation


def in_scope(
    saved: GroupOffsets, topics: list[str] | None, topic_regex: str | None
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """The offsets that --topic or --topic-regex selects; all without them.

    Raises KctlError for a named topic or partition without any, if none is left, or if no topic matches.
    """
    scope: Mapping[str, list[int] | None] | None = None
    if (pattern := topic_pattern(topic_regex)) is not None:
        scope = dict.fromkeys(matching_topics(pattern, (tp.topic for one in saved.values() for tp in one)))
    if topics or scope is not None:
        scope = group_reset.parse_scope(topics, topic_regex, all_topics=False) or scope
    chosen = {
        group: {
            tp: one
            for tp, one in offsets.items()
            if scope is None or (tp.topic in scope and tp.partition in (scope[tp.topic] or [tp.partition]))
        }
        for group, offsets in saved.items()
    }
    left = {group: offsets for group, offsets in chosen.items() if offsets}
    absent = [] if scope is None else _absent(scope, {tp for offsets in left.values() for tp in offsets})
    if absent:
        raise KctlError(f"there are no saved offsets of these groups and topics: {', '.join(absent)}")
    if not left:
        raise KctlError("there are no saved offsets of these groups and topics")
    return left


def _absent(scope: Mapping[str, list[int] | None], present: Collection[TopicPartition]) -> list[str]:
    """The topics and partitions that are named and not present."""
    topics = {tp.topic for tp in present}
    absent = [topic for topic, numbers in scope.items() if numbers is None and topic not in topics]
    named = [TopicPartition(topic, number) for topic, numbers in scope.items() for number in numbers or ()]
    return absent + [f"{tp.topic}:{tp.partition}" for tp in named if tp not in present]


def restore_offsets(
    run: Invocation,
    saved: GroupOffsets,
    reason: str,
    *,
    status: str,
    execute: bool,
    no_backup: bool,
    backup_dir: str | None,
) -> ExitStatus:
    """Commits the offsets, or, without `execute`, shows what would be committed.

    Raises Refused if a group has members, or its offsets cannot be backed up.  Nothing is committed unless all
    partitions exist.
    """
    target = Target(
        Scenario.FILE,
        file={group: {tp: one.offset for tp, one in offsets.items()} for group, offsets in saved.items()},
    )

    async def plan(client: ClusterClient) -> tuple[list[GroupDescription], list[Reset]]:
        groups = await group_reset.look_up(client, sorted(saved))
        group_reset.refuse_active(groups)
        return groups, await plan_resets(client, groups, target, None)

    groups, resets = run.on_brokers(plan)
    warn_of_clamped(run, resets)
    warn_of_unsaved(run, groups, saved)
    outcomes: dict[tuple[str, TopicPartition], Outcome] = {}
    if execute and all(reset.outcome.is_done for reset in resets):
        if not no_backup:
            back_up(run, groups, reason, backup_dir=backup_dir)
        outcomes = run.on_brokers(lambda client: group_reset.commit(client, resets, saved))
    shown = status if outcomes else f"would be {status}"
    rows = [reset_row(one, shown, outcomes.get((one.group, one.tp)) if outcomes else None) for one in resets]
    run.console.show(RESET_COLUMNS, rows)
    if not execute:
        run.console.note("nothing was changed; give --execute to commit these offsets")
    return run.status_of(rows)

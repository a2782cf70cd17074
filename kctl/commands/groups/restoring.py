"""Commits saved offsets: what `kctl groups restore` and `import` have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.offset_reset import Scenario, Target, plan_resets
from kctl.client.positions import Divergence, check_positions
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.groups import reset as group_reset
from kctl.commands.groups.backup import back_up, identities
from kctl.commands.groups.change_rows import RESET_COLUMNS, reset_row
from kctl.commands.groups.offset_warnings import NAMED_MAX, named, warn_of_clamped, warn_of_unsaved
from kctl.commands.groups.selection import matching_topics, topic_pattern
from kctl.errors import KctlError
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.group_description import GroupDescription
    from kctl.admin.offset_document import GroupOffsets, OffsetDocument
    from kctl.admin.offset_reset import Reset
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient
    from kctl.client.committed_offsets import CommittedOffset
    from kctl.commands.invocation import Invocation


class Origin(NamedTuple):
    """Where saved offsets are from."""

    is_same_cluster: bool
    """Whether they are of this cluster; others are of copies of the topics, which have other ids and leader epochs."""
    topic_ids: Mapping[str, str]
    """The ids of the topics when the offsets were saved, as far as they are known."""


def origin_of(run: Invocation, document: OffsetDocument) -> Origin:
    """The origin of the offsets in a file."""
    cluster_id = run.on_brokers(lambda client: client.metadata([])).cluster_id
    return Origin(document.cluster_id is not None and document.cluster_id == cluster_id, document.topic_ids)


async def _lost(client: ClusterClient, saved: GroupOffsets, resets: Collection[Reset], origin: Origin) -> list[str]:
    """The offsets whose records before them are of another topic, or are not in the log any more, with the reason."""
    _, ids = await identities(client, saved)
    changed = {name for name, topic_id in origin.topic_ids.items() if ids.get(name, topic_id) != topic_id}
    lost = {
        (group, tp): f"{group}, {tp}: the topic was deleted and created again since offset {commit.offset} was saved"
        for group, offsets in saved.items()
        for tp, commit in offsets.items()
        if tp.topic in changed
    }
    for group, offsets in saved.items():
        for tp, outcome in (await check_positions(client, {tp: one.position for tp, one in offsets.items()})).items():
            if isinstance(outcome, Divergence):
                lost.setdefault((group, tp), f"{group}, {outcome}")
    for one in resets:
        if one.held is not None and one.unclamped is not None and one.unclamped > one.held.end:
            text = f"{one.group}, {one.tp}: the saved offset {one.unclamped} is after the end, {one.held.end}"
            lost.setdefault((one.group, one.tp), text)
    return [lost[key] for key in sorted(lost)]


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
    origin: Origin,
    *,
    accepts_lost: bool,
    status: str,
    execute: bool,
    no_backup: bool,
    backup_dir: str | None,
) -> ExitStatus:
    """Commits the offsets, or, without `execute`, shows what would be committed.

    Raises Refused if a group has members, if the records before an offset are not in the log any more and this is not
    accepted, or if the offsets cannot be backed up.  Nothing is committed unless all partitions exist.
    """
    target = Target(
        Scenario.FILE,
        file={group: {tp: one.offset for tp, one in offsets.items()} for group, offsets in saved.items()},
    )

    async def plan(client: ClusterClient) -> tuple[list[GroupDescription], list[Reset], list[str]]:
        groups = await group_reset.look_up(client, sorted(saved))
        group_reset.refuse_active(groups)
        resets = await plan_resets(client, groups, target, None)
        return groups, resets, await _lost(client, saved, resets, origin) if origin.is_same_cluster else []

    groups, resets, lost = run.on_brokers(plan)
    if lost and not accepts_lost:
        raise Refused(
            f"saved offsets are not of the records that the topics have now: {named(lost)}: --accept-lost restores "
            "them all the same, --topic selects others, 'kctl groups reset-offsets' sets other offsets"
        )
    for reason_of_loss in lost[:NAMED_MAX]:
        run.console.warn(reason_of_loss)
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

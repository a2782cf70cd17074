"""Predicts the deletions of `kctl groups delete` and `delete-offsets`, and whether the broker would refuse them."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.admin.group_description import OTHER_TYPES, GroupDescription
from kctl.admin.group_offsets import MESSAGES
from kctl.admin.outcome import Outcome
from kctl.errors import ErrorCode
from kctl.model import TopicPartition


def committed_in_scope(
    committed: dict[TopicPartition, int], scope: dict[str, list[int] | None] | None
) -> list[TopicPartition]:
    """The named partitions, and the partitions with a committed offset of the named topics."""
    if scope is None:
        return sorted(committed)
    named = {TopicPartition(topic, number) for topic, numbers in scope.items() for number in numbers or ()}
    return sorted(named | {tp for tp in committed if tp.topic in scope and scope[tp.topic] is None})


def previewed_deletion(group: GroupDescription) -> Outcome:
    """The expected outcome of deleting the whole group, whose type may not support DescribeGroups."""
    name, code = group.outcome.name, ErrorCode.NON_EMPTY_GROUP
    if group.members or (group.type in OTHER_TYPES and group.state != "Empty"):
        return Outcome(name, code, code.description)
    return Outcome(name) if group.type in OTHER_TYPES else group.outcome


def previewed_deletions(group: GroupDescription, requested: Sequence[TopicPartition]) -> dict[TopicPartition, Outcome]:
    """The expected outcome of deleting offsets, as far as it is known."""
    read = {tp.topic for member in group.members for tp in member.assignment}
    read.update(topic for member in group.members for topic in member.subscribed_topics or ())
    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return {tp: Outcome(str(tp), code, MESSAGES[code]) if tp.topic in read else Outcome(str(tp)) for tp in requested}

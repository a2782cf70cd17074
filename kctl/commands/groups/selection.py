"""The groups that a command applies to, and of them the topics: named ones, those that match, or all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.admin.group_description import OTHER_TYPES
from kctl.admin.groups import list_groups as query
from kctl.commands.invocation import Invocation
from kctl.commands.timed_search import NamePattern
from kctl.errors import ApiError, KctlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kctl.admin.group_description import GroupDescription
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient


def group_pattern(names: list[str] | None, group_regex: str | None, *, all_: bool = False) -> NamePattern | None:
    """The pattern of --group-regex; None without it.  Raises UsageError if groups are selected in several ways."""
    if bool(names) + all_ + (group_regex is not None) > 1:
        raise UsageError("name groups or give --all or --group-regex, only one of them")
    return None if group_regex is None else NamePattern("--group-regex", group_regex)


def with_empty_name(names: list[str] | None, *, empty_name: bool) -> list[str] | None:
    """The named groups, and with --empty-name the one without a name.

    As an argument an empty name is refused, because it is usually a shell variable that is not set.
    """
    return [*(names or ()), ""] if empty_name else names


def topic_pattern(topic_regex: str | None) -> NamePattern | None:
    """The pattern of --topic-regex; None without it."""
    return None if topic_regex is None else NamePattern("--topic-regex", topic_regex)


async def all_selected_groups(
    run: Invocation, client: ClusterClient, names: list[str] | None, pattern: NamePattern | None
) -> list[str]:
    """The result of `selected_groups`.  Raises ApiError if a broker has an error, KctlError if no group matches."""
    requested, failed = await selected_groups(run, client, names, pattern)
    if failed:
        raise ApiError(failed[0].error, f"broker {failed[0].name} cannot list its groups: {failed[0].message}")
    if pattern is not None and not requested:
        raise KctlError(f"no group matches {pattern}")
    return requested


async def selected_groups(
    run: Invocation, client: ClusterClient, names: list[str] | None, pattern: NamePattern | None
) -> tuple[list[str], list[Outcome]]:
    """The named groups, those that match or all groups of consumers, and the brokers with an error.  Groups of other
    types are omitted with a warning.
    """
    if names:
        return sorted(set(names)), []
    groups, failed = await query(client)
    types = {group.group_id: group.type for group in groups}
    chosen = sorted(types) if pattern is None else pattern.select(sorted(types))
    for name in chosen:
        if types[name] in OTHER_TYPES:
            run.console.warn(f"group '{name}' is left out: it is a {types[name]} group, see {OTHER_TYPES[types[name]]}")
    return [name for name in chosen if types[name] not in OTHER_TYPES], failed


def with_matching_topics(groups: Iterable[GroupDescription], pattern: NamePattern) -> list[GroupDescription]:
    """The groups with the offsets of the topics that match only.  Raises KctlError if no topic matches."""
    described = list(groups)
    topics = matching_topics(pattern, (one.tp.topic for group in described for one in group.offsets))
    return [
        replace(group, offsets=tuple(one for one in group.offsets if one.tp.topic in topics)) for group in described
    ]


def matching_topics(pattern: NamePattern, names: Iterable[str]) -> Collection[str]:
    """The topics that match.  Raises KctlError if there is none."""
    chosen = pattern.select(sorted(set(names)))
    if not chosen:
        raise KctlError(f"no topic with offsets of the groups matches {pattern}")
    return set(chosen)

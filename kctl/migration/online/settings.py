"""Carries topics, their properties, ACLs and quotas to the other cluster, and follows their changes.

What the target has of its own stays.  Only what the source had, and has no more, is removed there: the caller passes
what it had before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from kctl.admin.copy.targets import NOT_COPIED, plan_target
from kctl.admin.security.acls import list_acls
from kctl.admin.security.quotas import Entity, describe_quotas
from kctl.admin.state.applying import NOT_AVAILABLE, Applying, export_state, read_state
from kctl.admin.state.diff import PARTITIONS, REPLICATION_FACTOR, Action, Change, Kind, PresentState, differences
from kctl.admin.state.document import DesiredState, DesiredTopic, UserKey
from kctl.admin.topics.topics import NewTopic, create_topics
from kctl.client.cluster import ClusterClient
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode
from kctl.security.acls import WILDCARD, AclBinding, PatternType, ResourceType

_REFUSED_PROPERTY = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION})


class NotCarried(NamedTuple):
    """Something of the source that the target does not get."""

    kind: str
    name: str
    item: str | None
    value: str | None
    reason: str


class Carried(NamedTuple):
    """What the source has, as the target is to have it."""

    state: DesiredState
    not_carried: list[NotCarried]
    users: tuple[UserKey, ...] = ()


async def read_carried(source: ClusterClient, target: ClusterClient, selects: Callable[[str], bool]) -> Carried:
    """Return the selected topics, ACLs and quotas of the source, with what the target can have of them.

    Raises ApiError and ClusterUnreachable.
    """
    exported, notes = await export_state(source)
    of_target = await target.metadata([])
    of_source = await source.metadata()
    not_carried = [NotCarried("cluster", "", None, None, note) for note in notes]
    topics: dict[str, DesiredTopic] = {}
    for name, topic in exported.topics.items():
        if not selects(name):
            continue
        planned = plan_target(of_source.topics[name], name, None, topic.configs or {}, len(of_target.brokers))
        assert planned.new is not None
        topics[name] = DesiredTopic(topic.partitions, planned.new.replication_factor, planned.new.configs)
        not_carried += _left_out(name, topic, planned.not_copied)
    acls, quotas = await _read_acls_and_quotas(source)  # An export does not tell none from not available.
    acls = None if acls is None else [acl for acl in acls if not _is_of_another(acl, selects)]
    for kind, given in (("acls", acls), ("quotas", quotas)):
        if given and (reason := await _missing(target, kind)) is not None:
            not_carried.append(NotCarried(kind, "", None, None, reason))
            acls, quotas = (None, quotas) if kind == "acls" else (acls, None)
    users = tuple(sorted(exported.users or {}))
    not_carried += [
        NotCarried(
            "user",
            key.name,
            key.mechanism.config_key,
            str((exported.users or {})[key].iterations),
            "no request returns the password or its hash: 'kctl users create' in the target",
        )
        for key in users
    ]
    return Carried(DesiredState(topics, acls, quotas), not_carried, users)


async def _read_acls_and_quotas(
    source: ClusterClient,
) -> tuple[list[AclBinding] | None, dict[Entity, Mapping[str, float]] | None]:
    """Return the ACLs and quotas; None for what the cluster cannot have."""
    acls, quotas = None, None
    with _suppress_unavailable():
        acls = await list_acls(source)
    with _suppress_unavailable():
        quotas = {quota.entity: quota.quotas for quota in (await describe_quotas(source))[0]}
    return acls, quotas


@contextmanager
def _suppress_unavailable() -> Iterator[None]:
    """Suppress the errors of clusters without ACLs or quotas."""
    try:
        yield
    except ApiError as error:
        if error.code not in NOT_AVAILABLE:
            raise


def _is_of_another(acl: AclBinding, selects: Callable[[str], bool]) -> bool:
    """Return whether an ACL is of one topic that is not selected."""
    pattern = acl.pattern
    is_of_one = pattern.type is ResourceType.TOPIC and pattern.pattern_type is PatternType.LITERAL
    return is_of_one and pattern.name != WILDCARD and not selects(pattern.name)


def _left_out(name: str, topic: DesiredTopic, properties: Iterable[str]) -> list[NotCarried]:
    reason = "removed in Kafka 4, or names brokers of the source"
    return [NotCarried("topic", name, key, (topic.configs or {}).get(key), reason) for key in sorted(properties)]


async def _missing(target: ClusterClient, kind: str) -> str | None:
    """Return why the target can have none of this kind."""
    try:
        await (list_acls(target) if kind == "acls" else describe_quotas(target))
    except ApiError as error:
        if error.code not in NOT_AVAILABLE:
            raise
        return f"the target has none: {error}"
    return None


async def plan_settings(target: ClusterClient, carried: Carried, before: DesiredState) -> list[Change]:
    """Return the changes that the target needs.  Raises ApiError and ClusterUnreachable."""
    now = carried.state
    # Of ACLs and quotas the target is read if the source has any, or had.
    acls = None if now.acls is None else [*now.acls, *(before.acls or ())]
    quotas = None if now.quotas is None else {**(before.quotas or {}), **now.quotas}
    present = await read_state(target, replace(now, acls=acls, quotas=quotas))
    changes = [
        change for change in differences(now, present) if change.item != REPLICATION_FACTOR and not change.is_removal
    ]
    return [*changes, *removals(before, now, present)]


def removals(before: DesiredState, now: DesiredState, present: PresentState) -> list[Change]:
    """Return what the source had before and has no more, and the target still has.  Topics are never removed."""
    changes = []
    for name, topic in now.topics.items():
        had = before.topics[name].configs if name in before.topics else None
        there = present.topics[name].configs if name in present.topics else {}
        gone_keys = (had or {}).keys() - (topic.configs or {}).keys() - NOT_COPIED
        changes += [Change(Kind.TOPIC, name, Action.RESET, key, there[key]) for key in sorted(gone_keys & there.keys())]
    if now.acls is not None:
        gone = set(before.acls or ()) - set(now.acls)
        changes += [Change(Kind.ACL, binding, Action.DELETE) for binding in sorted(gone & set(present.acls))]
    if now.quotas is not None:
        for entity, values in (before.quotas or {}).items():
            of_target = present.quotas.get(entity, {})
            for key in sorted(values.keys() - now.quotas.get(entity, {}).keys()):
                if key in of_target:
                    changes.append(Change(Kind.QUOTA, entity, Action.RESET, key, str(of_target[key])))
    return changes


async def carry_settings(
    target: ClusterClient, carried: Carried, before: DesiredState, *, only_creates: bool = False
) -> tuple[int, list[NotCarried]]:
    """Make the target have the settings; return how many changes were made, and what was refused.

    A topic with a property that the target refuses is created without it.  With `only_creates`, topics and partitions
    that are missing are created, and nothing else is changed.  Raises ApiError and ClusterUnreachable.
    """
    changes = await plan_settings(target, carried, before)
    if only_creates:
        changes = [change for change in changes if change.action is Action.CREATE or change.item == PARTITIONS]
        changes = [change for change in changes if change.kind is Kind.TOPIC]
    refused: list[NotCarried] = []
    done = 0
    for change in changes:
        if change.problem is not None:
            refused.append(_refused(change, change.problem))
            continue
        outcome = await _apply(target, carried.state, change, refused)
        if outcome is None or outcome.is_done:
            done += 1
        else:
            refused.append(_refused(change, f"{outcome.error.name}: {outcome.message}"))
    return done, refused


async def _apply(
    target: ClusterClient, state: DesiredState, change: Change, refused: list[NotCarried]
) -> Outcome | None:
    applying = Applying(state, str)
    await applying.run(target, [change])
    outcome = applying.outcomes.get(change)
    name = change.target
    if change.kind is Kind.TOPIC and change.action is Action.CREATE and outcome is not None and isinstance(name, str):
        if outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS:
            return Outcome(name)
        if outcome.error in _REFUSED_PROPERTY:
            topic = state.topics[name]
            refusals = await refused_properties(target, name, topic)
            refused += [
                NotCarried("topic", name, key, (topic.configs or {})[key], why) for key, why in refusals.items()
            ]
            configs = {key: value for key, value in (topic.configs or {}).items() if key not in refusals}
            created = replace(state, topics={name: replace(topic, configs=configs)})
            again = Applying(created, str)
            await again.run(target, [change])
            return again.outcomes.get(change)
    return outcome


def _refused(change: Change, reason: str) -> NotCarried:
    return NotCarried(change.kind.value, change.name, change.item, change.after, reason)


async def refused_properties(target: ClusterClient, name: str, topic: DesiredTopic) -> dict[str, str]:
    """Return the properties with which the target does not create the topic, by asking it about each alone.

    Raises ApiError and ClusterUnreachable.
    """

    async def ask(configs: Mapping[str, str]) -> Outcome:
        new = NewTopic(name, topic.partitions or 1, topic.replication_factor or 1, configs=configs)
        return (await create_topics(target, [new], validate_only=True))[0].outcome

    refusals = {}
    outcome = await ask(topic.configs or {})
    if outcome.is_done or outcome.error not in _REFUSED_PROPERTY:
        return {}
    for key, value in sorted((topic.configs or {}).items()):
        outcome = await ask({key: value})
        if outcome.error in _REFUSED_PROPERTY:
            refusals[key] = outcome.message or outcome.error.description
    return refusals

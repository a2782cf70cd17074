"""The differences between a cluster and a document with its desired state, as changes.  Pure.

Nothing is deleted that the scope of the document does not cover, and partitions are never removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kctl.admin.security.quotas import Entity
from kctl.admin.state.document import DesiredState, DesiredTopic, DesiredUser, UserKey, entity_key, number_text
from kctl.output.quantities import counted
from kctl.security.acls import AclBinding

Target = str | AclBinding | Entity | UserKey
"""A topic by name, an ACL, the entity of quotas, or a credential."""

PARTITIONS = "partitions"
REPLICATION_FACTOR = "replication_factor"


class Kind(StrEnum):
    """The kind of resource that a change concerns."""

    TOPIC = "topic"
    ACL = "acl"
    QUOTA = "quota"
    USER = "user"


class Action(StrEnum):
    """The action on the resource."""

    CREATE = "create"
    ALTER = "alter"
    RESET = "reset"
    """Remove a property or quota, so that the default applies."""
    DELETE = "delete"


class Change(NamedTuple):
    """One difference between a cluster and a document."""

    kind: Kind
    target: Target
    action: Action
    item: str | None = None
    """The property or quota; None for the target as a whole."""
    before: str | None = None
    after: str | None = None
    problem: str | None = None
    """Why it is impossible."""

    @property
    def is_removal(self) -> bool:
        """Whether something exists only in the cluster, and is removed only if that is requested."""
        return self.action in {Action.RESET, Action.DELETE}

    @property
    def name(self) -> str:
        """The target for people."""
        match self.target:
            case str():
                return self.target
            case UserKey(name, mechanism):
                return f"{name} {mechanism.config_key}"
            case AclBinding():
                return str(self.target)
            case _:
                return entity_key(self.target)


@dataclass(frozen=True, slots=True)
class PresentTopic:
    """A topic of the cluster, or with ongoing reassignments as it will be."""

    partitions: int
    replication_factors: frozenset[int]
    """The replication factors of its partitions; normally one number."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    """The properties set for the topic itself; None for sensitive values."""
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class PresentState:
    """The present state of a cluster, limited to the sections of a document."""

    topics: Mapping[str, PresentTopic] = field(default_factory=dict)
    acls: Sequence[AclBinding] = ()
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    users: Mapping[UserKey, int] = field(default_factory=dict)
    """Iterations of each credential."""


def differences(desired: DesiredState, present: PresentState) -> list[Change]:
    """Return all differences, in the order in which they are applied: removals last, deleted topics at the very end."""
    changes = [*_users(desired, present), *_topics(desired, present), *_acls(desired, present)]
    changes += _quotas(desired, present)
    return sorted(changes, key=_order)


def _order(change: Change) -> tuple[bool, bool]:
    return change.is_removal, change.action is Action.DELETE and change.kind is Kind.TOPIC


def _topics(desired: DesiredState, present: PresentState) -> Iterator[Change]:
    for name, topic in sorted(desired.topics.items()):
        found = present.topics.get(name)
        if found is None:
            yield Change(Kind.TOPIC, name, Action.CREATE, after=_created(topic))
        else:
            yield from _numbers(name, topic, found)
            yield from _configs(name, topic, found, covers=desired.managed.has_topic(name))
    for name, found in sorted(present.topics.items()):
        if name not in desired.topics and not found.is_internal and desired.managed.has_topic(name):
            yield Change(Kind.TOPIC, name, Action.DELETE, before=f"{PARTITIONS}={found.partitions}")


def _numbers(name: str, topic: DesiredTopic, found: PresentTopic) -> Iterator[Change]:
    before, after = found.partitions, topic.partitions
    if after is not None and after != before:
        problem = None if after > before else f"the topic has {counted(before, 'partition')}, which cannot be removed"
        yield Change(Kind.TOPIC, name, Action.ALTER, PARTITIONS, str(before), str(after), problem)
    factor = topic.replication_factor
    if factor is not None and found.replication_factors != {factor}:
        factors = ",".join(map(str, sorted(found.replication_factors)))
        yield Change(Kind.TOPIC, name, Action.ALTER, REPLICATION_FACTOR, factors or None, str(factor))


def _configs(name: str, topic: DesiredTopic, found: PresentTopic, *, covers: bool) -> Iterator[Change]:
    if topic.configs is None:
        return
    for key, value in sorted(topic.configs.items()):
        if key not in found.configs or found.configs[key] != value:
            yield Change(Kind.TOPIC, name, Action.ALTER, key, found.configs.get(key), value)
    if covers:
        for key, before in sorted(found.configs.items()):
            if key not in topic.configs:
                yield Change(Kind.TOPIC, name, Action.RESET, key, before)


def _acls(desired: DesiredState, present: PresentState) -> Iterator[Change]:
    required, found = set(desired.acls or ()), set(present.acls)
    for binding in sorted(required - found):
        yield Change(Kind.ACL, binding, Action.CREATE)
    for binding in sorted(found - required):
        if desired.managed.has_acl(binding):
            yield Change(Kind.ACL, binding, Action.DELETE)


def _quotas(desired: DesiredState, present: PresentState) -> Iterator[Change]:
    required = desired.quotas or {}
    for entity, values in sorted(required.items(), key=lambda item: entity_key(item[0])):
        found = present.quotas.get(entity, {})
        for key, value in sorted(values.items()):
            if found.get(key) != value:
                before = number_text(found[key]) if key in found else None
                yield Change(Kind.QUOTA, entity, Action.ALTER, key, before, number_text(value))
    for entity, found in sorted(present.quotas.items(), key=lambda item: entity_key(item[0])):
        if desired.managed.has_quota(entity):
            for key in sorted(found.keys() - required.get(entity, {}).keys()):
                yield Change(Kind.QUOTA, entity, Action.RESET, key, number_text(found[key]))


def _users(desired: DesiredState, present: PresentState) -> Iterator[Change]:
    required = desired.users or {}
    for key, user in sorted(required.items()):
        found = present.users.get(key)
        if found != user.iterations:
            yield _user(key, user, found)
    for key in sorted(present.users.keys() - required.keys()):
        if desired.managed.has_user(key.name):
            yield Change(Kind.USER, key, Action.DELETE)


def _user(key: UserKey, user: DesiredUser, iterations: int | None) -> Change:
    action = Action.CREATE if iterations is None else Action.ALTER
    problem = "the document has no password for this credential" if user.password is None else None
    before = None if iterations is None else str(iterations)
    return Change(Kind.USER, key, action, "iterations", before, str(user.iterations), problem)


def _created(topic: DesiredTopic) -> str:
    numbers = {PARTITIONS: topic.partitions, REPLICATION_FACTOR: topic.replication_factor}
    parts = [f"{name}={value}" for name, value in numbers.items() if value is not None]
    return " ".join(parts + [f"{key}={value}" for key, value in sorted((topic.configs or {}).items())])

"""The ACLs of the options that kctl and Kafka's tool have in common, and the rules of a producer or a consumer.

Kafka: AclCommand.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kctl.errors import UsageError
from kctl.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    principal_problem,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources that a command line names, by type, and how their names are meant."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    delegation_tokens: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    is_cluster: bool = False
    pattern_type: PatternType = PatternType.LITERAL

    def named(self) -> list[tuple[ResourceType, str]]:
        """All resources, each once."""
        by_type = (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ResourceType.DELEGATION_TOKEN, self.delegation_tokens),
            (ResourceType.USER, self.users),
        )
        found = [(kind, name) for kind, names in by_type for name in names]
        if self.is_cluster:
            found.append((ResourceType.CLUSTER, CLUSTER_NAME))
        return list(dict.fromkeys(found))

    def patterns(self) -> list[ResourcePattern]:
        """The resources as patterns; the cluster is always literal."""
        return [
            ResourcePattern(kind, name, PatternType.LITERAL if kind is ResourceType.CLUSTER else self.pattern_type)
            for kind, name in self.named()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The principals, hosts, operations and permission of the ACLs."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    hosts: tuple[str, ...] = ()

    def entries(self, operations: Iterable[Operation]) -> list[AclEntry]:
        """All combinations of principals, hosts and operations."""
        who = [(name, Permission.ALLOW) for name in self.allowed] + [(name, Permission.DENY) for name in self.denied]
        return [
            AclEntry(principal, host, operation, permission)
            for principal, permission in who
            for operation in operations
            for host in self.hosts or (WILDCARD,)
        ]


def bindings(
    resources: Resources, rules: Rules, *, is_producer: bool = False, is_consumer: bool = False, is_idempotent: bool
) -> list[AclBinding]:
    """The ACLs that a command line describes, each once.  Raises UsageError."""
    for name in (*rules.allowed, *rules.denied):
        problem = principal_problem(name)
        if problem is not None:
            raise UsageError(problem)
    if not rules.allowed and not rules.denied:
        raise UsageError("give --allow or --deny with a principal, such as User:alice")
    if is_idempotent and not is_producer:
        raise UsageError("--idempotent is an option of --producer")
    if not is_producer and not is_consumer:
        if not rules.operations:
            raise UsageError("give --operation, or --producer or --consumer")
        patterns = resources.patterns()
        if not patterns:
            raise UsageError(
                "give a resource: --topic, --group, --cluster, --transactional-id, --delegation-token, --user"
            )
        return _combined([(pattern, rules.operations) for pattern in patterns], rules)
    _check_role(resources, rules, is_producer=is_producer, is_consumer=is_consumer)
    requested: list[tuple[ResourcePattern, tuple[Operation, ...]]] = []
    for pattern in resources.patterns():
        if pattern.type is ResourceType.TOPIC:
            if is_producer:
                requested.append((pattern, (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)))
            if is_consumer:
                requested.append((pattern, (Operation.READ, Operation.DESCRIBE)))
        elif pattern.type is ResourceType.TRANSACTIONAL_ID and is_producer:
            requested.append((pattern, (Operation.WRITE, Operation.DESCRIBE)))
        elif pattern.type is ResourceType.GROUP and is_consumer:
            requested.append((pattern, (Operation.READ,)))
    if is_idempotent:
        requested.append((ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), (Operation.IDEMPOTENT_WRITE,)))
    return _combined(requested, rules)


def _check_role(resources: Resources, rules: Rules, *, is_producer: bool, is_consumer: bool) -> None:
    if rules.operations or rules.denied:
        raise UsageError("--producer and --consumer allow operations of their own: leave out --operation and --deny")
    if not resources.topics:
        raise UsageError("--producer and --consumer need --topic")
    if is_consumer and not resources.groups:
        raise UsageError("--consumer needs --group")
    if resources.groups and not is_consumer:
        raise UsageError("--group is for --consumer")
    if resources.transactional_ids and not is_producer:
        raise UsageError("--transactional-id is for --producer")
    if resources.is_cluster or resources.users or resources.delegation_tokens:
        raise UsageError("--producer and --consumer are about topics, groups and transactional ids")


def _combined(requested: Iterable[tuple[ResourcePattern, tuple[Operation, ...]]], rules: Rules) -> list[AclBinding]:
    """Raises UsageError for an operation that does not exist on a type of resource."""
    found: dict[AclBinding, None] = {}
    for pattern, operations in requested:
        for operation in operations:
            supported = SUPPORTED_OPERATIONS[pattern.type]
            if operation is not Operation.ALL and operation not in supported:
                names = ", ".join(each.label for each in (*supported, Operation.ALL))
                raise UsageError(f"{pattern.type.label} has no operation {operation.label}, only {names}")
        for entry in rules.entries(operations):
            found[AclBinding(pattern, entry)] = None
    return list(found)


def filters(resources: Resources, rules: Rules) -> list[AclFilter]:
    """Filters for the ACLs that a command line describes; what is not given selects everything."""
    named: list[tuple[ResourceType, str | None]] = list(resources.named()) or [(ResourceType.ANY, None)]
    who: list[tuple[str | None, Permission]] = [
        *((name, Permission.ALLOW) for name in rules.allowed),
        *((name, Permission.DENY) for name in rules.denied),
    ] or [(None, Permission.ANY)]
    return [
        AclFilter(kind, name, resources.pattern_type, principal, host, operation, permission)
        for kind, name in named
        for principal, permission in who
        for host in rules.hosts or (None,)
        for operation in rules.operations or (Operation.ANY,)
    ]

"""Who may perform an operation, and what a principal may do, from all ACLs of a cluster.  Pure.

Both answers are derived from `authorization.decide`, the rule of the authorizer, for one representative of each set of
clients, or of resources, that no ACL tells apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kctl.security.acls import (
    CLUSTER_NAME,
    EVERY_USER,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from kctl.security.authorization import AccessPolicy, AclIndex, Client, Decision, decide, decide_on_any


class Hosts(NamedTuple):
    """The hosts of clients that may perform an operation."""

    allowed: tuple[str, ...] = ()
    """Addresses; or `*` alone for all but the denied ones."""
    denied: tuple[str, ...] = ()
    """Addresses; empty without `*`, because then every other host is denied."""


class PrincipalAccess(NamedTuple):
    """The access of a principal to one resource; User:* stands for all principals without an entry of their own."""

    principal: str
    hosts: Hosts
    decision: Decision
    """The decision for the first allowed host; without one, for a host that no ACL names."""


class ResourceAccess(NamedTuple):
    """What a principal may do with the resources of a pattern that no more specific entry selects.

    A literal name is more specific than a prefix, a longer prefix than a shorter one, and each of them than `*`.
    """

    pattern: ResourcePattern
    operations: tuple[Operation, ...]
    """In the order of the protocol; empty if a less specific entry allows some, and this one none."""
    hosts: Hosts
    decision: Decision
    """The decision for the first operation."""


def who_can(
    acls: Iterable[AclBinding], policy: AccessPolicy, operation: Operation, kind: ResourceType, name: str
) -> list[PrincipalAccess]:
    """Return the access of all principals to a resource, by principal, User:* last.

    Principals that are denied are returned if User:* is allowed, because they are exceptions.  Brokers since 2.8 also
    accept idempotent producers that may write to any topic (KIP-679).
    """
    known = list(acls)
    applying = [acl for acl in known if acl.pattern.type is kind and acl.pattern.applies_to(name)]
    protecting = applying[:1]
    if _is_for_idempotence(operation, kind):
        applying += [acl for acl in known if acl.pattern.type is ResourceType.TOPIC]
    by_principal: dict[str, list[AclBinding]] = {principal: [] for principal in policy.super_users}
    for acl in applying:
        by_principal.setdefault(acl.entry.principal, []).append(acl)
    of_every_user = by_principal.pop(EVERY_USER, [])

    def access_of(principal: str, own: Sequence[AclBinding]) -> PrincipalAccess:
        relevant = [*own, *of_every_user]
        # Without ACLs of this principal, those of others still decide whether the resource has any.
        is_protected = any(acl.pattern.type is kind for acl in relevant)
        index = AclIndex(relevant if is_protected else [*relevant, *protecting])
        hosts, decision = _hosts(index, policy, principal, operation, kind, name, _named_hosts(relevant))
        return PrincipalAccess(principal, hosts, decision)

    found = [access_of(principal, own) for principal, own in sorted(by_principal.items())]
    others = access_of(EVERY_USER, ())
    if others.hosts.allowed:
        return [*found, others]
    return [access for access in found if access.hosts.allowed]


def what_can(acls: Iterable[AclBinding], policy: AccessPolicy, principal: str) -> list[ResourceAccess]:
    """Return what a principal may do, by type of resource and name, in each type from the least specific pattern.

    A pattern is left out if a less specific one gives the same access to its resources.
    """
    by_kind: dict[ResourceType, list[AclBinding]] = {kind: [] for kind in SUPPORTED_OPERATIONS}
    for acl in acls:
        by_kind.setdefault(acl.pattern.type, []).append(acl)
    return [access for kind, own in by_kind.items() for access in _access_to(kind, own, policy, principal)]


def _access_to(
    kind: ResourceType, acls: Sequence[AclBinding], policy: AccessPolicy, principal: str
) -> list[ResourceAccess]:
    index = AclIndex(acls)
    patterns = {*index.patterns(), ResourcePattern(kind, WILDCARD)}
    if kind is ResourceType.CLUSTER:
        patterns = {ResourcePattern(kind, CLUSTER_NAME)}
    longest = max(len(pattern.name) for pattern in patterns)
    access: dict[ResourcePattern, list[ResourceAccess]] = {}
    for pattern in sorted(patterns, key=_specificity):
        name = _representative(pattern, longest)
        applying = [AclBinding(other, entry) for other in index.applying(kind, name) for entry in index.entries(other)]
        hosts = _named_hosts(acl for acl in applying if acl.entry.principal in {principal, EVERY_USER})
        by_hosts: dict[Hosts, list[tuple[Operation, Decision]]] = {}
        refusal = None
        for operation in SUPPORTED_OPERATIONS.get(kind, ()):
            allowed, decision = _hosts(index, policy, principal, operation, kind, name, hosts)
            if allowed.allowed:
                by_hosts.setdefault(allowed, []).append((operation, decision))
            refusal = refusal or decision
        found = [
            ResourceAccess(pattern, tuple(operation for operation, _ in some), allowed, some[0][1])
            for allowed, some in by_hosts.items()
        ]
        if not found and refusal is not None:
            found = [ResourceAccess(pattern, (), Hosts(), refusal)]
        access[pattern] = found
    return [
        entry
        for pattern, found in access.items()
        if _terms(found) != _terms(access.get(wider, ()) if (wider := _wider(pattern, access.keys())) else ())
        for entry in found
    ]


def _terms(found: Iterable[ResourceAccess]) -> set[tuple[tuple[Operation, ...], Hosts]]:
    """Return what an entry allows, without the ACLs that are the reason; nothing equals no entry at all."""
    return {(entry.operations, entry.hosts) for entry in found if entry.operations}


def _specificity(pattern: ResourcePattern) -> tuple[bool, bool, str]:
    """Order `*` first, then prefixes before the longer ones that they select, then names."""
    is_name = pattern.pattern_type is not PatternType.PREFIXED
    return (not (is_name and pattern.name == WILDCARD), is_name, pattern.name)


def _wider(pattern: ResourcePattern, patterns: Collection[ResourcePattern]) -> ResourcePattern | None:
    """Return the most specific one of the other patterns that select all resources of this one; None if none does."""
    every = ResourcePattern(pattern.type, WILDCARD)
    if pattern == every:
        return None
    lengths = range(len(pattern.name), 0, -1)
    prefixes = (ResourcePattern(pattern.type, pattern.name[:length], PatternType.PREFIXED) for length in lengths)
    return next((wider for wider in (*prefixes, every) if wider != pattern and wider in patterns), None)


def _representative(pattern: ResourcePattern, longest: int) -> str:
    """Return the name of a resource to which the pattern applies, and no more specific one; none of the patterns is
    longer than `longest`.
    """
    if pattern.pattern_type is PatternType.LITERAL and pattern.name != WILDCARD:
        return pattern.name
    name = pattern.name if pattern.pattern_type is PatternType.PREFIXED else ""
    # Longer than the name of every pattern; no name of a resource contains this character.
    return name + "\0" * (longest + 1)


_ANY_OTHER = ""
"""Stands for the principals, or the hosts, that no ACL and no list of super users names."""


def _named_hosts(acls: Iterable[AclBinding]) -> list[str]:
    return sorted({acl.entry.host for acl in acls} - {WILDCARD})


def _hosts(
    index: AclIndex,
    policy: AccessPolicy,
    principal: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    named: Sequence[str],
) -> tuple[Hosts, Decision]:
    """Return the hosts from which the principal may perform the operation, and the decision for the first."""
    user = _ANY_OTHER if principal == EVERY_USER else principal

    def decide_for(host: str) -> Decision:
        client = Client(user, host)
        decision = decide(index, policy, client, operation, kind, name)
        if not decision.is_allowed and _is_for_idempotence(operation, kind):
            by_topic = decide_on_any(index, policy, client, Operation.WRITE, ResourceType.TOPIC)
            return by_topic if by_topic.is_allowed else decision
        return decision

    elsewhere = decide_for(_ANY_OTHER)
    allowed: list[str] = []
    denied: list[str] = []
    first = None
    for host in named:
        decision = decide_for(host)
        (allowed if decision.is_allowed else denied).append(host)
        if decision.is_allowed and first is None:
            first = decision
    if elsewhere.is_allowed:
        return Hosts((WILDCARD,), tuple(denied)), elsewhere
    return Hosts(tuple(allowed)), first or elsewhere


def _is_for_idempotence(operation: Operation, kind: ResourceType) -> bool:
    return operation is Operation.IDEMPOTENT_WRITE and kind is ResourceType.CLUSTER

"""Decides from ACLs whether a principal may perform an operation.  Kafka: AclAuthorizer of 2.8.

Super users may perform every operation.  For others, the ACLs of all patterns that apply to the resource are searched:
an ACL that denies takes precedence over one that allows; if none matches, the operation is denied.  If the resource has
no ACL at all, `allow.everyone.if.no.acl.found` decides.

An ACL that allows READ, WRITE, DELETE or ALTER also allows DESCRIBE, and one that allows ALTER_CONFIGS also allows
DESCRIBE_CONFIGS.  An ACL that denies one of them denies nothing else.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import NamedTuple

from kctl.security.acls import (
    EVERY_USER,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    principal_problem,
)

_IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}

Granted = dict[tuple[str, str, Operation, ResourceType], set[str]]
"""The names of resources on which an operation is allowed, by principal, address, operation and type."""


class Reason(Enum):
    """The kind of rule that decided."""

    SUPER_USER = "super user"
    ALLOWED_BY_ACL = "allowed by ACL"
    DENIED_BY_ACL = "denied by ACL"
    NO_ACL_ALLOWS = "no ACL allows it"
    NO_ACL_ON_RESOURCE = "the resource has no ACL"
    UNREADABLE = "ACLs that cannot be read"
    NO_AUTHORIZER = "no authorizer"
    PLUG_IN = "plug-in"


class Decision(NamedTuple):
    """Whether an operation is allowed, and the rule that decided."""

    is_allowed: bool
    reason: Reason
    acl: AclBinding | None = None
    """The ACL that decided, if one did."""
    pattern: ResourcePattern | None = None
    """The pattern whose ACLs cannot be read, for UNREADABLE."""

    @property
    def rule(self) -> str:
        """The rule that decided, as text."""
        if self.acl is not None:
            return str(self.acl)
        return self.reason.value if self.pattern is None else f"{self.reason.value}: {self.pattern}"


class Client(NamedTuple):
    """The principal and address of a client."""

    principal: str
    host: str
    """The address as text, without a slash."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The broker properties that affect decisions."""

    super_users: frozenset[str] = field(default_factory=frozenset)
    allows_without_acl: bool = False
    """allow.everyone.if.no.acl.found: whether all users may use a resource without ACLs."""


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals in `super.users`, which are separated by semicolons.  Raises ValueError."""
    names = [name.strip() for name in text.split(";")]
    while names and not names[-1]:
        names.pop()  # Java's split leaves trailing empty strings out.
    for name in names:
        problem = principal_problem(name)
        if problem is not None:
            raise ValueError(problem)
    return frozenset(names)


class _RuleKey(NamedTuple):
    """Entries with the same key differ in their resource names only."""

    entry: AclEntry
    type: ResourceType
    pattern_type: PatternType


class AclIndex:
    """ACLs by resource pattern, indexed so that a decision reads only those that apply to one resource.

    A pattern whose ACLs cannot be read is present without entries, and every operation to which it applies is denied.
    """

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self._entries: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
        self._unreadable: set[ResourcePattern] = set()
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}
        """The number of prefixed patterns by type and length of the name."""
        self._names: dict[_RuleKey, set[str]] = {}
        self.count = 0
        """Number of ACLs."""
        by_pattern: dict[ResourcePattern, dict[AclEntry, None]] = {}
        for pattern, entry in bindings:
            by_pattern.setdefault(pattern, {})[entry] = None
        for pattern, entries in by_pattern.items():
            self.replace(pattern, entries)

    def replace(self, pattern: ResourcePattern, entries: Iterable[AclEntry] | None) -> None:
        """Replace the ACLs of a pattern; None means that they cannot be read."""
        was_present = pattern in self._entries
        self._forget(pattern)
        stored = tuple(dict.fromkeys(entries or ()))
        if entries is None:
            self._unreadable.add(pattern)
        if stored or entries is None:
            self._entries[pattern] = stored
            self.count += len(stored)
            for entry in stored:
                self._names.setdefault(_RuleKey(entry, pattern.type, pattern.pattern_type), set()).add(pattern.name)
        self._count_prefix(pattern, int(pattern in self._entries) - int(was_present))

    def _forget(self, pattern: ResourcePattern) -> None:
        self._unreadable.discard(pattern)
        old = self._entries.pop(pattern, ())
        self.count -= len(old)
        for entry in old:
            key = _RuleKey(entry, pattern.type, pattern.pattern_type)
            self._names[key].discard(pattern.name)
            if not self._names[key]:
                del self._names[key]

    def _count_prefix(self, pattern: ResourcePattern, change: int) -> None:
        if pattern.pattern_type is not PatternType.PREFIXED or not change:
            return
        lengths = self._prefix_lengths.setdefault(pattern.type, {})
        length = len(pattern.name)
        lengths[length] = lengths.get(length, 0) + change
        if not lengths[length]:
            del lengths[length]
        if not lengths:
            del self._prefix_lengths[pattern.type]

    def entries(self, pattern: ResourcePattern) -> tuple[AclEntry, ...]:
        """Return the ACLs of exactly this pattern."""
        return self._entries.get(pattern, ())

    def patterns(self) -> Iterable[ResourcePattern]:
        """Return all patterns that have ACLs."""
        return self._entries

    def bindings(self) -> Iterator[AclBinding]:
        """Yield all ACLs as they are when the iteration begins; they may change meanwhile."""
        for pattern, entries in list(self._entries.items()):
            for entry in entries:
                yield AclBinding(pattern, entry)

    def unreadable_names(self, kind: ResourceType, shape: PatternType) -> set[str]:
        """Return the names of the patterns of a type whose ACLs cannot be read."""
        return {pattern.name for pattern in self._unreadable if pattern.type is kind and pattern.pattern_type is shape}

    def is_unreadable(self, pattern: ResourcePattern) -> bool:
        """Return whether the ACLs of the pattern cannot be read."""
        return pattern in self._unreadable

    def applying(self, kind: ResourceType, name: str) -> list[ResourcePattern]:
        """Return the patterns with ACLs that apply to a resource."""
        candidates = chain(
            (ResourcePattern(kind, name), ResourcePattern(kind, WILDCARD))
            if name != WILDCARD
            else (ResourcePattern(kind, name),),
            (
                ResourcePattern(kind, name[:length], PatternType.PREFIXED)
                for length in self._prefix_lengths.get(kind, ())
                if length <= len(name)
            ),
        )
        return [pattern for pattern in candidates if pattern in self._entries]

    def names(
        self, client: Client, operation: Operation, permission: Permission, kind: ResourceType, shape: PatternType
    ) -> list[set[str]]:
        """Return the names of the patterns with an ACL for this client and operation, or for all of them."""
        names_by_rule = []
        for principal in (client.principal, EVERY_USER):
            for host in (client.host, WILDCARD):
                for possible in (operation, Operation.ALL):
                    names = self._names.get(_RuleKey(AclEntry(principal, host, possible, permission), kind, shape))
                    if names:
                        names_by_rule.append(names)
        return names_by_rule


def decide(
    acls: AclIndex, policy: AccessPolicy, client: Client, operation: Operation, kind: ResourceType, name: str
) -> Decision:
    """Return whether the client may perform the operation on the resource, and the rule that decides."""
    if client.principal in policy.super_users:
        return Decision(True, Reason.SUPER_USER)
    patterns = acls.applying(kind, name)
    if not patterns:
        return Decision(policy.allows_without_acl, Reason.NO_ACL_ON_RESOURCE)
    for pattern in patterns:
        if acls.is_unreadable(pattern):
            return Decision(False, Reason.UNREADABLE, pattern=pattern)
    denied = _find(acls, patterns, client, Permission.DENY, frozenset({operation, Operation.ALL}))
    if denied is not None:
        return Decision(False, Reason.DENIED_BY_ACL, denied)
    implied_by = _IMPLIED_BY.get(operation, frozenset({operation, Operation.ALL}))
    allowed = _find(acls, patterns, client, Permission.ALLOW, implied_by)
    if allowed is not None:
        return Decision(True, Reason.ALLOWED_BY_ACL, allowed)
    return Decision(False, Reason.NO_ACL_ALLOWS)


def _find(
    acls: AclIndex,
    patterns: Iterable[ResourcePattern],
    client: Client,
    permission: Permission,
    operations: frozenset[Operation],
) -> AclBinding | None:
    for pattern in patterns:
        for entry in acls.entries(pattern):
            if (
                entry.permission is permission
                and entry.operation in operations
                and entry.principal in {client.principal, EVERY_USER}
                and entry.host in {client.host, WILDCARD}
            ):
                return AclBinding(pattern, entry)
    return None


def decide_on_any(
    acls: AclIndex, policy: AccessPolicy, client: Client, operation: Operation, kind: ResourceType
) -> Decision:
    """Return whether the client may perform the operation on at least one resource of the type.

    Used for idempotent producers without IDEMPOTENT_WRITE (KIP-679).  As in Kafka, implied operations do not count.
    """
    if client.principal in policy.super_users:
        return Decision(True, Reason.SUPER_USER)

    def named(permission: Permission, shape: PatternType) -> list[set[str]]:
        names = acls.names(client, operation, permission, kind, shape)
        if permission is Permission.DENY and (unreadable := acls.unreadable_names(kind, shape)):
            names.append(unreadable)
        return names

    denied = named(Permission.DENY, PatternType.LITERAL)
    if any(WILDCARD in names for names in denied):
        return Decision(False, Reason.DENIED_BY_ACL)
    if policy.allows_without_acl:
        return Decision(True, Reason.NO_ACL_ON_RESOURCE)
    denied_prefixes = named(Permission.DENY, PatternType.PREFIXED)
    for prefix in chain.from_iterable(named(Permission.ALLOW, PatternType.PREFIXED)):
        if not _has_denied_prefix(prefix, denied_prefixes):
            return Decision(True, Reason.ALLOWED_BY_ACL)
    for name in chain.from_iterable(named(Permission.ALLOW, PatternType.LITERAL)):
        if name == WILDCARD or not (
            any(name in names for names in denied) or _has_denied_prefix(name, denied_prefixes)
        ):
            return Decision(True, Reason.ALLOWED_BY_ACL)
    return Decision(False, Reason.NO_ACL_ALLOWS)


def _has_denied_prefix(name: str, denied_prefixes: list[set[str]]) -> bool:
    if not denied_prefixes:
        return False
    return any(name[:length] in names for names in denied_prefixes for length in range(1, len(name) + 1))


def java_address(client_host: str) -> str:
    """Return the address in the form of InetAddress.getHostAddress, which ACLs use: IPv6 without `::`.

    Takes the text of a Peer, with a slash.
    """
    text = client_host.rpartition("/")[2]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    groups = ":".join(f"{group:x}" for group in struct.unpack(">8H", address.packed))
    return f"{groups}%{address.scope_id}" if address.scope_id else groups

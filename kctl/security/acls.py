"""Access control lists: resources, operations, permissions, the rules (ACLs) and the filters that select rules.

Numbers and names are Kafka's: org.apache.kafka.common.acl and org.apache.kafka.common.resource, KIP-11, KIP-140,
KIP-290 (prefixed patterns), KIP-373 (users).  The rule that decides is in `authorization`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self

from kctl.errors import ErrorCode

WILDCARD = "*"
"""The literal resource name, or host, that matches all."""
EVERY_USER = "User:*"
"""The principal that matches all principals, of any type."""
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""


class _Named(IntEnum):
    """A number of the protocol with the name that Kafka uses in znodes: TRANSACTIONAL_ID is TransactionalId."""

    __hash__ = int.__hash__
    """Enum's own hash is a Python function.  Each request that is authorized looks up two members."""

    @property
    def label(self) -> str:
        """The name in znodes and messages, such as DescribeConfigs."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @classmethod
    def of_label(cls, text: str) -> Self:
        """Parse a name in any case, with or without separators.  Raises ValueError."""
        normalized = text.replace("_", "").replace("-", "").lower()
        for member in cls:
            if member.name.replace("_", "").lower() == normalized:
                return member
        raise ValueError(f"{text!r} is not one of {', '.join(member.label for member in cls)}")


class ResourceType(_Named):
    """The types of resources."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7
    """Since 3.3 (KIP-373); not supported by brokers of 2.8."""


class PatternType(_Named):
    """How the name of a rule selects resources.  ANY and MATCH occur in filters only."""

    ANY = 1
    MATCH = 2
    """In a filter: all patterns that apply to a resource name."""
    LITERAL = 3
    PREFIXED = 4


class Operation(_Named):
    """The operations on resources."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(_Named):
    """Whether a rule allows or denies."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation

SUPPORTED_OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""The operations that exist on each type of resource.  Kafka: AclEntry.supportedOperations."""

STORED_TYPES = tuple(kind for kind in SUPPORTED_OPERATIONS if kind is not ResourceType.USER)
"""The types of resources that brokers of 2.8 protect."""

AUTHORIZATION_ERRORS: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error for a denied operation on each type of resource."""


class ResourcePattern(NamedTuple):
    """The resources to which a rule applies."""

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def applies_to(self, name: str) -> bool:
        """Return whether the pattern selects a resource of its type with this name."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in {name, WILDCARD}

    def __str__(self) -> str:
        return f"{self.type.label}:{self.pattern_type.name}:{self.name}"


class AclEntry(NamedTuple):
    """A rule without its resource: principal, operation, host, and permission.  Kafka: AccessControlEntry."""

    principal: str
    """`Type:name`, such as User:alice; User:* for everyone."""
    host: str
    """The address of the client as text, or * for all."""
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    """One ACL: a pattern of resources and an entry."""

    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        entry = self.entry
        return (
            f"{entry.permission.label} {entry.principal} {entry.operation.label} "
            f"on {self.pattern} from host {entry.host}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects ACLs; ANY and None select everything.  Kafka: AclBindingFilter."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def selects(self, binding: AclBinding) -> bool:
        """Return whether the filter selects the ACL."""
        return self.selects_pattern(binding.pattern) and self.selects_entry(binding.entry)

    def selects_pattern(self, pattern: ResourcePattern) -> bool:
        """Return whether the filter selects ACLs with this pattern."""
        if self.resource_type not in {ResourceType.ANY, pattern.type}:
            return False
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or pattern.applies_to(self.name)
        if self.pattern_type not in {PatternType.ANY, pattern.pattern_type}:
            return False
        return self.name in {None, pattern.name}

    def selects_entry(self, entry: AclEntry) -> bool:
        """Return whether the filter selects ACLs with this entry."""
        return (
            self.principal in {None, entry.principal}
            and self.host in {None, entry.host}
            and self.operation in {Operation.ANY, entry.operation}
            and self.permission in {Permission.ANY, entry.permission}
        )

    def exact_patterns(self) -> tuple[ResourcePattern, ...]:
        """Return the patterns that the filter can select, if it names them; empty if it has to search."""
        if self.resource_type is ResourceType.ANY or self.name is None or self.pattern_type is PatternType.MATCH:
            return ()
        kinds = (
            (PatternType.LITERAL, PatternType.PREFIXED)
            if self.pattern_type is PatternType.ANY
            else (self.pattern_type,)
        )
        return tuple(ResourcePattern(self.resource_type, self.name, kind) for kind in kinds)


def principal_problem(principal: str) -> str | None:
    """Return why this is not a principal; None if it is one.  Kafka: SecurityUtils.parseKafkaPrincipal."""
    kind, separator, name = principal.partition(":")
    if not separator or not kind or not name:
        return f"expected a principal as Type:name, such as User:alice, got {principal!r}"
    return None


def binding_problem(binding: AclBinding) -> str | None:
    """Return why this ACL cannot be stored; None if it can.  The rules that Kafka's broker applies at creation."""
    pattern, entry = binding
    if pattern.type is ResourceType.ANY or pattern.pattern_type in {PatternType.ANY, PatternType.MATCH}:
        return "the resource of an ACL has a type and a pattern type of LITERAL or PREFIXED"
    if entry.operation is Operation.ANY or entry.permission is Permission.ANY:
        return "an ACL has one operation and one permission; ANY is for filters"
    if not pattern.name:
        return "the resource name is empty"
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"the only name of the cluster resource is {CLUSTER_NAME}"
    if not entry.host:
        return "the host is empty"
    return principal_problem(entry.principal)

"""Lists, creates and deletes ACLs.  KIP-140, KIP-290 (prefixed patterns).

Requests for changes are sent to the controller, which in clusters without ZooKeeper is reached through any broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.outcome import Outcome, outcome_of, raise_if
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.output.documents import read_json
from kctl.protocol.apis.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kctl.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from kctl.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse
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
    binding_problem,
    principal_problem,
)

PATTERN_TYPES_VERSION_MIN = 1
"""Older versions of these APIs have literal patterns only (before Kafka 2.0)."""


async def list_acls(client: ClusterClient, filters: Sequence[AclFilter] = ()) -> list[AclBinding]:
    """Return the ACLs that any of the filters selects, sorted; all without filters.

    Raises ApiError, for example SECURITY_DISABLED without an authorizer, and ClusterUnreachable.
    """

    async def describe(connection: Connection) -> list[AclBinding]:
        found: set[AclBinding] = set()
        for acl_filter in filters or (AclFilter(),):
            found.update(await _describe(connection, acl_filter))
        return sorted(found)

    return await client.on_any_broker(describe)


async def create_acls(client: ClusterClient, bindings: Sequence[AclBinding]) -> list[Outcome]:
    """Create ACLs; one outcome for each, in order.  One that exists already succeeds."""

    async def create(connection: Connection) -> list[Outcome]:
        if any(binding.pattern.pattern_type is not PatternType.LITERAL for binding in bindings):
            _check_pattern_types(connection)
        creations = [
            AclCreation(
                resource_type=pattern.type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in bindings
        ]
        response = await connection.send(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for result in response.results:
            raise_if(result.error_code, ErrorCode.NOT_CONTROLLER)
        return [
            outcome_of(str(binding), result.error_code, result.error_message)
            for binding, result in zip(bindings, response.results, strict=True)
        ]

    return await client.on_controller(create)


async def delete_acls(client: ClusterClient, bindings: Sequence[AclBinding]) -> list[Outcome]:
    """Delete exactly these ACLs; one outcome for each, in order.  One that does not exist succeeds."""

    async def delete(connection: Connection) -> list[Outcome]:
        if any(binding.pattern.pattern_type is not PatternType.LITERAL for binding in bindings):
            _check_pattern_types(connection)
        request = DeleteAclsRequest(filters=[_filter_of(binding) for binding in bindings])
        response = await connection.send(request, DeleteAclsResponse)
        outcomes = []
        for binding, result in zip(bindings, response.filter_results, strict=True):
            raise_if(result.error_code, ErrorCode.NOT_CONTROLLER)
            failed = next((acl for acl in result.matching_acls if acl.error_code), None) or result
            outcomes.append(outcome_of(str(binding), failed.error_code, failed.error_message))
        return outcomes

    return await client.on_controller(delete)


async def _describe(connection: Connection, selection: AclFilter) -> Iterable[AclBinding]:
    pattern_type = selection.pattern_type
    if not _has_pattern_types(connection):
        # Such brokers have literal patterns only, and version 0 cannot request anything else.
        if pattern_type is PatternType.PREFIXED:
            return []
        pattern_type = PatternType.LITERAL
    request = DescribeAclsRequest(
        resource_type_filter=selection.resource_type,
        resource_name_filter=selection.name,
        pattern_type_filter=pattern_type,
        principal_filter=selection.principal,
        host_filter=selection.host,
        operation=selection.operation,
        permission_type=selection.permission,
    )
    response = await connection.send(request, DescribeAclsResponse)
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        raise ApiError(code, response.error_message or code.description)
    return [binding for resource in response.resources for binding in _bindings(resource)]


def _bindings(resource: DescribeAclsResource) -> Iterable[AclBinding]:
    """Yield the ACLs of a resource; raise ApiError for numbers that this version does not define."""
    try:
        pattern = ResourcePattern(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
        )
        for acl in resource.acls:
            entry = AclEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type))
            yield AclBinding(pattern, entry)
    except ValueError as error:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the broker has an ACL of an unknown kind: {error}") from error


def _filter_of(binding: AclBinding) -> DeleteAclsFilter:
    pattern, entry = binding
    return DeleteAclsFilter(
        resource_type_filter=pattern.type,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _has_pattern_types(connection: Connection) -> bool:
    return connection.versions.highest(DescribeAclsRequest) >= PATTERN_TYPES_VERSION_MIN


def _check_pattern_types(connection: Connection) -> None:
    if not _has_pattern_types(connection):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "prefixed patterns need Kafka 2.0 or newer")


# The ACLs of the options that kctl and Kafka's tool have in common, and the rules of a producer or a consumer.
#
# Kafka: AclCommand. Pure.


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
        """Return all resources, each once."""
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
        """Return the resources as patterns; the cluster is always literal."""
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
        """Return all combinations of principals, hosts and operations."""
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
    """Return the ACLs that a command line describes, each once.  Raises UsageError."""
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
    """Return the ACLs, each once; raise UsageError for an operation that does not exist on a type of resource."""
    found: dict[AclBinding, None] = {}
    for pattern, operations in requested:
        for operation in operations:
            supported = SUPPORTED_OPERATIONS[pattern.type]
            if operation is not Operation.ALL and operation not in supported:
                names = ", ".join(candidate.label for candidate in (*supported, Operation.ALL))
                raise UsageError(f"{pattern.type.label} has no operation {operation.label}, only {names}")
        for entry in rules.entries(operations):
            found[AclBinding(pattern, entry)] = None
    return list(found)


def filters(resources: Resources, rules: Rules) -> list[AclFilter]:
    """Return the filters for the ACLs that a command line describes; a part that is not given selects everything."""
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


# ACLs as a JSON document, which `kctl acls export` writes and `kctl acls apply` reads. Pure.
#
#     {"version": 1, "acls": [{"resource_type": "Topic", "resource_name": "orders", "pattern_type": "Literal",
#                              "principal": "User:alice", "host": "*", "operation": "Read", "permission": "Allow"}]}
#
# Names are those of Kafka, in any case; `pattern_type` and `host` may be left out and are then Literal and `*`.


_VERSION = 1
_REQUIRED = ("resource_type", "resource_name", "principal", "operation", "permission")
_OPTIONAL = {"pattern_type": PatternType.LITERAL.label, "host": WILDCARD}


class Difference(NamedTuple):
    """The changes after which a cluster has exactly the ACLs of a document."""

    missing: list[AclBinding]
    extra: list[AclBinding]


def difference(requested: Iterable[AclBinding], present: Iterable[AclBinding]) -> Difference:
    """Return the ACLs to create and those that the document does not have, both sorted."""
    requested, present = set(requested), set(present)
    return Difference(sorted(requested - present), sorted(present - requested))


def fields(binding: AclBinding) -> dict[str, str]:
    """Return an ACL as an object of the document."""
    pattern, entry = binding
    return {
        "resource_type": pattern.type.label,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.label,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.label,
        "permission": entry.permission.label,
    }


def write_document(acls: Sequence[AclBinding]) -> str:
    """Return the document with a line for each ACL, sorted, so that two exports can be compared as text."""
    lines = [json.dumps(fields(binding), ensure_ascii=False) for binding in sorted(acls)]
    body = "[\n    " + ",\n    ".join(lines) + "\n  ]" if lines else "[]"
    return f'{{\n  "version": {_VERSION},\n  "acls": {body}\n}}\n'


def read_document(text: bytes, path: str) -> list[AclBinding]:
    """Return the ACLs of a document, each once.  Raises UsageError with the path and the number of the ACL."""
    try:
        document = read_json(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise UsageError(f'{path}: expected an object with "version": {_VERSION}, as kctl acls export writes it')
    acls = document.get("acls")
    unknown = document.keys() - {"version", "acls"}
    if not isinstance(acls, list) or unknown:
        raise UsageError(f'{path}: expected "version" and a list "acls" and nothing else')
    found: dict[AclBinding, None] = {}
    for number, acl in enumerate(acls, start=1):
        try:
            found[binding_of(acl)] = None
        except ValueError as error:
            raise UsageError(f"{path}: ACL {number}: {error}") from None
    return list(found)


def binding_of(document: Any) -> AclBinding:
    """Return the ACL that an object of the document describes.  Raises ValueError."""
    if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
        raise ValueError("expected an object whose values are text")
    unknown = document.keys() - {*_REQUIRED, *_OPTIONAL}
    missing = [name for name in _REQUIRED if name not in document]
    if unknown or missing:
        reason = f"has no {missing[0]}" if missing else f"has an unknown field {min(unknown)}"
        raise ValueError(reason)
    given = _OPTIONAL | document
    pattern = ResourcePattern(
        ResourceType.of_label(given["resource_type"]),
        given["resource_name"],
        PatternType.of_label(given["pattern_type"]),
    )
    entry = AclEntry(
        given["principal"],
        given["host"],
        Operation.of_label(given["operation"]),
        Permission.of_label(given["permission"]),
    )
    problem = binding_problem(AclBinding(pattern, entry))
    if problem is not None:
        raise ValueError(problem)
    return AclBinding(pattern, entry)

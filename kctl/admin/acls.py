"""Lists, creates and deletes ACLs.  KIP-140, KIP-290 (prefixed patterns).

Requests for changes are sent to the controller, which in clusters without ZooKeeper is reached through any broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kctl.admin.outcome import Outcome, outcome_of, raise_if
from kctl.client.cluster import ClusterClient
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kctl.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from kctl.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse
from kctl.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

PATTERN_TYPES_VERSION_MIN = 1
"""Older versions of these APIs have literal patterns only (before Kafka 2.0)."""


async def list_acls(client: ClusterClient, filters: Sequence[AclFilter] = ()) -> list[AclBinding]:
    """The ACLs that any of the filters selects, sorted; all without filters.

    Raises ApiError, for example SECURITY_DISABLED without an authorizer, and ClusterUnreachable.
    """

    async def describe(connection: Connection) -> list[AclBinding]:
        found: set[AclBinding] = set()
        for each in filters or (AclFilter(),):
            found.update(await _describe(connection, each))
        return sorted(found)

    return await client.on_any_broker(describe)


async def create_acls(client: ClusterClient, bindings: Sequence[AclBinding]) -> list[Outcome]:
    """Creates ACLs; one outcome for each, in order.  One that exists already succeeds."""

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
    """Deletes exactly these ACLs; one outcome for each, in order.  One that does not exist succeeds."""

    async def delete(connection: Connection) -> list[Outcome]:
        if any(binding.pattern.pattern_type is not PatternType.LITERAL for binding in bindings):
            _check_pattern_types(connection)
        request = DeleteAclsRequest(filters=[_filter_of(binding) for binding in bindings])
        response = await connection.send(request, DeleteAclsResponse)
        outcomes = []
        for binding, result in zip(bindings, response.filter_results, strict=True):
            raise_if(result.error_code, ErrorCode.NOT_CONTROLLER)
            failed = next((each for each in result.matching_acls if each.error_code), None) or result
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
    """Raises ApiError for numbers that this version does not define."""
    try:
        pattern = ResourcePattern(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
        )
        for each in resource.acls:
            entry = AclEntry(each.principal, each.host, Operation(each.operation), Permission(each.permission_type))
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

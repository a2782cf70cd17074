"""ACLs and filters of requests as values."""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.create_acls import AclCreation
from kctl.protocol.apis.delete_acls import DeleteAclsFilter
from kctl.protocol.apis.describe_acls import DescribeAclsRequest
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


def requested_binding(creation: AclCreation) -> AclBinding:
    """The ACL to create.  Raises ApiError(INVALID_REQUEST) for an unknown number."""
    try:
        pattern = ResourcePattern(
            ResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(creation.resource_pattern_type),
        )
        entry = AclEntry(
            creation.principal, creation.host, Operation(creation.operation), Permission(creation.permission_type)
        )
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The ACL has an unknown element: {error}.") from error
    return AclBinding(pattern, entry)


def requested_filter(requested: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter.  Raises ApiError(INVALID_REQUEST) for an unknown number."""
    try:
        return AclFilter(
            ResourceType(requested.resource_type_filter),
            requested.resource_name_filter,
            PatternType(requested.pattern_type_filter),
            requested.principal_filter,
            requested.host_filter,
            Operation(requested.operation),
            Permission(requested.permission_type),
        )
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The filter has an unknown element: {error}.") from error

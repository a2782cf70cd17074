"""DescribeAcls (key 29, versions 0-2): the ACLs that match a filter (KIP-140).

1: pattern types (KIP-290).  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, request, response, string, struct


@request(key=29, versions="0-2", flexible="2+")
class DescribeAclsRequest:
    """A filter for ACLs; null and the number 1 (any) match everything."""

    resource_type_filter: int = int8()
    """As in AclCreation; 1 for all types."""
    resource_name_filter: str | None = string(nullable="0+")
    """Null for all names."""
    pattern_type_filter: int = int8("1+", default=3)
    """2 (match) also selects prefixed and wildcard patterns that apply to the resource name."""
    principal_filter: str | None = string(nullable="0+")
    """Null for all principals."""
    host_filter: str | None = string(nullable="0+")
    """Null for all hosts."""
    operation: int = int8()
    """The code of a kctl.security.acls.Operation, such as 3 for read."""
    permission_type: int = int8()
    """2: deny; 3: allow."""


@struct
class AclDescription:
    """An ACL of a resource."""

    principal: str = string()
    """`type:name`, such as `User:alice`."""
    host: str = string()
    operation: int = int8()
    """The code of a kctl.security.acls.Operation, such as 3 for read."""
    permission_type: int = int8()
    """2: deny; 3: allow."""


@struct
class DescribeAclsResource:
    """A resource pattern and its ACLs."""

    resource_type: int = int8()
    """2: topic; 3: group; 4: cluster; 5: transactional id; 6: delegation token."""
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    """3: literal; 4: prefixed."""
    acls: list[AclDescription] = array(AclDescription)


@response(key=29, versions="0-2", flexible="2+")
class DescribeAclsResponse:
    """The matching ACLs by resource pattern."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)

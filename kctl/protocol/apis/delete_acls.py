"""DeleteAcls (key 31, versions 0-2): removes the ACLs that match filters (KIP-140).

1: pattern types (KIP-290).  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, request, response, string, struct


@struct
class DeleteAclsFilter:
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


@request(key=31, versions="0-2", flexible="2+")
class DeleteAclsRequest:
    """Removes all ACLs that match any of the filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@struct
class DeleteAclsMatchingAcl:
    """An ACL that was removed, or the error of its removal."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    """2: topic; 3: group; 4: cluster; 5: transactional id; 6: delegation token."""
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    """3: literal; 4: prefixed."""
    principal: str = string()
    host: str = string()
    operation: int = int8()
    """The code of a kctl.security.acls.Operation, such as 3 for read."""
    permission_type: int = int8()
    """2: deny; 3: allow."""


@struct
class DeleteAclsFilterResult:
    """The ACLs that matched one filter."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@response(key=31, versions="0-2", flexible="2+")
class DeleteAclsResponse:
    """One result per filter, in the order of the request."""

    throttle_time_ms: int = int32(default=0)
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)

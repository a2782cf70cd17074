"""DeleteAcls (key 31, versions 0-2): removes the ACLs that match filters (KIP-140).

1: pattern types (KIP-290).  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, request, response, string, struct


@struct
class DeleteAclsFilter:
    """A filter for ACLs; null and the number 1 (any) match everything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    """2 (match) also selects prefixed and wildcard patterns that apply to the resource name."""
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


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
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


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

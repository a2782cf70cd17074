"""CreateAcls (key 30, versions 0-2): adds ACLs (KIP-140).

1: pattern types (KIP-290).  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, request, response, string, struct


@struct
class AclCreation:
    """An ACL to add; the numbers are listed in kctl.protocol.apis."""

    resource_type: int = int8()
    """2: topic; 3: group; 4: cluster; 5: transactional id; 6: delegation token."""
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    """Version 0 has literal patterns only."""
    principal: str = string()
    """`type:name`, such as `User:alice`; `User:*` for all users."""
    host: str = string()
    """Address of the client; `*` for all."""
    operation: int = int8()
    """The code of a kctl.security.acls.Operation, such as 3 for read."""
    permission_type: int = int8()
    """2: deny; 3: allow."""


@request(key=30, versions="0-2", flexible="2+")
class CreateAclsRequest:
    """Adds ACLs; each succeeds or fails independently."""

    creations: list[AclCreation] = array(AclCreation)


@struct
class AclCreationResult:
    """The result for one ACL."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(key=30, versions="0-2", flexible="2+")
class CreateAclsResponse:
    """One result per ACL, in the order of the request."""

    throttle_time_ms: int = int32(default=0)
    results: list[AclCreationResult] = array(AclCreationResult)

"""AlterClientQuotas (key 49, versions 0-1): sets or removes quotas of users, client ids and addresses (KIP-546).

1: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, float64, int16, int32, request, response, string, struct


@struct
class RequestEntityData:
    """One part of a quota entity."""

    entity_type: str = string()
    """`user`, `client-id` or `ip`."""
    entity_name: str | None = string(nullable="0+")
    """Null for the default entity of the type."""


@struct
class OpData:
    """A change of one quota."""

    key: str = string()
    """Name of the quota; `producer_byte_rate`, `consumer_byte_rate` and `connection_creation_rate` are per second."""
    value: float = float64()
    """For `request_percentage` percent of a request handler thread; ignored for a removal."""
    remove: bool = boolean()
    """True to remove the quota instead of setting it."""


@struct
class RequestEntryData:
    """The changes for one entity, such as a user or a client id of a user."""

    entity: list[RequestEntityData] = array(RequestEntityData)
    ops: list[OpData] = array(OpData)


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Sets or removes quotas; entries succeed or fail independently."""

    entries: list[RequestEntryData] = array(RequestEntryData)
    validate_only: bool = boolean()
    """Check the request, and change nothing."""


@struct
class ResponseEntityData:
    """One part of a quota entity, as in the request."""

    entity_type: str = string()
    """`user`, `client-id` or `ip`."""
    entity_name: str | None = string(nullable="0+")
    """Null for the default of the type."""


@struct
class ResponseEntryData:
    """The result for one entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entity: list[ResponseEntityData] = array(ResponseEntityData)


@response(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """One result per entry of the request."""

    throttle_time_ms: int = int32(default=0)
    entries: list[ResponseEntryData] = array(ResponseEntryData)

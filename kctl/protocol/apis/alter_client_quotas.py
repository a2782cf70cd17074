"""AlterClientQuotas (key 49, versions 0-1): set or remove quotas (KIP-546).

An entity whose name is null is the default one.  1: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, float64, int16, int32, request, response, string, struct


@struct
class RequestEntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct
class RequestEntryData:
    entity: list[RequestEntityData] = array(RequestEntityData)
    ops: list[OpData] = array(OpData)


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[RequestEntryData] = array(RequestEntryData)
    validate_only: bool = boolean()


@struct
class ResponseEntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class ResponseEntryData:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entity: list[ResponseEntityData] = array(ResponseEntityData)


@response(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32(default=0)
    entries: list[ResponseEntryData] = array(ResponseEntryData)

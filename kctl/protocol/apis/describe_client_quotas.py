"""DescribeClientQuotas (key 48, versions 0-1): quotas of users, client ids and addresses (KIP-546).

`match_type` tells what is meant: 0 the entity named by `match`, 1 the default entity, 2 every entity of the
type, the default included; for 1 and 2 `match` is null.  1: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, float64, int8, int16, int32, request, response, string, struct


@struct
class ComponentData:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@struct
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class ValueData:
    key: str = string()
    value: float = float64()


@struct
class EntryData:
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@response(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default="")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")

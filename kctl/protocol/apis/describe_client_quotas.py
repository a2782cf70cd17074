"""DescribeClientQuotas (key 48, versions 0-1): quotas of users, client ids and addresses (KIP-546).

1: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, float64, int8, int16, int32, request, response, string, struct


@struct
class ComponentData:
    """A filter for one part of a quota entity."""

    entity_type: str = string()
    """`user`, `client-id` or `ip`."""
    match_type: int = int8()
    """0 the entity named by `match`, 1 the default entity, 2 every entity of the type, including the default."""
    match: str | None = string(nullable="0+")
    """A name for match type 0, null for 1 and 2."""


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """Selects the entities that match all components."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()
    """True to exclude entities with parts that `components` does not name."""


@struct
class EntityData:
    """One part of a quota entity."""

    entity_type: str = string()
    """`user`, `client-id` or `ip`."""
    entity_name: str | None = string(nullable="0+")
    """Null for the default entity of the type."""


@struct
class ValueData:
    """A quota; AlterClientQuotas lists the keys and units."""

    key: str = string()
    value: float = float64()


@struct
class EntryData:
    """The quotas of one entity."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@response(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The matching entities."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default="")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
    """Null on an error."""

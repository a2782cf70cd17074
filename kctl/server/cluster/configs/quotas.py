"""Client quotas as data: entities, values and filters.  KIP-546, KIP-599, KIP-612.

An entity is a user, a client id, both together, or an IP address; None instead of a name means the default.  Quotas are
stored as text below /config in Kafka's layout; `quotas` enforces them.

Kafka: ZkAdminManager.alterClientQuotas, describeClientQuotas and DynamicConfig (2.8).

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum

from kctl.errors import ApiError, ErrorCode
from kctl.security.quotas import EntityType
from kctl.zookeeper.paths import DEFAULT_ENTITY, desanitize, sanitize


class MatchType(IntEnum):
    """The kinds of matches of a filter component, by the numbers in the protocol."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


Entity = Mapping[EntityType, str | None]
"""The name per type, None for the default."""

FOLDERS = {EntityType.USER: "users", EntityType.CLIENT_ID: "clients", EntityType.IP: "ips"}
"""The nodes of the entities below /config; those of a user's clients are below the user."""

_EPSILON = 1e-6
"""The largest difference of a value to an integer quota.  Kafka: ZkAdminManager."""


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A change of one quota; None removes it."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class FilterComponent:
    """The required name of one type; `name` is used for EXACT only."""

    match_type: MatchType
    name: str | None


Filter = Mapping[EntityType, FilterComponent]


def checked_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity of these types and names; if a type is given twice, the last name counts, as in Kafka.

    Raises ApiError(INVALID_REQUEST) for an invalid combination.
    """
    entity: dict[EntityType, str | None] = {}
    for type_name, name in parts:
        if type_name not in set(EntityType):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown entity type: {type_name}")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"The name of the {type_name} is empty.")
        entity[EntityType(type_name)] = name
    if not entity:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The entity has neither user nor client ID nor IP address.")
    if EntityType.IP in entity and len(entity) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "An IP address cannot be combined with a user or a client ID.")
    return entity


def entity_path(entity: Entity) -> str:
    """Return the path of the entity's quotas below /config, for example `users/alice/clients/<default>`."""
    return "/".join(
        f"{FOLDERS[entity_type]}/{_path_element(entity[entity_type])}"
        for entity_type in EntityType
        if entity_type in entity
    )


def entity_name(path_element: str) -> str | None:
    """Return the name in a path element; None for the default."""
    return None if path_element == DEFAULT_ENTITY else desanitize(path_element)


def changed_quotas(current: Mapping[str, str], entity: Entity, changes: Sequence[QuotaChange]) -> Mapping[str, str]:
    """Return the stored configuration of the entity after the changes; other properties are kept.

    Raises ApiError(INVALID_REQUEST) for a key that the entity cannot have, or an invalid value.
    """
    texts = _IP_QUOTAS if EntityType.IP in entity else _USER_AND_CLIENT_QUOTAS
    changed = dict(current)
    for change in changes:
        if change.value is None:
            if change.key in texts:
                changed.pop(change.key, None)
        elif change.key not in texts:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {change.key}")
        else:
            changed[change.key] = texts[change.key](change.key, change.value)
    return changed


def stored_quotas(config: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas in the stored configuration of an entity.  Raises ApiError for a value that is not a number."""
    quotas = {}
    for key in (*_USER_AND_CLIENT_QUOTAS, *_IP_QUOTAS):
        if key in config:
            try:
                quotas[key] = float(config[key])
            except ValueError:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"The stored value of {key} is not a number: {config[key]}"
                ) from None
    return quotas


def checked_filter(components: Iterable[tuple[str, int, str | None]]) -> Filter:
    """Return the filter of these types, match types and names.

    Raises ApiError: UNSUPPORTED_VERSION for an unknown type, INVALID_REQUEST for an invalid combination.
    """
    requested: dict[EntityType, FilterComponent] = {}
    for type_name, match_type, name in components:
        if type_name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, "A filter component has an empty entity type.")
        if type_name not in set(EntityType):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"The entity type '{type_name}' is not supported.")
        entity_type = EntityType(type_name)
        if entity_type in requested:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"The entity type '{type_name}' is in the filter twice.")
        if match_type not in set(MatchType):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type: {match_type}")
        if match_type == MatchType.EXACT and name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"An exact match needs the name of the {type_name}.")
        requested[entity_type] = FilterComponent(MatchType(match_type), name)
    if EntityType.IP in requested and len(requested) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "An IP address cannot be combined with a user or a client ID.")
    return requested


def may_match(requested: Filter, types: Iterable[EntityType], *, is_strict: bool) -> bool:
    """Return whether an entity of exactly these types can match: it has all types of the filter, and no others if
    strict.
    """
    present = set(types)
    return requested.keys() == present if is_strict else requested.keys() <= present


def matches(requested: Filter, entity_type: EntityType, name: str | None) -> bool:
    """Return whether the name matches the filter; a type without a component matches, and ANY includes the default."""
    component = requested.get(entity_type)
    if component is None or component.match_type is MatchType.ANY:
        return True
    return name == (component.name if component.match_type is MatchType.EXACT else None)


def _path_element(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else sanitize(name)


_JAVA_TYPES = {32: "a INT", 64: "a LONG"}
"""As Kafka names them in the error, with its article."""


def _integer_text(bits: int, key: str, value: float) -> str:
    """Round as Java casts do: towards zero, limited to the range of the type, and NaN to 0."""
    highest = (1 << bits - 1) - 1
    if math.isnan(value):
        return "0"
    if math.isinf(value) or abs((rounded := min(max(int(value + _EPSILON), -highest - 1), highest)) - value) > _EPSILON:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Configuration {key} must be {_JAVA_TYPES[bits]} value")
    return str(rounded)


def _int_text(key: str, value: float) -> str:
    return _integer_text(32, key, value)


def _long_text(key: str, value: float) -> str:
    return _integer_text(64, key, value)


def _double_text(_key: str, value: float) -> str:
    """Return the text of Java's Double.toString."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


_Text = Callable[[str, float], str]
_USER_AND_CLIENT_QUOTAS: Mapping[str, _Text] = {
    "producer_byte_rate": _long_text,
    "consumer_byte_rate": _long_text,
    "request_percentage": _double_text,
    "controller_mutation_rate": _double_text,
}
_IP_QUOTAS: Mapping[str, _Text] = {"connection_creation_rate": _int_text}

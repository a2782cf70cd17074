"""The configured limits of one kind of quota, and which of them applies to a client.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kctl.errors import KctlError
from kctl.security.quotas import CLIENT_KEYS, DEFAULT, IP_KEYS, Name, QuotaEntity, QuotaGroup, candidates
from kctl.zookeeper.paths import DEFAULT_ENTITY, desanitize


class Limit(NamedTuple):
    """The limit that applies to a client, and the clients with which it shares its rate."""

    value: float
    entity: QuotaEntity
    group: QuotaGroup


class QuotaLimits:
    """Limits by entity.  `fallback` applies to each client id without a limit (quota.producer.default); None: none."""

    def __init__(self, fallback: float | None = None) -> None:
        self._by_entity: dict[QuotaEntity, float] = {}
        self._fallback = fallback

    @property
    def is_empty(self) -> bool:
        """True if no client has a limit."""
        return not self._by_entity and self._fallback is None

    def keep(self, entities: Collection[QuotaEntity]) -> None:
        """Remove the limits of other entities."""
        for entity in self._by_entity.keys() - set(entities):
            del self._by_entity[entity]

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set or, with None, remove the limit of an entity."""
        if limit is None:
            self._by_entity.pop(entity, None)
        else:
            self._by_entity[entity] = limit

    def limit_of(self, user: str, client_id: str) -> Limit | None:
        """Return the limit that applies to a client; None if it may use any amount."""
        for entity in candidates(user, client_id):
            limit = self._by_entity.get(entity)
            if limit is not None:
                return Limit(limit, entity, entity.group(user, client_id))
        if self._fallback is None or not client_id:
            return None
        entity = QuotaEntity(None, DEFAULT)
        return Limit(self._fallback, entity, entity.group(user, client_id))


# Quotas as they are stored in ZooKeeper: paths below /config, and values as text.
#
# Kafka: QuotaConfigHandler, UserConfigHandler, ClientIdConfigHandler and IpConfigHandler (2.8).
#
# Pure.


class InvalidQuota(KctlError):
    """A path that names no entity."""


def client_entity(path: str) -> QuotaEntity:
    """Return the entity of `users/U`, `users/U/clients/C` or `clients/C`.  Raises InvalidQuota."""
    match path.split("/"):
        case ["users", user]:
            return QuotaEntity(_name(user), None)
        case ["clients", client_id]:
            return QuotaEntity(None, _name(client_id))
        case ["users", user, "clients", client_id]:
            return QuotaEntity(_name(user), _name(client_id))
    raise InvalidQuota("the path names neither a user nor a client id")


def ip_name(path: str) -> str | None:
    """Return the address or host name in `ips/NAME`; None for the default."""
    name = path.removeprefix("ips/")
    return None if name == DEFAULT_ENTITY else desanitize(name)


def quota_values(config: Mapping[str, str]) -> tuple[dict[str, float], dict[str, str]]:
    """Return the quotas among the properties of an entity by key, and the problems of those without a valid number."""
    values: dict[str, float] = {}
    problems: dict[str, str] = {}
    for key in (*CLIENT_KEYS, *IP_KEYS):
        text = config.get(key)
        if text is None:
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isnan(value) or (key in IP_KEYS and math.isinf(value)):
            problems[key] = f"{key} is not a number: {text}"
        else:
            values[key] = value
    return values, problems


def _name(path_element: str) -> Name:
    return DEFAULT if path_element == DEFAULT_ENTITY else desanitize(path_element)

"""The configured limits of one kind of quota, and which of them applies to a client.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kctl.security.quotas import DEFAULT, QuotaEntity, QuotaGroup, candidates


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
        """Removes the limits of other entities."""
        for entity in self._by_entity.keys() - set(entities):
            del self._by_entity[entity]

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        """Sets or, with None, removes the limit of an entity."""
        if limit is None:
            self._by_entity.pop(entity, None)
        else:
            self._by_entity[entity] = limit

    def limit_of(self, user: str, client_id: str) -> Limit | None:
        """The limit that applies to a client; None if it may use any amount."""
        for entity in candidates(user, client_id):
            limit = self._by_entity.get(entity)
            if limit is not None:
                return Limit(limit, entity, entity.group(user, client_id))
        if self._fallback is None or not client_id:
            return None
        entity = QuotaEntity(None, DEFAULT)
        return Limit(self._fallback, entity, entity.group(user, client_id))

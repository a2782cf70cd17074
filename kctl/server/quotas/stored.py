"""Quotas as they are stored in ZooKeeper: paths below /config, and values as text.

Kafka: QuotaConfigHandler, UserConfigHandler, ClientIdConfigHandler and IpConfigHandler (2.8).

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kctl.errors import KctlError
from kctl.security.quotas import CLIENT_KEYS, DEFAULT, IP_KEYS, Name, QuotaEntity
from kctl.zookeeper.paths import DEFAULT_ENTITY, desanitize


class InvalidQuota(KctlError):
    """A path that names no entity."""


def client_entity(path: str) -> QuotaEntity:
    """The entity of `users/U`, `users/U/clients/C` or `clients/C`.  Raises InvalidQuota."""
    match path.split("/"):
        case ["users", user]:
            return QuotaEntity(_name(user), None)
        case ["clients", client_id]:
            return QuotaEntity(None, _name(client_id))
        case ["users", user, "clients", client_id]:
            return QuotaEntity(_name(user), _name(client_id))
    raise InvalidQuota("the path names neither a user nor a client id")


def ip_name(path: str) -> str | None:
    """The address or host name in `ips/NAME`; None for the default."""
    name = path.removeprefix("ips/")
    return None if name == DEFAULT_ENTITY else desanitize(name)


def quota_values(config: Mapping[str, str]) -> tuple[dict[str, float], dict[str, str]]:
    """The quotas among the properties of an entity by key, and the problems of those without a valid number."""
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

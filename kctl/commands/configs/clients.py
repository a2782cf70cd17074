"""`kctl configs` for users, client ids and IP addresses: their quotas, and whether users have SCRAM credentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kctl.admin.configs import ConfigChange, ConfigOperation
from kctl.admin.quotas import (
    SCRAM_MECHANISMS,
    Entity,
    EntityQuotas,
    FilterPart,
    QuotaChange,
    ScramUser,
    describe_quotas,
    describe_scram_users,
)
from kctl.errors import UsageError
from kctl.security.quotas import CLIENT_KEYS, IP_KEYS, EntityType, joined_names, parse_name

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

ALL_CLIENTS = "*"
TYPES = {"user": EntityType.USER, "client": EntityType.CLIENT_ID, "ip": EntityType.IP}
"""Entity types by their names on the command line."""


def shown_name(entity: Entity) -> str:
    """The name in a row: of a user's client id as in Kafka's path, such as `alice/clients/app`.

    In a name, `/clients/` is `+/clients/`.
    """
    return joined_names(entity, "/clients/")


def filters(type_: str, names: Sequence[str] | None, client: str | None) -> list[list[FilterPart]]:
    """One filter for each name, or one for all entities of the type.  Raises UsageError for --client without users.

    The texts are those of `name_text`; as a client, `*` is any one, and `+*` the one with this name.
    """
    if client is not None and type_ != "user":
        raise UsageError("--client names a client id of a user; it needs the type 'user'")
    more = [] if client is None else [_client_part(client)]
    requested: Sequence[str | None] = names or [None]
    return [[_part(TYPES[type_], name), *more] for name in requested]


async def quotas_of(client: ClusterClient, requested: Sequence[Sequence[FilterPart]]) -> list[EntityQuotas]:
    """The quotas that match the filters and have no further parts."""
    found: list[EntityQuotas] = []
    for parts in requested:
        found += (await describe_quotas(client, parts, is_strict=True))[0]
    return found


async def scram_users_of(client: ClusterClient, requested: Sequence[Sequence[FilterPart]]) -> list[ScramUser]:
    """The SCRAM credentials of the users that the filters name; none for filters of anything else, as in Kafka."""
    if any(len(parts) > 1 or parts[0].type is not EntityType.USER for parts in requested):
        return []
    if any(part.name is None and not part.is_any for (part,) in requested):
        return []
    return await describe_scram_users(client, [part.name for (part,) in requested if part.name is not None])


def quota_changes(type_: str, changes: Sequence[ConfigChange]) -> list[QuotaChange]:
    """The changes as quotas.  Raises UsageError for a name that is not a quota of the type, and an invalid number."""
    known = IP_KEYS if type_ == "ip" else CLIENT_KEYS
    requested: list[QuotaChange] = []
    for change in changes:
        if type_ == "user" and change.name.upper() in SCRAM_MECHANISMS.values():
            raise UsageError(
                f"{change.name} is a credential, not a quota; `kctl users create`, `alter` and `delete` change it"
            )
        if change.name not in known:
            raise UsageError(f"'{change.name}' is not a quota of a {type_}; use one of {', '.join(known)}")
        if change.operation not in {ConfigOperation.SET, ConfigOperation.DELETE}:
            raise UsageError("quotas are not lists; give --set or --delete")
        try:
            value = None if change.value is None else float(change.value)
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise UsageError(f"{change.name} must be a number, not '{change.value}'")
        requested.append(QuotaChange(change.name, value))
    return requested


def _part(kind: EntityType, text: str | None) -> FilterPart:
    return FilterPart(kind, None if text is None else parse_name(text), is_any=text is None)


def _client_part(text: str) -> FilterPart:
    return _part(EntityType.CLIENT_ID, None if text == ALL_CLIENTS else parse_name(text, ALL_CLIENTS) or text)

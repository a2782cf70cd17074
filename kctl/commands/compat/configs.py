"""The output of Kafka's kafka-configs for users, client ids and IP addresses, byte for byte.  Pure.

ConfigCommand of 2.8; tests compare with the tool itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kctl.admin.quotas import Entity, EntityQuotas, ScramUser
from kctl.commands.compat.hash_order import java_order
from kctl.commands.compat.java_text import java_double
from kctl.model import java_hash
from kctl.security.quotas import EntityType

_TYPE_NAMES = {EntityType.USER: "user-principal", EntityType.CLIENT_ID: "client-id", EntityType.IP: "ip"}


def quotas(found: Sequence[EntityQuotas]) -> str:
    """The output of `--describe` for quotas, in the order of the client's HashMap."""
    by_hash: dict[int, list[EntityQuotas]] = {}
    for one in found:
        by_hash.setdefault(_hash(one.entity), []).append(one)
    ordered = [one for number in java_order(by_hash, room=len(found)) for one in by_hash[number]]
    return "".join(f"Quota configs for {_entity(one.entity)} are {_values(one)}\n" for one in ordered)


def scram_users(found: Iterable[ScramUser]) -> str:
    """The output of `--describe` for SCRAM credentials of users."""
    return "".join(
        f"SCRAM credential configs for user-principal '{one.outcome.name}' are "
        + ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in one.credentials)
        + "\n"
        for one in found
        if one.outcome.is_done
    )


def altered(type_name: str, name: str | None) -> str:
    """The output of `--alter` after a change of the named entity, or of the default; `type_name` is in the singular."""
    if name is None:
        return f"Completed updating default config for {type_name}s in the cluster.\n"
    return f"Completed updating config for {type_name} {name}.\n"


def _entity(entity: Entity) -> str:
    names = dict(entity)
    return ", ".join(
        f"the default {text}" if names[kind] is None else f"{text} '{names[kind]}'"
        for kind, text in _TYPE_NAMES.items()
        if kind in names
    )


def _values(one: EntityQuotas) -> str:
    keys = java_order(one.quotas, room=len(one.quotas))
    return ", ".join(f"{key}={java_double(one.quotas[key])}" for key in keys)


def _hash(entity: Entity) -> int:
    """ClientQuotaEntity.hashCode, without its sign."""
    parts = (java_hash(kind) ^ (0 if name is None else java_hash(name)) for kind, name in entity)
    return 31 + sum(parts) & 0xFFFFFFFF

"""The output of Kafka's kafka-configs, byte for byte.  Pure.

ConfigCommand of 2.8, 3.9 and 4.3; tests compare with the tools themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kctl.admin.configs import BROKER_DEFAULTS, ConfigEntry, ConfigResource, ResourceType
from kctl.admin.quotas import Entity, EntityQuotas, ScramUser
from kctl.commands.compat.hash_order import java_order
from kctl.commands.compat.java_text import java_double
from kctl.commands.compat.versions import KAFKA_4, KAFKA_28
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


def described(
    compat: str, resource: ConfigResource, entries: Sequence[ConfigEntry], *, with_inherited: bool = False
) -> str:
    """The output of `--describe` for a topic, a broker or the defaults of all brokers.

    `entries` are all properties in the order of the response; `with_inherited` is the option --all.
    """
    by_name = {entry.name: entry for entry in entries}
    names = java_order(by_name) if compat == KAFKA_28 else sorted(by_name)
    shown = [by_name[name] for name in names if with_inherited or by_name[name].source == resource.own_source]
    if resource.name == BROKER_DEFAULTS:
        heading = "Default configs for brokers in the cluster are:"
    else:
        kind = "All" if with_inherited else "Dynamic"
        heading = f"{kind} configs for {resource.type.name.lower()} {resource.name} are:"
    return "".join(f"{line}\n" for line in (heading, *map(_property, shown)))


def not_described(compat: str, resource: ConfigResource) -> str:
    """The output of `--describe` for a resource that does not exist: 4 looks topics up first."""
    kind = resource.type.name.lower()
    if resource.type is not ResourceType.TOPIC:
        return ""
    if compat == KAFKA_4:
        return f"The {kind} '{resource.name}' doesn't exist and doesn't have dynamic config.\n"
    return f"Dynamic configs for {kind} {resource.name} are:\n"


def _property(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{one.source}:{one.name}={_java_text(one.value)}" for one in entry.synonyms)
    sensitive = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={_java_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _java_text(value: str | None) -> str:
    return "null" if value is None else value


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

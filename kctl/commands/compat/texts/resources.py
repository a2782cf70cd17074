"""The output of kafka-configs and kafka-acls."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from kctl.admin.security.quotas import Entity, EntityQuotas, ScramUser
from kctl.admin.topics.configs import BROKER_DEFAULTS, ConfigEntry, ConfigResource, ResourceType
from kctl.commands.compat.texts.java import KAFKA_4, KAFKA_28, java_double, java_order
from kctl.model import java_hash
from kctl.security.acls import AclBinding, AclEntry, ResourcePattern
from kctl.security.quotas import EntityType

# The output of Kafka's kafka-configs, byte for byte. Pure.
#
# ConfigCommand of 2.8, 3.9 and 4.3; tests compare with the tools themselves.


_TYPE_NAMES = {EntityType.USER: "user-principal", EntityType.CLIENT_ID: "client-id", EntityType.IP: "ip"}


def quotas(found: Sequence[EntityQuotas]) -> str:
    """Return the output of `--describe` for quotas, in the order of the client's HashMap."""
    by_hash: dict[int, list[EntityQuotas]] = {}
    for quotas_of_entity in found:
        by_hash.setdefault(_hash(quotas_of_entity.entity), []).append(quotas_of_entity)
    ordered = [
        quotas_of_entity for number in java_order(by_hash, room=len(found)) for quotas_of_entity in by_hash[number]
    ]
    return "".join(
        f"Quota configs for {_entity(quotas_of_entity.entity)} are {_values(quotas_of_entity)}\n"
        for quotas_of_entity in ordered
    )


def scram_users(found: Iterable[ScramUser]) -> str:
    """Return the output of `--describe` for SCRAM credentials of users."""
    return "".join(
        f"SCRAM credential configs for user-principal '{user.outcome.name}' are "
        + ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in user.credentials)
        + "\n"
        for user in found
        if user.outcome.is_done
    )


def described(
    compat: str, resource: ConfigResource, entries: Sequence[ConfigEntry], *, with_inherited: bool = False
) -> str:
    """Return the output of `--describe` for a topic, a broker or the defaults of all brokers.

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
    """Return the output of `--describe` for a resource that does not exist: 4 looks topics up first."""
    kind = resource.type.name.lower()
    if resource.type is not ResourceType.TOPIC:
        return ""
    if compat == KAFKA_4:
        return f"The {kind} '{resource.name}' doesn't exist and doesn't have dynamic config.\n"
    return f"Dynamic configs for {kind} {resource.name} are:\n"


def _property(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{synonym.source}:{synonym.name}={_java_text(synonym.value)}" for synonym in entry.synonyms)
    sensitive = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={_java_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _java_text(value: str | None) -> str:
    return "null" if value is None else value


def altered(type_name: str, name: str | None) -> str:
    """Return the output of `--alter` after a change of the named entity, or of the default; `type_name` is in the
    singular.
    """
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


def _values(quotas_of_entity: EntityQuotas) -> str:
    keys = java_order(quotas_of_entity.quotas, room=len(quotas_of_entity.quotas))
    return ", ".join(f"{key}={java_double(quotas_of_entity.quotas[key])}" for key in keys)


def _hash(entity: Entity) -> int:
    """ClientQuotaEntity.hashCode, without its sign."""
    parts = (java_hash(kind) ^ (0 if name is None else java_hash(name)) for kind, name in entity)
    return 31 + sum(parts) & 0xFFFFFFFF


# The output of kafka-acls of 2.8, 3.9 and 4.3; 2.8 also lists the ACLs of the resources after a change.
#
# Kafka prints the ACLs of a resource in the order of a Scala set of objects whose hash codes change from run to run;
# here they are sorted.


def listed(compat: str, acls: Iterable[AclBinding]) -> str:
    """Return the output of --list."""
    if compat != KAFKA_4:
        return _blocks("Current ACLs for resource", acls)
    return "".join(
        f"Current ACLs for resource `{_pattern(pattern)}`:\n{_entries(entries)}\n\n"
        for pattern, entries in _by_pattern(acls)
    )


def listed_by_principal(compat: str, principals: Iterable[str], acls: Sequence[AclBinding]) -> str:
    """Return the output of --list --principal."""
    return "".join(
        f"ACLs for principal `{principal}`\n"
        + listed(compat, [acl for acl in acls if acl.entry.principal == principal])
        for principal in principals
    )


def adding(acls: Iterable[AclBinding]) -> str:
    """Return the output of --add of 2.8 and 3.9, for 2.8 without the list of the resulting ACLs."""
    return _blocks("Adding ACLs for resource", acls)


def adding_unless_present(acls: Iterable[AclBinding], present: Container[AclBinding]) -> str:
    """Return the output of --add of 4.3, which does not add those that exist."""
    text = ""
    for pattern, entries in _by_pattern(acls):
        shown, new = _pattern(pattern), [entry for entry in entries if AclBinding(pattern, entry) not in present]
        text += "".join(
            f"Acl (pattern={shown}, entry={_entry(entry)}) already exists.\n" for entry in entries if entry not in new
        )
        text += f"Adding ACLs for resource `{shown}`: \n {_entries(new)}\n\n" if new else ""
    return text


def _blocks(title: str, acls: Iterable[AclBinding]) -> str:
    return "".join(
        f"{title} `{_pattern(pattern)}`: \n {_entries(entries)} \n\n" for pattern, entries in _by_pattern(acls)
    )


def _by_pattern(acls: Iterable[AclBinding]) -> Iterable[tuple[ResourcePattern, list[AclEntry]]]:
    by_pattern: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern, entry in acls:
        by_pattern.setdefault(pattern, []).append(entry)
    return by_pattern.items()


def _entries(entries: Iterable[AclEntry]) -> str:
    return "\n".join(f"\t{_entry(entry)}" for entry in entries)


def _pattern(pattern: ResourcePattern) -> str:
    return (
        f"ResourcePattern(resourceType={pattern.type.name}, name={pattern.name}, "
        f"patternType={pattern.pattern_type.name})"
    )


def _entry(entry: AclEntry) -> str:
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={entry.operation.name}, "
        f"permissionType={entry.permission.name})"
    )

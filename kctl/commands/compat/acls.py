"""The output of kafka-acls of 2.8, 3.9 and 4.3; 2.8 also lists the ACLs of the resources after a change.

Kafka prints the ACLs of a resource in the order of a Scala set of objects whose hash codes change from run to run; here
they are sorted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from kctl.commands.compat.versions import KAFKA_4
from kctl.security.acls import AclBinding, AclEntry, ResourcePattern


def listed(compat: str, acls: Iterable[AclBinding]) -> str:
    """The output of --list."""
    if compat != KAFKA_4:
        return _blocks("Current ACLs for resource", acls)
    return "".join(
        f"Current ACLs for resource `{_pattern(pattern)}`:\n{_entries(entries)}\n\n"
        for pattern, entries in _by_pattern(acls)
    )


def listed_by_principal(compat: str, principals: Iterable[str], acls: Sequence[AclBinding]) -> str:
    """The output of --list --principal."""
    return "".join(
        f"ACLs for principal `{principal}`\n"
        + listed(compat, [each for each in acls if each.entry.principal == principal])
        for principal in principals
    )


def adding(acls: Iterable[AclBinding]) -> str:
    """The output of --add of 2.8 and 3.9, for 2.8 without the list of the resulting ACLs."""
    return _blocks("Adding ACLs for resource", acls)


def adding_unless_present(acls: Iterable[AclBinding], present: Container[AclBinding]) -> str:
    """The output of --add of 4.3, which does not add those that exist."""
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
    return "\n".join(f"\t{_entry(each)}" for each in entries)


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

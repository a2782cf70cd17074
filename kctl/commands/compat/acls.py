"""The output of kafka-acls of 2.8.

Kafka prints the ACLs of a resource in the order of a Scala set of objects whose hash codes change from run to run; here
they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable

from kctl.security.acls import AclBinding, AclEntry, ResourcePattern


def listed(acls: Iterable[AclBinding]) -> str:
    """The output of --list."""
    return _blocks("Current ACLs for resource", acls)


def adding(acls: Iterable[AclBinding]) -> str:
    """The output of --add before the list of the resulting ACLs."""
    return _blocks("Adding ACLs for resource", acls)


def _blocks(title: str, acls: Iterable[AclBinding]) -> str:
    by_pattern: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern, entry in acls:
        by_pattern.setdefault(pattern, []).append(entry)
    return "".join(
        f"{title} `{_pattern(pattern)}`: \n {_entries(entries)} \n\n" for pattern, entries in by_pattern.items()
    )


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

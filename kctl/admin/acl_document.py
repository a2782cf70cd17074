"""ACLs as a JSON document, which `kctl acls export` writes and `kctl acls apply` reads.  Pure.

    {"version": 1, "acls": [{"resource_type": "Topic", "resource_name": "orders", "pattern_type": "Literal",
                             "principal": "User:alice", "host": "*", "operation": "Read", "permission": "Allow"}]}

Names are those of Kafka, in any case; `pattern_type` and `host` may be left out and are then Literal and `*`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kctl.documents import read_json
from kctl.errors import UsageError
from kctl.security.acls import (
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    binding_problem,
)

_VERSION = 1
_REQUIRED = ("resource_type", "resource_name", "principal", "operation", "permission")
_OPTIONAL = {"pattern_type": PatternType.LITERAL.label, "host": WILDCARD}


class Difference(NamedTuple):
    """The changes after which a cluster has exactly the ACLs of a document."""

    missing: list[AclBinding]
    extra: list[AclBinding]


def difference(requested: Iterable[AclBinding], present: Iterable[AclBinding]) -> Difference:
    """The ACLs to create and those that the document does not have, both sorted."""
    requested, present = set(requested), set(present)
    return Difference(sorted(requested - present), sorted(present - requested))


def fields(binding: AclBinding) -> dict[str, str]:
    """An ACL as an object of the document."""
    pattern, entry = binding
    return {
        "resource_type": pattern.type.label,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.label,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.label,
        "permission": entry.permission.label,
    }


def write_document(acls: Sequence[AclBinding]) -> str:
    """The document with a line for each ACL, sorted, so that two exports can be compared as text."""
    lines = [json.dumps(fields(binding), ensure_ascii=False) for binding in sorted(acls)]
    body = "[\n    " + ",\n    ".join(lines) + "\n  ]" if lines else "[]"
    return f'{{\n  "version": {_VERSION},\n  "acls": {body}\n}}\n'


def read_document(text: bytes, path: str) -> list[AclBinding]:
    """The ACLs of a document, each once.  Raises UsageError with the path and the number of the ACL."""
    try:
        document = read_json(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise UsageError(f'{path}: expected an object with "version": {_VERSION}, as kctl acls export writes it')
    acls = document.get("acls")
    unknown = document.keys() - {"version", "acls"}
    if not isinstance(acls, list) or unknown:
        raise UsageError(f'{path}: expected "version" and a list "acls" and nothing else')
    found: dict[AclBinding, None] = {}
    for number, each in enumerate(acls, start=1):
        try:
            found[binding_of(each)] = None
        except ValueError as error:
            raise UsageError(f"{path}: ACL {number}: {error}") from None
    return list(found)


def binding_of(each: Any) -> AclBinding:
    """The ACL that an object of the document describes.  Raises ValueError."""
    if not isinstance(each, dict) or not all(isinstance(value, str) for value in each.values()):
        raise ValueError("expected an object whose values are text")
    unknown = each.keys() - {*_REQUIRED, *_OPTIONAL}
    missing = [name for name in _REQUIRED if name not in each]
    if unknown or missing:
        reason = f"has no {missing[0]}" if missing else f"has an unknown field {min(unknown)}"
        raise ValueError(reason)
    given = _OPTIONAL | each
    pattern = ResourcePattern(
        ResourceType.of_label(given["resource_type"]),
        given["resource_name"],
        PatternType.of_label(given["pattern_type"]),
    )
    entry = AclEntry(
        given["principal"],
        given["host"],
        Operation.of_label(given["operation"]),
        Permission.of_label(given["permission"]),
    )
    problem = binding_problem(AclBinding(pattern, entry))
    if problem is not None:
        raise ValueError(problem)
    return AclBinding(pattern, entry)

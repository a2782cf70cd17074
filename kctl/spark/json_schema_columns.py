"""JSON Schemas as types of columns.  Pure.

boolean, integer, number, string, arrays and objects with properties have columns, also with null as an alternative,
and through references within the document.  What has no column is in the rest.
"""

from __future__ import annotations

import json
from typing import Any

from kctl.errors import UsageError
from kctl.spark.exec.column_types import ListOf, Struct, Type, TypeCount, is_column_name

_TYPES = {"boolean": "boolean", "integer": "int64", "number": "double", "string": "string"}


def columns_of(text: str, source: str) -> Struct:
    """The columns of objects with this schema.  Raises UsageError if it is not of objects."""
    try:
        document = json.loads(text)
        found = _type_of(document, document, frozenset(), TypeCount(source))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{source} is not a JSON Schema: {str(error)[:200]}") from None
    if not isinstance(found, Struct):
        raise UsageError(f"{source} is not a JSON Schema of objects with properties")
    return found


def _type_of(schema: Any, document: Any, within: frozenset[str], count: TypeCount) -> Type | None:
    count.add()
    if not isinstance(schema, dict):
        return None
    if isinstance(reference := schema.get("$ref"), str):
        if reference in within:
            return None  # recursive
        return _type_of(_resolved(reference, document), document, within | {reference}, count)
    for combination in ("anyOf", "oneOf"):
        if combination in schema:
            others = [one for one in schema[combination] if one != {"type": "null"}]
            return _type_of(others[0], document, within, count) if len(others) == 1 else None
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind == "array":
        item = _type_of(schema.get("items"), document, within, count)
        return None if item is None else ListOf(item)
    if kind == "object":
        properties = schema.get("properties", {})
        found = [
            (name, _type_of(one, document, within, count)) for name, one in properties.items() if is_column_name(name)
        ]
        kept = tuple((name, type_) for name, type_ in found if type_ is not None)
        return Struct(kept) if kept else None
    return _TYPES.get(kind) if isinstance(kind, str) else None


def _resolved(reference: str, document: Any) -> Any:
    """The target of a reference such as #/$defs/Address; None if it is in another document or does not exist."""
    if not reference.startswith("#"):
        return None
    found = document
    for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found

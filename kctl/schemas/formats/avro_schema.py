"""Avro schemas: strict parsing by Apache Avro's library, and the text of a schema as Java's Schema.toString has it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from typing import Any

import fastavro
from avro.errors import AvroException
from avro.name import Names
from avro.schema import Schema, make_avsc_object
from fastavro.schema import SchemaParseException, UnknownType

from kctl.schemas.formats.parsed import InvalidSchema, ParsedSchema

_NAMED = frozenset({"record", "error", "enum", "fixed"})
_COMPLEX = _NAMED | {"array", "map"}
_FIRST = ("type", "name", "namespace", "doc", "fields", "symbols", "default", "items", "values", "size")
_OF_FIELD = ("name", "type", "doc", "default", "order", "aliases")


def parse_avro(text: str, used: Iterable[str], *, normalizes: bool) -> ParsedSchema:
    """Return a schema; `used` are the texts of those that it uses, each after those that it uses itself.

    Raises InvalidSchema.
    """
    names, known = Names(), dict[str, Any]()
    try:
        for other in used:
            _parse(json.loads(other), names, known)
        document = json.loads(text)
        model = _parse(document, names, known)
        return ParsedSchema("AVRO", _dump(_ordered(document, "", normalizes=normalizes)), model)
    except (AvroException, SchemaParseException, UnknownType, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidSchema(f"{error}"[:500]) from None
    except RecursionError:
        raise InvalidSchema("it is nested too deeply") from None


def _parse(document: Any, names: Names, known: dict[str, Any]) -> Schema:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A logical type that is not known has no effect.
        model: Schema = make_avsc_object(document, names)
    # Apache Avro's parser does not check the default values of fields.
    fastavro.parse_schema(document, named_schemas=known)
    return model


def _dump(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _ordered(schema: Any, space: str, *, normalizes: bool) -> Any:
    """Return a schema with its members in Java's order, and names without the namespace that surrounds them."""
    if isinstance(schema, list):
        return [_ordered(branch, space, normalizes=normalizes) for branch in schema]
    if isinstance(schema, str):
        return _relative(schema, space)
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in _COMPLEX:
        others = {name: value for name, value in schema.items() if name != "type"}
        inner = _ordered(kind, space, normalizes=normalizes)
        return {"type": inner, **_sorted(others, normalizes=normalizes)} if others else inner
    if kind in _NAMED:
        schema, space = _named(schema, space)
    first = {name: schema[name] for name in _FIRST if name in schema}
    others = {name: value for name, value in schema.items() if name not in first and name != "aliases"}
    for name in ("items", "values"):
        if name in first and kind in {"array", "map"}:
            first[name] = _ordered(first[name], space, normalizes=normalizes)
    if kind in {"record", "error"}:
        first["fields"] = [_field(field, space, normalizes=normalizes) for field in schema["fields"]]
    aliases = {"aliases": schema["aliases"]} if schema.get("aliases") else {}
    return {**first, **_sorted(others, normalizes=normalizes), **aliases}


def _named(schema: dict[str, Any], space: str) -> tuple[dict[str, Any], str]:
    """Return a definition with a simple name, its namespace only if it is another one, and the namespace."""
    own, _, simple = schema["name"].rpartition(".")
    own = own or (schema["namespace"] or "" if "namespace" in schema else space)
    named = {**schema, "name": simple}
    named.pop("namespace", None)
    return (named if own == space else {**named, "namespace": own}), own


def _field(field: dict[str, Any], space: str, *, normalizes: bool) -> dict[str, Any]:
    first = {name: field[name] for name in _OF_FIELD if name in field}
    first["type"] = _ordered(field["type"], space, normalizes=normalizes)
    if first.get("order") == "ascending":
        del first["order"]
    if not first.get("aliases", True):
        del first["aliases"]
    others = {name: value for name, value in field.items() if name not in _OF_FIELD}
    return {**first, **_sorted(others, normalizes=normalizes)}


def _relative(name: str, space: str) -> str:
    own, _, simple = name.rpartition(".")
    return simple if own and own == space else name


def _sorted(members: dict[str, Any], *, normalizes: bool) -> dict[str, Any]:
    return dict(sorted(members.items())) if normalizes else members

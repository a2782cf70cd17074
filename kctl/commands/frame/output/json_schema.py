"""The JSON Schema (draft 2020-12) of a command's output, from the types of its rows."""

from __future__ import annotations

import importlib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

from kctl.commands.frame.output.shown import RowType, Shown
from kctl.output.documents import json_text
from kctl.output.table import Field, fields_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

Schema = dict[str, Any]


def schema_text(name: str, summary: str, shown: Shown, *, is_line: bool) -> str:
    """Return the text of `schema_of`."""
    return json_text(schema_of(name, summary, shown, is_line=is_line), indent=2)


def schema_of(name: str, summary: str, shown: Shown, *, is_line: bool = False) -> Schema:
    """Return the schema of the output of a command with json and yaml, or with `is_line` of one line of jsonl.

    All members of an object are required.  Others are allowed, because later versions may add some.
    """
    definitions: dict[str, Schema] = {}
    row = _either(_schema(_loaded(row_type), definitions) for row_type in (shown.lines if is_line else shown.rows))
    whole = {"type": "array", "items": row} if shown.is_list and not is_line else row
    if shown.instead is not None and not is_line:
        whole = {"anyOf": [whole, _schema(_loaded(shown.instead), definitions)]}
    return {
        "$schema": DIALECT,
        "title": name,
        "description": summary,
        **whole,
        "$defs": {key: definitions[key] for key in sorted(definitions)},
    }


def _loaded(row: RowType) -> Any:
    if not isinstance(row, str):
        return row
    module, _, name = row.partition(":")
    return getattr(importlib.import_module(module), name)


def _schema(annotation: Any, definitions: dict[str, Schema]) -> Schema:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _SIMPLE:
        return {"type": _SIMPLE[annotation]}
    if origin in {typing.Union, types.UnionType}:
        return _either(_schema(argument, definitions) for argument in arguments)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in {dict, Mapping}:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if origin in {list, tuple, Sequence}:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if annotation in {object, Any}:
        return {}
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return {"enum": [member.value for member in annotation]}
    if hasattr(annotation, "_fields"):
        return _reference(annotation, definitions)
    raise TypeError(f"{annotation} has no JSON Schema")


def _reference(row: Any, definitions: dict[str, Schema]) -> Schema:
    name = row.__name__
    if name not in definitions:
        definitions[name] = {}  # before its fields, which may contain the row itself
        definitions[name] = {
            "type": "object",
            "description": " ".join(str(row.__doc__).partition("\n\n")[0].split()),
            "properties": {field.name: _property(field, definitions) for field in fields_of(row)},
            "required": list(row._fields),
        }
    return {"$ref": f"#/$defs/{name}"}


def _property(field: Field, definitions: dict[str, Schema]) -> Schema:
    schema = _schema(field.type, definitions)
    return schema if field.documentation is None else {**schema, "description": field.documentation}


def _either(schemas: Iterable[Schema]) -> Schema:
    """Return one schema for a value of several types; simple types become one list of names."""
    unique: list[Schema] = []
    for schema in schemas:
        if schema not in unique:
            unique.append(schema)
    if len(unique) == 1:
        return unique[0]
    if all(schema.keys() == {"type"} for schema in unique):
        return {"type": [schema["type"] for schema in unique]}
    return {"anyOf": unique}

"""Schemas of a registry as texts in plans.  Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kctl.client.registry.schema import Reference, Schema, SchemaError

_USED = "kctl.used"


def rewritten(schema: Schema, change: Callable[[Any], Any]) -> Schema:
    """Return an Avro schema, and those it uses, with documents that `change` returns.  Raises SchemaError."""
    try:
        used = {
            name: used_schema._replace(text=json.dumps(change(json.loads(used_schema.text))))
            for name, used_schema in schema.by_reference.items()
        }
        return schema._replace(text=json.dumps(change(json.loads(schema.text))), by_reference=used)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SchemaError("it is not a valid Avro schema") from None


def text_of(schema: Schema) -> str:
    """Return the schema, with those it uses."""
    if not schema.by_reference:
        return schema.text
    used = {name: [used_schema.text, used_schema.references] for name, used_schema in schema.by_reference.items()}
    return json.dumps({_USED: used, "references": schema.references, "schema": schema.text})


def schema_of_text(schema_id: int, kind: str, text: str) -> Schema:
    """Return the inverse of `text_of`."""
    if not text.startswith(f'{{"{_USED}"'):
        return Schema(schema_id, kind, text)
    document = json.loads(text)
    used = {
        name: Schema(schema_id, kind, used_text, tuple(Reference(*reference) for reference in references))
        for name, (used_text, references) in document[_USED].items()
    }
    return Schema(
        schema_id, kind, document["schema"], tuple(Reference(*reference) for reference in document["references"]), used
    )

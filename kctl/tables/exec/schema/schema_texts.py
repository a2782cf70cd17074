"""Schemas of a registry as texts in plans.  Pure."""

from __future__ import annotations

import json

from kctl.client.registry.schema import Reference, Schema

_USED = "kctl.used"


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

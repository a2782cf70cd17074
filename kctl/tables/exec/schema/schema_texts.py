"""Schemas of a registry as texts in plans.  Pure."""

from __future__ import annotations

import json

from kctl.client.registry.schema import Reference, Schema

_USED = "kctl.used"


def text_of(schema: Schema) -> str:
    """Return the schema, with those it uses."""
    if not schema.by_reference:
        return schema.text
    used = {name: [one.text, one.references] for name, one in schema.by_reference.items()}
    return json.dumps({_USED: used, "references": schema.references, "schema": schema.text})


def schema_of_text(schema_id: int, kind: str, text: str) -> Schema:
    """Return the inverse of `text_of`."""
    if not text.startswith(f'{{"{_USED}"'):
        return Schema(schema_id, kind, text)
    document = json.loads(text)
    used = {
        name: Schema(schema_id, kind, one, tuple(Reference(*each) for each in references))
        for name, (one, references) in document[_USED].items()
    }
    return Schema(schema_id, kind, document["schema"], tuple(Reference(*each) for each in document["references"]), used)

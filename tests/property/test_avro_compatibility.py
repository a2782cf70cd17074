"""The verdicts on Avro schemas against the checker of Apache Avro's Python library."""

from __future__ import annotations

import copy
import json
from typing import Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.schemas.formats.avro_compatibility import compare_avro
from kctl.schemas.formats.avro_schema import parse_avro
from kctl.schemas.formats.parsed import InvalidSchema

PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
NAMES = st.sampled_from(["a", "b", "c"])


def _complex(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"type": st.just("map"), "values": inner}),
        st.lists(inner, min_size=1, max_size=3),
        st.builds(_record, st.lists(st.tuples(NAMES, inner, st.booleans()), min_size=1, max_size=3)),
    )


def _record(fields: list[tuple[str, Any, bool]]) -> dict[str, Any]:
    by_name = {
        name: {"name": name, "type": ["null", kind] if has_default and kind != "null" else kind}
        for name, kind, has_default in fields
    }
    for name, _, has_default in fields:
        if has_default and isinstance(by_name[name]["type"], list):
            by_name[name]["default"] = None
    return {"type": "record", "name": "R", "fields": list(by_name.values())}


LEAVES = st.one_of(
    PRIMITIVES,
    st.builds(
        lambda symbols, default: {
            "type": "enum",
            "name": "E",
            "symbols": symbols,
            **({"default": symbols[0]} if default else {}),
        },
        st.lists(st.sampled_from(["X", "Y", "Z"]), min_size=1, max_size=3, unique=True),
        st.booleans(),
    ),
    st.builds(lambda size: {"type": "fixed", "name": "F", "size": size}, st.integers(1, 2)),
)
SCHEMAS = st.recursive(LEAVES, _complex, max_leaves=6)


def _with_names_of_their_own(schema: Any, counter: list[int]) -> Any:
    """A name may be defined once: further ones get a number, as they are found in the text."""
    if isinstance(schema, list):
        return [_with_names_of_their_own(branch, counter) for branch in schema]
    if isinstance(schema, dict):
        renamed = {
            name: _with_names_of_their_own(value, counter) for name, value in schema.items() if name != "default"
        }
        if "default" in schema:
            renamed["default"] = schema["default"]
        if isinstance(schema["type"], str) and schema["type"] in {"record", "enum", "fixed"} and "name" in schema:
            counter[0] += 1
            renamed["name"] = f"{schema['name']}{counter[0]}"
        return renamed
    return schema


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_verdicts_are_those_of_apache_avro(first: Any, second: Any) -> None:
    parsed = []
    for schema in (first, second):
        try:
            text = json.dumps(_with_names_of_their_own(copy.deepcopy(schema), [0]))
            parsed.append(parse_avro(text, [], normalizes=False))
        except InvalidSchema:
            return  # A union of unions, for example.
    for reader, writer in (parsed, parsed[::-1], (parsed[0], parsed[0])):
        verdict = ReaderWriterCompatibilityChecker().get_compatibility(reader.model, writer.model).compatibility
        assert (not compare_avro(reader.model, writer.model)) == (verdict is SchemaCompatibilityType.compatible)

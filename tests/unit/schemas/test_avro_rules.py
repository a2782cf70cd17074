"""Compatibility of Avro schemas: a table of changes, with the message of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kctl.schemas.formats.avro_compatibility import compare_avro
from kctl.schemas.formats.avro_schema import parse_avro
from kctl.schemas.formats.parsed import InvalidSchema
from tests.rows import for_rows


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **others: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **others}


A = field("a", "int")
ENUM = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
LIST = record(field("next", ["null", "R"], default=None))

# (reader, writer, (kind, path and other details that the message has))
RULES: list[tuple[Any, Any, list[tuple[str, str]]]] = [
    ("int", "int", []),
    ("long", "int", []),
    ("float", "int", []),
    ("float", "long", []),
    ("double", "float", []),
    ("bytes", "string", []),
    ("string", "bytes", []),
    ("int", "long", [("TYPE_MISMATCH", "reader type: INT not compatible with writer type: LONG")]),
    ("float", "double", [("TYPE_MISMATCH", "path '/'")]),
    ("null", "int", [("TYPE_MISMATCH", "NULL")]),
    ("boolean", "int", [("TYPE_MISMATCH", "BOOLEAN")]),
    (record(A, field("b", "int", default=0)), record(A), []),
    (record(A, field("b", ["null", "int"], default=None)), record(A), []),
    (record(A), record(A, field("b", "int")), []),
    (record(A, field("b", "int")), record(A), [("READER_FIELD_MISSING_DEFAULT_VALUE", "'b' at path '/fields/1'")]),
    (record(field("b", "int", aliases=["a"])), record(A), []),
    (record(field("a", "string")), record(A), [("TYPE_MISMATCH", "'/fields/0/type'")]),
    (record(A, name="S"), record(A), [("NAME_MISMATCH", "expected: R")]),
    ({**record(A, name="S"), "aliases": ["R"]}, record(A), []),
    ({**record(A), "namespace": "x"}, record(A), []),
    (["int", "string"], ["int"], []),
    (["int"], ["int", "string"], [("MISSING_UNION_BRANCH", "'/1'")]),
    (["null", "int"], "int", []),
    ("int", ["int"], []),
    ("int", ["int", "string"], [("TYPE_MISMATCH", "STRING")]),
    (["null", "long"], "int", []),
    (["null", "int"], "string", [("MISSING_UNION_BRANCH", "reader union lacking writer type: STRING")]),
    (ENUM, {**ENUM, "symbols": ["X"]}, []),
    ({**ENUM, "symbols": ["X"]}, ENUM, [("MISSING_ENUM_SYMBOLS", "'[Y]' at path '/symbols'")]),
    ({**ENUM, "symbols": ["X"], "default": "X"}, ENUM, []),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, []),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [("TYPE_MISMATCH", "'/items'")]),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, [("TYPE_MISMATCH", "'/values'")]),
    ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, [("TYPE_MISMATCH", "MAP")]),
    (
        {"type": "fixed", "name": "F", "size": 4},
        {"type": "fixed", "name": "F", "size": 5},
        [("FIXED_SIZE_MISMATCH", "expected: 5, found: 4")],
    ),
    (LIST, LIST, []),
    (
        record(field("a", "string"), field("b", "int"), name="S"),
        record(A),
        [("NAME_MISMATCH", "'/name'"), ("TYPE_MISMATCH", "/fields/0"), ("READER_FIELD_MISSING_DEFAULT_VALUE", "'b'")],
    ),
]


@for_rows("reader, writer, expected", RULES)
def test_avro_rules(reader: Any, writer: Any, expected: list[tuple[str, str]]) -> None:
    parsed = [parse_avro(json.dumps(schema), [], normalizes=False) for schema in (reader, writer)]
    found = compare_avro(parsed[0].model, parsed[1].model)
    assert [difference.kind for difference in found] == [kind for kind, _ in expected]
    for difference, (_, detail) in zip(found, expected, strict=True):
        assert detail in difference.text("new", "old")


@for_rows(
    "written, stored",
    [
        ('"string"', '"string"'),
        ('{"type": "string"}', '"string"'),
        ('{"type":"string","x":1}', '{"type":"string","x":1}'),
        ('[ "null" ,"int"]', '["null","int"]'),
        (
            '{"fields":[{"type":"int","name":"a","order":"ascending"}],"name":"x.R","type":"record","doc":"d"}',
            '{"type":"record","name":"R","namespace":"x","doc":"d","fields":[{"name":"a","type":"int"}]}',
        ),
        (
            '{"type":"record","name":"R","namespace":"x","fields":[{"name":"r","type":["null","x.R"],"default":null}]}',
            '{"type":"record","name":"R","namespace":"x","fields":[{"name":"r","type":["null","R"],"default":null}]}',
        ),
        (
            '{"type":"array","items":{"type":"enum","name":"E","symbols":["a"]}}',
            '{"type":"array","items":{"type":"enum","name":"E","symbols":["a"]}}',
        ),
    ],
)
def test_equal_avro_schemas_are_stored_as_one_text(written: str, stored: str) -> None:
    assert parse_avro(written, [], normalizes=False).text == stored
    assert parse_avro(stored, [], normalizes=True).text == stored


def test_normalization_sorts_other_members() -> None:
    text = '{"type":"int","z":1,"b":2}'
    assert parse_avro(text, [], normalizes=False).text == text
    assert parse_avro(text, [], normalizes=True).text == '{"type":"int","b":2,"z":1}'


@for_rows(
    "text",
    [
        "",
        "x",
        "1",
        "{}",
        '"nope"',
        '{"type":"record","name":"R"}',
        '{"type":"record","name":"R S","fields":[]}',
        '["int","int"]',
        '[["int"]]',
        '{"type":"enum","name":"E","symbols":["a","a"]}',
        '{"type":"fixed","name":"F","size":-1}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
        '{"type":"array","items":' * 2_000,
    ],
)
def test_invalid_avro_schemas_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_avro(text, [], normalizes=False)

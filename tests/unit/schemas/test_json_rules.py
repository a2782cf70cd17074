"""Compatibility of JSON Schemas: a table of changes, with the names that Confluent has for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kctl.schemas.formats.json_compatibility import compare_json
from kctl.schemas.formats.json_schema import parse_json_schema
from kctl.schemas.formats.parsed import InvalidSchema, ParsedSchema
from tests.rows import for_rows

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
OPEN = {"type": "object", "properties": {"a": STRING}}
CLOSED = {**OPEN, "additionalProperties": False}
PARTLY = {**OPEN, "additionalProperties": STRING}
TREE = {"type": "object", "properties": {"left": {"$ref": "#"}}}


def with_b(schema: dict[str, Any], b: Any = STRING, **others: Any) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], "b": b}, **others}


# (new, old, the changes that are not compatible)
RULES: list[tuple[Any, Any, list[str]]] = [
    (STRING, STRING, []),
    ({**STRING, "title": "t", "description": "d", "default": "x"}, STRING, []),
    (NUMBER, INTEGER, []),
    (INTEGER, NUMBER, ["TYPE_NARROWED"]),
    (STRING, INTEGER, ["TYPE_CHANGED"]),
    (True, STRING, []),
    ({}, STRING, []),
    (STRING, True, ["TYPE_CHANGED"]),
    (STRING, False, []),
    ({"type": ["string", "null"]}, STRING, []),
    (STRING, {"type": ["string", "null"]}, ["TYPE_CHANGED"]),
    ({**STRING, "maxLength": 5}, STRING, ["MAX_LENGTH_ADDED"]),
    (STRING, {**STRING, "maxLength": 5}, []),
    ({**STRING, "maxLength": 4}, {**STRING, "maxLength": 5}, ["MAX_LENGTH_DECREASED"]),
    ({**STRING, "maxLength": 6}, {**STRING, "maxLength": 5}, []),
    ({**STRING, "minLength": 6}, {**STRING, "minLength": 5}, ["MIN_LENGTH_INCREASED"]),
    ({**STRING, "minLength": 4}, {**STRING, "minLength": 5}, []),
    ({**STRING, "pattern": "a"}, STRING, ["PATTERN_ADDED"]),
    ({**STRING, "pattern": "a"}, {**STRING, "pattern": "b"}, ["PATTERN_CHANGED"]),
    (STRING, {**STRING, "pattern": "b"}, []),
    ({**NUMBER, "maximum": 1}, NUMBER, ["MAXIMUM_ADDED"]),
    ({**NUMBER, "maximum": 1}, {**NUMBER, "maximum": 2}, ["MAXIMUM_DECREASED"]),
    ({**NUMBER, "minimum": 2}, {**NUMBER, "minimum": 1}, ["MINIMUM_INCREASED"]),
    ({**NUMBER, "exclusiveMaximum": 1}, {**NUMBER, "exclusiveMaximum": 2}, ["EXCLUSIVE_MAXIMUM_DECREASED"]),
    ({**NUMBER, "exclusiveMinimum": 2}, {**NUMBER, "exclusiveMinimum": 1}, ["EXCLUSIVE_MINIMUM_INCREASED"]),
    ({**NUMBER, "multipleOf": 4}, {**NUMBER, "multipleOf": 2}, ["MULTIPLE_OF_EXPANDED"]),
    ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 4}, []),
    ({**NUMBER, "multipleOf": 3}, {**NUMBER, "multipleOf": 4}, ["MULTIPLE_OF_CHANGED"]),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, []),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_NARROWED"]),
    ({"enum": ["a", "c"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_CHANGED"]),
    ({**STRING, "enum": ["a", "b"]}, {**STRING, "enum": ["a"]}, []),
    ({"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED"]),
    # Objects.
    (with_b(OPEN), OPEN, ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (with_b(OPEN, True), OPEN, []),
    (with_b(OPEN, required=["b"]), OPEN, ["REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (OPEN, with_b(OPEN), []),
    (with_b(CLOSED), CLOSED, []),
    (with_b(CLOSED, required=["b"]), CLOSED, ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"]),
    (with_b(CLOSED, {**STRING, "default": ""}, required=["b"]), CLOSED, []),
    (CLOSED, with_b(CLOSED), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
    (CLOSED, with_b(CLOSED, False), []),
    (with_b(PARTLY), PARTLY, []),
    (with_b(PARTLY, INTEGER), PARTLY, ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
    (PARTLY, with_b(PARTLY), []),
    (PARTLY, with_b(PARTLY, INTEGER), ["PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
    (with_b({**CLOSED, "patternProperties": {"^b": STRING}}), {**CLOSED, "patternProperties": {"^b": STRING}}, []),
    (CLOSED, OPEN, ["ADDITIONAL_PROPERTIES_REMOVED"]),
    (OPEN, CLOSED, []),
    (PARTLY, OPEN, ["ADDITIONAL_PROPERTIES_NARROWED"]),
    (OPEN, PARTLY, []),
    ({**OPEN, "required": ["a"]}, OPEN, ["REQUIRED_ATTRIBUTE_ADDED"]),
    (OPEN, {**OPEN, "required": ["a"]}, []),
    ({"type": "object", "properties": {"a": INTEGER}}, OPEN, ["TYPE_CHANGED"]),
    ({**OPEN, "maxProperties": 1}, OPEN, ["MAX_PROPERTIES_ADDED"]),
    ({**OPEN, "minProperties": 2}, {**OPEN, "minProperties": 1}, ["MIN_PROPERTIES_INCREASED"]),
    ({**OPEN, "dependencies": {"a": ["b"]}}, OPEN, ["DEPENDENCY_ARRAY_ADDED"]),
    (OPEN, {**OPEN, "dependencies": {"a": ["b"]}}, []),
    (
        {**OPEN, "dependencies": {"a": ["b", "c"]}},
        {**OPEN, "dependencies": {"a": ["b"]}},
        ["DEPENDENCY_ARRAY_EXTENDED"],
    ),
    (TREE, TREE, []),
    # Arrays.
    ({"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER}, []),
    ({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}, ["TYPE_NARROWED"]),
    ({"type": "array", "items": INTEGER}, {"type": "array"}, ["SCHEMA_ADDED"]),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, ["UNIQUE_ITEMS_ADDED"]),
    ({"type": "array", "maxItems": 1}, {"type": "array", "maxItems": 2}, ["MAX_ITEMS_DECREASED"]),
    ({"type": "array", "minItems": 1}, {"type": "array"}, ["MIN_ITEMS_ADDED"]),
    (
        {"type": "array", "items": [STRING, STRING]},
        {"type": "array", "items": [STRING]},
        ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"],
    ),
    ({"type": "array", "items": [STRING]}, {"type": "array", "items": [STRING, STRING]}, []),
    (
        {"type": "array", "items": [STRING], "additionalItems": False},
        {"type": "array", "items": [STRING, STRING], "additionalItems": False},
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    # Combined schemas.
    ({"oneOf": [STRING, INTEGER]}, STRING, []),
    ({"anyOf": [STRING, INTEGER]}, {"oneOf": [STRING, INTEGER]}, []),
    ({"oneOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}, ["COMBINED_TYPE_CHANGED"]),
    ({"oneOf": [STRING, INTEGER, {"type": "null"}]}, {"oneOf": [STRING, INTEGER]}, []),
    ({"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING, INTEGER, {"type": "null"}]}, ["SUM_TYPE_NARROWED"]),
    ({"oneOf": [STRING, {"type": "null"}]}, {"oneOf": [STRING, INTEGER]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]),
    ({"allOf": [OPEN]}, {"allOf": [OPEN, CLOSED]}, []),
    ({"allOf": [OPEN, CLOSED]}, {"allOf": [OPEN]}, ["PRODUCT_TYPE_EXTENDED"]),
    ({"not": STRING}, {"not": {**STRING, "maxLength": 3}}, ["NOT_TYPE_EXTENDED"]),
    ({"not": {**STRING, "maxLength": 3}}, {"not": STRING}, []),
]


@for_rows("new, old, expected", RULES)
def test_json_rules(new: Any, old: Any, expected: list[str]) -> None:
    reader, writer = (parse_json_schema(json.dumps(schema), {}, normalizes=False).model for schema in (new, old))
    found = compare_json(reader, writer)
    assert [difference.kind for difference in found] == expected
    for difference in found:
        text = difference.text("new", "old")
        assert "new" in text
        assert "'#/" in text
        assert "\0" not in text


def test_a_reference_is_another_schema() -> None:
    used = {"b.json": json.dumps({"type": "string"})}
    by_name = parse_json_schema('{"$ref": "b.json"}', used, normalizes=False)
    plain = parse_json_schema('{"type": "string"}', {}, normalizes=False)
    assert compare_json(by_name.model, plain.model) == []


@for_rows(
    "text",
    [
        "x",
        "[",
        '{"type": "nope"}',
        '{"$ref": "other.json"}',
        '{"$ref": "#/definitions/none"}',
        '{"type":"object","patternProperties":{"(": true}}',
        '{"type":"object","patternProperties":{"^(?!x)": true}}',
        r'{"type":"object","patternProperties":{"(a)\\1": true}}',
        json.dumps({"patternProperties": {"a" * 1_001: True}}),
        json.dumps({"patternProperties": {"a{1000}{1000}": True}}),
        '{"not":' * 5_000 + "true" + "}" * 5_000,
    ],
)
@pytest.mark.long
def test_invalid_json_schemas_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_json_schema(text, {}, normalizes=False)


def test_references_in_a_circle_end() -> None:
    circle = parse_json_schema(
        '{"$ref": "#/definitions/a", "definitions": {"a": {"anyOf": [{"$ref": "#/definitions/a"}]}}}',
        {},
        normalizes=False,
    )
    assert compare_json(circle.model, circle.model) == []
    with pytest.raises(InvalidSchema):
        parse_json_schema('{"definitions": {"a": {"$ref": "#/definitions/a"}}}', {}, normalizes=False)


@pytest.mark.long
def test_the_number_of_comparisons_has_a_bound() -> None:
    """Each level multiplies the comparisons of the next one by 16."""

    def nested(leaf: Any) -> Any:
        for _ in range(6):
            leaf = {"anyOf": [{"type": "array", "items": leaf} for _ in range(4)]}
        return parse_json_schema(json.dumps(leaf), {}, normalizes=False)

    schema, other = nested(STRING), nested(INTEGER)
    with pytest.raises(InvalidSchema, match="steps"):
        compare_json(schema.model, other.model)


def with_property(name: str) -> ParsedSchema:
    return parse_json_schema(json.dumps({**CLOSED, "properties": {name: STRING}}), {}, normalizes=False)


def with_pattern(pattern: str) -> ParsedSchema:
    document = {**CLOSED, "patternProperties": {pattern: INTEGER}}
    return parse_json_schema(json.dumps(document), {}, normalizes=False)


@for_rows(
    "pattern, name",
    [
        ("a", "xay"),
        ("^b$", "b"),
        ("^[a-z-]+$", "ab-c"),
        (r"^[^a\n]", "b a"),
        (r"^\w+\s\d$", "a 1"),
        (r"^\u00e9", "éa"),
        ("^[à-ü]{2}$", "éü"),
        ("^.$", "日"),
        ("(?i)^STRASSE", "strasse"),
        (r"\$ref|\/", "a/b"),
    ],
)
def test_names_of_properties_are_matched_with_patterns(pattern: str, name: str) -> None:
    """The schema of a matching pattern is another one than that of the property."""
    [matching] = compare_json(with_pattern(pattern).model, with_property(name).model)
    assert matching.kind == "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    [other] = compare_json(with_pattern(pattern).model, with_property("\n!").model)
    assert other.kind == "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"


def test_patterns_are_matched_in_bounded_time() -> None:
    # Python's `re` needs 2**60 steps for these.
    for pattern in ("^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(x+x+)+y"):
        [difference] = compare_json(with_pattern(pattern).model, with_property("a" * 60 + "x" * 60 + "!").model)
        assert difference.kind == "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
    with pytest.raises(InvalidSchema, match="steps"):
        compare_json(with_pattern("(a{500}){3}b").model, with_property("a" * 100_000).model)


def test_normalization_sorts_members() -> None:
    text = '{"type":"string","default":"x"}'
    assert parse_json_schema(text, {}, normalizes=False).text == text
    assert parse_json_schema(text, {}, normalizes=True).text == '{"default":"x","type":"string"}'

"""Which columns an export has: from JSON Schemas, versions of a subject, samples, and the columns that it has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from kctl.client.registry.schema import Reference, Schema
from kctl.errors import UsageError
from kctl.tables.exec.decoding.batch_decoder import BatchDecoder
from kctl.tables.exec.schema.column_types import (
    Columns,
    Decoding,
    Format,
    Struct,
    Type,
    decoding_from_json,
    decoding_to_json,
    type_to_json,
)
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions, decide
from kctl.tables.plans.plan import HeldColumns
from tests.rows import for_rows


class Registry:
    """Subjects with their schemas."""

    def __init__(self, subjects: Mapping[str, Sequence[Schema]]) -> None:
        self._subjects = subjects

    def versions_of(self, subject: str) -> Sequence[Schema]:
        return self._subjects[subject]


def record(*fields: tuple[str, Any]) -> str:
    return json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    )


def decided(
    value: FieldOptions,
    *versions: Schema,
    held: Type | None = None,
    samples: Mapping[str, Sequence[bytes]] | None = None,
    is_shared: bool = False,
) -> dict[str, Columns]:
    samples = samples or {}
    topics = sorted(samples) or ["orders"]
    return decide(
        DecodingOptions(value=value),
        topics,
        {} if held is None else {"orders": HeldColumns(value=held)},
        registry=Registry({"orders-value": versions}),
        sample_of=lambda topic, name: samples.get(topic, ()) if name == "value" else (),
        is_shared=is_shared,
    )


def columns(value: FieldOptions, *versions: Schema, **more: Any) -> Any:
    return type_to_json(decided(value, *versions, **more)["orders"].value.type)


AVRO = FieldOptions(name="value", format=Format.AVRO)
JSON = FieldOptions(name="value", format=Format.JSON)


def test_versions_of_a_subject_are_united_and_numbers_widened() -> None:
    versions = (
        Schema(1, "AVRO", record(("id", "int"), ("old", "string"))),
        Schema(2, "AVRO", record(("id", "long"), ("new", ["null", "double"]))),
    )
    assert columns(AVRO, *versions) == {"struct": {"id": "int64", "old": "string", "new": "double"}}
    held = decided(AVRO, versions[0])["orders"].value.type
    with pytest.raises(UsageError, match=r"column value\.id is int32 and would become int64"):
        decided(AVRO, *versions, held=held)


def test_a_version_with_another_type_is_refused() -> None:
    versions = (Schema(1, "AVRO", record(("id", "int"))), Schema(2, "AVRO", record(("id", "string"))))
    with pytest.raises(UsageError, match=r"column value\.id is int32 and would become string"):
        decided(AVRO, *versions)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (record(("a b", "int")), "has a name that tables do not accept"),
        (record(("id", "int"), ("ID", "int")), "differ only in case"),
        (record(), "no values other than null"),
        ("{", "not a valid Avro schema"),
        (record(("list", {"type": "array", "items": "null"})), "length has no bound"),
    ],
)
def test_schemas_without_columns_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        decided(AVRO, Schema(1, "AVRO", text))


def doubling(levels: int, innermost: Any) -> Any:
    """Records of which each uses the next one twice."""
    found = innermost
    for level in range(levels):
        name = found["name"] if isinstance(found, dict) else found
        fields = [{"name": "x", "type": found}, {"name": "y", "type": name}]
        found = {"type": "record", "name": f"R{level}", "fields": fields}
    return found


@pytest.mark.parametrize("innermost", ["int", "null"])
def test_a_small_schema_with_exponentially_many_columns_is_refused(innermost: str) -> None:
    with pytest.raises(UsageError, match="has more than 10000 types, counted at each use"):
        decided(AVRO, Schema(1, "AVRO", json.dumps(doubling(40, innermost))))
    definitions = {
        f"d{level}": {"properties": {name: {"$ref": f"#/$defs/d{level + 1}"} for name in "xy"}} for level in range(40)
    }
    text = json.dumps({"$defs": {**definitions, "d40": {"type": innermost}}, "$ref": "#/$defs/d0"})
    with pytest.raises(UsageError, match="has more than 10000 types"):
        decided(FieldOptions(name="value", format=Format.JSON, schema="big.json", text=text))


def test_whether_items_of_many_records_take_bytes_is_found_out_once_for_each_record() -> None:
    empty = {"type": "record", "name": "E", "fields": []}
    array = {"type": "array", "items": doubling(40, empty)}
    with pytest.raises(UsageError, match="length has no bound"):
        decided(AVRO, Schema(1, "AVRO", record(("list", array))))


def test_a_schema_with_too_many_levels_is_refused() -> None:
    found: Any = "int"
    for level in range(150):
        found = {"type": "record", "name": f"R{level}", "fields": [{"name": "x", "type": ["null", found]}]}
    with pytest.raises(UsageError, match=r"levels|not a valid Avro schema"):
        decided(AVRO, Schema(1, "AVRO", json.dumps(found)))


def test_a_subject_of_another_type_is_refused() -> None:
    with pytest.raises(UsageError, match="schema 1 of the subject orders-value is JSON, not AVRO"):
        decided(AVRO, Schema(1, "JSON", "{}"))


def test_a_schema_with_references_is_decoded_by_tasks_that_have_the_plan_only() -> None:
    used = Schema(2, "AVRO", json.dumps({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}))
    reference = Reference("Kind", "kinds", 1)
    schema = Schema(1, "AVRO", record(("kind", "Kind")), (reference,), {"Kind": used})
    decoding = decided(AVRO, schema)["orders"].value
    decoding = decoding_from_json(json.loads(json.dumps(decoding_to_json(decoding))))
    batch = pa.record_batch({"value": pa.array([b"\0\0\0\0\1\2"])})
    assert BatchDecoder(Columns(value=decoding)).decode(batch).fitting.to_pylist() == [{"value": {"kind": "B"}}]


SCHEMA = {
    "$defs": {
        "money": {"type": "object", "properties": {"amount": {"type": "number"}}},
        "node": {"$ref": "#/$defs/node"},
    },
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"$ref": "#/$defs/money"},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}},
        "paid": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
        "mixed": {"type": ["string", "integer"]},
        "node": {"$ref": "#/$defs/node"},
        "elsewhere": {"$ref": "https://example.com/schema"},
        "any": True,
    },
}


def test_a_json_schema_has_columns_for_what_has_one_type() -> None:
    given = FieldOptions(name="value", format=Format.JSON, schema="order.json", text=json.dumps(SCHEMA))
    assert columns(given) == {
        "struct": {
            "id": "int64",
            "price": {"struct": {"amount": "double"}},
            "tags": {"list": "string"},
            "paid": "boolean",
        }
    }


@for_rows("text", ["", "[]", "3", '{"type": "string"}', '{"properties": 3}', "[" * 100_000])
def test_other_files_are_no_json_schemas(text: str) -> None:
    with pytest.raises(UsageError, match=r"order\.json is not a JSON Schema"):
        columns(FieldOptions(name="value", format=Format.JSON, schema="order.json", text=text))


def test_json_in_the_wire_format_of_a_registry_is_decoded_by_the_ids_of_the_subject() -> None:
    options = FieldOptions(name="value", format=Format.JSON, schema="registry")
    decoding: Decoding = decided(options, Schema(5, "JSON", json.dumps(SCHEMA)))["orders"].value
    values = [b'\0\0\0\0\5{"id": 1, "new": [2]}', b'\0\0\0\0\6{"id": 1}', b'{"id": 1}', b'\0\0\0\0\5{"id": "x"}', None]
    decoded = BatchDecoder(Columns(value=decoding)).decode(pa.record_batch({"value": pa.array(values)}))
    rows = decoded.fitting.to_pylist()
    assert [row["value"] and row["value"]["id"] for row in rows] == [1, None]
    assert [row["value_rest"] for row in rows] == ['{"new": [2]}', None]
    assert decoded.misfits is not None
    assert decoded.misfits.column("reason").to_pylist() == [
        "value: it does not begin with the id of a schema of its subject",
        "value: it does not begin with the id of a schema of its subject",
        "value: value.id is not int64",
    ]


def test_a_few_values_of_another_type_do_not_remove_a_field() -> None:
    clean = [b'{"id": 1, "tags": ["x"], "who": {"name": "y"}}'] * 9
    assert columns(JSON, samples={"orders": [*clean, b'{"id": "?", "tags": "x", "who": 3}']}) == {
        "struct": {"id": "int64", "tags": {"list": "string"}, "who": {"struct": {"name": "string"}}}
    }
    assert columns(JSON, samples={"orders": [*clean, b'{"id": "?"}', b'{"id": [], "who": {"name": 1.5}}']}) == {
        "struct": {"tags": {"list": "string"}, "who": {"struct": {"name": "string"}}}
    }


def test_a_member_with_the_name_of_an_alternative_has_no_column() -> None:
    sample = [b'{"id": 1, "id__double": "x", "no__double": 2}']
    assert columns(JSON, samples={"orders": sample}) == {"struct": {"id": "int64", "no__double": "int64"}}
    held = Struct((("id", "int64"), ("id__double", "double")))
    decoding = decided(JSON, samples={"orders": sample}, held=held)["orders"].value
    values = [b'{"id": 0.5, "id__double": 7}', b'{"id": "x", "id__double": 0.5}']
    decoded = BatchDecoder(Columns(value=decoding)).decode(pa.record_batch({"value": pa.array(values)}))
    rows = decoded.fitting.to_pylist()
    assert [row["value"] for row in rows] == [
        {"id": None, "id__double": 0.5, "no__double": None},
        {"id": None, "id__double": None, "no__double": None},
    ]
    assert [row["value_rest"] for row in rows] == ['{"id__double": 7}', '{"id": "x", "id__double": 0.5}']
    assert decoded.misplaced == {
        ("value.id__double", ""): (2, 0),
        ("value.id", "int64"): (1, 1),
    }


def test_topics_of_one_table_have_the_same_columns() -> None:
    samples = {"orders": [b'{"id": 1, "a": "x"}'], "payments": [b'{"id": 0.5, "b": true}']}
    both = decided(JSON, samples=samples, is_shared=True)
    assert both["orders"] == both["payments"]
    assert type_to_json(both["orders"].value.type) == {
        "struct": {"id": "int64", "a": "string", "b": "boolean", "id__double": "double"}
    }
    apart = decided(JSON, samples=samples)
    assert type_to_json(apart["payments"].value.type) == {"struct": {"id": "double", "b": "boolean"}}

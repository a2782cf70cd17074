"""Which columns an export has: from JSON Schemas, versions of a subject, samples, and the columns that it has."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kctl.client.registry.schema import Reference, Schema
from kctl.errors import UsageError
from kctl.tables.exec.decoding.batch_decoder import BatchDecoder
from kctl.tables.exec.schema.column_types import (
    Columns,
    Decoding,
    Format,
    ListOf,
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


def test_a_field_whose_type_changes_has_a_column_for_each_type() -> None:
    """int, long, double and string; the first three are a change that a registry allows as BACKWARD."""
    kinds = ["int", "long", "double", "string"]
    versions = [Schema(number, "AVRO", record(("id", kind))) for number, kind in enumerate(kinds, 1)]
    held: Type | None = None
    for count in range(1, 5):
        held = decided(AVRO, *versions[:count], held=held)["orders"].value.type
    names = ["id", "id__int64", "id__double", "id__string"]
    assert type_to_json(held or "") == {"struct": dict(zip(names, ["int32", "int64", "double", "string"], strict=True))}
    decoding = decided(AVRO, *versions, held=held)["orders"].value
    ids: list[tuple[int, Any]] = [
        *((1, n) for n in (7, -(2**31))),
        *((2, n) for n in (8, 2**31, -(2**63))),
        *((3, n) for n in (9.0, 0.5, 1e300, -(2.0**31))),
        *((4, n) for n in ("", "x")),
    ]
    batch = pa.record_batch({"value": pa.array([avro_bytes(versions, *value) for value in ids], pa.binary())})
    decoded = BatchDecoder(Columns(value=decoding)).decode(batch)
    assert decoded.misfits is None
    rows = [row["value"] for row in decoded.fitting.to_pylist()]
    assert [[value for value in row.values() if value is not None] for row in rows] == [[value] for _, value in ids]
    assert [row["id"] for row in rows] == [7, -(2**31), 8, None, None, 9, None, None, -(2**31), None, None]
    assert [row["id__int64"] for row in rows if row["id__int64"]] == [2**31, -(2**63)]


def avro_bytes(versions: Sequence[Schema], schema_id: int, value: Any) -> bytes:
    out = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, json.loads(versions[schema_id - 1].text), {"id": value})
    return out.getvalue()


DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int"}]}
DAY, NOON = date(2026, 11, 30), datetime(2026, 11, 30, 12, tzinfo=UTC)


def list_of(items: str) -> dict[str, str]:
    return {"type": "array", "items": items}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@for_rows(
    "before, after, column, values",
    [
        ("int", list_of("int"), "id__list", {1: [7], 2: [[8, 9]]}),
        (list_of("int"), list_of("long"), "id__list", {1: [[1], []], 2: [[2**40]]}),
        (list_of("int"), list_of("string"), "id__list", {1: [[1]], 2: [["x"]]}),
        (DATE, "int", "id__int32", {1: [DAY], 2: [5]}),
        (DATE, TIME, "id__timestamp", {1: [DAY], 2: [NOON]}),
        (decimal(9, 2), decimal(12, 4), "id__decimal_12_4", {1: [Decimal("1.50")], 2: [Decimal("1.0625")]}),
        (decimal(9, 2), "double", "id__double", {1: [Decimal("1.50")], 2: [0.1]}),
        (INNER, "string", "id__string", {1: [{"a": 1}], 2: ["x"]}),
        (INNER, {"type": "map", "values": "int"}, "id__map", {1: [{"a": 1}], 2: [{"b": 2}]}),
        ({"type": "map", "values": "int"}, INNER, "id__struct", {1: [{"b": 2}], 2: []}),
        ({"type": "array", "items": INNER}, list_of("int"), "id__list", {1: [[{"a": 1}]], 2: [[3]]}),
    ],
)
def test_any_change_of_a_type_has_a_column_of_its_own(
    before: Any, after: Any, column: str, values: dict[int, list[Any]]
) -> None:
    """Values of the first schema are in the first column, those that it does not have in the other."""
    versions = [Schema(number, "AVRO", record(("id", kind))) for number, kind in enumerate((before, after), 1)]
    held = decided(AVRO, versions[0])["orders"].value.type
    decoding = decided(AVRO, *versions, held=held)["orders"].value
    assert isinstance(decoding.type, Struct)
    assert [name for name, _ in decoding.type.fields] == ["id", column]
    assert decoding_from_json(decoding_to_json(decoding)) == decoding
    again = decided(AVRO, *versions, held=decoding.type)["orders"].value
    assert again.type == decoding.type
    pairs = [(number, value) for number, found in values.items() for value in found]
    batch = pa.record_batch({"value": pa.array([avro_bytes(versions, *pair) for pair in pairs], pa.binary())})
    decoded = BatchDecoder(Columns(value=decoding)).decode(batch)
    assert decoded.misfits is None
    for (number, value), row in zip(pairs, decoded.fitting.column("value").to_pylist(), strict=True):
        named = {
            name: dict(found) if isinstance(value, dict) else found for name, found in row.items() if found is not None
        }
        assert named == {"id" if number == 1 else column: value}


def test_a_third_type_of_lists_is_refused() -> None:
    held: Type | None = None
    versions = [
        Schema(number, "AVRO", record(("id", list_of(kind)))) for number, kind in enumerate(("int", "string"), 1)
    ]
    for count in (1, 2):
        held = decided(AVRO, *versions[:count], held=held)["orders"].value.type
    with pytest.raises(UsageError, match=r"column value\.id__list\[\] is string and would become boolean"):
        decided(AVRO, *versions, Schema(3, "AVRO", record(("id", list_of("boolean")))), held=held)


def test_decimals_of_versions_that_are_exported_together_are_one_column() -> None:
    versions = [Schema(1, "AVRO", record(("id", decimal(9, 2)))), Schema(2, "AVRO", record(("id", decimal(12, 6))))]
    assert columns(AVRO, *versions) == {"struct": {"id": "decimal(13,6)"}}


def test_values_of_json_whose_kind_changes_have_a_column_for_each_kind() -> None:
    """An object may have members without a column; a list is in a column as a whole."""
    held: Type | None = None
    samples = [b'{"a": [1], "b": 1}', b'{"a": ["x"], "b": {"c": 1}}', b'{"a": "y", "b": [true]}', b'{"a": [1.5]}']
    for sample in samples:
        held = decided(JSON, held=held, samples={"orders": [sample]})["orders"].value.type
    assert type_to_json(held or "") == {
        "struct": {
            "a": {"list": "int64"},
            "b": "int64",
            "a__list": {"list": "string"},
            "b__struct": {"struct": {"c": "int64"}},
            "a__string": "string",
            "b__list": {"list": "boolean"},
        }
    }
    values = [*samples[:3], b'{"a": [1, "x"]}', b'{"b": {"c": 2, "d": 3}}', b'{"b": {"c": "z"}}', b'{"a": 1}']
    rows = decoded_json(held, values)
    assert [{name: member for name, member in row["value"].items() if member is not None} for row in rows] == [
        {"a": [1], "b": 1},
        {"a__list": ["x"], "b__struct": {"c": 1}},
        {"a__string": "y", "b__list": [True]},
        {"a": [1, None]},
        {"b__struct": {"c": 2}},
        {"b__struct": {"c": None}},
        {},
    ]
    rests = [json.loads(row["value_rest"] or "{}") for row in rows]
    assert rests == [{}, {}, {}, {"a": [1, "x"]}, {"b": {"d": 3}}, {"b": {"c": "z"}}, {"a": 1}]


def decoded_json(type_: Type | None, values: Sequence[bytes]) -> list[dict[str, Any]]:
    decoding = Decoding(Format.JSON, type_ or Struct())
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    rows: list[dict[str, Any]] = BatchDecoder(Columns(value=decoding)).decode(batch).fitting.to_pylist()
    return rows


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


def test_records_within_themselves_are_json() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "data", "type": ["null", "bytes"]},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "children", "type": {"type": "array", "items": "Node"}},
        ],
    }
    leaf = {"id": 3, "data": b"\xe9", "day": date(2026, 11, 30), "children": []}
    tree = {"id": 1, "data": b"\x00", "day": None, "children": [{**leaf, "id": 2, "children": [leaf]}, leaf]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(node), tree)
    field = FieldOptions(name="value", format=Format.AVRO, schema="node.avsc", text=json.dumps(node))
    options = DecodingOptions(value=field)
    (columns,) = decide(options, ["a"], {}, registry=None, sample_of=lambda topic, name: [], is_shared=False).values()
    assert isinstance(columns.value.type, Struct)
    assert dict(columns.value.type.fields)["children"] == ListOf("string")
    batch = pa.RecordBatch.from_pydict({"key": pa.nulls(1, pa.binary()), "value": pa.array([out.getvalue()])})
    (value,) = BatchDecoder(columns).decode(batch).fitting.column("value").to_pylist()
    assert (value["id"], value["data"], value["day"]) == (1, b"\x00", None)
    last = {"id": 3, "data": "\u00e9", "day": "2026-11-30", "children": []}
    assert [json.loads(text) for text in value["children"]] == [{**last, "id": 2, "children": [last]}, last]


def decode_one(options: DecodingOptions, data: bytes, samples: Sequence[bytes] = ()) -> tuple[Any, Any]:
    """The columns that are decided, and the row of a value."""
    (columns,) = decide(
        options, ["a"], {}, registry=None, sample_of=lambda topic, name: samples, is_shared=False
    ).values()
    decoding = decoding_from_json(json.loads(json.dumps(decoding_to_json(columns.value))))
    assert decoding == columns.value
    batch = pa.RecordBatch.from_pydict({"key": pa.nulls(1, pa.binary()), "value": pa.array([data], pa.binary())})
    (row,) = BatchDecoder(columns).decode(batch).fitting.to_pylist()
    return type_to_json(columns.value.type), row


def test_below_a_depth_values_are_text() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}
    address = {
        "type": "record",
        "name": "Address",
        "fields": [{"name": "city", "type": "string"}, {"name": "at", "type": ["null", point]}],
    }
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "to", "type": ["null", address]},
            {"name": "stops", "type": {"type": "array", "items": "Address"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "more", "type": {"type": "map", "values": "bytes"}},
        ],
    }
    berlin = {"city": "Köln", "at": {"x": float("nan")}}
    value = {
        "id": 1,
        "to": berlin,
        "stops": [berlin, {"city": "Bonn", "at": None}],
        "tags": ["a"],
        "more": {"k": b"\xe9"},
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    field = FieldOptions(name="value", format=Format.AVRO, schema="order.avsc", text=json.dumps(schema))
    flat, row = decode_one(DecodingOptions(value=field, levels=1), out.getvalue())
    tags = {"list": "string"}
    assert flat == {"struct": {"id": "int64", "to": "string", "stops": "string", "tags": tags, "more": "string"}}
    assert json.loads(row["value"]["to"]) == {"city": "Köln", "at": {"x": "nan"}}
    assert [stop["city"] for stop in json.loads(row["value"]["stops"])] == ["Köln", "Bonn"]
    assert (row["value"]["tags"], json.loads(row["value"]["more"])) == (["a"], {"k": "\xe9"})
    deeper, row = decode_one(DecodingOptions(value=field, levels=2), out.getvalue())
    address_type = {"struct": {"city": "string", "at": "string"}}
    assert deeper["struct"] | {"more": ""} == {
        "id": "int64",
        "to": address_type,
        "stops": {"list": address_type},
        "tags": tags,
        "more": "",
    }
    assert row["value"]["stops"][1] == {"city": "Bonn", "at": None}
    assert dict(row["value"]["more"]) == {"k": b"\xe9"}

    text = b'{"id": 1, "to": {"city": "K", "at": {"x": 1.10}}, "tags": ["a"]}'
    found, row = decode_one(DecodingOptions(value=JSON, levels=1), text, [text])
    assert found == {"struct": {"id": "int64", "tags": tags}}
    assert row["value_rest"] == '{"to": {"city": "K", "at": {"x": 1.10}}}'
    found, row = decode_one(DecodingOptions(value=JSON, levels=2), text, [text])
    assert found == {"struct": {"id": "int64", "to": {"struct": {"city": "string"}}, "tags": tags}}
    assert row["value_rest"] == '{"to": {"at": {"x": 1.10}}}'
    with pytest.raises(UsageError, match="--max-depth is an option of --value and --key json and avro"):
        DecodingOptions(value=FieldOptions(name="value", format=Format.PROTOBUF), levels=1)

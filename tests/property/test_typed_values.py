"""Keys and values are decoded for any bytes: each is in the columns, or there is a reason, and nothing is raised."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("fastavro")

import fastavro
import pyarrow as pa

from kctl.client.registry.avro import AvroCodec
from kctl.client.registry.schema import Schema
from kctl.tables.compaction.backfill import filled
from kctl.tables.exec.decoding.avro_values import AvroDecoder
from kctl.tables.exec.decoding.batch_decoder import BatchDecoder
from kctl.tables.exec.decoding.json_values import RECORD_BY_RECORD_MAX, JsonDecoder
from kctl.tables.exec.schema.avro_columns import column_of, prepared
from kctl.tables.exec.schema.column_types import (
    NO_ID,
    Columns,
    Decoding,
    Format,
    ListOf,
    Struct,
    extended,
    is_alternative,
    type_from_json,
    type_to_json,
)
from kctl.tables.exec.schema.json_fields import inferred
from kctl.tables.exec.selection.columns import fields_of
from kctl.tables.verification.decoded_values import content

NAMES = st.sampled_from(["id", "ID", "name", "a.b", "", "tags", "größe", "i", "v", "key", "value"])
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.integers(-9, 9), st.floats(), st.sampled_from([10**400, 2**53 + 1])
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5), st.just("\ud800"))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
TEXTS = OBJECTS.map(lambda value: json.dumps(value).encode())
FORGED = st.sampled_from(
    [
        b'{"a":1}\n{"i":1,"v":{}}', b'{"a":1},"w":2', b'{}}\n{"i":1,"v":{}', b"[1", b'{"a":', b"1}", b"", b" ", b"null",
        b'{"a":1,"a":2}', b'{"d":NaN}', b'{"d":1e400}', b'"abc', b"[" * 3000, b'{"id":' * 3000, b"\xff", b"-", b"tru",
        b'{"id":"a\nb"}', b"{}{}", b'{"id": 1}\n', b"\xef\xbb\xbf{}", b'{"id":-0}', b'{"id":1.0}', b'{"\\u0000":1}',
    ]
)  # fmt: skip
BYTES = st.one_of(
    st.none(),
    st.binary(max_size=30),
    FORGED,
    TEXTS,
    OBJECTS.map(lambda object_: json.dumps(object_, indent=1).encode()),
)


@example([{"a": None, "b": {"c": 0}}], [], [b'{"a": {}, "b": {"c": 0}}'], 0, False)
@example(
    [{"a": {"b": 1}}], [{"a": {"b": 0.5}}], [b'{"a": {"b": 2.0}}', b'{"a": {"b": -0.5}}', b'{"a": null}'], 1, False
)
@given(
    st.lists(OBJECTS, max_size=4),
    st.lists(OBJECTS, max_size=4),
    st.lists(BYTES, max_size=8),
    st.integers(0, 3),
    st.booleans(),
)
def test_any_bytes_are_json_columns_and_a_rest_or_have_a_reason(
    known: list[Any], later: list[Any], values: list[bytes | None], copies: int, is_strict: bool
) -> None:
    """Also with so many records that the parser gets them together, and among many that it accepts."""
    first, second = (inferred(json.dumps(document) for document in documents) for documents in (known, later))
    type_ = extended(first, second, "value", is_strict=False)
    assert isinstance(type_, Struct)
    filler = [b"{}"] * (RECORD_BY_RECORD_MAX * copies)
    decoder = JsonDecoder(Decoding(Format.JSON, type_, is_strict), "value")
    decoded = decoder.decode(pa.array([*filler, *values, *filler], pa.binary()))
    alone = [decoder.decode(pa.array([value], pa.binary())) for value in values]
    for array in decoded.arrays:
        array.validate(full=True)
    rows = list(zip(*(array.to_pylist() for array in decoded.arrays), strict=True))[len(filler) :][: len(values)]
    for index, (raw, row, single) in enumerate(zip(values, rows, alone, strict=True)):
        assert decoded.misfits.get(index + len(filler)) == single.misfits.get(0)
        assert repr(row) == repr(tuple(array.to_pylist()[0] for array in single.arrays))
        if raw is not None and not single.misfits:
            assert _whole(row) == _without_nulls(json.loads(raw))


def test_values_with_the_header_of_a_registry_may_be_missing_or_shorter_than_it() -> None:
    header = b"\0\0\0\0\7"
    decoder = JsonDecoder(Decoding(Format.JSON, Struct((("id", "int64"),)), schemas=((7, ""),)), "value")
    decoded = decoder.decode(pa.array([header + b'{"id": 1}', None, b"", b"\0", header, header + b'{"id": 2}']))
    assert decoded.arrays[0].to_pylist() == [{"id": 1}, None, None, None, None, {"id": 2}]
    no_header = "it does not begin with the id of a schema of its subject"
    assert decoded.misfits == {2: no_header, 3: no_header, 4: "it is not JSON"}


def test_the_same_number_of_levels_is_refused_wherever_a_value_is_decoded() -> None:
    """Python's limit depends on its version and on the stack, which is not the same in two attempts of a task."""
    depths = [498, 499, 500, 501, 900, 980, 3_000, 200_000]
    lists = [b'{"a":' + b"[" * depth + b"]" * depth + b"}" for depth in depths]
    objects = [b'{"a":' * depth + b"[[]]" + b"}" * depth for depth in depths]
    wide = [b'{"a":[' + b"[]," * 1_000 + b"0]}"]
    decoder = JsonDecoder(Decoding(Format.JSON, Struct((("b", "int64"),))), "value")

    def refused(values: list[bytes], frames: int) -> dict[int, str]:
        return refused(values, frames - 1) if frames else dict(decoder.decode(pa.array(values)).misfits)

    for frames in (0, 200):
        assert refused(lists, frames) == dict.fromkeys(range(2, 8), "it has too many levels")
        assert refused(objects, frames) == dict.fromkeys(range(1, 8), "it has too many levels")
        assert refused(wide, frames) == {}


def _whole(row: tuple[Any, ...]) -> Any:
    """The value that the columns and the rest have together."""
    rest = json.loads(row[-1]) if row[-1] else None
    value = _without_nulls(row[0]) if len(row) > 1 else None
    return _together(value, rest)


def _together(value: Any, rest: Any) -> Any:
    if rest is None:
        return value
    if isinstance(value, dict) and isinstance(rest, dict):
        return _without_nulls({name: _together(value.get(name), rest.get(name)) for name in {*value, *rest}})
    return _without_nulls(rest)


def _without_nulls(value: Any) -> Any:
    """Without members that are null or have only such; a column of floats has whole numbers as floats."""
    if isinstance(value, dict):
        value = _without_alternatives(value)
        found = {name: _without_nulls(value[name]) for name in sorted(value)}
        return {name: field_value for name, field_value in found.items() if field_value is not None} or None
    if isinstance(value, list):
        return [_without_nulls(element) for element in value]
    if type(value) is int and abs(value) < 10**300:
        return float(value)
    return value


def _without_alternatives(value: dict[str, Any]) -> dict[str, Any]:
    """With the values of alternatives such as id__double as those of their fields."""
    found = {name: member for name, member in value.items() if not is_alternative(name, value)}
    for name, member in value.items():
        if name not in found and member is not None:
            field = name.rpartition("__")[0]
            assert found[field] is None
            found[field] = member
    return found


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12)), max_size=8))
def test_any_bytes_are_text_or_have_a_reason(values: list[bytes | None]) -> None:
    batch = pa.record_batch(
        {"key": values, "value": values}, schema=pa.schema([(n, pa.binary()) for n in ("key", "value")])
    )
    text = Decoding(Format.STRING, "string")
    fitting, misfits, _ = BatchDecoder(Columns(text, text)).decode(batch)
    expected = [value if value is None else _text(value) for value in values]
    assert fitting.column("key").to_pylist() == [expectation for expectation in expected if expectation != ()]
    assert (misfits.num_rows if misfits else 0) == expected.count(())
    if misfits:
        assert misfits.column("value").to_pylist() == [
            value for value in values if value is not None and _text(value) == ()
        ]


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ()


WHO = {"type": "record", "name": "Who", "fields": [{"name": "n", "type": "string"}]}
SCHEMA = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", WHO]},
        {"name": "any", "type": ["null", "int", "string", "Who", {"type": "array", "items": "double"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "by", "type": {"type": "map", "values": ["null", "float"]}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip


def avro(schema: Any) -> AvroDecoder:
    text = json.dumps(schema)
    codec = AvroCodec(prepared(Schema(NO_ID, "AVRO", text)))
    return AvroDecoder(Decoding(Format.AVRO, column_of(*codec.parsed, "value"), True, ((NO_ID, text),)))


DECODER = avro(SCHEMA)
PLAIN = fastavro.parse_schema(SCHEMA)
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "who": st.none() | st.fixed_dictionaries({"n": st.text(max_size=4)}),
        "any": st.one_of(
            st.none(), st.integers(-9, 9), st.text(max_size=3), st.fixed_dictionaries({"n": st.text(max_size=2)}),
            st.lists(st.floats(allow_nan=False), max_size=2),
        ),
        "at": st.datetimes().map(lambda at: at.replace(microsecond=0)),
        "day": st.dates(),
        "price": st.decimals(-999, 999, places=2),
        "by": st.dictionaries(st.text(max_size=2), st.none() | st.floats(width=32, allow_nan=False), max_size=2),
        "kind": st.sampled_from("AB"),
        "uid": st.uuids().map(str),
    }
)  # fmt: skip


def encoded(order: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PLAIN, order)
    return out.getvalue()


@given(st.lists(ORDERS, max_size=4))
def test_avro_values_are_what_fastavro_wrote(orders: list[dict[str, Any]]) -> None:
    decoded = DECODER.decode(pa.array([encoded(order) for order in orders], pa.binary()))
    assert not decoded.misfits
    for order, row in zip(orders, decoded.arrays[0].to_pylist(), strict=True):
        branch = {int: "int", str: "string", dict: "Who", list: "array"}.get(type(order["any"]))
        union = branch and dict.fromkeys(["int", "string", "Who", "array"]) | {branch: order["any"]}
        assert row.pop("at").replace(tzinfo=None) == order["at"]
        assert row == {name: value for name, value in order.items() if name != "at"} | {
            "any": union,
            "by": list(order["by"].items()),
        }


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(encoded(draw(ORDERS)))
    data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@given(st.lists(st.binary(max_size=40) | damaged(), max_size=6))
def test_any_bytes_are_avro_columns_or_have_a_reason(values: list[bytes]) -> None:
    decoded = DECODER.decode(pa.array(values, pa.binary()))
    decoded.arrays[0].validate(full=True)
    assert len(decoded.arrays[0]) == len(values)
    assert all(decoded.arrays[0][index].as_py() is None for index in decoded.misfits)


@given(OBJECTS, OBJECTS)
def test_columns_are_only_added_and_keep_their_types(first: Any, second: Any) -> None:
    held = inferred([json.dumps(first)])
    both = extended(held, inferred([json.dumps(second)]), "value", is_strict=False)
    assert type_from_json(json.loads(json.dumps(type_to_json(both)))) == both
    assert _is_within(held, both)
    assert extended(both, held, "value", is_strict=False) == both


def _is_within(held: Any, new: Any) -> bool:
    match held, new:
        case Struct(fields), Struct(more):
            return [name for name, _ in fields] == [name for name, _ in more][: len(fields)] and all(
                _is_within(field, other) for (_, field), (_, other) in zip(fields, more, strict=False)
            )
        case ListOf(item), ListOf(other):
            return _is_within(item, other)
    return bool(held == new)


def test_numbers_without_a_column_keep_all_digits() -> None:
    numbers = [
        "1.10000000000000000001", "-0", "-0.0", "1E400", "-1e-400", "123456789012345678901234567890.50", "9" * 5_000,
        "1e+2", "0.1e1",
    ]  # fmt: skip
    deep = "[" * 400 + "1.00" + "]" * 400
    texts = [f'{{"id": 1, "n": {{"é": [{number}, "{number}", null, true]}}}}' for number in (*numbers, deep)]
    decoder = JsonDecoder(Decoding(Format.JSON, Struct((("id", "int64"),))), "value")
    decoded = decoder.decode(pa.array([text.encode() for text in texts], pa.binary()))
    assert not decoded.misfits
    assert decoded.arrays[1].to_pylist() == [text.replace('"id": 1, ', "").replace("é", "\\u00e9") for text in texts]


@pytest.mark.parametrize("copies", [0, RECORD_BY_RECORD_MAX])
def test_a_column_of_doubles_has_no_whole_number_that_would_be_rounded(copies: int) -> None:
    texts = [b'{"n": 0.5}'] * copies + [b'{"n": 9007199254740991}', b'{"n": -9007199254740993}', b'{"n": 1e22}']
    decoder = JsonDecoder(Decoding(Format.JSON, Struct((("n", "double"),))), "value")
    decoded = decoder.decode(pa.array(texts, pa.binary()))
    assert not decoded.misfits
    rows = [array.to_pylist()[copies:] for array in decoded.arrays]
    assert rows == [
        [{"n": 9007199254740991.0}, {"n": None}, {"n": 1e22}],
        [None, '{"n": -9007199254740993}', None],
    ]


@given(st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=4))
@example([b'{"id":1}', b'{"id":"a","v":[1,"x"]}'], [b'{"id":"b","v":[2],"key":{"i":-0}}'])
@example([b'{"id":{"i":1}}', b'{"id":{"name":1.5}}'], [b'{"id":{"name":1}}'])
def test_rows_that_get_later_columns_are_as_if_they_had_been_decoded_with_them(
    first: list[bytes], later: list[bytes]
) -> None:
    held = inferred(first)
    wide = extended(held, inferred([*first, *later]), "value", is_strict=False)
    raw = pa.array([*first, *later], pa.binary())
    batches = []
    for type_ in (held, wide):
        decoding = Decoding(Format.JSON, type_)
        arrays = JsonDecoder(decoding, "value").decode(raw).arrays
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields_of("value", decoding))))
    narrow, direct = batches
    moved = filled(narrow, direct.schema)
    assert contents(moved) == contents(direct) == contents(narrow)
    columns = [column.to_pylist() for column in (moved.column(0), direct.column(0))]
    assert [present(value) for value in columns[0]] == [present(value) for value in columns[1]]


def contents(batch: pa.RecordBatch) -> list[bytes | None]:
    """What each row has, in whichever columns."""
    values = batch.column("value").to_pylist() if "value" in batch.schema.names else [None] * batch.num_rows
    return [content(value, rest) for value, rest in zip(values, batch.column("value_rest").to_pylist(), strict=True)]


def present(value: Any) -> Any:
    """The value without members that are null or have only such."""
    if not isinstance(value, dict):
        return str(value) if isinstance(value, float) else value
    members = {name: present(member) for name, member in value.items()}
    return {name: member for name, member in members.items() if member is not None} or None

"""Protobuf messages become columns, and any bytes are a message or have a reason why not."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("google.protobuf")

import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message_factory import GetMessageClass

from kctl.client.registry.protobuf import ProtobufCodec
from kctl.client.registry.schema import Schema, header_of, indexes_of
from kctl.errors import UsageError
from kctl.tables.exec.decoding.protobuf_values import ProtobufDecoder, column_of
from kctl.tables.exec.schema.changes import row_type
from kctl.tables.exec.schema.column_types import ChangeFormat, Decoding, Format, Struct, type_to_json
from kctl.tables.exec.schema.schema_texts import text_of

ID = 7
MANY = Field.LABEL_REPEATED
LINE, ENTRY, KIND = ".shop.Order.Line", ".shop.Order.ByEntry", ".shop.Order.Kind"


def add(message: DescriptorProto, name: str, kind: Any, type_name: str = "", label: Any = Field.LABEL_OPTIONAL) -> None:
    field = message.field.add(name=name, number=len(message.field) + 1)
    field.type = kind
    field.label = label
    if type_name:
        field.type_name = type_name


def order_schema() -> Schema:
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers", "struct"))
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    add(line, "quantity", Field.TYPE_UINT32)
    entry = order.nested_type.add(name="ByEntry")
    entry.options.map_entry = True
    add(entry, "key", Field.TYPE_INT32)
    add(entry, "value", Field.TYPE_DOUBLE)
    kind = order.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    add(order, "id", Field.TYPE_INT64)
    add(order, "total", Field.TYPE_UINT64)
    add(order, "tags", Field.TYPE_STRING, label=MANY)
    add(order, "at", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add(order, "priority", Field.TYPE_MESSAGE, ".google.protobuf.Int32Value")
    add(order, "more", Field.TYPE_MESSAGE, ".google.protobuf.Struct")
    add(order, "kind", Field.TYPE_ENUM, KIND)
    add(order, "by", Field.TYPE_MESSAGE, ENTRY, MANY)
    add(order, "lines", Field.TYPE_MESSAGE, LINE, MANY)
    add(order, "last", Field.TYPE_MESSAGE, LINE)
    add(order, "stops", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp", MANY)
    add(order, "took", Field.TYPE_MESSAGE, ".google.protobuf.Duration")
    return Schema(ID, "PROTOBUF", base64.b64encode(file.SerializeToString()).decode())


SCHEMA = order_schema()
CODEC = ProtobufCodec(SCHEMA)
TYPE = column_of(CODEC, "value")
DECODER = ProtobufDecoder(Decoding(Format.PROTOBUF, TYPE, True, ((ID, text_of(SCHEMA)),)))


def payload(path: list[int], data: bytes) -> bytes:
    return header_of(ID) + indexes_of(path) + data


def full_order() -> bytes:
    order: Any = GetMessageClass(CODEC.first_type)(id=-5, total=2**64 - 1, tags=["a"], kind=1, by={3: 1.5})
    order.at.FromDatetime(datetime(2026, 11, 1, tzinfo=UTC))
    order.priority.value = 4
    order.more.update({"a": [1]})
    order.lines.add(quantity=2**32 - 1)
    order.stops.add().FromNanoseconds(1_793_491_200_000_000_001)
    order.took.FromNanoseconds(-1_000_000_005)
    return payload([0], order.SerializeToString())


def test_a_message_type_becomes_a_struct() -> None:
    line = {"struct": {"quantity": "int64"}}
    assert type_to_json(TYPE) == {
        "struct": {
            "id": "int64",
            "total": "decimal(20,0)",
            "tags": {"list": "string"},
            "at": "timestamp",
            "priority": "int32",
            "more": "string",
            "kind": "string",
            "by": {"map": "double"},
            "lines": {"list": line},
            "last": line,
            "stops": {"list": "string"},
            "took": {"struct": {"seconds": "int64", "nanos": "int32"}},
            "at__nanos": "int32",
        }
    }


def test_messages_become_rows() -> None:
    values = [full_order(), payload([0], b""), None, payload([0, 0], b""), payload([9], b""), b"\0\0\0\0\1\0"]
    decoded = DECODER.decode(pa.array(values, pa.binary()))
    (rows,) = decoded.arrays
    assert rows[0].as_py() == {
        "id": -5,
        "total": Decimal(2**64 - 1),
        "tags": ["a"],
        "at": datetime(2026, 11, 1, tzinfo=UTC),
        "priority": 4,
        "more": '{"a": [1.0]}',
        "kind": "PAID",
        "by": [("3", 1.5)],
        "lines": [{"quantity": 2**32 - 1}],
        "last": None,
        "stops": ["2026-11-01T00:00:00.000000001Z"],
        "took": {"seconds": -1, "nanos": -5},
        "at__nanos": None,
    }
    empty = {"id": 0, "total": 0, "tags": [], "kind": "NEW", "by": [], "lines": [], "stops": []}
    assert rows[1].as_py() == {**dict.fromkeys(rows[0].as_py()), **empty}
    assert rows[2].as_py() is None
    assert decoded.misfits == {
        3: "it is a shop.Order.Line, not a shop.Order",
        4: "its message indexes are not in its schema",
        5: "schema 1 is not one of its subject",
    }


@given(st.lists(st.tuples(st.integers(5, 10**6), st.integers(0, 255)), max_size=4), st.binary(max_size=30))
def test_any_bytes_are_columns_or_have_a_reason(changes: list[tuple[int, int]], other: bytes) -> None:
    damaged = bytearray(full_order())
    for position, byte in changes:
        damaged[5 + position % (len(damaged) - 5)] = byte
    values = [bytes(damaged), other, payload([0], other)]
    decoded = DECODER.decode(pa.array(values, pa.binary()))
    decoded.arrays[0].validate(full=True)
    assert all(decoded.arrays[0][index].as_py() is None for index in decoded.misfits)


def test_nanoseconds_are_beside_the_microseconds() -> None:
    """Also before 1970, where the nanoseconds of Protobuf count forward."""
    for nanoseconds in (
        1_793_491_200_123_456_789,
        -1,
        0,
        1_000,
        -62_135_596_800_000_000_000,
        253_402_300_799_999_999_999,
    ):
        order: Any = GetMessageClass(CODEC.first_type)()
        order.at.FromNanoseconds(nanoseconds)
        decoded = DECODER.decode(pa.array([payload([0], order.SerializeToString())], pa.binary()))
        assert not decoded.misfits
        row = decoded.arrays[0].field("at").cast(pa.int64())[0].as_py()
        assert row * 1000 + (decoded.arrays[0].field("at__nanos")[0].as_py() or 0) == nanoseconds


def test_a_message_within_one_of_its_type_is_json() -> None:
    file = FileDescriptorProto(name="node.proto", package="shop", syntax="proto3")
    node = file.message_type.add(name="Node")
    add(node, "next", Field.TYPE_MESSAGE, ".shop.Node")
    add(node, "id", Field.TYPE_INT32)
    text = base64.b64encode(file.SerializeToString()).decode()
    codec = ProtobufCodec(Schema(ID, "PROTOBUF", text))
    type_ = column_of(codec, "value")
    assert type_ == Struct((("next", "string"), ("id", "int32")))
    decoder = ProtobufDecoder(Decoding(Format.PROTOBUF, type_, schemas=((ID, text),)))
    data = header_of(ID) + indexes_of([0]) + b"\x0a\x06\x0a\x02\x10\x03\x10\x02\x10\x01"
    decoded = decoder.decode(pa.array([data, None], pa.binary()))
    (found, nothing) = decoded.arrays[0].to_pylist()
    assert (json.loads(found["next"]), found["id"], nothing) == ({"next": {"id": 3}, "id": 2}, 1, None)


def test_a_message_type_with_exponentially_many_columns_is_refused() -> None:
    file = FileDescriptorProto(name="big.proto", package="shop", syntax="proto3")
    for level in range(40):
        message = file.message_type.add(name=f"M{level}")
        for name in "xy":
            add(message, name, Field.TYPE_MESSAGE, f".shop.M{level + 1}")
    add(file.message_type.add(name="M40"), "x", Field.TYPE_INT32)
    codec = ProtobufCodec(Schema(ID, "PROTOBUF", base64.b64encode(file.SerializeToString()).decode()))
    with pytest.raises(UsageError, match="has more than 10000 types"):
        column_of(codec, "value")


def test_messages_of_debezium_are_rows_and_what_becomes_of_them() -> None:
    file = FileDescriptorProto(name="customers.proto", package="shop", syntax="proto3")
    envelope = file.message_type.add(name="Envelope")
    row = envelope.nested_type.add(name="Value")
    add(row, "id", Field.TYPE_INT32)
    add(row, "name", Field.TYPE_STRING)
    for name in ("before", "after"):
        add(envelope, name, Field.TYPE_MESSAGE, ".shop.Envelope.Value")
    add(envelope, "op", Field.TYPE_STRING)
    schema = Schema(ID, "PROTOBUF", base64.b64encode(file.SerializeToString()).decode())
    codec = ProtobufCodec(schema)
    type_ = row_type(column_of(codec, "value"))
    assert type_to_json(type_) == {"struct": {"id": "int32", "name": "string"}}
    decoding = Decoding(Format.PROTOBUF, type_, True, ((ID, text_of(schema)),), ChangeFormat.DEBEZIUM)
    message = GetMessageClass(codec.first_type)
    sent = [
        message(after={"id": 1, "name": "a"}, op="c"),
        message(before={"id": 1}, op="d"),
        message(op="u"),
    ]
    values = [*(payload([0], found.SerializeToString()) for found in sent), None]
    decoded = ProtobufDecoder(decoding).decode(pa.array(values, pa.binary()))
    rows, kinds = (array.to_pylist() for array in decoded.arrays)
    assert rows == [{"id": 1, "name": "a"}, {"id": 1, "name": ""}, None, None]
    assert kinds == ["upsert", "delete", None, "delete"]
    assert decoded.misfits == {2: "op is u, and after is not an object"}

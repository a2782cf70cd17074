"""Logical types of Avro as texts: what fastavro writes is shown, and what is shown is written back."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.client.registry.avro import AvroCodec
from kctl.client.registry.schema import Schema, SchemaError
from tests.rows import for_rows

MOMENT = datetime(2026, 11, 21, 10, 5, 0, 123_456, UTC)
A_UUID = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(size: int, name: str, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, "logicalType": name, **more}


def codec(schema: Any) -> AvroCodec:
    return AvroCodec(Schema(1, "AVRO", json.dumps(schema)))


def written(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


AMOUNT = logical("bytes", "decimal", precision=9, scale=2)


@for_rows(
    "schema, datum, shown",
    [
        (AMOUNT, Decimal("12.34"), "12.34"),
        (AMOUNT, Decimal("-0.05"), "-0.05"),
        (AMOUNT, Decimal(0), "0.00"),
        (AMOUNT, Decimal("9999999.99"), "9999999.99"),
        (logical("bytes", "decimal", precision=3), Decimal(-128), "-128"),
        (fixed(8, "decimal", precision=9, scale=9), Decimal("0.123456789"), "0.123456789"),
        (logical("int", "date"), date(2026, 11, 21), "2026-11-21"),
        (logical("int", "date"), date(1, 1, 1), "0001-01-01"),
        (logical("int", "time-millis"), time(10, 5, 0, 123_000), "10:05:00.123"),
        (logical("long", "time-micros"), time(23, 59, 59, 999_999), "23:59:59.999999"),
        (logical("long", "timestamp-millis"), MOMENT, "2026-11-21T10:05:00.123Z"),
        (logical("long", "timestamp-micros"), MOMENT, "2026-11-21T10:05:00.123456Z"),
        (logical("long", "timestamp-millis"), -1, "1969-12-31T23:59:59.999Z"),
        (logical("long", "timestamp-nanos"), 1, "1970-01-01T00:00:00.000000001Z"),
        (logical("long", "local-timestamp-millis"), MOMENT.replace(tzinfo=None), "2026-11-21T10:05:00.123"),
        (logical("long", "local-timestamp-micros"), MOMENT.replace(tzinfo=None), "2026-11-21T10:05:00.123456"),
        (logical("long", "local-timestamp-nanos"), -1, "1969-12-31T23:59:59.999999999"),
        (logical("string", "uuid"), UUID(A_UUID), A_UUID),
        (fixed(16, "uuid"), UUID(A_UUID).bytes, A_UUID),
        (fixed(12, "duration"), b"\1\0\0\0\2\0\0\0\xbc\x0b\0\0", "P1M2DT3.004S"),
        (fixed(12, "duration"), b"\xff" * 12, "P4294967295M4294967295DT4294967.295S"),
        # What has no text stays as it is.
        (logical("int", "date"), 2**31 - 1, 2**31 - 1),
        (logical("long", "timestamp-millis"), -(2**63), -(2**63)),
        (logical("long", "timestamp-micros"), 2**63 - 1, 2**63 - 1),
        (logical("int", "time-millis"), -1, -1),
        (logical("long", "date"), 5, 5),
        (logical("int", "unknown"), 5, 5),
        # Within other types.
        (["null", AMOUNT], Decimal("0.10"), {"bytes": "0.10"}),
        (["null", AMOUNT], None, None),
        ({"type": "array", "items": logical("int", "date")}, [date(2026, 1, 2)], ["2026-01-02"]),
        ({"type": "map", "values": ["null", fixed(12, "duration")]}, {"a": b"\0" * 12}, {"a": {"F": "P0M0DT0.000S"}}),
    ],
)
def test_logical_types_are_texts_that_are_read_back(schema: Any, datum: Any, shown: Any) -> None:
    raw = {**schema, "logicalType": "none"} if isinstance(schema, dict) and isinstance(datum, int) else schema
    payload = written(raw, datum)
    assert json.loads(codec(schema).decode(payload)) == shown
    assert codec(schema).encode(json.dumps(shown)) == payload


def test_named_types_and_fields_are_followed() -> None:
    at = {
        "type": "record",
        "name": "At",
        "namespace": "a.b",
        "fields": [{"name": "day", "type": logical("int", "date")}],
    }
    schema = {
        "type": "record",
        "name": "Order",
        "namespace": "a.b",
        "fields": [
            {"name": "first", "type": at},
            {"name": "more", "type": {"type": "array", "items": "At"}},
            {"name": "next", "type": ["null", "Order"]},
            {"name": "other", "type": ["null", "At"]},
        ],
    }
    day = date(2026, 11, 21)
    inner: dict[str, Any] = {"first": {"day": day}, "more": [], "next": None, "other": {"day": day}}
    datum = {"first": {"day": day}, "more": [{"day": day}], "next": inner, "other": None}
    payload = written(schema, datum)
    shown = codec(schema).decode(payload)
    assert shown.count('"2026-11-21"') == 4
    assert json.loads(shown)["next"]["a.b.Order"]["other"] == {"a.b.At": {"day": "2026-11-21"}}
    assert codec(schema).encode(shown) == payload


@for_rows(
    "schema, text, problem",
    [
        (AMOUNT, '"1.234"', "'1.234' is not a decimal with 9 digits, 2 of them after the point"),
        (AMOUNT, '"12345678.00"', "is not a decimal with 9 digits"),
        (AMOUNT, '"1e5"', "'1e5' is not a decimal"),
        (AMOUNT, "true", "'True' is not a decimal"),
        (logical("int", "date"), '"2026-02-30"', "'2026-02-30' is not a date"),
        (logical("int", "time-millis"), '"24:00:00"', "is not a time-millis"),
        (logical("int", "time-millis"), '"10:00:00.0001"', "is not a time-millis"),
        (logical("long", "timestamp-millis"), '"2026-11-21T10:05:00"', "is not a timestamp-millis"),
        (logical("long", "local-timestamp-millis"), '"2026-11-21T10:05:00Z"', "is not a local-timestamp-millis"),
        (fixed(16, "uuid"), '"1234"', "'1234' is not a uuid"),
        (fixed(12, "duration"), '"P1M2DT9999999S"', "is not a duration"),
    ],
)
def test_texts_that_have_no_value_are_named(schema: Any, text: str, problem: str) -> None:
    with pytest.raises(SchemaError) as refused:
        codec(schema).encode(text)
    assert problem in str(refused.value)


def test_numbers_are_read_for_decimals_and_times() -> None:
    assert codec(AMOUNT).encode("12.30") == codec(AMOUNT).encode('"12.3"') == written(AMOUNT, Decimal("12.30"))
    assert codec(logical("int", "date")).encode("5") == codec(logical("int", "date")).encode('"1970-01-06"')


def test_a_decimal_is_bounded_before_it_is_converted() -> None:
    payload = written("bytes", b"\x7f" * 501)
    with pytest.raises(SchemaError, match="a decimal of 501 bytes; at most 500 are read"):
        codec(AMOUNT).decode(payload)


@given(st.binary(max_size=40), st.sampled_from([AMOUNT, logical("long", "timestamp-nanos"), fixed(12, "duration")]))
def test_any_value_that_is_shown_is_read_back(payload: bytes, schema: Any) -> None:
    try:
        shown = codec(schema).decode(payload)
    except SchemaError:
        return
    try:
        again = codec(schema).encode(shown)
    except SchemaError:
        assert schema is AMOUNT, shown
        assert len(shown.strip('"-').replace(".", "").lstrip("0")) > 9, "more digits than the precision"
    else:
        assert codec(schema).decode(again) == shown

"""Conditions on records: what they mean, and where invalid ones are wrong."""

from __future__ import annotations

import json

import pytest

from kctl.admin.records.conditions import RecordView
from kctl.admin.records.where import EXPRESSION_CHARACTERS_MAX, NESTING_MAX, WhereError, parse_where
from kctl.records.header import Record
from tests.rows import for_rows

VALUE = {
    "status": "failed",
    "amount": 12.5,
    "count": 3,
    "paid": True,
    "gone": None,
    "items": [{"id": 7}, {"id": 8}],
    "tags": ["a", "b"],
    "odd name": "x",
}
RECORD = Record(
    101, 1_795_000_000_000, b"customer-7", json.dumps(VALUE).encode(), (("trace-id", b"a1"), ("raw", b"\xff"))
)


def holds(expression: str, record: Record = RECORD, partition: int = 2) -> bool:
    return parse_where(expression).holds(RecordView("orders", partition, record)) is True


@for_rows(
    "expression",
    [
        'value.status == "failed" and offset > 100',
        "value.status == 'failed'",
        "partition == 2 and offset == 101 and timestamp >= 1795000000000",
        'key == "customer-7"',
        "'customer' in key",
        "value.amount > 12 and value.amount <= 12.5",
        "value.count == 3.0",
        "value.paid",
        "value.paid == true",
        "value.gone == null and value.absent = NULL and value.count != null",
        "value.gone IS NULL and value.absent is null AND NOT value.count IS NULL and value.count is not null",
        "exists(value.gone) and not exists(value.absent)",
        "value.status LIKE 'fa%' and value.status like '_ailed' and value.status not like 'F%' and key LIKE '%-_'",
        "value.count <> 4 and value.count IN (1, 2, 3) and value.status not in ('new')",
        "timestamp > '2026-11-18T10:00:00' and timestamp < '2026-11-19' and timestamp in ('2026-11-18T11:06:40Z', 5)",
        "topic = 'orders'",
        "'it''s' = 'it\\'s'",
        'value."odd name" = "x"',
        "value.items[1].id == 8 and value.items[-1].id == 8",
        'value["odd name"] == "x"',
        '"a" in value.tags and "c" not in value.tags',
        'value.status in ["new", "failed"]',
        '"status" in value.items[0] or "id" in value.items[0]',
        'headers["trace-id"] == "a1" and headers.trace-id == "a1"',
        "not exists(headers.raw)",
        "false or not (offset < 101)",
        r"'\u0066ailed' == value.status",
        r"""'it\'s "x"' == "it's \"x\"" """,
        "value.tags == ['a', 'b']",
        "12e-1 == 1.2",
    ],
)
def test_conditions_hold_and_their_negations_do_not(expression: str) -> None:
    assert holds(expression)
    assert not holds(f"not ({expression})")


def test_unknown_is_neither_true_nor_false() -> None:
    for expression, expected in (
        ("value.gone > 1 or true", True), ("value.gone > 1 and true", None), ("value.gone > 1 and false", False),
        ("value.gone > 1 or false", None), ("not (value.gone > 1)", None), ("value.gone in [1, null]", True),
        ("value.gone in [1]", None), ("value.count in [1, null]", False), ("value.count in []", False),
    ):  # fmt: skip
        assert parse_where(expression).holds(RecordView("orders", 2, RECORD)) is expected, expression


@for_rows(
    "expression",
    [
        "value.count == '3'",
        "value.paid == 1",
        "value.tags == [true]",
        "value.absent == 1",
        "value.absent != 1",
        "not (value.absent == 1)",
        "not value.gone",
        "not (value.gone > 1) or value.gone in [1, 2] or not (value.gone in [1, 2])",
        "value.absent like '%' or not (value.absent like '%')",
        "value.status > 3",
        "value.count",
        "value.items[2].id == 8",
        "value.items.id == 8",
        "value.tags['0'] == 'a'",
        "value.count in 3",
        "true < false",
        "key.a == 1",
    ],
)
def test_other_types_and_missing_paths_do_not_match(expression: str) -> None:
    assert not holds(expression)


def test_and_binds_before_or_and_not_before_and() -> None:
    assert holds("true or false and false")
    assert not holds("(true or false) and false")
    assert holds("not false and true")


@for_rows("value", [None, b"", b"no JSON", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000])
def test_values_that_are_not_json_have_no_fields(value: bytes | None) -> None:
    record = Record(0, 0, None, value, ())
    assert not holds("exists(value.a) or exists(value[0]) or value.a == 1", record)
    assert holds("key == null", record)
    assert holds("value == null", record) is (value is None)


@for_rows(
    "expression, message",
    [
        ("", "expected a field, a text, a number, true, false, null or a list, not the end at position 1"),
        ("value.a ! 1", "unexpected '!' at position 9"),
        ("timestamp > 'soon'", "expected a time as in ISO 8601"),
        ("value.a is 3", "expected 'null', not '3' at position 12"),
        ("value.a like 3", "LIKE requires a text"),
        ("value.a ==", "not the end at position 11"),
        ("status == 1", "a text has quotes, not 'status' at position 1"),
        ("offset > 1 offset", "expected 'and', 'or' or the end, not 'offset' at position 12"),
        ("(offset > 1", "expected ')', not the end at position 12"),
        ('key == "abc', "text without its closing quote at position 8"),
        ("value. == 1", "expected a name, not '==' at position 8"),
        ("value[x] == 1", "expected an index or a name in quotes, not 'x' at position 7"),
        ("offset.x == 1", "offset has no fields at position 1"),
        ("key not 3", "expected 'in' or 'like', not '3' at position 9"),
        ("__import__('os')", "not '__import__' at position 1"),
        ("value.a == [value.b]", "not 'value' at position 13"),
        (r'key == "\x41"', "invalid escape in a text at position 8"),
        (r'key == "\ud800"', "invalid escape in a text at position 8"),
        ("key == 01", "'01' is not a valid number at position 8"),
        ("key == " + "9" * 5_000, "is not a valid number at position 8"),
        ("(" * 60 + "true" + ")" * 60, f"more than {NESTING_MAX} levels of nesting at position"),
        ("not " * 60 + "true", f"more than {NESTING_MAX} levels of nesting at position"),
        ("key == " + "[" * 60 + "]" * 60, f"more than {NESTING_MAX} levels of nesting at position"),
        ("a" * (EXPRESSION_CHARACTERS_MAX + 1), "more than 10,000 characters at position 10001"),
    ],
)
def test_errors_name_the_position(expression: str, message: str) -> None:
    with pytest.raises(WhereError, match=r"^--where: ") as raised:
        parse_where(expression)
    assert message in str(raised.value)

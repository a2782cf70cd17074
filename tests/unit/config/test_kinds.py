"""Text to value and back, as Kafka's ConfigDef and Java print them."""

from __future__ import annotations

import pytest

from kctl.config.kinds import BOOLEAN, DOUBLE, DOUBLE_MAX, INT, LIST, LONG, SHORT, format_double
from tests.rows import for_rows


@pytest.mark.parametrize(("text", "value"), [("1", 1), (" -7 ", -7), ("+3", 3), ("2147483647", 2147483647)])
def test_integers_are_parsed(text: str, value: int) -> None:
    assert INT.parse(text) == value


@for_rows("text", ["", "x", "1.0", "1_000", "0x10", "--1", "2147483648", "-2147483649", "٣"])
def test_invalid_integers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a whole number|does not fit in 32 bits"):
        INT.parse(text)


def test_each_width_has_its_bounds() -> None:
    assert LONG.parse(str(2**63 - 1)) == 2**63 - 1
    with pytest.raises(ValueError, match="16 bits"):
        SHORT.parse("32768")


def test_booleans_ignore_case_and_nothing_else() -> None:
    assert BOOLEAN.parse(" TRUE ") is True
    assert BOOLEAN.parse("False") is False
    with pytest.raises(ValueError, match="true or false"):
        BOOLEAN.parse("yes")


def test_lists_split_at_commas_and_drop_blanks_around_entries() -> None:
    assert LIST.parse(" a , b,c ") == ("a", "b", "c")
    assert LIST.parse("") == ()
    assert LIST.format(("a", "b")) == "a,b"


@for_rows(
    "value, text",
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (-2.5e-10, "-2.5E-10"),
        (DOUBLE_MAX, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert format_double(value) == text


def test_doubles_are_read_as_java_writes_them() -> None:
    assert DOUBLE.parse("1.7976931348623157E308") == DOUBLE_MAX

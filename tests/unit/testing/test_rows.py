"""A test of a table fails with every row that fails."""

from __future__ import annotations

import inspect

import pytest

from tests.rows import for_rows


def test_each_failing_row_is_reported_and_the_others_are_checked() -> None:
    checked = []

    @for_rows("number, expected", [(1, 1), (2, 3), (4, 4), (5, 6)])
    def check(number: int, expected: int) -> None:
        checked.append(number)
        assert number == expected

    with pytest.raises(ExceptionGroup, match="2 of 4 rows fail:\nrow: number=2, expected=3\nrow: number=5") as failed:
        check()
    assert checked == [1, 2, 4, 5]
    assert [type(error) for error in failed.value.exceptions] == [AssertionError, AssertionError]


def test_a_row_that_does_not_raise_what_is_expected_fails() -> None:
    @for_rows("text", ["1", "x"])
    def check(text: str) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(BaseExceptionGroup, match="1 of 2 rows fail:\nrow: text='1'"):
        check()


def test_no_row_is_checked_after_a_time_out() -> None:
    checked = []

    @for_rows("number", [1, 2])
    def check(number: int) -> None:
        checked.append(number)
        pytest.fail("Timeout (>300.0s) from pytest-timeout.")

    with pytest.raises(BaseExceptionGroup, match="1 of 2 rows fail"):
        check()
    assert checked == [1]


def test_a_table_is_made_when_the_test_runs_and_must_have_rows() -> None:
    rows: list[int] = []

    @for_rows("number", lambda: rows)
    def check(number: int) -> None:
        assert number == 7

    with pytest.raises(AssertionError):
        check()
    rows.append(7)
    check()


def test_fixtures_remain_arguments() -> None:
    @for_rows("first, second", [(1, 2)])
    @for_rows("third", [3])
    def check(first: int, tmp_path: str, second: int, third: int) -> None:
        assert (first, second, third, tmp_path) == (1, 2, 3, "folder")

    assert list(inspect.signature(check).parameters) == ["tmp_path"]
    check(tmp_path="folder")

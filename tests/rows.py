"""Tables of cases: one test that checks every row and fails with the rows that fail."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]

SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 120


def for_rows(names: str, rows: Iterable[Any] | Callable[[], Iterable[Any]]) -> Callable[[Test], Test]:
    """Makes one test of a function and a table: it calls the function for each row, with the row's values by `names`.

    A table that takes time to make is given as the function that makes it, which is called when the test runs.
    Fixtures have the same values for all rows; where a row needs its own, `pytest.mark.parametrize` makes a test of
    each row.  Rows after a failed one are checked too; after a time-out of the test no more are.
    """
    columns = [name.strip() for name in names.split(",")]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def check_rows(**fixtures: Any) -> None:
            table = list(rows() if callable(rows) else rows)
            assert table
            errors: list[BaseException] = []
            for values in table:
                row = dict(zip(columns, values if len(columns) > 1 else (values,), strict=True))
                try:
                    test(**fixtures, **row)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note("row: " + ", ".join(f"{name}={SHORT.repr(row[name])}" for name in columns))
                    errors.append(error)
                    if "from pytest-timeout" in str(error):
                        break
            if errors:
                failed = "\n".join(note for error in errors for note in error.__notes__)
                raise BaseExceptionGroup(f"{len(errors)} of {len(table)} rows fail:\n{failed}", errors)

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        check_rows.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return check_rows

    return decorate

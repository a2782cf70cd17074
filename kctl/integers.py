"""Parses integers within the ranges of the protocol's fields.  Pure."""

from __future__ import annotations

import re

from kctl.errors import UsageError

INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
PORT_MAX = (1 << 16) - 1

_DIGITS = re.compile(r"([+-]?)0*([0-9]{1,19})")
"""`int` also accepts underscores, blanks and digits of other scripts, and raises for more than 4,300 digits."""
_SHOWN_MAX = 40


def parse_integer(text: str, what: str, *, low: int = 0, high: int = INT32_MAX) -> int:
    """The integer in `text`.  `what` names it in the error.  Raises UsageError with the valid range."""
    found = _DIGITS.fullmatch(text)
    number = int(found[1] + found[2]) if found else None
    if number is None or not low <= number <= high:
        shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
        raise UsageError(f"{what} is a whole number from {low} to {high}, not '{shown}'")
    return number


def is_integer(value: object, *, low: int = 0, high: int = INT32_MAX) -> bool:
    """Whether a JSON value is an integer in the range."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

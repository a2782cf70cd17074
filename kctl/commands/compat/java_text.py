"""Lengths and padding of texts as in Java, in UTF-16 code units (some characters have two), and numbers in Java's
notation.  Pure.
"""

from __future__ import annotations

import math
from decimal import Decimal

_PLAIN_MIN, _PLAIN_STOP = 1e-3, 1e7


def java_length(text: str) -> int:
    """String.length."""
    return len(text) + sum(character > "\uffff" for character in text)


def padded(text: object, width: int) -> str:
    """The result of `%-<width>s` of java.util.Formatter."""
    whole = str(text)
    return whole + " " * (width - java_length(whole))


def java_double(value: float) -> str:
    """Double.toString: plain from 0.001 up to 10 million, otherwise with an exponent."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_MIN <= abs(value) < _PLAIN_STOP:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits))
    fraction = significant[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{significant[0]}.{fraction}E{exponent + len(digits) - 1}"

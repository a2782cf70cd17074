"""Types of properties, parsed and formatted as by Kafka's ConfigDef."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
DOUBLE_MAX = 1.7976931348623157e308


class ConfigType(IntEnum):
    """Type numbers of DescribeConfigs version 3 and later."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of values.  `parse` raises ValueError with the reason; `format` returns the text that Kafka prints."""

    type: ConfigType
    parse: Callable[[str], T]
    format: Callable[[T], str]


def _integer(bits: int) -> Callable[[str], int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def parse(text: str) -> int:
        stripped = text.strip()
        digits = stripped[1:] if stripped[:1] in {"-", "+"} else stripped
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError("is not a whole number")
        value = int(stripped)
        if not low <= value <= high:
            raise ValueError(f"does not fit in {bits} bits: it must lie between {low} and {high}")
        return value

    return parse


def _parse_double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("is not a number") from None


def _parse_boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError("must be true or false")


def _parse_list(text: str) -> tuple[str, ...]:
    stripped = text.strip()
    return tuple(entry.strip() for entry in stripped.split(",")) if stripped else ()


def format_double(value: float) -> str:
    """Format as Java's Double.toString: 0.5, 1.0E10, Infinity."""
    if math.isinf(value) or math.isnan(value):
        return {True: "Infinity", False: "-Infinity"}[value > 0] if math.isinf(value) else "NaN"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    digits = repr(float(value)).lower().replace(".", "").split("e")[0].lstrip("-").strip("0")
    exponent = f"{value:.16e}".split("e")[1]
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


BOOLEAN: Kind[bool] = Kind(ConfigType.BOOLEAN, _parse_boolean, lambda value: "true" if value else "false")
SHORT: Kind[int] = Kind(ConfigType.SHORT, _integer(16), str)
INT: Kind[int] = Kind(ConfigType.INT, _integer(32), str)
LONG: Kind[int] = Kind(ConfigType.LONG, _integer(64), str)
DOUBLE: Kind[float] = Kind(ConfigType.DOUBLE, _parse_double, format_double)
STRING: Kind[str] = Kind(ConfigType.STRING, str.strip, str)
CLASS: Kind[str] = Kind(ConfigType.CLASS, str.strip, str)
PASSWORD: Kind[str] = Kind(ConfigType.PASSWORD, str.strip, str)
LIST: Kind[tuple[str, ...]] = Kind(ConfigType.LIST, _parse_list, ",".join)

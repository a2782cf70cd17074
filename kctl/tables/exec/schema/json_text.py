"""JSON texts as values whose numbers keep all digits, and back.  Pure.

json.loads has floats for numbers with a fraction or an exponent, so that 1.10000000000000000001 becomes 1.1, and reads
-0 as 0.  Here such numbers are a Number and NEGATIVE_ZERO, which are written again as they were.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn, Self

from kctl.limits import Subject, bound

EXPORT_JSON_DEPTH_MAX = bound(
    Subject.EXPORTS,
    "levels of objects and lists in a key or value of JSON in an export",
    500,
    "levels",
    on_excess="the record cannot be decoded: --on-bad-record",
)


class NotJson(Exception):
    """A value is not JSON; the message is the reason."""


class Number(float):
    """The double that is nearest to a number, and the text of the number; infinite for one beyond doubles."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


class _NegativeZero(int):
    """The number -0, which compares as 0."""

    def __float__(self) -> float:
        return -0.0


NEGATIVE_ZERO: Final = _NegativeZero()

_NOT_JSON = "it is not JSON"
_TOO_DEEP = "it has too many levels"


def parse(text: str | bytes) -> Any:
    """Return the JSON value.  Raises NotJson, also for NaN and infinite numbers."""
    try:
        value = json.loads(text, parse_int=_whole, parse_float=Number, parse_constant=_refuse)
    except RecursionError:
        raise NotJson(_TOO_DEEP) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise NotJson(_NOT_JSON) from None
    if _is_deep(text, value):
        raise NotJson(_TOO_DEEP)
    return value


def _whole(text: str) -> int | Number:
    if text == "-0":
        return NEGATIVE_ZERO
    try:
        return int(text)
    except ValueError:  # more digits than Python reads
        return Number(text)


def _refuse(_constant: str) -> NoReturn:
    raise NotJson(_NOT_JSON)


def _is_deep(text: str | bytes, value: Any) -> bool:
    """Return whether a value has more than EXPORT_JSON_DEPTH_MAX levels.

    Python's own bound depends on the stack of the caller, so that two attempts of a task could disagree.
    """
    count = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if count <= EXPORT_JSON_DEPTH_MAX:
        return False
    level = [value]
    for _ in range(EXPORT_JSON_DEPTH_MAX + 1):
        inner = [
            element.values() if isinstance(element, dict) else element
            for element in level
            if isinstance(element, dict | list)
        ]
        level = [element for items in inner for element in items]
        if not inner:
            return False
    return True


class _Written(str):
    """A part of a text that is written already."""

    __slots__ = ()


def text_of(value: Any) -> str:
    """Return the JSON text of a value, in which numbers have the digits that `parse` has read.

    Levels are in a list and not calls, whose number Python bounds.
    """
    parts: list[str] = []
    pending = [value]
    while pending:
        match pending.pop():
            case _Written() as part:
                parts.append(part)
            case Number(text=text):
                parts.append(text)
            case _NegativeZero():
                parts.append("-0")
            case dict() as members:
                pending += reversed(_object_parts(members))
            case list() as items:
                pending += reversed(_list_parts(items))
            case scalar:
                parts.append(json.dumps(scalar, allow_nan=False))
    return "".join(parts)


def _object_parts(members: dict[str, Any]) -> list[Any]:
    parts: list[Any] = [_Written("{")]
    for index, (name, member) in enumerate(members.items()):
        parts += (_Written(f"{', ' if index else ''}{json.dumps(name)}: "), member)
    return [*parts, _Written("}")]


def _list_parts(items: list[Any]) -> list[Any]:
    parts: list[Any] = [_Written("[")]
    for index, item in enumerate(items):
        parts += (_Written(", "), item) if index else (item,)
    return [*parts, _Written("]")]

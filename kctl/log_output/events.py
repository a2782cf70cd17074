"""Separates the event of a log record from its fields.

    log.warning("cannot replicate, trying again partition=%s offset=%d", "orders-0", 7)

has the event "cannot replicate, trying again" and the fields partition="orders-0" and offset=7.  The template is taken
apart, not the message, so that no value can add a field.

Pure.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_CONVERSION = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[srdxXofFeEgGcia%]")
_NAME = re.compile(r"([A-Za-z_][\w.-]*)=(.+)")
_TEMPLATES_MAX = 2_048

Value = str | int | float | bool | None


class _Part(NamedTuple):
    """One word of a template."""

    name: str | None
    """Name of the field; None for a word of the event."""
    template: str
    arguments: int
    """Number of arguments that it takes."""


class Event(NamedTuple):
    """The contents of a log record."""

    text: str
    fields: dict[str, Value]


def event_of(template: str, arguments: tuple[object, ...]) -> Event:
    """The event and the fields of a record.  Raises ValueError or TypeError if they do not fit each other."""
    if not arguments:
        template = template.replace("%", "%%")  # logging leaves it unformatted.
    words: list[str] = []
    fields: dict[str, Value] = {}
    taken = 0
    for name, part, count in _parts(template):
        given = arguments[taken : taken + count]
        taken += count
        if name is None:
            words.append(part % given if count or "%" in part else part)
        else:
            fields[name] = _value(part, given)
    if taken != len(arguments):
        raise ValueError(f"{len(arguments)} arguments for {taken} conversions")
    return Event(" ".join(words), fields)


@functools.lru_cache(_TEMPLATES_MAX)
def _parts(template: str) -> tuple[_Part, ...]:
    parts = []
    for word in template.split():
        named = _NAME.fullmatch(word)
        conversions = sum(each != "%%" for each in _CONVERSION.findall(word))
        parts.append(_Part(named[1], named[2], conversions) if named else _Part(None, word, conversions))
    return tuple(parts)


def _value(template: str, given: tuple[object, ...]) -> Value:
    if len(given) == 1 and template in {"%s", "%d"}:
        (value,) = given
        if value is None or type(value) in {bool, int, float, str}:
            return value  # type: ignore[return-value]  # mypy does not narrow by `type(...) in`
    return template % given if given or "%" in template else template

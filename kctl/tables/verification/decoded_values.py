"""The contents of decoded keys and values, whichever of their columns have them.  Pure.

Files of one export may have different columns for the same values: a field that was in the rest has a column in later
files, and one whose type has changed has several.  Null and missing members are the same, as in exports.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from kctl.tables.exec.schema.column_types import is_alternative
from kctl.tables.exec.schema.json_text import Number, parse

_WHOLE_END = 2**53


def content(value: Any, rest: str | None) -> bytes | None:
    """Return the same bytes for a value of a column with its rest, as JSON, as for an equal one in other columns.

    Return None for one that is null or has nothing but nulls.  Raises NotJson for another rest.
    """
    whole = _plain(value)
    if rest is not None:
        whole = _together(whole, _plain(parse(rest)))
    return None if whole is None else json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()


def _together(value: Any, rest: Any) -> Any:
    """Return a value and its rest together; a list is in the rest as a whole."""
    if isinstance(value, dict) and isinstance(rest, dict):
        return {name: _together(value.get(name), rest.get(name)) for name in {**value, **rest}}
    return value if rest is None else rest


def _plain(value: Any) -> Any:
    """Return a value of JSON without members that are null or have only such."""
    match value:
        case dict():
            members = {name: _plain(member) for name, member in _with_fields(value).items()}
            return {name: member for name, member in members.items() if member is not None} or None
        case list() | tuple():
            return [_plain(item) for item in value]
        case bool() | None:
            return value
        case int() | float():
            return _number(value)
        case str():
            return value
        case bytes():
            return {"bytes": value.hex()}
        case Decimal():
            return {"decimal": str(value.normalize())}
        case datetime():
            if value.tzinfo is None:
                return {"local timestamp": value.isoformat()}
            return {"timestamp": value.astimezone(UTC).isoformat()}
        case time():
            return {"time": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
    raise TypeError(f"no column has values of {type(value)}")


def _number(value: float) -> Any:
    """Return the number of whichever type; what is neither whole nor a double remains as it is written."""
    if isinstance(value, int):
        return int(value)
    if value.is_integer() and abs(value) < _WHOLE_END:
        return int(value)
    if isinstance(value, Number) and abs(value) == float("inf"):
        return {"number": value.text}
    return {"double": repr(float(value))}


def _with_fields(value: dict[str, Any]) -> dict[str, Any]:
    """Return the members with the values of alternatives, such as price__double, in their fields."""
    if not any("__" in name for name in value):
        return value
    found = {name: member for name, member in value.items() if not is_alternative(name, value)}
    for name, member in value.items():
        if name not in found and member is not None:
            found[name.rpartition("__")[0]] = member
    return found

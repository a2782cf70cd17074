"""Values as JSON and YAML, with everything escaped that controls a terminal, and values of JSON.  Pure.

The YAML is block style with two blanks of indentation.  Texts are unquoted only if no version of YAML reads them as
something else, and otherwise quoted as in JSON, so that readers of YAML 1.1 (PyYAML) and 1.2 (Go, JavaScript) agree.
PyYAML itself leaves `1e3` and `0o14` unquoted, which are numbers in YAML 1.2, and takes 15 times as long.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kctl.errors import UsageError
from kctl.output.terminal_text import CONTROLS, escape_json

_INDENT = 2
_IMPLICIT_KEY_MAX = 1000
"""Characters of a key; YAML allows 1,024 with quotes before the colon, and longer keys in another notation."""
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./()-]*(?: [A-Za-z0-9_./()-]+)*")
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
"""Texts that versions of YAML read as null, a boolean or a number, in lower case."""
_TO_ESCAPE = re.compile(f"[{CONTROLS}\ufffe\uffff]")
"""Control characters, and those that YAML does not allow."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Half of a character beyond the Basic Multilingual Plane, as such or escaped."""


def parse_json(text: str | bytes, **settings: Any) -> Any:
    """Return the value of a JSON document in UTF-8.  Raises ValueError, also for half a surrogate pair, and
    RecursionError.

    Such a half is not a character: a name with it cannot be encoded when it is sent or stored.  `settings` are those of
    json.loads.
    """
    if isinstance(text, bytes):
        text = text.decode()
    value = json.loads(text, **settings)
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text contains an unpaired surrogate, which is not a character") from None
    return value


def read_json(text: str | bytes) -> Any:
    """Return the value of a user's JSON document.  Raises UsageError, also for NaN and a member that is there twice."""
    try:
        return parse_json(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(json_problem(error)) from None


def json_problem(error: ValueError | RecursionError) -> str:
    """Return what is wrong with a JSON document, from the error that `json.loads` or `parse_json` has raised."""
    match error:
        case UnicodeDecodeError():
            return f"not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}"
        case RecursionError():
            return "not JSON that can be read: too many nested lists and objects"
        case json.JSONDecodeError():
            return f"not JSON: line {error.lineno}, column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
    text = str(error)
    return f"not JSON that can be read: {'a number is too long' if 'set_int_max_str_digits' in text else text}"


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise UsageError(f"not clear: '{next(name for name in names if names.count(name) > 1)}' is given twice")
    return members


def _refuse_constant(name: str) -> float:
    raise UsageError(f"not JSON: {name} is not a number there")


def json_text(value: object, indent: int | None = None) -> str:
    """Return a value as JSON, on one line unless `indent` is given; JSON has no infinite numbers and no NaN: they are
    null.
    """
    try:
        text = _json_encoder(indent).encode(value)
    except ValueError:
        text = _json_encoder(indent).encode(_without_non_finite(value))
    return escape_json(text)


def _without_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_non_finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_non_finite(inner) for inner in value]
    return value


@functools.cache
def _json_encoder(indent: int | None) -> json.JSONEncoder:
    """Return the encoder; cached, because creating one takes as long as encoding a record."""
    separators = (",", ": ") if indent else (",", ":")
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)


def yaml_text(value: object) -> str:
    """Return a value as one YAML document of complete lines."""
    return "".join(_block(value, 0, "")) if _is_block(value) else _scalar(value) + "\n"


def _block(value: Any, indent: int, start: str) -> Iterator[str]:
    """Yield the lines of a list or mapping that is not empty; `start` is the beginning of the first line."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _entry(f"{start}{_key(key, indent)}:", inner, indent)
            start = " " * indent
    else:
        for inner in value:
            if _is_block(inner):
                yield from _block(inner, indent + _INDENT, f"{start}- ")
            else:
                yield f"{start}- {_scalar(inner)}\n"
            start = " " * indent


def _entry(key: str, value: object, indent: int) -> Iterator[str]:
    if not _is_block(value):
        yield f"{key} {_scalar(value)}\n"
        return
    yield key + "\n"
    within = indent + _INDENT if isinstance(value, Mapping) else indent
    yield from _block(value, within, " " * within)


def _key(key: object, indent: int) -> str:
    text = _scalar(key)
    return text if len(text) <= _IMPLICIT_KEY_MAX else f"? {text}\n{' ' * indent}"


def _is_block(value: object) -> bool:
    return isinstance(value, (Mapping, list, tuple)) and bool(value)


def _scalar(value: object) -> str:
    match value:
        case None:
            return "null"
        case str():
            is_plain = _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT
            return value if is_plain else _TO_ESCAPE.sub(_escaped, _json_encoder(None).encode(value))
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return _float(value)
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            return _scalar(str(value))


def _float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = repr(float(value))
    return text if "." in text else text.replace("e", ".0e")  # YAML 1.1 reads numbers without a point as text


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

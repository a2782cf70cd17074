"""Selects records by key, header, value and condition, and masks parts of them.  Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.admin.records.conditions import Condition, Path, RecordView
from kctl.admin.records.where import parse_path
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record


# Selects records by key, header, value and condition. Pure.


@dataclass(frozen=True, slots=True)
class HeaderMatch:
    """A header that a record must have, with any value or with this one."""

    name: str
    value: bytes | None = None
    """None for any value, also null."""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """All parts that are given must match."""

    key: bytes | None = None
    headers: tuple[HeaderMatch, ...] = ()
    search: Callable[[TopicPartition, Record], bool] | None = None
    """Searches the value."""
    where: Condition | None = None

    @property
    def selects_all(self) -> bool:
        """Whether every record matches."""
        return self.key is None and not self.headers and self.search is None and self.where is None

    def matches(self, tp: TopicPartition, record: Record) -> bool:
        """Return whether the record is selected; the cheapest parts are compared first."""
        if self.key is not None and record.key != self.key:
            return False
        if self.headers and not all(_has(record, header) for header in self.headers):
            return False
        if self.search is not None and not self.search(tp, record):
            return False
        return self.where is None or _holds(self.where, RecordView(tp.topic, tp.partition, record))


def parse_bytes(text: str, option: str) -> bytes:
    """Return the bytes from `TEXT`, `text:TEXT`, `hex:4a4b` or `base64:SksK`.  Raises UsageError."""
    form, colon, rest = text.partition(":")
    try:
        match form if colon else "":
            case "hex":
                return bytes.fromhex(rest)
            case "base64":
                return base64.b64decode(rest, validate=True)
            case "text":
                return rest.encode()
            case _:
                return text.encode()
    except ValueError:
        raise UsageError(f"{option}: '{rest}' is not valid {form}; for this text use text:{text}") from None


def parse_header_match(text: str, option: str) -> HeaderMatch:
    """Return a header from `NAME` or `NAME=VALUE`; the value has the forms of `parse_bytes`.  Raises UsageError."""
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"{option} takes NAME or NAME=VALUE, not '{text}'")
    return HeaderMatch(name, parse_bytes(value, option) if equals else None)


def _has(record: Record, match: HeaderMatch) -> bool:
    return any(name == match.name and (match.value is None or data == match.value) for name, data in record.headers)


def _holds(condition: Condition, record: RecordView) -> bool:
    try:
        return condition.holds(record) is True
    except RecursionError:  # two JSON documents with more levels than Python compares
        return False


# Replaces parts of records before they are shown. Pure.
#
# A rule fails closed: if a path leads into a value that is not JSON, the whole value is replaced.


MASK = "***"
PATHS_PROPERTY = "kctl.mask.paths"
"""Paths as in --mask, separated by spaces or line feeds."""
REGEX_PROPERTY = "kctl.mask.regex"
"""One regular expression as in --mask-regex."""
_RULES_MAX = 1_000

Substitute = Callable[[str], str]
"""Replaces the matches of a regular expression in a text."""
Headers = tuple[tuple[str, bytes | None], ...]


class MaskingRules(NamedTuple):
    """The masking rules as the user wrote them."""

    paths: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()

    def joined(self, paths: Sequence[str] | None, regexes: Sequence[str] | None) -> MaskingRules:
        """Return these rules, combined with others."""
        return MaskingRules((*self.paths, *(paths or ())), (*self.regexes, *(regexes or ())))


def masking_rules(settings: Mapping[str, str]) -> MaskingRules:
    """Return the rules in the properties of a profile or of --command-config."""
    regex = settings.get(REGEX_PROPERTY, "")
    return MaskingRules(tuple(settings.get(PATHS_PROPERTY, "").split()), (regex,) if regex else ())


class Masking(NamedTuple):
    """Rules that are ready to be applied."""

    paths: tuple[Path, ...] = ()
    substitutes: tuple[Substitute, ...] = ()

    def key(self, data: bytes | None) -> bytes | None:
        """Return the key that is shown instead."""
        return self._masked("key", data)

    def value(self, data: bytes | None) -> bytes | None:
        """Return the value that is shown instead."""
        return self._masked("value", data)

    def headers(self, headers: Headers) -> Headers:
        """Return the headers that are shown instead."""
        masks_all = any(path.field == "headers" and not path.steps for path in self.paths)
        names = {str(path.steps[0]) for path in self.paths if path.field == "headers" and path.steps}
        return tuple(
            (name, None if data is None else self._header(data, is_masked=masks_all or name in names))
            for name, data in headers
        )

    def _header(self, data: bytes, *, is_masked: bool) -> bytes:
        return MASK.encode() if is_masked else self._substituted(data)

    def _masked(self, name: str, data: bytes | None) -> bytes | None:
        if data is None:
            return None
        paths = [path.steps for path in self.paths if path.field == name]
        return self._substituted(_with_masks(data, paths) if paths else data)

    def _substituted(self, data: bytes) -> bytes:
        if not self.substitutes:
            return data
        text = data.decode(errors="surrogateescape")
        for substitute in self.substitutes:
            text = substitute(text)
        return text.encode(errors="surrogateescape")


def masking(rules: MaskingRules, to_substitute: Callable[[str], Substitute]) -> Masking | None:
    """Return the rules with parsed paths and compiled expressions; None without any.  Raises UsageError."""
    if len(rules.paths) + len(rules.regexes) > _RULES_MAX:
        raise UsageError(f"more than {_RULES_MAX:,} masking rules")
    if not rules.paths and not rules.regexes:
        return None
    paths = tuple(_path(path) for path in rules.paths)
    return Masking(paths, tuple(to_substitute(regex) for regex in rules.regexes))


def _path(text: str) -> Path:
    path = parse_path(text, "--mask")
    if path.field not in {"key", "value", "headers"}:
        raise UsageError(f"--mask: {path.field} cannot be masked; key, value and headers can")
    return path


def _with_masks(data: bytes, paths: Sequence[tuple[str | int, ...]]) -> bytes:
    """Return the JSON document with the values at the paths replaced; MASK if it is not JSON or a path is empty."""
    if not all(paths):
        return MASK.encode()
    try:
        pairs = json.loads(data, object_pairs_hook=_Members, parse_float=_Number, parse_int=_Number)
        found = [_mask(pairs, path) for path in paths]
        return _dumped(pairs).encode() if any(found) else data
    except (ValueError, RecursionError):
        return MASK.encode()


class _Members(list[Any]):
    """The members of an object as [name, value], which may have the same name."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__([name, value] for name, value in pairs)


class _Number(str):
    """A number, with its digits as they were."""

    __slots__ = ()


def _mask(value: Any, path: tuple[str | int, ...]) -> bool:
    """Replace what is at the path, in all members of that name; return whether there is any."""
    step, rest = path[0], path[1:]
    if isinstance(value, _Members):
        places = [(member, 1) for member in value if member[0] == step]
    elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
        places = [(value, step)]
    elif isinstance(value, list) and isinstance(step, str):
        return any([_mask(element, path) for element in value])  # noqa: C419 - all elements, not up to the first
    else:
        return False
    found = False
    for holder, index in places:
        if rest:
            found = _mask(holder[index], rest) or found
        else:
            holder[index] = MASK
            found = True
    return found


def _dumped(value: Any) -> str:
    if isinstance(value, _Members):
        return (
            "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{_dumped(member)}" for name, member in value) + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_dumped, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)

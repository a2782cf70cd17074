"""What sampled values are, and which fields JSON objects have, over the length of a topic.  Pure.

The offsets of each partition are divided into SLICES parts of equal length; slice 0 has the oldest records.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, NamedTuple

from kctl.limits import EXPORT_COLUMN_DEPTH_MAX, Subject, bound
from kctl.tables.exec.schema.json_text import NotJson, parse

PROFILE_SAMPLED_VALUE_BYTES_MAX = bound(
    Subject.EXPORTS,
    "bytes of a value that a profile examines",
    1 << 20,
    "bytes",
    on_excess="the value is counted as too large to examine",
)
PROFILE_VALUE_FIELDS_MAX = bound(
    Subject.EXPORTS,
    "fields of one JSON value that a profile examines",
    10_000,
    "fields",
    on_excess="the others are left out",
)
PROFILE_FIELDS_MAX = bound(
    Subject.EXPORTS,
    "fields of JSON values in a profile",
    1_000,
    "fields",
    on_excess="further fields are left out, which the profile says",
)


SLICES = 20
FIELD_NAME_CHARACTERS_MAX = 200
EXPECTED_VALUES_MIN = 20
"""A field is called new or gone if it is absent where at least this many values would be expected."""

OBJECT, OTHER_JSON, TEXT, BINARY, EMPTY, TOO_LARGE = (
    "JSON object",
    "other JSON",
    "text",
    "binary",
    "empty",
    "too large to examine",
)
WITH_SCHEMA_ID = "schema registry"


class FieldProfile(NamedTuple):
    """A field of JSON objects: its path, and in how many sampled values it occurs."""

    field: str
    values: int
    share: Annotated[float, "Of the sampled JSON objects."]
    kinds: Annotated[
        dict[str, int], "How many values are of each kind: integer, number, string, boolean, list, object, null."
    ]
    changes: Annotated[list[str], "What changes over the length of the topic."]
    shares_by_slice: Annotated[
        list[float | None], "Of the sampled JSON objects of each slice; null for a slice without."
    ]


@dataclass(slots=True)
class _Field:
    """Counts of one path, by slice."""

    values: list[int] = field(default_factory=lambda: [0] * SLICES)
    """Objects that have the path."""
    kinds: list[Counter[str]] = field(default_factory=lambda: [Counter() for _ in range(SLICES)])
    """Objects in which it has a value of a kind; the items of one list may be of several."""


class ValueSample:
    """Counts what the sampled values are."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.objects = [0] * SLICES
        """Sampled JSON objects by slice."""
        self._fields: dict[str, _Field] = {}
        self.has_more_fields = False

    def add(self, value: bytes, slice_: int) -> None:
        """Examine a value."""
        if len(value) > PROFILE_SAMPLED_VALUE_BYTES_MAX:
            self.kinds[TOO_LARGE] += 1
            return
        parsed, kind = _examined(value)
        self.kinds[kind] += 1
        if kind is OBJECT:
            self.objects[slice_] += 1
            self._add_fields(_distinct(parsed), slice_)

    def fields(self) -> list[FieldProfile]:
        """Return all fields, in the order in which they were found first."""
        return [self._profile(*item) for item in self._fields.items()]

    def _add_fields(self, found: Mapping[tuple[str, str], None], slice_: int) -> None:
        for path in dict.fromkeys(path for path, _ in found):
            if path in self._fields or len(self._fields) < PROFILE_FIELDS_MAX:
                self._fields.setdefault(path, _Field()).values[slice_] += 1
            else:
                self.has_more_fields = True
        for path, kind in found:
            if path in self._fields:
                self._fields[path].kinds[slice_][kind] += 1

    def _profile(self, path: str, field_: _Field) -> FieldProfile:
        values, by_slice = field_.values, field_.kinds
        shares = [found / objects if objects else None for found, objects in zip(values, self.objects, strict=True)]
        kinds: Counter[str] = sum(by_slice, Counter())
        return FieldProfile(
            path,
            sum(values),
            round(sum(values) / sum(self.objects), 6),
            dict(kinds.most_common()),
            [*_presence_changes(values, self.objects), *_kind_changes(by_slice)],
            [None if share is None else round(share, 4) for share in shares],
        )


def _examined(value: bytes) -> tuple[Any, str]:
    """Return (JSON value, kind)."""
    if not value:
        return None, EMPTY
    if value[0] == 0 and len(value) >= 5:
        return None, WITH_SCHEMA_ID
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None, BINARY
    try:
        parsed = parse(text)
    except NotJson:
        return None, TEXT
    return parsed, OBJECT if isinstance(parsed, dict) else OTHER_JSON


def _distinct(value: dict[str, Any]) -> dict[tuple[str, str], None]:
    """Return (path, kind) of the fields of an object, each once and in their order, up to a number of fields."""
    return dict.fromkeys(islice(_walk(value, "", 0), PROFILE_VALUE_FIELDS_MAX))


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > EXPORT_COLUMN_DEPTH_MAX:
        return
    if isinstance(value, dict):
        for name, member in value.items():
            below = f"{path}.{_shown(name)}" if path else _shown(name)
            yield below, kind_of_json(member)
            yield from _walk(member, below, depth + 1)
    elif isinstance(value, list):
        below = f"{path}[]"
        for element in value:
            yield below, kind_of_json(element)
            yield from _walk(element, below, depth + 1)


def _shown(name: str) -> str:
    """Return the name in a path, in quotes if it has characters of paths."""
    name = name.encode("utf-8", "replace").decode()[:FIELD_NAME_CHARACTERS_MAX]
    return name if name and not set(name) & set('."[]') else json.dumps(name, ensure_ascii=False)


def kind_of_json(value: Any) -> str:
    """Return the kind of a JSON value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer" if -(2**63) <= value < 2**63 else "integer beyond 64 bits"
        case float():
            return "number" if math.isfinite(value) else "number out of range"
        case str():
            return "string"
        case list():
            return "list"
    return "object"


def _presence_changes(values: list[int], objects: list[int]) -> list[str]:
    present = [slice_ for slice_, count in enumerate(values) if count]
    first, last = present[0], present[-1]
    share = sum(values) / sum(objects[first : last + 1])
    changes = []
    if share * sum(objects[:first]) >= EXPECTED_VALUES_MIN:
        changes.append(f"new since slice {first}")
    if share * sum(objects[last + 1 :]) >= EXPECTED_VALUES_MIN:
        changes.append(f"gone after slice {last}")
    return changes


def _kind_changes(by_slice: list[Counter[str]]) -> list[str]:
    """Return where the most frequent kind, except null, differs from the slice before."""
    changes: list[str] = []
    before = ""
    for slice_, counts in enumerate(by_slice):
        kinds = [
            kind
            for kind, _ in sorted(counts.items(), key=lambda counted_kind: (-counted_kind[1], counted_kind[0]))
            if kind != "null"
        ]
        if not kinds:
            continue
        if before and kinds[0] != before:
            changes.append(f"{before} becomes {kinds[0]} in slice {slice_}")
        before = kinds[0]
    return changes

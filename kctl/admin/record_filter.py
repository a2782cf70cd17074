"""Selects records by key, header, value and condition.  Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl.admin.where import Condition, RecordView
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record


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
        """Whether the record is selected; the cheapest parts are compared first."""
        if self.key is not None and record.key != self.key:
            return False
        if self.headers and not all(_has(record, one) for one in self.headers):
            return False
        if self.search is not None and not self.search(tp, record):
            return False
        return self.where is None or _holds(self.where, RecordView(tp.partition, record))


def parse_bytes(text: str, option: str) -> bytes:
    """Bytes from `TEXT`, `text:TEXT`, `hex:4a4b` or `base64:SksK`.  Raises UsageError."""
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
    """A header from `NAME` or `NAME=VALUE`; the value has the forms of `parse_bytes`.  Raises UsageError."""
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"{option} takes NAME or NAME=VALUE, not '{text}'")
    return HeaderMatch(name, parse_bytes(value, option) if equals else None)


def _has(record: Record, match: HeaderMatch) -> bool:
    return any(name == match.name and (match.value is None or data == match.value) for name, data in record.headers)


def _holds(condition: Condition, record: RecordView) -> bool:
    try:
        return condition.holds(record)
    except RecursionError:  # two JSON documents with more levels than Python compares
        return False

"""The transforms of --partition-by, as Iceberg defines them.  Pure.

    country, identity(country)            the value
    year(f), month(f), day(f), hour(f)    of a date or timestamp in UTC, or of `timestamp`, that of the record
    bucket(16, id)                        a hash modulo 16
    truncate(4, name)                     the first 4 characters, or a whole number rounded down to a multiple of 4

The value of a partition is a text: 2026, 2026-11, 2026-11-30, 2026-11-30-07, 5, Anna.  Of null it is null.
https://iceberg.apache.org/spec/#partition-transforms and #appendix-b-32-bit-hash-requirements
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from kctl.errors import UsageError

IDENTITY, YEAR, MONTH, DAY, HOUR_OF, BUCKET, TRUNCATE = (
    "identity",
    "year",
    "month",
    "day",
    "hour",
    "bucket",
    "truncate",
)
TIME_LENGTHS = {YEAR: 4, MONTH: 7, DAY: 10, HOUR_OF: 13}
"""Characters of the text of a time that are the value."""
RECORD_TIME = ("timestamp",)
"""The source that is no field of the values."""
ARGUMENT_MAX = 2**31 - 1
SOURCE_TYPES: Mapping[str, frozenset[str]] = {
    IDENTITY: frozenset({"string", "boolean", "int32", "int64", "date"}),
    **dict.fromkeys((YEAR, MONTH, DAY), frozenset({"date", "timestamp"})),
    HOUR_OF: frozenset({"timestamp"}),
    BUCKET: frozenset({"string", "int32", "int64", "date"}),
    TRUNCATE: frozenset({"string", "int32", "int64"}),
}
_TERM = re.compile(r"(?:(?P<transform>[a-z]+)\((?:(?P<argument>\d{1,10}),)?(?P<source>[^(),]+)\)|(?P<field>[^(),]+))")
_SUFFIXES = {IDENTITY: "", TRUNCATE: "_trunc"}
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Term:
    """A transform of a source."""

    transform: str
    source: tuple[str, ...]
    """The path of a field below `value`, or RECORD_TIME."""
    argument: int = 0
    """The number of buckets, or the width."""

    @property
    def column(self) -> str:
        """The name of the partition column, as Iceberg names it."""
        return self.source[-1] + _SUFFIXES.get(self.transform, f"_{self.transform}")

    @property
    def is_time(self) -> bool:
        """Whether the value is a part of a time."""
        return self.transform in TIME_LENGTHS

    @property
    def is_of_record(self) -> bool:
        """Whether the source is the time of the record."""
        return self.source == RECORD_TIME

    @property
    def path(self) -> str:
        """The source as a column of the export."""
        return self.source[0] if self.is_of_record else ".".join(("value", *self.source))

    def text_of(self, value: str | int | bool | date | None) -> str | None:
        """Return the value of the partition.

        Of a time transform, the argument is a text as of numpy.datetime64: 2026-11-30T07.
        """
        if value is None:
            return None
        if self.is_time:
            return str(value)[: TIME_LENGTHS[self.transform]].replace("T", "-")
        if self.transform == BUCKET:
            return str((murmur3(_hashed(value)) & 0x7FFFFFFF) % self.argument)
        if self.transform == TRUNCATE and isinstance(value, int):
            return str(value - value % self.argument)
        if self.transform == TRUNCATE:
            return str(value)[: self.argument]
        return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(maxsize=64)
def parse_terms(text: str) -> tuple[Term, ...]:
    """Read the terms of a list.  Raises UsageError."""
    terms: list[Term] = []
    position = 0
    while position <= len(text):
        found = _TERM.match(text, position)
        if found is None or (found.end() < len(text) and text[found.end()] != ","):
            raise UsageError(
                f"--partition-by {text}: write fields and year, month, day, hour(FIELD), bucket(N,FIELD) or "
                "truncate(N,FIELD), with commas between them"
            )
        terms.append(_term(text, found))
        position = found.end() + 1
    columns = [term.column.lower() for term in terms]
    if twin := next((column for column in columns if columns.count(column) > 1), None):
        raise UsageError(f"--partition-by {text}: two partitions have the name {twin}")
    return tuple(terms)


def _term(text: str, found: re.Match[str]) -> Term:
    transform = found["transform"] or IDENTITY
    if found["field"] in {"date", "hour"} and found["field"] != text:
        time = {"date": DAY, "hour": HOUR_OF}[found["field"]]
        raise UsageError(
            f"--partition-by {text}: beside others, write {time}(timestamp), or value.{found['field']} for the field"
        )
    source = tuple((found["source"] or found["field"]).removeprefix("value.").split("."))
    needs_argument = transform in {BUCKET, TRUNCATE}
    argument = int(found["argument"] or 0)
    if transform not in SOURCE_TYPES:
        raise UsageError(f"--partition-by {text}: there is no transform {transform}")
    if needs_argument != (found["argument"] is not None) or (needs_argument and not 0 < argument <= ARGUMENT_MAX):
        form = f"{transform}(N,FIELD)" if needs_argument else f"{transform}(FIELD)"
        raise UsageError(f"--partition-by {text}: write {form}, with N from 1 to {ARGUMENT_MAX}")
    if not all(source):
        raise UsageError(f"--partition-by {text}: {'.'.join(source)} is not the name of a field")
    if source == RECORD_TIME and transform not in TIME_LENGTHS:
        raise UsageError(f"--partition-by {text}: use year, month, day or hour of timestamp")
    return Term(transform, source, argument)


def ordinal(term: Term, text: str) -> int:
    """Return the number that Iceberg has for the text of a time: of years, months, days or hours since 1970."""
    parts = [int(part) for part in text.split("-")]
    year, month, day, hour = [*parts, *(1970, 1, 1, 0)[len(parts) :]]
    match term.transform:
        case "year":
            return year - 1970
        case "month":
            return (year - 1970) * 12 + month - 1
    days = (date(year, month, day) - _EPOCH).days
    return days if term.transform == DAY else days * 24 + hour


def _hashed(value: str | int | date) -> bytes:
    """Return the bytes of which a bucket is the hash."""
    if isinstance(value, str):
        return value.encode()
    return struct.pack("<q", (value - _EPOCH).days if isinstance(value, date) else value)


def murmur3(data: bytes) -> int:
    """Return the 32-bit Murmur3 hash (x86 variant, seed 0), without a sign."""
    found, whole = 0, len(data) // 4
    for (block,) in struct.iter_unpack("<I", data[: whole * 4]):
        found ^= _scrambled(block)
        found = (found << 13 | found >> 19) & _WORD
        found = (found * 5 + 0xE6546B64) & _WORD
    if tail := data[whole * 4 :]:
        found ^= _scrambled(int.from_bytes(tail, "little"))
    found ^= len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & _WORD
    found = (found ^ found >> 13) * 0xC2B2AE35 & _WORD
    return found ^ found >> 16


_WORD = 0xFFFFFFFF


def _scrambled(block: int) -> int:
    block = block * 0xCC9E2D51 & _WORD
    block = (block << 15 | block >> 17) & _WORD
    return block * 0x1B873593 & _WORD

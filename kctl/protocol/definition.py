"""The wire format of a message, which `message` derives from its dataclass and the codecs follow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

VERSION_MAX = 32767

FIXED_FORMATS = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""`struct` formats of the types of fixed size."""

FIXED_SIZES = {"b": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}


class Role(Enum):
    """What the value of a field names, where receivers have to check it."""

    TOPIC = "topic"
    PARTITION = "partition"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Field:
    """The wire format of one field."""

    name: str
    kind: str
    """A key of FIXED_FORMATS, or string, bytes, records, array, struct."""
    versions: range
    nullable: range
    default: Any
    """Value in versions without the field and of absent tagged fields; dataclasses.MISSING if it is never used."""
    ignorable: bool
    """True to drop a value silently in versions without the field, instead of raising ValueError."""
    tag: int | None
    element: Field | None
    """The elements of an array."""
    struct: type | None
    """The class if kind is struct."""
    role: Role | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """The wire format of a message or struct; `definition_of` returns it."""

    name: str
    key: int | None
    """The API key of a request or response; None for other classes."""
    versions: range
    flexible: range
    served: range
    """The versions of a request that our broker serves."""
    sent: range
    """The versions of a request that our client sends."""
    fields: tuple[Field, ...]
    cost_max: int | None = None
    """Maximum cost of decoding; None for messages from brokers and files, which have no bound."""

    def is_flexible(self, version: int) -> bool:
        """Return True if this version has compact lengths and tagged fields (KIP-482)."""
        return version in self.flexible


def definition_of(cls: type) -> Definition:
    """Return the definition of a class made by a decorator of kctl.protocol.message."""
    return cast("Definition", cls.__dict__["__definition__"])


def parse_versions(text: str) -> range:
    """Return the versions of a range written as "3+", "2-4", "1" or "none"."""
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), VERSION_MAX + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)

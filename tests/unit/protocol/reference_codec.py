"""A second codec that interprets the definitions: slow and simple.

It follows the protocol specification and shares only the definitions with the compilers.  Tests check that both give
the same results for valid and malformed messages.
"""

from __future__ import annotations

import copy
import struct
from math import inf
from typing import Any, TypeVar, cast
from uuid import UUID

from kctl.errors import MalformedRequest
from kctl.limits import TAGGED_FIELDS_MAX
from kctl.protocol.cost import BYTES_PER_COST, LONG_STRING_BYTES, element_cost
from kctl.protocol.definition import FIXED_FORMATS, Field, definition_of

T = TypeVar("T")

_STRING_BYTES_MAX = 32767
_VARINT_BYTES_MAX = 5


def decode_walk(cls: type[T], buffer: memoryview | bytes, version: int, offset: int = 0) -> tuple[T, int]:
    """Decode as codec.decode does."""
    definition = definition_of(cls)
    reader = _Reader(memoryview(buffer), offset, version, definition.is_flexible(version), definition.cost_max)
    return cast("T", reader.struct(cls)), reader.position


def encode_walk(message: object, version: int) -> bytes:
    """Encode as codec.encode_bytes does."""
    writer = _Writer(version, definition_of(type(message)).is_flexible(version))
    writer.struct(message)
    return bytes(writer.out)


class _Reader:
    def __init__(self, buffer: memoryview, position: int, version: int, flexible: bool, cost_max: int | None) -> None:
        self.buffer, self.position = buffer, position
        self.version, self.flexible = version, flexible
        self.cost_left = inf if cost_max is None else cost_max
        self.tags_left = inf if cost_max is None else TAGGED_FIELDS_MAX

    def charge(self, cost: int) -> None:
        """Subtract a cost from the remaining cost of the message.  Raises MalformedRequest below 0."""
        self.cost_left -= cost
        if self.cost_left < 0:
            raise MalformedRequest("costs more than the limit to decode")

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes.  Raises MalformedRequest if there are fewer."""
        end = self.position + size
        if end > len(self.buffer):
            raise MalformedRequest(f"{size} bytes at {self.position} extend past the end at {len(self.buffer)}")
        taken = self.buffer[self.position : end]
        self.position = end
        return taken

    def uvarint(self) -> int:
        """Read an unsigned varint."""
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                break
        else:
            raise MalformedRequest("varint too long")
        if value >= 1 << 32:
            raise MalformedRequest("varint too large")
        return value

    def struct(self, cls: type) -> Any:
        """Read a struct."""
        values: dict[str, Any] = {}
        for field in definition_of(cls).fields:
            if self.version not in field.versions or field.tag is not None:
                values[field.name] = copy.deepcopy(field.default)
            else:
                values[field.name] = self.value(field)
        if self.flexible:
            values.update(self.tagged_fields(cls))
        return cls(**values)

    def tagged_fields(self, cls: type) -> dict[str, Any]:
        """Read a section of tagged fields; unknown ones are skipped."""
        known = {field.tag: field for field in definition_of(cls).fields if self.version in field.versions}
        values = {}
        count = self.uvarint()
        self.tags_left -= count
        if self.tags_left < 0:
            raise MalformedRequest("has too many tagged fields")
        for _ in range(count):
            tag = self.uvarint()
            size = self.uvarint()
            field = known.get(tag)
            if field is None:
                self.take(size)
                continue
            end = self.position + size
            values[field.name] = self.value(field)
            if self.position != end:
                raise MalformedRequest(f"{field.name} differs from its size of {size} bytes")
        return values

    def value(self, field: Field) -> Any:
        """Read a value of a field."""
        if field.kind in FIXED_FORMATS:
            return self.fixed(FIXED_FORMATS[field.kind])
        if field.struct is not None:
            return None if self.version in field.nullable and self.is_null(field) else self.struct(field.struct)
        length = self.length(field)
        if length < 0:
            if self.version not in field.nullable:
                raise MalformedRequest(f"{field.name} is null")
            return None
        if field.kind == "array":
            return self.array(cast("Field", field.element), length)
        return self.blob(field, length)

    def is_null(self, field: Field) -> bool:
        """Read the presence of a nullable struct: -1 for null or 1; in a tagged field 0 or 1."""
        return bool(self.fixed("b") < 0) if field.tag is None else self.uvarint() == 0

    def fixed(self, code: str) -> Any:
        """Read a value of a fixed-size format."""
        (value,) = struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))
        return UUID(bytes=value) if code == "16s" else value

    def length(self, field: Field) -> int:
        """Read a length or count; -1 for null."""
        if self.flexible:
            return self.uvarint() - 1
        return int(self.fixed("h" if field.kind == "string" else "i"))

    def array(self, element: Field, count: int) -> list[Any]:
        """Read an array of `count` elements."""
        if count > len(self.buffer) - self.position:
            raise MalformedRequest(f"{count} elements do not fit")
        self.charge(count * element_cost(element, self.version))
        return [self.value(element) for _ in range(count)]

    def blob(self, field: Field, length: int) -> Any:
        """Read a string, bytes or records."""
        if field.kind == "string" and length > _STRING_BYTES_MAX:
            raise MalformedRequest(f"{field.name} has {length} bytes")
        if field.kind in BYTES_PER_COST and length > LONG_STRING_BYTES:
            self.charge(length // BYTES_PER_COST[field.kind])
        taken = self.take(length)
        if field.kind == "records":
            return taken
        if field.kind == "bytes":
            return bytes(taken)
        try:
            return str(taken, "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"{field.name}: {error}") from error


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.out = bytearray()
        self.version, self.flexible = version, flexible

    def uvarint(self, value: int) -> None:
        """Write an unsigned varint."""
        while value >= 0x80:
            self.out.append(value % 0x80 + 0x80)
            value //= 0x80
        self.out.append(value)

    def struct(self, message: Any) -> None:
        """Write a struct."""
        tagged = {}
        for field in definition_of(type(message)).fields:
            value = getattr(message, field.name)
            if self.version not in field.versions:
                if value != field.default and not field.ignorable:
                    raise ValueError(f"{field.name} does not exist in version {self.version}")
            elif field.tag is not None:
                tagged[field.tag] = (field, value)
            else:
                self.value(field, value)
        if self.flexible:
            self.tagged_fields({tag: tagged[tag] for tag in sorted(tagged)})

    def tagged_fields(self, tagged: dict[int, tuple[Field, Any]]) -> None:
        """Write a section of tagged fields, in order of their tags."""
        different = {tag: (field, value) for tag, (field, value) in tagged.items() if value != field.default}
        self.uvarint(len(different))
        for tag, (field, value) in different.items():
            inner = _Writer(self.version, self.flexible)
            inner.value(field, value)
            self.uvarint(tag)
            self.uvarint(len(inner.out))
            self.out += inner.out

    def value(self, field: Field, value: Any) -> None:
        """Write a value of a field."""
        if field.kind in FIXED_FORMATS:
            self.fixed(FIXED_FORMATS[field.kind], value)
        elif value is None:
            if self.version not in field.nullable:
                raise ValueError(f"{field.name} is None in version {self.version}")
            if field.struct is not None and field.tag is None:
                self.fixed("b", -1)
            else:
                self.length(field, -1)
        elif field.struct is not None:
            if self.version in field.nullable:
                self.fixed("b", 1)
            self.struct(value)
        elif field.kind == "array":
            self.length(field, len(value))
            for item in value:
                self.value(cast("Field", field.element), item)
        else:
            blob = value.encode() if field.kind == "string" else value
            if field.kind == "string" and len(blob) > _STRING_BYTES_MAX:
                raise ValueError(f"{field.name} has {len(blob)} bytes")
            self.length(field, len(blob))
            self.out += blob

    def fixed(self, code: str, value: Any) -> None:
        """Write a value of a fixed-size format."""
        try:
            self.out += struct.pack(">" + code, value.bytes if code == "16s" else value)
        except struct.error as error:
            raise ValueError(str(error)) from error

    def length(self, field: Field, length: int) -> None:
        """Write a length or count; -1 for null."""
        if self.flexible:
            self.uvarint(length + 1)
        else:
            self.fixed("h" if field.kind == "string" else "i", length)

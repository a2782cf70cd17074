"""Adds the logical type VARIANT to columns in the footer of a Parquet file, because pyarrow cannot write it.  Pure.

The footer is the struct FileMetaData in Thrift's compact protocol (parquet.thrift of parquet-format).  Its schema is
the list of all groups and columns, depth first.  Only a field of the groups of the variants is added; all else remains
as pyarrow has written it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

SCHEMA = 2
"""The field of FileMetaData."""
TYPE, REPETITION, NAME, CHILDREN, CONVERTED_TYPE, LOGICAL_TYPE = 1, 3, 4, 5, 6, 10
"""Fields of SchemaElement."""
REQUIRED, BYTE_ARRAY = 0, 6
_I8, _BINARY, _LIST, _STRUCT, _STOP = 3, 8, 9, 12, 0
_INTEGERS = frozenset({4, 5, 6})
_VARIANT = 16
"""The field of the union LogicalType with the struct VariantType, whose field 1 is specification_version, an i8."""
_ANNOTATION = bytes((_STRUCT, _VARIANT << 1, 1 << 4 | _I8, 1, _STOP, _STOP))
DEPTH_MAX = 16
"""Structs and lists within each other; logical types have at most three."""


class UnknownFooter(Exception):
    """The footer is not as expected; it is not changed."""


@dataclass(slots=True)
class _Element:
    """A group or column of the schema."""

    numbers: dict[int, int] = field(default_factory=dict)
    """Fields that are integers."""
    name: bytes = b""
    last_field: int = 0
    end: int = 0
    """The position of its stop field."""


def annotated(footer: bytes, columns: Collection[str]) -> bytes:
    """Return the footer with the type of the named columns, each a group of the required binaries `metadata` and
    `value`.

    Raises UnknownFooter for other columns, for one that has a type already, and if the footer is not understood.
    """
    try:
        elements = _elements(footer)
        groups = _top_level(elements)
    except IndexError:
        raise UnknownFooter("the footer is cut off") from None
    parts: list[bytes] = []
    copied = 0
    wanted = {name.encode() for name in columns}
    for index in groups:
        element = elements[index]
        if element.name not in wanted:
            continue
        wanted.remove(element.name)
        _check(element, elements[index + 1 : index + 3])
        parts += [
            footer[copied : element.end],
            bytes(((LOGICAL_TYPE - element.last_field) << 4 | _STRUCT,)),
            _ANNOTATION,
        ]
        copied = element.end
    if wanted:
        raise UnknownFooter(f"there is no column {min(wanted).decode()}")
    return b"".join((*parts, footer[copied:]))


def _check(group: _Element, children: list[_Element]) -> None:
    is_plain_group = group.numbers.keys() <= {REPETITION, CHILDREN, 9} and group.last_field < LOGICAL_TYPE
    are_binaries = all(
        child.numbers.get(TYPE) == BYTE_ARRAY
        and child.numbers.get(REPETITION) == REQUIRED
        and CHILDREN not in child.numbers
        for child in children
    )
    names = {child.name for child in children}
    if group.numbers.get(CHILDREN) != 2 or not is_plain_group or not are_binaries or names != {b"metadata", b"value"}:
        raise UnknownFooter(f"the column {group.name.decode(errors='replace')} is not a group of metadata and value")


def _top_level(elements: list[_Element]) -> list[int]:
    """Return the indexes of the children of the root."""
    found = []
    index = 1
    for _ in range(elements[0].numbers.get(CHILDREN, 0)):
        found.append(index)
        open_ = 1
        while open_:
            open_ += elements[index].numbers.get(CHILDREN, 0) - 1
            index += 1
    if index != len(elements):
        raise UnknownFooter("the schema is not a tree")
    return found


def _elements(footer: bytes) -> list[_Element]:
    reader = _Reader(footer)
    number = 0
    while header := reader.byte():
        number = reader.field(header, number)
        if number != SCHEMA:
            reader.skip(header & 0xF)
            continue
        if header & 0xF != _LIST:
            break
        kind, count = reader.list_header()
        if kind != _STRUCT:
            break
        return [_element(reader) for _ in range(min(count, len(footer)))]
    raise UnknownFooter("the footer has no schema")


def _element(reader: _Reader) -> _Element:
    found = _Element()
    while header := reader.byte():
        found.last_field = reader.field(header, found.last_field)
        kind = header & 0xF
        if kind in _INTEGERS:
            found.numbers[found.last_field] = reader.integer()
        elif kind == _BINARY and found.last_field == NAME:
            found.name = reader.binary()
        else:
            reader.skip(kind)
    found.end = reader.position - 1
    return found


class _Reader:
    """Reads Thrift's compact protocol.  Raises IndexError beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def byte(self) -> int:
        found = self._data[self.position]
        self.position += 1
        return found

    def unsigned(self) -> int:
        found = shift = 0
        while (byte := self.byte()) >= 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise UnknownFooter("a number is too large")
        return found | byte << shift

    def integer(self) -> int:
        found = self.unsigned()
        return found >> 1 ^ -(found & 1)

    def binary(self) -> bytes:
        start = self.position
        count = self.unsigned()
        start = self.position
        self._advance(count)
        return self._data[start : self.position]

    def field(self, header: int, last: int) -> int:
        """Return the number of a field after that with the number `last`."""
        number = last + (header >> 4) if header >> 4 else self.integer()
        if not last < number:
            raise UnknownFooter("fields are not in ascending order")
        return number

    def list_header(self) -> tuple[int, int]:
        header = self.byte()
        count = header >> 4
        return header & 0xF, self.unsigned() if count == 0xF else count

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value, with all that is in it."""
        if depth > DEPTH_MAX:
            raise UnknownFooter("it has too many levels")
        match kind:
            case 1 | 2:  # true and false are in the header of the field
                pass
            case 3:
                self._advance(1)
            case 4 | 5 | 6:
                self.unsigned()
            case 7:
                self._advance(8)
            case 8:
                self.binary()
            case 9 | 10:
                item, count = self.list_header()
                for _ in range(count):
                    # In a list, unlike in a struct, a boolean is a byte.
                    self.skip(3 if item in {1, 2} else item, depth + 1)
            case 12:
                while header := self.byte():
                    if not header >> 4:
                        self.integer()
                    self.skip(header & 0xF, depth + 1)
            case _:
                raise UnknownFooter(f"the type {kind} is not known")

    def _advance(self, count: int) -> None:
        self.position += count
        if self.position > len(self._data):
            raise IndexError

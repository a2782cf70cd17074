"""JSON values in the binary encoding of Parquet's type VARIANT, and back.  Pure.

A variant is two byte strings: `metadata`, a dictionary of the names of all members, and `value`, in which an object
has the numbers of its names and the offsets of its members (VariantEncoding.md of parquet-format, version 1).

Values that differ only in white space and in the order of members have equal bytes: members are encoded in the order of
their names, and all sizes are as small as possible.  Numbers have the types that parse_json of Spark gives them: whole
numbers 8 to 64 bits; larger ones, and those with a fraction, decimals of up to 38 digits; those with an exponent
doubles.  Where that would lose digits, they are exact all the same: -0 is a double, and a number with an exponent a
decimal.  What no type can have is refused.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, NoReturn

from kctl.limits import Subject, bound

EXPORT_VARIANT_BYTES_MAX = bound(
    Subject.EXPORTS,
    "size of a key or value in an export as variant: its text, its value and the names of its members, each",
    16 << 20,
    "bytes",
    on_excess="the record cannot be decoded: --on-bad-record",
)
EXPORT_VARIANT_DEPTH_MAX = bound(
    Subject.EXPORTS,
    "levels of objects and lists in a key or value in an export as variant",
    128,
    "levels",
    on_excess="the record cannot be decoded: --on-bad-record",
)


REMEMBERED_MAX = 1_000
REMEMBERED_NAMES_MAX = 256
REMEMBERED_CHARACTERS_MAX = 4_096
"""Shapes of objects that an encoder remembers, the names in a value, and the length of those that a shape adds."""

_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
"""Basic types, the lowest two bits of a value."""
_NULL, _TRUE, _FALSE = b"\x00", b"\x04", b"\x08"
_INT8, _INT16, _INT32, _INT64, _DOUBLE, _DECIMAL4, _DECIMAL8, _DECIMAL16 = (number << 2 for number in range(3, 11))
_TEXT = 16 << 2
_LONG_TEXT = bytes((_TEXT,))
_SHORT_MAX = 63
_SHORT_TEXTS = [bytes((count << 2 | _SHORT_TEXT,)) for count in range(_SHORT_MAX + 1)]
_INT8S = [bytes((_INT8, number)) for number in range(0x100)]
"""0 to 127, and -128 to -1 from the end."""
_SORTED, _VERSION = 0x10, 1
_INTEGERS = {_INT8: 1, _INT16: 2, _INT32: 4, _INT64: 8}
_DECIMALS = {_DECIMAL4: 4, _DECIMAL8: 8, _DECIMAL16: 16}
_DECIMAL_DIGITS_MAX = 38
_DECIMAL_LIMIT = 10**_DECIMAL_DIGITS_MAX
_INT64_LIMIT = 1 << 63

_double = struct.Struct("<Bd").pack
_MINUS_ZERO = _double(_DOUBLE, -0.0)
_u32 = struct.Struct("<I").pack
_int16, _int32, _int64 = struct.Struct("<Bh").pack, struct.Struct("<Bi").pack, struct.Struct("<Bq").pack
_decimal4, _decimal8 = struct.Struct("<BBi").pack, struct.Struct("<BBq").pack


class NotVariant(Exception):
    """A text is not JSON, or cannot be a variant; the message is the reason."""


class Variant(NamedTuple):
    """An encoded value."""

    metadata: bytes
    value: bytes


class VariantEncoder:
    """Encodes one JSON text after another, and remembers the names of members, which most values of a topic share."""

    def __init__(self) -> None:
        self._no_names = self._names = _Names({})
        """Of the value that is being encoded, so far."""
        self._remembered = 0

    def encode(self, text: str) -> Variant:
        """Return the value of a text.  Raises NotVariant."""
        if len(text) > EXPORT_VARIANT_BYTES_MAX:
            raise NotVariant(_TOO_LARGE)
        try:
            parsed = (_JSON_WITH_MINUS_ZERO if "-0" in text else _JSON).decode(text)
        except RecursionError:
            raise NotVariant(_TOO_DEEP) from None
        except json.JSONDecodeError:
            raise NotVariant(_NOT_JSON) from None
        except ValueError:  # more digits than Python reads
            raise NotVariant(_TOO_FAR) from None
        if self._remembered >= REMEMBERED_MAX:
            self._no_names, self._remembered = _Names({}), 0
        self._names = self._no_names
        try:
            (value,) = self._encoded((parsed,), EXPORT_VARIANT_DEPTH_MAX)
            metadata = self._names.metadata()
        except UnicodeEncodeError:
            raise NotVariant("a text has half of a surrogate pair") from None
        if len(value) > EXPORT_VARIANT_BYTES_MAX or len(metadata) > EXPORT_VARIANT_BYTES_MAX:
            raise NotVariant(_TOO_LARGE)
        return Variant(metadata, value)

    def _encoded(self, values: Iterable[Any], levels: int) -> list[bytes]:
        """Return the values that have at most `levels` levels of objects and lists.

        An export takes most of its time here.
        """
        parts: list[bytes] = []
        add = parts.append
        for value in values:
            kind = type(value)
            if kind is str:
                data = value.encode()
                count = len(data)
                add(_SHORT_TEXTS[count] + data if count <= _SHORT_MAX else _LONG_TEXT + _u32(count) + data)
            elif kind is int:
                add(_INT8S[value] if -0x80 <= value < 0x80 else _integer(value))
            elif kind is bytes:  # a number with a fraction or an exponent, see _JSON
                add(value)
            elif value is None:
                add(_NULL)
            elif kind is bool:
                add(_TRUE if value else _FALSE)
            elif not levels:
                raise NotVariant(_TOO_DEEP)
            elif kind is list:
                add(_array(self._encoded(value, levels - 1)))
            else:
                names = tuple(value)
                shape = self._names.shapes.get(names) or self._learned(names)
                self._names = shape.after
                add(_object(shape, self._encoded(map(value.__getitem__, shape.names), levels - 1)))
        return parts

    def _learned(self, names: tuple[str, ...]) -> _Shape:
        """Return the shape of objects with these members, remembered if there are not too many."""
        before = self._names
        ordered = tuple(sorted(names))
        new = [name for name in ordered if name not in before.ids]
        is_remembered = (
            before.is_shared
            and self._remembered < REMEMBERED_MAX
            and len(before.ids) + len(new) <= REMEMBERED_NAMES_MAX
            and sum(map(len, new)) <= REMEMBERED_CHARACTERS_MAX
        )
        after = before
        if new:
            # Names that are not remembered belong to this value only, so that a large one does not copy them often.
            after = _Names(dict(before.ids), is_shared=is_remembered) if before.is_shared else before
            for name in new:
                after.ids[name] = len(after.ids)
        ids = [after.ids[name] for name in ordered]
        size = _size(max(ids, default=0))
        is_large, count = _count(len(ids))
        header = _OBJECT | (size - 1) << 4 | is_large << 6
        shape = _Shape(
            ordered, [bytes((header | number << 2,)) + count + _packed(ids, size) for number in range(4)], after
        )
        if is_remembered:
            before.shapes[names] = shape
            self._remembered += 1
        return shape


class _Names:
    """The names of members that a value has had up to some point, in the order of their ids."""

    __slots__ = ("_metadata", "ids", "is_shared", "shapes")

    def __init__(self, ids: dict[str, int], *, is_shared: bool = True) -> None:
        self.ids = ids
        self.is_shared = is_shared
        """Whether other values may begin with the same names; then they are never changed."""
        self.shapes: dict[tuple[str, ...], _Shape] = {}
        """Of objects that have come next, by the names of their members."""
        self._metadata: bytes | None = None

    def metadata(self) -> bytes:
        """Return the dictionary of a value."""
        if self._metadata is None:
            texts = [name.encode() for name in self.ids]
            offsets = list(accumulate(map(len, texts), initial=0))
            size = _size(max(offsets[-1], len(texts)))
            header = _VERSION | (_SORTED if texts == sorted(texts) else 0) | (size - 1) << 6
            self._metadata = b"".join((bytes((header,)), _packed((len(texts), *offsets), size), *texts))
        return self._metadata


class _Shape(NamedTuple):
    """Objects with certain members."""

    names: tuple[str, ...]
    """In ascending order."""
    heads: Sequence[bytes]
    """What is before the offsets, if these have 1, 2, 3 and 4 bytes each."""
    after: _Names


_NOT_JSON = "it is not JSON"
_TOO_LARGE = f"it is larger than {EXPORT_VARIANT_BYTES_MAX} bytes"
_TOO_DEEP = "it has too many levels"
_TOO_FAR = "a number is beyond the range of doubles"
_TOO_LONG = f"a number has more than {_DECIMAL_DIGITS_MAX} digits"


def _refuse(_constant: str) -> NoReturn:
    raise NotVariant(_NOT_JSON)


def _number(text: str) -> bytes:
    """Encode a number with a fraction or an exponent."""
    whole, point, fraction = text.partition(".")
    scale = len(fraction)
    if point and scale <= _DECIMAL_DIGITS_MAX and len(whole) <= _DECIMAL_DIGITS_MAX + 1:
        try:
            unscaled = int(whole + fraction)
        except ValueError:  # it has an exponent
            pass
        else:
            if not unscaled and text[0] == "-":
                return _MINUS_ZERO
            if scale <= 9 and -(10**9) < unscaled < 10**9:
                return _decimal4(_DECIMAL4, scale, unscaled)
            if -_DECIMAL_LIMIT < unscaled < _DECIMAL_LIMIT:
                return _decimal(unscaled, scale)
    return _long_number(text)


def _long_number(text: str) -> bytes:
    """Encode a number with an exponent, or with more digits than a decimal has: as double if that keeps its digits.

    What neither a double nor a decimal has is the nearest double if it has up to 17 digits: these determine a double,
    and other programs write that many where fewer would do.
    """
    try:
        exact = Decimal(text)
    except InvalidOperation:
        raise NotVariant(_TOO_FAR) from None
    number = float(text)
    if math.isinf(number) or (exact and not number):
        raise NotVariant(_TOO_FAR)
    if Decimal(repr(number)) == exact:
        return _double(_DOUBLE, number)
    _, digits, exponent = exact.normalize(_UNROUNDED).as_tuple()
    assert isinstance(exponent, int)  # text is no infinity
    scale = max(-exponent, 0)
    if scale <= _DECIMAL_DIGITS_MAX and len(digits) + exponent + scale <= _DECIMAL_DIGITS_MAX:
        return _decimal(int(exact.scaleb(scale, _UNROUNDED)), scale)
    if len(digits) <= _DOUBLE_DIGITS:
        return _double(_DOUBLE, number)
    raise NotVariant(_TOO_LONG)


_DOUBLE_DIGITS = 17
_UNROUNDED = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _zero_or_whole(text: str) -> bytes | int:
    return _MINUS_ZERO if text == "-0" else int(text)


_JSON = json.JSONDecoder(parse_float=_number, parse_constant=_refuse)
"""Numbers with a fraction or an exponent are encoded when they are parsed, because a float would not be exact."""
_JSON_WITH_MINUS_ZERO = json.JSONDecoder(parse_float=_number, parse_int=_zero_or_whole, parse_constant=_refuse)
"""For texts that may have the number -0, which no whole number or decimal is.  Its calls make it slower."""


def _decimal(unscaled: int, scale: int) -> bytes:
    """More than 9 digits."""
    if scale <= 18 and -(10**18) < unscaled < 10**18:
        return _decimal8(_DECIMAL8, scale, unscaled)
    return bytes((_DECIMAL16, scale)) + unscaled.to_bytes(16, "little", signed=True)


def _integer(value: int) -> bytes:
    """More than 8 bits."""
    if -0x8000 <= value < 0x8000:
        return _int16(_INT16, value)
    if -0x8000_0000 <= value < 0x8000_0000:
        return _int32(_INT32, value)
    if -_INT64_LIMIT <= value < _INT64_LIMIT:
        return _int64(_INT64, value)
    if -_DECIMAL_LIMIT < value < _DECIMAL_LIMIT:
        return _decimal(value, 0)
    return _long_number(str(value))


def _array(items: Sequence[bytes]) -> bytes:
    is_large, count = _count(len(items))
    data = b"".join(items)
    size = _size(len(data))
    header = _ARRAY | (size - 1) << 2 | is_large << 4
    return b"".join((bytes((header,)), count, _packed([*accumulate(map(len, items), initial=0)], size), data))


def _object(shape: _Shape, members: Sequence[bytes]) -> bytes:
    data = b"".join(members)
    offsets = accumulate(map(len, members), initial=0)
    if len(data) <= 0xFF:
        return shape.heads[0] + bytes(offsets) + data
    size = _size(len(data))
    return shape.heads[size - 1] + _packed([*offsets], size) + data


def _count(number: int) -> tuple[bool, bytes]:
    return (False, bytes((number,))) if number <= 0xFF else (True, number.to_bytes(4, "little"))


def _size(largest: int) -> int:
    """Return the bytes that a number needs."""
    return 1 if largest <= 0xFF else 2 if largest <= 0xFFFF else 3 if largest <= 0xFF_FFFF else 4


def _packed(numbers: Sequence[int], size: int) -> bytes:
    if size == 1:
        return bytes(numbers)
    if size == 3:  # struct has no such format
        return b"".join([number.to_bytes(3, "little") for number in numbers])
    return struct.pack(f"<{len(numbers)}{'H' if size == 2 else 'I'}", *numbers)


def json_text(metadata: bytes, value: bytes) -> str:
    """Return the value as JSON; the inverse of VariantEncoder, apart from white space and the order of members.

    Raises ValueError for bytes that are not a variant, and for types that it does not write, such as dates.
    """
    try:
        return _Reader(_names(metadata), value).text(0, EXPORT_VARIANT_DEPTH_MAX)
    except (IndexError, struct.error) as error:
        raise ValueError(f"not a variant: {error}") from None


def _names(metadata: bytes) -> list[str]:
    if metadata[0] & 0xF != _VERSION:
        raise ValueError(f"not a variant: version {metadata[0] & 0xF}")
    size = (metadata[0] >> 6) + 1
    count = _unpacked(metadata, 1, size, 1)[0]
    offsets = _unpacked(metadata, 1 + size, size, count + 1)
    start = 1 + size * (count + 2)
    return [metadata[start + begin : start + end].decode() for begin, end in pairwise(offsets)]


def _unpacked(data: bytes, start: int, size: int, count: int) -> list[int]:
    end = start + size * count
    if end > len(data):
        raise ValueError("not a variant: it is cut off")
    return [int.from_bytes(data[at : at + size], "little") for at in range(start, end, size)]


_quoted: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode


class _Reader:
    """Reads a value; all bytes that it visits are together at most those of the value, whatever the offsets are."""

    def __init__(self, names: Sequence[str], value: bytes) -> None:
        self._names = names
        self._value = value
        self._room = len(value)

    def text(self, at: int, levels: int) -> str:
        header = self._value[at]
        match header & 3:
            case 0:
                return self._primitive(header, at + 1)
            case 1:
                return _quoted(self._bytes(at + 1, header >> 2).decode())
        if not levels:
            raise ValueError(f"not a variant: {_TOO_DEEP}")
        is_object = header & 3 == _OBJECT
        size = (header >> 2 & 3) + 1
        width = 4 if header >> (6 if is_object else 4) & 1 else 1
        count = self._numbers(at + 1, width, 1)[0]
        at += 1 + width
        ids: list[int] = []
        if is_object:
            id_size = (header >> 4 & 3) + 1
            ids = self._numbers(at, id_size, count)
            at += id_size * count
        offsets = self._numbers(at, size, count + 1)
        at += size * (count + 1)
        texts = [self.text(at + offset, levels - 1) for offset in offsets[:-1]]
        if not is_object:
            return f"[{','.join(texts)}]"
        names = [_quoted(self._names[name_id]) for name_id in ids]
        return "{" + ",".join([f"{name}:{text}" for name, text in zip(names, texts, strict=True)]) + "}"

    def _primitive(self, header: int, at: int) -> str:
        match header:
            case 0 | 4 | 8:
                self._take(1)
                return {0: "null", 4: "true", 8: "false"}[header]
            case _ if header in _INTEGERS:
                return str(int.from_bytes(self._bytes(at, _INTEGERS[header]), "little", signed=True))
            case _ if header in _DECIMALS:
                scale, *number = self._bytes(at, 1 + _DECIMALS[header])
                unscaled = int.from_bytes(bytes(number), "little", signed=True)
                digits = tuple(map(int, str(abs(unscaled))))
                return format(Decimal((int(unscaled < 0), digits, -scale)), "f")
            case _ if header == _DOUBLE:
                (float_value,) = struct.unpack("<d", self._bytes(at, 8))
                if math.isfinite(float_value):
                    return repr(float_value)
            case _ if header == _TEXT:
                return _quoted(self._bytes(at + 4, self._numbers(at, 4, 1)[0]).decode())
        raise ValueError(f"a variant of type {header >> 2} is not a value of JSON")

    def _numbers(self, at: int, size: int, count: int) -> list[int]:
        self._take(size * count)
        return _unpacked(self._value, at, size, count)

    def _bytes(self, at: int, count: int) -> bytes:
        self._take(count + 1)
        data = self._value[at : at + count]
        if len(data) < count:
            raise ValueError("not a variant: it is cut off")
        return data

    def _take(self, count: int) -> None:
        self._room -= count
        if self._room < 0:
            raise ValueError("not a variant: it is cut off, or its parts overlap")

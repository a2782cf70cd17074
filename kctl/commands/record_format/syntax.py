"""The syntax of formats: parses the text of -f into pieces.  Pure.

    %k{base64}\t%v\n    key in base64, a tab, value, a line feed
    %H %h{%K%k%V%v}     number of headers, a space, and for each header sizes, name and value

A `%` and a letter is a field; braces after it select a form.  `%%`, `%{` and `%}` are these characters.
"""

from __future__ import annotations

import base64
import binascii
import re
from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from kctl.commands.frame.options.values import format_time, parse_any_year_ms, parse_time_ms
from kctl.errors import UsageError
from kctl.output.quantities import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping


# How numbers, bytes and times of a record are written and read back. Pure.
#
# Of a binary or hexadecimal number of fixed width, the value with all bits set is -1, the size of null; other values
# are unsigned.


NUMBER_BYTES_MAX = 20
"""Length of the longest decimal number of 64 bits, with its sign."""
NULL_ESCAPED = b"\\N"
"""Null in the form `escape`; no other bytes are written like this, because backslashes are doubled."""


class NumberForm(NamedTuple):
    """How a number is written."""

    base: Literal[10, 16] | None = 10
    """None for binary."""
    width: int = 0
    """Bytes of the text or of the binary number; 0 for as many digits as it has."""
    byte_order: Literal["big", "little"] = "big"

    @property
    def is_fixed(self) -> bool:
        """Whether all numbers have the same length."""
        return self.width > 0

    @property
    def digits(self) -> bytes:
        """The bytes that a number may begin or continue with."""
        return b"0123456789" if self.base == 10 else b"0123456789abcdefABCDEF"

    def write(self, number: int) -> bytes:
        """Return the number in this form.  Raises OverflowError if it does not fit."""
        if self.base == 10:
            return b"%d" % number
        if not self.width:
            return b"%x" % number
        bits = self.width * (4 if self.base == 16 else 8)
        least, greatest = -1, (1 << bits) - 2
        if not least <= number <= greatest:
            raise OverflowError(f"{number} is not between {least} and {greatest}")
        unsigned = number % (1 << bits)
        if self.base == 16:
            return b"%0*x" % (self.width, unsigned)
        return unsigned.to_bytes(self.width, self.byte_order)

    def read(self, data: bytes) -> int:
        """Return the number that `write` wrote.  Raises UsageError."""
        if self.base is None:
            unsigned = int.from_bytes(data, self.byte_order)
        elif re.fullmatch(rb"-?[%b]{1,%d}" % (self.digits, NUMBER_BYTES_MAX), data):
            unsigned = int(data, self.base)
        else:
            raise UsageError(f"{_shown(data)} is not a number")
        bits = self.width * (8 if self.base is None else 4)
        number = -1 if bits and unsigned == (1 << bits) - 1 else unsigned
        if not -1 <= number <= INT64_MAX:
            raise UsageError(f"{number} is not between -1 and {INT64_MAX}")
        return number


NUMBER_FORMS: dict[str, NumberForm] = {
    "ascii": NumberForm(),
    "hex": NumberForm(16),
    **{f"hex{bits}": NumberForm(16, bits // 4) for bits in (64, 32, 16, 8, 4)},
    **{f"big{bits}": NumberForm(None, bits // 8) for bits in (64, 32, 16, 8)},
    **{f"little{bits}": NumberForm(None, bits // 8, "little") for bits in (64, 32, 16, 8)},
    "byte": NumberForm(None, 1),
}


class TextForm(Enum):
    """How bytes are written."""

    RAW = "raw"
    HEX = "hex"
    BASE64 = "base64"
    ESCAPE = "escape"

    def write(self, data: bytes, special: bytes = b"") -> bytes:
        r"""Return the bytes in this form; `special` are further bytes that `escape` writes as \xNN."""
        match self:
            case TextForm.RAW:
                return data
            case TextForm.HEX:
                return data.hex().encode()
            case TextForm.BASE64:
                return base64.b64encode(data)
            case TextForm.ESCAPE:
                return escape_bytes(data, special)

    def read(self, data: bytes) -> bytes:
        """Return the bytes that `write` wrote.  Raises UsageError."""
        try:
            match self:
                case TextForm.RAW:
                    return data
                case TextForm.HEX:
                    return binascii.unhexlify(data)
                case TextForm.BASE64:
                    return base64.b64decode(data, validate=True)
                case TextForm.ESCAPE:
                    return unescape_bytes(data)
        except ValueError as error:
            raise UsageError(f"{_shown(data)} is not valid {self.value}: {error}") from None

    def size(self, size: int) -> int | None:
        """Return the length of `size` bytes in this form; None if it depends on the bytes."""
        match self:
            case TextForm.RAW:
                return size
            case TextForm.HEX:
                return size * 2
            case TextForm.BASE64:
                return (size + 2) // 3 * 4
            case TextForm.ESCAPE:
                return None


_NAMED = {b"\n": b"\\n", b"\t": b"\\t", b"\r": b"\\r", b"\\": b"\\\\"}
_BY_NAME = {escaped: plain for plain, escaped in _NAMED.items()}
_ESCAPED = re.compile(rb"\\(?:x[0-9a-fA-F]{2}|.)?", re.DOTALL)


def escape_bytes(data: bytes, special: bytes = b"") -> bytes:
    r"""Write backslashes, control characters, bytes that are not UTF-8 and the bytes of `special` as \n, \t, \r, \\ and
    \xNN.
    """
    written = re.sub(
        rb"[\x00-\x1f\x7f\\%b]" % b"".join(b"\\x%02x" % byte for byte in special),
        lambda match: _NAMED.get(match[0]) or b"\\x%02x" % match[0][0],
        data,
    )
    return written.decode(errors="backslashreplace").encode()


def unescape_bytes(data: bytes) -> bytes:
    """Return the inverse of `escape_bytes`.  Raises UsageError."""

    def plain(match: re.Match[bytes]) -> bytes:
        escape = match[0]
        if len(escape) == 4:
            return bytes.fromhex(escape[2:].decode())
        if escape not in _BY_NAME:
            raise UsageError(f"{_shown(escape)} is not an escape; use \\n, \\t, \\r, \\\\ or \\xNN")
        return _BY_NAME[escape]

    return _ESCAPED.sub(plain, data)


def write_time(timestamp_ms: int) -> bytes:
    """RFC 3339 in UTC with milliseconds; empty for a record without a timestamp."""
    return (format_time(timestamp_ms) or "").encode()


def read_time(data: bytes) -> int | None:
    """Return the milliseconds since 1970; None for no text.  Raises UsageError."""
    if not data:
        return None
    if data.isascii() and (any_year_ms := parse_any_year_ms(data.decode())) is not None:
        return any_year_ms
    if not re.match(rb"[0-9]{4}-", data):
        raise UsageError(f"{_shown(data)} is not a time in RFC 3339")
    return parse_time_ms(data.decode(errors="backslashreplace"), now_ms=0)


def _shown(data: bytes) -> str:
    """Return the bytes for an error text, at most 40 of them."""
    text = data[:40].decode(errors="backslashreplace")
    return f"'{text}{'...' if len(data) > 40 else ''}'"


Form = TypeVar("Form")

FORMAT_CHARACTERS_MAX = 10_000

NumberField = Literal["key size", "value size", "number of headers", "partition", "offset", "timestamp", "index"]
TextField = Literal["key", "value", "topic"]


class Fixed(NamedTuple):
    """Bytes that are the same for all records."""

    data: bytes


class NumberPiece(NamedTuple):
    """A number of the record."""

    written: str
    """The piece in the format, for error texts."""
    field: NumberField
    form: NumberForm


class TextPiece(NamedTuple):
    """Bytes of the record; within `%h{...}`, name and value of the header are key and value."""

    written: str
    field: TextField
    form: TextForm


class TimePiece(NamedTuple):
    """The timestamp as text: RFC 3339, or by a format of strftime."""

    written: str
    strftime: str | None


class HeadersPiece(NamedTuple):
    """All headers: by a format for each, or as `name=value,name=value`."""

    written: str
    each: tuple[Piece, ...] | None


Piece: TypeAlias = Fixed | NumberPiece | TextPiece | TimePiece | HeadersPiece

_TEXTS: dict[str, TextField] = {"k": "key", "v": "value", "s": "value", "t": "topic"}
_NUMBERS: dict[str, NumberField] = {
    "K": "key size",
    "V": "value size",
    "S": "value size",
    "R": "value size",
    "H": "number of headers",
    "p": "partition",
    "o": "offset",
    "d": "timestamp",
    "i": "index",
}
_OF_HEADERS = "kvKV"
_REFUSED = {
    "T": "it is the timestamp in kcat and the length of the topic in rpk; use %d for the timestamp",
    "e": "kctl does not show leader epochs of records",
    "a": "kctl does not show attributes of records; see kctl dump-log",
    "x": "kctl does not show producer ids of records; see kctl dump-log",
    "y": "kctl does not show producer epochs of records; see kctl dump-log",
    "[": "log start offsets are in kctl topics offsets",
    "|": "last stable offsets are in kctl topics offsets",
    "]": "high watermarks are in kctl topics offsets",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_STRFTIME = re.compile(r"strftime(?:\[(.*?)\]|\((.*?)\)|\{(.*?)\})\}", re.DOTALL)


def parse_format(text: str) -> tuple[Piece, ...]:
    """Return the pieces of a format, in order; bytes that follow each other are one piece.  Raises UsageError."""
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise UsageError(f"-f has {len(text):,} characters; the greatest length is {FORMAT_CHARACTERS_MAX:,}")
    return _Parser(text).pieces(of_header=False)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def pieces(self, *, of_header: bool) -> tuple[Piece, ...]:
        parts: list[Piece] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            if of_header and character == "}":
                break
            self._at += 1
            match character:
                case "%":
                    piece = self._field(of_header=of_header)
                case "\\":
                    piece = Fixed(self._escape())
                case _:
                    piece = Fixed(character.encode())
            last = parts[-1] if parts else None
            if isinstance(piece, Fixed) and isinstance(last, Fixed):
                parts[-1] = Fixed(last.data + piece.data)
            else:
                parts.append(piece)
        return tuple(parts)

    def _next(self, after: str) -> str:
        if self._at >= len(self._text):
            raise UsageError(f"-f ends after {after}; use %% or \\\\ for the character itself")
        self._at += 1
        return self._text[self._at - 1]

    def _escape(self) -> bytes:
        character = self._next("a backslash")
        if character == "x":
            digits = self._text[self._at : self._at + 2]
            if not re.fullmatch("[0-9a-fA-F]{2}", digits):
                raise UsageError(f"-f: \\x takes two hexadecimal digits, not '{digits}'")
            self._at += 2
            return bytes.fromhex(digits)
        if character not in _ESCAPES:
            raise UsageError(f"-f: no such escape: \\{character}; use \\n, \\t, \\r, \\0, \\\\ or \\xNN")
        return _ESCAPES[character]

    def _field(self, *, of_header: bool) -> Piece:
        start = self._at - 1
        letter = self._next("a percent sign")
        if letter in "%{}":
            return Fixed(letter.encode())
        if letter in _REFUSED:
            raise UsageError(f"-f: %{letter} is not supported: {_REFUSED[letter]}")
        if of_header and letter not in _OF_HEADERS:
            raise UsageError(f"-f: %{letter} is not a field of a header; %h{{...}} has %k, %v, %K and %V")
        if letter == "h":
            return self._headers(start)
        if letter in _TEXTS:
            form = self._form(letter, {form.value: form for form in TextForm}) or TextForm.RAW
            return TextPiece(self._text[start : self._at], _TEXTS[letter], form)
        if letter not in _NUMBERS:
            known = ", ".join(f"%{code}" for code in "kvhtpodiKVH")
            raise UsageError(f"-f: no such field: %{letter}; the fields are {known}, and %% is a percent sign")
        if letter == "d" and (time := self._time(start)) is not None:
            return time
        # kcat's %R is a binary number of 32 bits.
        default = NUMBER_FORMS["big32" if letter == "R" else "ascii"]
        form_of_number = self._form(letter, NUMBER_FORMS) or default
        return NumberPiece(self._text[start : self._at], _NUMBERS[letter], form_of_number)

    def _form(self, letter: str, forms: Mapping[str, Form]) -> Form | None:
        if not self._text.startswith("{", self._at):
            return None
        name, brace, _ = self._text[self._at + 1 :].partition("}")
        if not brace or name not in forms:
            hint = f"; for a brace itself write %{letter}%{{" if not brace else ""
            more = ", rfc3339, strftime[LAYOUT]" if letter == "d" else ""
            raise UsageError(f"-f: %{letter}{{{name[:40]}}} is not a form; it takes {', '.join(forms)}{more}{hint}")
        self._at += len(name) + 2
        return forms[name]

    def _time(self, start: int) -> TimePiece | None:
        if self._text.startswith("{rfc3339}", self._at):
            self._at += len("{rfc3339}")
            return TimePiece(self._text[start : self._at], None)
        if not self._text.startswith("{strftime", self._at):
            return None
        match = _STRFTIME.match(self._text, self._at + 1)
        layout = next((group for group in match.groups() if group), None) if match else None
        if match is None or layout is None:
            raise UsageError("-f: write %d{strftime[LAYOUT]}, such as %d{strftime[%F %T]}")
        self._at = match.end()
        return TimePiece(self._text[start : self._at], layout)

    def _headers(self, start: int) -> HeadersPiece:
        if not self._text.startswith("{", self._at):
            return HeadersPiece(self._text[start : self._at], None)
        self._at += 1
        pieces = self.pieces(of_header=True)
        if self._at >= len(self._text):
            raise UsageError("-f: %h{ has no closing brace")
        self._at += 1
        if not pieces:
            raise UsageError("-f: %h{} is empty; write %h{%k=%v }, or %h for name=value,name=value")
        return HeadersPiece(self._text[start : self._at], pieces)

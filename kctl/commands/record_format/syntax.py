r"""The syntax of formats: parses the text of -f into pieces.  Pure.

    %k{base64}\t%v\n    key in base64, a tab, value, a line feed
    %H %h{%K%k%V%v}     number of headers, a space, and for each header sizes, name and value

A `%` and a letter is a field; braces after it select a form.  `%%`, `%{` and `%}` are these characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from kctl.commands.record_format.forms import NUMBER_FORMS, NumberForm, TextForm
from kctl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    "[": "log start offsets are in kctl offsets get",
    "|": "last stable offsets are in kctl offsets get",
    "]": "high watermarks are in kctl offsets get",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_STRFTIME = re.compile(r"strftime(?:\[(.*?)\]|\((.*?)\)|\{(.*?)\})\}", re.DOTALL)


def parse_format(text: str) -> tuple[Piece, ...]:
    """The pieces of a format, in order; bytes that follow each other are one piece.  Raises UsageError."""
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise UsageError(f"-f has {len(text):,} characters; the greatest length is {FORMAT_CHARACTERS_MAX:,}")
    return _Parser(text).pieces(of_header=False)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def pieces(self, *, of_header: bool) -> tuple[Piece, ...]:
        found: list[Piece] = []
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
            last = found[-1] if found else None
            if isinstance(piece, Fixed) and isinstance(last, Fixed):
                found[-1] = Fixed(last.data + piece.data)
            else:
                found.append(piece)
        return tuple(found)

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
            known = ", ".join(f"%{one}" for one in "kvhtpodiKVH")
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
        found = _STRFTIME.match(self._text, self._at + 1)
        layout = next((group for group in found.groups() if group), None) if found else None
        if found is None or layout is None:
            raise UsageError("-f: write %d{strftime[LAYOUT]}, such as %d{strftime[%F %T]}")
        self._at = found.end()
        return TimePiece(self._text[start : self._at], layout)

    def _headers(self, start: int) -> HeadersPiece:
        if not self._text.startswith("{", self._at):
            return HeadersPiece(self._text[start : self._at], None)
        self._at += 1
        each = self.pieces(of_header=True)
        if self._at >= len(self._text):
            raise UsageError("-f: %h{ has no closing brace")
        self._at += 1
        if not each:
            raise UsageError("-f: %h{} is empty; write %h{%k=%v }, or %h for name=value,name=value")
        return HeadersPiece(self._text[start : self._at], each)

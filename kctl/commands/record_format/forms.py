r"""How numbers, bytes and times of a record are written and read back.  Pure.

Of a binary or hexadecimal number of fixed width, the value with all bits set is -1, the size of null; other values are
unsigned.
"""

from __future__ import annotations

import base64
import binascii
import re
from enum import Enum
from typing import Literal, NamedTuple

from kctl.commands.times import parse_any_year_ms, parse_time_ms
from kctl.commands.values import format_time
from kctl.errors import UsageError
from kctl.integers import INT64_MAX

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
        """The number in this form.  Raises OverflowError if it does not fit."""
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
        """The number that `write` wrote.  Raises UsageError."""
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
        r"""The bytes in this form; `special` are further bytes that `escape` writes as \xNN."""
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
        """The bytes that `write` wrote.  Raises UsageError."""
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
        """The length of `size` bytes in this form; None if it depends on the bytes."""
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
    r"""Writes backslashes, control characters, bytes that are not UTF-8 and the bytes of `special` as \n, \t, \r, \\
    and \xNN.
    """
    written = re.sub(
        rb"[\x00-\x1f\x7f\\%b]" % b"".join(b"\\x%02x" % one for one in special),
        lambda found: _NAMED.get(found[0]) or b"\\x%02x" % found[0][0],
        data,
    )
    return written.decode(errors="backslashreplace").encode()


def unescape_bytes(data: bytes) -> bytes:
    """The inverse of `escape_bytes`.  Raises UsageError."""

    def plain(found: re.Match[bytes]) -> bytes:
        escape = found[0]
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
    """Milliseconds since 1970; None for no text.  Raises UsageError."""
    if not data:
        return None
    if data.isascii() and (any_year_ms := parse_any_year_ms(data.decode())) is not None:
        return any_year_ms
    if not re.match(rb"[0-9]{4}-", data):
        raise UsageError(f"{_shown(data)} is not a time in RFC 3339")
    return parse_time_ms(data.decode(errors="backslashreplace"), now_ms=0)


def _shown(data: bytes) -> str:
    """The bytes for an error text, at most 40 of them."""
    text = data[:40].decode(errors="backslashreplace")
    return f"'{text}{'...' if len(data) > 40 else ''}'"

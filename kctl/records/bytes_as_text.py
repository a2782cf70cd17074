"""Bytes of records as text: for JSON without loss, and as Java decodes them.  Pure."""

from __future__ import annotations

import base64
import codecs


def encode_bytes(data: bytes | None) -> tuple[str | None, str | None]:
    """(text, "utf-8"), (base64, "base64") or (None, None); the bytes can be restored."""
    if data is None:
        return None, None
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Replaces invalid UTF-8 as Python does, except for surrogates: Java replaces all bytes of one by one character."""
    assert isinstance(error, UnicodeDecodeError)
    first, second, third = error.object[error.start : error.start + 3].ljust(3, b"\0")
    if first == _SURROGATE_FIRST and 0xA0 <= second <= 0xBF:
        return "\ufffd", error.start + (3 if third & 0xC0 == 0x80 else 2)
    return "\ufffd", error.end


_SURROGATE_FIRST = 0xED
AS_JAVA = "kctl.as_java"
"""Name of the error handler that decodes as `new String(bytes, "UTF8")` does."""
codecs.register_error(AS_JAVA, _replace_as_java)

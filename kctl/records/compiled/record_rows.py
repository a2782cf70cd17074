"""Writes the records of a batch of magic 2 as rows of plain, csv or jsonl.  Compiled by mypyc as `walk` is.

What is malformed or rare is refused as in `record_lines`.  Printable ASCII is written here; how all other
text is written is decided by functions of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from kctl.records.compiled.record_lines import Number, write_digits, write_number
from kctl.records.compiled.walk import (
    after_field,
    check_count,
    read_headers,
    record_start,
    small_number,
)

PLAIN: Final = 0
CSV: Final = 1
JSON: Final = 2

_SEQUENCE_MAX: Final = 0x7FFFFFFF
_LOOKALIKE_SIZE_MAX: Final = 2
_MINUTE_MS: Final = 60_000
_NO_TIMESTAMP: Final = -1
_NO_MINUTE: Final = -0x4000000000000000
_BACKSLASH: Final = 0x5C
_COMMA: Final = 0x2C
_QUOTE: Final = 0x22

Headers = tuple[tuple[str, bytes | None], ...]


class RowForm:
    """How the rows of one file are written."""

    def __init__(
        self,
        kind: i64,
        *,
        start: bytes,
        end: bytes,
        null: bytes,
        text_of: Callable[[bytes, bytes], bytes],
        headers_of: Callable[[Headers], bytes],
        time_of: Callable[[int], bytes],
    ) -> None:
        """PLAIN, CSV or JSON; the bytes before the offset and after the last field, and a null.

        `text_of` is called with a key or value that is not simple and, for JSON, the name of the member that has its
        encoding; `headers_of` with headers; `time_of` with the first ms of a minute, which returns its text up to the
        minutes, or no bytes if it has none.
        """
        self.kind: Final = kind
        self.start: Final = start
        self.end: Final = end
        self.null: Final = null
        self.separator: Final = b"," if kind == CSV else b"\t"
        self.text_of: Final = text_of
        self.headers_of: Final = headers_of
        self.time_of: Final = time_of
        self.minute: i64 = _NO_MINUTE
        self.minute_text = b""


def format_rows(
    region: bytes,
    position: i64,
    count: i64,
    base_offset: i64,
    base_timestamp: i64,
    base_sequence: i64,
    form: RowForm,
    *,
    has_append_time: bool,
) -> tuple[bytes, i64]:
    """Return the rows of `count` records from `position` on, and the position after them.

    The arguments are those of `record_lines.format_records`, and so are the errors.
    """
    total: i64 = len(region)
    check_count(count, total - position)
    out = BytesWriter()
    timestamp: i64 = base_timestamp
    is_json = form.kind == JSON
    separator = form.separator
    offset_text = Number(form.start)
    for _ in range(count):
        end, time_delta, delta, position = record_start(region, position, total)
        if not has_append_time:
            timestamp = base_timestamp + time_delta
        offset_text.write(out, base_offset + delta)
        if is_json:
            out.write(b',"timestamp_ms":')
            if timestamp == _NO_TIMESTAMP:
                out.write(b"null")
            else:
                write_number(out, timestamp)
            out.write(b',"time":')
            _write_time(out, timestamp, form)
            out.write(b',"key":')
            position = _write_text(out, region, position, end, form, b"key_encoding")
            out.write(b',"value":')
            position = _write_text(out, region, position, end, form, b"value_encoding")
            out.write(b',"headers":[')
        else:
            out.write(separator)
            _write_time(out, timestamp, form)
            out.write(separator)
            _write_sequence(out, base_sequence, delta, form)
            out.write(separator)
            position = _write_text(out, region, position, end, form, b"")
            out.write(separator)
            position = _write_text(out, region, position, end, form, b"")
            out.write(separator)
        if region[position] != 0:
            headers, position = read_headers(region, position, end)
            out.write(form.headers_of(headers))
        else:
            position += 1
            if not is_json:
                out.write(form.null)
        if position != end:
            raise ValueError(f"a record ends {end - position} bytes after its last field")
        if is_json:
            out.write(b'],"sequence":')
            _write_sequence(out, base_sequence, delta, form)
        out.write(form.end)
    return out.getvalue(), position


def _write_sequence(out: BytesWriter, base_sequence: i64, delta: i64, form: RowForm) -> None:
    if base_sequence < 0:
        out.write(form.null)
    else:
        write_number(out, (base_sequence + delta) & _SEQUENCE_MAX)


def _write_time(out: BytesWriter, timestamp: i64, form: RowForm) -> None:
    """Write RFC 3339 in UTC with milliseconds, or the null."""
    if timestamp == _NO_TIMESTAMP:
        out.write(form.null)
        return
    minute: i64 = timestamp // _MINUTE_MS
    if minute != form.minute:
        form.minute = minute
        form.minute_text = form.time_of(minute * _MINUTE_MS)
    if not form.minute_text:
        out.write(form.null)
        return
    if form.kind == JSON:
        out.append(_QUOTE)
    out.write(form.minute_text)
    rest: i64 = timestamp - minute * _MINUTE_MS
    seconds: i64 = rest // 1000
    if seconds < 10:
        out.append(0x30)
    write_number(out, seconds)
    out.append(0x2E)
    write_digits(out, rest - seconds * 1000)
    out.append(0x5A)
    if form.kind == JSON:
        out.append(_QUOTE)


def _write_text(out: BytesWriter, region: bytes, position: i64, stop: i64, form: RowForm, encoding: bytes) -> i64:
    """Write the key or value whose size is at `position`, with JSON its encoding; return the position after it."""
    size, start = small_number(region, position)
    end: i64 = after_field(start, size, stop)
    is_json = form.kind == JSON
    if size < 0:
        out.write(form.null)
        if is_json:
            out.write(b',"')
            out.write(encoding)
            out.write(b'":null')
        return end
    field = region[start:end]
    # The text of two bytes may be what stands for a null or an empty text.
    is_simple = is_json or size > _LOOKALIKE_SIZE_MAX
    has_backslash = False
    has_quote = False
    has_comma = False
    at: i64
    for at in range(start, end):
        byte: i64 = region[at]
        if byte < 0x20 or byte > 0x7E:
            is_simple = False
            break
        if byte == _BACKSLASH:
            has_backslash = True
        elif byte == _QUOTE:
            has_quote = True
        elif byte == _COMMA:
            has_comma = True
    if not is_simple:
        out.write(form.text_of(field, encoding))
        return end
    if is_json:
        out.append(_QUOTE)
        if has_backslash:
            field = field.replace(b"\\", b"\\\\")
        if has_quote:
            field = field.replace(b'"', b'\\"')
        out.write(field)
        out.write(b'","')
        out.write(encoding)
        out.write(b'":"utf-8"')
    elif form.kind == PLAIN:
        out.write(field.replace(b"\\", b"\\\\") if has_backslash else field)
    elif has_quote or has_comma:
        out.append(_QUOTE)
        out.write(field.replace(b'"', b'""'))
        out.append(_QUOTE)
    else:
        out.write(field)
    return end

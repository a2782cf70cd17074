"""The records of a batch of magic 2 as text in Kafka's format, optimized for large logs.

A dump of a large log spends nearly all of its time here: in compiled code (`record_lines`), and where that refuses
records or is missing, in a loop that parses without creating objects.  `kctl.records.batch.iterate_records` is the
readable version, and a test compares all three.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable
from typing import NamedTuple

from kctl.records.compiled import walk_is_compiled
from kctl.records.header import (
    LOG_APPEND_TIME_BIT,
    SEQUENCE_MAX,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    BatchHeader,
    CorruptBatch,
    wrapped,
)

# Bytes of records as text: for JSON without loss, and as Java decodes them. Pure.


def encode_bytes(data: bytes | None) -> tuple[str | None, str | None]:
    """Return (text, "utf-8"), (base64, "base64") or (None, None); the bytes can be restored."""
    if data is None:
        return None, None
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Replace invalid UTF-8 as Python does, except for surrogates: Java replaces all bytes of one by one character."""
    assert isinstance(error, UnicodeDecodeError)
    first, second, third = error.object[error.start : error.start + 3].ljust(3, b"\0")
    if first == _SURROGATE_FIRST and 0xA0 <= second <= 0xBF:
        return "\ufffd", error.start + (3 if third & 0xC0 == 0x80 else 2)
    return "\ufffd", error.end


_SURROGATE_FIRST = 0xED
AS_JAVA = "kctl.as_java"
"""Name of the error handler that decodes as `new String(bytes, "UTF8")` does."""
codecs.register_error(AS_JAVA, _replace_as_java)


if walk_is_compiled():
    from kctl.records.compiled.record_lines import format_records

_LINES_AT_ONCE = 500
_BASE_END = 1 << 62
_SHIFT_32, _SHIFT_64 = 28, 63
"""The shift of the last possible byte of a number."""


class LineFormat(NamedTuple):
    """The contents of the lines of the records of one batch."""

    is_28: bool
    """The format of Kafka 2.8, else that of 3.0 and later."""
    stamp: str
    """The name of the timestamp type, before the timestamp."""
    common: str
    """The text that 2.8 repeats in every line of a batch."""
    with_contents: bool
    """Whether keys and values are shown."""


def write_records(
    data: bytes,
    header: BatchHeader,
    expected: int,
    gaps: list[tuple[int, int]],
    write: Callable[[str], None],
    form: LineFormat,
) -> int:
    """Write a line for each record in `data`, the decompressed records of the batch; return the next expected offset.

    `expected` is the expected offset of the first record, -1 for any.  Raises CorruptBatch after writing the records
    before the damage.
    """
    done, position = 0, 0
    has_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT)
    base_timestamp = header.max_timestamp if has_append_time else header.base_timestamp
    is_fast = walk_is_compiled() and abs(base_timestamp) < _BASE_END and abs(header.base_offset) < _BASE_END
    while is_fast and done < header.record_count:
        count = min(header.record_count - done, _LINES_AT_ONCE)
        try:
            lines, position, expected, found = format_records(
                data,
                position,
                count,
                header.base_offset,
                base_timestamp,
                header.base_sequence,
                expected,
                has_append_time=has_append_time,
                is_28=form.is_28,
                stamp=f" {form.stamp}: ".encode(),
                common=form.common.encode(),
                with_contents=form.with_contents,
            )
        except (IndexError, ValueError):
            break
        gaps += found
        write(lines.decode(errors=AS_JAVA))
        done += count
    if is_fast and done == header.record_count and position == len(data):
        return expected
    return write_interpreted(data, header, expected, gaps, write, form, start=(position, done))


def write_interpreted(
    data: bytes,
    header: BatchHeader,
    expected: int,
    gaps: list[tuple[int, int]],
    write: Callable[[str], None],
    form: LineFormat,
    *,
    start: tuple[int, int] = (0, 0),
) -> int:
    """As write_records, without compiled code; `start` is the position of the first record and its index."""
    is_28, stamp, common, with_contents = form
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    first_sequence = header.base_sequence - base_offset
    has_sequence = header.base_sequence >= 0
    sequence, names, contents = -1, "", ""
    after_sizes = f" {stamp}: "
    # Slices of this are text already if a key or value is ASCII.
    position, left = start[0], header.record_count - start[1]
    text = data.decode("latin-1") if with_contents and left > 0 else ""
    lines: list[str] = []
    add = lines.append
    try:
        while left > 0:
            for _ in range(min(left, _LINES_AT_ONCE)):
                byte = data[position]
                if byte < 0x80:
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        byte = byte & 0x7F | second << 7
                        position += 2
                    else:
                        byte, position = _raw(data, position)
                end = position + (byte >> 1)
                position += 1
                byte = data[position]
                if byte < 0x80:
                    position += 1
                else:
                    byte, position = _raw(data, position, _SHIFT_64)
                timestamp = base_timestamp + (byte >> 1 ^ -(byte & 1)) if append_time is None else append_time
                if not TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
                    timestamp = wrapped(timestamp)
                byte = data[position]
                if byte < 0x80:
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        byte = byte & 0x7F | second << 7
                        position += 2
                    else:
                        byte, position = _raw(data, position)
                offset = base_offset + (byte >> 1 ^ -(byte & 1))
                byte = data[position]
                if byte < 0x80:
                    position += 1
                else:
                    byte, position = _raw(data, position)
                key_size = -1 if byte & 1 else byte >> 1
                key_start = position
                if key_size > 0:
                    position += key_size
                byte = data[position]
                if byte < 0x80:
                    position += 1
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        byte = byte & 0x7F | second << 7
                        position += 2
                    else:
                        byte, position = _raw(data, position)
                value_size = -1 if byte & 1 else byte >> 1
                if with_contents:
                    if key_size >= 0:
                        part = text[key_start : key_start + key_size]
                        if not part.isascii():
                            part = data[key_start : key_start + key_size].decode(errors=AS_JAVA)
                        contents = f" key: {part}"
                    else:
                        contents = ""
                    if value_size >= 0:
                        part = text[position : position + value_size]
                        if not part.isascii():
                            part = data[position : position + value_size].decode(errors=AS_JAVA)
                        contents = f"{contents} payload: {part}"
                if value_size > 0:
                    position += value_size
                if data[position]:
                    names, position = _names(data, position)
                else:
                    position += 1
                    names = ""
                if position != end:
                    raise CorruptBatch(header.position, f"a record ends at {position}, not at {end} of its batch")
                if offset != expected and expected >= 0:
                    gaps.append((expected - 1, offset))
                expected = offset + 1
                if has_sequence:
                    sequence = first_sequence + offset & SEQUENCE_MAX
                if is_28:
                    add(
                        f"| offset: {offset} isValid: true crc: null keySize: {key_size} valueSize: {value_size}"
                        f"{after_sizes}{timestamp}{common} sequence: {sequence} headerKeys: [{names}]{contents}\n"
                    )
                else:
                    add(
                        f"| offset: {offset}{after_sizes}{timestamp} keySize: {key_size} valueSize: {value_size}"
                        f" sequence: {sequence} headerKeys: [{names}]{contents}\n"
                    )
            left -= min(left, _LINES_AT_ONCE)
            write("".join(lines))
            lines.clear()
    except (IndexError, ValueError) as error:
        raise CorruptBatch(header.position, f"record does not parse: {error}") from error
    finally:
        write("".join(lines))
    if position != len(data):
        raise CorruptBatch(header.position, f"{len(data) - position} bytes after the last record")
    return expected


def _raw(data: bytes, position: int, shift_max: int = _SHIFT_32) -> tuple[int, int]:
    """Return an integer before zigzag decoding, and the position after it.

    Bits beyond its type are ignored, as in Kafka.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (0xFFFFFFFF if shift_max == _SHIFT_32 else 0xFFFFFFFFFFFFFFFF), position
        shift += 7
        if shift > shift_max:
            raise ValueError("a number has too many bytes")


def _names(data: bytes, position: int) -> tuple[str, int]:
    """Return the keys of the headers, whose count is at `position`."""
    count, position = _raw(data, position)
    names = []
    for _ in range(count >> 1):
        size, position = _raw(data, position)
        names.append(data[position : position + (size >> 1)].decode(errors=AS_JAVA))
        size, position = _raw(data, position + (size >> 1))
        if not size & 1:
            position += size >> 1
    return ",".join(names), position

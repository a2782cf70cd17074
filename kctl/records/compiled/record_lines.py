"""Writes the records of a batch of magic 2 as lines in Kafka's format.  Compiled by mypyc as `walk` is.

What is rare is refused like what is malformed, and left to kctl.records.dump_text, which describes the damage.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from kctl.records.compiled.walk import after_field, check_count, record_start, small_number

_ZERO: Final = 0x30
_SEQUENCE_MAX: Final = 0x7FFFFFFF


class Number:
    """A number after a label, which differs little from record to record: all but its last three digits are kept."""

    def __init__(self, label: bytes) -> None:
        self._label: Final = label
        self._thousands: i64 = -1
        self._text = label

    def write(self, out: BytesWriter, number: i64) -> None:
        """Write the label and the number, which is above -2**63."""
        thousands: i64 = number // 1000
        if thousands <= 0:
            out.write(self._label)
            write_number(out, number)
            return
        if thousands != self._thousands:
            self._thousands = thousands
            self._text = self._label + str(thousands).encode()
        out.write(self._text)
        write_digits(out, number - thousands * 1000)


def format_records(
    region: bytes,
    position: i64,
    count: i64,
    base_offset: i64,
    base_timestamp: i64,
    base_sequence: i64,
    expected: i64,
    *,
    has_append_time: bool,
    is_28: bool,
    stamp: bytes,
    common: bytes,
    with_contents: bool,
) -> tuple[bytes, i64, i64, list[tuple[int, int]]]:
    """Return the lines of `count` records from `position` on, and the position after them.

    Then the offset after the last record, and the gaps between offsets: each as the offset before `expected`, which is
    -1 for any, and the offset that was found.  With `has_append_time` the timestamp of each record is `base_timestamp`.
    `base_sequence` is that of `base_offset`, or -1.  Raises ValueError and IndexError as `walk.read_records`
    does.
    The lines have keys and values as they are, which need not be UTF-8.
    """
    total: i64 = len(region)
    check_count(count, total - position)
    out = BytesWriter()
    gaps: list[tuple[int, int]] = []
    timestamp: i64 = base_timestamp
    offset_text = Number(b"| offset: ")
    timestamp_text = Number(stamp)
    key_size_label = b" isValid: true crc: null keySize: " if is_28 else b" keySize: "
    sequence_label = b" sequence: " if base_sequence >= 0 else b" sequence: -1 headerKeys: ["
    for _ in range(count):
        end, time_delta, delta, position = record_start(region, position, total)
        if not has_append_time:
            timestamp = base_timestamp + time_delta
        key_size, key = small_number(region, position)
        key_end: i64 = after_field(key, key_size, end)
        value_size, value = small_number(region, key_end)
        value_end: i64 = after_field(value, value_size, end)
        offset: i64 = base_offset + delta
        if offset != expected and expected >= 0:
            gaps.append((expected - 1, offset))
        expected = offset + 1
        offset_text.write(out, offset)
        if not is_28:
            timestamp_text.write(out, timestamp)
        out.write(key_size_label)
        write_number(out, max(key_size, -1))
        out.write(b" valueSize: ")
        write_number(out, max(value_size, -1))
        if is_28:
            timestamp_text.write(out, timestamp)
            out.write(common)
        out.write(sequence_label)
        if base_sequence >= 0:
            write_number(out, (base_sequence + delta) & _SEQUENCE_MAX)
            out.write(b" headerKeys: [")
        position = value_end + 1
        if region[value_end] != 0:
            position = _write_names(out, region, value_end, end)
        if position != end:
            raise ValueError(f"a record ends {end - position} bytes after its last field")
        if with_contents and key_size >= 0:
            out.write(b"] key: ")
            out.write(region[key:key_end])
        else:
            out.append(0x5D)
        if with_contents and value_size >= 0:
            out.write(b" payload: ")
            out.write(region[value:value_end])
        out.append(0x0A)
    return out.getvalue(), position, expected, gaps


def _write_names(out: BytesWriter, region: bytes, position: i64, end: i64) -> i64:
    """Write the keys of the headers whose number is at `position`; return the position after the headers."""
    count, position = small_number(region, position)
    if count < 0 or count > end - position:
        raise ValueError(f"{count} headers")
    index: i64
    for index in range(count):
        size, position = small_number(region, position)
        if size < 0:
            raise ValueError("a header without a key")
        stop: i64 = after_field(position, size, end)
        name = region[position:stop]
        if not name.isascii():
            name.decode("utf-8")
        if index > 0:
            out.write(b",")
        out.write(name)
        size, position = small_number(region, stop)
        position = after_field(position, size, end)
    return position


def write_number(out: BytesWriter, number: i64) -> None:
    """Write a decimal number above -2**63."""
    if number < 0:
        out.append(0x2D)
        number = -number
    if number >= 1000:
        high: i64 = number // 1000
        number -= high * 1000
        write_number(out, high)
        write_digits(out, number)
    elif number >= 100:
        write_digits(out, number)
    else:
        tens: i64 = number // 10
        if tens > 0:
            out.append(u8(_ZERO + tens))
        out.append(u8(_ZERO + number - tens * 10))


def write_digits(out: BytesWriter, number: i64) -> None:
    """Write a number below 1,000 with three digits."""
    hundreds: i64 = number // 100
    number -= hundreds * 100
    tens: i64 = number // 10
    out.append(u8(_ZERO + hundreds))
    out.append(u8(_ZERO + tens))
    out.append(u8(_ZERO + number - tens * 10))

"""Reads whole Produce requests, and writes their responses; mypyc compiles it: docs/decisions/native-requests.md.

What is usual is read into flat values: versions from 3 on, whose batches are uncompressed and sound, outside of
transactions.  Everything else is left to the decoders of kctl.protocol and to kctl.records.validate, which also say
what is wrong with it: malformed bytes, other checksums, compressed and transactional batches, tagged fields, bytes
after the request.

`frame` is a copy, because compiled code indexes `bytes` only: it checks each index as Python does, so that no input can
make it read outside of the frame.  Positions are sums of sizes below 2**32, and so cannot overflow.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c
from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from kctl.records.compiled.walk import check_part

PlainBatch = tuple[str, int, int, int, int, int, int, int]
"""Topic, partition, position and size in the frame, number of records, largest timestamp, producer id, number of
records without a key.
"""
ProducedTopic = tuple[bytes, int]
"""Name, and how many batches it has."""
PlainProduce = tuple[int, int, str, int, int, list[ProducedTopic], list[PlainBatch]]
"""Version, correlation id, client id, acks, timeout in ms, topics, batches."""
AppendedBatch = tuple[int, int, int, int]
"""Partition, base offset, time of the append in ms or -1, log start offset."""

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 9
_FLEXIBLE: Final = 9
_WITH_LOG_START: Final = 5
_WITH_RECORD_ERRORS: Final = 8
_HEADER_SIZE: Final = 61
_LOG_OVERHEAD: Final = 12
_CRC: Final = 17
_CHECKED_FROM: Final = 21
_VIEWED_BYTES_MIN: Final = 4096
_RECORDS_MAX: Final = 1 << 20
_TIME_MAX: Final = 1 << 61
"""Beyond it sums of a timestamp and a delta could exceed 64 bits."""


def read_plain_produce(frame: bytes) -> PlainProduce | None:
    """Return the values of a request that is usual; None for any other bytes."""
    try:
        return _read(frame)
    except (ValueError, IndexError):
        return None


def _read(frame: bytes) -> PlainProduce | None:
    """As above.  Raises ValueError, UnicodeDecodeError among them, and IndexError for some of the other bytes."""
    end: i64 = len(frame)
    version: i64 = i64(read_i16_be(frame, 2))
    if read_i16_be(frame, 0) != 0 or version < FIRST_VERSION or version > LAST_VERSION:
        return None
    is_flexible = version >= _FLEXIBLE
    correlation_id: i64 = i64(read_i32_be(frame, 4))
    size: i64 = i64(read_i16_be(frame, 8))
    position: i64 = 10
    client_id = ""
    if size > 0:
        client_id = _text(frame, position, size)
        position += size
    if is_flexible:
        if frame[position] != 0 or frame[position + 1] != 0:  # Tagged fields, and a transactional id.
            return None
    elif read_i16_be(frame, position) != -1:
        return None
    position += 2
    acks: i64 = i64(read_i16_be(frame, position))
    timeout_ms: i64 = i64(read_i32_be(frame, position + 2))
    position += 6
    if acks < -1 or acks > 1:
        return None
    topics: list[ProducedTopic] = []
    batches: list[PlainBatch] = []
    topic_count, position = _count(frame, position, is_flexible)
    # An element takes a byte at least, so that a wrong count ends with the frame.
    for _ in range(topic_count):
        if is_flexible:
            size, position = _count(frame, position, is_flexible)
        else:
            size = i64(read_i16_be(frame, position))
            position += 2
        if size <= 0 or size > 32767:
            return None
        name = _text(frame, position, size)
        name_bytes = frame[position : position + size]
        position += size
        partition_count, position = _count(frame, position, is_flexible)
        for _ in range(partition_count):
            partition: i64 = i64(read_i32_be(frame, position))
            size, position = _count(frame, position + 4, is_flexible)
            if size > end - position:
                return None
            if not _append_batch(frame, position, size, name, partition, batches):
                return None
            position += size
            if is_flexible:
                if frame[position] != 0:
                    return None
                position += 1
        topics.append((name_bytes, partition_count))
        if is_flexible:
            if frame[position] != 0:
                return None
            position += 1
    if is_flexible:
        if frame[position] != 0:
            return None
        position += 1
    if position != end:
        return None
    return version, correlation_id, client_id, acks, timeout_ms, topics, batches


def _count(frame: bytes, position: i64, is_flexible: bool) -> tuple[i64, i64]:
    """Return a number of elements or bytes that is neither null nor 0, and the position after it.

    Raises ValueError for others.
    """
    if not is_flexible:
        count: i64 = i64(read_i32_be(frame, position))
        position += 4
    else:
        byte: i64 = frame[position]
        position += 1
        count = byte & 0x7F
        shift: i64 = 7
        while byte >= 0x80:
            if shift > 28:
                raise ValueError("a number has too many bytes")
            byte = frame[position]
            position += 1
            count |= (byte & 0x7F) << shift
            shift += 7
        count -= 1
    if count <= 0:
        raise ValueError("nothing")
    return count, position


def _text(frame: bytes, position: i64, size: i64) -> str:
    if size > len(frame) - position:
        raise ValueError("a text exceeds the frame")
    return frame[position : position + size].decode("utf-8")


def _append_batch(
    frame: bytes, position: i64, size: i64, topic: str, partition: i64, batches: list[PlainBatch]
) -> bool:
    """Check a batch as kctl.records.validate does, as far as no setting of a topic matters; return False if it is not
    usual.

    Nothing is checked twice: what is not usual may be sound.
    """
    if (
        size < _HEADER_SIZE
        or read_i64_be(frame, position) != 0
        or read_i32_be(frame, position + 8) != size - _LOG_OVERHEAD
        or frame[position + 16] != 2
        or read_i16_be(frame, position + _CHECKED_FROM) != 0  # Codec, LogAppendTime, transaction, control batch.
    ):
        return False
    last_delta: i64 = i64(read_i32_be(frame, position + 23))
    base_timestamp: i64 = read_i64_be(frame, position + 27)
    max_timestamp: i64 = read_i64_be(frame, position + 35)
    producer_id: i64 = read_i64_be(frame, position + 43)
    base_sequence: i64 = i64(read_i32_be(frame, position + 53))
    count: i64 = i64(read_i32_be(frame, position + 57))
    if count <= 0 or count > _RECORDS_MAX or last_delta != count - 1 or (producer_id >= 0 and base_sequence < 0):
        return False
    if base_timestamp < -_TIME_MAX or base_timestamp > _TIME_MAX:
        return False
    end: i64 = position + size
    if size < _VIEWED_BYTES_MIN:
        actual = crc32c(frame[position + _CHECKED_FROM : end])
    else:
        actual = crc32c(memoryview(frame)[position + _CHECKED_FROM : end])
    crc: i64 = i64(read_i32_be(frame, position + _CRC))
    if actual != crc & 0xFFFFFFFF:
        return False
    _, largest, smallest, keyless = check_part(frame, position + _HEADER_SIZE, end, count)
    if smallest < -_TIME_MAX or largest > _TIME_MAX:
        return False
    last: i64 = base_timestamp + largest
    if last < 0:
        last = -1
    if last != max_timestamp:
        return False
    batches.append((topic, partition, position, size, count, max_timestamp, producer_id, keyless))
    return True


def write_produce_response(
    version: i64, correlation_id: i64, topics: list[ProducedTopic], appended: list[AppendedBatch]
) -> bytes:
    """Return the frame of a response without errors, with its size.

    `appended` has the batches of all topics in order.  Raises IndexError if there are too few.
    """
    is_flexible = version >= _FLEXIBLE
    out = BytesWriter()
    write_i32_be(out, 0)  # The size, which is known in the end.
    write_i32_be(out, i32(correlation_id))
    if is_flexible:
        out.append(0)
    _write_count(out, len(topics), is_flexible)
    at: i64 = 0
    for name, count in topics:
        if is_flexible:
            _write_count(out, len(name), is_flexible)
        else:
            write_i16_be(out, i16(len(name)))
        out.write(name)
        _write_count(out, count, is_flexible)
        for _ in range(count):
            partition, base_offset, append_time, log_start = appended[at]
            at += 1
            write_i32_be(out, i32(partition))
            write_i16_be(out, 0)
            write_i64_be(out, base_offset)
            write_i64_be(out, append_time)
            if version >= _WITH_LOG_START:
                write_i64_be(out, log_start)
            if is_flexible:
                out.append(1)  # No errors of records, no message, no tagged fields.
                out.append(0)
                out.append(0)
            elif version >= _WITH_RECORD_ERRORS:
                write_i32_be(out, 0)
                write_i16_be(out, -1)
        if is_flexible:
            out.append(0)
    write_i32_be(out, 0)  # The throttle time.
    if is_flexible:
        out.append(0)
    size: i64 = len(out) - 4
    for place in range(4):
        out[place] = u8(size >> (24 - 8 * place) & 0xFF)
    return out.getvalue()


def _write_count(out: BytesWriter, count: i64, is_flexible: bool) -> None:
    """Write a number of elements or bytes."""
    if not is_flexible:
        write_i32_be(out, i32(count))
        return
    left: i64 = count + 1
    while left >= 0x80:
        out.append(u8(left & 0x7F | 0x80))
        left >>= 7
    out.append(u8(left))

"""Reads whole Produce requests, and writes their responses; mypyc compiles it: docs/decisions/native-requests.md.

What is usual is read into flat values: versions from 3 on, whose batches are sound if they are uncompressed.
Everything else is left to the decoders of kctl.protocol and to kctl.records.validate, which also say what is wrong with
it: malformed bytes, other checksums, control batches, tagged fields, bytes after the request.  Compressed records are
not read here.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c
from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from kctl.records.compiled.frame import (
    read_count,
    read_header,
    read_no_tags,
    read_text,
    read_topic,
    read_topic_id,
    write_count,
    write_header,
    write_size,
    write_topic,
    write_topic_id,
)
from kctl.records.compiled.walk import check_part

PlainBatch = tuple[str, int, int, int, int, int, int, int, int]
"""Topic, partition, position and size in the frame, number of records or UNREAD, largest timestamp, producer id, number
of records without a key, attributes.
"""
ProducedTopic = tuple[bytes, int]
"""Name, or from version 13 on the id, and how many batches it has."""
PlainProduce = tuple[int, int, str, int, int, int, str | None, list[ProducedTopic], list[PlainBatch]]
"""Version, correlation id, client id, -1 for a client, acks, timeout in ms, transactional id, topics, batches."""
AppendedBatch = tuple[int, int, int, int]
"""Partition, base offset, time of the append in ms or -1, log start offset."""

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 13
_WITH_IDS: Final = 13
_NO_NAMES: Final[dict[bytes, str]] = {}
UNREAD: Final = -1
"""The number of records of a compressed batch, which is not checked."""
_CLIENT: Final = -1
_FLEXIBLE: Final = 9
_WITH_LOG_START: Final = 5
_WITH_RECORD_ERRORS: Final = 8
_HEADER_SIZE: Final = 61
_LOG_OVERHEAD: Final = 12
_CRC: Final = 17
_CHECKED_FROM: Final = 21
_CODEC: Final = 0x07
_USUAL: Final = 0x17
"""The codec, and the bit of a transaction: not LogAppendTime, and not a control batch."""
_VIEWED_BYTES_MIN: Final = 4096
_RECORDS_MAX: Final = 1 << 20
_TIME_MAX: Final = 1 << 61
"""Beyond it sums of a timestamp and a delta could exceed 64 bits."""


def read_plain_produce(frame: bytes, names: dict[bytes, str] = _NO_NAMES) -> PlainProduce | None:
    """Return the values of a request that is usual; None for any other bytes.

    `names` are the names of topics by their ids.
    """
    try:
        return _read(frame, names)
    except (ValueError, IndexError):
        return None


def _read(frame: bytes, names: dict[bytes, str]) -> PlainProduce | None:
    """As above.  Raises ValueError, UnicodeDecodeError among them, and IndexError for some of the other bytes."""
    end: i64 = len(frame)
    version: i64 = i64(read_i16_be(frame, 2))
    if read_i16_be(frame, 0) != 0 or version < FIRST_VERSION or version > LAST_VERSION:
        return None
    is_flexible = version >= _FLEXIBLE
    correlation_id, client_id, position = read_header(frame, is_flexible)
    transactional_id: str | None = None
    size: i64 = 0
    if is_flexible:
        if frame[position] == 0:
            position += 1
        else:
            size, position = read_count(frame, position, is_flexible)
    else:
        size = i64(read_i16_be(frame, position))
        position += 2
    if size > 0:
        transactional_id = read_text(frame, position, size)
        position += size
    elif size != (0 if is_flexible else -1):
        return None
    acks: i64 = i64(read_i16_be(frame, position))
    timeout_ms: i64 = i64(read_i32_be(frame, position + 2))
    position += 6
    if acks < -1 or acks > 1:
        return None
    topics: list[ProducedTopic] = []
    batches: list[PlainBatch] = []
    topic_count, position = read_count(frame, position, is_flexible)
    # An element takes a byte at least, so that a wrong count ends with the frame.
    for _ in range(topic_count):
        if version >= _WITH_IDS:
            name, name_bytes, partition_count, position = read_topic_id(frame, position, names)
        else:
            name, name_bytes, partition_count, position = read_topic(frame, position, is_flexible)
        for _ in range(partition_count):
            partition: i64 = i64(read_i32_be(frame, position))
            size, position = read_count(frame, position + 4, is_flexible)
            if size > end - position:
                return None
            if not _append_batch(frame, position, size, name, partition, batches):
                return None
            position += size
            if is_flexible:
                position = read_no_tags(frame, position)
        topics.append((name_bytes, partition_count))
        if is_flexible:
            position = read_no_tags(frame, position)
    if is_flexible:
        position = read_no_tags(frame, position)
    if position != end:
        return None
    return version, correlation_id, client_id, _CLIENT, acks, timeout_ms, transactional_id, topics, batches


def _append_batch(
    frame: bytes, position: i64, size: i64, topic: str, partition: i64, batches: list[PlainBatch]
) -> bool:
    """Check an uncompressed batch as kctl.records.validate does, as far as no setting of a topic matters; return False
    if it is not usual.

    What is not usual may be sound.
    """
    if size < _HEADER_SIZE:
        return False
    attributes: i64 = i64(read_i16_be(frame, position + _CHECKED_FROM))
    if (
        read_i64_be(frame, position) != 0
        or read_i32_be(frame, position + 8) != size - _LOG_OVERHEAD
        or frame[position + 16] != 2
        or attributes & ~_USUAL != 0
    ):
        return False
    last_delta: i64 = i64(read_i32_be(frame, position + 23))
    base_timestamp: i64 = read_i64_be(frame, position + 27)
    max_timestamp: i64 = read_i64_be(frame, position + 35)
    producer_id: i64 = read_i64_be(frame, position + 43)
    if attributes & _CODEC != 0:
        batches.append((topic, partition, position, size, UNREAD, max_timestamp, producer_id, 0, attributes))
        return True
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
    batches.append((topic, partition, position, size, count, max_timestamp, producer_id, keyless, attributes))
    return True


def write_produce_response(
    version: i64, correlation_id: i64, topics: list[ProducedTopic], appended: list[AppendedBatch]
) -> bytes:
    """Return the frame of a response without errors, with its size.

    `appended` has the batches of all topics in order.  Raises IndexError if there are too few.
    """
    is_flexible = version >= _FLEXIBLE
    out = BytesWriter()
    write_header(out, correlation_id, is_flexible)
    write_count(out, len(topics), is_flexible)
    at: i64 = 0
    for name, count in topics:
        if version >= _WITH_IDS:
            write_topic_id(out, name, count)
        else:
            write_topic(out, name, count, is_flexible)
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
    write_size(out, len(out) - 4)
    return out.getvalue()

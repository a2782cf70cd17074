"""Reads whole Fetch requests, and writes their responses; mypyc compiles it: docs/decisions/native-requests.md.

What is usual is read into flat values: versions from 10 on, of consumers without a session and a rack.
Everything else is left to the decoders of kctl.protocol; see `produce_frame`.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from kctl.records.compiled.produce_frame import read_count, read_text, write_count

PlainPosition = tuple[str, int, int, int, int]
"""Topic, partition, leader epoch or -1, offset, limit in bytes."""
FetchedTopic = tuple[bytes, int]
"""Name, and how many of the partitions are of it."""
PlainFetch = tuple[int, int, str, bool, int, int, int, list[FetchedTopic], list[PlainPosition]]
"""Version, correlation id, client id, whether only committed transactions are read, max wait in ms, min bytes, max
bytes, topics, positions.
"""
ReadPartition = tuple[int, int, int, int, int]
"""Partition, high watermark, last stable offset, log start offset, size of the records."""

FIRST_VERSION: Final = 10
LAST_VERSION: Final = 12
_FLEXIBLE: Final = 12
_WITH_RACK: Final = 11
_CONSUMER: Final = -1
_NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1
_NO_REPLICA: Final = -1


def read_plain_fetch(frame: bytes) -> PlainFetch | None:
    """Return the values of a request that is usual; None for any other bytes."""
    try:
        return _read(frame)
    except (ValueError, IndexError):
        return None


def _read(frame: bytes) -> PlainFetch | None:
    """As above.  Raises ValueError, UnicodeDecodeError among them, and IndexError for some of the other bytes."""
    version: i64 = i64(read_i16_be(frame, 2))
    if read_i16_be(frame, 0) != 1 or version < FIRST_VERSION or version > LAST_VERSION:
        return None
    is_flexible = version >= _FLEXIBLE
    correlation_id: i64 = i64(read_i32_be(frame, 4))
    size: i64 = i64(read_i16_be(frame, 8))
    position: i64 = 10
    client_id = ""
    if size > 0:
        client_id = read_text(frame, position, size)
        position += size
    if is_flexible:
        if frame[position] != 0:
            return None
        position += 1
    max_wait_ms: i64 = i64(read_i32_be(frame, position + 4))
    min_bytes: i64 = i64(read_i32_be(frame, position + 8))
    max_bytes: i64 = i64(read_i32_be(frame, position + 12))
    if (
        read_i32_be(frame, position) != _CONSUMER
        or frame[position + 16] > 1  # Isolation level.
        or read_i32_be(frame, position + 17) != _NO_SESSION
        or read_i32_be(frame, position + 21) != _FINAL_EPOCH
    ):
        return None
    is_committed = frame[position + 16] == 1
    position += 25
    topics: list[FetchedTopic] = []
    positions: list[PlainPosition] = []
    topic_count, position = read_count(frame, position, is_flexible)
    # An element takes a byte at least, so that a wrong count ends with the frame.
    for _ in range(topic_count):
        if is_flexible:
            size, position = read_count(frame, position, is_flexible)
        else:
            size = i64(read_i16_be(frame, position))
            position += 2
        if size <= 0 or size > 32767:
            return None
        name = read_text(frame, position, size)
        name_bytes = frame[position : position + size]
        position += size
        partition_count, position = read_count(frame, position, is_flexible)
        for _ in range(partition_count):
            partition: i64 = i64(read_i32_be(frame, position))
            leader_epoch: i64 = i64(read_i32_be(frame, position + 4))
            offset: i64 = read_i64_be(frame, position + 8)
            position += 16
            if is_flexible:
                if read_i32_be(frame, position) != -1:  # The last fetched epoch, of followers.
                    return None
                position += 4
            limit: i64 = i64(read_i32_be(frame, position + 8))  # After a log start offset, which is for followers.
            position += 12
            if is_flexible:
                if frame[position] != 0:
                    return None
                position += 1
            positions.append((name, partition, leader_epoch, offset, limit))
        topics.append((name_bytes, partition_count))
        if is_flexible:
            if frame[position] != 0:
                return None
            position += 1
    return _ended(
        frame,
        position,
        (version, correlation_id, client_id, is_committed, max_wait_ms, min_bytes, max_bytes, topics, positions),
    )


def _ended(frame: bytes, position: i64, request: PlainFetch) -> PlainFetch | None:
    """Return the request if no topics are forgotten, there is no rack, and nothing else follows."""
    if request[0] >= _FLEXIBLE:
        rest = b"\1\1\0"
    elif request[0] >= _WITH_RACK:
        rest = b"\0\0\0\0\0\0"
    else:
        rest = b"\0\0\0\0"
    return request if frame[position:] == rest else None


def write_fetch_response(
    version: i64, correlation_id: i64, is_committed: bool, topics: list[FetchedTopic], read: list[ReadPartition]
) -> list[bytes]:
    """Return the frame of a response without errors and aborted transactions, with its size, in the pieces before,
    between and after the records of the partitions that have any.

    `read` has the partitions of all topics in order.  Raises IndexError if there are too few.
    """
    is_flexible = version >= _FLEXIBLE
    pieces: list[bytes] = []
    total: i64 = 0
    out = BytesWriter()
    write_i32_be(out, i32(correlation_id))
    if is_flexible:
        out.append(0)
    write_i32_be(out, 0)  # The throttle time.
    write_i16_be(out, 0)
    write_i32_be(out, _NO_SESSION)
    write_count(out, len(topics), is_flexible)
    at: i64 = 0
    for name, count in topics:
        if is_flexible:
            write_count(out, len(name), is_flexible)
        else:
            write_i16_be(out, i16(len(name)))
        out.write(name)
        write_count(out, count, is_flexible)
        for _ in range(count):
            partition, high_watermark, last_stable, log_start, size = read[at]
            at += 1
            write_i32_be(out, i32(partition))
            write_i16_be(out, 0)
            write_i64_be(out, high_watermark)
            write_i64_be(out, last_stable)
            write_i64_be(out, log_start)
            write_count(out, 0 if is_committed else -1, is_flexible)  # Aborted transactions.
            if version >= _WITH_RACK:
                write_i32_be(out, _NO_REPLICA)
            write_count(out, size, is_flexible)
            if size > 0:
                piece = out.getvalue()
                pieces.append(piece)
                total += len(piece) + i64(size)
                out = BytesWriter()
            if is_flexible:
                out.append(0)
        if is_flexible:
            out.append(0)
    if is_flexible:
        out.append(0)
    piece = out.getvalue()
    if len(piece) > 0:
        pieces.append(piece)
        total += len(piece)
    first = BytesWriter()
    write_i32_be(first, i32(total))
    first.write(pieces[0])
    pieces[0] = first.getvalue()
    return pieces

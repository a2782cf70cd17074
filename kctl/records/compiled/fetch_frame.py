"""Reads whole Fetch requests, and writes their responses; mypyc compiles it: docs/decisions/native-requests.md.

What is usual is read into flat values: versions from 10 on, of followers and of consumers without a rack, that have no
session, or continue one without removing partitions from it.  Everything else is left to the decoders of kctl.protocol.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from kctl.records.compiled.frame import (
    read_count_or_none,
    read_header,
    read_no_tags,
    read_topic,
    read_topic_id,
    write_count,
    write_header,
    write_size,
    write_topic,
    write_topic_id,
)

PlainPosition = tuple[str, int, int, int, int, int, int]
"""Topic, partition, leader epoch or -1, offset, limit in bytes, and of a follower the last fetched epoch and the log
start offset, or -1.
"""
FetchedTopic = tuple[bytes, int]
"""Name, or from version 13 on the id, and how many of the partitions are of it."""
PlainFetch = tuple[int, int, str, int, int, int, bool, int, int, int, list[FetchedTopic], list[PlainPosition]]
"""Version, correlation id, client id, broker id of a follower or -1, session id, session epoch, whether only committed
transactions are read, max wait in ms, min bytes, max bytes, topics, positions.
"""
ReadPartition = tuple[int, int, int, int, int]
"""Partition, high watermark, last stable offset, log start offset, size of the records."""

FIRST_VERSION: Final = 10
LAST_VERSION: Final = 18
_FLEXIBLE: Final = 12
_WITH_RACK: Final = 11
_WITH_IDS: Final = 13
_WITHOUT_REPLICA: Final = 15
_NO_NAMES: Final[dict[bytes, str]] = {}
_CONSUMER: Final = -1
_NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1
_NO_REPLICA: Final = -1


def read_plain_fetch(frame: bytes, names: dict[bytes, str] = _NO_NAMES) -> PlainFetch | None:
    """Return the values of a request that is usual; None for any other bytes.

    `names` are the names of topics by their ids.
    """
    try:
        return _read(frame, names)
    except (ValueError, IndexError):
        return None


def _read(frame: bytes, names: dict[bytes, str]) -> PlainFetch | None:
    """As above.  Raises ValueError, UnicodeDecodeError among them, and IndexError for some of the other bytes."""
    version: i64 = i64(read_i16_be(frame, 2))
    if read_i16_be(frame, 0) != 1 or version < FIRST_VERSION or version > LAST_VERSION:
        return None
    is_flexible = version >= _FLEXIBLE
    correlation_id, client_id, position = read_header(frame, is_flexible)
    replica_id: i64 = _CONSUMER
    if version < _WITHOUT_REPLICA:  # Newer followers say who they are in a tagged field.
        replica_id = i64(read_i32_be(frame, position))
        position += 4
    max_wait_ms: i64 = i64(read_i32_be(frame, position))
    min_bytes: i64 = i64(read_i32_be(frame, position + 4))
    max_bytes: i64 = i64(read_i32_be(frame, position + 8))
    isolation_level: i64 = frame[position + 12]
    session_id: i64 = i64(read_i32_be(frame, position + 13))
    epoch: i64 = i64(read_i32_be(frame, position + 17))
    if replica_id < _CONSUMER or isolation_level > 1:
        return None
    has_session = session_id != _NO_SESSION
    if epoch <= 0 if has_session else (epoch != _FINAL_EPOCH or replica_id != _CONSUMER):
        return None
    position += 21
    topics: list[FetchedTopic] = []
    positions: list[PlainPosition] = []
    topic_count, position = read_count_or_none(frame, position, is_flexible)
    if topic_count == 0 and not has_session:
        return None
    # An element takes a byte at least, so that a wrong count ends with the frame.
    for _ in range(topic_count):
        if version >= _WITH_IDS:
            name, name_bytes, partition_count, position = read_topic_id(frame, position, names)
        else:
            name, name_bytes, partition_count, position = read_topic(frame, position, is_flexible)
        for _ in range(partition_count):
            partition: i64 = i64(read_i32_be(frame, position))
            leader_epoch: i64 = i64(read_i32_be(frame, position + 4))
            offset: i64 = read_i64_be(frame, position + 8)
            position += 16
            last_epoch: i64 = -1
            if is_flexible:
                last_epoch = i64(read_i32_be(frame, position))
                position += 4
            log_start: i64 = read_i64_be(frame, position)
            limit: i64 = i64(read_i32_be(frame, position + 8))
            position += 12
            if is_flexible:
                position = read_no_tags(frame, position)
            positions.append((name, partition, leader_epoch, offset, limit, last_epoch, log_start))
        topics.append((name_bytes, partition_count))
        if is_flexible:
            position = read_no_tags(frame, position)
    if not _is_end(frame, position, version):
        return None
    return (
        version,
        correlation_id,
        client_id,
        replica_id,
        session_id,
        epoch,
        isolation_level == 1,
        max_wait_ms,
        min_bytes,
        max_bytes,
        topics,
        positions,
    )


def _is_end(frame: bytes, position: i64, version: i64) -> bool:
    """Return whether no topics are forgotten, there is no rack, and nothing else follows."""
    if version >= _FLEXIBLE:
        return frame[position:] == b"\1\1\0"
    return frame[position:] == (b"\0\0\0\0\0\0" if version >= _WITH_RACK else b"\0\0\0\0")


def write_fetch_response(
    version: i64,
    correlation_id: i64,
    session_id: i64,
    is_committed: bool,
    topics: list[FetchedTopic],
    read: list[ReadPartition],
) -> list[bytes]:
    """Return the frame of a response without errors and aborted transactions, with its size, in the pieces before,
    between and after the records of the partitions that have any.

    `read` has the partitions of all topics in order.  Raises IndexError if there are too few.
    """
    is_flexible = version >= _FLEXIBLE
    pieces: list[bytes] = []
    total: i64 = 0
    out = BytesWriter()
    write_header(out, correlation_id, is_flexible)
    write_i32_be(out, 0)  # The throttle time.
    write_i16_be(out, 0)
    write_i32_be(out, i32(session_id))
    write_count(out, len(topics), is_flexible)
    at: i64 = 0
    for name, count in topics:
        if version >= _WITH_IDS:
            write_topic_id(out, name, count)
        else:
            write_topic(out, name, count, is_flexible)
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
    if len(out) > 0:
        pieces.append(out.getvalue())
        total += len(out)
    first = BytesWriter()
    first.write(pieces[0])
    write_size(first, total - 4)
    pieces[0] = first.getvalue()
    return pieces

"""Builds record batches of magic 2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kctl.records.compiled import walk_is_compiled
from kctl.records.compression import Codec, compress
from kctl.records.header import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    TimestampType,
    seal_head,
    wrapped,
    write_header,
)

if walk_is_compiled():
    from kctl.records.compiled import encoding


RecordFields = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""A Record as a plain tuple, which takes a quarter of the time to make."""
TIMESTAMP: Final = 1
"""Index of the timestamp."""


def build_batch(
    records: Sequence[RecordFields],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Return a batch with the records at consecutive offsets from `base_offset`; their own offsets are ignored.

    `level` is that of the codec; None for the level of Kafka's broker.  With LOG_APPEND_TIME the largest record
    timestamp is that of all records.  Raises ValueError without records.
    """
    if not records:
        raise ValueError("a batch must have at least one record")
    attributes = int(codec)
    attributes |= LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    attributes |= TRANSACTIONAL_BIT if is_transactional else 0
    attributes |= CONTROL_BIT if is_control else 0
    fields = (
        base_offset,
        0,
        leader_epoch,
        2,
        0,
        attributes,
        len(records) - 1,
        records[0][TIMESTAMP],
        max([record[TIMESTAMP] for record in records]),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return assemble_batch(BatchHeader(0, fields), encode_records(enumerate(records), records[0][TIMESTAMP]), level)


def rebuild_batch(header: BatchHeader, records: Sequence[Record], *, codec: Codec | None = None) -> bytes:
    """Return the batch of `header` with only `records`, which keep their offsets; optionally with another codec.

    Base offset, last offset delta, producer fields and leader epoch are unchanged, so that sequence checks and
    followers see the same batch.  For CreateTime the max timestamp is that of the remaining records.  Without records
    the result is the empty batch that compaction keeps for a producer's last sequence number; it keeps its max
    timestamp, from which the expiry of the producer is computed.
    """
    attributes = header.attributes if codec is None else (header.attributes & ~0x07) | codec
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max((record.timestamp for record in records), default=max_timestamp)
    if not records:
        attributes &= ~0x07
        base_timestamp = NO_TIMESTAMP if header.delete_horizon_ms is None else base_timestamp
    kept = BatchHeader(
        0,
        (
            header.base_offset,
            0,
            header.leader_epoch,
            2,
            0,
            attributes,
            header.last_offset_delta,
            base_timestamp,
            max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            len(records),
        ),
    )
    deltas = ((record.offset - header.base_offset, record) for record in records)
    return assemble_batch(kept, encode_records(deltas, base_timestamp))


def recompress(
    buffer: memoryview, header: BatchHeader, region: bytes | bytearray | memoryview, codec: Codec
) -> bytearray:
    """Return the same batch with its records, given uncompressed, compressed with another codec."""
    body = compress(codec, region)
    head = bytearray(buffer[header.position : header.position + HEADER_SIZE])
    attributes = (header.attributes & ~0x07) | codec
    head[8:12] = (HEADER_SIZE + len(body) - LOG_OVERHEAD).to_bytes(4, "big")
    head[21:23] = attributes.to_bytes(2, "big", signed=True)
    seal_head(head, body)
    return head + body


def assemble_batch(header: BatchHeader, region: bytes | bytearray, level: int | None = None) -> bytes:
    """Return the batch of `header` with the uncompressed records in `region`, compressed with its codec; sets size
    and CRC.
    """
    body = compress(header.codec, region, level) if header.attributes & 0x07 else region
    head = bytearray(HEADER_SIZE)
    write_header(head, header, position=0, size=HEADER_SIZE + len(body))
    seal_head(head, body)
    return b"".join((head, body))


def encode_records(records: Iterable[tuple[int, RecordFields]], base_timestamp: int) -> bytes | bytearray:
    """Return the records with their offset deltas, as in a batch before compression."""
    if walk_is_compiled():
        return encoding.encode_records(records, base_timestamp)
    return encode_in_python(records, base_timestamp)


def encode_in_python(records: Iterable[tuple[int, RecordFields]], base_timestamp: int) -> bytearray:
    """As encode_records, without compiled code."""
    region = bytearray()
    for offset_delta, (_, timestamp, key, value, headers) in records:
        body = bytearray(1)
        _write_varint(body, wrapped(timestamp - base_timestamp))
        _write_varint(body, offset_delta)
        _write_bytes(body, key)
        _write_bytes(body, value)
        _write_varint(body, len(headers))
        for name, data in headers:
            _write_bytes(body, name.encode())
            _write_bytes(body, data)
        _write_varint(region, len(body))
        region += body
    return region


def _write_bytes(target: bytearray, value: bytes | None) -> None:
    if value is None:
        target.append(1)  # Null: -1 in zigzag.
    else:
        _write_varint(target, len(value))
        target += value


def _write_varint(target: bytearray, number: int) -> None:
    value = (number << 1) ^ (number >> 63)
    while value > 0x7F:
        target.append((value & 0x7F) | 0x80)
        value >>= 7
    target.append(value)

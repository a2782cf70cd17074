"""Frames of Produce requests: usual ones, and what differs from them in one place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from kctl.client.connections.framing import request_frame
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    BatchHeader,
    Record,
    parse_header,
    seal,
    write_header,
)
from tests.property.topic_ids import id_of

SIZES = (0, 1, 30, 63, 64, 65, 300)
ODD_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFF)
LONG_NUMBERS = (b"\x80\x00", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 9 + b"\x01", b"\x80" * 11)
WITH_IDS = 13
NAMES = ("orders", "a", "größe", "t" * 130)


class Frame(NamedTuple):
    """A frame without its size, and the request in it."""

    version: int
    request: ProduceRequest
    content: bytes


def usual_frame(chance: random.Random, *, acks: int | None = None, is_short: bool = False) -> Frame:
    """What producers send; a short one has one batch."""
    version = chance.randrange(3, 14)
    names = chance.sample(NAMES[:2] if is_short else NAMES, 1 if is_short else chance.choice((1, 1, 1, 2)))
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[
                _partition(chance, is_short=is_short) for _ in range(1 if is_short else chance.choice((1, 1, 1, 3)))
            ],
        )
        for name in names
    ]
    request = ProduceRequest(
        transactional_id=chance.choice((None, None, None, "größe")),
        acks=chance.choice((0, 1, -1)) if acks is None else acks,
        timeout_ms=chance.choice((1, 30_000)),
        topic_data=topics,
    )
    return framed(request, version, client_id=chance.choice(("", "client", "größe")))


def framed(request: ProduceRequest, version: int, *, client_id: str = "client") -> Frame:
    """The frame of a request; names become ids in versions that have these."""
    if version >= WITH_IDS:
        for topic in request.topic_data:
            topic.topic_id = id_of(topic.name)
    frame = b"".join(request_frame(request, version, correlation_id=7, client_id=client_id))
    return Frame(version, request, frame[4:])


def _partition(chance: random.Random, *, is_short: bool) -> PartitionProduceData:
    return PartitionProduceData(index=chance.choice((0, 1, 70_000)), records=usual_batch(chance, is_short=is_short))


def usual_batch(chance: random.Random, *, is_short: bool = False) -> bytes:
    """A batch as producers send it, of an idempotent one in one of three cases, and sometimes compressed."""
    base = chance.choice((-1, 0, 5, 1_700_000_000_000))
    records = [_record(chance, base) for _ in range(2 if is_short else chance.choice((1, 1, 3, 70)))]
    producer_id = chance.choice((-1, -1, 9))
    has_producer = producer_id >= 0
    return build_batch(
        records,
        codec=chance.choice((*[Codec.NONE] * 7, Codec.GZIP, Codec.ZSTD)),
        producer_id=producer_id,
        producer_epoch=0 if has_producer else -1,
        base_sequence=chance.choice((0, 9)) if has_producer else -1,
        is_transactional=has_producer and chance.random() < 0.3,
    )


def _record(chance: random.Random, base: int) -> Record:
    def field() -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice(SIZES))

    headers = tuple(("h" * chance.randrange(3), field()) for _ in range(chance.choice((0, 0, 0, 1, 3))))
    return Record(0, base + chance.choice((0, 1, 63, 64, 8192)), field(), field(), headers)


def unusual_frames(chance: random.Random) -> Iterator[Frame]:
    """What is left to the other code, although some of it is sound."""
    usual = usual_frame(chance)
    version = usual.version

    topics = usual.request.topic_data

    def with_topics(*some: TopicProduceData, acks: int = 1, transactional_id: str | None = None) -> Frame:
        request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=list(some))
        return framed(request, version)

    def with_batch(batch: bytes | None) -> Frame:
        data = PartitionProduceData(index=0, records=batch)
        return with_topics(TopicProduceData(name="a", partition_data=[data]))

    records = [_record(chance, 5) for _ in range(2)]
    yield with_topics()
    yield with_topics(TopicProduceData(name="a", partition_data=[]))
    yield with_topics(*topics, transactional_id="")
    yield with_topics(*topics, acks=2)
    yield with_batch(None)
    yield with_batch(b"")
    yield with_batch(build_batch(records)[:-1])
    yield with_batch(build_batch(records, codec=Codec.GZIP)[:-1])
    yield with_batch(changed(build_batch(records, codec=Codec.GZIP), base_offset=1))
    yield with_batch(build_batch(records) * 2)
    for change in (
        {"base_offset": 1},
        {"magic": 1},
        {"attributes": 0x08},
        {"attributes": 0x40},
        {"attributes": 0x0A},
        {"attributes": 0x20},
        {"last_offset_delta": 0},
        {"record_count": 1},
        {"record_count": 3, "last_offset_delta": 2},
        {"max_timestamp": 1 << 40},
        {"base_timestamp": (1 << 63) - 1},
        {"producer_id": 5, "base_sequence": -1},
    ):
        yield with_batch(changed(build_batch(records), **change))
    wrong = bytearray(build_batch(records))
    wrong[-1] ^= 1
    yield with_batch(bytes(wrong))


def frame_of_records(region: bytes, count: int, version: int) -> bytes:
    """The frame of a request with these bytes as the records of a batch, and so many of them by its header."""
    record_count = count if -(1 << 31) <= count < 1 << 31 else 1
    template = build_batch([Record(0, 0)])
    buffer = bytearray(template[:HEADER_SIZE]) + region
    header = parse_header(template)
    header.record_count, header.last_offset_delta = record_count, max(record_count - 1, -1)
    write_header(buffer, header, position=0, size=len(buffer))
    header.size = len(buffer)
    seal(buffer, header)
    data = [PartitionProduceData(index=0, records=bytes(buffer))]
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="a", partition_data=data)])
    return framed(request, version).content


def changed(batch: bytes, **fields: int) -> bytes:
    """The batch with other fields in its header, and the checksum for them."""
    buffer = bytearray(batch)
    header: BatchHeader = parse_header(buffer)
    size = header.size
    for name, value in fields.items():
        setattr(header, name, value)
    write_header(buffer, header, position=0, size=size)
    seal(buffer, header)
    return bytes(buffer)


def with_odd_numbers(frame: bytes, *, places: range | None = None) -> Iterator[bytes]:
    """The frame with odd numbers of each size at each place: the ends of their ranges, and what is left of the frame.

    So each count, length and number in it has been each of them, as have those of variable size.
    """
    for at in places or range(len(frame)):
        for size in (1, 2, 4, 8):
            if at + size <= len(frame):
                last = (1 << 8 * size - 1) - 1
                for value in (-1, 0, 1, last, -last - 1, len(frame) - at - size, len(frame) - at - size + 1):
                    number = (value & (1 << 8 * size) - 1).to_bytes(size, "big")
                    yield frame[:at] + number + frame[at + size :]
        for number in LONG_NUMBERS:
            yield frame[:at] + number + frame[at + 1 :]


def sealed(frame: bytes, position: int, size: int) -> bytes:
    """The frame with the checksum of the batch there, as it is now."""
    buffer = bytearray(frame)
    checked = crc32c(frame[position + ATTRIBUTES_POSITION : position + size])
    buffer[position + CRC_POSITION : position + ATTRIBUTES_POSITION] = checked.to_bytes(4, "big")
    return bytes(buffer)


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """The frame with a byte changed, removed or added, or without its end."""
    changed_frame = bytearray(frame)
    at = chance.randrange(len(frame))
    match chance.randrange(5):
        case 0:
            changed_frame[at] = chance.randrange(256)
        case 1:
            changed_frame[at] = chance.choice(ODD_BYTES)
        case 2:
            del changed_frame[at:]
        case 3:
            del changed_frame[at]
        case _:
            changed_frame.insert(at, chance.choice(ODD_BYTES))
    return bytes(changed_frame)

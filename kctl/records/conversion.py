"""Between the message formats: what old producers send becomes magic 2, what old consumers get is taken back.

The log stores magic 2, so Produce up to version 2 goes through `upgrade` and Fetch up to version 3 through `downgrade`.
Magic 2 knows more: headers, transaction markers and the producer's identity are lost on the way back.
docs/decisions/message-formats.md says what that means for a topic.  Kafka's LogValidator and RecordsUtil.downConvert.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from kctl.errors import ApiError, ErrorCode
from kctl.records.allowance import Allowance, AllowanceExceeded
from kctl.records.batch import crc_ok, iterate_batches, iterate_plain, records_region
from kctl.records.build import assemble_batch, encode_records
from kctl.records.compression import Buffer, Codec
from kctl.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    Record,
)
from kctl.records.legacy import WrongChecksum, build_messages, iterate_messages

MAGIC_2 = 2


def upgrade(
    messages: Buffer, *, codec: Codec | None, max_message_bytes: int, allowance: Allowance | None = None
) -> bytes:
    """Produced messages of magic 0 or 1 as one batch; `codec` None keeps the producer's.

    Offsets are given anew, whatever the producer wrote.  `allowance` is by default what this many bytes may hold.
    Raises AllowanceExceeded, and ApiError with the code of Kafka's leader.
    """
    if allowance is None:
        allowance = Allowance.for_batches(len(messages))
    allowance.take_bytes(len(messages))
    source = _check_produced(messages, max_message_bytes)
    try:
        records = enumerate(_produced_records(messages, allowance))
        return _batch_of(records, codec=source if codec is None else codec)
    except BatchTooLarge as error:
        raise AllowanceExceeded(f"the {len(messages)} bytes of messages are too large: {error.reason}") from error
    except WrongChecksum as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
    except CorruptBatch as error:
        raise _invalid(error.reason) from error


def _check_produced(messages: Buffer, max_message_bytes: int) -> Codec:
    """The codec of messages whose headers keep the rules."""
    count, magic, codec = 0, -1, 0
    try:
        for header in iterate_batches(messages):
            count += 1
            magic = header.magic if magic < 0 else magic
            codec = header.attributes & CODEC_MASK or codec
            if header.size > max_message_bytes:
                message = f"the message of {header.size} bytes is larger than max.message.bytes {max_message_bytes}"
                raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, message)
            if not crc_ok(messages, header):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"wrong checksum of the message at byte {header.position}")
            if header.magic != magic:
                raise _invalid(f"a message of magic {header.magic} after one of magic {magic}")
            if header.attributes & LOG_APPEND_TIME_BIT:
                raise ApiError(ErrorCode.INVALID_TIMESTAMP, "producers cannot set the timestamp type to LogAppendTime")
    except CorruptBatch as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
    if not count:
        raise _invalid("the produced records hold no complete message")
    if codec > Codec.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in an old message format")
    if codec and count > 1:
        raise _invalid("compressed messages of an old format come in one wrapper")
    return Codec(codec)


def _produced_records(messages: Buffer, allowance: Allowance) -> Iterator[Record]:
    size_max, count_max = allowance.plain_bytes, allowance.records
    for header in iterate_batches(messages):
        for record in iterate_messages(messages, header, size_max=size_max, count_max=count_max, is_produced=True):
            allowance.take_records(1)
            if record.timestamp < NO_TIMESTAMP:
                raise ApiError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {record.timestamp}")
            yield record


def upgrade_stored(buffer: Buffer, header: BatchHeader) -> bytes:
    """A message of the log as a batch with the same offsets and times.  Raises CorruptBatch."""
    records = iterate_messages(buffer, header)
    first = next(records)
    deltas = ((record.offset - first.offset, record) for record in chain((first,), records))
    return _batch_of(
        deltas, codec=header.codec, base_offset=first.offset, attributes=header.attributes & LOG_APPEND_TIME_BIT
    )


def without_old_messages(batches: memoryview) -> memoryview:
    """The batches with the messages among them made batches of magic 2; what was given, when there are none.

    For readers that know only magic 2.  A cut-off batch at the end may get lost.  Raises CorruptBatch, also for
    messages with wrong checksums.
    """
    if not _has_old_messages(batches):
        return batches
    parts: list[Buffer] = []
    for header in iterate_batches(batches):
        if header.magic == 2:
            parts.append(batches[header.position : header.end])
        elif crc_ok(batches, header):
            parts.append(upgrade_stored(batches, header))
        else:
            raise CorruptBatch(header.position, f"wrong checksum of the message at offset {header.last_offset}")
    return memoryview(b"".join(parts))


def _has_old_messages(batches: memoryview) -> bool:
    position, size = 0, len(batches)
    while size - position > MAGIC_POSITION:
        if batches[position + MAGIC_POSITION] < 2:
            return True
        position += LOG_OVERHEAD + int.from_bytes(batches[position + 8 : position + LOG_OVERHEAD], "big")
    return False


class _Tally:
    """Counts what passes by, so that a batch is built without holding its records."""

    def __init__(self) -> None:
        self.count = 0
        self.last_delta = 0
        self.max_timestamp = NO_TIMESTAMP

    def of(self, records: Iterable[tuple[int, Record]]) -> Iterator[tuple[int, Record]]:
        for delta, record in records:
            self.count += 1
            self.last_delta = delta
            self.max_timestamp = max(self.max_timestamp, record.timestamp)
            yield delta, record


def _batch_of(
    records: Iterable[tuple[int, Record]], *, codec: Codec, base_offset: int = 0, attributes: int = 0
) -> bytes:
    deltas = iter(records)
    first = next(deltas)
    tally = _Tally()
    region = encode_records(tally.of(chain((first,), deltas)), first[1].timestamp)
    fields = (
        base_offset,
        0,
        NO_LEADER_EPOCH,
        2,
        0,
        codec | attributes,
        tally.last_delta,
        first[1].timestamp,
        tally.max_timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        tally.count,
    )
    return assemble_batch(BatchHeader(0, fields), region)


def downgrade(
    batches: Buffer, magic: int, *, first_offset: int, size_max: int, allowance: Allowance | None = None
) -> tuple[bytes, int]:
    """Batches as messages of `magic` or below, and the offset after the last batch that is in them.

    Takes whole batches until `size_max` is reached, the first whatever it comes to; a cut-off one at the end is left
    out.  Offsets stay.  Uncompressed records before `first_offset` are left out, because such a message is a batch of
    its own and would be one too many.  `allowance`, by default what this many bytes may hold, bounds the conversion.
    Raises CorruptBatch, BatchTooLarge when the first batch passes the allowance, and
    ApiError(UNSUPPORTED_COMPRESSION_TYPE) when zstd comes first; later both end the answer.
    """
    view = memoryview(batches)
    if allowance is None:
        allowance = Allowance.for_batches(len(view))
    messages = bytearray()
    next_offset = first_offset
    for header in iterate_batches(view):
        if header.magic <= magic:
            part: Buffer = view[header.position : header.end]
        elif header.attributes & CONTROL_BIT:
            part = b""
        elif header.codec is Codec.ZSTD:
            if messages:
                break
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "the old message formats have no zstd")
        else:
            try:
                part = _messages_of(view, header, magic, first_offset, allowance)
            except BatchTooLarge:
                if messages:
                    break
                raise
        if messages and len(messages) + len(part) > size_max:
            break
        messages += part
        next_offset = header.next_offset
    return bytes(messages), next_offset


def _messages_of(view: memoryview, header: BatchHeader, magic: int, first_offset: int, allowance: Allowance) -> bytes:
    codec = header.codec
    records = _stored_records(view, header, allowance)
    if codec is Codec.NONE:
        records = (record for record in records if record.offset >= first_offset)
    return build_messages(records, magic=magic, codec=codec, timestamp_type=header.timestamp_type)


def _stored_records(view: memoryview, header: BatchHeader, allowance: Allowance) -> Iterator[Record]:
    """The records of a batch or message.  Raises BatchTooLarge before it passes the allowance, and CorruptBatch."""
    if header.magic < MAGIC_2:
        yield from _counted(header, allowance, iterate_messages(view, header, size_max=allowance.plain_bytes))
        return
    if header.record_count > allowance.records:
        raise BatchTooLarge(header.position, f"{header.record_count} records are too many for a conversion")
    plain = bytes(records_region(view, header, allowance.plain_bytes))
    if len(plain) > allowance.plain_bytes:
        raise BatchTooLarge(header.position, f"{len(plain)} bytes of records are too many for a conversion")
    allowance.plain_bytes -= len(plain)
    yield from _counted(header, allowance, iterate_plain(plain, header))


def _counted(header: BatchHeader, allowance: Allowance, records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        allowance.records -= 1
        if allowance.records < 0:
            raise BatchTooLarge(header.position, "the records are too many for a conversion")
        yield record


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)

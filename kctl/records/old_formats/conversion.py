"""Converts between message formats: produced messages to magic 2, batches to magic 0 or 1 for old consumers.

The log contains magic 2, so Produce up to version 2 uses `upgrade` and Fetch up to version 3 uses `downgrade`.
Headers, transaction markers and producer ids exist in magic 2 only and are lost in a downgrade.
docs/decisions/message-formats.md has the consequences for a topic.  Kafka's LogValidator and RecordsUtil.downConvert.
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
from kctl.records.old_formats.legacy import WrongChecksum, build_messages, iterate_messages

MAGIC_2 = 2


def upgrade(
    messages: Buffer, *, codec: Codec | None, max_message_bytes: int, allowance: Allowance | None = None
) -> bytes:
    """Return produced messages of magic 0 or 1 as one batch; with `codec` None in the producer's codec.

    Offsets are assigned from 0, whatever the producer wrote.  The default of `allowance` is the bound for this many
    bytes.  Raises AllowanceExceeded, and ApiError with the code that Kafka's leader uses.
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
    """Return the codec of the messages after checking their headers."""
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
        raise _invalid("the produced records contain no complete message")
    if codec > Codec.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"magic 0 and 1 do not support codec {codec}")
    if codec and count > 1:
        raise _invalid("compressed messages of magic 0 and 1 must be in one wrapper message")
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
    """Return a stored message as a batch with the same offsets and timestamps.  Raises CorruptBatch."""
    records = iterate_messages(buffer, header)
    first = next(records)
    deltas = ((record.offset - first.offset, record) for record in chain((first,), records))
    return _batch_of(
        deltas, codec=header.codec, base_offset=first.offset, attributes=header.attributes & LOG_APPEND_TIME_BIT
    )


def without_old_messages(batches: memoryview) -> memoryview:
    """Return the batches with messages of magic 0 and 1 converted to magic 2; the argument itself if there are none.

    For readers that support magic 2 only.  An incomplete batch at the end may be dropped.  Raises CorruptBatch, also
    for messages with wrong checksums.
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


class _RecordCounter:
    """Counts records during an iteration, so that a batch is built without holding them."""

    def __init__(self) -> None:
        self.count = 0
        self.last_delta = 0
        self.max_timestamp = NO_TIMESTAMP

    def of(self, records: Iterable[tuple[int, Record]]) -> Iterator[tuple[int, Record]]:
        """Yield the records and count them."""
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
    tally = _RecordCounter()
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
    """Return batches as messages of `magic` or lower, and the offset after the last batch that was converted.

    Converts whole batches until `size_max` is reached, at least one; an incomplete one at the end is ignored.  Offsets
    are unchanged.  Uncompressed records before `first_offset` are left out, because each such message counts as a batch
    of its own, before the requested offset.  `allowance`, by default the bound for this many bytes, limits the
    conversion.  Raises CorruptBatch, BatchTooLarge if the first batch exceeds the allowance, and
    ApiError(UNSUPPORTED_COMPRESSION_TYPE) if the first batch is in zstd; in later batches both end the result.
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
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "magic 0 and 1 do not support zstd")
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
    """Return the records of a batch or message.  Raises BatchTooLarge before it exceeds the allowance, and
    CorruptBatch.
    """
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

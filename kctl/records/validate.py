"""Validates produced batches before a leader appends them.  Kafka's ProduceRequest.validateRecords and LogValidator.

Every record is walked (kctl.records.compiled.walk): its sizes, the number of records and their end are checked, and the
max timestamp is recomputed.  The batch is appended unchanged if nothing else is required.  These rules need more:

    a compacted topic                        every record needs a key
    a limit on timestamps                    every record's timestamp is compared with the clock
    another compression.type                 the records are recompressed
    offset deltas that are not 0, 1, 2 ...   a compressed batch is built again, as in Kafka
    messages of magic 0 and 1                they are converted to a batch of magic 2 (old_formats.conversion)

Checks that need the log (producer epochs and sequence numbers) are in kctl.storage.state.producer_state, those that
need the cluster (acks, min.insync.replicas) in kctl.server.  KIP-98, KIP-467.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kctl.errors import ApiError, ErrorCode
from kctl.limits import APPENDED_INLINE_BYTES_MAX, RECORDS_PER_BATCH_MAX
from kctl.records.allowance import Allowance, AllowanceExceeded
from kctl.records.batch import iterate_batches, iterate_plain, records_region
from kctl.records.build import rebuild_batch, recompress
from kctl.records.compiled.walk import RECORD_SIZE_MIN, check_records
from kctl.records.compression import Buffer, Codec, has_linked_blocks
from kctl.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    OldFormat,
    TimestampType,
    crc_of,
    describe_malformed_record,
    parse_header,
    seal,
    write_header,
)
from kctl.records.old_formats.conversion import upgrade
from kctl.records.old_formats.legacy import MAGIC_0, SIZE_MIN, look_inside

TIMESTAMP_DIFFERENCE_UNLIMITED = (1 << 63) - 1
_CREATE_TIME, _LOG_APPEND_TIME = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
"""Constants, because Python 3.11 takes 0.1 us to find a member of an enum."""
_NEWEST_MAGIC = 2
_FIRST_VERSION_OF_ONE_BATCH = 3
_FIRST_VERSION_WITH_ZSTD = 7


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The topic's settings for produced batches."""

    max_message_bytes: int
    segment_bytes: int
    is_compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_difference_max_ms: int = TIMESTAMP_DIFFERENCE_UNLIMITED
    codec: Codec | None = None
    """None keeps the producer's codec (`compression.type=producer`)."""
    allows_zstd: bool = True
    """True from inter.broker.protocol.version 2.1 on: older brokers cannot read zstd."""
    plain_bytes_max: int = field(init=False, compare=False, repr=False)
    """A batch of at most this size may be stored without further checks if it is uncompressed and sound, and if each
    record has a key where the topic is compacted; -1 if the rules may require something else.
    """

    def __post_init__(self) -> None:
        """Derive what each append would have to."""
        is_plain = (
            self.timestamp_type is _CREATE_TIME
            and self.timestamp_difference_max_ms == TIMESTAMP_DIFFERENCE_UNLIMITED
            and self.codec is None
        )
        bytes_max = min(self.max_message_bytes, self.segment_bytes) if is_plain else -1
        object.__setattr__(self, "plain_bytes_max", bytes_max)


class RecordsRejected(ApiError):
    """Single records of a batch are invalid: `record_errors` has (index in the batch, message).  KIP-467."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


@dataclass(slots=True)
class ValidBatches:
    """Batches that may be appended: a writable buffer that contains exactly the batches of `headers`."""

    buffer: memoryview
    headers: tuple[BatchHeader, ...]
    is_converted: bool = False
    """Whether messages of magic 0 or 1 were converted."""


def validate_produced(
    records: Buffer, rules: AppendRules, *, now_ms: int, request_version: int, allowance: Allowance | None = None
) -> ValidBatches:
    """Return the one batch that a client produced to a partition; changed in place for LogAppendTime.

    `allowance` limits the processing of records, by default to the maximum for one batch.  Raises AllowanceExceeded if
    it is not enough, and ApiError with the code that Kafka's leader uses; the buffer is unchanged then.
    """
    view = memoryview(records)
    header = _only_batch(view, request_version)
    is_converted = header is None
    if not rules.allows_zstd:
        _check_stored_codec(header, rules)
    is_in_thread = allowance is None
    if allowance is None:
        allowance = Allowance.for_batches(len(view))
    if header is None:
        upgraded = upgrade(view, codec=rules.codec, max_message_bytes=rules.max_message_bytes, allowance=allowance)
        view = memoryview(upgraded)
        header = parse_header(view)
        _check_sizes(header, rules)
        allowance = Allowance.for_batches(len(view))  # The conversion has used the allowance for the records.
    else:
        _check_produced_header(header, rules, request_version)
        if header.size > APPENDED_INLINE_BYTES_MAX and not is_in_thread:
            raise AllowanceExceeded(f"{header.size} bytes exceed the limit of {APPENDED_INLINE_BYTES_MAX}")
        _check_crc(view, header)
    if len(view) > header.size:
        view = view[: header.size]
    view, header = _fit_to_topic(_writable(view), header, rules, now_ms, allowance)
    return ValidBatches(view, (header,), is_converted)


def validate_internal(records: Buffer, rules: AppendRules, *, now_ms: int) -> ValidBatches:
    """Return the batches that the broker itself appends (group and transaction records, transaction markers)."""
    view = _writable(memoryview(records))
    headers = _sound_batches(view)
    if rules.timestamp_type is _LOG_APPEND_TIME:
        for header in headers:
            _stamp(view, header, now_ms)
    for header in headers:
        _check_sizes(header, rules)
    if len(view) > rules.segment_bytes:
        raise _too_large_for_segment(len(view), rules)
    return ValidBatches(view, headers)


def validate_replicated(records: Buffer) -> ValidBatches:
    """Return the complete batches with valid checksums that a follower fetched; an incomplete one at the end is
    ignored.

    A corrupt batch and all after it are ignored too: the next fetch starts there.  Raises ApiError(CORRUPT_MESSAGE) if
    it is the first.
    """
    view = memoryview(records)
    headers: list[BatchHeader] = []
    try:
        for header in iterate_batches(view):
            _check_whole(view, header)
            headers.append(header)
    except (CorruptBatch, ApiError) as error:
        if not headers:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return ValidBatches(view[: headers[-1].end if headers else 0], tuple(headers))


def _only_batch(view: memoryview, request_version: int) -> BatchHeader | None:
    """Return the only batch; from version 3 on it must be of magic 2.  None for magic 0 and 1.

    Kafka's ProduceRequest.validateRecords.
    """
    try:
        header = parse_header(view)
    except OldFormat as error:
        if request_version >= _FIRST_VERSION_OF_ONE_BATCH:
            raise _invalid("Produce requests of version 3 and above must contain batches of magic 2") from error
        return None
    except CorruptBatch as error:
        if not _complete_size(view, 0):
            raise _invalid("the produced records contain no complete batch") from error
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
    size = header.size  # Of a batch at the start of the view.
    rest = len(view) - size
    if rest < 0:
        raise _invalid(f"the produced batch is incomplete: {len(view)} of {size} bytes")
    if rest and _complete_size(view, size):
        raise _invalid("Produce requests must contain exactly one batch per partition")
    return header


def _complete_size(view: memoryview, position: int) -> int:
    """Return the size of the batch or message at `position`, 0 if it is incomplete.

    Raises ApiError(CORRUPT_MESSAGE) if there is none.  ByteBufferLogInputStream.nextBatchSize.
    """
    left = len(view) - position
    if left < LOG_OVERHEAD:
        return 0
    length = int.from_bytes(view[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
    if length < SIZE_MIN[MAGIC_0]:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"batch length {length} is too small")
    if left <= MAGIC_POSITION:
        return 0
    magic = view[position + MAGIC_POSITION]
    if magic > _NEWEST_MAGIC:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"unknown magic {magic}")
    size = LOG_OVERHEAD + length
    return size if size <= left else 0


def _check_produced_header(header: BatchHeader, rules: AppendRules, request_version: int) -> None:
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    if codec and (codec > Codec.ZSTD or (codec == Codec.ZSTD and request_version < _FIRST_VERSION_WITH_ZSTD)):
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in Produce version {request_version}")
    if header.base_offset != 0:
        raise _invalid(f"the base offset of a produced batch must be 0, not {header.base_offset}")
    _check_sizes(header, rules)
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise _invalid(f"{count} records do not match last offset delta {header.last_offset_delta}")
    if not codec and count * RECORD_SIZE_MIN > header.size - HEADER_SIZE:
        raise _invalid(f"{count} records do not fit {header.size - HEADER_SIZE} bytes")
    if count > RECORDS_PER_BATCH_MAX:
        message = f"the batch of {count} records exceeds the limit of {RECORDS_PER_BATCH_MAX}"
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, message)
    if attributes & CONTROL_BIT:
        raise _invalid("clients cannot write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(f"sequence number {header.base_sequence} with producer id {header.producer_id}")
    if attributes & LOG_APPEND_TIME_BIT:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "producers cannot set the timestamp type to LogAppendTime")


def _check_stored_codec(header: BatchHeader | None, rules: AppendRules) -> None:
    """Raise ApiError for zstd; `header` is None for magic 0 and 1, which do not support it."""
    chosen = header.attributes & CODEC_MASK if header is not None else Codec.NONE
    stored = chosen if rules.codec is None else rules.codec
    if stored == Codec.ZSTD:
        message = "zstd needs inter.broker.protocol.version 2.1 or later"
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)


def _check_sizes(header: BatchHeader, rules: AppendRules) -> None:
    if header.size > rules.max_message_bytes:
        message = f"the batch of {header.size} bytes is larger than max.message.bytes {rules.max_message_bytes}"
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, message)
    if header.size > rules.segment_bytes:
        raise _too_large_for_segment(header.size, rules)


def _check_crc(view: memoryview, header: BatchHeader) -> None:
    actual = crc_of(view, header.position, header.position + header.size, header.magic)
    if actual != header.crc:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"checksum of the batch is {actual:#010x}, expected {header.crc:#010x}"
        )


def _fit_to_topic(
    view: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int, allowance: Allowance
) -> tuple[memoryview, BatchHeader]:
    """Return the batch with the codec, timestamp type and max timestamp that the topic requires."""
    plain = _plain(view, header, allowance)
    is_ordered, max_timestamp = _check_records(plain, header, rules, now_ms)
    if header.attributes & CODEC_MASK or rules.codec is not None:
        view, header = _compressed(view, header, plain, rules, allowance, is_ordered=is_ordered)
    if rules.timestamp_type is _LOG_APPEND_TIME:
        _stamp(view, header, now_ms)
    elif max_timestamp != header.max_timestamp:
        header.max_timestamp = max_timestamp
        _rewrite(view, header)
    return view, header


def _compressed(
    view: memoryview, header: BatchHeader, plain: bytes, rules: AppendRules, allowance: Allowance, *, is_ordered: bool
) -> tuple[memoryview, BatchHeader]:
    """Return the batch with the codec of the topic, or with its own.

    Records that were compressed, or are from now on, get ascending offsets.
    """
    given = header.codec
    codec = given if rules.codec is None else rules.codec
    if given is codec is Codec.NONE:
        return view, header
    if given is Codec.NONE:
        allowance.take_bytes(len(plain))
    if not is_ordered:
        allowance.take_records(header.record_count)
        view = memoryview(bytearray(_renumbered(plain, header, codec)))
    elif codec is not given:
        view = memoryview(recompress(view, header, plain, codec))
    else:
        return view, header
    header = parse_header(view)
    _check_sizes(header, rules)
    return view, header


def _check_records(plain: bytes, header: BatchHeader, rules: AppendRules, now_ms: int) -> tuple[bool, int]:
    """Check all records; return whether their offset deltas are 0, 1, 2 and so on, and their largest timestamp."""
    try:
        is_ordered, largest, smallest, keyless = check_records(plain, header.record_count)
    except (ValueError, IndexError) as error:
        raise _invalid(describe_malformed_record(error)) from error
    first, last = header.base_timestamp + smallest, header.base_timestamp + largest
    if not TIMESTAMP_MIN <= first <= last <= TIMESTAMP_MAX:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "the timestamp of a record exceeds 64 bits")
    difference_max_ms = rules.timestamp_difference_max_ms
    if (rules.is_compacted and keyless) or (
        difference_max_ms != TIMESTAMP_DIFFERENCE_UNLIMITED
        and rules.timestamp_type is _CREATE_TIME
        and not now_ms - difference_max_ms <= first <= last <= now_ms + difference_max_ms
    ):
        _refuse_records(plain, header, rules, now_ms)
    return is_ordered, last if last >= 0 else NO_TIMESTAMP


def _refuse_records(plain: bytes, header: BatchHeader, rules: AppendRules, now_ms: int) -> None:
    """Raise RecordsRejected for all records without a key or with a timestamp out of range, if there are any; a missing
    timestamp is not.

    One timestamp decides the code, as in LogValidator.processRecordErrors.
    """
    errors: list[tuple[int, str]] = []
    code, reason = ErrorCode.INVALID_RECORD, ""
    has_limit = rules.timestamp_type is _CREATE_TIME
    for index, record in enumerate(iterate_plain(plain, header)):
        timestamp = record.timestamp
        if rules.is_compacted and record.key is None:
            errors.append((index, "Compacted topic cannot accept message without key."))
        elif has_limit and timestamp != NO_TIMESTAMP and not _is_in_range(timestamp, now_ms, rules):
            code, reason = ErrorCode.INVALID_TIMESTAMP, " due to invalid timestamp"
            errors.append((index, f"Timestamp {timestamp} is out of range at time {now_ms}."))
    if errors:
        raise RecordsRejected(code, f"One or more records have been rejected{reason}", errors)


def _is_in_range(timestamp: int, now_ms: int, rules: AppendRules) -> bool:
    difference_max_ms = rules.timestamp_difference_max_ms
    return difference_max_ms == TIMESTAMP_DIFFERENCE_UNLIMITED or abs(now_ms - timestamp) <= difference_max_ms


def _renumbered(plain: bytes, header: BatchHeader, codec: Codec) -> bytes:
    """Return the batch with the offset deltas 0, 1, 2 and so on.  LogValidator.buildRecordsAndAssignOffsets."""
    records = [
        record._replace(offset=header.base_offset + index) for index, record in enumerate(iterate_plain(plain, header))
    ]
    return rebuild_batch(header, records, codec=codec)


def _plain(view: memoryview, header: BatchHeader, allowance: Allowance) -> bytes:
    """Return the uncompressed records of the batch.  Raises AllowanceExceeded before there are more bytes or records
    than allowed.
    """
    if not header.attributes & CODEC_MASK:
        allowance.take_walk(header.record_count, header.size)
        return bytes(view[header.position + HEADER_SIZE : header.position + header.size])
    allowance.take_walk(header.record_count)
    if header.codec is Codec.LZ4 and has_linked_blocks(view[header.position + HEADER_SIZE : header.end]):
        raise _invalid("lz4: the blocks are not independent")
    try:
        region = records_region(view, header, allowance.plain_bytes)
        allowance.take_bytes(len(region))
        return bytes(region)
    except BatchTooLarge as error:
        raise AllowanceExceeded(f"the batch of {header.size} bytes {error.reason}") from error
    except CorruptBatch as error:
        raise _invalid(error.reason) from error


def _stamp(view: memoryview, header: BatchHeader, now_ms: int) -> None:
    """Set LogAppendTime: one bit and the max timestamp apply to all records."""
    header.attributes |= LOG_APPEND_TIME_BIT
    header.max_timestamp = now_ms
    _rewrite(view, header)


def _rewrite(view: memoryview, header: BatchHeader) -> None:
    write_header(view, header, position=header.position, size=header.size)
    seal(view, header)


def _sound_batches(view: memoryview) -> tuple[BatchHeader, ...]:
    try:
        headers = tuple(iterate_batches(view))
        for header in headers:
            _check_whole(view, header)
    except CorruptBatch as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
    return headers


def _check_whole(view: memoryview, header: BatchHeader) -> None:
    _check_crc(view, header)
    if header.magic != 2:
        look_inside(view, header)


def _writable(view: memoryview) -> memoryview:
    return memoryview(bytearray(view)) if view.readonly else view


def _too_large_for_segment(size: int, rules: AppendRules) -> ApiError:
    return ApiError(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes of records exceed segment.bytes {rules.segment_bytes}"
    )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)

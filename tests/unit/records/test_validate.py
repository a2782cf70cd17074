"""Validation of produced batches by the leader: one test per rule, and valid batches stay unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import lz4.frame
import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.records.batch import crc_ok, iterate_records
from kctl.records.build import build_batch, encode_records, recompress
from kctl.records.compression import Codec, compress
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record, TimestampType, parse_header, seal
from kctl.records.old_formats.legacy import build_messages
from kctl.records.validate import (
    AppendRules,
    RecordsRejected,
    validate_internal,
    validate_produced,
    validate_replicated,
)
from tests.rows import for_rows

NOW_MS = 1_600_000_000_000
RULES = AppendRules(max_message_bytes=10_000, segment_bytes=100_000)
RECORDS = [Record(index, NOW_MS + index, b"k", b"v%d" % index) for index in range(3)]


def produced(batch: bytes, rules: AppendRules = RULES, version: int = 9) -> bytes:
    """The batch as it would be appended, after the leader has written offset and epoch into its buffer."""
    buffer = validate_produced(bytearray(batch), rules, now_ms=NOW_MS, request_version=version).buffer
    assert not memoryview(buffer).readonly
    return bytes(buffer)


def code_of(batch: bytes, rules: AppendRules = RULES, version: int = 9) -> ErrorCode:
    buffer = bytearray(batch)
    with pytest.raises(ApiError) as caught:
        validate_produced(buffer, rules, now_ms=NOW_MS, request_version=version)
    assert buffer == batch, "a refused batch is not touched"
    return caught.value.code


def changed(position: int, value: int, size: int, *, batch: bytes | None = None, sealed: bool = True) -> bytes:
    """A batch with one field of its header set."""
    data = bytearray(batch or build_batch(RECORDS))
    data[position : position + size] = value.to_bytes(size, "big", signed=True)
    if sealed:
        seal(data, parse_header(data))
    return bytes(data)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_valid_batch_is_stored_unchanged(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0)
    assert produced(batch) == batch


@for_rows(
    "batch, code",
    [
        (b"", ErrorCode.INVALID_RECORD),
        (b"\0" * 11, ErrorCode.INVALID_RECORD),
        (build_batch(RECORDS)[:-1], ErrorCode.INVALID_RECORD),
        (build_batch(RECORDS)[:60], ErrorCode.INVALID_RECORD),
        (build_batch(RECORDS) + b"\0" * 12, ErrorCode.CORRUPT_MESSAGE),
        (build_batch(RECORDS) + b"\0" * 11 + b"\x7f\0\0\0\0\x03", ErrorCode.CORRUPT_MESSAGE),
        (build_batch(RECORDS) * 2, ErrorCode.INVALID_RECORD),
        (b"\0" * 100, ErrorCode.CORRUPT_MESSAGE),
        (changed(17, 0, 4, sealed=False), ErrorCode.CORRUPT_MESSAGE),
        (changed(0, 5, 8), ErrorCode.INVALID_RECORD),
        (changed(23, 1, 4), ErrorCode.INVALID_RECORD),
        (changed(23, -1, 4), ErrorCode.INVALID_RECORD),
        (changed(57, 0, 4), ErrorCode.INVALID_RECORD),
        (changed(57, -3, 4), ErrorCode.INVALID_RECORD),
        (changed(43, 7, 8), ErrorCode.INVALID_RECORD),
        (changed(21, 0x30, 2), ErrorCode.INVALID_RECORD),
        (changed(21, 0x08, 2), ErrorCode.INVALID_TIMESTAMP),
        (changed(21, 5, 2), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (build_batch([Record(0, NOW_MS, None, bytes(10_000))]), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_a_violation_has_its_error(batch: bytes, code: ErrorCode) -> None:
    assert code_of(batch) is code


def test_records_that_end_early_are_described_as_such() -> None:
    count = len(RECORDS) + 1
    batch = changed(23, count - 1, 4, batch=changed(57, count, 4))
    with pytest.raises(ApiError, match="malformed record: the records end early"):
        produced(batch)


def test_a_batch_that_fits_no_segment_is_refused() -> None:
    batch = build_batch([Record(0, NOW_MS, None, bytes(5000))])
    assert code_of(batch, replace(RULES, segment_bytes=4000)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_zstd_needs_produce_7() -> None:
    batch = build_batch(RECORDS, codec=Codec.ZSTD)
    assert code_of(batch, version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produced(batch, version=7) == batch


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_become_a_batch_where_the_version_allows_them(magic: int) -> None:
    messages = build_messages(RECORDS, magic=magic)
    batch = produced(messages, version=2)
    assert parse_header(batch).size == len(batch)
    assert [record.value for record in iterate_records(batch)] == [record.value for record in RECORDS]
    assert code_of(messages, version=3) is ErrorCode.INVALID_RECORD


def test_bytes_behind_the_batch_that_are_no_batch_are_cut_off() -> None:
    batch = build_batch(RECORDS)
    assert produced(batch + b"\0" * 11) == batch
    assert produced(batch + batch[:-1]) == batch


def test_log_append_time_is_one_bit_and_the_max_timestamp() -> None:
    batch = produced(build_batch(RECORDS), replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert crc_ok(batch)
    assert {record.timestamp for record in iterate_records(batch)} == {NOW_MS}
    assert batch[61:] == build_batch(RECORDS)[61:]


def test_a_max_timestamp_below_the_first_one_is_computed_anew() -> None:
    batch = produced(changed(35, NOW_MS - 1, 8))
    assert crc_ok(batch)
    assert parse_header(batch).max_timestamp == NOW_MS + 2


def test_a_lone_record_has_its_batch_s_max_timestamp() -> None:
    batch = produced(changed(35, NOW_MS + 99, 8, batch=build_batch(RECORDS[:1])))
    assert parse_header(batch).max_timestamp == NOW_MS


def test_records_without_timestamps_are_accepted() -> None:
    batch = build_batch([Record(index, -1, b"k") for index in range(3)])
    assert produced(batch, replace(RULES, timestamp_difference_max_ms=1000)) == batch


@for_rows("codec", list(Codec))
@for_rows("stamp", [-(1 << 63), -(1 << 63) + NOW_MS, -2, 0, (1 << 63) - 1])
def test_every_timestamp_is_accepted_without_a_limit(stamp: int, codec: Codec) -> None:
    taken = produced(build_batch([Record(0, stamp, b"k")], codec=codec), RULES)
    assert [record.timestamp for record in iterate_records(taken)] == [stamp]
    limited = replace(RULES, timestamp_difference_max_ms=(1 << 63) - 2)
    if stamp < -(1 << 62):
        with pytest.raises(RecordsRejected):
            produced(build_batch([Record(0, stamp, b"k")], codec=codec), limited)


@pytest.mark.parametrize("codec", list(Codec))
def test_timestamps_out_of_range_are_named_one_by_one(codec: Codec) -> None:
    stamps = [NOW_MS, NOW_MS - 1001, NOW_MS + 1000, NOW_MS + 1001]
    batch = build_batch([Record(0, stamp) for stamp in stamps], codec=codec)
    with pytest.raises(RecordsRejected) as caught:
        produced(batch, replace(RULES, timestamp_difference_max_ms=1000))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [1, 3]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_requires_keys(codec: Codec) -> None:
    rules = replace(RULES, is_compacted=True)
    batch = build_batch(RECORDS, codec=codec)
    assert produced(batch, rules) == batch
    with pytest.raises(RecordsRejected) as caught:
        produced(build_batch([RECORDS[0], Record(1, NOW_MS), Record(2, NOW_MS)], codec=codec), rules)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1, 2]


def test_one_wrong_timestamp_decides_the_code_for_records_without_keys_too() -> None:
    """LogValidator.processRecordErrors."""
    rules = replace(RULES, is_compacted=True, timestamp_difference_max_ms=1000)
    records = [Record(0, NOW_MS), Record(1, 5, b"k"), Record(2, NOW_MS, b"k"), Record(3, 5)]
    with pytest.raises(RecordsRejected) as caught:
        produced(build_batch(records), rules)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [(index, message.split()[0]) for index, message in caught.value.record_errors] == [
        *((0, "Compacted"), (1, "Timestamp"), (3, "Compacted"))
    ]


def test_malformed_records_are_invalid_records() -> None:
    rules = replace(RULES, is_compacted=True)
    batch = bytearray(build_batch(RECORDS))
    batch[-1] = 99  # A header count without headers.
    seal(batch, parse_header(batch))
    assert code_of(bytes(batch), rules) is ErrorCode.INVALID_RECORD
    assert code_of(changed(21, Codec.GZIP, 2), rules) is ErrorCode.INVALID_RECORD


def with_offset_delta_two_in_the_first_record() -> bytes:
    batch = bytearray(build_batch(RECORDS))
    batch[61 + 3] = 4
    seal(batch, parse_header(batch))
    return bytes(batch)


def test_offset_deltas_of_an_uncompressed_batch_are_kept_as_in_kafka() -> None:
    batch = with_offset_delta_two_in_the_first_record()
    assert produced(batch, RULES) == batch


@for_rows("stored", [None, *Codec])
def test_offset_deltas_of_a_compressed_batch_are_assigned_again_as_in_kafka(stored: Codec | None) -> None:
    plain = with_offset_delta_two_in_the_first_record()
    batch = recompress(memoryview(plain), parse_header(plain), plain[61:], Codec.LZ4)
    taken = produced(bytes(batch), replace(RULES, codec=stored))
    assert crc_ok(taken)
    assert parse_header(taken).codec is (Codec.LZ4 if stored is None else stored)
    assert list(iterate_records(taken)) == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_an_offset_delta_with_bits_beyond_its_type_is_read_as_in_java(codec: Codec) -> None:
    record = bytes.fromhex("1c 00 00 ffffffff7f 02 6b 02 76 02 00 00")
    batch = batch_of_bytes(compress(codec, record), count=1, codec=codec)
    taken = produced(batch)
    offset = -1 << 31 if codec is Codec.NONE else 0
    assert [(found.offset, found.value) for found in iterate_records(taken)] == [(offset, b"v")]


def test_lz4_frames_that_kafka_s_clients_cannot_read_are_refused() -> None:
    record = bytes(encode_records([(0, Record(0, NOW_MS, b"key", b"value " * 20_000))], NOW_MS))
    rules = replace(RULES, max_message_bytes=1 << 20, segment_bytes=1 << 20)
    for is_linked in (False, True):
        frame = lz4.frame.compress(record, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=is_linked)
        batch = batch_of_bytes(frame, count=1, codec=Codec.LZ4)
        if is_linked:
            assert code_of(batch, rules) is ErrorCode.INVALID_RECORD
        else:
            assert produced(batch, rules) == batch


def batch_of_bytes(records: bytes, *, count: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch with a correct header and checksum around the given bytes."""
    batch = bytearray(build_batch([Record(0, NOW_MS, b"key", b"value")] * count, codec=codec)[:61] + records)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    seal(batch, parse_header(batch))
    return bytes(batch)


ONE = bytes(encode_records([(0, Record(0, NOW_MS, b"key", b"value"))], NOW_MS))


@for_rows(
    "records, count, codec",
    [
        (b"\xff" * 40, 1, Codec.NONE),
        (b"", 1, Codec.NONE),
        (ONE, 2, Codec.NONE),
        (ONE + b"\x00", 1, Codec.NONE),
        (ONE + ONE, 1, Codec.NONE),
        (b"no gzip", 1, Codec.GZIP),
        (compress(Codec.GZIP, ONE), 2, Codec.GZIP),
        (compress(Codec.GZIP, ONE + b"\x00"), 1, Codec.GZIP),
        (compress(Codec.LZ4, b"\xff" * 40), 1, Codec.LZ4),
    ],
)
@for_rows("is_compacted", [False, True])
def test_records_that_do_not_match_their_header_are_refused(
    records: bytes, count: int, codec: Codec, is_compacted: bool
) -> None:
    batch = batch_of_bytes(records, count=count, codec=codec)
    assert code_of(batch, replace(RULES, is_compacted=is_compacted)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("claimed_ms", [-1, NOW_MS - 1, NOW_MS + 5, 1 << 62])
def test_the_max_timestamp_is_that_of_the_records_whatever_the_producer_claims(claimed_ms: int) -> None:
    batch = bytearray(build_batch([Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS + 2, None, b"v")]))
    batch[35:43] = claimed_ms.to_bytes(8, "big", signed=True)
    seal(batch, parse_header(batch))
    taken = produced(bytes(batch), RULES)
    assert parse_header(taken).max_timestamp == NOW_MS + 2
    assert crc_ok(taken)


@for_rows("given", list(Codec))
@for_rows("expected", list(Codec))
def test_the_topic_s_compression_type_rules(given: Codec, expected: Codec) -> None:
    batch = build_batch(RECORDS, codec=given, producer_id=4, producer_epoch=1, base_sequence=9)
    taken = produced(batch, replace(RULES, codec=expected))
    assert crc_ok(taken)
    assert parse_header(taken).codec is expected
    assert list(iterate_records(taken)) == RECORDS
    assert (taken == batch) == (given == expected)


def test_a_batch_may_become_too_large_by_recompression() -> None:
    batch = build_batch([Record(0, NOW_MS, None, bytes(50_000))], codec=Codec.GZIP)
    assert len(batch) < RULES.max_message_bytes
    assert code_of(batch, replace(RULES, codec=Codec.NONE)) is ErrorCode.MESSAGE_TOO_LARGE


def test_the_broker_itself_may_append_several_batches_and_control_batches() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    control = build_end_transaction_marker(marker, producer_id=1, producer_epoch=0, timestamp=NOW_MS)
    valid = validate_internal(build_batch(RECORDS) + control, RULES, now_ms=NOW_MS)
    assert [header.record_count for header in valid.headers] == [3, 1]
    with pytest.raises(ApiError) as caught:
        validate_internal(build_batch(RECORDS) * 2000, RULES, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_follower_takes_whole_batches_before_damage_and_refuses_damage() -> None:
    one, two = build_batch(RECORDS), build_batch(RECORDS, base_offset=3)
    valid = validate_replicated(one + two[:-1])
    assert [header.base_offset for header in valid.headers] == [0]
    assert bytes(valid.buffer) == one
    damage: list[Callable[[bytearray], None]] = [
        lambda data: data.__setitem__(-1, data[-1] ^ 1),
        lambda data: data.__setitem__(len(one) + 16, 3),
    ]
    for harm in damage:
        data = bytearray(one + two)
        harm(data)
        valid = validate_replicated(data)
        assert (len(valid.headers), bytes(valid.buffer)) == (1, one)
        with pytest.raises(ApiError) as caught:
            validate_replicated(data[len(one) :])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE

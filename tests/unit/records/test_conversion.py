"""Conversion between formats for old producers and old consumers, with every codec."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.records.batch import crc_ok, iterate_batches, iterate_records, parse_any_header
from kctl.records.build import build_batch, rebuild_batch
from kctl.records.compression import Codec, compress
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import CorruptBatch, Record, TimestampType, parse_header
from kctl.records.old_formats.conversion import downgrade, upgrade, upgrade_stored, without_old_messages
from kctl.records.old_formats.legacy import build_messages
from kctl.records.validate import AppendRules, RecordsRejected, validate_produced
from tests.rows import for_rows
from tests.unit.records.old_messages import OLD_CODECS, message, pair, wrapper

NOW_MS = 1_600_000_000_000
RECORDS = [Record(i, NOW_MS - i, b"k%d" % i, b"v" * i) for i in range(3)]
RULES = AppendRules(max_message_bytes=10_000, segment_bytes=100_000)


def produced(messages: bytes, rules: AppendRules = RULES) -> bytes:
    return bytes(validate_produced(bytearray(messages), rules, now_ms=NOW_MS, request_version=2).buffer)


def refusal(messages: bytes, rules: AppendRules = RULES) -> ApiError:
    with pytest.raises(ApiError) as caught:
        produced(messages, rules)
    return caught.value


def plain(records: list[Record], magic: int) -> list[Record]:
    return [record if magic else record._replace(timestamp=-1) for record in records]


# Producing


@for_rows("expected", [None, *Codec])
@for_rows("codec", OLD_CODECS)
@for_rows("magic", [0, 1])
def test_messages_become_one_batch_with_the_codec_of_the_topic(
    magic: int, codec: Codec, expected: Codec | None
) -> None:
    batch = upgrade(build_messages(RECORDS, magic=magic, codec=codec), codec=expected, max_message_bytes=10_000)
    header = parse_header(batch)
    assert crc_ok(batch)
    assert header.size == len(batch)
    assert header.codec is (codec if expected is None else expected)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 2, 3)
    assert header.max_timestamp == (NOW_MS if magic else -1)
    assert (header.producer_id, header.base_sequence, header.attributes & ~7) == (-1, -1, 0)
    assert list(iterate_records(batch)) == plain(RECORDS, magic)


def test_offsets_of_the_producer_do_not_matter() -> None:
    inner = b"".join(message(pair(None, b"%d" % i), offset=0) for i in range(3))
    assert [record.offset for record in iterate_records(produced(wrapper(inner)))] == [0, 1, 2]
    loose = b"".join(message(pair(None, b"%d" % i), offset=77 - i) for i in range(3))
    assert [record.offset for record in iterate_records(produced(loose))] == [0, 1, 2]


def test_append_time_counts_for_old_messages_too() -> None:
    rules = AppendRules(10_000, 100_000, timestamp_type=TimestampType.LOG_APPEND_TIME)
    batch = produced(build_messages(RECORDS, magic=0), rules)
    assert crc_ok(batch)
    assert {record.timestamp for record in iterate_records(batch)} == {NOW_MS}


def test_a_message_cut_off_at_the_end_is_not_taken() -> None:
    batch = produced(build_messages(RECORDS, magic=1)[:-1])
    assert [record.value for record in iterate_records(batch)] == [b"", b"v"]


BAD_INNER = bytearray(message(pair(b"k", b"v")))
BAD_INNER[13] ^= 1
BAD_OUTER = bytearray(message(pair(b"k", b"v")))
BAD_OUTER[13] ^= 1
TWO_WRAPPERS = build_messages(RECORDS, magic=1, codec=Codec.GZIP) * 2


@for_rows(
    "messages, code",
    [
        (bytes(BAD_OUTER), ErrorCode.CORRUPT_MESSAGE),
        (wrapper(bytes(BAD_INNER)), ErrorCode.CORRUPT_MESSAGE),
        (message(b"\0" * 7, magic=1, size=15), ErrorCode.CORRUPT_MESSAGE),
        (message(pair(None, b"v"), magic=0) + message(pair(None, b"v"), magic=1), ErrorCode.INVALID_RECORD),
        (message(pair(None, b"v"), magic=0) + build_batch(RECORDS), ErrorCode.INVALID_RECORD),
        (message(pair(None, b"v")) + b"\0" * 11 + b"\5" * 9, ErrorCode.CORRUPT_MESSAGE),
        (TWO_WRAPPERS, ErrorCode.INVALID_RECORD),
        (wrapper(message(pair(None, b"v"), magic=0)), ErrorCode.INVALID_RECORD),
        (wrapper(wrapper(message(pair(None, b"v")))), ErrorCode.INVALID_RECORD),
        (message(pair(None, b"not gzip"), attributes=1), ErrorCode.INVALID_RECORD),
        (message(pair(None, compress(Codec.ZSTD, b"v")), attributes=4), ErrorCode.INVALID_RECORD),
        (message(pair(None, b"v"), attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (message(pair(None, b"v"), attributes=8), ErrorCode.INVALID_TIMESTAMP),
        (message(pair(None, b"v"), timestamp=-2), ErrorCode.INVALID_TIMESTAMP),
        (message(pair(None, b"v" * 10_000)), ErrorCode.MESSAGE_TOO_LARGE),
        (build_messages([Record(0, 5, None, b"v" * 6000)] * 2, magic=1), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_invalid_messages_are_refused_with_kafkas_error_codes(messages: bytes, code: ErrorCode) -> None:
    assert refusal(messages).code is code


def test_records_rejected_one_by_one_are_named() -> None:
    compacted = AppendRules(10_000, 100_000, is_compacted=True)
    mixed = build_messages([Record(0, 5, b"k", b"v"), Record(1, 5, None, b"v")], magic=1, codec=Codec.SNAPPY)
    rejected = refusal(mixed, compacted)
    assert isinstance(rejected, RecordsRejected)
    assert [index for index, _ in rejected.record_errors] == [1]
    bounded = AppendRules(10_000, 100_000, timestamp_difference_max_ms=1000)
    assert refusal(mixed, bounded).code is ErrorCode.INVALID_TIMESTAMP
    assert produced(build_messages(RECORDS, magic=0), bounded), "no time is never out of range"


# Fetching


def stored(
    records: list[Record] = RECORDS, *, base_offset: int = 100, codec: Codec = Codec.NONE, append_time: bool = False
) -> bytes:
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    return build_batch(records, base_offset=base_offset, codec=codec, timestamp_type=kind)


def read(messages: bytes) -> list[Record]:
    return [record for header in iterate_batches(messages) for record in iterate_records(messages, header)]


def taken_back(
    batches: bytes, magic: int = 1, *, first_offset: int = 0, size_max: int = 1 << 20
) -> tuple[list[Record], int]:
    messages, next_offset = downgrade(batches, magic, first_offset=first_offset, size_max=size_max)
    assert all(header.magic <= magic for header in iterate_batches(messages))
    return read(messages), next_offset


def at(base_offset: int, records: list[Record] = RECORDS) -> list[Record]:
    return [record._replace(offset=base_offset + i) for i, record in enumerate(records)]


@for_rows("codec", OLD_CODECS)
@for_rows("magic", [0, 1])
def test_batches_become_messages_with_the_same_offsets_times_and_codec(magic: int, codec: Codec) -> None:
    batches = stored(codec=codec) + stored(base_offset=200, codec=codec)
    messages, next_offset = downgrade(batches, magic, first_offset=100, size_max=1 << 20)
    headers = list(iterate_batches(messages))
    assert {header.codec for header in headers} == {codec}
    assert len(headers) == (6 if codec is Codec.NONE else 2)
    assert all(crc_ok(messages, header) for header in headers)
    assert read(messages) == plain(at(100) + at(200), magic)
    assert next_offset == 203


def test_headers_are_left_out() -> None:
    records, _ = taken_back(stored([Record(0, 5, b"k", b"v", (("h", b"x"),))]))
    assert records == [Record(100, 5, b"k", b"v")]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_append_time_stays_append_time(codec: Codec) -> None:
    messages, _ = downgrade(stored(codec=codec, append_time=True), 1, first_offset=0, size_max=1 << 20)
    assert parse_any_header(messages).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in read(messages)} == {NOW_MS}


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_gaps_from_compaction_stay_gaps(codec: Codec) -> None:
    batch = stored([Record(0, NOW_MS, b"%d" % i, b"v") for i in range(5)], codec=codec)
    header = parse_header(batch)
    kept = [record for record in iterate_records(batch) if record.offset in {101, 104}]
    messages, next_offset = downgrade(rebuild_batch(header, kept), 1, first_offset=100, size_max=1 << 20)
    assert read(messages) == kept
    assert next_offset == 105
    assert taken_back(rebuild_batch(header, []) + stored(base_offset=105)) == (at(105), 108)


def test_transaction_markers_are_left_out() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    control = build_end_transaction_marker(marker, producer_id=1, producer_epoch=0, timestamp=5, base_offset=103)
    assert taken_back(stored() + control + stored(base_offset=104)) == (at(100) + at(104), 107)
    assert taken_back(control) == ([], 104)


def test_uncompressed_records_before_the_requested_offset_are_left_out() -> None:
    assert taken_back(stored(), first_offset=102) == (at(100)[2:], 103)
    assert taken_back(stored(codec=Codec.GZIP), first_offset=102) == (at(100), 103)


def test_zstd_is_an_error_where_it_comes_first_and_the_end_where_it_comes_later() -> None:
    zstd = stored(codec=Codec.ZSTD)
    with pytest.raises(ApiError) as caught:
        downgrade(zstd, 1, first_offset=100, size_max=1 << 20)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert taken_back(stored(base_offset=97) + zstd) == (at(97), 100)


def test_old_messages_are_unchanged_for_a_reader_of_their_format() -> None:
    for magic in (0, 1):
        messages = build_messages(at(100), magic=magic, codec=Codec.LZ4)
        assert downgrade(messages, 1, first_offset=101, size_max=1 << 20) == (messages, 103)
    newer = build_messages(at(100), magic=1, codec=Codec.LZ4)
    assert taken_back(newer, magic=0) == (plain(at(100), 0), 103)


def test_only_whole_batches_up_to_the_limit_are_taken_but_always_one() -> None:
    batches = stored(codec=Codec.GZIP) + stored(base_offset=103, codec=Codec.GZIP)
    assert taken_back(batches, size_max=1) == (at(100), 103)
    assert taken_back(batches[:-1]) == (at(100), 103)
    assert taken_back(batches[:50], first_offset=100) == ([], 100)


def test_damage_in_the_log_is_reported() -> None:
    batch = bytearray(stored())
    batch[61] = 0x7F
    with pytest.raises(CorruptBatch):
        downgrade(batch, 1, first_offset=0, size_max=1 << 20)


def test_more_records_than_the_bound_are_refused() -> None:
    batch = bytearray(stored())
    batch[57:61] = (1 << 30).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="too many"):
        downgrade(batch, 1, first_offset=0, size_max=1 << 20)


# Old messages in the log


@for_rows("codec", OLD_CODECS)
@for_rows("build", [lambda r, c: build_messages(r, magic=0, codec=c), lambda r, c: build_messages(r, magic=1, codec=c)])
def test_a_stored_message_as_a_batch_has_its_offsets_and_times(
    build: Callable[[list[Record], Codec], bytes], codec: Codec
) -> None:
    messages = build([Record(50, 9, b"k", b"v"), Record(53, 8, None, None)], codec)
    batches = b"".join(upgrade_stored(messages, header) for header in iterate_batches(messages))
    assert read(batches) == read(messages)
    assert [header.last_offset for header in iterate_batches(batches)] == [
        header.last_offset for header in iterate_batches(messages)
    ]


def test_a_stored_message_with_append_time_keeps_it() -> None:
    inner = message(pair(b"k", b"v"), timestamp=5) + message(pair(b"k", b"v"), offset=1, timestamp=6)
    data = message(pair(None, compress(Codec.GZIP, inner)), offset=9, attributes=8 | Codec.GZIP, timestamp=100)
    batch = upgrade_stored(data, parse_any_header(data))
    assert parse_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert read(batch) == read(data)


def test_batches_without_old_messages_are_left_alone() -> None:
    data = memoryview(stored() + stored(base_offset=103, codec=Codec.GZIP))
    for size in (len(data), len(data) - 1, 20, 12, 0):
        assert without_old_messages(data[:size]).obj is data.obj


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_old_messages_between_batches_become_batches(codec: Codec) -> None:
    old = build_messages(at(103), magic=1, codec=codec)
    data = stored() + old + stored(base_offset=106)
    converted = without_old_messages(memoryview(data))
    assert {header.magic for header in iterate_batches(converted)} == {2}
    assert read(bytes(converted)) == read(data)
    assert read(bytes(without_old_messages(memoryview(data)[:-1]))) == read(data)[:-3]


def test_an_old_message_with_a_wrong_checksum_does_not_become_a_batch() -> None:
    data = bytearray(build_messages(at(103), magic=1))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        without_old_messages(memoryview(data))

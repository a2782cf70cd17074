"""Messages of magic 0 and 1: layout, wrappers, and errors for damage."""

from __future__ import annotations

import struct

import lz4.frame
import pytest

from kctl.records.batch import crc_ok, iterate_batches, iterate_records, parse_any_header
from kctl.records.build import build_batch
from kctl.records.compression import Codec, compress, decompress
from kctl.records.header import CorruptBatch, Record, TimestampType
from kctl.records.old_formats.legacy import build_messages, iterate_messages, look_inside, parse_message
from tests.rows import for_rows
from tests.unit.records.old_messages import OLD_CODECS, message, pair, wrapper

WRAPPING = OLD_CODECS[1:]
RECORDS = [Record(40 + 2 * i, 1_600_000_000_000 - i, b"k%d" % i, b"v" * i) for i in range(3)]


def records_of(data: bytes) -> list[Record]:
    return [record for header in iterate_batches(data) for record in iterate_records(data, header)]


@pytest.mark.parametrize(
    ("magic", "expected"),
    [
        (0, "0000000000000028 00000013 fdc12e2f 00 00 00000001 6b 00000004 76616c75"),
        (1, "0000000000000028 0000001b 1bb91c7a 01 00 00000174876e8000 00000001 6b 00000004 76616c75"),
    ],
)
def test_every_field_is_where_kafka_has_it(magic: int, expected: str) -> None:
    built = build_messages([Record(40, 1_600_000_000_000, b"k", b"valu")], magic=magic)
    assert built == bytes.fromhex(expected)


@for_rows("codec", OLD_CODECS)
@for_rows("magic", [0, 1])
def test_built_messages_are_read_with_offsets_and_gaps(magic: int, codec: Codec) -> None:
    data = build_messages(RECORDS, magic=magic, codec=codec)
    headers = list(iterate_batches(data))
    assert len(headers) == (3 if codec is Codec.NONE else 1)
    assert all(crc_ok(data, header) for header in headers)
    assert headers[-1].last_offset == 44
    assert headers[0].max_timestamp == (1_600_000_000_000 if magic else -1)
    expected = RECORDS if magic else [record._replace(timestamp=-1) for record in RECORDS]
    assert records_of(data) == expected


@pytest.mark.parametrize("codec", WRAPPING)
def test_offsets_in_a_wrapper_are_absolute_in_magic_0_and_relative_in_magic_1(codec: Codec) -> None:
    for magic, offsets in ((0, [40, 42, 44]), (1, [0, 2, 4])):
        data = build_messages(RECORDS, magic=magic, codec=codec)
        value = data[data.index(b"\xff\xff\xff\xff") + 8 :]
        if codec is Codec.LZ4 and magic == 0:
            value = value[:6] + b"\x82" + value[7:]
        assert [header.last_offset for header in iterate_batches(decompress(codec, value))] == offsets


def test_the_append_time_of_a_wrapper_counts_for_all_its_records() -> None:
    inner = message(pair(b"k", b"v"), timestamp=5) + message(pair(b"k", b"v"), offset=1, timestamp=6)
    data = message(pair(None, compress(Codec.GZIP, inner)), offset=9, attributes=8 | Codec.GZIP, timestamp=100)
    assert [(record.offset, record.timestamp) for record in records_of(data)] == [(8, 100), (9, 100)]
    assert parse_any_header(data).timestamp_type is TimestampType.LOG_APPEND_TIME


def test_building_with_append_time_marks_wrapper_and_messages() -> None:
    for codec in (Codec.NONE, Codec.SNAPPY):
        records = [record._replace(timestamp=77) for record in RECORDS]
        data = build_messages(records, magic=1, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
        assert {header.timestamp_type for header in iterate_batches(data)} == {TimestampType.LOG_APPEND_TIME}
        assert records_of(data) == records
    old = build_messages(RECORDS, magic=0, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {old[17]} == {0}, "magic 0 has no such bit"


def test_inspecting_a_wrapper_completes_its_header() -> None:
    for magic in (0, 1):
        data = build_messages(RECORDS, magic=magic, codec=Codec.LZ4)
        header = parse_message(data)
        assert (header.base_offset, header.last_offset, header.record_count) == (44, 44, 1)
        look_inside(data, header)
        assert (header.base_offset, header.last_offset, header.record_count) == (40, 44, 3)
        assert list(iterate_records(data, header)) == records_of(data)


def test_inspecting_a_batch_of_magic_2_changes_nothing() -> None:
    data = build_batch(RECORDS, base_offset=5, codec=Codec.GZIP)
    header = parse_any_header(data)
    look_inside(data, header)
    assert (header.base_offset, header.last_offset) == (5, 7)


def test_lz4_frames_of_magic_0_have_the_header_checksum_of_kafkas_first_writer() -> None:
    value = {
        magic: build_messages([Record(0, 5, None, b"v" * 100)], magic=magic, codec=Codec.LZ4)[start:]
        for magic, start in ((0, 26), (1, 34))
    }
    assert value[0][:7].hex() == "04224d186040" + "1a"
    assert value[1][:7].hex() == "04224d186040" + "82"


@pytest.mark.parametrize("checksum", [0x82, 0x1A, 0x00])
def test_lz4_frames_of_magic_0_are_read_whatever_the_header_checksum(checksum: int) -> None:
    inner = message(pair(None, b"v"), magic=0)
    frame = bytearray(compress(Codec.LZ4, inner))
    frame[6] = checksum
    assert [r.value for r in records_of(message(pair(None, bytes(frame)), magic=0, attributes=3))] == [b"v"]


def test_lz4_frames_of_magic_1_need_the_right_header_checksum() -> None:
    frame = bytearray(compress(Codec.LZ4, message(pair(None, b"v"))))
    frame[6] = 0x1A
    with pytest.raises(CorruptBatch, match="lz4"):
        records_of(message(pair(None, bytes(frame)), attributes=3))


def test_lz4_frames_of_magic_0_may_contain_their_content_size() -> None:
    inner = message(pair(None, b"v" * 50), magic=0)
    frame = bytearray(lz4.frame.compress(inner, store_size=True))
    frame[14] ^= 0xFF
    assert [r.value for r in records_of(message(pair(None, bytes(frame)), magic=0, attributes=3))] == [b"v" * 50]


def test_a_produced_wrapper_at_offset_0_keeps_the_offsets_inside() -> None:
    inner = b"".join(message(pair(None, b"%d" % i), offset=0) for i in range(3))
    assert [record.offset for record in records_of(wrapper(inner))] == [0, 0, 0]


def test_messages_of_magic_0_in_a_wrapper_of_magic_1_are_read_as_kafka_reads_them() -> None:
    inner = message(pair(None, b"a"), magic=0) + message(pair(None, b"b"), magic=1, offset=1, timestamp=3)
    data = wrapper(inner, offset=11)
    assert [(r.offset, r.timestamp, r.value) for r in records_of(data)] == [(10, -1, b"a"), (11, 3, b"b")]
    with pytest.raises(CorruptBatch, match="magic 0 inside"):
        list(iterate_messages(data, parse_message(data), is_produced=True))


def test_a_message_cut_off_at_the_end_of_a_wrapper_is_left_out() -> None:
    inner = message(pair(None, b"a")) + message(pair(None, b"b"), offset=1)[:-1]
    assert [record.value for record in records_of(wrapper(inner))] == [b"a"]


def test_wrong_checksums_inside_matter_only_for_producers() -> None:
    inner = bytearray(message(pair(None, b"a")))
    inner[12] ^= 1
    data = wrapper(bytes(inner))
    assert [record.value for record in records_of(data)] == [b"a"]
    with pytest.raises(CorruptBatch, match="wrong checksum"):
        list(iterate_messages(data, parse_message(data), is_produced=True))


def test_unknown_attribute_bits_are_ignored() -> None:
    for magic in (0, 1):
        header = parse_any_header(message(pair(None, b"a"), magic=magic, attributes=0x78))
        assert not header.is_control
        assert not header.is_transactional
        assert header.timestamp_type is (TimestampType.LOG_APPEND_TIME if magic else TimestampType.CREATE_TIME)


def test_negative_lengths_are_no_key_and_no_value() -> None:
    assert records_of(message(struct.pack(">ii", -5, -9))) == [Record(0, 7, None, None)]


@pytest.mark.parametrize("magic", [0, 1])
def test_bytes_behind_the_value_are_ignored_as_in_kafka(magic: int) -> None:
    data = message(pair(b"k", b"v") + b"more", magic=magic)
    assert [(record.key, record.value) for record in records_of(data)] == [(b"k", b"v")]


@for_rows(
    "data, reason",
    [
        (message(b"\0" * 7, magic=0, size=13), "batch length 13 is too small"),
        (message(b"\0" * 7, size=21), "message size 21"),
        (message(struct.pack(">i", 9) + b"k" * 8), "invalid key length 9"),
        (message(struct.pack(">ii", -1, 5) + b"valu"), "invalid value length 5"),
        (message(pair(None, None), attributes=1), "without a value"),
        (message(pair(None, b"no gzip"), attributes=1), "gzip"),
        (message(pair(None, b""), attributes=3, magic=0), "lz4"),
        (message(pair(None, compress(Codec.ZSTD, message(pair(None, b"v")))), attributes=4), "zstd"),
        (message(pair(None, b"v"), attributes=5), "codec 5"),
        (wrapper(b""), "without messages"),
        (wrapper(message(pair(None, b"v"))[:-1]), "without messages"),
        (wrapper(message(b"", size=13)), "message size 13 inside"),
        (wrapper(message(b"\0" * 4, size=14)), "too small for its fields"),
        (wrapper(wrapper(message(pair(None, b"v")))), "inside of another one"),
        (wrapper(message(pair(None, b"v"), magic=2)), "magic 2 inside"),
        (wrapper(message(pair(None, b"v"), offset=9), offset=8), "less than the last one inside"),
    ],
)
def test_damage_is_reported(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        records_of(data)


def test_a_cut_off_message_ends_the_iteration() -> None:
    data = build_messages(RECORDS, magic=1)
    assert [len(list(iterate_batches(data[:size]))) for size in (0, 11, 12, 26, 36, 37, 71, 72, len(data))] == [
        *(0, 0, 0, 0, 1, 1, 1, 1, 3)
    ]


def test_a_wrapper_may_not_grow_beyond_its_bound() -> None:
    data = build_messages([Record(0, 5, None, b"\0" * 100_000)], magic=1, codec=Codec.GZIP)
    assert len(data) < 1000
    with pytest.raises(CorruptBatch, match="more than 50000 bytes"):
        list(iterate_records(data, size_max=50_000))


def test_zstd_is_refused_in_old_formats() -> None:
    with pytest.raises(ValueError, match="zstd"):
        build_messages(RECORDS, magic=1, codec=Codec.ZSTD)


def test_no_records_build_no_bytes() -> None:
    assert [build_messages([], magic=1, codec=codec) for codec in OLD_CODECS] == [b""] * 4

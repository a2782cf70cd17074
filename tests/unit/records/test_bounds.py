"""Bounds on the cost of a batch's records: bytes after decompression, number of records, members of a stream."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

import lz4.frame
import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.limits import DECOMPRESSED_BATCH_BYTES_MAX, RECORDS_PER_BATCH_MAX
from kctl.records.allowance import WALKED_RECORDS_PER_RECORD, Allowance, AllowanceExceeded, decompressed_size_max
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import assemble_batch, build_batch, encode_records
from kctl.records.compression import (
    GZIP_MEMBERS_MAX,
    XERIAL_MAGIC,
    Codec,
    DecompressedSizeExceeded,
    DecompressionError,
    compress,
    decompress,
)
from kctl.records.header import BatchHeader, BatchTooLarge, CorruptBatch, Record, parse_header, seal
from kctl.records.old_formats.conversion import downgrade, upgrade
from kctl.records.old_formats.legacy import build_messages
from kctl.records.validate import AppendRules, validate_produced
from tests.rows import for_rows

COMPRESSING = [codec for codec in Codec if codec]
RULES = AppendRules(max_message_bytes=1 << 20, segment_bytes=1 << 30)
COMPACTED = replace(RULES, is_compacted=True)
TO_GZIP = replace(RULES, codec=Codec.GZIP)
TIMESTAMP_MAX = (1 << 63) - 1
MIB = 1 << 20


def bomb(size: int, codec: Codec = Codec.ZSTD) -> bytes:
    """One record of `size` zeros."""
    return build_batch([Record(0, 5, b"k", bytes(size))], codec=codec)


def with_count(batch: bytes, count: int) -> bytes:
    """The batch with another number of records in its header."""
    changed = bytearray(batch)
    struct.pack_into(">i", changed, 23, count - 1)
    struct.pack_into(">i", changed, 57, count)
    seal(changed, parse_header(changed))
    return bytes(changed)


def batch_of(region: bytes | bytearray, count: int, *, codec: Codec, base_timestamp: int = 5) -> bytes:
    fields = (0, 0, -1, 2, 0, int(codec), count - 1, base_timestamp, base_timestamp, -1, -1, -1, count)
    return assemble_batch(BatchHeader(0, fields), bytearray(region))


def produce(batch: bytes, rules: AppendRules, allowance: Allowance | None = None, version: int = 9) -> bytes:
    valid = validate_produced(bytearray(batch), rules, now_ms=10, request_version=version, allowance=allowance)
    return bytes(valid.buffer)


def refusal(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    ("size", "bound"),
    [(0, 16 * MIB), (10_000, 16 * MIB), (50_000, 50_000_000), (300_000, 128 * MIB), (1 << 30, 128 * MIB)],
)
def test_a_batch_may_grow_to_16_mib_then_a_thousandfold_and_to_128_mib_at_most(size: int, bound: int) -> None:
    assert decompressed_size_max(size) == bound


@for_rows("codec", COMPRESSING)
@for_rows("rules", [COMPACTED, replace(RULES, codec=Codec.NONE)])
def test_a_batch_that_decompresses_beyond_its_allowance_is_too_large(codec: Codec, rules: AppendRules) -> None:
    error = refusal(lambda: produce(bomb(200_000, codec), rules, Allowance(100_000, 10)))
    assert isinstance(error, AllowanceExceeded)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "more than 100000 bytes" in (error.message or "")


def test_a_small_zstd_bomb_is_refused_by_its_ratio() -> None:
    batch = bomb(17 * MIB)
    assert len(batch) < 10_000
    error = refusal(lambda: produce(batch, TO_GZIP))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert f"more than {16 * MIB} bytes" in (error.message or "")


@pytest.mark.long
def test_a_record_of_zeros_of_16_mb_passes() -> None:
    batch = bomb(16_000_000)
    assert produce(batch, RULES) == batch
    assert next(iterate_records(produce(batch, TO_GZIP))).value == bytes(16_000_000)


def test_an_uncompressed_batch_uses_the_allowance_too() -> None:
    batch = build_batch([Record(0, 5, b"k", bytes(1000))])
    assert isinstance(refusal(lambda: produce(batch, TO_GZIP, Allowance(900, 10))), AllowanceExceeded)
    allowance = Allowance(10_000, 10)
    produce(batch, TO_GZIP, allowance)
    assert 8900 < allowance.plain_bytes < 9000


def test_more_records_than_allowed_are_not_read() -> None:
    batch = build_batch([Record(0, 5, b"k", b"v")] * 11 * WALKED_RECORDS_PER_RECORD)
    error = refusal(lambda: produce(batch, COMPACTED, Allowance(10_000, 10)))
    assert isinstance(error, AllowanceExceeded)
    assert error.message == "11 records exceed the limit of 10"


def test_a_batch_whose_header_counts_more_records_than_the_bound_is_too_large() -> None:
    batch = with_count(bomb(10), RECORDS_PER_BATCH_MAX + 1)
    error = refusal(lambda: produce(batch, RULES))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(RECORDS_PER_BATCH_MAX) in (error.message or "")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_header_that_counts_more_records_than_the_bytes_hold_is_invalid(codec: Codec) -> None:
    batch = with_count(build_batch([Record(0, 5, b"k", b"v")], codec=codec), 1000)
    error = refusal(lambda: produce(batch, COMPACTED))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "1000 records do not fit" in (error.message or "")


# Messages of magic 0 and 1


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_of_old_messages_is_bound_by_bytes_and_by_messages(magic: int) -> None:
    records = [Record(i, 5, b"k", bytes(1000)) for i in range(100)]
    wrapper = build_messages(records, magic=magic, codec=Codec.GZIP)
    for allowance in (Allowance(50_000, 1000), Allowance(1 << 20, 99)):
        error = refusal(lambda allowance=allowance: produce(wrapper, RULES, allowance, version=2))  # type: ignore[misc]
        assert isinstance(error, AllowanceExceeded)
    assert len(list(iterate_records(produce(wrapper, RULES, Allowance(1 << 20, 100), version=2)))) == 100


def test_a_wrapper_inside_of_a_wrapper_is_not_opened() -> None:
    inner = build_messages([Record(0, 5, b"k", bytes(MIB))], magic=1, codec=Codec.GZIP)
    value = compress(Codec.GZIP, inner * 3)
    body = struct.pack(">bbqii", 1, Codec.GZIP, 5, -1, len(value)) + value
    outer = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    allowance = Allowance(100_000, 1000)
    error = refusal(lambda: produce(outer, RULES, allowance, version=2))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "wrapper message inside of another one" in (error.message or "")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_conversion_for_old_consumers_is_bound(codec: Codec) -> None:
    batch = build_batch([Record(0, 5, b"k", bytes(100))] * 100, codec=codec)
    for allowance in (Allowance(5_000, 1000), Allowance(1 << 20, 99)):
        with pytest.raises(BatchTooLarge):
            downgrade(batch, 1, first_offset=0, size_max=1 << 20, allowance=allowance)


def test_a_conversion_ends_before_the_batch_that_passes_the_bounds() -> None:
    batches = b"".join(
        build_batch([Record(0, 5, b"k", bytes(100))] * 10, base_offset=10 * number, codec=Codec.LZ4)
        for number in range(5)
    )
    for allowance in (Allowance(2_500, 1000), Allowance(1 << 20, 25)):
        messages, next_offset = downgrade(batches, 1, first_offset=0, size_max=1 << 20, allowance=allowance)
        assert next_offset == 20
        assert len(list(iterate_records(messages))) == 10


# Streams with a high cost for few bytes


def test_gzip_members_are_counted() -> None:
    members = gzip.compress(b"") * GZIP_MEMBERS_MAX
    assert decompress(Codec.GZIP, members) == b""
    with pytest.raises(DecompressionError, match="more than 1000 members"):
        decompress(Codec.GZIP, members + gzip.compress(b"x"))


def test_gzip_output_comes_in_steps_and_the_input_of_a_member_may_be_large() -> None:
    data = struct.pack(">I", 0x12345678) * 700_000 + bytes(range(256)) * 1000
    assert decompress(Codec.GZIP, gzip.compress(data, 0) + gzip.compress(data), len(data) * 2) == data * 2
    with pytest.raises(DecompressedSizeExceeded):
        decompress(Codec.GZIP, gzip.compress(data, 0) + gzip.compress(data), len(data) * 2 - 1)


@pytest.mark.parametrize("length", [0x7FFFFFFF, -1, 0x40000000])
def test_a_snappy_chunk_length_beyond_the_data_is_refused(length: int) -> None:
    with pytest.raises(DecompressionError, match="invalid block length"):
        decompress(Codec.SNAPPY, XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1" + struct.pack(">i", length) + bytes(20))


@pytest.mark.parametrize("framing", [b"", XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1" + struct.pack(">i", 10)])
def test_a_snappy_block_that_claims_more_than_the_format_can_hold_is_refused(framing: bytes) -> None:
    block = b"\xff\xff\xff\x3f" + bytes(6)  # A declared size of 128 MiB - 1.
    with pytest.raises(DecompressionError, match="cannot contain 134217727 bytes"):
        decompress(Codec.SNAPPY, framing + block)


def test_the_declared_content_size_of_an_lz4_frame_is_ignored() -> None:
    frame = bytearray(lz4.frame.compress(b"abc" * 100, store_size=True))
    frame[6:14] = struct.pack("<Q", 1 << 60)
    with pytest.raises(DecompressionError):
        decompress(Codec.LZ4, frame)


@pytest.mark.parametrize("window_descriptor", [0x88, 0xFF])
def test_a_zstd_frame_with_a_large_window_is_bound_by_its_output(window_descriptor: int) -> None:
    block = struct.pack("<I", 1 | 1 << 1 | (100_000 << 3))[:3] + b"x"  # The last block: one byte, 100,000 times.
    frame = b"\x28\xb5\x2f\xfd" + bytes((0, window_descriptor)) + block
    with pytest.raises(DecompressionError):
        decompress(Codec.ZSTD, frame, 99_999)


def test_a_zstd_frame_that_declares_an_absurd_size_is_refused() -> None:
    block = struct.pack("<I", 1 | 1 << 1 | (10 << 3))[:3] + b"x"
    frame = b"\x28\xb5\x2f\xfd" + bytes((0xC0, 0x40)) + struct.pack("<Q", 1 << 60) + block
    with pytest.raises(DecompressionError):
        decompress(Codec.ZSTD, frame)


# Timestamps and offsets outside of their range


def overflowing(delta: int = TIMESTAMP_MAX, codec: Codec = Codec.NONE) -> bytes:
    """A batch whose second timestamp exceeds 64 bits; its max timestamp makes the broker read the records."""
    region = encode_records(enumerate([Record(0, 1000, b"k", b"v"), Record(0, 1000 + delta, b"k", b"v")]), 1000)
    batch = bytearray(batch_of(region, 2, codec=codec, base_timestamp=1000))
    struct.pack_into(">q", batch, 35, 5)
    seal(batch, parse_header(batch))
    return bytes(batch)


@for_rows("base_timestamp", [TIMESTAMP_MAX, TIMESTAMP_MAX - 0x3F])
@for_rows("delta", [1, 0x3F, 0x40, 10_000, TIMESTAMP_MAX])
def test_a_timestamp_beyond_64_bits_wraps_around_for_readers(base_timestamp: int, delta: int) -> None:
    region = encode_records([(0, Record(0, delta, b"k", b"v"))], 0)
    batch = batch_of(region, 1, codec=Codec.NONE, base_timestamp=base_timestamp)
    expected = (base_timestamp + delta + (1 << 63)) % (1 << 64) - (1 << 63)
    assert [record.timestamp for record in iterate_records(batch)] == [expected]


def test_timestamps_more_than_63_bits_apart_are_written_and_read() -> None:
    records = [Record(0, -1, b"k", b"v"), Record(1, TIMESTAMP_MAX, b"k", b"v"), Record(2, -(1 << 63), b"k", b"v")]
    assert list(iterate_records(build_batch(records))) == records


def test_a_produced_timestamp_beyond_64_bits_is_refused() -> None:
    error = refusal(lambda: produce(overflowing(), COMPACTED))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert error.message == "the timestamp of a record exceeds 64 bits"


@pytest.mark.parametrize("magic", [0, 1])
def test_a_stored_timestamp_beyond_64_bits_does_not_stop_a_conversion(magic: int) -> None:
    messages, next_offset = downgrade(overflowing(), magic, first_offset=0, size_max=1 << 20)
    assert next_offset == 2
    assert [header.magic for header in iterate_batches(messages)] == [magic, magic]


def test_old_messages_may_have_any_positive_timestamp() -> None:
    records = [Record(0, -1, b"k", b"v"), Record(1, TIMESTAMP_MAX, b"k", b"v")]
    assert (
        list(iterate_records(upgrade(build_messages(records, magic=1), codec=None, max_message_bytes=1000))) == records
    )


@pytest.mark.parametrize(("offset_delta", "expected"), [(1 << 31, 0), (-(1 << 31) - 1, -1), ((1 << 31) + 5, 5)])
def test_an_offset_delta_of_five_bytes_wraps_around_as_in_java(offset_delta: int, expected: int) -> None:
    batch = batch_of(encode_records([(offset_delta, Record(0, 5, b"k", b"v"))], 5), 1, codec=Codec.NONE)
    assert [record.offset for record in iterate_records(batch)] == [expected]


def test_an_offset_delta_of_more_bytes_is_damage() -> None:
    batch = batch_of(encode_records([(1 << 62, Record(0, 5, b"k", b"v"))], 5), 1, codec=Codec.NONE)
    with pytest.raises(CorruptBatch, match="too many bytes"):
        list(iterate_records(batch))


def test_the_largest_batch_fits_the_bounds_of_all_requests() -> None:
    assert Allowance.for_batches(1 << 20).plain_bytes == DECOMPRESSED_BATCH_BYTES_MAX

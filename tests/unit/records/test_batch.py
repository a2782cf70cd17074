"""Batches: header, records, and damage that always raises CorruptBatch."""

from __future__ import annotations

import pytest

from kctl.records.batch import crc_ok, iterate_batches, iterate_records
from kctl.records.build import build_batch, rebuild_batch, recompress
from kctl.records.compression import Codec
from kctl.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
    control_type,
    parse_end_transaction_marker,
)
from kctl.records.header import CorruptBatch, OldFormat, Record, TimestampType, parse_header, seal

RECORDS = [
    Record(0, 1000, b"key", b"value", (("h", b"1"), ("h", None), ("ü", b""))),
    Record(1, 900, None, b""),
    Record(2, 1100, b"", None),
    Record(3, 1050, b"k" * 200, b"v" * 20_000),
]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_round_trip(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert crc_ok(batch)
    assert list(iterate_records(batch)) == RECORDS
    header = parse_header(batch)
    assert (header.codec, header.record_count, header.last_offset_delta) == (codec, 4, 3)
    assert (header.base_timestamp, header.max_timestamp, header.size) == (1000, 1100, len(batch))


def test_records_count_from_the_base_offset() -> None:
    batch = build_batch(RECORDS, base_offset=1 << 40, leader_epoch=7)
    assert [record.offset - (1 << 40) for record in iterate_records(batch)] == [0, 1, 2, 3]
    header = parse_header(batch)
    assert (header.last_offset, header.next_offset, header.leader_epoch) == ((1 << 40) + 3, (1 << 40) + 4, 7)


def test_log_append_time_stands_for_every_record() -> None:
    batch = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {record.timestamp for record in iterate_records(batch)} == {1100}
    assert parse_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME


def test_sequence_numbers_wrap_to_zero() -> None:
    header = parse_header(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2))
    assert header.last_sequence == 1
    assert parse_header(build_batch(RECORDS)).last_sequence == -1


def test_batches_follow_each_other_and_a_cut_off_one_ends_the_walk() -> None:
    one, two = build_batch(RECORDS[:1]), build_batch(RECORDS, base_offset=1)
    data = one + two
    assert [(found.position, found.base_offset) for found in iterate_batches(data)] == [(0, 0), (len(one), 1)]
    for cut in range(1, len(two) + 1):
        assert len(list(iterate_batches(data[:-cut]))) == 1
    second = list(iterate_batches(data))[1]
    assert [record.offset for record in iterate_records(data, second)] == [1, 2, 3, 4]


def test_every_changed_bit_under_the_checksum_is_noticed() -> None:
    batch = bytearray(build_batch(RECORDS[:2]))
    for position in range(17, len(batch)):
        batch[position] ^= 0x10
        assert not crc_ok(batch)
        batch[position] ^= 0x10
    batch[3] ^= 1  # The base offset and the leader epoch are not covered: brokers write them.
    batch[14] ^= 1
    assert crc_ok(batch)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda batch: batch[:60], "too few"),
        (lambda batch: b"", "too few"),
        (lambda batch: batch[:16] + b"\x03" + batch[17:], "unknown magic 3"),
        (lambda batch: batch[:8] + (48).to_bytes(4, "big") + batch[12:], "too small"),
        (lambda batch: batch[:8] + b"\xff\xff\xff\xff" + batch[12:], "too small"),
    ],
)
def test_invalid_headers_are_refused(change: object, reason: str) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        parse_header(change(build_batch(RECORDS)))  # type: ignore[operator]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_distinguished_from_damage(magic: int) -> None:
    message = b"\0" * 8 + (22).to_bytes(4, "big") + b"\1\2\3\4" + bytes([magic]) + b"\0" * 17
    with pytest.raises(OldFormat) as caught:
        parse_header(message)
    assert caught.value.magic == magic


def test_a_wrong_record_count_is_refused() -> None:
    for count in (-1, 3, 5, 1 << 30):
        batch = bytearray(build_batch(RECORDS))
        batch[57:61] = count.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptBatch):
            list(iterate_records(batch))


def test_an_unknown_codec_is_refused() -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[22] = 5
    with pytest.raises(CorruptBatch, match="codec 5"):
        list(iterate_records(batch))


def test_a_rebuilt_batch_keeps_its_place_and_its_producer() -> None:
    batch = build_batch(RECORDS, base_offset=10, producer_id=5, producer_epoch=1, base_sequence=20, codec=Codec.LZ4)
    header = parse_header(batch)
    kept = [record for record in iterate_records(batch) if record.offset in {11, 13}]
    rebuilt = rebuild_batch(header, kept)
    after = parse_header(rebuilt)
    assert list(iterate_records(rebuilt)) == kept
    assert (after.base_offset, after.last_offset, after.base_sequence, after.last_sequence) == (10, 13, 20, 23)
    assert (after.producer_id, after.producer_epoch, after.codec) == (5, 1, Codec.LZ4)
    assert (after.record_count, after.max_timestamp) == (2, 1050)
    assert crc_ok(rebuilt)


def test_an_empty_compacted_batch_keeps_the_last_sequence() -> None:
    batch = build_batch(RECORDS, base_offset=10, producer_id=5, producer_epoch=1, base_sequence=20, codec=Codec.ZSTD)
    empty = rebuild_batch(parse_header(batch), [])
    header = parse_header(empty)
    assert list(iterate_records(empty)) == []
    assert (len(empty), header.last_offset, header.last_sequence) == (61, 13, 23)
    assert header.max_timestamp == parse_header(batch).max_timestamp, "the time of the last batch of the producer"


def test_recompressing_changes_nothing_but_the_codec() -> None:
    batch = memoryview(build_batch(RECORDS, producer_id=5, producer_epoch=1, base_sequence=20))
    again = recompress(batch, parse_header(batch), batch[61:], Codec.GZIP)
    assert crc_ok(again)
    assert list(iterate_records(again)) == RECORDS
    header = parse_header(again)
    assert (header.codec, header.producer_id, header.size) == (Codec.GZIP, 5, len(again))


def test_sealing_makes_the_checksum_right_again() -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[35:43] = (5).to_bytes(8, "big")
    assert not crc_ok(batch)
    seal(batch, parse_header(batch))
    assert crc_ok(batch)


def test_a_transaction_marker_has_its_outcome() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 7)
    batch = build_end_transaction_marker(marker, producer_id=3, producer_epoch=2, timestamp=99)
    header = parse_header(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence, len(batch)) == (True, True, -1, 78)
    assert [parse_end_transaction_marker(record) for record in iterate_records(batch)] == [marker]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\0\0\0\x05", b"\xff\xff\0\1"])
def test_control_records_of_other_kinds_are_no_markers(key: bytes | None) -> None:
    record = Record(0, 0, key, b"\0\0\0\0\0\7")
    assert control_type(record) is ControlType.UNKNOWN
    assert parse_end_transaction_marker(record) is None


def test_a_marker_without_its_coordinator_epoch_is_none() -> None:
    assert parse_end_transaction_marker(Record(0, 0, b"\0\0\0\1", b"\0\0")) is None
    assert parse_end_transaction_marker(Record(0, 0, b"\0\0\0\1", None)) is None


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])

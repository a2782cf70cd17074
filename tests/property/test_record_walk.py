"""The fast record scans agree with the reference reader and refuse malformed records."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.records.batch import iterate_records, records_region
from kctl.records.build import build_batch, encode_records
from kctl.records.header import CorruptBatch, Record, parse_header, seal
from kctl.records.walk import LONG_KEY_SIZE, is_tombstone, largest_timestamp_delta, walk_keys

SIZES = st.sampled_from((0, 1, 30, 62, 63, 64, 65, 8191, 8192, 8193))
DELTAS = st.sampled_from((0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 40, -(1 << 62)))
BYTES = st.none() | SIZES.map(lambda size: bytes(range(256)) * (size // 256) + bytes(size % 256))
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=DELTAS,
    key=BYTES,
    value=BYTES,
    headers=st.sampled_from(((), (("h", b"1"), ("h", None)))),
)


def shortened(key: bytes) -> str:
    return f"key of {len(key)}"


@given(st.lists(records, min_size=1, max_size=200))
@settings(max_examples=150)
def test_scanning_records_finds_what_the_reader_finds(given_records: list[Record]) -> None:
    batch = build_batch(given_records)
    read = list(iterate_records(batch))
    region = bytes(records_region(batch, parse_header(batch)))
    keys, ends = walk_keys(region, len(read), shortened)
    assert keys == [shortened(r.key) if r.key is not None and len(r.key) >= LONG_KEY_SIZE else r.key for r in read]
    starts = [0, *ends[:-1]]
    assert ends[-1] == len(region)
    for at, record in enumerate(read):
        alone = encode_records([(at, record)], given_records[0].timestamp)
        assert region[starts[at] : ends[at]] == alone
        assert is_tombstone(region, starts[at]) == (record.value is None)
    base_timestamp = given_records[0].timestamp
    assert base_timestamp + largest_timestamp_delta(region, starts) == max(r.timestamp for r in read)


@given(st.lists(records, min_size=1, max_size=5), st.data())
@settings(max_examples=400)
def test_scanning_accepts_what_the_reader_accepts_and_raises_only_known_errors(
    given_records: list[Record], data: st.DataObject
) -> None:
    batch = bytearray(build_batch(given_records))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    seal(batch, parse_header(batch))
    region = bytes(batch[61:])
    try:
        read = list(iterate_records(batch))
    except CorruptBatch:
        with contextlib.suppress(IndexError, ValueError):
            walk_keys(region, len(given_records), bytes)
        return
    assert walk_keys(region, len(read), bytes)[0] == [record.key for record in read]


@pytest.mark.parametrize("cut", [1, 5, 20, -1])
def test_a_cut_region_is_refused(cut: int) -> None:
    region = bytes(encode_records([(0, Record(0, 0, b"key", b"value" * 9)), (1, Record(1, 5, b"k", None))], 0))
    with pytest.raises((IndexError, ValueError)):
        walk_keys(region[:cut], 2, bytes)


def test_lengths_below_zero_are_refused() -> None:
    sound = bytes(encode_records([(0, Record(0, 0, b"key", b"value"))], 0))
    for length in (b"\x01", b"\x03", b"\x81\x01", b"\xff\x7f", b"\x81\x80\x01"):
        with pytest.raises((IndexError, ValueError)):
            walk_keys(length + sound[1:], 1, bytes)

"""The fast record scans agree with the reference reader and refuse malformed records."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import u8

import kctl.records.compiled
from kctl.records.batch import iterate_interpreted, iterate_records, iterate_with_walk, records_region
from kctl.records.build import build_batch, encode_in_python, encode_records
from kctl.records.compiled import encoding, walk, walk_is_compiled
from kctl.records.compiled.walk import (
    FIELDS,
    RECORD_SIZE_MIN,
    check_records,
    locate_keys,
    locate_records,
    retain_records,
)
from kctl.records.header import BatchHeader, CorruptBatch, Record, parse_header, seal
from tests.property import walk_inputs
from tests.property.examples import examples
from tests.property.walk_inputs import WALKS, outcome

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

POSITION_FIELDS = (2, 4, 6, 7)
"""Which numbers of locate_records are positions in the buffer."""


def keys_of(region: bytes, count: int) -> list[bytes | None]:
    keys, end = locate_keys(region, count)
    assert end == len(region)
    return [
        None if size < 0 else region[position : position + size]
        for position, size in zip(keys[::2], keys[1::2], strict=True)
    ]


@given(st.lists(st.tuples(records, st.booleans()), min_size=1, max_size=200), st.booleans())
@examples(150)
def test_selecting_records_copies_what_the_reader_finds(
    choices: list[tuple[Record, bool]], drops_tombstones: bool
) -> None:
    given_records, stays = [record for record, _ in choices], [stays for _, stays in choices]
    batch = build_batch(given_records)
    read = list(iterate_records(batch))
    region = bytes(records_region(batch, parse_header(batch)))
    assert keys_of(region, len(read)) == [record.key for record in read]
    runs, count, largest, end = retain_records(region, 0, vec[u8](stays), drops_tombstones)
    base_timestamp = given_records[0].timestamp
    expected = [
        (delta, record)
        for delta, (record, one_stays) in enumerate(zip(read, stays, strict=True))
        if one_stays and not (drops_tombstones and record.value is None)
    ]
    assert b"".join(runs) == encode_records(expected, base_timestamp)
    assert (count, end) == (len(expected), len(region))
    if expected:
        assert base_timestamp + largest == max(record.timestamp for _, record in expected)


@given(st.lists(records, min_size=1, max_size=5), st.data())
@examples(400)
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
            locate_keys(region, len(given_records))
        return
    assert keys_of(region, len(read)) == [record.key for record in read]


@pytest.mark.parametrize("cut", [1, 5, 20, -1])
def test_a_cut_region_is_refused(cut: int) -> None:
    region = bytes(encode_records([(0, Record(0, 0, b"key", b"value" * 9)), (1, Record(1, 5, b"k", None))], 0))
    with pytest.raises((IndexError, ValueError)):
        locate_keys(region[:cut], 2)


def test_lengths_below_zero_are_refused() -> None:
    sound = bytes(encode_records([(0, Record(0, 0, b"key", b"value"))], 0))
    for length in (b"\x01", b"\x03", b"\x81\x01", b"\xff\x7f", b"\x81\x80\x01"):
        with pytest.raises((IndexError, ValueError)):
            locate_keys(length + sound[1:], 1)


@pytest.fixture(scope="module")
def interpreted() -> ModuleType:
    return walk_inputs.interpreted(str(Path(kctl.records.compiled.__file__).with_name("walk.py")))


@given(st.lists(records, min_size=1, max_size=50))
@examples(100)
def test_the_walk_finds_what_the_reader_finds(given_records: list[Record]) -> None:
    batch = build_batch(given_records)
    header = parse_header(batch)
    region = bytes(records_region(batch, header))
    rows = list(locate_records(region, [(0, len(region), len(given_records))]))
    ends = []
    for index, record in enumerate(iterate_records(batch)):
        delta, offset, key, key_size, value, value_size, _, end = rows[index * FIELDS : (index + 1) * FIELDS]
        assert (header.base_timestamp + delta, offset) == (record.timestamp, index)
        assert (region[key : key + key_size] if key_size >= 0 else None) == record.key
        assert (region[value : value + value_size] if value_size >= 0 else None) == record.value
        ends.append(end)
    assert ends == sorted(ends)
    assert ends[-1] == len(region)
    deltas = rows[::FIELDS]
    keyless = sum(record.key is None for record in given_records)
    assert check_records(region, len(given_records)) == (True, max(deltas), min(deltas), keyless)


@given(st.lists(records, min_size=1, max_size=5), st.data())
@examples(400)
def test_compiled_and_interpreted_walk_agree_on_damaged_records(
    interpreted: ModuleType, given_records: list[Record], data: st.DataObject
) -> None:
    region = bytearray(encode_records(enumerate(given_records), 0))
    for _ in range(data.draw(st.integers(0, 3))):
        region[data.draw(st.integers(0, len(region) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(region[: data.draw(st.integers(0, len(region)))])
    count = data.draw(st.sampled_from((len(given_records), len(given_records) + 1, 0, -1, 1 << 40)))
    for name in WALKS:
        assert outcome(walk, name, damaged, count) == outcome(interpreted, name, damaged, count)


@given(st.binary(max_size=200), st.integers(0, 40))
def test_compiled_and_interpreted_walk_agree_on_arbitrary_bytes(
    interpreted: ModuleType, region: bytes, count: int
) -> None:
    for name in WALKS:
        assert outcome(walk, name, region, count) == outcome(interpreted, name, region, count)


@given(st.lists(records, min_size=1, max_size=5), st.data())
@examples(400)
def test_what_the_walk_accepts_the_reader_accepts(given_records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(build_batch(given_records))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    seal(batch, parse_header(batch))
    try:
        check_records(bytes(batch[61:]), len(given_records))
    except (IndexError, ValueError):
        return
    assert len(list(iterate_records(batch))) == len(given_records)


def record_of(*fields: bytes) -> bytes:
    """One record with these numbers and bytes after its attributes."""
    body = b"\0" + b"".join(fields)
    return bytes((2 * len(body),)) + body


WRAPPED, SIX_BYTES = b"\xff" * 4 + b"\x7f", b"\x80" * 5 + b"\x00"
"""A number of 32 bits with bits beyond these, which Java reads as the smallest one, and one that is too long."""


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(record_of(b"\0", WRAPPED, b"\x02k", b"\x02v", b"\0"), (-1 << 31, 0, b"k", b"v"), id="offset"),
        pytest.param(
            record_of(b"\xff" * 9 + b"\x7f", b"\0", b"\x02k", b"\x02v", b"\0"),
            (0, -1 << 63, b"k", b"v"),
            id="timestamp",
        ),
        pytest.param(
            record_of(b"\0", b"\0", WRAPPED, b"\x02v", b"\0"), (0, 0, None, b"v"), id="negative size of a key"
        ),
        pytest.param(record_of(b"\0", b"\0", b"\x02k", b"\x03", b"\0"), (0, 0, b"k", None), id="value of -2 bytes"),
        pytest.param(record_of(b"\0", b"\0", b"\x02k", b"\x81\0", b"\0"), (0, 0, b"k", None), id="null in two bytes"),
        pytest.param(record_of(b"\0", SIX_BYTES, b"\x02k", b"\x02v", b"\0"), None, id="offset of six bytes"),
        pytest.param(record_of(b"\0", b"\0", SIX_BYTES, b"\x02v", b"\0"), None, id="size of six bytes"),
        pytest.param(record_of(b"\0", b"\0", b"\x02k", b"\x02v", SIX_BYTES), None, id="header count of six bytes"),
    ],
)
def test_rare_numbers_are_read_as_in_java_by_all_readers(
    interpreted: ModuleType, record: bytes, expected: tuple[int, int, bytes | None, bytes | None] | None
) -> None:
    header = BatchHeader(0, (0, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1))
    if expected is None:
        for module in (walk, interpreted):
            with pytest.raises(ValueError, match="too many bytes"):
                module.check_records(record, 1)
        for read in (iterate_with_walk, iterate_interpreted):
            with pytest.raises(CorruptBatch, match="too many bytes"):
                list(read(record, header))
        return
    for module in (walk, interpreted):
        offset, timestamp, key, value = expected
        assert module.check_records(record, 1) == (offset == 0, timestamp, timestamp, int(key is None))
        rest = module.retain_records(record, 0, vec[u8]([1]), True)
        assert rest[1] == int(value is not None), "a tombstone"
    for read in (iterate_with_walk, iterate_interpreted):
        assert [tuple(found)[:4] for found in read(record, header)] == [expected]
    assert keys_of(record, 1) == [expected[2]]


def read_until_error(records: Iterator[Record]) -> tuple[list[Record], str]:
    """The records before an error, and its text."""
    read = []
    try:
        for record in records:
            read.append(record)  # noqa: PERF402 - the records before an error are kept
    except CorruptBatch as error:
        return read, str(error)
    return read, ""


needs_compiled_walk = pytest.mark.skipif(not walk_is_compiled(), reason="no C compiler: install gcc")


@pytest.mark.long
@needs_compiled_walk
@given(st.lists(records, max_size=20), st.data(), st.sampled_from((0, 1 << 40, (1 << 63) - 1)), st.sampled_from((0, 8)))
@examples(400)
def test_both_readers_find_the_same_records_and_the_same_damage(
    given_records: list[Record], data: st.DataObject, base_offset: int, attributes: int
) -> None:
    region = bytearray(encode_records(enumerate(given_records), 0))
    for _ in range(data.draw(st.integers(0, 3)) if region else 0):
        at = data.draw(st.integers(0, len(region) - 1))
        region[at : at + 1] = data.draw(st.sampled_from((*walk_inputs.LONG_NUMBERS, b"", b"\x00", b"\x01", b"\xff")))
    count = data.draw(st.sampled_from((len(given_records), len(given_records) + 1, 0, -1)))
    base_timestamp = data.draw(st.sampled_from((0, -1, 1_700_000_000_000, (1 << 63) - 1, -(1 << 63))))
    fields = (base_offset, 0, 0, 2, 0, attributes, count - 1, base_timestamp, 77, -1, -1, -1, count)
    header = BatchHeader(0, fields)
    found = read_until_error(iterate_with_walk(bytes(region), header))
    assert found == read_until_error(iterate_interpreted(bytes(region), header))
    assert all(type(record) is Record for record in found[0])


@needs_compiled_walk
def test_batches_of_many_records_are_read_as_a_whole() -> None:
    given_records = [Record(0, at * 7, b"k%d" % at, None, (("\u00e9", b""), ("", None))) for at in range(2000)]
    batch = build_batch(given_records, base_offset=50)
    expected = [record._replace(offset=50 + at) for at, record in enumerate(given_records)]
    region, header = bytes(records_region(batch, parse_header(batch))), parse_header(batch)
    assert list(iterate_with_walk(region, header)) == list(iterate_interpreted(region, header)) == expected


@given(st.lists(records, max_size=5), st.integers(-(1 << 63), (1 << 63) - 1))
def test_records_are_encoded_as_without_a_compiler(given_records: list[Record], base_timestamp: int) -> None:
    numbered = [(at * 100, record) for at, record in enumerate(given_records)]
    expected = encode_in_python(numbered, base_timestamp)
    assert encoding.encode_records(numbered, base_timestamp) == expected
    source = walk_inputs.interpreted(str(Path(encoding.__file__).with_name("encoding.py")))
    assert source.encode_records(numbered, base_timestamp) == expected


def test_more_records_than_the_region_can_hold_are_refused_before_memory_is_allocated() -> None:
    region = bytes(RECORD_SIZE_MIN * 10)
    with pytest.raises(ValueError, match="11 records do not fit 70 bytes"):
        check_records(region, 11)
    with pytest.raises(ValueError, match="11 records do not fit 70 bytes"):
        locate_records(region, [(0, 0, 0), (0, 70, 11)])


@given(st.lists(st.lists(records, min_size=1, max_size=5), max_size=5), st.integers(0, 9))
def test_records_of_several_regions_are_located_in_one_buffer(lists: list[list[Record]], gap: int) -> None:
    buffer = b""
    regions = []
    expected: list[int] = []
    for list_ in lists:
        buffer += bytes(gap)
        region = bytes(encode_records(enumerate(list_), 0))
        alone = list(locate_records(region, [(0, len(region), len(list_))]))
        for at, number in enumerate(alone):
            expected.append(number + len(buffer) if at % FIELDS in POSITION_FIELDS else number)
        regions.append((len(buffer), len(buffer) + len(region), len(list_)))
        buffer += region
    assert list(locate_records(buffer, regions)) == expected


@pytest.mark.parametrize("region", [(-1, 10, 1), (0, 71, 1), (71, 90, 1)])
def test_regions_outside_of_the_buffer_are_refused(region: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="a region exceeds the buffer"):
        locate_records(bytes(70), [region])


def test_continuous_integration_runs_the_compiled_walk() -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: install gcc")
    assert walk_is_compiled()

"""The table of keys and the compaction of batches agree with naive models, compiled and interpreted."""

from __future__ import annotations

import random
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i32

import kctl.records.compiled
from kctl.records.batch import iterate_records
from kctl.records.build import build_batch
from kctl.records.compiled import key_table
from kctl.records.compiled.key_table import DIGEST_SIZE, LONG_KEY_SIZE, SECRET_SIZE
from kctl.records.compression import Codec
from kctl.records.header import Record, parse_header
from kctl.storage.cleaning.compaction_batches import LatestRecords
from tests.property import walk_inputs
from tests.property.examples import examples
from tests.rows import for_rows

SECRET = random.Random(5).randbytes(SECRET_SIZE)
SIZES = (0, 1, 6, 7, 8, 13, 14, 15, LONG_KEY_SIZE - 1, LONG_KEY_SIZE, 200)
KEYS = st.none() | st.builds(
    lambda size, fill, last: (bytes([fill]) * size)[:-1] + bytes([last])[:size],
    st.sampled_from(SIZES),
    st.sampled_from((0, 0x41, 0xFF)),
    st.sampled_from((0, 1, 0x80)),
)
RECORDS = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(0, 1 << 40),
    key=KEYS,
    value=st.sampled_from((None, b"", b"value" * 20)),
)


@pytest.fixture(scope="module")
def interpreted() -> ModuleType:
    return walk_inputs.interpreted(str(Path(kctl.records.compiled.__file__).with_name("key_table.py")))


def long_key(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_SIZE).digest()


def added(module: ModuleType, keys: list[bytes | None]) -> Any:
    table = module.KeyTable(SECRET, long_key)
    table.add(*placed(keys))
    return table


def placed(keys: list[bytes | None]) -> tuple[bytes, vec[i32]]:
    """The keys one after the other, and their positions and sizes."""
    region, found = b"", vec[i32]()
    for key in keys:
        found = vec[i32]([*found, len(region), -1 if key is None else len(key)])
        region += key or b""
    return region, found


@given(st.lists(KEYS, max_size=60), st.lists(KEYS, max_size=20))
@examples(200)
def test_a_table_finds_the_last_record_of_each_key(
    interpreted: ModuleType, keys: list[bytes | None], others: list[bytes | None]
) -> None:
    last = {key: number for number, key in enumerate(keys) if key is not None}
    for module in (key_table, interpreted):
        table = added(module, keys)
        assert list(table.are_last(0, len(keys))) == [number in last.values() for number in range(len(keys))]
        assert list(table.are_unknown(*placed(others))) == [key is not None and key not in last for key in others]
        assert table.last_count(0, len(keys)) == table.key_count == len(last)
        assert table.record_count == len(keys)


def test_a_table_of_many_keys_grows_and_finds_all() -> None:
    """More keys than the first hash tables and more records than a page can hold."""
    chance = random.Random(1)
    keys = [b"user-%09d" % chance.randrange(40_000) for _ in range(150_000)]
    table = key_table.KeyTable(SECRET, long_key)
    for start in range(0, len(keys), 1000):
        region = b"".join(keys[start : start + 1000])
        table.add(region, vec[i32]([number for at in range(1000) for number in (14 * at, 14)]))
    last = {key: number for number, key in enumerate(keys)}
    stays = [last[key] == number for number, key in enumerate(keys)]
    assert list(table.are_last(0, len(keys))) == stays
    assert table.key_count == len(last)
    assert sum(table.last_count(start, 777) for start in range(0, 777 * 193, 777)) == sum(stays[: 777 * 193])


@for_rows("size", SIZES)
def test_keys_that_differ_in_one_byte_or_in_their_size_differ(size: int) -> None:
    zeros = bytes(size)
    keys: list[bytes | None] = [zeros, zeros + b"\0", *(zeros[:at] + b"\1" + zeros[at + 1 :] for at in range(size))]
    assert added(key_table, keys).key_count == len(keys)


def test_positions_outside_of_the_buffer_are_refused(interpreted: ModuleType) -> None:
    for module in (key_table, interpreted):
        table = module.KeyTable(SECRET, long_key)
        for position, size in ((-1, 3), (8, 3), (11, 0), (0, 11)):
            with pytest.raises(IndexError):
                table.add(bytes(10), vec[i32]([position, size]))


@given(
    st.lists(st.lists(RECORDS, min_size=1, max_size=6), min_size=1, max_size=8),
    st.integers(0, 8),
    st.sampled_from(Codec),
    st.booleans(),
)
@examples(60)
def test_compacted_batches_are_those_of_a_naive_model(
    lists: list[list[Record]], clean_count: int, codec: Codec, drops_tombstones: bool
) -> None:
    batches, offset = [], 0
    for records in lists:
        batches.append(memoryview(build_batch(records, base_offset=offset, codec=codec)))
        offset += len(records)
    dirty = batches[clean_count:]
    start = parse_header(dirty[0]).base_offset if dirty else offset
    latest = LatestRecords(start, memory_bytes=1 << 20, secret=SECRET[:32])
    for batch in batches:
        latest.add(parse_header(batch), batch)
    latest.end_offset = offset
    everything = [record for batch in batches for record in iterate_records(batch)]
    last = {record.key: record.offset for record in everything if record.key is not None and record.offset >= start}
    for batch in batches:
        header = parse_header(batch)
        expected = [
            record
            for record in iterate_records(batch)
            if record.key is not None
            and last.get(record.key, record.offset) == record.offset
            and not (drops_tombstones and record.value is None)
        ]
        left = latest.filter(header, batch, drops_tombstones=drops_tombstones)
        assert list(iterate_records(left) if left is not None else []) == expected
        if len(expected) == header.record_count:
            assert left is batch
        if left is not None:
            found = parse_header(left)
            assert (found.base_offset, found.last_offset, found.codec) == (
                header.base_offset,
                header.last_offset,
                codec,
            )
            assert found.max_timestamp == max(record.timestamp for record in expected)

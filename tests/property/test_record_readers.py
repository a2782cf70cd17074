"""Readers of untrusted bytes return the content or raise a documented error, and nothing else."""

from __future__ import annotations

import contextlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ApiError, CorruptLog
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch
from kctl.records.compression import Codec, DecompressionError, compress, decompress
from kctl.records.header import CorruptBatch, Record, parse_header, seal
from kctl.records.validate import AppendRules, validate_internal, validate_produced, validate_replicated
from kctl.storage.segments.batch_reader import read_batches, read_headers
from kctl.storage.segments.transaction_index import parse_transaction_index
from kctl.storage.state.checkpoints import (
    parse_epochs,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
    parse_snapshot,
    snapshot_bytes,
)
from kctl.storage.state.producer_state import SnapshotEntry
from kctl.testing.sim_files import SimFiles
from tests.property.examples import examples

SIZE_MAX = 1 << 20
RULES = AppendRules(max_message_bytes=1 << 20, segment_bytes=1 << 20, is_compacted=True)
NUMBERS = st.integers(-(1 << 62), 1 << 62)

records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=NUMBERS,
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=400),
    headers=st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
)
batches = st.builds(build_batch, st.lists(records, min_size=1, max_size=8), codec=st.sampled_from(list(Codec)))


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """A batch with some bytes changed; half of them with a new checksum, so that the later checks are reached."""
    data = bytearray(draw(batches))
    for _ in range(draw(st.integers(1, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        data[8:12] = struct.pack(">i", len(data) - 12)
        data[16] = 2
        seal(data, parse_header(data))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@given(st.lists(records, min_size=1, max_size=8), st.sampled_from(list(Codec)), st.integers(0, 1 << 50))
def test_built_batches_are_read_back(given_records: list[Record], codec: Codec, base_offset: int) -> None:
    batch = build_batch(given_records, codec=codec, base_offset=base_offset)
    expected = [record._replace(offset=base_offset + index) for index, record in enumerate(given_records)]
    assert list(iterate_records(batch)) == expected


@given(damaged_batches() | st.binary(max_size=300))
@examples(400)
def test_a_damaged_batch_is_read_or_refused(data: bytes) -> None:
    try:
        for header in iterate_batches(data):
            assert header.end <= len(data)
            list(iterate_records(data, header, size_max=SIZE_MAX))
    except CorruptBatch:
        pass


@given(damaged_batches() | st.binary(max_size=300), st.integers(0, 9))
@examples(400)
def test_a_leader_accepts_any_bytes_or_refuses_them_with_an_error_code(data: bytes, version: int) -> None:
    for check in (
        lambda buffer: validate_produced(buffer, RULES, now_ms=0, request_version=version),
        lambda buffer: validate_internal(buffer, RULES, now_ms=0),
        validate_replicated,
    ):
        try:
            check(bytearray(data))
        except ApiError:
            continue


@given(st.lists(damaged_batches() | batches | st.binary(max_size=100), max_size=4).map(b"".join))
@examples(200)
def test_a_log_file_is_iterated_up_to_its_first_damage(data: bytes) -> None:
    files = SimFiles()
    files.make_directory("/data")
    files.write_atomically("/data/log", data)
    file = files.open("/data/log")
    ends = []
    for walk in (read_headers(file, 0, len(data)), (header for header, _ in read_batches(file, 0, len(data)))):
        position = 0
        try:
            for header in walk:
                assert header.position == position
                position = header.end
        except CorruptLog as problem:
            found = problem.position
        else:
            found = len(data)
        assert found == position
        ends.append(position)
        assert position <= len(data)
    assert ends[0] >= ends[1]


@given(st.sampled_from([codec for codec in Codec if codec]), st.binary(max_size=500), st.data())
def test_streams_are_read_or_refused(codec: Codec, content: bytes, data: st.DataObject) -> None:
    stream = bytearray(compress(codec, content))
    assert decompress(codec, stream) == content
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecompressionError):
        assert len(decompress(codec, stream, SIZE_MAX)) <= SIZE_MAX


TEXTS = st.text("0123456789 abc:=\n\t-", max_size=60).map(str.encode) | st.binary(max_size=60)


@given(TEXTS)
def test_small_files_are_read_or_refused(data: bytes) -> None:
    for parse in (
        parse_offsets,
        parse_epochs,
        parse_meta_properties,
        parse_partition_metadata,
        parse_snapshot,
        parse_transaction_index,
    ):
        position = 0
        try:
            parse(data, "/data/file")
        except CorruptLog as problem:
            position = problem.position
        assert 0 <= position <= len(data)


entries = st.builds(
    SnapshotEntry,
    producer_id=st.integers(0, 1 << 62),
    producer_epoch=st.integers(-1, (1 << 15) - 1),
    last_sequence=st.integers(-1, (1 << 31) - 1),
    last_offset=NUMBERS,
    offset_delta=st.integers(0, (1 << 31) - 1),
    timestamp=NUMBERS,
    coordinator_epoch=st.integers(-1, (1 << 31) - 1),
    current_txn_first_offset=st.integers(-1, 1 << 62),
)


@given(st.lists(entries, max_size=5), st.integers(0, 500), st.integers(0, 255))
def test_producer_snapshots_round_trip_and_damage_is_detected(
    given_entries: list[SnapshotEntry], at: int, value: int
) -> None:
    data = snapshot_bytes(given_entries)
    assert parse_snapshot(data, "x") == given_entries
    damaged = bytearray(data)
    damaged[at % len(data)] = value
    with contextlib.suppress(CorruptLog):
        assert damaged == data or parse_snapshot(bytes(damaged), "x") is None

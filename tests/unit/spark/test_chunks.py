"""Batches of all codecs in chunks, also those that need more space than a chunk has, and damaged ones."""

from __future__ import annotations

import os
from typing import Any

import lz4.frame
import numpy as np
import pytest

from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record, parse_header, seal
from kctl.tables.exec.decoding.decode import decode
from kctl.tables.exec.outcome import CorruptRecords
from kctl.tables.exec.reading import chunk
from kctl.tables.exec.reading.chunk import Memories, chunks, decompress_into
from tests.rows import for_rows


def batch(base: int, codec: Codec, size: int = 100) -> bytes:
    records = [Record(0, 0, b"k", os.urandom(size // 2) + bytes(size // 2)) for _ in range(3)]
    return build_batch(records, base_offset=base, codec=codec)


def decoded(data: bytes, size: int) -> list[tuple[int, bytes | None]]:
    view = memoryview(data)
    found: list[tuple[int, bytes | None]] = []
    for part in chunks(view, list(iterate_batches(view)), size=size):
        rows = decode(part, topic="t", partition=0, start=0, end=1 << 60)
        found += zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True)
    return found


def expected(data: bytes) -> list[tuple[int, bytes | None]]:
    view = memoryview(data)
    return [
        (record.offset, record.value)
        for header in iterate_batches(view)
        for record in iterate_records(view[header.position : header.end])
    ]


@pytest.mark.parametrize("size", [1, 500, 1 << 20])
@pytest.mark.parametrize("space", [1, 400, 1 << 20])
def test_batches_of_all_codecs_follow_each_other(size: int, space: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "BATCH_BYTES", space)
    codecs = [Codec.NONE, Codec.LZ4, Codec.NONE, *Codec, Codec.NONE, *reversed(Codec)]
    data = b"".join(batch(3 * n, codec, 40 * (n + 1)) for n, codec in enumerate(codecs))
    assert decoded(data, size) == expected(data)


def test_a_chunk_that_is_kept_does_not_change_when_its_memory_is_used_again() -> None:
    memories = Memories()
    views = [memoryview(batch(3 * n, Codec.LZ4)) for n in range(6)]
    kept = [part for view in views for part in chunks(view, list(iterate_batches(view)), size=1, memories=memories)]
    for part, view in zip(kept, views, strict=True):
        rows = decode(part, topic="t", partition=0, start=0, end=1 << 60)
        found = zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True)
        assert list(found) == expected(bytes(view))


def test_memory_is_used_again_once_its_chunk_is_dropped() -> None:
    memories = Memories()
    view = memoryview(batch(0, Codec.LZ4))
    places = set()
    for _ in range(6):
        for part in chunks(view, list(iterate_batches(view)), memories=memories):
            places.add(part.buffer.ctypes.data)
    assert len(places) == 2


@for_rows("codec", [Codec.LZ4, Codec.ZSTD])
@for_rows("lost", [1, 4, 5, 20])
def test_a_frame_that_ends_early_is_corrupt(codec: Codec, lost: int) -> None:
    short = bytearray(batch(3, codec)[:-lost])
    short[8:12] = (len(short) - 12).to_bytes(4, "big")
    seal(short, parse_header(short))
    with pytest.raises(CorruptRecords, match="the batch at offset 3"):
        decoded(bytes(short), 1 << 20)


FRAMES = {
    "64 KB": {"block_size": lz4.frame.BLOCKSIZE_MAX64KB},
    "256 KB": {"block_size": lz4.frame.BLOCKSIZE_MAX256KB},
    "1 MB": {"block_size": lz4.frame.BLOCKSIZE_MAX1MB},
    "4 MB": {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
}
CONTENTS = (b"", b"a" * 100, os.urandom(70_000) + bytes(70_000), os.urandom(300_000) + bytes(9 << 20))


def frame(content: bytes, **options: Any) -> memoryview:
    return memoryview(lz4.frame.compress(content, **{"block_linked": False, "store_size": False, **options}))


@for_rows("options", FRAMES.values())
@for_rows("content", CONTENTS)
def test_frames_of_independent_blocks_are_decompressed_in_place(options: dict[str, Any], content: bytes) -> None:
    found = np.full(len(content) + 9, 7, np.uint8)
    given = frame(content, **options)
    assert decompress_into(given, found[:-9]) == len(content)
    assert found.tobytes() == content + b"\7" * 9
    if content:
        assert decompress_into(given, found[: len(content) - 1]) is None
    for damaged in (given[:-1], given[:-4], memoryview(bytes(given) + b"\0")):
        assert decompress_into(damaged, found) is None


@pytest.mark.parametrize("options", [{"content_checksum": True}, {"block_checksum": True}, {"block_linked": True}])
def test_frames_with_more_to_check_are_left_to_the_library(options: dict[str, Any]) -> None:
    content = CONTENTS[2]
    assert decompress_into(frame(content, **options), np.empty(len(content), np.uint8)) is None

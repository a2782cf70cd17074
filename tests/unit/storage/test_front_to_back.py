"""Sequential reading of a log across segments and damage, with concurrent appends and cleaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.salvage import Damage, Piece
from kctl.server.cluster.topics.internal import FrontToBack
from kctl.storage.config import LogConfig
from tests.rows import for_rows
from tests.unit.storage.cleaner_world import COMPACTED, CleanerWorld
from tests.unit.storage.log_builder import LogOnDisk

SEGMENT_BYTES = 300
RECORDS = 30


@pytest.fixture
def on_disk() -> LogOnDisk:
    """A log of several segments with batches of one record."""
    on_disk = LogOnDisk(LogConfig(segment_bytes=SEGMENT_BYTES))
    for number in range(RECORDS):
        append(on_disk, number)
    assert len(on_disk.log.segments) > 5
    return on_disk


def append(on_disk: LogOnDisk, number: int) -> None:
    batch = build_batch([Record(0, 1, b"key-%d" % number, b"value")])
    on_disk.log.append_as_leader(batch, leader_epoch=0, now_ms=1, from_client=False)


def read(on_disk: LogOnDisk, buffer_bytes: int = 1) -> tuple[list[int], list[Damage]]:
    return offsets_of(pieces(FrontToBack(on_disk.log, buffer_bytes)))


def pieces(reading: FrontToBack, meanwhile: Callable[[int], None] = lambda _: None) -> list[Piece]:
    found: list[Piece] = []
    while (following := reading.next_read()) is not None:
        found.append(following())
        meanwhile(len(found))
    return found


def offsets_of(found: list[Piece]) -> tuple[list[int], list[Damage]]:
    offsets = [header.base_offset for piece in found for header in piece.batches]
    return offsets, [lost for piece in found for lost in piece.damage]


@pytest.mark.parametrize("buffer_bytes", [1, 150, 1 << 20])
def test_all_batches_are_read_in_order(on_disk: LogOnDisk, buffer_bytes: int) -> None:
    assert read(on_disk, buffer_bytes) == (list(range(RECORDS)), [])


def test_records_before_the_log_start_are_left_out(on_disk: LogOnDisk) -> None:
    on_disk.log.increment_log_start_offset(17)
    assert read(on_disk) == (list(range(17, RECORDS)), [])


@pytest.mark.parametrize("index", [0, 2, -1])
def test_damage_at_the_end_of_a_segment_loses_nothing_of_the_next(on_disk: LogOnDisk, index: int) -> None:
    segments = on_disk.log.segments
    segment, ends = segments[index], [*(segment.base_offset for segment in segments[1:]), RECORDS]
    last = list(segment.headers())[-1]
    segment.file.write_at(last.position + 8, b"\x7f")
    offsets, (lost,) = read(on_disk)
    assert offsets == [offset for offset in range(RECORDS) if offset != last.base_offset]
    assert (lost.offset, lost.last_offset, lost.size) == (last.base_offset, ends[index] - 1, last.size)


def test_segment_without_valid_bytes_loses_only_itself(on_disk: LogOnDisk) -> None:
    segments = on_disk.log.segments
    segments[2].file.write_at(0, bytes(segments[2].size))
    offsets, (lost,) = read(on_disk)
    gone = range(segments[2].base_offset, segments[3].base_offset)
    assert offsets == [offset for offset in range(RECORDS) if offset not in gone]
    assert range(lost.offset, lost.last_offset + 1) == gone


def test_no_index_is_needed(on_disk: LogOnDisk) -> None:
    for segment in on_disk.log.segments:
        on_disk.files.open(segment.path(".index"), create=True).write_at(0, b"\xff" * 16)
    assert read(on_disk) == (list(range(RECORDS)), [])


def test_shortened_file_is_read_to_its_end(on_disk: LogOnDisk) -> None:
    segments = on_disk.log.segments
    segments[2].file.truncate(100)
    offsets, (lost,) = read(on_disk)
    assert offsets == [offset for offset in range(RECORDS) if not lost.offset <= offset <= lost.last_offset]
    assert lost.last_offset == segments[3].base_offset - 1


def test_concurrent_appends_are_read(on_disk: LogOnDisk) -> None:
    def meanwhile(number: int) -> None:
        if number % 3 == 0 and on_disk.log.log_end_offset < 2 * RECORDS:
            append(on_disk, on_disk.log.log_end_offset)

    offsets, damage = offsets_of(pieces(FrontToBack(on_disk.log, 1), meanwhile))
    assert offsets == list(range(on_disk.log.log_end_offset))
    assert len(offsets) > RECORDS
    assert damage == []


@for_rows("clean_after", range(1, RECORDS))
def test_concurrent_cleaning_loses_no_latest_record_and_repeats_none(clean_after: int) -> None:
    """The segments are merged into one, which starts before the current position."""
    world = CleanerWorld(replace(COMPACTED, segment_bytes=SEGMENT_BYTES))
    for number in range(RECORDS):
        world.put((b"key-%d" % (number % 7), b"%d" % number))
    found = pieces(FrontToBack(world.log, 1), lambda number: world.clean_all() if number == clean_after else None)
    offsets, damage = offsets_of(found)
    assert offsets == sorted(set(offsets))
    assert set(offsets) >= {record.offset for record in world.records()}
    assert damage == []

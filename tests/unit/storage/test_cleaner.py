"""The cleaner keeps the last record of each key at its offset, on a simulated disk."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kctl.records.batch import iterate_records
from kctl.records.build import build_batch, rebuild_batch
from kctl.records.compiled.key_table import ENTRY_BYTES
from kctl.records.compression import Codec
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record, parse_header, seal
from kctl.storage.cleaning.cleaning import CleaningAborted
from kctl.system.steps import run_at_once
from tests.rows import for_rows
from tests.unit.storage.cleaner_world import COMPACTED, TP, CleanerWorld
from tests.unit.storage.log_builder import read_records
from tests.unit.storage.manager_builder import remove_due_files

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
DAY_MS = 86_400_000


def test_the_last_record_of_each_key_stays_at_its_offset() -> None:
    world = CleanerWorld()
    world.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    world.put((b"b", b"2"), (b"c", b"1"))
    world.clean_all()
    assert world.pairs() == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]
    assert world.manager.checkpoints.cleaner_offset(TP) == world.log.log_end_offset == 5


@pytest.mark.long
@for_rows("codec", list(Codec))
@for_rows("seed", range(3))
def test_a_compacted_log_has_the_last_value_of_each_key(codec: Codec, seed: int) -> None:
    chance = random.Random(f"{codec} {seed}")
    world = CleanerWorld(
        replace(COMPACTED, segment_bytes=chance.choice([1000, 3000, 1 << 20]), delete_retention_ms=DAY_MS),
        dedupe_buffer_bytes=chance.choice([3 * ENTRY_BYTES, 1 << 20]),
    )
    model: dict[bytes, tuple[int, int, bytes | None]] = {}
    dirty: list[Record] = []
    for _ in range(chance.randrange(30, 120)):
        world.pass_time(chance.randrange(0, 5000))
        pairs = [
            (
                b"key-%d" % chance.randrange(15) + b"x" * chance.choice([0, 40]),
                chance.choice([None, chance.randbytes(chance.randrange(80))]),
            )
            for _ in range(chance.randrange(1, 8))
        ]
        times = [world.now_ms - chance.randrange(1000) for _ in pairs]
        result = world.put(*pairs, codec=chance.choice([codec, Codec.NONE]), timestamps=times)
        for index, ((key, value), at) in enumerate(zip(pairs, times, strict=True)):
            model[key] = result.base_offset + index, at, value
            dirty.append(Record(result.base_offset + index, at, key, value))
        match chance.randrange(12):
            case 0:
                world.clean_all()
            case 1:
                world.restart()
            case 2:
                world.kill()
            case 3:
                world.clean()
        found = world.records()
        assert {record.key: (record.offset, record.timestamp, record.value) for record in found} == model
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert set(found) <= set(dirty), "every record is one that was written, at its offset"
    assert crc_and_times_are_right(world)
    world.clean_all()
    assert [(r.offset, r.timestamp, r.value) for r in world.records()] == sorted(model.values(), key=lambda r: r[0])
    for offset in range(world.log.log_end_offset + 1):
        assert read_records(world.log, offset) == [record for record in world.records() if record.offset >= offset]
    for at in {record.timestamp + step for record in dirty for step in (0, 1)}:
        expected = next((r for r in world.records() if r.timestamp >= at), None)
        hit = world.log.offset_for_timestamp(at, max_offset=world.log.log_end_offset)
        assert (hit and hit.offset) == (expected and expected.offset)


def crc_and_times_are_right(world: CleanerWorld) -> bool:
    for segment in world.log.segments:
        for header, batch in segment.batches():
            times = [record.timestamp for record in iterate_records(batch)]
            assert header.max_timestamp == max(times, default=-1)
            assert header.record_count == len(times)
    return True


def test_records_without_a_key_are_dropped() -> None:
    """Such records were written before the topic became compacted."""
    world = CleanerWorld(replace(COMPACTED, cleanup_policy=frozenset({"delete"})))
    world.put((None, b"1"), (b"a", b"1"))
    world.put((None, b"2"))
    world.log.config = COMPACTED
    world.clean_all()
    assert world.pairs() == [(1, b"a", b"1")]


def test_compacted_batches_keep_offsets_epochs_and_sequences() -> None:
    world = CleanerWorld()
    world.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), codec=Codec.LZ4, producer_id=7, sequence=40)
    world.put((b"c", b"2"))
    before = world.headers()[0]
    world.clean_all()
    after = world.headers()[0]
    for name in ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.codec, after.record_count) == (Codec.LZ4, 2)


def test_a_tombstone_is_removed_after_delete_retention_ms() -> None:
    world = CleanerWorld(replace(COMPACTED, delete_retention_ms=DAY_MS))
    world.put((b"a", b"1"))
    world.pass_time(1000)
    world.put((b"a", None))
    world.clean_all()
    assert world.pairs() == [(1, b"a", None)]
    world.pass_time(DAY_MS // 2)
    world.put((b"b", b"1"))
    world.clean_all()
    assert world.pairs() == [(1, b"a", None), (2, b"b", b"1")]
    for value in (b"2", b"3"):
        world.roll()  # The clean part was last modified when the record before it was appended.
        world.pass_time(DAY_MS)
        world.log.config = replace(world.log.config, segment_bytes=100)  # Keeps the clean segments apart.
        world.put((b"b", value))
        world.clean_all()
    assert world.pairs() == [(4, b"b", b"3")]


def test_records_of_aborted_transactions_are_removed_and_not_counted_as_latest() -> None:
    world = CleanerWorld()
    world.put((b"a", b"committed"))
    world.put((b"a", b"aborted"), (b"b", b"aborted"), producer_id=1, transactional=True)
    world.put((b"b", b"committed"), producer_id=2, transactional=True)
    world.end(ABORT, 1)
    world.end(COMMIT, 2)
    world.put((b"z", b"1"), producer_id=1, sequence=2)  # Otherwise the aborted batch would be kept, empty.
    world.clean_all()
    values = [record.value for record in world.records() if record.key in {b"a", b"b", b"z"}]
    assert values == [b"committed", b"committed", b"1"]


def test_a_marker_stays_while_data_of_its_transaction_does() -> None:
    world = CleanerWorld(replace(COMPACTED, delete_retention_ms=0))
    world.put((b"a", b"1"), producer_id=1, transactional=True)
    world.end(COMMIT, 1)
    world.put((b"b", b"1"), producer_id=2, transactional=True)
    world.end(ABORT, 2)
    for number in range(4):
        world.put((b"c", b"%d" % number), producer_id=9, sequence=number)
        world.clean_all()
        world.kill()
        assert world.log.last_stable_offset(world.log.log_end_offset) == world.log.log_end_offset
        assert not world.log.producer_state.has_transactions
    assert (0, b"a", b"1") in world.pairs()
    assert 1 in {record.offset for record in world.records()}


def test_markers_without_data_are_removed_after_the_retention() -> None:
    world = CleanerWorld(replace(COMPACTED, delete_retention_ms=0))
    world.put((b"a", b"1"), producer_id=1, transactional=True)
    world.end(COMMIT, 1)
    world.put((b"a", b"2"), producer_id=1, epoch=1)
    for number in range(3):
        world.put((b"c", b"%d" % number))
        world.clean_all()
    assert [offset for offset, _, _ in world.pairs()] == [2, 5]


def test_a_marker_emptied_by_kafkas_cleaner_is_removed_once_its_producer_expired() -> None:
    world = CleanerWorld(replace(COMPACTED, delete_retention_ms=0))
    marker = build_end_transaction_marker(
        EndTransactionMarker(ABORT, 0), producer_id=1, producer_epoch=3, timestamp=world.now_ms
    )
    world.log.append_as_follower(rebuild_batch(parse_header(marker), []))
    for number in range(3):
        world.put((b"c", b"%d" % number))
        world.clean_all()
    assert [header.base_offset for header in world.headers()] == [3]


def test_a_producer_can_continue_after_all_its_records_were_compacted_away() -> None:
    world = CleanerWorld()
    world.put((b"a", b"1"), (b"a", b"2"), producer_id=5, sequence=0)
    world.put((b"a", b"3"))
    world.clean_all()
    assert [header.record_count for header in world.headers()] == [0, 1]
    world.manager.clean_shutdown()
    for name in world.file_names():
        if name.endswith(".snapshot"):
            world.disk.remove(f"/data/{TP}/{name}")
    world.disk.remove("/data/.kafka_cleanshutdown")
    world.start()
    entry = world.log.producer_state.producers[5]
    assert (entry.last_sequence, entry.last_offset) == (1, 1)
    assert entry.last_timestamp == world.now_ms, "or it would have expired long ago"


def test_cleaning_stops_at_the_first_open_transaction() -> None:
    world = CleanerWorld(replace(COMPACTED, segment_bytes=100))
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.put((b"a", b"3"), producer_id=1, transactional=True)
    world.put((b"a", b"4"))
    world.clean_all()
    assert [offset for offset, _, _ in world.pairs()] == [1, 2, 3]
    world.end(COMMIT, 1)
    world.clean_all()
    assert [offset for offset, key, _ in world.pairs() if key == b"a"] == [3]


def test_small_segments_become_one_and_keep_the_time_of_the_last() -> None:
    world = CleanerWorld(replace(COMPACTED, segment_bytes=200))
    for number in range(20):
        world.pass_time(10)
        world.put((b"a", b"%d" % number), (b"key-%d" % (number % 3), b"x"))
    world.roll()
    last = world.log.segments[-2].modified_ms
    world.log.config = replace(world.log.config, segment_bytes=1 << 20)
    world.clean_all()
    assert len(world.log.segments) == 2
    assert world.log.segments[0].modified_ms == last
    assert not [name for name in world.file_names() if name.endswith((".cleaned", ".swap"))]
    remove_due_files(world.manager, world.now_ms)
    assert len([name for name in world.file_names() if name.endswith(".log")]) == 2


def test_keys_beyond_the_dedupe_buffer_are_left_to_the_next_cleaning() -> None:
    world = CleanerWorld(dedupe_buffer_bytes=4 * ENTRY_BYTES)
    for number in range(40):
        world.put((b"key-%d" % (number % 20), b"%d" % number))
    world.roll()
    rounds = 0
    while world.clean():
        rounds += 1
    assert rounds > 3
    assert [offset for offset, _, _ in world.pairs()] == list(range(20, 40))


def test_running_reads_continue_and_later_ones_find_the_cleaned_records() -> None:
    world = CleanerWorld()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll()
    before = world.log.read(0, 1 << 20, max_offset=2)
    world.clean_all()
    remove_due_files(world.manager, world.now_ms)
    assert len(list(iterate_records(before.read()))) == 1
    assert [record.value for record in read_records(world.log, 0)] == [b"2"]


@for_rows("when", range(3))
@for_rows("what", ["truncate", "truncate and append", "start over", "delete", "retain"])
def test_a_log_changed_during_its_cleaning_is_left_unchanged(what: str, when: int) -> None:
    world = CleanerWorld()
    for number in range(6):
        world.put((b"a", b"%d" % number))
        world.roll()
    world.log.config = replace(world.log.config, segment_bytes=200)
    found = run_at_once(world.cleaner.next(world.now_ms))
    assert found is not None
    log = world.log
    steps = world.cleaner.steps(*found, world.now_ms)
    for _ in range(when):
        next(steps)()
    work = next(steps)
    match what:
        case "truncate" | "truncate and append":
            log.truncate_to(4)
            if "append" in what:
                world.put((b"b", b"x"))
                world.put((b"b", b"y"))
                world.roll()
        case "start over":
            log.truncate_fully_and_start_at(100)
        case "delete":
            world.manager.delete(TP)
        case "retain":
            log.increment_log_start_offset(5)
            log.delete_old_segments(world.now_ms, log.log_end_offset)
    if what != "delete":
        before = world.pairs()
    work()
    for work in steps:
        work()
    assert world.cleaner.uncleanable == {}
    if what == "delete":
        assert not world.disk.exists(f"/data/{TP}")
        return
    assert world.pairs() == before
    assert not [name for name in world.file_names() if name.endswith((".cleaned", ".swap"))]
    world.clean_all()
    assert len({key for _, key, _ in world.pairs()}) == len(world.pairs())


def test_appends_after_a_truncation_below_the_clean_point_are_dirty() -> None:
    world = CleanerWorld()
    world.put((b"a", b"1"))
    world.put((b"b", b"1"))
    world.clean_all()
    world.log.truncate_to(1)
    world.put((b"a", b"2"))
    world.put((b"a", b"3"))
    world.clean_all()
    assert world.pairs() == [(2, b"a", b"3")]


def test_damage_makes_a_log_uncleanable_and_is_located(caplog: pytest.LogCaptureFixture) -> None:
    world = CleanerWorld()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll()
    path = world.log.segments[0].path(".log")
    file = world.disk.open(path)
    file.write_at(file.size() - 3, b"\xff")
    before = world.disk.read(path)
    assert world.clean()
    assert not world.clean()
    assert "checksum" in world.cleaner.uncleanable[TP]
    assert path in world.cleaner.uncleanable[TP]
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    assert world.disk.read(path) == before
    assert not [name for name in world.file_names() if name.endswith(".cleaned")]


def test_a_stop_ends_a_cleaning_within_a_batch() -> None:
    class Stopping:
        def spend(self, byte_count: int) -> None:
            raise CleaningAborted("the broker stops")

    world = CleanerWorld(pace=Stopping())
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll()
    assert world.clean()
    assert len(world.pairs()) == 2
    assert world.cleaner.uncleanable == {}


def test_compact_and_delete_does_both() -> None:
    world = CleanerWorld(replace(COMPACTED, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000))
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.clean_all()
    assert len(world.pairs()) == 1
    world.pass_time(5000)
    world.put((b"b", b"1"))
    world.roll()
    world.log.delete_old_segments(world.now_ms, world.log.log_end_offset)
    assert [key for _, key, _ in world.pairs()] == [b"b"]


def test_the_dirtiest_log_comes_first() -> None:
    world = CleanerWorld()
    other = world.manager.get_or_create(TP._replace(partition=1), config=COMPACTED)
    for log in (world.log, other):
        world.log = log
        for _ in range(10):
            world.put((b"a", b"1"))
        world.roll()
    first = run_at_once(world.cleaner.next(world.now_ms))
    assert first is not None
    world.clean()
    second = run_at_once(world.cleaner.next(world.now_ms))
    assert second is not None
    assert {first[0], second[0]} == {world.manager.get(TP), other}


def test_tombstones_with_a_delete_horizon_are_removed_at_that_time() -> None:
    """KIP-534: bit 6, and the horizon in place of the base timestamp."""
    world = CleanerWorld()
    horizon = world.now_ms + 1000
    batch = bytearray(build_batch([Record(0, horizon, b"a", None), Record(1, horizon, b"b", b"1")]))
    batch[22] |= 0x40
    seal(batch, parse_header(batch))
    world.log.append_as_leader(batch, leader_epoch=0, now_ms=world.now_ms, from_client=False)
    world.clean_all()
    assert [key for _, key, _ in world.pairs()] == [b"a", b"b"]
    world.pass_time(2000)
    world.put((b"c", b"1"))
    world.clean_all()
    assert [key for _, key, _ in world.pairs()] == [b"b", b"c"]

"""Partitions that Apache Kafka stored in message formats 0 and 1: opened, recovered, searched, continued.

The files are in tests/golden/storage/old-formats, with what kafka-python read from Kafka's own broker.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from kctl.records.batch import crc_ok, iterate_batches, iterate_records
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.records.old_formats.legacy import build_messages
from kctl.storage.config import LogConfig
from kctl.storage.files import RealFiles
from kctl.storage.log.log import Log
from kctl.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from tests.unit.storage.log_builder import LogOnDisk, read_records

GOLDEN = Path(__file__).parents[2] / "golden" / "storage" / "old-formats"
EXPECTED: dict[str, list[tuple[int, int, str | None, str | None]]] = json.loads((GOLDEN / "expected.json").read_text())
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=512, retention_ms=-1)
FIRST_TIMESTAMP = 1_600_000_000_000

TOPICS = pytest.mark.parametrize("topic", sorted(EXPECTED))


def expected(topic: str) -> list[Record]:
    return [
        Record(offset, timestamp, None if key is None else key.encode(), None if value is None else value.encode())
        for offset, timestamp, key, value in EXPECTED[topic]
    ]


@pytest.fixture
def kafkas(tmp_path: Path, topic: str) -> LogOnDisk:
    """Our log on a copy of Kafka's files."""
    shutil.copytree(GOLDEN / f"{topic}-0", tmp_path / "orders-0")
    return LogOnDisk(CONFIG, files=RealFiles(), at=str(tmp_path))


def log_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log")) if path.stat().st_size}


def drop_indexes(log: Log) -> None:
    for path in Path(log.directory).iterdir():
        if path.suffix in {INDEX_SUFFIX, TIME_INDEX_SUFFIX}:
            path.unlink()


def test_the_files_hold_every_format_and_codec() -> None:
    found = set()
    for path in GOLDEN.glob("*/*.log"):
        data = path.read_bytes()
        found |= {(header.magic, header.codec) for header in iterate_batches(data)}
    assert found >= {(magic, codec) for magic in (0, 1) for codec in Codec if codec is not Codec.ZSTD}
    assert {(2, Codec.NONE), (2, Codec.LZ4)} <= found


@TOPICS
def test_every_record_is_read_as_kafka_gives_it(kafkas: LogOnDisk, topic: str) -> None:
    assert kafkas.records() == expected(topic)
    assert kafkas.log.log_end_offset == len(expected(topic))


@TOPICS
def test_kafkas_indexes_lead_to_every_offset(kafkas: LogOnDisk, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for offset in range(kafkas.log.log_end_offset):
            data = kafkas.log.read(offset, 1, max_offset=kafkas.log.log_end_offset).read()
            (header,) = iterate_batches(data)
            assert crc_ok(data, header)
            assert offset in {record.offset for record in iterate_records(data, header)}
    assert not caplog.records, "no index had to be rebuilt"


@pytest.mark.long
@TOPICS
def test_recovery_finds_all_and_changes_no_record(kafkas: LogOnDisk, topic: str) -> None:
    before = log_bytes(Path(kafkas.directory))
    drop_indexes(kafkas.log)
    kafkas.crash_and_reopen(recovery_point=0)
    assert kafkas.records() == expected(topic)
    assert log_bytes(Path(kafkas.directory)) == before
    for offset in range(kafkas.log.log_end_offset):
        assert read_records(kafkas.log, offset, max_bytes=1)[0].offset == offset


@TOPICS
def test_an_index_that_kafka_did_not_have_yet_is_made(kafkas: LogOnDisk, topic: str) -> None:
    kafkas.close()
    drop_indexes(kafkas.log)
    kafkas.open()
    assert kafkas.records() == expected(topic)


@TOPICS
@pytest.mark.parametrize("with_kafkas_indexes", [True, False])
def test_times_are_found_where_records_have_any(kafkas: LogOnDisk, topic: str, with_kafkas_indexes: bool) -> None:
    if not with_kafkas_indexes:
        drop_indexes(kafkas.log)
        kafkas.crash_and_reopen(recovery_point=0)
    records, end = expected(topic), kafkas.log.log_end_offset
    times = sorted({record.timestamp for record in records})
    for time in {0, FIRST_TIMESTAMP, *(t + d for t in times for d in (-1, 0, 1)), times[-1] + 10}:
        if time < 0:
            continue
        found = kafkas.log.offset_for_timestamp(time, max_offset=end)
        first = next((record for record in records if record.timestamp >= time), None)
        assert (found and (found.offset, found.timestamp)) == (first and (first.offset, first.timestamp)), time


@TOPICS
def test_new_records_follow_in_the_new_format_also_after_a_crash(kafkas: LogOnDisk, topic: str) -> None:
    end = kafkas.log.log_end_offset
    kafkas.log.assign_epoch(5, end)
    assert kafkas.append(b"new", b"er", leader_epoch=5).base_offset == end
    for _ in range(2):
        values = [record.value for record in expected(topic)]
        assert kafkas.values() == [*values, b"new", b"er"]
        assert kafkas.log.leader_epochs.latest_epoch == 5
        kafkas.crash_and_reopen(recovery_point=0)


@TOPICS
def test_truncation_stops_at_the_message_that_holds_the_offset(kafkas: LogOnDisk, topic: str) -> None:
    records = expected(topic)
    for offset in range(kafkas.log.log_end_offset - 1, 0, -7):
        kafkas.log.truncate_to(offset)
        left = kafkas.records()
        assert left == records[: len(left)]
        assert offset - 6 <= len(left) <= offset, "wrappers hold six records"
        assert kafkas.log.log_end_offset == offset


@TOPICS
def test_recovery_cuts_at_the_first_wrong_checksum(kafkas: LogOnDisk, topic: str) -> None:
    segments = kafkas.log.segments
    path = Path(segments[0].path(LOG_SUFFIX))
    kafkas.close()
    data = bytearray(path.read_bytes())
    headers = list(iterate_batches(data))
    data[headers[2].end - 1] ^= 1
    path.write_bytes(data)
    kafkas.open(was_clean=False)
    assert kafkas.log.log_end_offset == headers[1].next_offset
    assert kafkas.records() == expected(topic)[: headers[1].next_offset]


@TOPICS
def test_recovery_cuts_a_half_written_message(kafkas: LogOnDisk, topic: str) -> None:
    path = Path(kafkas.log.active_segment.path(LOG_SUFFIX))
    kafkas.close()
    data = path.read_bytes()
    last = list(iterate_batches(data))[-1]
    for size in (last.position + 1, last.position + 20, last.end - 1):
        path.write_bytes(data[:size])
        kafkas.open(was_clean=False)
        assert path.stat().st_size == last.position
        assert kafkas.records() == [record for record in expected(topic) if record.offset < kafkas.log.log_end_offset]
        kafkas.close()


@TOPICS
def test_retention_goes_by_record_times_and_else_by_those_of_the_files(kafkas: LogOnDisk, topic: str) -> None:
    kafkas.log.config = LogConfig(segment_bytes=4096, index_interval_bytes=512, retention_ms=1000)
    end = kafkas.log.log_end_offset
    has_times = [segment.largest_timestamp >= 0 for segment in kafkas.log.segments]
    timestamps = [segment.retention_timestamp for segment in kafkas.log.segments]
    assert all(has_times) or topic.startswith(("magic0", "grown"))
    assert kafkas.log.delete_old_segments(min(timestamps), end) == 0
    assert kafkas.log.delete_old_segments(max(timestamps) + 1001, end) == len(timestamps)
    assert kafkas.log.log_start_offset == end


@TOPICS
def test_a_follower_copies_what_its_leader_stores(tmp_path: Path, topic: str) -> None:
    copy = LogOnDisk(CONFIG, files=RealFiles(), at=str(tmp_path))
    for data in log_bytes(GOLDEN / f"{topic}-0").values():
        position = 0
        while position < len(data):
            piece = data[position : position + 1500]
            taken = list(iterate_batches(piece))
            copy.log.append_as_follower(piece)
            position += taken[-1].end
    assert copy.records() == expected(topic)
    assert b"".join(log_bytes(Path(copy.directory)).values()) == b"".join(log_bytes(GOLDEN / f"{topic}-0").values())
    copy.crash_and_reopen(recovery_point=0)
    assert copy.records() == expected(topic)


def test_a_segment_that_starts_with_a_wrapper_is_named_by_the_first_offset_inside(tmp_path: Path) -> None:
    copy = LogOnDisk(LogConfig(segment_bytes=100), files=RealFiles(), at=str(tmp_path))
    for start in (0, 3, 6):
        records = [Record(start + i, 5, b"k", b"v") for i in range(3)]
        copy.log.append_as_follower(build_messages(records, magic=1, codec=Codec.SNAPPY))
    assert [segment.base_offset for segment in copy.log.segments] == [0, 3, 6]
    assert [record.offset for record in copy.records()] == list(range(9))


def test_an_index_of_first_offsets_as_kafka_0_10_wrote_it_is_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = LogOnDisk(LogConfig(index_interval_bytes=1), files=RealFiles(), at=str(tmp_path))
    starts = list(range(0, 30, 3))
    for start in starts:
        records = [Record(start + i, 5, b"k", b"v") for i in range(3)]
        disk.log.append_as_follower(build_messages(records, magic=1, codec=Codec.GZIP))
    segment = disk.log.active_segment
    headers = list(segment.headers())
    disk.close()
    entries = [(start, header.position) for start, header in zip(starts, headers, strict=True)][1:]
    Path(segment.path(INDEX_SUFFIX)).write_bytes(
        b"".join(start.to_bytes(4, "big") + position.to_bytes(4, "big") for start, position in entries)
    )
    with caplog.at_level(logging.WARNING):
        disk.open()
        for offset in range(30):
            assert read_records(disk.log, offset, max_bytes=1)[0].offset == offset
    assert not caplog.records

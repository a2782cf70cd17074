"""kctl dump-log --summary and --salvage."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kctl.commands.dump_log.dumping import lost_text
from kctl.commands.frame.exit_status import ExitStatus
from kctl.dump.summary import LostRange
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl

T0 = 1_700_000_000_000
FIRST, SECOND = "00000000000000000100.log", "00000000000000000160.log"


def batch(base_offset: int, count: int = 10, codec: Codec = Codec.NONE) -> bytes:
    """Records of different sizes, one per second."""
    records = [
        Record(0, T0 + (base_offset + number) * 1000, None, random.Random(number).randbytes(20 + number))
        for number in range(count)
    ]
    return build_batch(records, base_offset=base_offset, codec=codec)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Offsets 100 to 179 in two segments, with 150 to 159 absent as after compaction."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / FIRST).write_bytes(
        b"".join(batch(100 + at, codec=Codec.ZSTD if at > 20 else Codec.NONE) for at in range(0, 50, 10))
    )
    (folder / SECOND).write_bytes(batch(160) + batch(175, 5))
    return folder


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def test_sound_partition_has_status_0_and_no_problems(kctl: Kctl, partition: Path) -> None:
    ran = kctl(f"dump-log --summary {partition} --format json")
    assert ran.status == 0
    size = sum(path.stat().st_size for path in partition.iterdir())
    assert ran.document == [
        {
            "partition": "orders-0",
            "segments": 2,
            "bytes": size,
            "batches": 7,
            "records": 65,
            "first_offset": 100,
            "last_offset": 179,
            "first_timestamp_ms": T0 + 100_000,
            "last_timestamp_ms": T0 + 179_000,
            "codecs": {"none": 5, "zstd": 2},
            "absent_offsets": 15,
            "lost_offsets": 0,
            "lost_bytes": 0,
            "lost": [],
            "error": None,
            "message": None,
        }
    ]


def test_lost_offsets_are_named(kctl: Kctl, partition: Path) -> None:
    length = len(batch(100))
    flip(partition / FIRST, length + 70)
    (partition / SECOND).write_bytes((partition / SECOND).read_bytes()[:-3])
    ran = kctl(f"dump-log --summary {partition} --format json")
    assert ran.status == ExitStatus.FAILED
    (row,) = ran.document
    assert [(range_["first"], range_["last"], Path(range_["file"]).name) for range_ in row["lost"]] == [
        (110, 119, FIRST),
        (170, None, SECOND),
    ]
    assert (row["batches"], row["records"], row["last_offset"], row["lost_offsets"]) == (5, 50, 169, 10)
    assert row["lost_bytes"] == length + len(batch(175, 5)) - 3
    ran = kctl(f"dump-log --summary {partition}")
    assert ran.rows[0][10:12] == ["110 to 119 and from 170 lost", "CORRUPT_MESSAGE"]


def test_damage_at_the_end_of_an_earlier_segment_ends_before_the_next(kctl: Kctl, partition: Path) -> None:
    (partition / FIRST).write_bytes((partition / FIRST).read_bytes()[:-3])
    (row,) = kctl(f"dump-log --summary {partition} --format json").document
    assert [(range_["first"], range_["last"]) for range_ in row["lost"]] == [(140, 159)]


def test_the_valid_batches_are_copied_byte_for_byte(kctl: Kctl, partition: Path, tmp_path: Path) -> None:
    intact = (partition / FIRST).read_bytes()
    length = len(batch(100))
    flip(partition / FIRST, length + 70)
    target = tmp_path / FIRST
    ran = kctl(f"dump-log --salvage {target} {partition / FIRST}")
    assert (ran.status, ran.rows[0][10]) == (ExitStatus.FAILED, "110 to 119 lost")
    assert target.read_bytes() == intact[:length] + intact[2 * length :]
    again = kctl(f"dump-log --summary {target} --format json")
    assert (again.status, again.document[0]["batches"], again.document[0]["absent_offsets"]) == (0, 4, 10)
    assert kctl(f"dump-log --verify-only {target}").status == 0
    assert kctl(f"dump-log --salvage {target} {partition / FIRST}").status == ExitStatus.REFUSED
    assert target.read_bytes() == intact[:length] + intact[2 * length :]


def test_an_intact_log_is_copied_into_a_directory(kctl: Kctl, partition: Path, tmp_path: Path) -> None:
    assert kctl(f"dump-log --salvage {tmp_path} {partition / SECOND}").status == 0
    assert (tmp_path / SECOND).read_bytes() == (partition / SECOND).read_bytes()


def test_nothing_is_left_if_nothing_can_be_salvaged(kctl: Kctl, partition: Path, tmp_path: Path) -> None:
    (partition / FIRST).write_bytes(b"no batch" * 50)
    ran = kctl(f"dump-log --salvage {tmp_path} {partition / FIRST}")
    assert ran.status == ExitStatus.FAILED
    assert "has no valid batch" in ran.err
    assert not (tmp_path / FIRST).exists()


@pytest.mark.parametrize("seed", range(20))
def test_any_damage_is_survived_by_all_batches_that_it_does_not_touch(kctl: Kctl, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    parts = [batch(100 + 10 * number) for number in range(6)]
    touched = sorted(chance.sample(range(6), 2))
    data = bytearray()
    for number, part in enumerate(parts):
        start = len(data)
        data += part
        if number in touched:
            data[start + chance.randrange(8, len(part))] ^= 1 << chance.randrange(8)
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / FIRST).write_bytes(data)
    kctl(f"dump-log --salvage {tmp_path} {folder / FIRST}")
    assert (tmp_path / FIRST).read_bytes() == b"".join(p for n, p in enumerate(parts) if n not in touched)


@for_rows(
    "line",
    [
        "--salvage {target}/x.log {log}",
        "--salvage {target}/00000000000000000099.log {log}",
        "--salvage {target} {folder}",
        "--salvage {target} --summary {log}",
        "--summary --records {log}",
        "--summary --rebuild-index {log}",
        "--summary {folder}/00000000000000000100.index",
    ],
)
def test_invalid_options_are_refused(kctl: Kctl, partition: Path, tmp_path: Path, line: str) -> None:
    (partition / "00000000000000000100.index").write_bytes(b"")
    filled = line.format(target=tmp_path, log=partition / FIRST, folder=partition)
    assert kctl(f"dump-log {filled}").status == ExitStatus.USAGE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders-0"]


def test_lost_ranges_are_written_as_offsets() -> None:
    def lost(first: int, last: int | None) -> LostRange:
        return LostRange("x.log", first, last, 1, "wrong checksum")

    assert lost_text([lost(1677, 1967), lost(3001, None)]) == "1677 to 1967 and from 3001 lost"
    assert lost_text([lost(1, 1), lost(3, 4), lost(9, 9)]) == "1, 3 to 4 and 9 lost"
    assert lost_text([lost(1, 0)]) is None
    assert (
        lost_text([lost(n, n) for n in range(0, 24, 2)]) == "0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 2 more ranges lost"
    )

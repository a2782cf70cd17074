"""kctl dump-log reads files with any name, standard input, pipes and compressed files."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.commands.dump_log.dumping import DUMP_INPUT_BYTES_MAX
from kctl.dump.kinds import base_offset_of
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.commands.conftest import Kctl

FIRST = 5_000_000_000
SEGMENT = f"{FIRST:020d}"
BATCHES = [
    build_batch(
        [Record(0, 1_700_000_000_000 + 1000 * number + more, b"k", b"v" * 1000) for more in range(2)],
        base_offset=FIRST + 2 * number,
    )
    for number in range(20)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kctl: Kctl) -> Path:
    """A segment with its indexes, in the current directory; temporary files go beside it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = tmp_path / "orders-0"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path(f"{SEGMENT}.log").write_bytes(b"".join(BATCHES))
    assert kctl(f"dump-log --rebuild-index {SEGMENT}.log").status == 0
    return folder


def shown(kctl: Kctl, line: str, status: int = 0) -> list[dict[str, object]]:
    """The rows without the names of the file and its partition."""
    ran = kctl(f"dump-log --format json {line}")
    assert ran.status == status, ran.err + ran.out
    return [
        {name: value for name, value in row.items() if name not in {"file", "topic", "partition"}}
        for row in json.loads(ran.out)
    ]


@pytest.fixture
def stdin() -> Iterator[Callable[[str], None]]:
    """Makes a file the standard input of this process, until the test ends."""
    kept = os.dup(0)

    def replace(name: str) -> None:
        with open(name, "rb") as file:
            os.dup2(file.fileno(), 0)

    yield replace
    os.dup2(kept, 0)
    os.close(kept)


@pytest.mark.parametrize("options", ["", "--records", "--verify-only", "--records --offset 5000000005:5000000007"])
def test_a_log_with_any_name_is_read_by_its_contents(
    kctl: Kctl, folder: Path, stdin: Callable[[str], None], options: str
) -> None:
    expected = shown(kctl, f"{options} {SEGMENT}.log")
    for name in ("728.log", "copy.log", "segment", "a.b.log", "728.log.deleted", f"{SEGMENT[1:]}.log"):
        shutil.copy(f"{SEGMENT}.log", name)
        assert shown(kctl, f"{options} {name}") == expected, name
    for name in (f"{SEGMENT}.log.gz", "segment.gz"):
        Path(name).write_bytes(gzip.compress(b"".join(BATCHES)))
        assert shown(kctl, f"{options} {name}") == expected, name
        stdin(name)
        assert shown(kctl, f"{options} -") == expected, name
    for name in ("-", "/dev/stdin"):
        stdin("segment")
        assert shown(kctl, f"{options} {name}") == expected, name
    reading, writing = os.pipe()
    os.write(writing, b"".join(BATCHES))
    os.close(writing)
    assert shown(kctl, f"{options} /dev/fd/{reading}") == expected
    os.close(reading)
    assert list((folder.parent / "temporary").iterdir()) == []


def test_an_index_with_another_name_belongs_to_the_log_beside_it(kctl: Kctl, folder: Path) -> None:
    for suffix in ("log", "index", "timeindex"):
        shutil.copy(f"{SEGMENT}.{suffix}", f"copy.{suffix}")
    for suffix in ("index", "timeindex"):
        rows = shown(kctl, f"{SEGMENT}.{suffix}")
        assert rows, suffix
        assert shown(kctl, f"copy.{suffix}") == rows, suffix
    # Compaction has removed the first batches: the indexes still begin where the segment did.
    for suffix, entries in (("index", 9), ("timeindex", 10)):
        Path(f"compacted.{suffix}").write_bytes(Path(f"{SEGMENT}.{suffix}").read_bytes())
        assert len(shown(kctl, f"{SEGMENT}.{suffix}")) == entries
    Path("compacted.log").write_bytes(b"".join(BATCHES[10:]))
    assert base_offset_of("compacted.log") == FIRST + 20
    assert base_offset_of("compacted.timeindex") <= FIRST + 20
    os.unlink("copy.log")
    assert next(row["offset"] for row in shown(kctl, "copy.index")) == 5, "relative, because nothing says to what"


def test_damage_in_a_log_with_another_name_is_reported_as_in_a_segment(kctl: Kctl, folder: Path) -> None:
    data = bytearray(b"".join(BATCHES))
    data[5 * len(BATCHES[0]) + 100] ^= 1
    for name in (f"{SEGMENT}.log", "copy.log"):
        Path(name).write_bytes(data)
    assert shown(kctl, "copy.log", 1) == shown(kctl, f"{SEGMENT}.log", 1)
    Path("copy.log").write_bytes(data[1000:])
    rows = shown(kctl, "copy.log", 1)
    assert next(row["base_offset"] for row in rows if row["type"] == "batch") == FIRST + 2
    assert sum(row["error"] is not None for row in rows) == 2


def test_what_is_no_log_is_named(kctl: Kctl, folder: Path, stdin: Callable[[str], None]) -> None:
    Path("notes.txt").write_text("not a log\n" * 100)
    Path("empty").write_bytes(b"")
    for name in ("notes.txt", "empty"):
        assert "not a log file" in str(shown(kctl, name, 1)), name
    stdin("notes.txt")
    assert kctl("dump-log -").status == 1
    Path("cut.log.gz").write_bytes(gzip.compress(b"".join(BATCHES))[:-20])
    ran = kctl("dump-log cut.log.gz")
    assert (ran.status, ran.err.startswith("kctl: cut.log.gz: Compressed file ended")) == (2, True)


def test_a_compressed_file_that_is_too_large_is_refused(
    kctl: Kctl, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kctl.commands.dump_log.dumping.DUMP_INPUT_BYTES_MAX", 1 << 20)
    Path("bomb.gz").write_bytes(gzip.compress(bytes(2 << 20)))
    ran = kctl("dump-log bomb.gz")
    assert (ran.status, "bomb.gz: has more than 1,048,576 bytes" in ran.err) == (2, True)
    assert list((folder.parent / "temporary").iterdir()) == []
    assert DUMP_INPUT_BYTES_MAX > 1 << 31, "a segment has up to 2 GiB"


def test_summary_salvage_and_rebuild_of_files_with_other_names(
    kctl: Kctl, folder: Path, stdin: Callable[[str], None]
) -> None:
    for name in ("copy.log", "728.log"):
        shutil.copy(f"{SEGMENT}.log", name)
    (expected,) = shown(kctl, f"--summary {SEGMENT}.log")
    rows = shown(kctl, "--summary copy.log 728.log")
    assert rows == [expected, expected]
    stdin("copy.log")
    assert shown(kctl, "--summary -") == [expected]
    os.mkdir("saved")
    assert kctl("dump-log --salvage saved copy.log").status == 0
    assert Path(f"saved/{SEGMENT}.log").read_bytes() == b"".join(BATCHES)
    ran = kctl("dump-log --rebuild-index copy.log")
    assert (ran.status, "name it as brokers do" in ran.err) == (2, True)


@pytest.mark.parametrize("compat", ["kafka-2.8", "kafka-3", "kafka-4"])
def test_text_of_kafkas_tool_for_standard_input_is_that_for_the_file(
    kctl: Kctl, folder: Path, stdin: Callable[[str], None], compat: str
) -> None:
    expected = kctl(f"dump-log --compat {compat} --print-data-log {SEGMENT}.log").out.splitlines()
    stdin(f"{SEGMENT}.log")
    assert kctl(f"dump-log --compat {compat} --print-data-log -").out.splitlines()[1:] == expected[1:]
    Path(f"{SEGMENT}.log.gz").write_bytes(gzip.compress(b"".join(BATCHES)))
    ran = kctl(f"dump-log --compat {compat} --print-data-log {SEGMENT}.log.gz")
    assert ran.out.splitlines() == [f"Dumping {SEGMENT}.log.gz", *expected[1:]]

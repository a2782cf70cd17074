"""The progress line of a long dump on a terminal, which is removed at the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.records.build import build_batch
from kctl.records.header import Record

PATIENCE_S = 120
SIZE = 40 << 20
ERASE = b"\r\x1b[K"


@pytest.fixture(scope="module")
def large_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large-0") / "00000000000000000000.log"
    records = [Record(0, 1_700_000_000_000, b"key-%03d" % at, b"v" * 40) for at in range(200)]
    batch = bytearray(build_batch(records))
    with path.open("wb") as file:
        for number in range(SIZE // len(batch) + 1):
            batch[:8] = (number * len(records)).to_bytes(8, "big")
            file.write(batch)
    return path


def run_on_terminal(words: list[str], out: Path) -> bytes:
    """The bytes that a terminal receives as stderr while stdout is a file."""
    terminal, stderr = pty.openpty()
    with out.open("wb") as stdout:
        process = subprocess.Popen([sys.executable, "-m", "kctl", *words], stdout=stdout, stderr=stderr)
    os.close(stderr)
    seen = bytearray()
    try:
        while piece := os.read(terminal, 4096):
            seen += piece
    except OSError:
        pass  # Linux reports this when the other side has closed the terminal.
    finally:
        os.close(terminal)
    assert process.wait(PATIENCE_S) == 0
    return bytes(seen)


@pytest.mark.long
@pytest.mark.parametrize("words", [["--key", "none"], ["--compat", "kafka-4"]])
def test_a_terminal_shows_progress_and_erases_it_at_the_end(large_log: Path, tmp_path: Path, words: list[str]) -> None:
    out = tmp_path / "out"
    seen = run_on_terminal(["dump-log", "--records", *words, str(large_log)], out)
    size = f"{large_log.stat().st_size:,}".encode()
    assert seen.startswith(ERASE + large_log.name.encode())
    assert b" of " + size + b" (" in seen
    assert seen.endswith(ERASE)
    assert seen.count(b"\n") == 0
    assert ERASE not in out.read_bytes()


@pytest.mark.long
def test_the_line_is_gone_when_a_dump_ends_early(large_log: Path, tmp_path: Path) -> None:
    most = str(large_log.stat().st_size * 3 // 4)
    words = ["dump-log", "--records", "--compat", "kafka-4", "--max-bytes", most, str(large_log)]
    seen = run_on_terminal(words, tmp_path / "out")
    assert seen.startswith(ERASE)
    assert seen.endswith(ERASE)


@pytest.mark.long
def test_no_progress_is_written_if_stderr_is_not_a_terminal(large_log: Path) -> None:
    command = [sys.executable, "-m", "kctl", "dump-log", "--verify-only", str(large_log)]
    ran = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True)
    assert ran.stderr == b""

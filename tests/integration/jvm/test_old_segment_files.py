"""DumpLogSegments accepts logs of old message formats that kctl recovered and appended to."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kctl.storage.files import RealFiles
from tests.integration.jvm.test_segment_files import COMPLAINTS, DUMP
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, run_java_tool
from tests.unit.storage.log_builder import LogOnDisk
from tests.unit.storage.test_old_formats import CONFIG, EXPECTED, GOLDEN, drop_indexes

pytestmark = pytest.mark.jvm

RECORD = re.compile(r"(?:^\| offset: |^baseOffset: .* lastOffset: |^offset: )(\d+) ", re.MULTILINE)


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All segments, with the indexes of our recovery, and new batches behind the old messages."""
    found: list[Path] = []
    for topic in EXPECTED:
        folder = tmp_path_factory.mktemp(topic)
        shutil.copytree(GOLDEN / f"{topic}-0", folder / "orders-0")
        disk = LogOnDisk(CONFIG, files=RealFiles(), at=str(folder))
        drop_indexes(disk.log)
        disk.crash_and_reopen(recovery_point=0)
        for _ in range(5):
            disk.append(b"new" * 100, b"er")
        disk.close()
        found += sorted((folder / "orders-0").glob("*.log"))
    return found


@pytest.mark.parametrize("version", [OLDEST_JUDGE, LAST_WITH_ZOOKEEPER])
def test_kafkas_tool_accepts_old_format_segments(segments: list[Path], version: str) -> None:
    indexes = [path.with_suffix(kind) for path in segments for kind in (".index", ".timeindex")]
    for files, option in (
        (segments, "--deep-iteration"),
        (indexes, "--index-sanity-check"),
        (indexes, "--verify-index-only"),
    ):
        finished = run_java_tool(version, DUMP, ["--files", ",".join(map(str, files)), option])
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.count("Dumping ") == len(files)
        assert not COMPLAINTS.search(finished.stdout + finished.stderr)
        if files is segments:
            assert len(RECORD.findall(finished.stdout)) >= sum(map(len, EXPECTED.values()))

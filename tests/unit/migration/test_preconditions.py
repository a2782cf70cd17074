"""Before the first write: no process has the directories, and there is room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kctl.errors import UsageError
from kctl.migration.converting import preconditions
from kctl.migration.converting.preconditions import check_room, hold_directories
from tests.rows import for_rows

HOLDERS = {"kctl's broker": "flock", "Apache Kafka": "lockf"}
HOLD = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
getattr(fcntl, sys.argv[2])(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@for_rows("holder", HOLDERS)
def test_a_directory_that_another_process_has_is_refused(holder: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD, str(tmp_path / ".lock"), HOLDERS[holder]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="another process uses"), hold_directories([str(tmp_path)]):
            pass
        process.stdin.close()
    with hold_directories([str(tmp_path), str(tmp_path / "not there yet")]):
        pass


def test_without_room_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {str(tmp_path / "new" / "file"): b"data"}
    check_room(contents)
    monkeypatch.setattr(preconditions, "_ROOM_MIN", 1 << 60)
    with pytest.raises(UsageError, match="bytes free"):
        check_room(contents)

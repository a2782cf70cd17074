"""One seed of workers with the classic protocol; `python -m tests.faults.exactly_once` kills more."""

from __future__ import annotations

from pathlib import Path

from tests.faults.exactly_once import play


def test_workers_that_are_killed_write_each_record_once(tmp_path: Path) -> None:
    play("classic", 1, tmp_path, count=600, kills=1)

"""One seed of a group of several clients; `python -m tests.faults.mixed_groups --java` runs all assignors."""

from __future__ import annotations

from pathlib import Path

from tests.faults.mixed_groups import play


def test_group_of_three_clients_loses_no_record_when_members_are_killed(tmp_path: Path) -> None:
    play("roundrobin", 1, tmp_path, kills=1)

"""One seed of a group of several clients; with KCTL_EXAMPLES=10 ten seeds of all assignors, with Java's client too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.mixed_groups import CLIENTS, play
from tests.property.examples import share_of

SEEDS = share_of(1)
MINUTE_S = 60


@pytest.mark.timeout(5 * MINUTE_S * SEEDS * len(CLIENTS))
def test_group_of_three_clients_loses_no_record_when_members_are_killed(tmp_path: Path) -> None:
    if SEEDS == 1:
        play("roundrobin", 1, tmp_path, kills=1)
        return
    for seed in range(1, SEEDS + 1):
        for assignor in CLIENTS:
            folder = tmp_path / f"{assignor}-{seed}"
            folder.mkdir()
            play(assignor, seed, folder, has_java=True)

"""One round of usual faults; `python -m tests.faults.rounds --rounds 30` runs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.cluster import why_not
from tests.faults.rounds import ESSENTIAL, drawn, play, report

SEED = 2
USUAL = ("kill_broker", "halt_broker", "kill_zookeeper")


@pytest.mark.parametrize(
    "kinds", [USUAL, pytest.param(ESSENTIAL, marks=pytest.mark.matrix)], ids=["usual", "essential"]
)
@pytest.mark.timeout(600)
def test_acknowledged_records_are_not_lost_duplicated_or_reordered_by_faults(
    kinds: tuple[str, ...], tmp_path: Path
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    play(tmp_path, list(drawn(SEED, len(kinds), kinds)), report)


def test_a_seed_draws_the_same_faults_again() -> None:
    assert list(drawn(7, 40)) == list(drawn(7, 40))
    assert list(drawn(7, 40)) != list(drawn(8, 40))
    assert {fault.kind for fault in drawn(7, 8)} == {fault.kind for fault in drawn(8, 8)}

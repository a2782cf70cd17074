"""Every scenario in this folder holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rows import for_rows
from tests.scenarios.script import ScenarioFailed
from tests.scenarios.transactions.scenario import Scenario

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@for_rows("path", SCENARIOS)
def test_scenario_holds(path: Path) -> None:
    Scenario().run(path.read_text())


@for_rows(
    "play, complaint",
    [
        ("init a", "there are answers"),
        ("log holds\ninit a\nexpect a init NONE", "a has no answer"),
        ("init a\nexpect a init NONE epoch=1", "it is: a init NONE id=1000 epoch=0"),
        ("expect transaction Ongoing", "line 1: expect transaction Ongoing"),
        ("expect owed t-0", "it is: nothing"),
        ("expect log Empty", "the log is empty"),
    ],
)
def test_failing_scenario_is_detected(play: str, complaint: str) -> None:
    with pytest.raises(ScenarioFailed, match=complaint):
        Scenario().run(play)

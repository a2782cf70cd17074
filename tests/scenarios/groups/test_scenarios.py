"""Every scenario in this folder holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rows import for_rows
from tests.scenarios.groups.scenario import Scenario
from tests.scenarios.script import ScenarioFailed

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@for_rows("path", SCENARIOS)
def test_scenario_holds(path: Path) -> None:
    Scenario().run(path.read_text())


@for_rows(
    "play, complaint",
    [
        ("config initial_delay_ms=0\njoin a\nwait 1s", "there are answers"),
        ("join a\nexpect a joined", "a has no answer"),
        ("join a\nwait 3s\nexpect a joined generation=2", "it is: a joined generation=1"),
        ("expect group Stable", "line 1: expect group Stable"),
        ("expect offset t-0=5", "it is None"),
        ("expect log group", "the log is empty"),
    ],
)
def test_failing_scenario_is_detected(play: str, complaint: str) -> None:
    with pytest.raises(ScenarioFailed, match=complaint):
        Scenario().run(play)

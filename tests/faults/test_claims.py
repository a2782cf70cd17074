"""Two faults for two brokers that claim one id; `python -m tests.faults.claims --seeds 20` draws more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.claims import FIRST, Fault, hosts, play
from tests.faults.cluster import SESSION_TIMEOUT_S, why_not
from tests.faults.rounds import report

SEED = 0


@pytest.mark.timeout(400)
def test_paused_and_isolated_brokers_do_not_acknowledge_beside_the_one_that_took_their_id(tmp_path: Path) -> None:
    """The second starts while the first is paused, and while it reaches clients but not ZooKeeper."""
    if reason := why_not():
        pytest.skip(reason)
    faults = [Fault(kind, FIRST, 1.5 * SESSION_TIMEOUT_S) for kind in ("halt_and_start_other", "isolate")]
    with hosts(tmp_path) as (network, zookeeper):
        play(network, zookeeper, tmp_path, seed=SEED, faults=faults, report=report)

"""After a leader is killed and restarted consumers find all acknowledged records.  KIP-207."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.replication.conftest import TIMEOUT_S, Racks
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import accepts

pytestmark = pytest.mark.timeout(400)

RECORDS = 50


def consumed(racks: Racks, topic: str) -> int:
    """The killed broker stays leader until its session ends, which takes most of the commands' timeout."""
    config = f"default.api.timeout.ms={TIMEOUT_S * 1000}\n"
    return len(json.loads(racks.run(f"consume {topic} --format json", config=config)))


def test_all_records_are_readable_after_a_leader_kill_and_after_its_return(racks: Racks) -> None:
    racks.create("killed", 0, 1, 2)
    racks.produce("killed", RECORDS, size=100)
    racks.brokers[0].kill9()
    try:
        assert consumed(racks, "killed") == RECORDS
    finally:
        racks.brokers[0].start()
    assert consumed(racks, "killed") == RECORDS
    racks.until("all replicas are in sync", lambda: racks.partition("killed")[2] == {0, 1, 2})


def test_all_records_are_readable_once_the_only_broker_is_back(tmp_path: Path) -> None:
    """From the first connection that it accepts; the controller may not have sent it any request by then."""
    with kctl_broker(tmp_path / "data") as broker, ThreadPoolExecutor(1) as pool:
        racks = Racks([broker], tmp_path)
        racks.create("killed", 0)
        racks.produce("killed", RECORDS, size=100)
        broker.kill9()
        starting = pool.submit(broker.start)
        try:
            racks.until("the broker accepts", lambda: accepts(broker.bootstrap))
            assert consumed(racks, "killed") == RECORDS
        finally:
            starting.result()

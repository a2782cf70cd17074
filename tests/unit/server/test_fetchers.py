"""Which leaders a broker follows, as it is told and as it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kctl.client.transport import Connection, ConnectionLost
from kctl.server.inter_broker import inter_broker_versions
from kctl.server.replication.fetcher import FetchSettings, ReplicaFetchers
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk


class NobodyThere:
    """Peers that cannot be reached; says which were tried."""

    def __init__(self) -> None:
        self.tried: set[int] = set()

    async def connect(self, broker_id: int, purpose: str) -> Connection:
        self.tried.add(broker_id)
        raise ConnectionLost(f"broker {broker_id} is not there for {purpose}")


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_broker_that_stops_does_not_follow_those_who_lead_in_its_place(tmp_path: Path, *, is_stopping: bool) -> None:
    """It would be in sync again at once, and be taken out again when it is gone."""

    async def hand_over(loop: SimLoop) -> set[int]:
        disk, peers = Disk(loop, tmp_path, live=(0, 1)), NobodyThere()
        fetchers = ReplicaFetchers(
            replicas=disk.replicas,
            peers=peers,
            clock=disk.clock,
            settings=FetchSettings(500, 1, 1 << 20, 1 << 20, 1000, inter_broker_versions("2.8")),
            quota=ReplicationThrottles(0, disk.configs).follower,
            per_leader=1,
        )
        fetchers.follow(disk.lead("orders", replicas=(0, 1)))
        if is_stopping:
            fetchers.begin_shutdown()
        fetchers.follow(disk.lead("orders", leader=1, replicas=(0, 1)))
        await asyncio.sleep(1)
        await fetchers.close()
        disk.close()
        return peers.tried

    assert simulate(hand_over, seed=1) == (set() if is_stopping else {1})

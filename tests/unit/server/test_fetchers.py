"""The leaders that a broker fetches from, during role changes and shutdown, and with a damaged leader log."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.errors import ErrorCode
from kctl.limits import APPENDED_INLINE_BYTES_MAX
from kctl.protocol.apis.fetch import FetchPartition, PartitionData
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.peers.connections import Purpose
from kctl.server.replication.follower import fetcher as fetcher_module
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.following import OneLeader, fetchers_of


class UnreachablePeers:
    """Unreachable peers; records connection attempts."""

    def __init__(self) -> None:
        self.tried: set[int] = set()

    async def connect(self, broker_id: int, purpose: Purpose) -> Connection:
        self.tried.add(broker_id)
        raise ConnectionLost(f"broker {broker_id} is not there for {purpose}")


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_stopping_broker_does_not_fetch_from_the_new_leaders(tmp_path: Path, *, is_stopping: bool) -> None:
    """The broker would rejoin the ISR at once, and be removed again when it has stopped."""

    async def transfer(loop: SimLoop) -> set[int]:
        disk, peers = Disk(loop, tmp_path, live=(0, 1)), UnreachablePeers()
        fetchers = fetchers_of(disk, peers)
        fetchers.follow(disk.lead("orders", replicas=(0, 1)))
        if is_stopping:
            fetchers.begin_shutdown()
        fetchers.follow(disk.lead("orders", leader=1, replicas=(0, 1)))
        await asyncio.sleep(1)
        await fetchers.close()
        disk.close()
        return peers.tried

    assert simulate(transfer, seed=1) == (set() if is_stopping else {1})


ONE = build_batch([Record(0, 1, b"key", b"value")])
DAMAGED = ONE + (1).to_bytes(8, "big") + ONE[8:-2] + b"?" + ONE[-1:]


class DamagedLeader(OneLeader):
    """A leader that has `records`, or returns an error if there are none."""

    def __init__(self, records: bytes) -> None:
        super().__init__()
        self.records = records

    def reply(self, requested: FetchPartition) -> PartitionData:
        return PartitionData(
            partition_index=0,
            error_code=ErrorCode.NONE if self.records else ErrorCode.CORRUPT_MESSAGE,
            high_watermark=2,
            records=self.records[requested.fetch_offset * len(ONE) :],
        )


@pytest.mark.parametrize("inline_bytes_max", [APPENDED_INLINE_BYTES_MAX, 1], ids=["small", "large"])
@pytest.mark.parametrize(
    ("records", "output"),
    [
        (DAMAGED, "offset=1 error=cannot append records of the leader: checksum "),
        (b"", "offset=0 error=the leader cannot read its log"),
    ],
)
def test_damage_at_the_leader_is_logged_and_earlier_records_are_copied(
    records: bytes,
    output: str,
    inline_bytes_max: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher_module, "APPENDED_INLINE_BYTES_MAX", inline_bytes_max)

    async def follow(loop: SimLoop) -> tuple[int, int]:
        disk, leader = Disk(loop, tmp_path, live=(0, 1)), DamagedLeader(records)
        fetchers = fetchers_of(disk, leader)
        partition = disk.lead("orders", leader=1, replicas=(0, 1))
        fetchers.follow(partition)
        await asyncio.sleep(20)
        [fetcher] = fetchers.fetchers.values()
        assert fetcher.request_count in {leader.fetches - 1, leader.fetches}
        await fetchers.close()
        end = partition.log.log_end_offset
        disk.close()
        return end, leader.fetches

    with caplog.at_level(logging.WARNING):
        end, fetches = simulate(follow, seed=1)
    assert end == (1 if records else 0)
    assert not list(tmp_path.glob("*/*.tmp"))
    assert fetches > 10
    (line,) = {record.getMessage() for record in caplog.records}
    assert line.startswith(f"cannot replicate, trying again partition=orders-0 leader=1 {output}")

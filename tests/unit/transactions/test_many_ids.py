"""A broker that leads a partition with many transactional ids no longer drops them some at a time."""

from __future__ import annotations

import asyncio

import pytest

from kctl.errors import ErrorCode
from kctl.server.transactions import runner
from kctl.server.transactions.actions import InitOutcome
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import MemoryOffsetsLog
from tests.unit.transactions.hosting import Host

PER_TURN = 10
IDS = 4 * PER_TURN


async def host_with_parked_requests(loop: SimLoop) -> tuple[Host, list[asyncio.Future[InitOutcome]]]:
    """Each id waits until its producer is in the log."""
    host = await Host(loop, MemoryOffsetsLog(partitions=1)).start()
    host.log.holds = True
    replies = [host.coordinator.init_producer(f"id{number}", timeout_ms=60_000, expected=None) for number in range(IDS)]
    requests = [each for each in replies if isinstance(each, asyncio.Future)]
    await asyncio.sleep(0.1)
    assert len(host.coordinator._runner.hosted) == IDS
    assert len(requests) == IDS
    assert not any(each.done() for each in requests)
    return host, requests


def test_parked_requests_are_completed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "IDS_PER_TURN", PER_TURN)

    async def main(loop: SimLoop) -> None:
        host, requests = await host_with_parked_requests(loop)
        host.coordinator.partitions.on_resign(0)
        assert not host.coordinator._runner.hosted
        assert sum(each.done() for each in requests) == PER_TURN
        await asyncio.sleep(1)
        assert {each.result().error for each in requests} == {ErrorCode.NOT_COORDINATOR}
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_a_stop_completes_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "IDS_PER_TURN", PER_TURN)

    async def main(loop: SimLoop) -> None:
        host, requests = await host_with_parked_requests(loop)
        await host.coordinator.stop()
        assert {each.error for each in await asyncio.gather(*requests)} == {ErrorCode.NOT_COORDINATOR}

    simulate(main, seed=1)

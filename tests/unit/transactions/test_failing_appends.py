"""A failed append or marker leaves no transaction waiting for its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.server.coordination.ports import AppendOutcome
from kctl.server.coordination.transactions.runner import COMPLETION_RETRY_MS
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.test_failing_appends import FailingLog
from tests.unit.transactions.hosting import Host, MarkedPartitions

T0 = TopicPartition("t", 0)
EVERY_WAY = pytest.mark.parametrize("failure", ["raises", "fails later", "cancelled later"])


def run(play: Callable[[Host, FailingLog], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        state_log = FailingLog()
        host = await Host(loop, state_log).start()
        await play(host, state_log)
        await host.coordinator.stop()

    simulate(main, seed=1)


@EVERY_WAY
def test_each_request_with_a_failed_append_can_be_retried(failure: str) -> None:
    async def play(host: Host, state_log: FailingLog) -> None:
        state_log.failure = failure
        assert (await host.init()).error is not ErrorCode.NONE
        producer = await host.producer()
        state_log.failure = failure
        assert await host.add(producer, T0) is not ErrorCode.NONE
        assert await host.add(producer, T0) is ErrorCode.NONE
        state_log.failure = failure
        assert await host.end(producer) is not ErrorCode.NONE
        assert await host.end(producer) is ErrorCode.NONE
        await asyncio.sleep(1)  # Virtual time: the marker is written and the transaction completes.
        assert host.state() == "CompleteCommit"

    run(play)


@EVERY_WAY
def test_completion_with_a_failed_append_is_retried(failure: str) -> None:
    async def play(host: Host, state_log: FailingLog) -> None:
        producer = await host.ongoing(T0)
        host.partitions.holds = True
        assert await host.end(producer) is ErrorCode.NONE
        await asyncio.sleep(0)
        state_log.failure = failure
        host.partitions.holds = False
        host.partitions.release()
        await asyncio.sleep(COMPLETION_RETRY_MS / 2000)
        assert (host.coordinator.waiting_completions, host.coordinator.waiting_markers) == (1, 0)
        await asyncio.sleep(1)
        assert host.state() == "CompleteCommit"
        assert host.coordinator.waiting_completions == 0

    run(play)


def test_marker_whose_append_raises_is_retried() -> None:
    class RaisingOnce(MarkedPartitions):
        has_raised = False

        def append(
            self, partition: TopicPartition, batch: bytes, *, required_acks: int, timeout_ms: int
        ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
            if not self.has_raised:
                self.has_raised = True
                raise RuntimeError("the append failed")
            return super().append(partition, batch, required_acks=required_acks, timeout_ms=timeout_ms)

    async def play(host: Host, _state_log: FailingLog) -> None:
        partitions = host.markers._local._appends = RaisingOnce()
        producer = await host.ongoing(T0)
        assert await host.end(producer) is ErrorCode.NONE
        await asyncio.sleep(1)
        assert partitions.marked == [T0]
        assert host.state() == "CompleteCommit"

    run(play)


def test_marker_request_with_an_unexpected_error_is_retried() -> None:
    async def play(host: Host, _state_log: FailingLog) -> None:
        host.leaders.others[T0] = 1
        host.others.responses.append(RuntimeError("the request could not be encoded"))  # type: ignore[arg-type]
        producer = await host.ongoing(T0)
        assert await host.end(producer) is ErrorCode.NONE
        await asyncio.sleep(1)
        assert host.state() == "CompleteCommit"
        assert len(host.others.requests) == 2

    run(play)

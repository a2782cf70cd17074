"""What happens to thousands of transactional ids at once happens to some of them in each turn of the loop."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from kctl.errors import ErrorCode
from kctl.model import NO_LEADER, ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.transactions import markers, runner
from kctl.server.coordination.transactions.events import ProducerOutcome
from kctl.server.coordination.transactions.markers import MarkerJob
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import MemoryOffsetsLog
from tests.unit.transactions.hosting import Host
from tests.unit.transactions.world import T0

PER_TURN = 10
IDS = 4 * PER_TURN
NAMES = [f"id{number}" for number in range(IDS)]


@pytest.fixture(autouse=True)
def _few_ids_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "IDS_PER_TURN", PER_TURN)


async def host_with_parked_requests(loop: SimLoop) -> tuple[Host, list[asyncio.Future[ProducerOutcome]]]:
    """Each id waits until its producer is in the log."""
    host = await Host(loop, MemoryOffsetsLog(partitions=1)).start()
    host.log.holds = True
    replies = [host.coordinator.init_producer(name, timeout_ms=60_000, expected=None) for name in NAMES]
    requests = [reply for reply in replies if isinstance(reply, asyncio.Future)]
    await asyncio.sleep(0.1)
    assert len(host.coordinator.hosted) == IDS
    assert len(requests) == IDS
    assert not any(request.done() for request in requests)
    return host, requests


async def host_with_ids(loop: SimLoop, *partitions: TopicPartition, **config: int) -> tuple[Host, list[str]]:
    """Each id has an ongoing transaction in these partitions, if any."""
    host = await Host(loop, MemoryOffsetsLog(partitions=1), **config).start()
    for name in NAMES:
        producer = await host.producer(name)
        if partitions:
            assert await host.add(producer, *partitions, transactional_id=name) is ErrorCode.NONE
    return host, NAMES


def remaining(host: Host) -> int:
    """How many ids are in memory, found or not."""
    return len(host.coordinator.hosted._by_id)


def test_parked_requests_are_completed_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host, requests = await host_with_parked_requests(loop)
        host.coordinator.partitions.on_resign(0)
        assert not host.coordinator.hosted
        assert sum(request.done() for request in requests) == PER_TURN
        await asyncio.sleep(1)
        assert {request.result().error for request in requests} == {ErrorCode.NOT_COORDINATOR}
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_a_stop_completes_all_of_them() -> None:
    async def main(loop: SimLoop) -> None:
        host, requests = await host_with_parked_requests(loop)
        await host.coordinator.stop()
        assert {request.error for request in await asyncio.gather(*requests)} == {ErrorCode.NOT_COORDINATOR}

    simulate(main, seed=1)


def test_ids_of_a_lost_partition_are_not_found_at_once_and_removed_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host, ids = await host_with_ids(loop)
        host.coordinator.partitions.on_resign(0)
        assert remaining(host) == IDS - PER_TURN
        assert not host.coordinator.hosted
        assert {host.state(name) for name in ids} == {"NOT_COORDINATOR"}
        await asyncio.sleep(1)
        assert remaining(host) == 0
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_a_partition_that_is_led_again_serves_its_ids_while_the_former_ones_are_removed() -> None:
    async def main(loop: SimLoop) -> None:
        host, ids = await host_with_ids(loop)
        host.coordinator.partitions.on_resign(0, 0)
        host.coordinator.partitions.on_leader(0, 2)
        assert {host.state(name) for name in ids} == {"COORDINATOR_LOAD_IN_PROGRESS"}
        await host.coordinator.partitions.loaded()
        assert {host.state(name) for name in ids} == {"Empty"}
        await asyncio.sleep(1)
        assert remaining(host) == len(host.coordinator.hosted) == IDS
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_a_check_of_ids_whose_partition_is_lost_meanwhile_passes_them_one_by_one() -> None:
    async def main(loop: SimLoop) -> None:
        host, _ = await host_with_ids(loop)
        present = host.coordinator.hosted.present()
        next(present)
        host.coordinator.partitions.on_resign(0)
        await asyncio.sleep(1)
        assert remaining(host) == 0
        assert sum(1 for _ in present) == IDS - 1
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_checks_that_overlap_share_the_turns() -> None:
    async def main(loop: SimLoop) -> None:
        host, ids = await host_with_ids(loop, T0, abort_check_interval_ms=10_000_000)
        host.leaders.others[T0] = NO_LEADER
        await asyncio.sleep(100)
        for _ in range(10):
            host.coordinator.abort_timed_out()
        aborted = [sum(host.state(name) != "Ongoing" for name in ids)]
        while aborted[-1] < IDS:
            await asyncio.sleep(0)
            aborted.append(sum(host.state(name) != "Ongoing" for name in ids))
        assert max(after - before for before, after in pairwise(aborted)) == 1
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_ids_are_found_all_at_once_after_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(loop: SimLoop) -> None:
        host, _ = await host_with_ids(loop)
        await host.coordinator.stop()
        again = Host(loop, host.log)
        again.coordinator.start()
        again.coordinator.partitions.on_leader(0, 1)
        loading = set()
        while not again.coordinator.hosted:
            loading.add(remaining(again))
            await asyncio.sleep(0)
        assert loading >= set(range(PER_TURN, IDS, PER_TURN))
        assert len(again.coordinator.hosted) == IDS
        await again.coordinator.stop()

    simulate(main, seed=1)


def test_markers_of_loaded_transactions_are_sent_for_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host, ids = await host_with_ids(loop, T0)
        host.leaders.others[T0] = NO_LEADER
        for name in ids:
            producer = host.coordinator.hosted[name].transaction.producer
            assert await host.end(producer, transactional_id=name) is ErrorCode.NONE
        await host.coordinator.stop()
        again = Host(loop, host.log)
        again.leaders.others[T0] = NO_LEADER
        await again.start(1)
        assert again.markers.waiting <= 2  # One in each turn so far: it takes longer than ids without markers.
        await asyncio.sleep(1)
        assert again.markers.waiting == IDS
        again.leaders.others.clear()
        await asyncio.sleep(1)
        assert {again.state(name) for name in ids} == {"CompleteCommit"}
        await again.coordinator.stop()

    simulate(main, seed=1)


def test_transactions_that_time_out_together_are_aborted_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host, ids = await host_with_ids(loop, T0, abort_check_interval_ms=10_000_000)
        host.leaders.others[T0] = NO_LEADER
        await asyncio.sleep(100)
        written = len(host.log.records())
        host.coordinator.abort_timed_out()
        assert len(host.log.records()) == written + 1  # A record takes longer than the checks of a turn.
        await asyncio.sleep(1)
        assert {host.state(name) for name in ids} == {"PrepareAbort"}
        await host.coordinator.stop()

    simulate(main, seed=1)


class Jobs:
    """Jobs with one marker each, for which there is no leader."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.written: list[TopicPartition] = []
        host.leaders.others[T0] = NO_LEADER
        for number in range(IDS):
            job = MarkerJob(
                f"id{number}",
                ProducerIdAndEpoch(number, 0),
                committed=True,
                coordinator_epoch=0,
                partitions=[T0],
                on_written=self.written.extend,
            )
            host.markers.send(job)


def test_markers_without_a_leader_are_sent_again_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "JOBS_PER_TURN", PER_TURN)

    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        jobs = Jobs(host)
        host.leaders.others[T0] = 1
        host.others.gate = asyncio.Event()
        host.markers._try_again()
        assert len(host.markers._channels[1].queue) == 1  # A job takes longer than looking at those of a turn.
        host.others.gate.set()
        await asyncio.sleep(1)
        assert len(jobs.written) == IDS
        await host.markers.close()

    simulate(main, seed=1)


def test_jobs_notice_deleted_partitions_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "JOBS_PER_TURN", PER_TURN)

    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        jobs = Jobs(host)
        host.markers.partitions_deleted([T0])
        assert len(jobs.written) == 1
        await asyncio.sleep(1)
        assert len(jobs.written) == IDS
        await host.markers.close()

    simulate(main, seed=1)


def test_a_request_to_another_broker_has_a_bounded_number_of_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "MARKERS_PER_REQUEST", PER_TURN)

    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        jobs = Jobs(host)
        host.leaders.others[T0] = 1
        await asyncio.sleep(1)
        assert len(jobs.written) == IDS
        assert [len(request.markers) for _, request, _ in host.others.requests] == [PER_TURN // 2] * (
            IDS * 2 // PER_TURN
        )
        await host.markers.close()

    simulate(main, seed=1)

"""What happens to thousands of groups at once happens to some of them at a time, and before their next events."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from kctl.errors import ErrorCode
from kctl.limits import COSTLY_ELEMENTS_PER_SLICE_MAX
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.server.coordination.groups import coordinator, offsets
from kctl.server.coordination.groups.actions import GroupOverview, JoinOutcome
from kctl.server.coordination.groups.events import CommitRequest, TransactionalCommit
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.runner import GROUPS_PER_TURN
from kctl.server.handlers.delete_groups import DeleteGroupsHandler
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import Host, MemoryOffsetsLog, settled
from tests.unit.handlers.world import context

TP = TopicPartition("t", 0)
PRODUCER = ProducerIdAndEpoch(7, 0)
GROUPS = [f"g{number}" for number in range(4 * GROUPS_PER_TURN)]


async def commit_in_transaction(host: Host, group_id: str, *offsets: int) -> None:
    """Commits these offsets of partitions 0, 1, ... in the transaction of the producer."""
    values = {TopicPartition("t", index): OffsetAndMetadata(offset) for index, offset in enumerate(offsets)}
    request = TransactionalCommit(producer=PRODUCER, offsets=values)
    outcome = await settled(host.coordinator.commit_in_transaction(group_id, request))
    assert set(outcome.values()) == {ErrorCode.NONE}


async def host_with_groups(loop: SimLoop, *offsets: int) -> Host:
    """All groups are in one partition and have commits in one transaction."""
    host = await Host(loop, MemoryOffsetsLog(partitions=1)).start()
    for group_id in GROUPS:
        await commit_in_transaction(host, group_id, *offsets)
    return host


def offset_of(host: Host, group_id: str) -> int:
    return host.coordinator.committed(group_id, [TP])[1][TP][1].offset


def visible(host: Host) -> int:
    return sum(offset_of(host, group_id) >= 0 for group_id in GROUPS)


def test_a_transaction_ends_in_some_groups_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_groups(loop, 5)
        host.coordinator.transaction_completed(0, PRODUCER.producer_id, committed=True)
        assert visible(host) == GROUPS_PER_TURN
        await asyncio.sleep(1)
        assert visible(host) == len(GROUPS)
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_a_transaction_with_many_offsets_ends_in_fewer_groups_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_groups(loop, *range(100))
        host.coordinator.transaction_completed(0, PRODUCER.producer_id, committed=True)
        assert 0 < visible(host) <= GROUPS_PER_TURN // 10
        await asyncio.sleep(1)
        assert visible(host) == len(GROUPS)
        await host.coordinator.stop()

    simulate(main, seed=1)


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_the_next_transaction_begins_after_the_end_of_the_one_before(is_committed: bool, second: bool) -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_groups(loop, 5)
        host.coordinator.transaction_completed(0, PRODUCER.producer_id, committed=is_committed)
        await commit_in_transaction(host, GROUPS[-1], 6)
        assert offset_of(host, GROUPS[-1]) == (5 if is_committed else -1)
        assert offset_of(host, GROUPS[-2]) == -1
        host.coordinator.transaction_completed(0, PRODUCER.producer_id, committed=second)
        await asyncio.sleep(1)
        first = 5 if is_committed else -1
        assert offset_of(host, GROUPS[-1]) == (6 if second else first)
        assert offset_of(host, GROUPS[-2]) == first
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_a_transaction_has_commits_of_a_bounded_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "TRANSACTION_GROUPS_MAX", len(GROUPS))

    async def main(loop: SimLoop) -> None:
        host = await host_with_groups(loop, 5)
        request = TransactionalCommit(producer=PRODUCER, offsets={TP: OffsetAndMetadata(6)})
        outcome = await settled(host.coordinator.commit_in_transaction("one too many", request))
        assert outcome == {TP: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert "one too many" not in host.coordinator.hosted
        await commit_in_transaction(host, GROUPS[0], 6)
        host.coordinator.transaction_completed(0, PRODUCER.producer_id, committed=True)
        await commit_in_transaction(host, "one too many", 6)
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_groups_of_a_lost_partition_are_not_found_at_once_and_removed_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_groups(loop, 5)
        host.coordinator.partitions.on_resign(0)
        assert len(host.coordinator.hosted._by_id) == len(GROUPS) - GROUPS_PER_TURN
        assert not host.coordinator.hosted
        await asyncio.sleep(1)
        assert len(host.coordinator.hosted._by_id) == 0
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_groups_are_restored_some_at_a_time_and_found_all_at_once() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_groups(loop, 5)
        host.coordinator.transaction_completed(0, PRODUCER.producer_id, committed=True)
        host.coordinator.partitions.on_resign(0, 0)
        await asyncio.sleep(1)
        host.coordinator.partitions.on_leader(0, 2)
        loading = [0]
        while not host.coordinator.hosted:
            loading.append(len(host.coordinator.hosted._by_id))
            await asyncio.sleep(0)
        loading.append(len(host.coordinator.hosted))
        assert loading[-1] == len(GROUPS)
        assert max(after - before for before, after in pairwise(loading)) <= GROUPS_PER_TURN
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_groups_of_a_request_are_deleted_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, MemoryOffsetsLog(partitions=1)).start()
        for group_id in GROUPS:
            await settled(host.coordinator.commit(group_id, CommitRequest(offsets={TP: OffsetAndMetadata(5)})))
        handler = DeleteGroupsHandler(host.coordinator)
        deleting = asyncio.ensure_future(handler.handle(DeleteGroupsRequest(groups_names=GROUPS), context(2)))
        present = [len(GROUPS)]
        while not deleting.done():
            await asyncio.sleep(0)
            present.append(len(host.coordinator.hosted))
        assert {result.error_code for result in deleting.result().results} == {ErrorCode.NONE}
        assert not host.coordinator.hosted
        assert max(before - after for before, after in pairwise(present)) <= COSTLY_ELEMENTS_PER_SLICE_MAX
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_long_lists_that_are_requested_together_are_begun_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "SLICE_OBJECTS", len(GROUPS) - 1)
    looked_at = 0

    def overview(group: Group) -> GroupOverview:
        nonlocal looked_at
        looked_at += 1
        return reading(group)

    reading = Group.overview
    monkeypatch.setattr(Group, "overview", overview)

    async def main(loop: SimLoop) -> None:
        host = await host_with_groups(loop, 5)
        listing = asyncio.gather(*(host.coordinator.groups() for _ in range(3)))
        counts = [0]
        while not listing.done():
            await asyncio.sleep(0)
            counts.append(looked_at)
        assert counts[-1] == 3 * len(GROUPS)
        assert max(after - before for before, after in pairwise(counts)) == len(GROUPS) - 1, "a slice"
        await host.coordinator.stop()

    simulate(main, seed=1)


async def parked_joins(host: Host) -> list[asyncio.Future[JoinOutcome]]:
    """A join of each group, which waits for the rest of its members."""
    parked = [host.join(group_id) for group_id in GROUPS]
    return [reply for reply in parked if isinstance(reply, asyncio.Future)]


def test_groups_leave_at_once_and_their_parked_requests_are_completed_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, MemoryOffsetsLog(partitions=1), group_initial_rebalance_delay_ms=3_000).start()
        parked = await parked_joins(host)
        assert len(parked) == len(GROUPS)
        host.coordinator.partitions.on_resign(0)
        await asyncio.sleep(0)
        assert not host.coordinator.hosted
        assert sum(reply.done() for reply in parked) == GROUPS_PER_TURN
        await asyncio.sleep(1)
        assert {reply.result().error for reply in parked} == {ErrorCode.NOT_COORDINATOR}
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_groups_that_leave_do_not_rebalance_any_more() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, MemoryOffsetsLog(partitions=1), group_initial_rebalance_delay_ms=3_000).start()
        parked = await parked_joins(host)
        last = host.coordinator.hosted[GROUPS[-1]]
        host.coordinator.partitions.on_resign(0)
        for key in list(last.timers):
            host.coordinator._runner._timer_fired(last, key)
        await asyncio.sleep(0)
        assert parked[-1].result().error is ErrorCode.NOT_COORDINATOR
        assert not last.timers
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_a_stop_completes_the_parked_requests_of_all_groups() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, MemoryOffsetsLog(partitions=1), group_initial_rebalance_delay_ms=3_000).start()
        parked = await parked_joins(host)
        await host.coordinator.stop()
        await asyncio.sleep(0)
        assert {reply.result().error for reply in parked} == {ErrorCode.NOT_COORDINATOR}

    simulate(main, seed=1)


def test_groups_that_are_loaded_again_while_the_former_ones_leave_are_served() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, MemoryOffsetsLog(partitions=1)).start()
        for group_id in GROUPS:
            await settled(host.coordinator.commit(group_id, CommitRequest(offsets={TP: OffsetAndMetadata(3)})))
        host.coordinator.partitions.on_resign(0)
        host.coordinator.partitions.on_leader(0, 5)
        await host.coordinator.partitions.loaded()
        await asyncio.sleep(1)
        assert {offset_of(host, group_id) for group_id in GROUPS} == {3}
        await host.coordinator.stop()

    simulate(main, seed=1)

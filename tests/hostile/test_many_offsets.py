"""Offsets of thousands of partitions are committed and removed some at a time, not in one step of their group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kctl.errors import ErrorCode
from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kctl.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kctl.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kctl.records.header import parse_header
from kctl.server.coordination.groups import offsets as offsets_module
from kctl.server.coordination.groups.events import CommitRequest
from kctl.server.coordination.groups.offsets import CommittedOffsets, OffsetAndMetadata
from kctl.server.coordination.groups.runner import GROUPS_PER_TURN
from kctl.server.coordination.ports import AppendOutcome
from kctl.server.handlers.delete_groups import DeleteGroupsHandler
from kctl.server.handlers.offset_commit import OffsetCommitHandler
from kctl.server.handlers.offset_delete import OffsetDeleteHandler
from kctl.server.handlers.txn_offset_commit import TxnOffsetCommitHandler
from kctl.testing.sim_loop import SimLoop, simulate
from tests.hostile.test_amplification import turns_while
from tests.unit.groups.hosting import Host, MemoryOffsetsLog, settled
from tests.unit.handlers.world import context

SLICES = 6
PARTITIONS = REQUEST_ELEMENTS_PER_SLICE_MAX * SLICES
UNUSED: Any = None
"""Arguments of handlers that other versions use."""


class EveryPartition:
    """Topics that have every partition."""

    def has_partition(self, topic: str, partition: int) -> bool:
        return True

    def topic_name(self, topic_id: UUID) -> str | None:
        return None

    def topic_id(self, topic: str) -> UUID:
        return ZERO_UUID


def commit_all(host: Host) -> Awaitable[OffsetCommitResponse]:
    """The response to a commit of all partitions, which takes more than one step."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata="")
        for index in range(PARTITIONS)
    ]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    handler = OffsetCommitHandler(host.coordinator, EveryPartition(), UNUSED, config=host.config, clock=host.clock)
    reply = handler.handle(request, context(7))
    assert isinstance(reply, Awaitable)
    return reply


async def host_with_offsets(loop: SimLoop) -> Host:
    host = await Host(loop).start()
    committing = asyncio.ensure_future(commit_all(host))
    assert await turns_while(committing) >= 2 * SLICES
    (topic,) = committing.result().topics
    assert [partition.error_code for partition in topic.partitions] == [ErrorCode.NONE] * PARTITIONS
    return host


def records_per_batch(host: Host) -> list[int]:
    return [parse_header(batch).record_count for batches in host.log.batches.values() for batch in batches]


def committed(host: Host, group_id: str = "g") -> int:
    return len(host.coordinator.committed_partitions(group_id))


def test_offsets_of_many_partitions_are_committed_in_several_batches() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets(loop)
        assert committed(host) == PARTITIONS
        assert records_per_batch(host) == [REQUEST_ELEMENTS_PER_SLICE_MAX] * SLICES

    simulate(main, seed=1)


def test_a_commit_that_the_log_refuses_half_way_has_errors_for_the_rest() -> None:
    class Refusing(MemoryOffsetsLog):
        def append(
            self, partition: int, batch: bytes, *, required_acks: int, timeout_ms: int
        ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
            if len(self.acks) == 2:
                self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return super().append(partition, batch, required_acks=required_acks, timeout_ms=timeout_ms)

    async def main(loop: SimLoop) -> None:
        host = await Host(loop, Refusing()).start()
        (topic,) = (await commit_all(host)).topics
        errors = [partition.error_code for partition in topic.partitions]
        written = 2 * REQUEST_ELEMENTS_PER_SLICE_MAX
        assert committed(host) == written
        assert errors == [ErrorCode.NONE] * written + [ErrorCode.NOT_COORDINATOR] * (PARTITIONS - written)

    simulate(main, seed=1)


async def commit_in_transaction(host: Host, count: int, offset: int = 5) -> TxnOffsetCommitResponse:
    """The response to a commit of some partitions in the open transaction of producer 7."""
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(count)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
    )
    reply = TxnOffsetCommitHandler(host.coordinator, EveryPartition(), host.clock).handle(request, context(2))
    return await reply if isinstance(reply, Awaitable) else reply


def end_transaction(host: Host, *, is_committed: bool) -> None:
    partition = host.coordinator.partitions.of("g")
    assert partition is not None
    host.coordinator.transaction_completed(partition.index, 7, committed=is_committed)


async def host_with_offsets_in_a_transaction(loop: SimLoop) -> Host:
    host = await Host(loop).start()
    committing = asyncio.ensure_future(commit_in_transaction(host, PARTITIONS))
    assert await turns_while(committing) >= 2 * SLICES
    assert records_per_batch(host) == [REQUEST_ELEMENTS_PER_SLICE_MAX] * SLICES
    assert committed(host) == 0
    return host


def unstable(host: Host) -> int:
    offsets = host.coordinator.hosted["g"].group.offsets
    return sum(offsets.is_unstable(TopicPartition("t", index)) for index in range(PARTITIONS))


def test_offsets_of_many_partitions_in_a_transaction_become_visible_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets_in_a_transaction(loop)
        end_transaction(host, is_committed=True)
        assert committed(host) == REQUEST_ELEMENTS_PER_SLICE_MAX
        assert unstable(host) == PARTITIONS - REQUEST_ELEMENTS_PER_SLICE_MAX
        await asyncio.sleep(1)
        assert committed(host) == PARTITIONS
        assert unstable(host) == 0

    simulate(main, seed=1)


def test_offsets_of_many_partitions_in_an_aborted_transaction_are_dropped_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets_in_a_transaction(loop)
        end_transaction(host, is_committed=False)
        assert unstable(host) == PARTITIONS - REQUEST_ELEMENTS_PER_SLICE_MAX
        await asyncio.sleep(1)
        assert (committed(host), unstable(host)) == (0, 0)

    simulate(main, seed=1)


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_next_transaction_may_begin_before_all_offsets_of_a_long_one_are_visible(is_committed: bool) -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets_in_a_transaction(loop)
        end_transaction(host, is_committed=True)
        await commit_in_transaction(host, 10, offset=6)
        end_transaction(host, is_committed=is_committed)
        assert unstable(host) > 0
        await asyncio.sleep(1)
        assert (committed(host), unstable(host)) == (PARTITIONS, 0)
        last = host.coordinator.hosted["g"].group.offsets.get(TopicPartition("t", 0))
        assert last is not None
        assert last.offset == (6 if is_committed else 5)

    simulate(main, seed=1)


def test_a_group_is_deleted_while_offsets_of_a_long_transaction_become_visible() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets_in_a_transaction(loop)
        end_transaction(host, is_committed=True)
        response = await DeleteGroupsHandler(host.coordinator).handle(
            DeleteGroupsRequest(groups_names=["g"]), context(2)
        )
        assert [result.error_code for result in response.results] == [ErrorCode.NONE]
        await asyncio.sleep(1)
        assert "g" not in host.coordinator.hosted
        restarted = await Host(loop, host.log).start()
        assert "g" not in restarted.coordinator.hosted

    simulate(main, seed=1)


def test_many_offsets_are_deleted_in_slices_and_the_group_with_the_last_one() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets(loop)
        # The second half has no commits, so that nothing is left of the group before the request is complete.
        indexes = [OffsetDeleteRequestPartition(partition_index=index) for index in range(2 * PARTITIONS)]
        request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=indexes)])
        handler = OffsetDeleteHandler(host.coordinator, EveryPartition())
        deleting = asyncio.ensure_future(handler.handle(request, context(0)))
        assert await turns_while(deleting) >= 4 * SLICES
        (topic,) = deleting.result().topics
        assert {partition.error_code for partition in topic.partitions} == {ErrorCode.NONE}
        assert "g" not in host.coordinator.hosted
        assert max(records_per_batch(host)) == REQUEST_ELEMENTS_PER_SLICE_MAX

    simulate(main, seed=1)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_group_with_many_offsets_is_deleted_in_slices(restarts: bool) -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets(loop)
        request = DeleteGroupsRequest(groups_names=["g"])
        deleting = asyncio.ensure_future(DeleteGroupsHandler(host.coordinator).handle(request, context(2)))
        assert await turns_while(deleting) >= SLICES
        assert [result.error_code for result in deleting.result().results] == [ErrorCode.NONE]
        assert max(records_per_batch(host)) == REQUEST_ELEMENTS_PER_SLICE_MAX
        if restarts:
            host = await Host(loop, host.log).start()
        assert "g" not in host.coordinator.hosted

    simulate(main, seed=1)


def test_offsets_of_a_deleted_topic_are_removed_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets(loop)
        host.coordinator.topics_deleted(["t"])
        assert committed(host) == PARTITIONS - REQUEST_ELEMENTS_PER_SLICE_MAX
        await asyncio.sleep(1)
        assert "g" not in host.coordinator.hosted
        assert records_per_batch(host) == [REQUEST_ELEMENTS_PER_SLICE_MAX] * 2 * SLICES

    simulate(main, seed=1)


def test_offsets_of_the_partitions_of_other_topics_stay() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets(loop)
        deleted = await host.coordinator.delete_offsets("g", [TopicPartition("t", 0)])
        assert deleted.partitions == {TopicPartition("t", 0): ErrorCode.NONE}
        host.coordinator.topics_deleted(["other"])
        await asyncio.sleep(1)
        assert committed(host) == PARTITIONS - 1

    simulate(main, seed=1)


def test_offsets_of_a_deleted_topic_are_removed_from_some_groups_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}
        for number in range(2 * GROUPS_PER_TURN):
            await settled(host.coordinator.commit(f"g{number}", CommitRequest(offsets=offsets)))
        host.coordinator.topics_deleted(["t"])
        # A turn has fewer groups of which something is written.
        assert 2 * GROUPS_PER_TURN - GROUPS_PER_TURN // 5 <= len(host.coordinator.hosted) < 2 * GROUPS_PER_TURN
        await asyncio.sleep(1)
        assert not host.coordinator.hosted

    simulate(main, seed=1)


async def steps_of_a_check(begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many offsets were looked at in each iteration of the loop."""
    steps: list[int] = []
    reading = CommittedOffsets.get

    def get(self: CommittedOffsets, tp: TopicPartition) -> OffsetAndMetadata | None:
        steps[-1] += 1
        return reading(self, tp)

    with monkeypatch.context() as patch:
        patch.setattr(CommittedOffsets, "get", get)
        steps.append(0)
        begin()
        for _ in range(1_000):
            steps.append(0)
            await asyncio.sleep(0)
    return [count for count in steps if count]


def test_offsets_of_one_group_are_checked_for_expiry_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets(loop)
        steps = await steps_of_a_check(host.coordinator.expire, monkeypatch)
        assert steps == [REQUEST_ELEMENTS_PER_SLICE_MAX] * SLICES
        assert committed(host) == PARTITIONS

    simulate(main, seed=1)


def test_expired_offsets_of_one_group_are_removed_some_at_a_time() -> None:
    async def main(loop: SimLoop) -> None:
        host = await host_with_offsets(loop)
        await asyncio.sleep((host.config.offsets_retention_ms + host.config.offsets_retention_check_interval_ms) / 1000)
        assert "g" not in host.coordinator.hosted
        assert records_per_batch(host) == [REQUEST_ELEMENTS_PER_SLICE_MAX] * 2 * SLICES

    simulate(main, seed=1)


def test_offsets_of_many_groups_are_checked_for_expiry_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        offsets = {TopicPartition("t", index): OffsetAndMetadata(5) for index in range(GROUPS_PER_TURN)}
        for number in range(GROUPS_PER_TURN):
            await settled(host.coordinator.commit(f"g{number}", CommitRequest(offsets=offsets)))
        steps = await steps_of_a_check(host.coordinator.expire, monkeypatch)
        assert sum(steps) == GROUPS_PER_TURN**2
        assert max(steps) <= REQUEST_ELEMENTS_PER_SLICE_MAX

    simulate(main, seed=1)


def test_open_transactions_of_other_partitions_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client can open thousands in one group: then each partition of an OffsetFetch took 1 ms."""
    offsets, commit = CommittedOffsets(), OffsetAndMetadata(5)
    first, other = TopicPartition("t", 0), TopicPartition("t", 1)
    offsets.stage_transaction(1, {first: commit})
    for producer_id in range(2, 100):
        offsets.stage_transaction(producer_id, {other: commit})
    looked_at: list[TopicPartition] = []
    monkeypatch.setattr(offsets_module._TransactionCommits, "__contains__", lambda _, tp: looked_at.append(tp))
    assert offsets.is_unstable(first)
    assert offsets.is_unstable(other)
    assert not offsets.is_unstable(TopicPartition("t", 2))
    assert offsets.remove([first]) == [first]
    assert not offsets.is_unstable(first)
    assert looked_at == []

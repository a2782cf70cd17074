"""Offsets committed in transactions: pending, then visible or dropped."""

from __future__ import annotations

import asyncio

import pytest

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition, partition_for_key
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.server.coordination.groups.actions import CommitOutcome
from kctl.server.coordination.groups.events import (
    DeleteOffsets,
    ExpireOffsets,
    TransactionalCommit,
    TransactionCompleted,
)
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import Host, MemoryOffsetsLog, settled
from tests.unit.groups.world import GroupWorld, Token
from tests.unit.transactions.world import T0, T1

PRODUCER = ProducerIdAndEpoch(7, 0)
OTHER = ProducerIdAndEpoch(8, 0)
PARTITION = partition_for_key("g", 4)


def commit(
    world: GroupWorld, offsets: dict[TopicPartition, int], producer: ProducerIdAndEpoch = PRODUCER
) -> Token[CommitOutcome]:
    token: Token[CommitOutcome] = Token("transactional commit")
    world.requested.append(token)
    values = {tp: OffsetAndMetadata(offset, commit_timestamp_ms=world.now.wall_ms) for tp, offset in offsets.items()}
    world.do(TransactionalCommit(token=token, producer=producer, offsets=values))
    return token


def end(world: GroupWorld, producer: ProducerIdAndEpoch = PRODUCER, *, committed: bool = True) -> None:
    world.do(TransactionCompleted(producer.producer_id, committed))


def visible(world: GroupWorld) -> dict[TopicPartition, int]:
    return {tp: value.offset for tp, value in world.group.offsets.all().items()}


def test_commit_becomes_visible_with_the_marker() -> None:
    world = GroupWorld()
    token = commit(world, {T0: 5, T1: 6})
    assert world.responses[token] == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
    assert visible(world) == {}
    assert world.group.offsets.is_unstable(T0)
    end(world)
    assert visible(world) == {T0: 5, T1: 6}
    assert not world.group.offsets.is_unstable(T0)


def test_aborted_commit_is_never_visible() -> None:
    world = GroupWorld()
    world.commit({T0: 1})
    commit(world, {T0: 5})
    end(world, committed=False)
    assert visible(world) == {T0: 1}
    assert not world.group.offsets.is_unstable(T0)


def test_last_commit_of_a_transaction_wins() -> None:
    world = GroupWorld()
    commit(world, {T0: 5})
    commit(world, {T0: 6})
    end(world)
    assert visible(world) == {T0: 6}


def test_failed_commit_keeps_the_earlier_one_of_the_transaction() -> None:
    """The log has the earlier commit, and a coordinator that loads it would make it visible."""
    world = GroupWorld()
    commit(world, {T0: 5})
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    token = commit(world, {T0: 6})
    assert world.responses[token] == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    end(world)
    assert visible(world) == {T0: 5}


def test_group_without_commits_does_not_exist() -> None:
    world = GroupWorld()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    commit(world, {T0: 5})
    assert world.group.is_vacant


def test_transactions_of_two_producers_do_not_mix() -> None:
    world = GroupWorld()
    commit(world, {T0: 5}, PRODUCER)
    commit(world, {T0: 6}, OTHER)
    end(world, PRODUCER)
    assert visible(world) == {T0: 5}
    assert world.group.offsets.is_unstable(T0)
    end(world, OTHER)
    assert visible(world) == {T0: 6}


def test_log_offset_decides_and_not_the_order_of_the_markers() -> None:
    world = GroupWorld()
    commit(world, {T0: 5})
    world.commit({T0: 9})
    end(world)
    assert visible(world) == {T0: 9}


def test_commit_confirmed_after_its_marker_is_not_in_the_next_transaction() -> None:
    world = GroupWorld()
    world.holds_appends = True
    commit(world, {T0: 5})
    end(world, committed=False)
    commit(world, {T0: 6})
    world.finish_append()
    world.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    end(world)
    assert visible(world) == {}


def test_deleted_offset_is_removed_from_the_transaction() -> None:
    world = GroupWorld()
    commit(world, {T0: 5, T1: 6})
    world.call(DeleteOffsets, (T0,))
    end(world)
    assert visible(world) == {T1: 6}


def test_pending_commit_keeps_the_committed_offset_from_expiring() -> None:
    world = GroupWorld(offsets_retention_ms=1)
    world.commit({T0: 1})
    commit(world, {T0: 5})
    world.advance(10)
    world.do(ExpireOffsets())
    assert visible(world) == {T0: 1}
    end(world, committed=False)
    world.do(ExpireOffsets())
    assert visible(world) == {}


def test_transactional_commit_does_not_restart_the_session_timeout() -> None:
    """The commit belongs to the producer, not to the member."""
    world = GroupWorld(group_initial_rebalance_delay_ms=0)
    (member,) = world.stable_group("a", session_ms=10_000)
    world.advance(9_000)
    commit(world, {T0: 5})
    world.advance(1_001)
    assert member not in world.group.members


async def committing(
    host: Host, producer: ProducerIdAndEpoch = PRODUCER, offset: int = 5, group_id: str = "g"
) -> CommitOutcome:
    offsets = {T0: OffsetAndMetadata(offset, commit_timestamp_ms=host.clock.now_ms())}
    request = TransactionalCommit(producer=producer, offsets=offsets)
    return await settled(host.coordinator.commit_in_transaction(group_id, request))


def offset_of(host: Host, group_id: str = "g") -> int:
    return host.coordinator.committed(group_id, [T0])[1][T0][1].offset


def write_marker(log: MemoryOffsetsLog, kind: ControlType) -> None:
    marker = EndTransactionMarker(kind, 0)
    batch = build_end_transaction_marker(marker, producer_id=7, producer_epoch=0, timestamp=1)
    log.append(PARTITION, batch, required_acks=1, timeout_ms=0)


class TestCoordinator:
    def test_marker_ends_the_transaction_in_every_group_of_its_partition(self) -> None:
        async def main(loop: SimLoop) -> None:
            host = await Host(loop).start()
            groups = [f"g{number}" for number in range(40)]
            for group_id in groups:
                await committing(host, group_id=group_id)
            host.coordinator.transaction_completed(PARTITION, 7, committed=True)
            here = {group_id for group_id in groups if partition_for_key(group_id, 4) == PARTITION}
            assert {group_id for group_id in groups if offset_of(host, group_id) == 5} == here
            assert 0 < len(here) < 40
            await host.coordinator.stop()

        simulate(main, seed=1)

    @pytest.mark.parametrize("committed", [True, False])
    def test_transaction_begun_at_another_coordinator_is_ended(self, committed: bool) -> None:
        async def main(loop: SimLoop) -> None:
            old = await Host(loop).start()
            await committing(old)
            new = await Host(loop, old.log).start(epoch=2)
            new.coordinator.transaction_completed(PARTITION, 7, committed=committed)
            assert offset_of(new) == (5 if committed else -1)
            await old.coordinator.stop()
            await new.coordinator.stop()

        simulate(main, seed=1)

    @pytest.mark.parametrize("is_read", [True, False])
    def test_marker_during_loading_is_applied(self, is_read: bool) -> None:
        """Whether the load has read past the offset of the marker or not."""

        async def main(loop: SimLoop) -> None:
            old = await Host(loop).start()
            await committing(old)
            old.log.gate = asyncio.Event()
            new = await Host(loop, old.log).start(epoch=2)
            new.coordinator.transaction_completed(PARTITION, 7, committed=True)
            if is_read:
                write_marker(old.log, ControlType.COMMIT)
            old.log.gate.set()
            await new.coordinator.partitions.loaded()
            assert offset_of(new) == 5
            await old.coordinator.stop()
            await new.coordinator.stop()

        simulate(main, seed=1)

    def test_marker_for_a_partition_led_elsewhere_is_ignored(self) -> None:
        async def main(loop: SimLoop) -> None:
            host = await Host(loop).start()
            await committing(host)
            host.coordinator.partitions.on_resign(PARTITION)
            host.coordinator.transaction_completed(PARTITION, 7, committed=True)
            host.coordinator.partitions.on_leader(PARTITION, 5)
            await host.coordinator.partitions.loaded()
            assert offset_of(host) == -1
            await host.coordinator.stop()

        simulate(main, seed=1)

    def test_offset_deleted_before_the_marker_stays_deleted_after_loading(self) -> None:
        async def main(loop: SimLoop) -> None:
            old = await Host(loop).start()
            await committing(old)
            assert (await old.coordinator.delete_offsets("g", [T0])).partitions == {T0: ErrorCode.NONE}
            write_marker(old.log, ControlType.COMMIT)
            old.coordinator.transaction_completed(PARTITION, 7, committed=True)
            assert offset_of(old) == -1
            new = await Host(loop, old.log).start(epoch=2)
            assert offset_of(new) == -1
            await old.coordinator.stop()
            await new.coordinator.stop()

        simulate(main, seed=1)

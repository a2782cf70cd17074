"""The controller's batched writes, against a ZooKeeper in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import AlterStates, WriteStates
from kctl.server.cluster.controller.znodes.znode_writer import ControllerMoved, ZnodeWriter
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper, SimZooKeeperSession
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import Operation, OperationResult

PARTITIONS = [TopicPartition("t", index) for index in range(1000)]
OLD = LeaderAndIsr(1, 0, (1, 2), controller_epoch=1)
NEW = LeaderAndIsr(2, 1, (2,), controller_epoch=1)
Play = Callable[[ZnodeWriter, SimZooKeeperSession], Awaitable[None]]


def played(play: Play) -> None:
    """Runs a scenario with the writer of the active controller; all partitions have their initial state."""

    async def main(_: SimLoop) -> None:
        session = SimZooKeeper().session(session_timeout_ms=4000)
        await session.start(1000)
        await session.create(paths.CONTROLLER_EPOCH, b"1", make_parents=True)
        await session.create(paths.topic("t"), b"{}", make_parents=True)
        writer = ZnodeWriter(session)
        writer.epoch_version = 0
        created = await writer.write_states(WriteStates(dict.fromkeys(PARTITIONS, OLD), {}))
        assert created.written.keys() == set(PARTITIONS)
        await play(writer, session)

    simulate(main, seed=1)


async def state_of(session: SimZooKeeperSession, topic_partition: TopicPartition) -> LeaderAndIsr:
    path = paths.partition_state(*topic_partition)
    data, stat = await session.get(path)
    return znodes.decode_partition_state(path, data, stat.version)


def test_a_thousand_changes_are_batched_into_a_few_writes() -> None:
    async def play(writer: ZnodeWriter, session: SimZooKeeperSession) -> None:
        requested: list[int] = []
        multi = writer.multi

        async def counted(operations: list[Operation]) -> list[OperationResult]:
            requested.append(len(operations))
            return await multi(operations)

        writer.multi = counted  # type: ignore[method-assign]  # counts the calls
        outcome = await writer.write_states(WriteStates({}, dict.fromkeys(PARTITIONS, NEW)))
        assert sum(requested) == len(PARTITIONS)
        assert len(requested) <= 10
        assert outcome.conflicts == {}
        assert {leader.partition_epoch for leader in outcome.written.values()} == {1}
        assert await state_of(session, PARTITIONS[-1]) == outcome.written[PARTITIONS[-1]]

    played(play)


def test_a_version_conflict_of_one_partition_does_not_block_the_others() -> None:
    async def play(writer: ZnodeWriter, session: SimZooKeeperSession) -> None:
        changed = PARTITIONS[500]
        await session.set(paths.partition_state(*changed), znodes.encode_partition_state(OLD))
        outcome = await writer.write_states(WriteStates({}, dict.fromkeys(PARTITIONS, NEW)))
        assert outcome.conflicts == {changed: await state_of(session, changed)}
        assert outcome.written.keys() == set(PARTITIONS) - {changed}
        assert await state_of(session, PARTITIONS[0]) == outcome.written[PARTITIONS[0]]

    played(play)


def test_a_deleted_partition_does_not_block_isr_changes_of_others() -> None:
    async def play(writer: ZnodeWriter, session: SimZooKeeperSession) -> None:
        gone = PARTITIONS[500]
        await session.delete(paths.partition(*gone), recursive=True)
        outcome = await writer.alter_states(AlterStates(dict.fromkeys(PARTITIONS, NEW), {}, None))
        assert outcome.missing == (gone,)
        assert outcome.conflicts == {}
        assert outcome.written.keys() == set(PARTITIONS) - {gone}

    played(play)


def test_a_fenced_controller_writes_nothing() -> None:
    async def play(writer: ZnodeWriter, session: SimZooKeeperSession) -> None:
        await session.set(paths.CONTROLLER_EPOCH, b"2")
        with pytest.raises(ControllerMoved):
            await writer.write_states(WriteStates({}, dict.fromkeys(PARTITIONS, NEW)))
        assert (await state_of(session, PARTITIONS[0])).leader_epoch == 0

    played(play)

"""The leader's ISR changes when ZooKeeper responds late or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kctl.model import LeaderAndIsr, TopicPartition
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState
from kctl.server.replication.isr_changes import IsrChanges, ZooKeeperStates
from kctl.server.replication.partition import Partition
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import SessionState
from tests.unit.server.test_partition import Ends

TP = TopicPartition("t", 0)
PATH = paths.partition_state(*TP)
DELAY_S = 1.0
LAG_MS = 5_000


class Replicas:
    """The one led partition."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def led(self) -> list[Partition]:
        return [self._partition]

    def partition_moved(self, topic_partition: TopicPartition) -> None:
        """No delayed requests."""


class Scene:
    """Broker 0 leads with an ISR of itself; broker 1 has just reached the log end."""

    def __init__(self, loop: SimLoop) -> None:
        self.zookeeper = SimZooKeeper(delay_s=lambda: DELAY_S)
        self.session = self.zookeeper.session(session_timeout_ms=6_000, on_state=self._state_changed)
        log: Any = Ends(end=10)
        self.log = log
        self.partition = Partition(TP, 0, log, lag_time_max_ms=LAG_MS)
        self.clock = SimClock(loop.time)
        replicas: Any = Replicas(self.partition)
        self.changes = IsrChanges(
            replicas, ZooKeeperStates(self.session, self.clock), self.clock, lag_time_max_ms=LAG_MS
        )
        self._reconnecting: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self.session.start(1_000)
        stored = LeaderAndIsr(leader=0, leader_epoch=1, isr=(0,), controller_epoch=1)
        await self.session.create(PATH, znodes.encode_partition_state(stored), make_parents=True)
        self.partition.apply(_state(epoch=1, isr=[0]), 0)
        self.partition.record_fetch(1, 10, 0, self.clock.monotonic_ms())

    def append(self) -> None:
        """Appends a record that broker 1 never fetches."""
        self.log.log_end_offset += 1
        self.partition.advance_high_watermark(self.clock.monotonic_ms() + 10 * LAG_MS)

    def _state_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._reconnecting = asyncio.get_running_loop().create_task(self.session.reconnect(1_000))

    async def stored_isr(self) -> tuple[int, ...]:
        data, stat = await self.session.get(PATH)
        return znodes.decode_partition_state(PATH, data, stat.version).isr


def _state(*, epoch: int, isr: list[int]) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=0,
        leader_epoch=epoch,
        isr=isr,
        partition_epoch=0,
        replicas=[0, 1],
    )


def play(act: Callable[[Scene], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        scene = Scene(loop)
        await scene.begin()
        await act(scene)
        await scene.changes.close()
        await scene.session.close()

    simulate(main, seed=1)


def test_a_follower_joins_the_isr_after_the_zookeeper_write() -> None:
    async def act(scene: Scene) -> None:
        scene.changes.may_expand(scene.partition, 1)
        await asyncio.sleep(3 * DELAY_S)
        assert scene.partition.isr == (0, 1)
        assert await scene.stored_isr() == (0, 1)

    play(act)


def test_a_follower_counts_as_in_sync_while_the_isr_write_response_is_lost() -> None:
    """The write succeeded: a controller may elect broker 1, which must have all acknowledged records."""

    async def act(scene: Scene) -> None:
        scene.changes.may_expand(scene.partition, 1)
        await asyncio.sleep(1.5 * DELAY_S)
        scene.session.break_connection()
        await asyncio.sleep(DELAY_S)
        scene.append()
        assert scene.partition.high_watermark == 10
        scene.session.heal()
        await asyncio.sleep(6 * DELAY_S)
        assert scene.partition.isr == (0, 1)
        assert scene.partition.pending_isr is None
        assert scene.partition.high_watermark == 10

    play(act)


def test_a_follower_counts_as_in_sync_while_the_isr_write_is_unknown_after_session_expiry() -> None:
    async def act(scene: Scene) -> None:
        scene.changes.may_expand(scene.partition, 1)
        await asyncio.sleep(1.5 * DELAY_S)
        scene.session.break_connection()
        await asyncio.sleep(10)
        scene.session.heal()
        scene.append()
        assert scene.partition.high_watermark == 10
        await asyncio.sleep(10)
        assert scene.partition.isr == (0, 1)
        assert scene.partition.high_watermark == 10

    play(act)


def test_a_follower_counts_as_in_sync_when_the_controller_wrote_since() -> None:
    """The new state arrives with a new leader epoch and is unknown until then."""

    async def act(scene: Scene) -> None:
        other = scene.zookeeper.session()
        await other.start(1_000)
        elected = LeaderAndIsr(leader=1, leader_epoch=2, isr=(0, 1), controller_epoch=1)
        await other.set(PATH, znodes.encode_partition_state(elected))
        scene.changes.may_expand(scene.partition, 1)
        await asyncio.sleep(5 * DELAY_S)
        scene.append()
        assert scene.partition.isr == (0,)
        assert scene.partition.high_watermark == 10
        scene.partition.apply(_state(epoch=3, isr=[0]), scene.clock.monotonic_ms())
        assert scene.partition.high_watermark == 11
        await other.close()

    play(act)


def test_an_unreadable_partition_state_is_not_overwritten() -> None:
    async def act(scene: Scene) -> None:
        await scene.session.set(PATH, b"{")
        scene.changes.may_expand(scene.partition, 1)
        await asyncio.sleep(10 * DELAY_S)
        assert await scene.session.get(PATH) == (b"{", (await scene.session.exists(PATH)))
        assert scene.partition.isr == (0,)

    play(act)


def test_isr_write_with_an_unexpected_error_is_retried() -> None:
    """A pending ISR that is never written would block the partition forever."""

    async def act(scene: Scene) -> None:
        put, failures = scene.changes._store.put, [RuntimeError("cannot be encoded")]

        async def put_or_fail(topic_partition: TopicPartition, new_state: LeaderAndIsr) -> LeaderAndIsr | None:
            if failures:
                raise failures.pop()
            return await put(topic_partition, new_state)

        scene.changes._store.put = put_or_fail  # type: ignore[method-assign]
        scene.changes.may_expand(scene.partition, 1)
        await asyncio.sleep(3 * DELAY_S)
        assert scene.partition.isr == (0, 1)
        assert scene.partition.pending_isr is None

    play(act)

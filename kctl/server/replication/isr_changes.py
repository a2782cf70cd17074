"""Changes of the in-sync replicas, made by the leader.

A follower is removed from the ISR when it has not caught up with the log end for replica.lag.time.max.ms; it is added
when it has reached the high watermark and the start of this leader's epoch.  Both are conditional writes of the
partition's state, see state_stores: if another writer, usually the controller, changed the state, this write fails and
the leader waits for the controller's LeaderAndIsr.

While a write is pending, the high watermark takes the old and the new ISR into account, so that no outcome of the write
loses a record.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging

from kctl.client.transport import ConnectionLost
from kctl.environment import Clock
from kctl.errors import ApiError, ConnectionLossError, MalformedRequest, SessionLostError, ZooKeeperError
from kctl.model import LeaderAndIsr
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.state_stores import StateStore
from kctl.server.requests.slices import pause, pieces
from kctl.server.schedule import run_every

log = logging.getLogger(__name__)

_RETRY_MS = 200


class IsrChanges:
    """`shrink` runs periodically; `may_expand` is called when a follower has fetched."""

    def __init__(self, replicas: ReplicaManager, store: StateStore, clock: Clock, *, lag_time_max_ms: int) -> None:
        self._replicas = replicas
        self._store = store
        self._clock = clock
        self._lag_time_max_ms = lag_time_max_ms
        self.shrink_count = 0
        """The number of ISR shrinks that were written; Kafka's IsrShrinksPerSec."""
        self.expand_count = 0
        self.failure_count = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Starts the periodic check for lagging followers."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(run_every(self._lag_time_max_ms // 2, self.shrink), name="isr-shrink")]
        self._store.start()

    async def shrink(self) -> None:
        """Removes lagging followers from the ISR of every partition that this broker leads."""
        for partitions in pieces(list(self._replicas.partitions.values())):
            now_ms = self._clock.monotonic_ms()
            for partition in partitions:
                lagging = partition.lagging(now_ms) if partition.is_leader else None
                if lagging and partition.pending_isr is None:
                    self._change(partition, tuple(r for r in partition.isr if r not in lagging))
            await pause()

    def may_expand(self, partition: Partition, replica_id: int) -> None:
        """Adds the follower to the ISR if it has caught up."""
        if partition.pending_isr is None and partition.may_join(replica_id):
            self._change(partition, (*partition.isr, replica_id))

    async def close(self) -> None:
        """Stops making changes."""
        tasks = [*self._tasks, *self._under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._store.close()

    def _change(self, partition: Partition, isr: tuple[int, ...]) -> None:
        partition.pending_isr = isr
        task = asyncio.get_running_loop().create_task(self._write(partition, isr), name=f"isr-{partition}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _write(self, partition: Partition, isr: tuple[int, ...]) -> None:
        leader_epoch = partition.leader_epoch
        new_state = LeaderAndIsr(
            partition.broker_id, leader_epoch, isr, partition.controller_epoch, partition.partition_epoch
        )
        try:
            written = await self._put_until_known(partition, new_state)
        except ZooKeeperError as error:
            self.failure_count += 1
            log.warning(
                "cannot write the ISR, trying again with its next change partition=%s error=%s",
                partition.topic_partition,
                error,
            )
            if not _has_newer_state(partition, leader_epoch):
                partition.pending_isr = None
            return
        if written is None or _has_newer_state(partition, leader_epoch):
            self.failure_count += written is None
            return
        partition.pending_isr = None
        if len(written.isr) < len(partition.isr):
            self.shrink_count += 1
        else:
            self.expand_count += 1
        log.info("changed ISR partition=%s isr=%s previous=%s", partition.topic_partition, written.isr, partition.isr)
        partition.isr, partition.partition_epoch = written.isr, written.partition_epoch
        partition.advance_high_watermark(self._clock.monotonic_ms())
        self._replicas.partition_moved(partition.topic_partition)

    async def _put_until_known(self, partition: Partition, new_state: LeaderAndIsr) -> LeaderAndIsr | None:
        """Retries until the result of the write is known; None when another writer changed the state.

        Until then the write may have been applied, and a controller may elect a leader from it, so the pending ISR must
        count.  The same holds if another writer changed the state since; in that case a LeaderAndIsr will follow.
        """
        while not _has_newer_state(partition, new_state.leader_epoch):
            try:
                return await self._store.put(partition.topic_partition, new_state)
            except (ConnectionLossError, SessionLostError, ConnectionLost, ApiError, MalformedRequest) as error:
                log.debug("ISR not written yet partition=%s error=%s", partition.topic_partition, error)
            except ZooKeeperError:
                raise
            except Exception:
                # The result is unknown here too; without a retry the pending replicas would stay pending.
                log.exception(
                    "cannot write the ISR, trying again partition=%s retry_ms=%d", partition.topic_partition, _RETRY_MS
                )
            await asyncio.sleep(_RETRY_MS / 1000)
        return None


def _has_newer_state(partition: Partition, leader_epoch: int) -> bool:
    """True if the controller has made a new decision, with which the pending ISR was dropped."""
    return partition.leader_epoch != leader_epoch or not partition.is_leader

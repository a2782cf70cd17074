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
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import islice
from typing import Protocol

from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.errors import (
    ApiError,
    BadVersionError,
    ConnectionLossError,
    ErrorCode,
    MalformedRequest,
    NoNodeError,
    SessionLostError,
    ZooKeeperError,
)
from kctl.limits import Subject, bound
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
)
from kctl.server.loop.slices import sliced_batches
from kctl.server.loop.tasks import run_every
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.system.environment import Clock
from kctl.system.reference_cycles import copy_of
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper

ISR_CHANGES_PER_REQUEST_MAX = bound(
    Subject.PARTITIONS,
    "partitions in one AlterIsr request of a leader to the controller",
    500,
    "partitions",
    on_excess="the changes of further partitions are in the next request",
)


# How a leader writes the in-sync replicas of its partitions: directly to ZooKeeper, or through the controller.
#
# inter.broker.protocol.version decides, because all brokers of a cluster and its controller have to agree: from
# 2.7-IV2 on, the controller writes (AlterIsr, KIP-497). Kafka: ZkIsrManager and DefaultAlterIsrManager.
#
# Owner: event loop.


log = logging.getLogger(__name__)

ANNOUNCE_EVERY_MS = 2_500
_ANNOUNCE_QUIET_MS = 5_000
_ANNOUNCE_LATEST_MS = 60_000
_NEWER_STATE_ERRORS = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class StateStore(Protocol):
    """Conditional writes of partition states."""

    def start(self) -> None:
        """Start background work when the broker starts serving."""
        ...

    async def put(self, topic_partition: TopicPartition, new_state: LeaderAndIsr) -> LeaderAndIsr | None:
        """Write the state; return it as written, or None if another writer changed it in the meantime.

        Raises ConnectionLossError, SessionLostError, ConnectionLost, ApiError or MalformedRequest when it is not known
        whether it was written, and ZooKeeperError when it was not.
        """
        ...

    async def close(self) -> None:
        """Stop writing."""
        ...


class ZooKeeperStates:
    """This broker writes states itself, and notifies the controller of its changes in batches."""

    def __init__(self, zookeeper: ZooKeeper, clock: Clock) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._unannounced: dict[TopicPartition, None] = {}
        self._last_change_ms = 0
        self._last_announced_ms = clock.monotonic_ms()

    def start(self) -> None:
        """Start the periodic notification."""
        announcing = run_every(ANNOUNCE_EVERY_MS, self.announce)
        self._task = asyncio.get_running_loop().create_task(announcing, name="isr-announce")

    async def put(self, topic_partition: TopicPartition, new_state: LeaderAndIsr) -> LeaderAndIsr | None:
        """Write the state and queue a notification."""
        written = await self._put(topic_partition, new_state)
        if written is not None:
            self._unannounced[topic_partition] = None
            self._last_change_ms = self._clock.monotonic_ms()
        return written

    async def announce(self) -> None:
        """Notify the controller of changes after a quiet period, or after the longest wait."""
        now_ms = self._clock.monotonic_ms()
        has_settled = now_ms - self._last_change_ms >= _ANNOUNCE_QUIET_MS
        is_late = now_ms - self._last_announced_ms >= _ANNOUNCE_LATEST_MS
        if not self._unannounced or not (has_settled or is_late):
            return
        announced, self._unannounced = self._unannounced, {}
        try:
            data = znodes.encode_partitions(announced)
            await self._zookeeper.create(paths.ISR_CHANGE_PREFIX, data, sequence=True)
            self._last_announced_ms = now_ms
        except ZooKeeperError as error:
            self._unannounced = {**announced, **self._unannounced}
            log.warning(
                "cannot notify the controller of changed ISRs, trying again partitions=%d error=%s",
                len(announced),
                error,
            )

    async def close(self) -> None:
        """Stop the periodic notification."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _put(self, topic_partition: TopicPartition, new_state: LeaderAndIsr) -> LeaderAndIsr | None:
        path = paths.partition_state(*topic_partition)
        data = znodes.encode_partition_state(new_state)
        try:
            stat = await self._zookeeper.set(path, data, version=new_state.partition_epoch)
        except NoNodeError:
            return None
        except BadVersionError:
            found, stat = await self._zookeeper.get(path)
            try:
                current = znodes.decode_partition_state(path, found, stat.version)
            except ValueError as problem:
                log.error(
                    "cannot read the state of a partition, its ISR stays partition=%s error=%s",
                    topic_partition,
                    problem,
                )
                return None
            # The response of an earlier write was lost: the write was applied.
            is_ours = replace(current, partition_epoch=new_state.partition_epoch) == new_state
            return current if is_ours else None
        return replace(new_state, partition_epoch=stat.version)


Outcome = LeaderAndIsr | ErrorCode


Connect = Callable[[], Awaitable[Connection]]
"""Opens a connection to the current controller.  Raises ConnectionLost, also when there is no controller."""


class ControllerStates:
    """Writes states through the controller.  One request is pending at a time; later changes go into the next one.

    A request has a bounded number of partitions, since the controller refuses requests that are expensive to decode,
    and since all callers continue when its response arrives.
    """

    def __init__(self, broker_id: int, connect: Connect, *, broker_epoch: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._waiting: dict[TopicPartition, tuple[LeaderAndIsr, asyncio.Future[Outcome]]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Do nothing: the first `put` connects."""

    async def put(self, topic_partition: TopicPartition, new_state: LeaderAndIsr) -> LeaderAndIsr | None:
        """Queue the state for the next AlterIsr request."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        displaced = self._waiting.get(topic_partition)
        if displaced is not None and not displaced[1].done():
            # A state of another leader epoch; a caller that still needs it tries again.
            displaced[1].set_exception(ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED))
        self._waiting[topic_partition] = (new_state, future)
        if self._sending is None:
            self._sending = loop.create_task(self._send_all(), name="alter-isr")
        outcome = await future
        if isinstance(outcome, LeaderAndIsr):
            # A state of another leader epoch is a decision whose LeaderAndIsr this broker has not received yet.
            return outcome if outcome.leader_epoch == new_state.leader_epoch else None
        if outcome in _NEWER_STATE_ERRORS:
            return None
        raise ApiError(outcome)

    async def close(self) -> None:
        """Stop sending and close the connection."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._drop_connection()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                requested = dict(islice(self._waiting.items(), ISR_CHANGES_PER_REQUEST_MAX))
                for topic_partition in requested:
                    del self._waiting[topic_partition]
                try:
                    outcomes = await self._send({tp: new_state for tp, (new_state, _) in requested.items()})
                except Exception as error:
                    # Any error at all: otherwise the callers would wait forever.
                    await self._drop_connection()  # The next attempt may have to use another broker.
                    for _, future in requested.values():
                        if not future.done():
                            future.set_exception(copy_of(error))
                    continue
                for topic_partition, (_, future) in requested.items():
                    if not future.done():
                        future.set_result(outcomes.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR))
        finally:
            self._sending = None

    async def _send(self, new_state: dict[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, Outcome]:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._connect()
        request = AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=_by_topic(new_state)
        )
        response = await self._connection.send(request, AlterPartitionResponse, version=0)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode.of(response.error_code))
        return {
            TopicPartition(topic.topic_name, partition.partition_index): LeaderAndIsr(
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.isr),
                partition_epoch=partition.partition_epoch,
            )
            if partition.error_code == ErrorCode.NONE
            else ErrorCode.of(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }

    async def _drop_connection(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


def _by_topic(new_state: dict[TopicPartition, LeaderAndIsr]) -> list[RequestTopicData]:
    topics: dict[str, list[RequestPartitionData]] = {}
    for (topic, index), state in new_state.items():
        topics.setdefault(topic, []).append(
            RequestPartitionData(
                partition_index=index,
                leader_epoch=state.leader_epoch,
                new_isr=list(state.isr),
                partition_epoch=state.partition_epoch,
            )
        )
    return [RequestTopicData(topic_name=topic, partitions=partitions) for topic, partitions in topics.items()]


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
        """Start the periodic check for lagging followers."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(run_every(self._lag_time_max_ms // 2, self.shrink), name="isr-shrink")]
        self._store.start()

    async def shrink(self) -> None:
        """Remove lagging followers from the ISR of every partition that this broker leads."""
        async for partitions in sliced_batches(list(self._replicas.partitions.values())):
            now_ms = self._clock.monotonic_ms()
            for partition in partitions:
                lagging = partition.lagging(now_ms) if partition.is_leader else None
                if lagging and partition.pending_isr is None:
                    self._change(partition, tuple(r for r in partition.isr if r not in lagging))

    def may_expand(self, partition: Partition, replica_id: int) -> None:
        """Add the follower to the ISR if it has caught up."""
        if partition.pending_isr is None and partition.may_join(replica_id):
            self._change(partition, (*partition.isr, replica_id))

    async def close(self) -> None:
        """Stop making changes."""
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
        """Retry until the result of the write is known; None when another writer changed the state.

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
    """Return whether the controller has made a new decision, with which the pending ISR was dropped."""
    return partition.leader_epoch != leader_epoch or not partition.is_leader

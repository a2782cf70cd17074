"""How a leader writes the in-sync replicas of its partitions: directly to ZooKeeper, or through the controller.

inter.broker.protocol.version decides, because all brokers of a cluster and its controller have to agree: from 2.7-IV2
on, the controller writes (AlterIsr, KIP-497).  Kafka: ZkIsrManager and DefaultAlterIsrManager.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import islice
from typing import Protocol

from kctl.client.transport import Connection
from kctl.environment import Clock
from kctl.errors import ApiError, BadVersionError, ErrorCode, NoNodeError, ZooKeeperError
from kctl.limits import ISR_CHANGES_PER_REQUEST_MAX
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
)
from kctl.reference_cycles import copy_of
from kctl.server.schedule import run_every
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper

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
        """Starts background work when the broker starts serving."""
        ...

    async def put(self, topic_partition: TopicPartition, new_state: LeaderAndIsr) -> LeaderAndIsr | None:
        """Writes the state; returns it as written, or None if another writer changed it in the meantime.

        Raises ConnectionLossError, SessionLostError, ConnectionLost, ApiError or MalformedRequest when it is not known
        whether it was written, and ZooKeeperError when it was not.
        """
        ...

    async def close(self) -> None:
        """Stops writing."""
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
        """Starts the periodic notification."""
        announcing = run_every(ANNOUNCE_EVERY_MS, self.announce)
        self._task = asyncio.get_running_loop().create_task(announcing, name="isr-announce")

    async def put(self, topic_partition: TopicPartition, new_state: LeaderAndIsr) -> LeaderAndIsr | None:
        """Writes the state and queues a notification."""
        written = await self._put(topic_partition, new_state)
        if written is not None:
            self._unannounced[topic_partition] = None
            self._last_change_ms = self._clock.monotonic_ms()
        return written

    async def announce(self) -> None:
        """Notifies the controller of changes after a quiet period, or after the longest wait."""
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
        """Stops the periodic notification."""
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
        """Does nothing: the first `put` connects."""

    async def put(self, topic_partition: TopicPartition, new_state: LeaderAndIsr) -> LeaderAndIsr | None:
        """Queues the state for the next AlterIsr request."""
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
        """Stops sending and closes the connection."""
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
            TopicPartition(topic.topic_name, each.partition_index): LeaderAndIsr(
                each.leader_id, each.leader_epoch, tuple(each.isr), partition_epoch=each.partition_epoch
            )
            if each.error_code == ErrorCode.NONE
            else ErrorCode.of(each.error_code)
            for topic in response.topics
            for each in topic.partitions
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

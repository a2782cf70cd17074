"""Where a leader has the in-sync replicas of its partitions written: by itself in ZooKeeper, or by the controller.

inter.broker.protocol.version decides, because all brokers of a cluster and its controller have to agree: from 2.7-IV2
on the controller writes (AlterIsr, KIP-497).  Kafka's ZkIsrManager and DefaultAlterIsrManager.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from kctl.client.transport import Connection
from kctl.environment import Clock
from kctl.errors import ApiError, BadVersionError, ErrorCode, NoNodeError, ZooKeeperError
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
)
from kctl.server.schedule import run_every
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper

log = logging.getLogger(__name__)

ANNOUNCE_EVERY_MS = 2_500
_ANNOUNCE_QUIET_MS = 5_000
_ANNOUNCE_LATEST_MS = 60_000
_DECIDED_ANEW = frozenset(
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
        """The broker serves from now on."""
        ...

    async def put(self, topic_partition: TopicPartition, wanted: LeaderAndIsr) -> LeaderAndIsr | None:
        """The state as written, or None when somebody else has changed it meanwhile.

        Raises ConnectionLossError, SessionLostError, ConnectionLost, ApiError or MalformedRequest when it is not known
        whether it was written, and ZooKeeperError when it was not.
        """
        ...

    async def close(self) -> None:
        """Writes nothing any more."""
        ...


class ZooKeeperStates:
    """This broker writes itself, and announces its changes to the controller in bundles."""

    def __init__(self, zookeeper: ZooKeeper, clock: Clock) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._chore: asyncio.Task[None] | None = None
        self._unannounced: dict[TopicPartition, None] = {}
        self._last_change_ms = 0
        self._last_announced_ms = clock.monotonic_ms()

    def start(self) -> None:
        announcing = run_every(ANNOUNCE_EVERY_MS, self.announce)
        self._chore = asyncio.get_running_loop().create_task(announcing, name="isr-announce")

    async def put(self, topic_partition: TopicPartition, wanted: LeaderAndIsr) -> LeaderAndIsr | None:
        written = await self._put(topic_partition, wanted)
        if written is not None:
            self._unannounced[topic_partition] = None
            self._last_change_ms = self._clock.monotonic_ms()
        return written

    async def announce(self) -> None:
        """Tells the controller about changes once they have settled, or have waited for long."""
        now_ms = self._clock.monotonic_ms()
        has_settled = now_ms - self._last_change_ms >= _ANNOUNCE_QUIET_MS
        is_late = now_ms - self._last_announced_ms >= _ANNOUNCE_LATEST_MS
        if not self._unannounced or not (has_settled or is_late):
            return
        told, self._unannounced = self._unannounced, {}
        try:
            data = znodes.encode_partitions(told)
            await self._zookeeper.create(paths.ISR_CHANGE_PREFIX, data, sequence=True)
            self._last_announced_ms = now_ms
        except ZooKeeperError as error:
            self._unannounced = {**told, **self._unannounced}
            log.warning("changes of in-sync replicas could not be announced yet: %s", error)

    async def close(self) -> None:
        if self._chore is not None:
            self._chore.cancel()
            await asyncio.gather(self._chore, return_exceptions=True)

    async def _put(self, topic_partition: TopicPartition, wanted: LeaderAndIsr) -> LeaderAndIsr | None:
        path = paths.partition_state(*topic_partition)
        data = znodes.encode_partition_state(wanted)
        try:
            stat = await self._zookeeper.set(path, data, version=wanted.partition_epoch)
        except NoNodeError:
            return None
        except BadVersionError:
            found, stat = await self._zookeeper.get(path)
            try:
                current = znodes.decode_partition_state(path, found, stat.version)
            except ValueError as problem:
                log.error("somebody wrote over a partition state: %s", problem)
                return None
            # An answer that got lost: the write had happened.
            is_ours = replace(current, partition_epoch=wanted.partition_epoch) == wanted
            return current if is_ours else None
        return replace(wanted, partition_epoch=stat.version)


Outcome = LeaderAndIsr | ErrorCode


Connect = Callable[[], Awaitable[Connection]]
"""A new connection to the broker that is controller now.  Raises ConnectionLost, also when nobody is."""


class ControllerStates:
    """The controller writes.  One request is under way at a time; what comes meanwhile goes into the next."""

    def __init__(self, broker_id: int, connect: Connect, *, broker_epoch: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._waiting: dict[TopicPartition, tuple[LeaderAndIsr, asyncio.Future[Outcome]]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Begins with the first wish."""

    async def put(self, topic_partition: TopicPartition, wanted: LeaderAndIsr) -> LeaderAndIsr | None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        displaced = self._waiting.get(topic_partition)
        if displaced is not None and not displaced[1].done():
            # Of another leader epoch; whoever still has a use for it asks again.
            displaced[1].set_exception(ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED))
        self._waiting[topic_partition] = (wanted, future)
        if self._sending is None:
            self._sending = loop.create_task(self._send_all(), name="alter-isr")
        outcome = await future
        if isinstance(outcome, LeaderAndIsr):
            # What another leader epoch says is a decision that this broker is yet to be told of.
            return outcome if outcome.leader_epoch == wanted.leader_epoch else None
        if outcome in _DECIDED_ANEW:
            return None
        raise ApiError(outcome)

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._drop_connection()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                try:
                    outcomes = await self._send({tp: wanted for tp, (wanted, _) in asked.items()})
                except Exception as error:
                    # Of whatever kind: whoever waits for the answer would wait for ever.
                    await self._drop_connection()  # The next try may have to go to another broker.
                    for _, future in asked.values():
                        if not future.done():
                            future.set_exception(error)
                    continue
                for topic_partition, (_, future) in asked.items():
                    if not future.done():
                        future.set_result(outcomes.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR))
        finally:
            self._sending = None

    async def _send(self, wanted: dict[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, Outcome]:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._connect()
        request = AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=_by_topic(wanted)
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


def _by_topic(wanted: dict[TopicPartition, LeaderAndIsr]) -> list[RequestTopicData]:
    topics: dict[str, list[RequestPartitionData]] = {}
    for (topic, index), state in wanted.items():
        topics.setdefault(topic, []).append(
            RequestPartitionData(
                partition_index=index,
                leader_epoch=state.leader_epoch,
                new_isr=list(state.isr),
                partition_epoch=state.partition_epoch,
            )
        )
    return [RequestTopicData(topic_name=topic, partitions=partitions) for topic, partitions in topics.items()]

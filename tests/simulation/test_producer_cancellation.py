"""Callers of a producer are cancelled at random awaits of every public method, on whole brokers under virtual time.

A seed gives one run.  Whatever is cancelled: each record whose `send` has returned a future gets its result and, if
that is an offset, is in the log once, in order; one whose `send` was cancelled is not there; a transaction is there as
a whole or not at all; the producer goes on, closes, and leaves no task behind.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from kctl.client import AsyncProducer, ProducerConfig, RecordMetadata
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.errors import KctlError, UsageError
from kctl.model import TopicPartition
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate
from tests.property.examples import share_of
from tests.simulation.scene import create_topic
from tests.simulation.test_cluster import PROPERTIES

T = TypeVar("T")

TOPIC = "orders"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(3)]
STEPS_MAX = 60
"""How many turns of the event loop a caller gets at most before it is cancelled."""
ROUNDS = 40
TASKS = {
    "add offsets to a transaction",
    "caller",
    "close a connection",
    "close a producer",
    "connect to broker 0",
    "connect to broker 1",
    "connect to broker 2",
    "end a transaction",
    "get a producer id",
    "look up topics",
    "produce",
}
BOUND_S = 300


class Run:
    """One cluster, and producers one after the other."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.chance = random.Random(seed)
        self.cancelled = 0
        self.accepted: dict[bytes, asyncio.Future[RecordMetadata]] = {}
        self.transactions: list[list[bytes]] = []
        self.all_or_nothing: list[list[bytes]] = []
        self.refused: set[bytes] = set()
        self._number = 0
        self._cluster = SimCluster(loop, properties=PROPERTIES | {"min.insync.replicas": "1"})

    async def play(self, fault: Callable[[Run], Coroutine[Any, Any, None]]) -> None:
        await self._cluster.start(3)
        with self._cluster.network.on_host("client"):
            async with self._cluster.client() as client:
                await create_topic(client, TOPIC, len(PARTITIONS))
                before = self._client_tasks()
                failing = asyncio.create_task(fault(self))
                for number in range(ROUNDS):
                    await self._round(f"producer-{number % 3}" if number % 2 else None)
                await failing
                assert self._client_tasks() - before - {failing} == set(), "no task is left"
                await self._check(client)
        await self._cluster.stop()

    def _client_tasks(self) -> set[asyncio.Task[object]]:
        """Tasks of producers and their callers."""
        return {task for task in asyncio.all_tasks() if task.get_name() in TASKS}

    async def restart_brokers(self) -> None:
        for number in (0, 1, 2):
            await asyncio.sleep(self.chance.random() * 3)
            self._cluster.kill(number)
            await asyncio.sleep(1)
            await self._cluster.start_broker(number)
            await asyncio.sleep(8)

    async def _round(self, transactional_id: str | None) -> None:
        brokers = ",".join(f"broker-{number}:9092" for number in range(3))
        config = ProducerConfig(
            bootstrap_servers=brokers,
            transactional_id=transactional_id,
            linger_ms=self.chance.choice((0, 5, 50)),
            buffer_memory=self.chance.choice((200, 32 << 20)),
        )
        producer = AsyncProducer(config)
        while True:
            try:
                await self._call(producer.__aenter__)
                break
            except asyncio.CancelledError:
                producer = AsyncProducer(config)
        for _ in range(4):
            if transactional_id is None:
                await self._send_some(producer, [])
                await self._quietly(producer.flush)
            else:
                await self._transact(producer)
        await self._quietly(producer.close)
        async with asyncio.timeout(BOUND_S):
            await producer.close()
        assert all(future.done() for future in self.accepted.values()), "every record has its result"

    async def _transact(self, producer: AsyncProducer) -> None:
        try:
            async with asyncio.timeout(BOUND_S):
                await producer.begin_transaction()
        except UsageError:  # one whose end has failed
            async with asyncio.timeout(BOUND_S):
                await producer.abort_transaction()
                await producer.begin_transaction()
        sent: list[bytes] = []
        await self._send_some(producer, sent)
        if self.chance.random() < 0.3:
            offsets = {TopicPartition("elsewhere", 0): self._number}
            await self._quietly(lambda: producer.send_offsets("copy", offsets))
        is_commit = self.chance.random() < 0.6
        try:
            await self._call(producer.commit_transaction if is_commit else producer.abort_transaction)
        except (asyncio.CancelledError, KctlError):
            self.all_or_nothing.append(sent)
            return
        if is_commit:
            self.transactions.append(sent)
        else:
            self.refused.update(sent)

    async def _send_some(self, producer: AsyncProducer, sent: list[bytes]) -> None:
        for _ in range(self.chance.randrange(8)):
            value = b"%06d" % self._number
            partition = self._number % 3
            self._number += 1
            try:
                future = await self._call(lambda: producer.send(TOPIC, value, partition=partition))  # noqa: B023
            except asyncio.CancelledError:
                self.refused.add(value)
            except KctlError:
                self.refused.add(value)
            else:
                self.accepted[value] = future
                sent.append(value)

    async def _quietly(self, method: Callable[[], Awaitable[object]]) -> None:
        try:
            await self._call(method)
        except (asyncio.CancelledError, KctlError):
            return

    async def _call(self, method: Callable[[], Awaitable[T]]) -> T:
        """Calls a method, and cancels it after some turns of the loop, or after some time."""

        async def caller() -> T:
            return await method()

        task = asyncio.create_task(caller(), name="caller")
        if self.chance.random() < 0.6:
            for _ in range(self.chance.randrange(STEPS_MAX)):
                await asyncio.sleep(0)
            if self.chance.random() < 0.5:
                await asyncio.sleep(self.chance.random() * 0.1)
            self.cancelled += task.cancel()
        async with asyncio.timeout(BOUND_S):
            await asyncio.wait([task])
        return task.result()

    async def _check(self, client: object) -> None:
        committed = await self._read(client, IsolationLevel.READ_COMMITTED)
        values = [value for tp in PARTITIONS for value in committed[tp]]
        present = set(values)
        assert len(values) == len(present), "each once"
        for tp in PARTITIONS:
            assert committed[tp] == sorted(committed[tp]), "in order"
        in_transactions = {value for sent in self.transactions + self.all_or_nothing for value in sent}
        for value, future in self.accepted.items():
            if value not in in_transactions and value not in self.refused:
                assert future.exception() is None, (value, future.exception())
                assert value in present
        for sent in self.transactions:
            assert set(sent) <= present, "what was committed is there"
        for sent in self.all_or_nothing:
            assert len(present.intersection(sent)) in {0, len(sent)}, "all or nothing"
        assert not present & self.refused

    async def _read(self, client: object, isolation: IsolationLevel) -> dict[TopicPartition, list[bytes]]:
        consumer = Consumer(client, dict.fromkeys(PARTITIONS, 0), isolation=isolation)  # type: ignore[arg-type]
        values: dict[TopicPartition, list[bytes]] = {tp: [] for tp in PARTITIONS}
        for _ in range(10):
            for tp, records in await consumer.poll():
                values[tp] += [record.value or b"" for record in records]
        return values


async def no_fault(_run: Run) -> None:
    """The brokers run."""


@pytest.mark.parametrize("fault", [no_fault, Run.restart_brokers])
@pytest.mark.parametrize("seed", range(share_of(2)))
def test_cancelled_callers_stop_nothing(fault: Callable[[Run], Coroutine[Any, Any, None]], seed: int) -> None:
    cancelled = 0

    async def main(loop: SimLoop) -> None:
        nonlocal cancelled
        run = Run(loop, seed)
        await run.play(fault)
        cancelled = run.cancelled

    simulate(main, seed=seed)
    assert cancelled > ROUNDS

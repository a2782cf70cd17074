"""Shared parts of simulations with whole brokers: the topic, duplicated requests, and the end of all faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.producing.partitioners import DefaultPartitioner
from kctl.client.producing.producer import Delivery, Producer, ProducerSettings
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate
from tests.simulation.faults import REPLICAS

T = TypeVar("T")

TWICE = 0.1
"""How many requests come over two connections at once."""


def traced(play: Callable[[SimLoop], Awaitable[None]], seed: int) -> str:
    """Runs the simulation; the returned digest is the same for the same seed."""

    async def main(loop: SimLoop) -> str:
        await play(loop)
        return f"{loop.trace.count} {loop.trace.digest()}"

    return simulate(main, seed=seed)


async def create_topic(client: ClusterClient, name: str, partitions: int) -> None:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=REPLICAS, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    response = await client.on_controller(lambda connection: connection.send(request, CreateTopicsResponse))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.NONE]


def eager_producer(client: ClusterClient, loop: SimLoop, delivered: Callable[[Delivery], None]) -> Producer:
    """Sends all records at once, by the clock of the simulation."""
    return Producer(
        client,
        ProducerSettings(linger_ms=0),
        delivered,
        clock_ms=lambda: int(loop.time() * 1000),
        partitioner=DefaultPartitioner(random.Random(1).randrange),
        jitter=lambda: 1.0,
    )


async def restart_the_dead(cluster: SimCluster) -> None:
    for number, broker in list(cluster.brokers.items()):
        if not broker.is_running:
            await cluster.start_broker(number)


async def at_times_twice(
    chance: random.Random, work: Callable[[ClusterClient], Awaitable[T]], client: ClusterClient, second: ClusterClient
) -> T:
    """The result of `work`; sometimes another client does the same concurrently."""
    if chance.random() > TWICE:
        return await work(client)
    outcomes = await asyncio.gather(work(client), work(second), return_exceptions=True)
    for outcome in outcomes:
        if not isinstance(outcome, BaseException):
            return outcome
        if not isinstance(outcome, ApiError | ConnectionLost | ClusterUnreachable):
            raise outcome
    assert isinstance(outcomes[0], BaseException)
    raise outcomes[0]


def raise_for(code: int) -> None:
    """Raises ApiError for every code but NONE."""
    if code != ErrorCode.NONE:
        raise ApiError(ErrorCode.of(code))

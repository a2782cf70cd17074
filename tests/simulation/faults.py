"""Faults of a simulated cluster: of its brokers and of the connections between brokers and clients.

A fault takes the cluster and the random source of the run, and may leave brokers stopped; `scene.restart_the_dead`
restarts them.  Connections from clients are reset, never blocked, so every request is answered or its connection lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kctl.model import TopicPartition
from kctl.testing.sim_cluster import SimCluster

REPLICAS = 3
CLIENT = "client"
HOUR_MS = 3_600_000

Fault = Callable[[SimCluster, random.Random], Coroutine[Any, Any, None]]


async def nothing(_cluster: SimCluster, _chance: random.Random) -> None:
    """No fault."""


async def brokers_killed(cluster: SimCluster, chance: random.Random) -> None:
    """Replication is slower: a killed broker loses records that the others have not fetched yet."""
    for _ in range(3):
        await asyncio.sleep(chance.uniform(2, 6))
        victim = chance.choice(sorted(cluster.brokers))
        ways = [
            cluster.network.link(host(victim), host(broker)) for broker in sorted(cluster.brokers) if broker != victim
        ]
        for way in ways:
            way.delay_s_mean = chance.choice((0.0005, 0.3))
        await asyncio.sleep(chance.uniform(0, 1))
        cluster.kill(victim)
        for way in ways:
            way.delay_s_mean = 0.0005
        await asyncio.sleep(chance.uniform(1, 10))
        await cluster.start_broker(victim)


async def brokers_restarted(cluster: SimCluster, chance: random.Random) -> None:
    for victim in sorted(cluster.brokers):
        await asyncio.sleep(chance.uniform(2, 5))
        await cluster.brokers[victim].stop()
        await asyncio.sleep(chance.uniform(0, 4))
        await cluster.start_broker(victim)


async def network_split(cluster: SimCluster, chance: random.Random) -> None:
    for _ in range(4):
        await asyncio.sleep(chance.uniform(2, 5))
        alone = chance.choice(sorted(cluster.brokers))
        cluster.network.partition(
            [host(alone)], [host(broker) for broker in sorted(cluster.brokers) if broker != alone]
        )
        if chance.random() < 0.5:
            cluster.brokers[alone].lose_zookeeper()
        await asyncio.sleep(chance.uniform(1, 9))
        cluster.network.heal()
        cluster.brokers[alone].find_zookeeper()


async def connections_reset(cluster: SimCluster, chance: random.Random) -> None:
    """Including data in flight: requests, responses, markers, fetches."""
    for _ in range(40):
        await asyncio.sleep(chance.uniform(0.1, 1))
        one, other = chance.sample([*map(host, sorted(cluster.brokers)), CLIENT, CLIENT], 2)
        cluster.network.cut(one, other)


async def leaders_move(cluster: SimCluster, chance: random.Random) -> None:
    """Leaders and coordinators move while all brokers are up; metadata updates arrive late."""
    for _ in range(12):
        one, other = chance.sample(sorted(cluster.brokers), 2)
        link = cluster.network.link(host(one), host(other))
        link.delay_s_mean = 0.3
        cluster.brokers[chance.choice(sorted(cluster.brokers))].expire_session()
        await asyncio.sleep(chance.uniform(0.5, 3))
        link.delay_s_mean = 0.0005


async def network_slow(cluster: SimCluster, chance: random.Random) -> None:
    for _ in range(10):
        await asyncio.sleep(chance.uniform(0.5, 2))
        one, other = chance.sample([*map(host, sorted(cluster.brokers)), CLIENT], 2)
        cluster.network.link(one, other).delay_s_mean = chance.choice((0.0005, 0.05, 0.5))
    for host_name in (*map(host, cluster.brokers), CLIENT):
        for other in (*map(host, cluster.brokers), CLIENT):
            cluster.network.link(host_name, other).delay_s_mean = 0.0005


async def clocks_jump(cluster: SimCluster, chance: random.Random) -> None:
    for _ in range(15):
        await asyncio.sleep(chance.uniform(0.5, 2))
        cluster.brokers[chance.choice(sorted(cluster.brokers))].clock.jump(chance.randint(-24, 24) * HOUR_MS)


async def random_faults(cluster: SimCluster, chance: random.Random) -> None:
    """Ten random faults.  At most one broker is down at a time, and all run at the end.

    Power, and with it what was not synced, is lost only when all replicas are in sync: one of them may lose anything.
    """
    dead: list[int] = []
    brokers = sorted(cluster.brokers)
    for _ in range(10):
        await asyncio.sleep(chance.uniform(0.5, 4))
        victim = chance.choice([broker for broker in brokers if broker not in dead])
        struck = cluster.brokers[victim]
        match chance.choice(MISHAPS):
            case "kill" if not dead:
                cluster.kill(victim)
                dead.append(victim)
            case "stop" if not dead:
                await struck.stop()
                dead.append(victim)
            case "return" if dead:
                await cluster.start_broker(dead.pop())
            case "power" if not dead:
                await until_whole(cluster)
                cluster.lose_power(victim)
                await asyncio.sleep(chance.uniform(0.1, 12))
                await cluster.start_broker(victim)
                await until_whole(cluster)
            case "partition":
                others = [host(broker) for broker in brokers if broker != victim]
                cut_off = chance.sample(others, chance.randrange(1, len(others) + 1))
                cluster.network.partition([host(victim)], cut_off, one_way=chance.random() < 0.3)
                await asyncio.sleep(chance.uniform(0.5, 12))
                cluster.network.heal()
            case "cut":
                cluster.network.cut(host(victim), chance.choice([CLIENT, host(brokers[0])]))
            case "zookeeper":
                lost = chance.choice([[struck], list(cluster.brokers.values())])
                for broker in lost:
                    broker.lose_zookeeper()
                await asyncio.sleep(chance.choice([1, 3, 10]))
                for broker in lost:
                    broker.find_zookeeper()
            case "session":
                struck.expire_session()
            case "clock":
                struck.clock.jump(chance.choice([-HOUR_MS, -5_000, 5_000, HOUR_MS]))
                struck.clock.drift(chance.choice([-500, 0, 500]))
            case "disk":
                struck.slow_down_disk(chance.choice([1, 1000, 5000]))
    for broker_id in dead:
        await cluster.start_broker(broker_id)


MISHAPS = ("kill", "stop", "return", "power", "partition", "cut", "zookeeper", "session", "clock", "disk")


FAULTS: tuple[Fault, ...] = (
    nothing,
    brokers_killed,
    brokers_restarted,
    network_split,
    connections_reset,
    leaders_move,
    network_slow,
    clocks_jump,
    random_faults,
)
USUAL_FAULTS = (brokers_killed, network_split, leaders_move, clocks_jump, random_faults)
"""Those that each run of the tests has; random faults contain most of the others."""
PLAYS = [
    *(pytest.param(fault, 1, id=f"{fault.__name__}-1") for fault in USUAL_FAULTS),
    *(
        pytest.param(fault, seed, id=f"{fault.__name__}-{seed}", marks=pytest.mark.matrix)
        for fault, seed in (
            *((fault, 1) for fault in FAULTS if fault not in USUAL_FAULTS),
            *((random_faults, seed) for seed in (2, 3)),
        )
    ),
    # A pending change of the in-sync replicas was replaced by one of an older epoch, and was never completed.
    pytest.param(brokers_killed, 2, id="brokers_killed-2"),
]
"""The faults in the tests of both coordinators."""


async def until_whole(cluster: SimCluster) -> None:
    """Waits until every partition has a leader among the running brokers, and all its replicas are in sync."""
    async with asyncio.timeout(300):
        while not _is_whole(cluster):  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.1)


def _is_whole(cluster: SimCluster) -> bool:
    hosted: set[TopicPartition] = set()
    led: set[TopicPartition] = set()
    for running in cluster.brokers.values():
        replicas = running.broker.replicas if running.broker is not None else None
        if replicas is None or not running.is_running:
            return False
        hosted |= replicas.partitions.keys()
        led |= {
            partition.topic_partition
            for partition in replicas.led()
            if len(partition.isr) == REPLICAS and partition.pending_isr is None
        }
    return hosted == led


def host(broker_id: int) -> str:
    """The broker's name on the network."""
    return f"broker-{broker_id}"

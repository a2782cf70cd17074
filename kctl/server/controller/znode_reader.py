"""Reads what the controller has to know from ZooKeeper, leaving the watches that tell of the next change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from kctl.errors import NoNodeError
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.controller.state import LiveBroker
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper
from kctl.zookeeper.znodes import TopicAssignment

log = logging.getLogger(__name__)

_READS_IN_FLIGHT = 500

T = TypeVar("T")


async def read_brokers(zookeeper: ZooKeeper) -> dict[int, LiveBroker]:
    """The registered brokers; one whose node cannot be read is left out with a log line."""
    ids = [int(name) for name in await zookeeper.children(paths.BROKER_IDS, watch=True)]
    found = await _gather(_read_broker(zookeeper, broker_id) for broker_id in ids)
    return {broker_id: live for broker_id, live in zip(ids, found, strict=True) if live is not None}


async def read_topics(zookeeper: ZooKeeper) -> dict[str, TopicAssignment]:
    """All topics; one whose node is broken is left out with a log line, the others go on."""
    names = await zookeeper.children(paths.TOPICS, watch=True)
    found = await _gather(_read_topic(zookeeper, name) for name in names)
    return {name: assignment for name, assignment in zip(names, found, strict=True) if assignment is not None}


async def read_leaders(
    zookeeper: ZooKeeper, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LeaderAndIsr]:
    """The partition states that exist."""
    wanted = list(partitions)
    found = await _gather(_read_leader(zookeeper, topic_partition) for topic_partition in wanted)
    return {tp: leader for tp, leader in zip(wanted, found, strict=True) if leader is not None}


async def read_deletions(zookeeper: ZooKeeper) -> frozenset[str]:
    """Topics that somebody wants deleted."""
    return frozenset(await zookeeper.children(paths.DELETE_TOPICS, watch=True))


async def _read_broker(zookeeper: ZooKeeper, broker_id: int) -> LiveBroker | None:
    path = paths.broker(broker_id)
    try:
        data, stat = await zookeeper.get(path, watch=True)
        return LiveBroker(znodes.decode_broker(path, data), stat.czxid)
    except NoNodeError:
        return None
    except ValueError as error:
        log.error("ignoring a broker registration that cannot be read: %s", error)
        return None


async def _read_topic(zookeeper: ZooKeeper, name: str) -> TopicAssignment | None:
    path = paths.topic(name)
    try:
        data, _ = await zookeeper.get(path, watch=True)
        return znodes.decode_topic(path, data)
    except NoNodeError:
        return None
    except ValueError as error:
        log.error("ignoring a topic whose assignment cannot be read: %s", error)
        return None


async def _read_leader(zookeeper: ZooKeeper, topic_partition: TopicPartition) -> LeaderAndIsr | None:
    path = paths.partition_state(topic_partition.topic, topic_partition.partition)
    try:
        data, stat = await zookeeper.get(path)
        return znodes.decode_partition_state(path, data, stat.version)
    except NoNodeError:
        return None
    except ValueError as error:
        log.error("ignoring a partition state that cannot be read: %s", error)
        return None


async def _gather(reads: Iterable[Awaitable[T]]) -> list[T]:
    """All results in order; so many reads at once that ZooKeeper is busy and its queue is not endless."""
    gate = asyncio.Semaphore(_READS_IN_FLIGHT)

    async def one(read: Awaitable[T]) -> T:
        async with gate:
            return await read

    return list(await asyncio.gather(*(one(read) for read in reads)))

"""Reads what the controller has to know from ZooKeeper, leaving the watches that tell of the next change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

from kctl.errors import NoNodeError
from kctl.model import LeaderAndIsr, TopicPartition, topic_name_problem
from kctl.server.controller.state import LiveBroker
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper
from kctl.zookeeper.znodes import TopicAssignment

log = logging.getLogger(__name__)

_READS_IN_FLIGHT = 500

K = TypeVar("K")
T = TypeVar("T")


class _Unreadable:
    """Stands for what a node holds when it makes no sense."""


_UNREADABLE = _Unreadable()


async def read_brokers(zookeeper: ZooKeeper) -> dict[int, LiveBroker]:
    """The registered brokers; one whose node cannot be read is left out with a log line."""
    names = await zookeeper.children(paths.BROKER_IDS, watch=True)
    for name in names:
        if not name.isdecimal():
            log.error("ignoring a broker registration without a number: %s/%s", paths.BROKER_IDS, name)
    ids = [int(name) for name in names if name.isdecimal()]
    found = await _gather(partial(_read_broker, zookeeper), ids)
    return {broker_id: live for broker_id, live in zip(ids, found, strict=True) if live is not None}


async def read_topics(zookeeper: ZooKeeper) -> tuple[dict[str, TopicAssignment], frozenset[str]]:
    """All topics, and the names of those whose node is broken: these get a log line, the others go on."""
    names = await zookeeper.children(paths.TOPICS, watch=True)
    found = list(zip(names, await _gather(partial(_read_topic, zookeeper), names), strict=True))
    topics = {name: assignment for name, assignment in found if isinstance(assignment, TopicAssignment)}
    return topics, frozenset(name for name, assignment in found if assignment is _UNREADABLE)


class WrittenState(NamedTuple):
    """A partition state and the transaction that wrote it."""

    state: LeaderAndIsr
    zxid: int


async def read_written_states(
    zookeeper: ZooKeeper, partitions: Iterable[TopicPartition], *, watch: bool = False
) -> dict[TopicPartition, WrittenState]:
    """The partition states that exist."""
    wanted = list(partitions)
    found = await _gather(partial(_read_state, zookeeper, watch=watch), wanted)
    return {tp: written for tp, written in zip(wanted, found, strict=True) if written is not None}


async def read_leaders(
    zookeeper: ZooKeeper, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LeaderAndIsr]:
    """The partition states that exist, without more."""
    return {tp: written.state for tp, written in (await read_written_states(zookeeper, partitions)).items()}


async def read_deletions(zookeeper: ZooKeeper) -> frozenset[str]:
    """Topics that somebody wants deleted."""
    return frozenset(await zookeeper.children(paths.DELETE_TOPICS, watch=True))


async def read_watched_states(
    zookeeper: ZooKeeper, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LeaderAndIsr]:
    """The states of these partitions, with a watch on each."""
    states = await read_written_states(zookeeper, partitions, watch=True)
    return {topic_partition: written.state for topic_partition, written in states.items()}


async def take_isr_changes(zookeeper: ZooKeeper) -> dict[TopicPartition, LeaderAndIsr]:
    """What leaders announced since last time: the states as they are now.  The announcements are deleted."""
    partitions: dict[TopicPartition, None] = {}
    for path, data in await _take_notifications(zookeeper, paths.ISR_CHANGE_NOTIFICATIONS):
        try:
            partitions.update(dict.fromkeys(znodes.decode_partitions(path, data)))
        except ValueError as error:
            log.error("ignoring an announcement that cannot be read: %s", error)
    return await read_leaders(zookeeper, partitions)


async def take_log_dir_events(zookeeper: ZooKeeper) -> set[int]:
    """The brokers that lost a disk since last time.  The announcements are deleted."""
    brokers: set[int] = set()
    for path, data in await _take_notifications(zookeeper, paths.LOG_DIR_EVENT_NOTIFICATIONS):
        try:
            brokers.add(znodes.decode_log_dir_event(path, data).broker_id)
        except ValueError as error:
            log.error("ignoring an announcement that cannot be read: %s", error)
    return brokers


async def read_reassignments(zookeeper: ZooKeeper) -> dict[TopicPartition, tuple[int, ...]] | None:
    """What /admin/reassign_partitions asks for; None without the node."""
    data = await _read_request(zookeeper, paths.REASSIGN_PARTITIONS)
    if data is None:
        return None
    try:
        return znodes.decode_reassignment(paths.REASSIGN_PARTITIONS, data)
    except ValueError as error:
        log.error("deleting a request for reassignments that cannot be read: %s", error)
        await zookeeper.delete(paths.REASSIGN_PARTITIONS, recursive=True)
        return None


async def take_preferred_elections(zookeeper: ZooKeeper) -> tuple[TopicPartition, ...]:
    """What /admin/preferred_replica_election asks for; the node is deleted."""
    data = await _read_request(zookeeper, paths.PREFERRED_REPLICA_ELECTION)
    if data is None:
        return ()
    await zookeeper.delete(paths.PREFERRED_REPLICA_ELECTION, recursive=True)
    try:
        return tuple(znodes.decode_partitions(paths.PREFERRED_REPLICA_ELECTION, data))
    except ValueError as error:
        log.error("ignoring a request for elections that cannot be read: %s", error)
        return ()


async def _read_request(zookeeper: ZooKeeper, path: str) -> bytes | None:
    """A node that somebody may create, watched whether it is there or not."""
    await zookeeper.exists(path, watch=True)
    try:
        data, _ = await zookeeper.get(path)
    except NoNodeError:
        return None
    return data


async def _take_notifications(zookeeper: ZooKeeper, parent: str) -> list[tuple[str, bytes]]:
    taken: list[tuple[str, bytes]] = []
    for name in await zookeeper.children(parent, watch=True):
        path = f"{parent}/{name}"
        try:
            data, _ = await zookeeper.get(path)
            await zookeeper.delete(path, recursive=True)
        except NoNodeError:
            continue
        taken.append((path, data))
    return taken


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


async def _read_topic(zookeeper: ZooKeeper, name: str) -> TopicAssignment | _Unreadable | None:
    path = paths.topic(name)
    problem = topic_name_problem(name)
    if problem is not None:
        log.error("ignoring the znode %r: %s", path, problem)
        return _UNREADABLE
    try:
        data, _ = await zookeeper.get(path, watch=True)
        return znodes.decode_topic(path, data)
    except NoNodeError:
        return None
    except ValueError as error:
        log.error("ignoring a topic whose assignment cannot be read: %s", error)
        return _UNREADABLE


async def _read_state(zookeeper: ZooKeeper, topic_partition: TopicPartition, *, watch: bool) -> WrittenState | None:
    path = paths.partition_state(topic_partition.topic, topic_partition.partition)
    try:
        data, stat = await zookeeper.get(path, watch=watch)
        return WrittenState(znodes.decode_partition_state(path, data, stat.version), stat.mzxid)
    except NoNodeError:
        return None
    except ValueError as error:
        log.error("ignoring a partition state that cannot be read: %s", error)
        return None


async def _gather(read: Callable[[K], Awaitable[T]], keys: Iterable[K]) -> list[T]:
    """What each key holds, in order; so many reads at once that ZooKeeper is busy and its queue is not endless."""
    gate = asyncio.Semaphore(_READS_IN_FLIGHT)

    async def one(key: K) -> T:
        async with gate:
            # Made only now: a controller that resigns leaves no read behind that nobody awaits.
            return await read(key)

    return list(await asyncio.gather(*(one(key) for key in keys)))

"""Turns changes in ZooKeeper into events: a watch only names what changed, so it is read and watched again.

The read happens when its turn in the queue comes, not when the watch fires: several changes in a row cost one read.

Owner: event loop.  Kafka: the ZNodeChangeHandlers of KafkaController.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias
from uuid import UUID

from kctl.environment import Random
from kctl.model import TopicPartition
from kctl.server.controller import reassignment_rules, znode_reader
from kctl.server.controller.candidacy import ControllerLease
from kctl.server.controller.events import (
    ZNODE,
    BrokersRead,
    DeletionsRead,
    Elected,
    ElectionRequested,
    Event,
    LogDirFailed,
    ReassignmentsRequested,
    StatesRead,
    TopicsRead,
)
from kctl.server.controller.state import ControllerState
from kctl.server.controller.znode_reader import WrittenTopic
from kctl.server.controller.znode_writer import ZnodeWriter
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import SetData, ZooKeeper

log = logging.getLogger(__name__)

UncleanTopics: TypeAlias = Callable[[Iterable[str]], frozenset[str]]
Place: TypeAlias = str | TopicPartition
"""A path whose children are watched, or the partition whose state node is watched."""

REQUESTS = (paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION)
"""Nodes in which tools older than KIP-455 and KIP-460 write their requests."""
_WATCHED = frozenset(
    {
        paths.CONTROLLER,
        paths.BROKER_IDS,
        paths.TOPICS,
        paths.DELETE_TOPICS,
        paths.ISR_CHANGE_NOTIFICATIONS,
        paths.LOG_DIR_EVENT_NOTIFICATIONS,
        *REQUESTS,
    }
)
_STATE = "/state"


def watched_place(path: str) -> Place | None:
    """The path or partition to read again when the watch of this path fires; None without a watch of the controller."""
    if path.endswith(_STATE):
        return _partition_of(path)
    if path.startswith(paths.BROKER_IDS):
        return paths.BROKER_IDS
    if path.startswith(paths.TOPICS):
        return paths.TOPICS
    return path if path in _WATCHED else None


class ZnodeEvents:
    """Reads the events for a changed path, or for a newly elected controller."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        writer: ZnodeWriter,
        state: ControllerState,
        *,
        unclean_topics: UncleanTopics,
        random: Random,
        has_topic_ids: bool,
    ) -> None:
        self._zookeeper = zookeeper
        self._writer = writer
        self._state = state
        self._unclean_topics = unclean_topics
        self._random = random
        self._has_topic_ids = has_topic_ids
        self._topics_read: dict[str, WrittenTopic] = {}

    async def read_all(self, lease: ControllerLease) -> Elected:
        """Reads all state that the controller needs from ZooKeeper."""
        brokers = await znode_reader.read_brokers(self._zookeeper)
        topics, _ = await self._topics()
        partitions = [TopicPartition(t, p) for t, a in topics.items() for p in a.replicas]
        written = await znode_reader.read_written_states(self._zookeeper, partitions)
        leaders = {topic_partition: each.state for topic_partition, each in written.items()}
        returned = {
            topic_partition: frozenset(b for b in each.state.isr if b in brokers and brokers[b].epoch > each.zxid)
            for topic_partition, each in written.items()
        }
        deletions = await znode_reader.read_deletions(self._zookeeper)
        # The states read above include all changes announced so far.
        await znode_reader.take_isr_changes(self._zookeeper)
        await znode_reader.take_log_dir_events(self._zookeeper)
        unclean = self._unclean_topics(topics)
        return Elected(lease.epoch, lease.epoch_version, brokers, topics, leaders, deletions, unclean, returned)

    async def read_states(self, partitions: Iterable[TopicPartition]) -> StatesRead:
        """Reads and watches the states of these partitions."""
        return StatesRead(await znode_reader.read_watched_states(self._zookeeper, partitions))

    async def read(self, path: str) -> list[Event]:
        """Returns the events for a change at a watched path other than /controller."""
        if path == paths.BROKER_IDS:
            return [BrokersRead(await znode_reader.read_brokers(self._zookeeper))]
        if path == paths.TOPICS:
            topics, unreadable = await self._topics()
            return [TopicsRead(topics, self._unclean_topics(topics), unreadable)]
        if path == paths.DELETE_TOPICS:
            return [DeletionsRead(await znode_reader.read_deletions(self._zookeeper))]
        if path == paths.ISR_CHANGE_NOTIFICATIONS:
            return [StatesRead(await znode_reader.take_isr_changes(self._zookeeper))]
        if path == paths.LOG_DIR_EVENT_NOTIFICATIONS:
            brokers = await znode_reader.take_log_dir_events(self._zookeeper)
            return [LogDirFailed(broker_id) for broker_id in sorted(brokers)]
        if path == paths.REASSIGN_PARTITIONS:
            return await self._reassignments()
        if path == paths.PREFERRED_REPLICA_ELECTION:
            partitions = await znode_reader.take_preferred_elections(self._zookeeper)
            return [ElectionRequested(partitions, is_unclean=False, trigger=ZNODE)] if partitions else []
        return []

    async def _reassignments(self) -> list[Event]:
        requested = await znode_reader.read_reassignments(self._zookeeper)
        if requested is None:
            return []
        new = {tp: r for tp, r in requested.items() if tp not in self._state.requested_reassignments}
        for topic_partition, replicas in new.items():
            refusal = reassignment_rules.refusal(self._state, topic_partition, replicas)
            if refusal is not None:
                path = paths.REASSIGN_PARTITIONS
                log.warning(
                    "ignoring refused reassignment path=%s partition=%s reason=%s", path, topic_partition, refusal
                )
        # A node without valid requests is deleted too.
        return [ReassignmentsRequested(new, from_znode=True)] if new or not requested else []

    async def _topics(self) -> tuple[dict[str, znodes.TopicAssignment], frozenset[str]]:
        """All topics, and those that cannot be read; topics without an id (created before 2.8 or by hand) get one.

        No ids are assigned while brokers older than 2.8 may be in the cluster (inter.broker.protocol.version).
        """
        self._topics_read, unreadable = await znode_reader.read_topics(self._zookeeper, self._topics_read)
        topics = {name: written.assignment for name, written in self._topics_read.items()}
        if not self._has_topic_ids:
            return topics, unreadable
        for name, assignment in list(topics.items()):
            if assignment.topic_id is None:
                with_id = znodes.TopicAssignment(
                    assignment.replicas, self._new_topic_id(), assignment.adding_replicas, assignment.removing_replicas
                )
                await self._writer.multi([SetData(paths.topic(name), znodes.encode_topic(with_id))])
                topics[name] = with_id
        return topics, unreadable

    def _new_topic_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)


def _partition_of(path: str) -> TopicPartition | None:
    """The partition of a state node's path."""
    parts = path.removeprefix(paths.TOPICS + "/").split("/")
    is_state = len(parts) == 4 and parts[1] == "partitions" and parts[2].isdigit()
    return TopicPartition(parts[0], int(parts[2])) if is_state else None

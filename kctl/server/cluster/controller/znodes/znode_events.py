"""Turns changes in ZooKeeper into events: a watch only names what changed, so it is read and watched again.

The read happens when its turn in the queue comes, not when the watch fires: several changes in a row cost one read.

Owner: event loop.  Kafka: the ZNodeChangeHandlers of KafkaController.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kctl.model import TopicPartition
from kctl.server.cluster.controller.events import (
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
    UncleanTopicsRead,
)
from kctl.server.cluster.controller.rules import reassignments
from kctl.server.cluster.controller.state import ControllerState
from kctl.server.cluster.controller.znodes import znode_reader
from kctl.server.cluster.controller.znodes.candidacy import ControllerLease
from kctl.server.cluster.controller.znodes.znode_reader import WrittenTopic
from kctl.server.cluster.controller.znodes.znode_writer import ZnodeWriter
from kctl.system.environment import Random
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import SetData, ZooKeeper

log = logging.getLogger(__name__)

UncleanTopics: TypeAlias = Callable[[Iterable[str]], frozenset[str]]


class TopicNode(NamedTuple):
    """A topic whose node is watched."""

    name: str


Place: TypeAlias = str | TopicPartition | TopicNode
"""A path whose children are watched, the partition whose state node is watched, or a topic."""

CHANGED_TOPICS = f"{paths.TOPICS}/"
"""In place of a path: the nodes of the topics that `ZnodeEvents.topic_changed` was called with."""
UNCLEAN_TOPICS = f"{paths.CONFIG}/topics/"
"""In place of a path: the configurations of the topics that `ZnodeEvents.configs_changed` was called with."""

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
    """Return what to read again when the watch of this path fires; None without a watch of the controller."""
    if path.endswith(_STATE):
        return _partition_of(path)
    if path.startswith(paths.BROKER_IDS):
        return paths.BROKER_IDS
    if path.startswith(CHANGED_TOPICS):
        return TopicNode(path.removeprefix(CHANGED_TOPICS))
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
        self._changed: set[str] = set()
        """Topics whose watches have fired."""
        self._configured: set[str] | None = set()
        """Topics whose configuration has changed; None for all."""

    def topic_changed(self, name: str) -> None:
        """Note that the watch of a topic's node has fired: the next `read(CHANGED_TOPICS)` reads it."""
        self._changed.add(name)

    def configs_changed(self, names: Iterable[str] | None) -> None:
        """Note a change of the configuration of these or all topics: the next `read(UNCLEAN_TOPICS)` looks at it."""
        if names is None or self._configured is None:
            self._configured = None
        else:
            self._configured.update(names)

    def drop_changes(self) -> None:
        """Forget topics to look at, because this broker is not the controller; an election reads everything."""
        self._changed.clear()
        self._configured = set()

    async def read_all(self, lease: ControllerLease) -> Elected:
        """Read all state that the controller needs from ZooKeeper."""
        brokers = await znode_reader.read_brokers(self._zookeeper)
        self._changed.clear()
        names = await znode_reader.read_topic_names(self._zookeeper)
        self._topics_read = await znode_reader.read_topics(self._zookeeper, names, self._topics_read)
        topics = await self._with_ids(self._topics_read)
        partitions = [TopicPartition(t, p) for t, a in topics.items() for p in a.replicas]
        written = await znode_reader.read_written_states(self._zookeeper, partitions)
        leaders = {topic_partition: state.state for topic_partition, state in written.items()}
        returned = {
            topic_partition: frozenset(b for b in state.state.isr if b in brokers and brokers[b].epoch > state.zxid)
            for topic_partition, state in written.items()
        }
        deletions = await znode_reader.read_deletions(self._zookeeper)
        # The states read above include all changes announced so far.
        await znode_reader.take_isr_changes(self._zookeeper)
        await znode_reader.take_log_dir_events(self._zookeeper)
        unclean = self._unclean_topics(topics)
        return Elected(lease.epoch, lease.epoch_version, brokers, topics, leaders, deletions, unclean, returned)

    async def read_states(self, partitions: Iterable[TopicPartition]) -> StatesRead:
        """Read and watch the states of these partitions."""
        return StatesRead(await znode_reader.read_watched_states(self._zookeeper, partitions))

    async def read(self, path: str) -> list[Event]:
        """Return the events for a change at a watched path other than /controller."""
        if path == paths.BROKER_IDS:
            return [BrokersRead(await znode_reader.read_brokers(self._zookeeper))]
        if path == paths.TOPICS:
            names = frozenset(await znode_reader.read_topic_names(self._zookeeper))
            known = self._topics_read.keys()
            return await self._changes([*(names - known), *(known - names)])
        if path == CHANGED_TOPICS:
            changed, self._changed = self._changed, set()
            return await self._changes(changed)
        if path == UNCLEAN_TOPICS:
            return self._unclean_elections()
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
            refusal = reassignments.reason_to_refuse(self._state, topic_partition, replicas)
            if refusal is not None:
                path = paths.REASSIGN_PARTITIONS
                log.warning(
                    "ignoring refused reassignment path=%s partition=%s reason=%s", path, topic_partition, refusal
                )
        # A node without valid requests is deleted too.
        return [ReassignmentsRequested(new, from_znode=True)] if new or not requested else []

    async def _changes(self, names: Iterable[str]) -> list[Event]:
        """Return what has changed in these topics since they were read: their number matters, not that of all
        topics.
        """
        requested = sorted(names)
        if not requested:
            return []
        before = {name: self._topics_read.pop(name) for name in requested if name in self._topics_read}
        found = await znode_reader.read_topics(self._zookeeper, requested, before)
        self._topics_read.update(found)
        removed = frozenset(
            name
            for name, written in before.items()
            if name not in found or found[name].created_zxid != written.created_zxid
        )
        new = {name: written for name, written in found.items() if written is not before.get(name)}
        changed = await self._with_ids(new)
        return [TopicsRead(changed, removed, self._unclean_topics(changed))] if changed or removed else []

    async def _with_ids(self, read: Mapping[str, WrittenTopic]) -> dict[str, znodes.TopicAssignment]:
        """Return the readable topics; those without an id (created before 2.8, or written by hand or older tools) get
        one.

        No ids are assigned while brokers older than 2.8 may be in the cluster (inter.broker.protocol.version).
        """
        topics = {name: written.assignment for name, written in read.items() if written.assignment is not None}
        if not self._has_topic_ids:
            return topics
        for name, assignment in list(topics.items()):
            if assignment.topic_id is None:
                known = self._state.topics.get(name)
                topic_id = known.topic_id if known is not None else None
                with_id = replace(assignment, topic_id=topic_id or self._new_topic_id())
                await self._writer.multi([SetData(paths.topic(name), znodes.encode_topic(with_id))])
                topics[name] = with_id
        return topics

    def _unclean_elections(self) -> list[Event]:
        names, self._configured = self._configured, set()
        topics = self._state.topics.keys() if names is None else names & self._state.topics.keys()
        unclean = self._unclean_topics(topics)
        known = self._state.unclean_topics
        enabled, disabled = unclean - known, known.intersection(topics) - unclean
        return [UncleanTopicsRead(enabled, frozenset(disabled))] if enabled or disabled else []

    def _new_topic_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)


def _partition_of(path: str) -> TopicPartition | None:
    """Return the partition of a state node's path."""
    parts = path.removeprefix(paths.TOPICS + "/").split("/")
    is_state = len(parts) == 4 and parts[1] == "partitions" and parts[2].isdigit()
    return TopicPartition(parts[0], int(parts[2])) if is_state else None

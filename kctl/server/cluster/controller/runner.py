"""Runs the controller: one event queue, one consumer that calls `step` and performs the actions it returns.

A watch event has no data; the consumer reads it when its turn comes, so several changes in a row cost
one read.  An event and everything that follows from it is finished before the next event.

Losing the election is not an error and is not logged.  A write that finds another controller epoch means that another
broker is the controller: this one resigns, clears its state and watches /controller.

Owner: event loop.  Kafka: KafkaController, ControllerEventManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

from kctl.errors import ConnectionLossError, ErrorCode, SessionLostError
from kctl.metrics.definitions import Durations
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import (
    Action,
    AlterStates,
    CompleteRequest,
    Continue,
    DeleteTopicNodes,
    EndDeletionWaits,
    FinishRequestedReassignments,
    LogElection,
    RejectTopicDeletion,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    WatchStates,
    WriteAssignments,
    WriteStates,
)
from kctl.server.cluster.controller.channels import BrokerChannels, Connect, ControlPlane
from kctl.server.cluster.controller.events import (
    ControlledShutdownRequested,
    ElectionRequested,
    Event,
    IsrAlterationsRequested,
    ReassignmentsRequested,
    RebalanceDue,
    Resigned,
    TopicNodesDeleted,
)
from kctl.server.cluster.controller.rules import reassignments
from kctl.server.cluster.controller.state import ControllerState
from kctl.server.cluster.controller.stats import ControllerStats, Work, work_of
from kctl.server.cluster.controller.step import decide, led_with_followers
from kctl.server.cluster.controller.znodes.candidacy import Candidacy, ElectionImpossible
from kctl.server.cluster.controller.znodes.znode_events import (
    CHANGED_TOPICS,
    REQUESTS,
    UNCLEAN_TOPICS,
    TopicNode,
    UncleanTopics,
    ZnodeEvents,
    watched_place,
)
from kctl.server.cluster.controller.znodes.znode_writer import ControllerMoved, ZnodeWriter
from kctl.server.loop.slices import run_steps
from kctl.server.peers.versions import InterBrokerVersions
from kctl.server.znodes.large import encoded_topic
from kctl.system.environment import Clock, Random
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import SetData, WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

_FIRST_REBALANCE_S = 5.0
_PARTITIONS_PER_LINE = 100
_TOPICS_LISTED_PER_S = 10_000
"""Names of topics that are read again because others appear: reading the list for each topic that is created takes
longer the more there are.
"""
_AFTER_FAILURE_S = 1.0
"""Pause after an unexpected failure, so that a repeated one does not use all CPU time."""


class ControllerRunner:
    """Call `start` after the broker is registered, and `close` before the ZooKeeper session ends."""

    def __init__(
        self,
        broker_id: int,
        *,
        zookeeper: ZooKeeper,
        local: ControlPlane,
        connect: Connect,
        versions: InterBrokerVersions,
        listener: str,
        clock: Clock,
        random: Random,
        allows_topic_deletion: bool,
        unclean_topics: UncleanTopics,
        has_topic_ids: bool = True,
        has_features: bool = True,
        deletions_ended: Callable[[Collection[str]], None],
    ) -> None:
        """`deletions_ended` is called with topics that were deleted, or whose deletion another controller continues."""
        self.state = ControllerState(broker_id, allows_topic_deletion=allows_topic_deletion)
        self.stats = ControllerStats()
        self._candidacy = Candidacy(broker_id, zookeeper, clock)
        self._writer = ZnodeWriter(zookeeper)
        self._znodes = ZnodeEvents(
            zookeeper,
            self._writer,
            self.state,
            unclean_topics=unclean_topics,
            random=random,
            has_topic_ids=has_topic_ids,
        )
        self._has_features = has_features
        self._deletions_ended = deletions_ended
        self._clock = clock
        self._inbox: asyncio.Queue[str | TopicPartition | Event | _PendingRequest] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._listed_s = 0.0
        """When the names of all topics were read last."""
        self._listing: asyncio.TimerHandle | None = None
        """Reads them again."""
        self._channels = BrokerChannels(
            broker_id,
            local=local,
            connect=connect,
            versions=versions,
            listener=listener,
            on_response=self._inbox.put_nowait,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *, rebalance_every_ms: int | None = None, imbalance_percentage: int = 0) -> None:
        """Start with an election; `rebalance_every_ms` also starts the periodic preferred leader election."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(), name="controller")]
        if rebalance_every_ms is not None:
            rebalancing = self._rebalance_regularly(rebalance_every_ms, imbalance_percentage)
            self._tasks.append(loop.create_task(rebalancing, name="leader-rebalance"))
        self.notify(paths.CONTROLLER)

    @property
    def queue_size(self) -> int:
        """The number of events that wait."""
        return self._inbox.qsize()

    def channel_queues(self) -> dict[int, tuple[int, Durations]]:
        """Return the number of requests that wait to be sent, and how long requests have waited, by broker."""
        return self._channels.queues()

    async def close(self) -> None:
        """Stop; the end of the session deletes /controller."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listing is not None:
            self._listing.cancel()
        await self._channels.close()
        self.state.is_active = False

    def on_watch(self, event: WatchEvent) -> None:
        """Handle a watch event of the session; watches of other components are ignored."""
        place = watched_place(event.path)
        if isinstance(place, TopicPartition):
            self._inbox.put_nowait(place)
        elif isinstance(place, TopicNode):
            self._znodes.topic_changed(place.name)
            self.notify(CHANGED_TOPICS)
        elif place == paths.TOPICS:
            self._list_topics()
        elif place is not None:
            self.notify(place)

    def topic_created(self, name: str) -> None:
        """Note that this broker has created a topic, which is read before the list of all topics is."""
        if self.state.is_active:
            self._znodes.topic_changed(name)
            self.notify(CHANGED_TOPICS)

    def _list_topics(self) -> None:
        """Queue a read of the names of all topics, later if there are many and they were read a short time ago."""
        loop = asyncio.get_running_loop()
        due_s = self._listed_s + len(self.state.topics) / _TOPICS_LISTED_PER_S
        if self._listing is not None:
            self._listing.cancel()
        self._listing = loop.call_at(max(due_s, loop.time()), self.notify, paths.TOPICS)

    def notify(self, path: str) -> None:
        """Queue a read of what is under `path`; a path that is queued already is read once."""
        if path not in self._waiting:
            self._waiting.add(path)
            self._inbox.put_nowait(path)

    def session_expired(self) -> None:
        """Resign: the session expired, so this broker is no longer the controller."""
        self._inbox.put_nowait(Resigned())

    def run_for_election(self) -> None:
        """Start an election in a new session, in which no watches are set yet."""
        self._waiting.clear()
        self.notify(paths.CONTROLLER)

    async def controlled_shutdown(self, broker_id: int) -> list[TopicPartition]:
        """Move leadership away from the broker; return the partitions with followers that it still leads."""
        await self._request(lambda _: ControlledShutdownRequested(broker_id))
        return led_with_followers(self.state, broker_id)

    async def elect_leaders(
        self, partitions: tuple[TopicPartition, ...] | None, *, is_unclean: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Hold elections for these or all partitions; return NONE for each partition with a new leader."""
        return await self._request(lambda request: ElectionRequested(partitions, is_unclean, request))

    async def reassign(
        self, replicas: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Start reassignments, or cancel where the value is None; return NONE for each that was accepted."""
        return await self._request(lambda request: ReassignmentsRequested(replicas, request))

    async def alter_isrs(self, requested: Mapping[TopicPartition, LeaderAndIsr]) -> Mapping[TopicPartition, ErrorCode]:
        """Write in-sync replicas for their leaders; NONE where `state` has them, {} if this is not the controller."""
        return await self._request(lambda request: IsrAlterationsRequested(requested, request))

    async def write_features(self, levels: Mapping[str, tuple[int, int]], *, epoch: int) -> None:
        """Replace the finalized features, whose present epoch is given.

        Raises BadVersionError if they have another epoch, ControllerMoved, ZooKeeper's errors.
        """
        await self._writer.multi(
            [SetData(paths.FEATURE, znodes.encode_features(znodes.Features(levels=levels)), epoch)]
        )

    def topic_configs_changed(self, topics: Iterable[str] | None) -> None:
        """Note that the configuration of these or all topics changed.

        Their partitions without a leader may now be eligible for an unclean election.
        """
        self._znodes.configs_changed(topics)
        self.notify(UNCLEAN_TOPICS)

    async def _request(self, event: Callable[[_PendingRequest], Event]) -> Mapping[TopicPartition, ErrorCode]:
        """Queue an event and return its outcome; {} if this broker is not the controller."""
        request = _PendingRequest(event)
        self._inbox.put_nowait(request)
        return await request.done

    async def _run(self) -> None:
        while True:
            item = await self._inbox.get()
            started_ms = self._clock.monotonic_ms()
            work = self.stats.current = _work_of(item)
            try:
                if isinstance(item, str):
                    self._waiting.discard(item)
                    await self._read_again(item)
                elif isinstance(item, TopicPartition):
                    await self._feed(await self._znodes.read_states([item]))
                elif isinstance(item, _PendingRequest):
                    await self._feed(item.event())
                else:
                    await self._feed(item)
            except ControllerMoved:
                log.info("resigning as controller broker=%s reason=another_controller", self.state.broker_id)
                await self._feed(Resigned())
                self.notify(paths.CONTROLLER)
            except SessionLostError:
                # The owner of the session is notified too, and restarts this with a new one.
                await self._feed(Resigned())
            except ConnectionLossError as error:
                # Pending writes may or may not have been applied: resign and read everything again when connected.
                log.warning(
                    "resigning as controller, an election follows broker=%s error=%s", self.state.broker_id, error
                )
                await self._resign()
            except ElectionImpossible as error:
                log.error("no election is possible, trying again broker=%s error=%s", self.state.broker_id, error)
                await asyncio.sleep(_AFTER_FAILURE_S)
                self.notify(paths.CONTROLLER)
            except Exception:
                log.exception(
                    "resigning as controller after an unexpected error, an election follows broker=%s",
                    self.state.broker_id,
                )
                await asyncio.sleep(_AFTER_FAILURE_S)
                await self._resign()
            finally:
                self.stats.done(work, self._clock.monotonic_ms() - started_ms)
                if isinstance(item, _PendingRequest):
                    item.complete({})

    async def _read_again(self, path: str) -> None:
        if path == paths.CONTROLLER:
            await self._elect()
        elif self.state.is_active:
            if path == paths.TOPICS:
                self._listed_s = asyncio.get_running_loop().time()
            for event in await self._znodes.read(path):
                await self._feed(event)
        else:
            self._znodes.drop_changes()

    async def _elect(self) -> None:
        """Take part in an election.  Raises ControllerMoved."""
        lease = await self._candidacy.run(is_controller=self.state.is_active)
        if lease is None:
            return
        self._writer.epoch_version = lease.epoch_version
        try:
            await self._writer.set_up_features(are_supported=self._has_features)
        except ValueError as error:
            log.error("ignoring malformed features path=%s error=%s", paths.FEATURE, error)
        await self._feed(await self._znodes.read_all(lease))
        for path in REQUESTS:
            await self._read_again(path)

    async def _resign(self) -> None:
        """Resign; any broker may win the next election, which handles the node this one leaves."""
        await self._feed(Resigned())
        self.notify(paths.CONTROLLER)

    async def _feed(self, event: Event) -> None:
        """Process one event and everything that follows from it."""
        pending: list[Event] = [event]
        while pending:
            for action in await run_steps(decide(self.state, pending.pop(0), self._clock.now_ms()), is_urgent=True):
                # An action for thousands of partitions takes milliseconds: connections are served in between.
                await asyncio.sleep(0)
                result = await self._perform(action)
                if result is not None:
                    pending.append(result)

    async def _perform(self, action: Action) -> Event | None:
        match action:
            case WriteStates():
                self.stats.elected(self.state, action)
                return await self._writer.write_states(action)
            case AlterStates():
                return await self._writer.alter_states(action)
            case SendLeaderAndIsr() | SendUpdateMetadata() | SendStopReplica():
                await self._channels.send(self.state, action)
            case Continue():
                return action.event
            case CompleteRequest():
                if isinstance(action.token, _PendingRequest):
                    action.token.complete(action.outcome)
            case WriteAssignments():
                for topic, assignment in action.topics.items():
                    await self._writer.multi([SetData(paths.topic(topic), await encoded_topic(assignment))])
            case WatchStates():
                return await self._znodes.read_states(action.partitions)
            case FinishRequestedReassignments():
                targets = {
                    tp: reassignments.target_replicas(self.state.topics[tp.topic], tp.partition)
                    for tp in action.remaining
                    if tp.topic in self.state.topics
                }
                await self._writer.finish_requested_reassignments(targets)
            case LogElection():
                await _log_election(action)
            case DeleteTopicNodes():
                await self._writer.delete_topic(action.topic)
                log.info("deleted topic=%s", action.topic)
                return TopicNodesDeleted(action.topic)
            case EndDeletionWaits():
                self._deletions_ended(action.topics)
            case RejectTopicDeletion():
                path = paths.delete_topic(action.topic)
                log.warning(
                    "rejecting topic deletion, the topic is unknown or delete.topic.enable is false path=%s", path
                )
                await self._writer.delete_tree(path)
        return None

    async def _rebalance_regularly(self, interval_ms: int, imbalance_percentage: int) -> None:
        """Queue a preferred leader check at a fixed interval until cancelled."""
        await asyncio.sleep(_FIRST_REBALANCE_S)
        while True:
            self._inbox.put_nowait(RebalanceDue(imbalance_percentage))
            await asyncio.sleep(interval_ms / 1000)


def _work_of(item: str | TopicPartition | Event | _PendingRequest) -> Work:
    if isinstance(item, TopicPartition):
        return Work.ISR_CHANGE
    return work_of(item.event() if isinstance(item, _PendingRequest) else item)


async def _log_election(election: LogElection) -> None:
    """Log elected and refused partitions, at most a hundred per line."""
    kind = "unclean" if election.is_unclean else "preferred"
    message = "leader election trigger=%s type=%s count=%d partitions=%s"
    for some in _hundreds(map(str, election.elected)):
        log.info(message, election.trigger, kind, len(election.elected), some)
        await asyncio.sleep(0)
    message = "leader election refused trigger=%s type=%s count=%d partitions=%s"
    for some in _hundreds(f"{tp}:{error.name}" for tp, error in election.refused.items()):
        log.warning(message, election.trigger, kind, len(election.refused), some)
        await asyncio.sleep(0)


def _hundreds(texts: Iterable[str]) -> Iterator[str]:
    remaining = iter(texts)
    while some := ",".join(islice(remaining, _PARTITIONS_PER_LINE)):
        yield some


class _PendingRequest:
    """A pending request, used as the token of its event."""

    def __init__(self, event: Callable[[_PendingRequest], Event]) -> None:
        self.done: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        self._event = event

    def event(self) -> Event:
        """Return the event, which refers to this request; the request does not refer to it, so that no cycle is
        left.
        """
        return self._event(self)

    def complete(self, outcome: Mapping[TopicPartition, ErrorCode]) -> None:
        """Complete the request; only the first call has an effect."""
        if not self.done.done():
            self.done.set_result(outcome)

"""Runs the controller: one queue of what happens, one consumer, and `step` in between, whose actions it performs.

A watch only says that something changed; the consumer reads it again when its turn comes, so several changes in a row
cost one reading.  One event and everything that follows from it is done before the next.

Losing the election is normal and silent.  Any write that finds another controller epoch means that another broker took
over: this one resigns, forgets everything and watches /controller again.

Owner: event loop.  Kafka: KafkaController, ControllerEventManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping

from kctl.environment import Clock, Random
from kctl.errors import ConnectionLossError, ErrorCode, SessionLostError
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.controller import reassignment_rules
from kctl.server.controller.actions import (
    Action,
    AlterStates,
    Answer,
    Continue,
    DeleteTopicNodes,
    DropDeletion,
    FinishRequestedReassignments,
    LogElection,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    WatchStates,
    WriteAssignments,
    WriteStates,
)
from kctl.server.controller.broker_channels import BrokerChannels, Connect, ControlPlane
from kctl.server.controller.candidacy import Candidacy
from kctl.server.controller.events import (
    ControlledShutdownAsked,
    ElectionAsked,
    Event,
    IsrAlterationsAsked,
    ReassignmentsAsked,
    RebalanceDue,
    Resigned,
)
from kctl.server.controller.state import ControllerState
from kctl.server.controller.step import led_with_followers, step
from kctl.server.controller.znode_events import REQUESTS, UncleanTopics, ZnodeEvents, watched_place
from kctl.server.controller.znode_writer import ControllerMoved, ZnodeWriter
from kctl.server.inter_broker import InterBrokerVersions
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import SetData, WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

_FIRST_REBALANCE_S = 5.0
_PARTITIONS_PER_LINE = 100
_AFTER_FAILURE_S = 1.0
"""Keeps what fails again and again from being all that is done."""


class ControllerRunner:
    """`start` after the broker is registered; `close` before the ZooKeeper session ends."""

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
    ) -> None:
        self.state = ControllerState(broker_id, allows_topic_deletion=allows_topic_deletion)
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
        self._clock = clock
        self._inbox: asyncio.Queue[str | TopicPartition | Event | _Ask] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._channels = BrokerChannels(
            broker_id,
            local=local,
            connect=connect,
            versions=versions,
            listener=listener,
            on_answer=self._inbox.put_nowait,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *, rebalance_every_ms: int | None = None, imbalance_percentage: int = 0) -> None:
        """Begins with an election; looks for leaders astray regularly if asked to."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(), name="controller")]
        if rebalance_every_ms is not None:
            rebalancing = self._rebalance_regularly(rebalance_every_ms, imbalance_percentage)
            self._tasks.append(loop.create_task(rebalancing, name="leader-rebalance"))
        self.notify(paths.CONTROLLER)

    async def close(self) -> None:
        """Stops; the session's end releases /controller."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channels.close()
        self.state.is_active = False

    def on_watch(self, event: WatchEvent) -> None:
        """A watch of the session fired; those of others are ignored."""
        place = watched_place(event.path)
        if isinstance(place, TopicPartition):
            self._inbox.put_nowait(place)
        elif place is not None:
            self.notify(place)

    def notify(self, path: str) -> None:
        """What is under `path` has to be read again; said twice before that happens, it is read once."""
        if path not in self._waiting:
            self._waiting.add(path)
            self._inbox.put_nowait(path)

    def session_expired(self) -> None:
        """The session is gone, and with it everything that this broker held as controller."""
        self._inbox.put_nowait(Resigned())

    def run_for_election(self) -> None:
        """There is a new session: nothing was watched in it yet."""
        self._waiting.clear()
        self.notify(paths.CONTROLLER)

    async def controlled_shutdown(self, broker_id: int) -> list[TopicPartition]:
        """Moves leadership away from the broker; answers the partitions that it still leads though others could."""
        await self._ask(lambda _: ControlledShutdownAsked(broker_id))
        return led_with_followers(self.state, broker_id)

    async def elect_leaders(
        self, partitions: tuple[TopicPartition, ...] | None, *, is_unclean: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Holds elections for these or all partitions; NONE where one was held."""
        return await self._ask(lambda ask: ElectionAsked(partitions, is_unclean, ask))

    async def reassign(
        self, replicas: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Begins reassignments, or cancels where None is given; NONE where one was begun."""
        return await self._ask(lambda ask: ReassignmentsAsked(replicas, ask))

    async def alter_isrs(self, wanted: Mapping[TopicPartition, LeaderAndIsr]) -> Mapping[TopicPartition, ErrorCode]:
        """Writes in-sync replicas as their leader wants them; NONE where `state` has them, {} when not controller."""
        return await self._ask(lambda ask: IsrAlterationsAsked(wanted, ask))

    def unclean_election_changed(self) -> None:
        """The configuration of a topic changed: leaderless partitions may get a leader now."""
        self.notify(paths.TOPICS)

    async def _ask(self, event: Callable[[_Ask], Event]) -> Mapping[TopicPartition, ErrorCode]:
        """The outcome of an event that answers to the ask; {} when it does not, as one that is not the controller."""
        ask = _Ask(event)
        self._inbox.put_nowait(ask)
        return await ask.done

    async def _run(self) -> None:
        while True:
            item = await self._inbox.get()
            try:
                if isinstance(item, str):
                    self._waiting.discard(item)
                    await self._read_again(item)
                elif isinstance(item, TopicPartition):
                    await self._feed(await self._znodes.read_states([item]))
                elif isinstance(item, _Ask):
                    await self._feed(item.event)
                else:
                    await self._feed(item)
            except ControllerMoved:
                log.info("another broker is the controller; resigning")
                await self._feed(Resigned())
                self.notify(paths.CONTROLLER)
            except SessionLostError:
                # The owner of the session hears of it too, and starts this over with a new one.
                await self._feed(Resigned())
            except ConnectionLossError as error:
                # What was under way may have happened or not: a fresh mind reads it again, once there is a connection.
                log.warning("the controller could not finish an event; resigning: %s", error)
                await self._start_afresh()
            except Exception:
                log.exception("the controller could not finish an event; resigning")
                await asyncio.sleep(_AFTER_FAILURE_S)
                await self._start_afresh()
            finally:
                if isinstance(item, _Ask):
                    item.answer({})

    async def _read_again(self, path: str) -> None:
        if path == paths.CONTROLLER:
            await self._elect()
        elif self.state.is_active:
            for event in await self._znodes.read(path):
                await self._feed(event)

    async def _elect(self) -> None:
        """Raises ControllerMoved."""
        office = await self._candidacy.run(holds_office=self.state.is_active)
        if office is None:
            return
        self._writer.epoch_version = office.epoch_version
        await self._feed(await self._znodes.read_all(office))
        for path in REQUESTS:
            await self._read_again(path)

    async def _start_afresh(self) -> None:
        """Gives the office up; the next election finds what is left of it, and anybody may win."""
        await self._feed(Resigned())
        self.notify(paths.CONTROLLER)

    async def _feed(self, event: Event) -> None:
        """One event and everything that follows from it, before the next."""
        pending: list[Event] = [event]
        while pending:
            for action in step(self.state, pending.pop(0), self._clock.now_ms()):
                result = await self._perform(action)
                if result is not None:
                    pending.append(result)

    async def _perform(self, action: Action) -> Event | None:
        match action:
            case WriteStates():
                return await self._writer.write_states(action)
            case AlterStates():
                return await self._writer.alter_states(action)
            case SendLeaderAndIsr() | SendUpdateMetadata() | SendStopReplica():
                self._channels.send(self.state, action)
            case Continue():
                return action.event
            case Answer():
                if isinstance(action.token, _Ask):
                    action.token.answer(action.outcome)
            case WriteAssignments():
                for topic, assignment in action.topics.items():
                    await self._writer.multi([SetData(paths.topic(topic), znodes.encode_topic(assignment))])
            case WatchStates():
                return await self._znodes.read_states(action.partitions)
            case FinishRequestedReassignments():
                targets = {
                    tp: reassignment_rules.target_replicas(self.state.topics[tp.topic], tp.partition)
                    for tp in action.remaining
                    if tp.topic in self.state.topics
                }
                await self._writer.finish_requested_reassignments(targets)
            case LogElection():
                _log_election(action)
            case DeleteTopicNodes():
                await self._writer.delete_topic(action.topic)
                log.info("deleted topic=%s", action.topic)
            case DropDeletion():
                path = paths.delete_topic(action.topic)
                log.warning("removing %s: the topic is unknown, or delete.topic.enable is false", path)
                await self._writer.delete_tree(paths.delete_topic(action.topic))
        return None

    async def _rebalance_regularly(self, interval_ms: int, imbalance_percentage: int) -> None:
        """Looks for leaders astray as long as this broker lives; the queue decides when."""
        await asyncio.sleep(_FIRST_REBALANCE_S)
        while True:
            self._inbox.put_nowait(RebalanceDue(imbalance_percentage))
            await asyncio.sleep(interval_ms / 1000)


def _log_election(election: LogElection) -> None:
    """Says whose leaders were elected, in lines of at most a hundred partitions."""
    kind = "unclean" if election.is_unclean else "preferred"
    message = "event=leader_election trigger=%s type=%s count=%d partitions=%s"
    for some in _hundreds([str(topic_partition) for topic_partition in election.elected]):
        log.info(message, election.trigger, kind, len(election.elected), some)
    message = "event=leader_election_refused trigger=%s type=%s count=%d partitions=%s"
    for some in _hundreds([f"{tp}:{error.name}" for tp, error in election.refused.items()]):
        log.warning(message, election.trigger, kind, len(election.refused), some)


def _hundreds(texts: list[str]) -> Iterator[str]:
    for start in range(0, len(texts), _PARTITIONS_PER_LINE):
        yield ",".join(texts[start : start + _PARTITIONS_PER_LINE])


class _Ask:
    """A wish with somebody who waits for its outcome; it is the token of its event."""

    def __init__(self, event: Callable[[_Ask], Event]) -> None:
        self.done: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        self.event = event(self)

    def answer(self, outcome: Mapping[TopicPartition, ErrorCode]) -> None:
        """The first answer counts."""
        if not self.done.done():
            self.done.set_result(outcome)

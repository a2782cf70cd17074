"""Runs the controller: election, watches, the queue of events, and what `step` wants done.

One queue, one consumer.  A watch only says that something changed; the consumer reads it again, with a new watch, when
its turn comes, so several changes in a row cost one reading.

Losing the election is normal and silent.  Any write that finds another controller epoch means that another broker took
over: this one resigns, forgets everything and watches /controller again.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from kctl.environment import Clock, Random
from kctl.errors import BadVersionError, ConnectionLossError, ErrorCode, NodeExistsError, NoNodeError, SessionLostError
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.controller import reassignment, znode_reader
from kctl.server.controller.actions import (
    Action,
    AlterStates,
    Answer,
    Continue,
    DeleteTopicNodes,
    DropDeletion,
    FinishRequestedReassignments,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    WatchStates,
    WriteAssignments,
    WriteStates,
)
from kctl.server.controller.broker_channels import BrokerChannels, Connect, ControlPlane
from kctl.server.controller.events import (
    BrokersRead,
    ControlledShutdownAsked,
    DeletionsRead,
    Elected,
    ElectionAsked,
    Event,
    IsrAlterationsAsked,
    LogDirFailed,
    ReassignmentsAsked,
    RebalanceDue,
    Resigned,
    StatesRead,
    TopicsRead,
)
from kctl.server.controller.state import ControllerState
from kctl.server.controller.step import led_with_followers, step
from kctl.server.controller.znode_writer import ControllerMoved, ZnodeWriter
from kctl.server.inter_broker import InterBrokerVersions
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import Create, SetData, WatchEvent, ZnodeStat, ZooKeeper

log = logging.getLogger(__name__)

UncleanTopics = Callable[[Iterable[str]], frozenset[str]]

_FIRST_REBALANCE_S = 5.0
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
    ) -> None:
        self.state = ControllerState(broker_id, allows_topic_deletion=allows_topic_deletion)
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._writer = ZnodeWriter(zookeeper)
        self._clock = clock
        self._random = random
        self._unclean_topics = unclean_topics
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
        path = event.path
        if path.endswith(_STATE):
            if (topic_partition := _partition_of(path)) is not None:
                self._inbox.put_nowait(topic_partition)
            return
        if path.startswith(paths.BROKER_IDS):
            path = paths.BROKER_IDS
        elif path.startswith(paths.TOPICS):
            path = paths.TOPICS
        if path in _WATCHED:
            self.notify(path)

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
        await self._ask(ControlledShutdownAsked(broker_id))
        return led_with_followers(self.state, broker_id)

    async def elect_leaders(
        self, partitions: tuple[TopicPartition, ...] | None, *, is_unclean: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Holds elections for these or all partitions; NONE where one was held."""
        ask = _Ask(asyncio.get_running_loop().create_future())
        ask.event = ElectionAsked(partitions, is_unclean, ask)
        return await self._wait(ask)

    async def reassign(
        self, replicas: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Begins reassignments, or cancels where None is given; NONE where one was begun."""
        ask = _Ask(asyncio.get_running_loop().create_future())
        ask.event = ReassignmentsAsked(replicas, ask)
        return await self._wait(ask)

    async def alter_isrs(self, wanted: Mapping[TopicPartition, LeaderAndIsr]) -> Mapping[TopicPartition, ErrorCode]:
        """Writes in-sync replicas as their leader wants them; NONE where `state` has them, {} when not controller."""
        ask = _Ask(asyncio.get_running_loop().create_future())
        ask.event = IsrAlterationsAsked(wanted, ask)
        return await self._wait(ask)

    def unclean_election_changed(self) -> None:
        """The configuration of a topic changed: leaderless partitions may get a leader now."""
        self.notify(paths.TOPICS)

    async def _ask(self, event: Event) -> None:
        ask = _Ask(asyncio.get_running_loop().create_future())
        ask.event = event
        await self._wait(ask)

    async def _wait(self, ask: _Ask) -> Mapping[TopicPartition, ErrorCode]:
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
                    await self._feed(StatesRead(await znode_reader.read_watched_states(self._zookeeper, [item])))
                elif isinstance(item, _Ask):
                    assert item.event is not None
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
        elif not self.state.is_active:
            return
        elif path == paths.BROKER_IDS:
            await self._feed(BrokersRead(await znode_reader.read_brokers(self._zookeeper)))
        elif path == paths.TOPICS:
            topics, unreadable = await self._topics()
            await self._feed(TopicsRead(topics, self._unclean_topics(topics), unreadable))
        elif path == paths.DELETE_TOPICS:
            await self._feed(DeletionsRead(await znode_reader.read_deletions(self._zookeeper)))
        elif path == paths.ISR_CHANGE_NOTIFICATIONS:
            await self._feed(StatesRead(await znode_reader.take_isr_changes(self._zookeeper)))
        elif path == paths.LOG_DIR_EVENT_NOTIFICATIONS:
            for broker_id in sorted(await znode_reader.take_log_dir_events(self._zookeeper)):
                await self._feed(LogDirFailed(broker_id))
        elif path == paths.REASSIGN_PARTITIONS:
            wanted = await znode_reader.read_reassignments(self._zookeeper)
            new = {tp: r for tp, r in wanted.items() if tp not in self.state.requested_reassignments}
            for topic_partition, replicas in new.items():
                refusal = reassignment.refusal(self.state, topic_partition, replicas)
                if refusal is not None:
                    log.warning("refusing what %s wants of %s: %s", path, topic_partition, refusal)
            if new:
                await self._feed(ReassignmentsAsked(new, from_znode=True))
        elif path == paths.PREFERRED_REPLICA_ELECTION:
            partitions = await znode_reader.take_preferred_elections(self._zookeeper)
            if partitions:
                await self._feed(ElectionAsked(partitions, is_unclean=False))

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
                return StatesRead(await znode_reader.read_watched_states(self._zookeeper, action.partitions))
            case FinishRequestedReassignments():
                targets = {
                    tp: reassignment.target_replicas(self.state.topics[tp.topic], tp.partition)
                    for tp in action.remaining
                    if tp.topic in self.state.topics
                }
                await self._writer.finish_requested_reassignments(targets)
            case DeleteTopicNodes():
                await self._writer.delete_topic(action.topic)
                log.info("deleted topic=%s", action.topic)
            case DropDeletion():
                log.info("topic %s cannot be deleted: unknown, or delete.topic.enable is false", action.topic)
                await self._writer.delete_tree(paths.delete_topic(action.topic))
        return None

    async def _elect(self) -> None:
        """Looks who is controller, and runs for it when nobody is.  Raises ControllerMoved when it is not this one."""
        path = paths.CONTROLLER
        while True:
            try:
                data, stat = await self._zookeeper.get(path, watch=True)
            except NoNodeError:
                if await self._try_election():
                    await self._fail_over()
                    return
                continue
            winner = _named_in(data)
            is_mine = stat.ephemeral_owner == self._zookeeper.session_id
            if self.state.is_active:
                if is_mine and winner == self._broker_id:
                    return
                raise ControllerMoved
            if not is_mine:
                if not stat.ephemeral_owner:
                    log.error("znode %s is not of any session: nobody is controller until it is deleted", path)
                return
            # Of an election whose answer got lost, of an office given up, or written over by somebody.
            log.info("making %s anew, which named broker=%s", path, winner)
            with contextlib.suppress(NoNodeError, BadVersionError):
                await self._zookeeper.delete(path, version=stat.version)

    async def _try_election(self) -> bool:
        epoch, stat = await self._controller_epoch()
        claim = znodes.Controller(self._broker_id, self._clock.now_ms())
        try:
            _, written = await self._zookeeper.multi(
                [
                    Create(paths.CONTROLLER, znodes.encode_controller(claim), ephemeral=True),
                    SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), stat.version),
                ]
            )
        except (NodeExistsError, BadVersionError):
            return False
        assert isinstance(written, ZnodeStat)
        self.state.epoch, self.state.epoch_version = epoch + 1, written.version
        self._writer.epoch_version = written.version
        log.info("elected as controller epoch=%s", epoch + 1)
        # The watch that tells when the node is taken away.
        await self._zookeeper.get(paths.CONTROLLER, watch=True)
        return True

    async def _controller_epoch(self) -> tuple[int, ZnodeStat]:
        while True:
            try:
                data, stat = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
                return znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, data), stat
            except NoNodeError:
                try:
                    await self._zookeeper.create(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
                except NodeExistsError:
                    continue

    async def _fail_over(self) -> None:
        epoch, epoch_version = self.state.epoch, self.state.epoch_version
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
        # What was announced so far is in what was read.
        await znode_reader.take_isr_changes(self._zookeeper)
        await znode_reader.take_log_dir_events(self._zookeeper)
        await self._feed(
            Elected(epoch, epoch_version, brokers, topics, leaders, deletions, self._unclean_topics(topics), returned)
        )

        for path in (paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION):
            await self._read_again(path)

    async def _rebalance_regularly(self, interval_ms: int, imbalance_percentage: int) -> None:
        """Looks for leaders astray as long as this broker lives; the queue decides when."""
        await asyncio.sleep(_FIRST_REBALANCE_S)
        while True:
            self._inbox.put_nowait(RebalanceDue(imbalance_percentage))
            await asyncio.sleep(interval_ms / 1000)

    async def _topics(self) -> tuple[dict[str, znodes.TopicAssignment], frozenset[str]]:
        """All topics, and those that cannot be read; who has no id, made before 2.8 or by hand, gets one."""
        topics, unreadable = await znode_reader.read_topics(self._zookeeper)
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


_WATCHED = frozenset(
    {
        paths.CONTROLLER,
        paths.BROKER_IDS,
        paths.TOPICS,
        paths.DELETE_TOPICS,
        paths.ISR_CHANGE_NOTIFICATIONS,
        paths.LOG_DIR_EVENT_NOTIFICATIONS,
        paths.REASSIGN_PARTITIONS,
        paths.PREFERRED_REPLICA_ELECTION,
    }
)
_STATE = "/state"


def _named_in(data: bytes) -> int | None:
    """The broker that /controller names; None, with a log line, when it makes no sense."""
    try:
        return znodes.decode_controller(paths.CONTROLLER, data).broker_id
    except ValueError as error:
        log.error("somebody wrote over the controller's name: %s", error)
        return None


def _partition_of(path: str) -> TopicPartition | None:
    """The partition of a state node's path."""
    parts = path.removeprefix(paths.TOPICS + "/").split("/")
    is_state = len(parts) == 4 and parts[1] == "partitions" and parts[2].isdigit()
    return TopicPartition(parts[0], int(parts[2])) if is_state else None


class _Ask:
    """A wish with somebody who waits for its outcome."""

    def __init__(self, done: asyncio.Future[Mapping[TopicPartition, ErrorCode]]) -> None:
        self.done = done
        self.event: Event | None = None

    def answer(self, outcome: Mapping[TopicPartition, ErrorCode]) -> None:
        """The first answer counts."""
        if not self.done.done():
            self.done.set_result(outcome)

"""Runs the controller: election, watches, the queue of events, and what `step` wants done.

One queue, one consumer.  A watch only says that something changed; the consumer reads it again, with a new watch, when
its turn comes, so several changes in a row cost one reading.

Losing the election is normal and silent.  Any write that finds another controller epoch means that another broker took
over: this one resigns, forgets everything and watches /controller again.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from uuid import UUID

from kctl.environment import Clock, Random
from kctl.errors import BadVersionError, NodeExistsError, NoNodeError, SessionLostError, ZooKeeperError
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.controller import znode_reader
from kctl.server.controller.actions import (
    Action,
    Continue,
    DeleteTopicNodes,
    DropDeletion,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    WriteStates,
)
from kctl.server.controller.broker_channels import BrokerChannels, Connect, ControlPlane
from kctl.server.controller.events import (
    BrokersRead,
    ControlledShutdownAsked,
    DeletionsRead,
    Elected,
    Event,
    Resigned,
    StatesWritten,
    TopicsRead,
)
from kctl.server.controller.state import ControllerState
from kctl.server.controller.step import led_with_followers, step
from kctl.server.inter_broker import InterBrokerVersions
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import Check, Create, Delete, Operation, SetData, WatchEvent, ZnodeStat, ZooKeeper

log = logging.getLogger(__name__)

_OPERATIONS_PER_MULTI = 400
"""Keeps a multi well below ZooKeeper's frame limit of 1 MiB."""

UncleanTopics = Callable[[Iterable[str]], frozenset[str]]


class ControllerMoved(Exception):  # noqa: N818 - an outcome
    """Another broker is the controller now."""


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
        self._clock = clock
        self._random = random
        self._unclean_topics = unclean_topics
        self._inbox: asyncio.Queue[str | Event | tuple[ControlledShutdownAsked, asyncio.Future[list[TopicPartition]]]]
        self._inbox = asyncio.Queue()
        self._waiting: set[str] = set()
        self._channels = BrokerChannels(
            broker_id,
            local=local,
            connect=connect,
            versions=versions,
            listener=listener,
            on_answer=self._inbox.put_nowait,
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins with an election."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller")
        self.notify(paths.CONTROLLER)

    async def close(self) -> None:
        """Stops; the session's end releases /controller."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._channels.close()
        self.state.is_active = False

    def on_watch(self, event: WatchEvent) -> None:
        """A watch of the session fired; those of others are ignored."""
        path = event.path
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
        done: asyncio.Future[list[TopicPartition]] = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait((ControlledShutdownAsked(broker_id), done))
        return await done

    async def _run(self) -> None:
        while True:
            item = await self._inbox.get()
            try:
                if isinstance(item, str):
                    self._waiting.discard(item)
                    await self._read_again(item)
                elif isinstance(item, tuple):
                    event, done = item
                    await self._feed(event)
                    if not done.done():
                        done.set_result(led_with_followers(self.state, event.broker_id))
                else:
                    await self._feed(item)
            except ControllerMoved:
                log.info("another broker is the controller; resigning")
                await self._feed(Resigned())
                self.notify(paths.CONTROLLER)
            except SessionLostError:
                # The owner of the session hears of it too, and starts this over with a new one.
                await self._feed(Resigned())
            except ZooKeeperError:
                log.exception("the controller could not finish an event; resigning")
                await self._feed(Resigned())

    async def _read_again(self, path: str) -> None:
        if path == paths.CONTROLLER:
            await self._elect()
        elif not self.state.is_active:
            return
        elif path == paths.BROKER_IDS:
            await self._feed(BrokersRead(await znode_reader.read_brokers(self._zookeeper)))
        elif path == paths.TOPICS:
            topics = await self._topics()
            await self._feed(TopicsRead(topics, self._unclean_topics(topics)))
        elif path == paths.DELETE_TOPICS:
            await self._feed(DeletionsRead(await znode_reader.read_deletions(self._zookeeper)))

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
                return await self._write_states(action)
            case SendLeaderAndIsr() | SendUpdateMetadata() | SendStopReplica():
                self._channels.send(self.state, action)
            case Continue():
                return action.event
            case DeleteTopicNodes():
                await self._delete_topic(action.topic)
            case DropDeletion():
                log.info("topic %s cannot be deleted: unknown, or delete.topic.enable is false", action.topic)
                await self._multi([Delete(paths.delete_topic(action.topic))])
        return None

    async def _elect(self) -> None:
        while True:
            try:
                data, stat = await self._zookeeper.get(paths.CONTROLLER, watch=True)
            except NoNodeError:
                if await self._try_election():
                    await self._fail_over()
                    return
                continue
            controller = znodes.decode_controller(paths.CONTROLLER, data)
            is_mine = controller.broker_id == self._broker_id and stat.ephemeral_owner == self._zookeeper.session_id
            if self.state.is_active and not is_mine:
                raise ControllerMoved
            return

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
        topics = await self._topics()
        partitions = [TopicPartition(t, p) for t, a in topics.items() for p in a.replicas]
        leaders = await znode_reader.read_leaders(self._zookeeper, partitions)
        deletions = await znode_reader.read_deletions(self._zookeeper)
        await self._feed(
            Elected(epoch, epoch_version, brokers, topics, leaders, deletions, self._unclean_topics(topics))
        )

    async def _topics(self) -> dict[str, znodes.TopicAssignment]:
        """All topics; those without an id, made by brokers before 2.8 or by hand, get one."""
        topics = await znode_reader.read_topics(self._zookeeper)
        for name, assignment in list(topics.items()):
            if assignment.topic_id is None:
                with_id = znodes.TopicAssignment(
                    assignment.replicas, self._new_topic_id(), assignment.adding_replicas, assignment.removing_replicas
                )
                await self._multi([SetData(paths.topic(name), znodes.encode_topic(with_id))])
                topics[name] = with_id
        return topics

    def _new_topic_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    async def _write_states(self, action: WriteStates) -> StatesWritten:
        written: dict[TopicPartition, LeaderAndIsr] = {}
        conflicts: dict[TopicPartition, LeaderAndIsr] = {}
        topics: dict[str, list[TopicPartition]] = {}
        for topic_partition in action.created:
            topics.setdefault(topic_partition.topic, []).append(topic_partition)
        for topic, partitions in topics.items():
            await self._make_parents(topic, partitions)
            for topic_partition, current in await self._create_states(action, partitions):
                (written if current is action.created[topic_partition] else conflicts)[topic_partition] = current
        for topic_partition, wanted in action.changed.items():
            is_written, current = await self._change_state(topic_partition, wanted)
            (written if is_written else conflicts)[topic_partition] = current
        return StatesWritten(written, conflicts)

    async def _make_parents(self, topic: str, partitions: list[TopicPartition]) -> None:
        parents = [paths.topic_partitions(topic), *(paths.partition(topic, tp.partition) for tp in partitions)]
        try:
            for start in range(0, len(parents), _OPERATIONS_PER_MULTI):
                await self._multi([Create(p, None) for p in parents[start : start + _OPERATIONS_PER_MULTI]])
        except NodeExistsError:
            # Some are there already: a new partition of an old topic, or a controller that did not get further.
            for path in parents:
                try:
                    await self._multi([Create(path, None)])
                except NodeExistsError:
                    continue

    async def _create_states(
        self, action: WriteStates, partitions: list[TopicPartition]
    ) -> list[tuple[TopicPartition, LeaderAndIsr]]:
        outcome: list[tuple[TopicPartition, LeaderAndIsr]] = []
        for start in range(0, len(partitions), _OPERATIONS_PER_MULTI):
            some = partitions[start : start + _OPERATIONS_PER_MULTI]
            creates: list[Operation] = [
                Create(paths.partition_state(*tp), znodes.encode_partition_state(action.created[tp])) for tp in some
            ]
            try:
                await self._multi(creates)
                outcome += [(tp, action.created[tp]) for tp in some]
            except NodeExistsError:
                for topic_partition, create in zip(some, creates, strict=True):
                    outcome.append((topic_partition, await self._create_state(action, topic_partition, create)))
        return outcome

    async def _create_state(
        self, action: WriteStates, topic_partition: TopicPartition, create: Operation
    ) -> LeaderAndIsr:
        try:
            await self._multi([create])
        except NodeExistsError:
            return await self._current_state(topic_partition)
        return action.created[topic_partition]

    async def _change_state(self, topic_partition: TopicPartition, wanted: LeaderAndIsr) -> tuple[bool, LeaderAndIsr]:
        path = paths.partition_state(*topic_partition)
        try:
            (stat,) = await self._multi([SetData(path, znodes.encode_partition_state(wanted), wanted.partition_epoch)])
        except BadVersionError:
            return False, await self._current_state(topic_partition)
        assert isinstance(stat, ZnodeStat)
        return True, LeaderAndIsr(
            wanted.leader, wanted.leader_epoch, wanted.isr, wanted.controller_epoch, partition_epoch=stat.version
        )

    async def _current_state(self, topic_partition: TopicPartition) -> LeaderAndIsr:
        path = paths.partition_state(*topic_partition)
        data, stat = await self._zookeeper.get(path)
        return znodes.decode_partition_state(path, data, stat.version)

    async def _delete_topic(self, topic: str) -> None:
        log.info("deleted topic=%s", topic)
        for root in (paths.topic(topic), paths.topic_config(topic), paths.delete_topic(topic)):
            doomed = await self._tree(root)
            for start in range(0, len(doomed), _OPERATIONS_PER_MULTI):
                await self._multi([Delete(path) for path in doomed[start : start + _OPERATIONS_PER_MULTI]])

    async def _tree(self, root: str) -> list[str]:
        """The node and all below it, children before parents; empty when it does not exist."""
        try:
            names = await self._zookeeper.children(root)
        except NoNodeError:
            return []
        return [path for name in names for path in await self._tree(f"{root}/{name}")] + [root]

    async def _multi(self, operations: list[Operation]) -> list[str | ZnodeStat | bool]:
        """A write that only the current controller may do.  Raises ControllerMoved, or what an operation raises."""
        check = Check(paths.CONTROLLER_EPOCH, self.state.epoch_version)
        try:
            return (await self._zookeeper.multi([check, *operations]))[1:]
        except BadVersionError as error:
            if error.path == paths.CONTROLLER_EPOCH:
                raise ControllerMoved from error
            raise


_WATCHED = frozenset({paths.CONTROLLER, paths.BROKER_IDS, paths.TOPICS, paths.DELETE_TOPICS})

"""Runs groups: passes events to `step` and performs its actions: responses, timers, appends.

Each event is a step of the group's state machine; an immediate result of an action (an append that is complete) is
processed before any other event of the group, and a later result (a timer, a high watermark) is an event of its own.
A large group has steps that take several turns of the loop; meanwhile its other events wait.

Invariants: a group changes only here, by `step`; there is one timer per key; a discarded group has no timers and is
not in the table any more; a refused request creates no group.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any, assert_never, cast
from uuid import UUID

from kctl.errors import ErrorCode, KctlError
from kctl.limits import GROUP_MEMBERS_PER_STEP_MAX, REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.model import GROUP_METADATA_TOPIC, TopicPartition
from kctl.server.coordination.consumer_groups.requests import HeartbeatRequest
from kctl.server.coordination.consumer_groups.topic_names import find_topics
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    DeleteStates,
    Discard,
    ForgetTransaction,
    GroupCounts,
    GroupState,
    GroupType,
    InitializeStates,
    PersistGroup,
    PersistNewerGroup,
    PersistOffsets,
    PersistTombstones,
    Removals,
    Repeat,
    ResolveRegexes,
    Respond,
    ScheduleTimer,
)
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import (
    AppendDone,
    Continue,
    Event,
    ExpireOffsets,
    ForgetTopics,
    GroupLoaded,
    Now,
    RegexesResolved,
    TimerFired,
    TimerKey,
    TransactionCompleted,
    Unload,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.offsets import OpenTransactions, TransactionEnd
from kctl.server.coordination.groups.offsets_writer import OffsetsWriter
from kctl.server.coordination.groups.records import GroupPlayback
from kctl.server.coordination.groups.step import step
from kctl.server.coordination.hosted import HostedObjects, Turns, taken, visit_all
from kctl.server.coordination.newer_groups import ClusterTopics, NoTopics
from kctl.server.coordination.partitions import LedPartition, play_back
from kctl.server.coordination.ports import AppendOutcome, CoordinatorLog, outcome_of
from kctl.server.coordination.replies import ParkedCall
from kctl.server.coordination.share_groups.group import NamedPartitions
from kctl.server.coordination.share_groups.ports import GroupShareStates, NoShareStates, share_keys
from kctl.server.coordination.share_groups.requests import ShareHeartbeat, StatesInitialized
from kctl.server.coordination.streams_groups.requests import StreamsHeartbeat
from kctl.server.loop.slices import run_steps, sliced_batches
from kctl.server.share_partitions.values import NO_OFFSET
from kctl.system.environment import Clock, Timer, TimerTask

log = logging.getLogger(__name__)

GROUPS_PER_TURN = 50
"""The number of groups to restore, or to check for expiry, before requests are served again."""
_STEPS_PER_GROUP = 20
"""The number of steps of a load without a group that take as long as one with a group."""
_BATCH = 4
"""The number of groups whose check takes as long as writing a batch and logging it."""
EVENTS_PER_TURN = 100
"""The number of events of a busy group that are processed before other requests are served."""
REPLIES_PER_TURN = 100
"""The number of waiting members that get their responses before other requests are served: some milliseconds."""
_OFFSETS_PER_GROUP = REQUEST_ELEMENTS_PER_SLICE_MAX // GROUPS_PER_TURN
"""The number of offsets whose check takes as long as that of a group."""


_EVENTS_OF_ALL = (ExpireOffsets, ForgetTopics)
"""Events of every group, each of which has one line in the log for all groups."""


class HostedGroup:
    """A group, its partition, and its running timers."""

    __slots__ = ("counted_bytes", "due", "group", "is_unloaded", "partition", "record", "timers", "waiting")

    def __init__(self, group: Group, partition: LedPartition[HostedGroup]) -> None:
        self.group = group
        self.partition = partition
        self.timers: dict[TimerKey, TimerTask] = {}
        self.counted_bytes = 0
        """Its part of GroupRunner.metadata_bytes."""
        self.due: tuple[Event, ...] = ()
        """Events that have happened and come before the next one: those of thousands of groups at once."""
        self.is_unloaded = False
        self.record: Iterator[None] | None = None
        """Makes and appends the record of a large generation, in pieces."""
        self.waiting: deque[Event] = deque()
        """Events that have happened while the group was busy, in order."""

    @property
    def is_busy(self) -> bool:
        """True while a step takes several turns of the loop, or earlier events wait."""
        return bool(self.group.unfinished or self.record or self.waiting)

    def __repr__(self) -> str:
        return repr(self.group.group_id)


class GroupRunner:
    """coordinators.partitions.HostedState: the groups of the partitions that this broker leads."""

    kind = "groups"

    def __init__(
        self,
        broker_id: int,
        *,
        config: GroupConfig,
        offsets_log: CoordinatorLog,
        topics: ClusterTopics | None = None,
        topic_names: Callable[[], Iterable[str]] = tuple,
        share_states: GroupShareStates | None = None,
        clock: Clock,
        timer: Timer,
    ) -> None:
        """`topics` and `topic_names` are for groups of the consumer protocol, and `share_states` for share groups."""
        self._turns = Turns(timer, GROUPS_PER_TURN)
        self._replies = Turns(timer, REPLIES_PER_TURN)
        self._pieces = Turns(timer, 1)
        self._busy: dict[HostedGroup, None] = {}
        """Groups that continue in the next turns of the loop."""
        self.hosted: HostedObjects[HostedGroup] = HostedObjects(self._turns, self._unload)
        self.metadata_bytes = 0
        """The size of the protocols of all members of all groups."""
        self.counts = GroupCounts()
        self._broker_id = broker_id
        self._config = config
        self._log = offsets_log
        self._topics = NoTopics() if topics is None else topics
        self._topic_names = topic_names
        self._share_states = NoShareStates() if share_states is None else share_states
        self._resolutions: set[asyncio.Task[None]] = set()
        self._writer = OffsetsWriter(offsets_log, config, clock)
        self._clock = clock
        self._timer = timer
        self._removals = Removals()
        self._batches = 0
        """The number of batches that were written."""
        self._behind: deque[HostedGroup] = deque()
        """Groups with events that are due."""
        self._transactions: defaultdict[LedPartition[HostedGroup], OpenTransactions] = defaultdict(OpenTransactions)

    def run(self, hosted: HostedGroup, event: Event) -> None:
        """Process the event and all that follows from it: at once, unless the group is busy."""
        # What happened to thousands of groups at once, such as the loss of their partition, comes first.
        if hosted.due or not hosted.partition.is_served:
            self._catch_up(hosted)
        self._run_or_wait(hosted, deque((event,)))

    def _run_or_wait(self, hosted: HostedGroup, events: deque[Event]) -> None:
        if hosted.is_busy:
            hosted.waiting += events
        else:
            self._run(hosted, events)

    def _run(self, hosted: HostedGroup, inbox: deque[Event]) -> None:
        group = hosted.group
        while inbox:
            state, generation = group.state, group.generation
            epoch, kind, had_members = _epoch_of(group), _kind_of(group), group.member_count > 0
            event = inbox.popleft()
            is_of_all = isinstance(event, _EVENTS_OF_ALL)
            waiting: deque[Respond] = deque()
            for action in step(group, event, Now(self._clock.monotonic_ms(), self._clock.now_ms())):
                self.counts.count(event, action)
                if is_of_all:
                    self._removals.count(action)
                elif isinstance(action, PersistTombstones):
                    message = "removed offsets broker=%d group=%s partitions=%d is_group_gone=%s"
                    log.info(message, self._broker_id, group.group_id, len(action.partitions), action.is_group_gone)
                if isinstance(action, Respond) and _call_of(action).is_waiting:
                    waiting.append(action)
                else:
                    self._perform(hosted, action, inbox)
            if waiting:
                # The end of a rebalance responds to all members, which takes 20 ms for 1,500.
                self._replies.visit(taken(waiting), _respond)
            if state is GroupState.COMPLETING_REBALANCE and group.state is GroupState.STABLE:
                self.counts.completed_rebalances += 1
            # One line is enough for all groups of a partition, or of a check.
            is_changed = group.state is not state or group.generation != generation
            if isinstance(event, HeartbeatRequest | ShareHeartbeat | StreamsHeartbeat | TimerFired):
                self._log_epoch(group, epoch)
            if had_members and _kind_of(group) != kind:
                self._log_conversion(group, kind)
            elif is_changed and not is_of_all and not isinstance(event, Unload):
                self._log_change(group, state)
            if group.unfinished or hosted.record:
                # Results of this event; they come before later events, some of which may wait already.
                hosted.waiting.extendleft(reversed(inbox))
                break
        metadata_bytes = 0 if group.state is GroupState.DEAD else group.metadata_bytes
        if metadata_bytes != hosted.counted_bytes:
            self._count(hosted, metadata_bytes)
        if hosted.is_busy and hosted not in self._busy:
            self._busy[hosted] = None
            self._pieces.visit(self._until_idle(hosted), self._go_on)

    def _until_idle(self, hosted: HostedGroup) -> Iterator[HostedGroup]:
        while hosted in self._busy:
            yield hosted

    def _go_on(self, hosted: HostedGroup) -> int:
        """Continue the step of a busy group, or process events that have waited for its end."""
        if hosted.record:
            # First, so that the record is in the log before those of later events; `self` stands for its end.
            if next(hosted.record, self) is self:
                hosted.record = None
        elif hosted.group.unfinished:
            self._run(hosted, deque((Continue(),)))
        else:
            for _ in range(min(len(hosted.waiting), EVENTS_PER_TURN)):
                if hosted.group.unfinished or hosted.record:
                    break
                self._run(hosted, deque((hosted.waiting.popleft(),)))
        if not hosted.is_busy:
            self._busy.pop(hosted, None)
        return 1

    def run_new(self, group_id: str, partition: LedPartition[HostedGroup], event: Event) -> None:
        """Create a group with its first event.

        If the group is vacant afterwards, it is removed: refused requests use no memory.
        """
        group = Group(group_id, self._config)
        group.topics = self._topics
        hosted = HostedGroup(group, partition)
        self.hosted.add(group_id, hosted)
        self.run(hosted, event)
        if hosted.group.is_vacant:
            self._discard(hosted)

    def run_all(self, event: Event) -> None:
        """Process the event for every group that exists now, some groups per loop turn; log what it removed."""
        self._run_in_turns(event, self._summarised(event, self.hosted.present()))

    def _summarised(self, event: Event, groups: Iterator[HostedGroup]) -> Iterator[HostedGroup]:
        yield from groups
        removals, self._removals = self._removals, Removals()
        if removals.groups or removals.offsets:
            reason = "topic deletion" if isinstance(event, ForgetTopics) else "expiration"
            message = "removed committed offsets broker=%d reason=%s offsets=%d groups=%d"
            log.info(message, self._broker_id, reason, removals.offsets, removals.groups)

    def may_commit(self, partition: LedPartition[HostedGroup], producer_id: int, group_id: str) -> bool:
        """Return True unless the producer's transaction has commits of too many other groups of the partition."""
        return self._transactions[partition].has_room(producer_id, group_id)

    def transaction_completed(self, partition: LedPartition[HostedGroup], end: TransactionEnd) -> None:
        """End a producer's transaction, whose marker is in the partition."""
        transactions = self._transactions[partition]
        if partition.is_loading:
            transactions.end_when_loaded(end)
            return
        found = (self.hosted.get(group_id) for group_id in transactions.end(end.producer_id))
        self._run_soon(
            TransactionCompleted(end.producer_id, end.committed), [group for group in found if group is not None]
        )

    async def load_all(self, partition: LedPartition[HostedGroup]) -> None:
        """Read the partition and add its groups."""
        playback = GroupPlayback()
        await play_back(self._log, TopicPartition(GROUP_METADATA_TOPIC, partition.index), playback)
        size = 0
        for group in playback.groups(self._config):
            size += 1
            if group is not None:
                size += _STEPS_PER_GROUP
                group.topics = self._topics
                self.hosted.add(group.group_id, HostedGroup(group, partition))
                for producer_id in group.offsets.open_transactions:
                    self._transactions[partition].add(producer_id, group.group_id)
            if size >= GROUPS_PER_TURN * _STEPS_PER_GROUP:
                size = 0
                await asyncio.sleep(0)

    def serve_all(self, partition: LedPartition[HostedGroup]) -> None:
        """Start serving the groups of a loaded partition."""
        self.hosted.serve(partition)
        # In the same call, so that no request sees commits of these transactions as undecided.
        for end in self._transactions[partition].take_early_ends():
            self.transaction_completed(partition, end)
        self._run_in_turns(GroupLoaded(), taken(deque(partition.objects.values())))

    def remove_all(self, partition: LedPartition[HostedGroup]) -> int:
        """Remove the groups of a partition; return how many there were."""
        self._transactions.pop(partition, None)
        return self.hosted.leave(partition)

    async def stop(self) -> None:
        """Return when all groups have processed what has happened."""
        for task in self._resolutions:
            task.cancel()
        while self._behind:
            visit_all(islice(taken(self._behind), GROUPS_PER_TURN), self._catch_up)
            await asyncio.sleep(0)
        await self.hosted.left()
        while self._busy:
            visit_all(list(self._busy), self._go_on)
            await asyncio.sleep(0)

    def _run_soon(self, event: Event, groups: Iterable[HostedGroup]) -> None:
        """Process the event for these groups, before any later event of each, some groups per loop turn."""
        is_idle = not self._behind
        for hosted in groups:
            hosted.due += (event,)
            self._behind.append(hosted)
        if is_idle:
            self._turns.visit(taken(self._behind), self._catch_up)

    def _catch_up(self, hosted: HostedGroup) -> int:
        """Process what has happened; return how long that takes, in groups without offsets."""
        size, written = _size_of(hosted), self._batches
        due, hosted.due = deque(hosted.due), ()
        if not (hosted.partition.is_served or hosted.is_unloaded):
            hosted.is_unloaded = True
            due.append(Unload())
        self._run_or_wait(hosted, due)
        return size + _BATCH * (self._batches - written)

    def _unload(self, hosted: HostedGroup) -> int:
        return self._catch_up(hosted)

    def _run_in_turns(self, event: Event, waiting: Iterator[HostedGroup]) -> None:
        def visit(hosted: HostedGroup) -> int:
            size, written = _size_of(hosted), self._batches
            # The group may have been removed, and another one of this id created, since the first turn.
            if self.hosted.get(hosted.group.group_id) is hosted:
                self.run(hosted, event)
            return size + _BATCH * (self._batches - written)

        self._turns.visit(waiting, visit)

    def _perform(self, hosted: HostedGroup, action: Action, inbox: deque[Event]) -> None:
        match action:
            case Respond():
                _respond(action)
            case ScheduleTimer():
                self._schedule(hosted, action)
            case CancelTimer():
                self._cancel(hosted, action.key)
            case PersistOffsets():
                if action.producer is not None:
                    # Before the append, so that a marker that follows in the log finds the group.
                    self._transactions[hosted.partition].add(action.producer.producer_id, hosted.group.group_id)
                self._batches += 1
                outcome = self._writer.offsets(hosted.partition, hosted.group.group_id, action)
                self._await_append(hosted, action.append_id, outcome, inbox)
            case PersistGroup() if len(action.snapshot.members) > GROUP_MEMBERS_PER_STEP_MAX:
                hosted.record = chain(hosted.record or (), self._write_in_pieces(hosted, action))
            case PersistGroup():
                self._batches += 1
                outcome = self._writer.group(hosted.partition, hosted.group.group_id, action)
                self._await_append(hosted, action.append_id, outcome, inbox)
            case PersistNewerGroup():
                self._batches += 1
                outcome = self._writer.newer_group(hosted.partition, hosted.group.group_id, action)
                self._await_append(hosted, action.append_id, outcome, inbox)
            case InitializeStates():
                self._begin(self._initialize(hosted, action), f"share-states-{hosted.group.group_id}")
            case DeleteStates():
                self._begin(self._delete_states(hosted.group.group_id, action), "delete-share-states")
            case ResolveRegexes():
                self._resolve(hosted, action)
            case ForgetTransaction():
                self._transactions[hosted.partition].discard(action.producer_id, hosted.group.group_id)
            case PersistTombstones():
                self._batches += 1
                self._writer.tombstones(hosted.partition, hosted.group.group_id, action)
            case Discard():
                self._discard(hosted)
            case Repeat():
                again = iter([hosted])
                if isinstance(action.event, _EVENTS_OF_ALL):
                    again = self._summarised(action.event, again)
                self._timer.schedule(0, partial(self._run_in_turns, action.event, again))
            case _:
                assert_never(action)

    def _write_in_pieces(self, hosted: HostedGroup, action: PersistGroup) -> Iterator[None]:
        outcome = yield from self._writer.group_in_pieces(hosted.partition, hosted.group.group_id, action)
        done: deque[Event] = deque()
        self._await_append(hosted, action.append_id, outcome, done)
        # The result comes before the events that waited for it.
        hosted.waiting.extendleft(done)

    def _await_append(
        self,
        hosted: HostedGroup,
        append_id: int,
        outcome: AppendOutcome | asyncio.Future[AppendOutcome],
        inbox: deque[Event],
    ) -> None:
        if isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(partial(self._appended, hosted, append_id))
        else:
            is_written = outcome.error in {ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
            inbox.append(AppendDone(append_id, outcome.error, outcome.base_offset, is_written))

    def _appended(self, hosted: HostedGroup, append_id: int, future: asyncio.Future[AppendOutcome]) -> None:
        outcome = outcome_of(future)
        self.run(hosted, AppendDone(append_id, outcome.error, outcome.base_offset))

    def _resolve(self, hosted: HostedGroup, action: ResolveRegexes) -> None:
        """Match the names of all topics in slices, in a task."""
        version = self._topics.topics_version

        async def find() -> Mapping[str, frozenset[str]]:
            names = list(self._topic_names())
            hidden: set[str] = set()
            if action.denied is not None:
                async for some in sliced_batches(names):
                    hidden.update(action.denied(some))
            return await run_steps(find_topics(action.regexes, [name for name in names if name not in hidden]))

        async def resolve() -> None:
            matching: Mapping[str, frozenset[str]] = {}
            try:
                matching = await find()
            except Exception:
                log.exception("cannot match the regular expressions of a group group=%s", hosted.group.group_id)
            self.run(hosted, RegexesResolved(matching, version))

        self._begin(resolve(), f"regexes-{hosted.group.group_id}")

    async def _initialize(self, hosted: HostedGroup, action: InitializeStates) -> None:
        """Let the share coordinator begin states, one after the other; the next heartbeat repeats what has failed."""
        done: dict[UUID, NamedPartitions] = {}
        try:
            for key, name in share_keys(hosted.group.group_id, action.topics):
                await self._share_states.initialize(key, action.state_epoch, NO_OFFSET)
                before = done.get(key.topic_id)
                numbers = frozenset({key.partition}) | (frozenset() if before is None else before.numbers)
                done[key.topic_id] = NamedPartitions(name, numbers)
        except KctlError as error:
            message = "cannot begin the state of share-partitions group=%s error=%s"
            log.warning(message, hosted.group.group_id, error)
        finally:
            if self.hosted.get(hosted.group.group_id) is hosted:
                self.run(hosted, StatesInitialized(done))

    async def _delete_states(self, group_id: str, action: DeleteStates) -> None:
        try:
            for key, _ in share_keys(group_id, action.topics):
                await self._share_states.delete(key)
        except KctlError as error:
            log.warning("cannot delete the state of share-partitions group=%s error=%s", group_id, error)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._resolutions.add(task)
        task.add_done_callback(self._resolutions.discard)

    def _schedule(self, hosted: HostedGroup, action: ScheduleTimer) -> None:
        self._cancel(hosted, action.key)
        hosted.timers[action.key] = self._timer.schedule(
            action.delay_ms, partial(self._timer_fired, hosted, action.key)
        )

    def _cancel(self, hosted: HostedGroup, key: TimerKey) -> None:
        task = hosted.timers.pop(key, None)
        if task is not None:
            task.cancel()

    def _timer_fired(self, hosted: HostedGroup, key: TimerKey) -> None:
        # This may cancel the timer, also one that has fired.
        self._catch_up(hosted)
        if hosted.timers.pop(key, None) is not None:
            self.run(hosted, TimerFired(key))

    def _count(self, hosted: HostedGroup, metadata_bytes: int) -> None:
        self.metadata_bytes += metadata_bytes - hosted.counted_bytes
        hosted.counted_bytes = metadata_bytes

    def _discard(self, hosted: HostedGroup) -> None:
        self._count(hosted, 0)
        for task in hosted.timers.values():
            task.cancel()
        hosted.timers.clear()
        self.hosted.remove(hosted.group.group_id, hosted)

    def _log_epoch(self, group: Group, before: int) -> None:
        epoch = _epoch_of(group)
        if epoch in {0, before}:
            return
        message = "group epoch changed broker=%d group=%s from=%d to=%d members=%d state=%s"
        log.info(message, self._broker_id, group.group_id, before, epoch, group.member_count, group.state_name)

    def _log_conversion(self, group: Group, before: str) -> None:
        message = "group converted with its members broker=%d group=%s from=%s to=%s members=%d"
        log.info(message, self._broker_id, group.group_id, before, _kind_of(group), group.member_count)

    def _log_change(self, group: Group, before: GroupState) -> None:
        log.info(
            "group state changed broker=%d group=%s from=%s to=%s generation=%d members=%d leader=%s",
            self._broker_id,
            group.group_id,
            before,
            group.state,
            group.generation,
            len(group.members),
            group.leader,
        )


def _kind_of(group: Group) -> str:
    return GroupType.CLASSIC if group.newer is None else group.newer.kind


def _epoch_of(group: Group) -> int:
    """Return the epoch of a group of one of the newer types; 0 for a classic one."""
    return 0 if group.newer is None else group.newer.epoch.epoch


def _call_of(action: Respond) -> ParkedCall[object]:
    return cast("ParkedCall[object]", action.token)


def _respond(action: Respond) -> int:
    """Complete a call; return 1, see Turns.visit."""
    _call_of(action).complete(action.outcome)
    return 1


def _size_of(hosted: HostedGroup) -> int:
    """Return how many groups without offsets take as long as one step of this group."""
    return 1 + min(hosted.group.offsets.size, REQUEST_ELEMENTS_PER_SLICE_MAX) // _OFFSETS_PER_GROUP

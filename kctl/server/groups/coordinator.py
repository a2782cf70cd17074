"""The group coordinator of a broker: hosts the groups of the `__consumer_offsets` partitions that it leads.

Calls are checked in Kafka's order (group id, coordinator active, partition loading, partition ours), become events for
the group's state machine, and the machine's actions are performed here: answers, timers, appends.

While a partition loads, its groups answer COORDINATOR_LOAD_IN_PROGRESS and those of other partitions go on.  Two calls
are milder, because old clients cannot cope with that error: Heartbeat answers NONE, SyncGroup REBALANCE_IN_PROGRESS.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import assert_never, cast
from uuid import UUID

from kctl.environment import Clock, Random, Timer, TimerTask
from kctl.errors import ErrorCode, KctlError
from kctl.model import ProducerIdAndEpoch, TopicPartition, partition_for_key
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.server.coordinators.ports import AppendOutcome, CoordinatorLog, outcome_of
from kctl.server.coordinators.replay import PartitionReplay
from kctl.server.coordinators.replies import ParkedCall, Reply
from kctl.server.groups.actions import (
    Action,
    Answer,
    CancelTimer,
    CommitOutcome,
    DeleteOffsetsOutcome,
    Discard,
    JoinOutcome,
    LeaveOutcome,
    PersistGroup,
    PersistOffsets,
    PersistTombstones,
    ScheduleTimer,
    SyncOutcome,
)
from kctl.server.groups.config import GroupConfig
from kctl.server.groups.events import (
    UNKNOWN_MEMBER,
    AppendDone,
    CommitRequest,
    DeleteGroup,
    DeleteOffsets,
    Event,
    ExpireOffsets,
    ForgetTopics,
    GroupLoaded,
    Heartbeat,
    JoinRequest,
    Leaver,
    LeaveRequest,
    Now,
    Protocols,
    SyncRequest,
    TimerFired,
    TimerKey,
    TransactionalCommit,
    TransactionCompleted,
    Unload,
)
from kctl.server.groups.group import Group
from kctl.server.groups.loading import GroupPlayback
from kctl.server.groups.offsets import OffsetAndMetadata
from kctl.server.groups.records import group_record, offset_records, tombstones
from kctl.server.groups.snapshot import GroupDescription, GroupOverview
from kctl.server.groups.states import GroupState
from kctl.server.groups.step import step

log = logging.getLogger(__name__)

RECORDS_PER_TURN = 1_000
"""How many records a load takes in before it lets requests of other groups through."""
GROUPS_PER_TURN = 200
"""How many groups are restored, or looked at for expiry, before requests are let through."""

OFFSET_OF_NOTHING = OffsetAndMetadata(offset=-1)
DEAD_GROUP = GroupDescription(state=GroupState.DEAD, protocol_type="", protocol="", members=())


class _Hosted:
    """A group, the partition that it is kept in, and its running timers."""

    __slots__ = ("group", "partition", "timers")

    def __init__(self, group: Group, partition: int) -> None:
        self.group = group
        self.partition = partition
        self.timers: dict[TimerKey, TimerTask] = {}

    def cancel_timers(self) -> None:
        for task in self.timers.values():
            task.cancel()
        self.timers.clear()


class _Partition:
    """A partition of `__consumer_offsets` that this broker leads."""

    __slots__ = ("completed", "epoch", "groups_in_transactions", "is_loading", "task")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.is_loading = True
        self.task: asyncio.Task[None] | None = None
        self.groups_in_transactions: dict[int, dict[str, None]] = {}
        """Per producer id the groups that it may have committed offsets for."""
        self.completed: list[tuple[int, bool]] = []
        """Transactions that ended while the partition loads."""


class GroupCoordinator:
    """All groups of one broker."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: GroupConfig,
        offsets_log: CoordinatorLog,
        clock: Clock,
        timer: Timer,
        random: Random,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._log = offsets_log
        self._clock = clock
        self._timer = timer
        self._random = random
        self._is_active = False
        self._partitions: dict[int, _Partition] = {}
        self._groups: dict[str, _Hosted] = {}
        self._expiry: TimerTask | None = None

    def start(self) -> None:
        """Calls are served from now on; until then they answer COORDINATOR_NOT_AVAILABLE."""
        self._is_active = True
        self._schedule_expiry()

    async def stop(self) -> None:
        """Everything parked answers NOT_COORDINATOR."""
        self._is_active = False
        if self._expiry is not None:
            self._expiry.cancel()
        tasks = [owned.task for owned in self._partitions.values() if owned.task is not None]
        for partition in list(self._partitions):
            self.on_resign(partition)
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_leader(self, partition: int, epoch: int) -> None:
        """This broker leads the partition in `epoch`: load it, unless that is done or news of an older leadership.

        If the epoch is the next one nobody else led in between, so what is in memory stands.
        """
        owned = self._partitions.get(partition)
        if owned is not None and epoch <= owned.epoch + 1:
            owned.epoch = max(owned.epoch, epoch)
            return
        self._unload(partition)
        owned = self._partitions[partition] = _Partition(epoch)
        name = f"load-groups-{partition}"
        owned.task = asyncio.get_running_loop().create_task(self._load(partition, owned), name=name)

    def on_resign(self, partition: int, epoch: int | None = None) -> None:
        """This broker does not lead the partition any more; its groups are somebody else's."""
        owned = self._partitions.get(partition)
        if owned is None or (epoch is not None and epoch < owned.epoch):
            return
        del self._partitions[partition]
        if owned.task is not None:
            owned.task.cancel()
        self._unload(partition)

    def topics_deleted(self, topics: Collection[str]) -> None:
        """The topics are gone from the cluster, and so are all commits of them."""
        event = ForgetTopics(frozenset(topics))
        for hosted in list(self._groups.values()):
            self._run(hosted, event)

    def join(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        requires_known_member_id: bool,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
    ) -> Reply[JoinOutcome]:
        """JoinGroup: answered when the generation is settled, or at once."""
        error = self._status(group_id)
        if error is ErrorCode.NONE and not self._allows_session_timeout(session_timeout_ms):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and member_id != UNKNOWN_MEMBER and group_id not in self._groups:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            return JoinOutcome(error=error, member_id=member_id)
        call: ParkedCall[JoinOutcome] = ParkedCall()
        request = JoinRequest(
            token=call,
            member_id=member_id,
            fresh_member_id=self._fresh_member_id(group_instance_id or client_id) if not member_id else "",
            group_instance_id=group_instance_id,
            requires_known_member_id=requires_known_member_id,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=protocols,
        )
        self._run_or_create(group_id, request)
        return call.reply()

    def sync(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
    ) -> Reply[SyncOutcome]:
        """SyncGroup: answered when the leader's assignment is stored, or at once."""
        error = self._status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance is forgotten anyway, and this sends the member to join without looking for a coordinator.
            return SyncOutcome(ErrorCode.REBALANCE_IN_PROGRESS)
        hosted = self._groups.get(group_id)
        if error is not ErrorCode.NONE or hosted is None:
            return SyncOutcome(error or ErrorCode.UNKNOWN_MEMBER_ID)
        call: ParkedCall[SyncOutcome] = ParkedCall()
        request = SyncRequest(
            token=call,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation=generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments,
        )
        self._run(hosted, request)
        return call.reply()

    def heartbeat(self, group_id: str, *, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat."""
        error = self._status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        hosted = self._groups.get(group_id)
        if error is not ErrorCode.NONE or hosted is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        call: ParkedCall[ErrorCode] = ParkedCall()
        self._run(hosted, Heartbeat(call, member_id, group_instance_id, generation))
        return call.outcome()

    def leave(self, group_id: str, leavers: Sequence[Leaver]) -> LeaveOutcome:
        """LeaveGroup."""
        error = self._status(group_id)
        if error is not ErrorCode.NONE:
            return LeaveOutcome(error)
        hosted = self._groups.get(group_id)
        if hosted is None:
            return LeaveOutcome(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leavers))
        call: ParkedCall[LeaveOutcome] = ParkedCall()
        self._run(hosted, LeaveRequest(call, tuple(leavers)))
        return call.outcome()

    def commit(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> Reply[CommitOutcome]:
        """OffsetCommit: answered when the commits are in the log, or refused at once."""
        error = self._status(group_id, may_be_empty=True)
        if error is ErrorCode.NONE and generation >= 0 and group_id not in self._groups:
            # From before the group was deleted, or expired.
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            return dict.fromkeys(offsets, error)
        call: ParkedCall[CommitOutcome] = ParkedCall()
        request = CommitRequest(
            token=call,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation=generation,
            offsets=offsets,
        )
        self._run_or_create(group_id, request)
        return call.reply()

    def commit_in_transaction(
        self,
        group_id: str,
        *,
        producer: ProducerIdAndEpoch,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> Reply[CommitOutcome]:
        """TxnOffsetCommit: answered when the commits are in the log, or refused at once."""
        error = self._status(group_id)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(offsets, error)
        call: ParkedCall[CommitOutcome] = ParkedCall()
        request = TransactionalCommit(
            token=call,
            producer=producer,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation=generation,
            offsets=offsets,
        )
        self._run_or_create(group_id, request)
        return call.reply()

    def transaction_completed(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """The marker of the producer's transaction lies in this partition: what it committed there is decided."""
        owned = self._partitions.get(partition)
        if owned is None:
            return
        if owned.is_loading:
            # The load may have come past the marker's place already.
            owned.completed.append((producer_id, committed))
            return
        for group_id in owned.groups_in_transactions.pop(producer_id, {}):
            hosted = self._groups.get(group_id)
            if hosted is not None:
                self._run(hosted, TransactionCompleted(producer_id, committed))

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = False
    ) -> tuple[ErrorCode, dict[TopicPartition, tuple[ErrorCode, OffsetAndMetadata]]]:
        """OffsetFetch: one error for all, or per partition; None asks for every partition with a commit.

        No commit is no error: the offset is -1 then.
        """
        error = self._status(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error, {}
        hosted = self._groups.get(group_id)
        if hosted is None:
            return ErrorCode.NONE, dict.fromkeys(partitions or (), (ErrorCode.NONE, OFFSET_OF_NOTHING))
        offsets = hosted.group.offsets
        found: dict[TopicPartition, tuple[ErrorCode, OffsetAndMetadata]] = {}
        for tp in list(offsets) if partitions is None else partitions:
            if require_stable and offsets.is_unstable(tp):
                found[tp] = ErrorCode.UNSTABLE_OFFSET_COMMIT, OFFSET_OF_NOTHING
            else:
                found[tp] = ErrorCode.NONE, offsets.get(tp) or OFFSET_OF_NOTHING
        return ErrorCode.NONE, found

    def describe(self, group_id: str) -> tuple[ErrorCode, GroupDescription]:
        """DescribeGroups: a group that does not exist is described as dead, without an error."""
        error = self._status(group_id, may_be_empty=True)
        hosted = self._groups.get(group_id) if error is ErrorCode.NONE else None
        return error, DEAD_GROUP if hosted is None else hosted.group.describe()

    def groups(self, states: Collection[str] = ()) -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups: the groups hosted here, in the given states if any are given.

        While a partition loads the list is incomplete, and the error says so.
        """
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        is_loading = any(owned.is_loading for owned in self._partitions.values())
        overviews = [hosted.group.overview() for hosted in self._groups.values()]
        if states:
            overviews = [overview for overview in overviews if overview.state in states]
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE, overviews

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups, for one group."""
        error = self._status(group_id, may_be_empty=True)
        hosted = self._groups.get(group_id)
        if error is not ErrorCode.NONE or hosted is None:
            return error or ErrorCode.GROUP_ID_NOT_FOUND
        call: ParkedCall[ErrorCode] = ParkedCall()
        self._run(hosted, DeleteGroup(call))
        return call.outcome()

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> DeleteOffsetsOutcome:
        """OffsetDelete."""
        error = self._status(group_id)
        hosted = self._groups.get(group_id)
        if error is not ErrorCode.NONE or hosted is None:
            return DeleteOffsetsOutcome(error or ErrorCode.GROUP_ID_NOT_FOUND, {})
        call: ParkedCall[DeleteOffsetsOutcome] = ParkedCall()
        self._run(hosted, DeleteOffsets(call, tuple(partitions)))
        return call.outcome()

    def expire(self) -> None:
        """Looks for expired offsets and unused groups now; start() makes that regular."""
        self._in_turns(ExpireOffsets(), iter(list(self._groups.values())))

    async def loaded(self) -> None:
        """Returns when no partition is loading any more."""
        tasks = [owned.task for owned in self._partitions.values() if owned.is_loading and owned.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _status(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Whether the group may be served here: Kafka's GroupCoordinator.validateGroupStatus."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_id in self._groups:
            return ErrorCode.NONE
        partition = self._partition_of(group_id)
        owned = None if partition is None else self._partitions.get(partition)
        if owned is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.is_loading else ErrorCode.NONE

    def _partition_of(self, group_id: str) -> int | None:
        count = self._log.partition_count()
        return None if count is None else partition_for_key(group_id, count)

    def _allows_session_timeout(self, timeout_ms: int) -> bool:
        return self._config.group_min_session_timeout_ms <= timeout_ms <= self._config.group_max_session_timeout_ms

    def _fresh_member_id(self, prefix: str) -> str:
        return f"{prefix}-{UUID(int=self._random.getrandbits(128), version=4)}"

    def _run_or_create(self, group_id: str, event: Event) -> None:
        """A group that the event left without anything in it is forgotten again: refused requests cost no memory."""
        hosted = self._groups.get(group_id)
        if hosted is not None:
            self._run(hosted, event)
            return
        partition = self._partition_of(group_id)
        assert partition is not None
        hosted = self._groups[group_id] = _Hosted(Group(group_id, self._config), partition)
        self._run(hosted, event)
        if hosted.group.is_vacant:
            self._discard(hosted)

    def _run(self, hosted: _Hosted, event: Event) -> None:
        """Lets the event happen, and whatever follows from it at once."""
        group = hosted.group
        inbox: deque[Event] = deque((event,))
        while inbox:
            state, generation = group.state, group.generation
            for action in step(group, inbox.popleft(), self._now()):
                self._perform(hosted, action, inbox)
            if group.state is not state or group.generation != generation:
                self._log_change(group, state)

    def _perform(self, hosted: _Hosted, action: Action, inbox: deque[Event]) -> None:
        group_id = hosted.group.group_id
        match action:
            case Answer():
                cast("ParkedCall[object]", action.token).answer(action.outcome)
            case ScheduleTimer():
                self._schedule(hosted, action.key, action.delay_ms)
            case CancelTimer():
                task = hosted.timers.pop(action.key, None)
                if task is not None:
                    task.cancel()
            case PersistOffsets():
                self._append_offsets(hosted, action, inbox)
            case PersistGroup():
                records = [group_record(group_id, action.snapshot, self._clock.now_ms())]
                acks = self._config.offsets_commit_required_acks
                self._append(hosted, records, action.append_id, inbox, required_acks=acks)
            case PersistTombstones():
                self._append_tombstones(hosted, action)
            case Discard():
                self._discard(hosted)
            case _:
                assert_never(action)

    def _append_offsets(self, hosted: _Hosted, action: PersistOffsets, inbox: deque[Event]) -> None:
        group_id, producer = hosted.group.group_id, action.producer
        if producer is not None:
            owned = self._partitions[hosted.partition]
            owned.groups_in_transactions.setdefault(producer.producer_id, {})[group_id] = None
        records = offset_records(group_id, action.offsets, self._clock.now_ms())
        acks = self._config.offsets_commit_required_acks
        self._append(hosted, records, action.append_id, inbox, required_acks=acks, producer=producer)

    def _append(
        self,
        hosted: _Hosted,
        records: Sequence[Record],
        append_id: int,
        inbox: deque[Event],
        *,
        required_acks: int,
        producer: ProducerIdAndEpoch | None = None,
    ) -> None:
        outcome = self._write(hosted, records, required_acks=required_acks, producer=producer)
        if isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(partial(self._appended, hosted, append_id))
        else:
            inbox.append(AppendDone(append_id, outcome.error, outcome.base_offset))

    def _appended(self, hosted: _Hosted, append_id: int, future: asyncio.Future[AppendOutcome]) -> None:
        outcome = outcome_of(future)
        self._run(hosted, AppendDone(append_id, outcome.error, outcome.base_offset))

    def _append_tombstones(self, hosted: _Hosted, action: PersistTombstones) -> None:
        now_ms = self._clock.now_ms()
        group_id = hosted.group.group_id
        records = tombstones(group_id, action.partitions, is_group_gone=action.is_group_gone, timestamp_ms=now_ms)
        log.info("group=%s tombstones=%d group_gone=%s", group_id, len(records), action.is_group_gone)
        self._write(hosted, records, required_acks=0)

    def _write(
        self,
        hosted: _Hosted,
        records: Sequence[Record],
        *,
        required_acks: int,
        producer: ProducerIdAndEpoch | None = None,
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        codec = Codec(self._config.offsets_topic_compression_codec)
        if producer is None:
            batch = build_batch(records, codec=codec)
        else:
            batch = build_batch(
                records,
                codec=codec,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=0,
                is_transactional=True,
            )
        timeout_ms = self._config.offsets_commit_timeout_ms
        return self._log.append(hosted.partition, batch, required_acks=required_acks, timeout_ms=timeout_ms)

    def _schedule(self, hosted: _Hosted, key: TimerKey, delay_ms: int) -> None:
        previous = hosted.timers.pop(key, None)
        if previous is not None:
            previous.cancel()
        hosted.timers[key] = self._timer.schedule(delay_ms, partial(self._timer_fired, hosted, key))

    def _timer_fired(self, hosted: _Hosted, key: TimerKey) -> None:
        if hosted.timers.pop(key, None) is not None:
            self._run(hosted, TimerFired(key))

    def _discard(self, hosted: _Hosted) -> None:
        hosted.cancel_timers()
        if self._groups.get(hosted.group.group_id) is hosted:
            del self._groups[hosted.group.group_id]

    def _unload(self, partition: int) -> None:
        leaving = [hosted for hosted in self._groups.values() if hosted.partition == partition]
        for hosted in leaving:
            self._run(hosted, Unload())
        if leaving:
            log.info("broker=%d unloaded partition=%d groups=%d", self._broker_id, partition, len(leaving))

    async def _load(self, partition: int, owned: _Partition) -> None:
        """Replays the partition; if that fails its groups stay refused, so that nobody reads half of the commits."""
        started_ms = self._clock.monotonic_ms()
        playback = GroupPlayback()
        replay = PartitionReplay(playback)
        try:
            async for chunk in self._log.read_all(partition):
                await _take_in(replay, chunk)
        except KctlError as error:
            log.error("broker=%d cannot load partition=%d reason=%s", self._broker_id, partition, error)
            if self._partitions.get(partition) is owned:
                del self._partitions[partition]
            return
        for skipped in replay.skipped:
            log.warning(
                "topic=__consumer_offsets partition=%d skipped offset=%d key=%r reason=%s",
                partition,
                skipped.offset,
                skipped.key,
                skipped.reason,
            )
        restored, in_transactions = await self._restore(playback, partition)
        # No await from here on: the groups appear all at once.
        if self._partitions.get(partition) is not owned:
            return
        self._groups.update(restored)
        owned.is_loading = False
        owned.groups_in_transactions = in_transactions
        for producer_id, committed in owned.completed:
            self.transaction_completed(partition, producer_id, committed=committed)
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        # Most partitions have no groups, and a broker leads dozens of them.
        level = logging.INFO if restored else logging.DEBUG
        message = "broker=%d loaded partition=%d groups=%d ms=%d"
        log.log(level, message, self._broker_id, partition, len(restored), elapsed_ms)
        self._in_turns(GroupLoaded(), iter(list(restored.values())))

    async def _restore(
        self, playback: GroupPlayback, partition: int
    ) -> tuple[dict[str, _Hosted], dict[int, dict[str, None]]]:
        """The groups by id, and per producer id those with commits in its open transaction."""
        restored: dict[str, _Hosted] = {}
        in_transactions: dict[int, dict[str, None]] = {}
        for group in playback.groups(self._config):
            restored[group.group_id] = _Hosted(group, partition)
            for producer_id in group.offsets.open_transactions:
                in_transactions.setdefault(producer_id, {})[group.group_id] = None
            if len(restored) % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
        return restored, in_transactions

    def _schedule_expiry(self) -> None:
        self._expiry = self._timer.schedule(self._config.offsets_retention_check_interval_ms, self._expiry_due)

    def _expiry_due(self) -> None:
        self.expire()
        self._schedule_expiry()

    def _in_turns(self, event: Event, waiting: Iterator[_Hosted]) -> None:
        """Lets the event happen to each of the groups, some at a time."""
        some = list(islice(waiting, GROUPS_PER_TURN))
        for hosted in some:
            if self._groups.get(hosted.group.group_id) is hosted:
                self._run(hosted, event)
        if len(some) == GROUPS_PER_TURN:
            self._timer.schedule(0, partial(self._in_turns, event, waiting))

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.now_ms())

    def _log_change(self, group: Group, before: GroupState) -> None:
        log.info(
            "broker=%d group=%s %s -> %s generation=%d members=%d leader=%s",
            self._broker_id,
            group.group_id,
            before,
            group.state,
            group.generation,
            len(group.members),
            group.leader,
        )


async def _take_in(replay: PartitionReplay, chunk: bytes) -> None:
    records = 0
    for count in replay.batches(chunk):
        records += count
        if records >= RECORDS_PER_TURN:
            records = 0
            await asyncio.sleep(0)

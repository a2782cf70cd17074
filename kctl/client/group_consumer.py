"""Reads what a group assigns to it: a member and its heartbeats around a simple consumer.

    poll() -> settle (join, sync, look up what is committed) -> fetch
    beside it: heartbeats; joins of a cooperative member, which reads on meanwhile

The member's state says what may be read; what is read changes inside `poll` only, so that nothing is taken away between
two calls.  Records are read at least once: what was not committed when its reader died is read again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from kctl.client.assignors import ASSIGNORS, COOPERATIVE_STICKY
from kctl.client.cluster import ClusterClient
from kctl.client.committed_offsets import commit_offsets, committed_offsets
from kctl.client.consumer import Consumer
from kctl.client.group_progress import GroupProgress
from kctl.client.list_offsets import EARLIEST, LATEST, IsolationLevel, OffsetAt, list_offsets_at
from kctl.client.membership.actions import (
    Abandon,
    Action,
    Assign,
    Fail,
    LookUpCoordinator,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Take,
)
from kctl.client.membership.events import (
    Assigned,
    CommitAnswered,
    Disconnected,
    Event,
    HeartbeatAnswered,
    HeartbeatDue,
    Joined,
    Left,
    PartitionsChanged,
    Revoked,
    Synced,
    Wanted,
)
from kctl.client.membership.member import (
    Member,
    MembershipSettings,
    Phase,
)
from kctl.client.membership.step import step
from kctl.client.retrying import COORDINATOR_MOVED, Deadline
from kctl.client.transport import Connection, ConnectionLost
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.protocol.apis.heartbeat import HeartbeatResponse
from kctl.protocol.apis.join_group import JoinGroupResponse
from kctl.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kctl.protocol.apis.sync_group import SyncGroupResponse
from kctl.records.header import Record

T = TypeVar("T")

Begin = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""Where to begin in partitions of which the group has committed nothing, or something that the log does not have."""

PURPOSE = "membership"
ANSWER_MARGIN_MS = 5_000
"""How much longer than the slowest member a JoinGroup may take."""
IDLE_MS = 100
"""How often a member without partitions looks whether it was given some."""
BEAT_MS_MIN = 20
LEAVERS_VERSION_MIN = 3
"""From where on LeaveGroup names several members."""
PARTITIONS_CHECK_MS = 300_000
"""How often the leader looks whether topics have grown: metadata.max.age.ms of Java's consumer."""
CLOSE_MS = 5_000
GIVING_UP_BEATS = 2
"""Within so many heartbeat intervals the others hear that they have to give something up, and come again without it."""

_OF_PARTITIONS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)
"""What an answer to a commit says about a partition; everything else is about the member."""
_NOT_YET = frozenset({*COORDINATOR_MOVED, ErrorCode.UNSTABLE_OFFSET_COMMIT})


class GroupConsumer:
    """A member of one group.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        settings: MembershipSettings,
        begin: Begin,
        *,
        on_lost: Callable[[TopicPartition, int, int], None] = lambda *_: None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        auto_commit_interval_ms: int = 5_000,
    ) -> None:
        self.member = Member(settings)
        self._client = client
        self._begin = begin
        self._on_lost = on_lost
        self._consumer = Consumer(client, {}, isolation=isolation)
        self._auto_commit_interval_ms = auto_commit_interval_ms
        self._progress = GroupProgress()
        self._committed_ms = self._now_ms()
        self._partition_counts: Mapping[str, int] = {}
        self._counted_ms = 0
        self._is_closing = False
        self._deadline: Deadline = client.deadline()
        self._failure: ApiError | None = None
        self._told_ms = 0
        """When the group last said what this member reads."""
        self._heartbeats: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[None] | None = None

    @property
    def expects_more(self) -> bool:
        """Whether it was just given nothing although it may have a share: others have to give that up first."""
        member = self.member
        patience_ms = GIVING_UP_BEATS * member.settings.heartbeat_interval_ms
        is_recent = self._now_ms() < self._told_ms + patience_ms
        return member.assignor == COOPERATIVE_STICKY and not member.owned and is_recent

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The offset behind what was returned, of every partition that is read now."""
        return {**self._progress.done, **self._consumer.positions}

    async def poll(self) -> list[tuple[TopicPartition, list[Record]]]:
        """The next records of this member's partitions, none when none came in time; joins first if need be.

        Calling it says that what was returned before is done with.  Raises ApiError for what trying again does not
        change (the group is full, another has taken the static id, ...), CorruptBatch and ClusterUnreachable.
        """
        self.confirm()
        if self._failure is not None:
            raise self._failure
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._keep_beating(), name="group heartbeats")
        await self._settle()
        if self._now_ms() >= self._committed_ms + self._auto_commit_interval_ms:
            await self._commit_once()
        if not self._consumer.positions:
            await self._client.transport.sleep(IDLE_MS)
            return []
        try:
            return await self._consumer.poll()
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await self._begin_again()
            return []

    def confirm(self) -> None:
        """What was returned so far is done with, and may be committed."""
        self._progress.confirm(self._consumer.positions)

    def finish(self, tp: TopicPartition, offset: int) -> None:
        """Done with the partition up to `offset`, exclusive: read no more of it before the next assignment."""
        self._consumer.drop(tp)
        self._progress.confirm({tp: offset})

    async def commit(self) -> None:
        """Commit what is done with.  Raises ApiError and ClusterUnreachable; a group that has moved on is none.

        Whoever has got the partitions then reads again what was not committed.
        """
        deadline = self._client.deadline()
        while not await self._commit_once():
            if not await deadline.pause():
                raise ClusterUnreachable(f"group '{self.member.settings.group_id}': its coordinator does not answer")

    async def close(self) -> None:
        """Commit what is done with and leave the group, as far as that is possible within a few seconds."""
        self._is_closing = True
        tasks = [task for task in (self._heartbeats, self._joining) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_MS / 1000):
                await self.commit()
        except (KctlError, TimeoutError):
            pass  # It will be read again, which is what "at least once" allows.
        try:
            async with asyncio.timeout(CLOSE_MS / 1000):
                await self._drive(Left())
        except (KctlError, TimeoutError):
            pass  # The coordinator notices when the session is over.

    async def _settle(self) -> None:
        """Until this member knows where to read: it is in a generation, or still has something while it joins again."""
        member = self.member
        while True:
            if self._failure is not None:
                raise self._failure
            self._read_only_owned()
            if self._joining is not None:
                if not self._joining.done() and self._consumer.positions:
                    return
                joining, self._joining = self._joining, None
                await joining
            elif member.phase is Phase.REVOKING:
                await self.commit()
                self._drive_aside(Revoked())
            elif member.phase is not Phase.STABLE:
                self._drive_aside(Wanted())
            elif given := self._progress.missing(member.owned):
                await self._look_up_positions(given)
            else:
                break
        self._deadline = self._client.deadline()

    def _drive_aside(self, event: Event) -> None:
        """Join, and wait for it only when there is nothing to read meanwhile.

        The member's state changes at once: what it gives up by joining is not read any more.
        """
        actions = step(self.member, event, self._now_ms())
        self._joining = asyncio.create_task(self._perform_all(actions), name="group join")

    def _read_only_owned(self) -> None:
        self._progress.keep_only(self.member.owned)
        positions = self._consumer.positions
        lost = set(self._progress.missing(positions))
        if lost:
            self._consumer.assign({tp: position for tp, position in positions.items() if tp not in lost})

    async def _look_up_positions(self, given: Collection[TopicPartition]) -> None:
        committed = await self._ask_committed(given)
        fresh = [tp for tp in given if tp not in committed]
        begun = await self._begin(fresh) if fresh else {}
        self._consumer.assign({**self._consumer.positions, **begun, **committed})
        self._progress.begin(given, committed)

    async def _ask_committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        while True:
            try:
                return await committed_offsets(await self._connect(), self.member.settings.group_id, partitions)
            except ConnectionLost as lost:
                await self._look_elsewhere(str(lost))
            except ApiError as error:
                if error.code not in _NOT_YET:
                    raise
                await self._look_elsewhere(str(error))

    async def _begin_again(self) -> None:
        """Positions that the log does not have (any more) move to where `begin` says; `on_lost` is told of each."""
        positions = self._consumer.positions
        found = await list_offsets_at(self._client, positions, (EARLIEST, LATEST))
        lost = [tp for tp, position in positions.items() if not _lies_between(found[tp], position)]
        begun = await self._begin(lost) if lost else {}
        for tp, offset in begun.items():
            self._on_lost(tp, positions[tp], offset)
        self._consumer.assign({**positions, **begun})

    async def _commit_once(self) -> bool:
        """Whether there is nothing left to commit: done, or no longer this member's to do."""
        member = self.member
        offsets = self._progress.uncommitted(member.owned)
        if not offsets or not member.may_commit:
            return True
        generation = member.generation
        # The connection of a member that joins is busy until all others have joined.
        is_aside = member.phase is Phase.JOINING
        self._committed_ms = self._now_ms()
        try:
            codes = await commit_offsets(
                await self._connect(purpose="" if is_aside else PURPOSE),
                member.settings.group_id,
                offsets,
                member_id=member.member_id,
                generation=generation,
                group_instance_id=member.settings.group_instance_id,
            )
        except ConnectionLost:
            if is_aside:
                self._client.forget_coordinator(member.settings.group_id)
            else:
                await self._drive(Disconnected(member.phase))
            return False
        except ApiError as error:
            if error.code not in COORDINATOR_MOVED:
                raise
            self._client.forget_coordinator(member.settings.group_id)
            return False
        self._progress.note_committed({tp: offsets[tp] for tp, code in codes.items() if code is ErrorCode.NONE})
        for code in set(codes.values()) - {ErrorCode.NONE}:
            await self._drive(CommitAnswered(code, generation))
        for tp, code in codes.items():
            if code in _OF_PARTITIONS:
                raise ApiError(code, f"{tp}: cannot commit: {code.description}")
        return not any(code in COORDINATOR_MOVED for code in codes.values())

    async def _keep_beating(self) -> None:
        settings = self.member.settings
        while True:
            wait_ms = self.member.next_beat_ms - self._now_ms()
            await self._client.transport.sleep(min(max(wait_ms, BEAT_MS_MIN), settings.heartbeat_interval_ms))
            try:
                await self._drive(HeartbeatDue())
                await self._look_for_more_partitions()
            except ClusterUnreachable:
                continue  # Whoever reads finds out, or the session ends.
            except ApiError as error:
                self._failure = error
                return

    async def _look_for_more_partitions(self) -> None:
        if not self.member.is_leader or self._now_ms() < self._counted_ms + PARTITIONS_CHECK_MS:
            return
        before = self._partition_counts
        if await self._counts(before) != before:
            await self._drive(PartitionsChanged())

    async def _drive(self, event: Event) -> None:
        """Let an event happen to the member, and all that follows from it."""
        await self._perform_all(step(self.member, event, self._now_ms()))

    async def _perform_all(self, actions: Collection[Action]) -> None:
        waiting = deque(actions)
        while waiting:
            outcome = await self._perform(waiting.popleft())
            if outcome is not None:
                waiting += step(self.member, outcome, self._now_ms())

    async def _perform(self, action: Action) -> Event | None:
        match action:
            case SendJoin(request):
                return await self._ask(request, JoinGroupResponse, self._joined, self._patience_ms)
            case SendSync(request):
                return await self._ask(request, SyncGroupResponse, Synced, self._patience_ms)
            case SendHeartbeat(request):
                generation = request.generation_id
                return await self._ask(request, HeartbeatResponse, lambda told: HeartbeatAnswered(told, generation))
            case SendLeave(member_id):
                await self._say_goodbye(member_id)
            case Assign(assignor, members):
                topics = frozenset[str]().union(*(one.topics for one in members))
                self._partition_counts = await self._counts(topics)
                return Assigned(ASSIGNORS[assignor](members, self._partition_counts))
            case Take(partitions):
                self._progress.forget(partitions)
                self._told_ms = self._now_ms()
            case LookUpCoordinator():
                self._client.forget_coordinator(self.member.settings.group_id)
                if self.member.phase is Phase.OUTSIDE:
                    await self._look_elsewhere("its coordinator does not answer")
            case Fail(error):
                self._failure = error
            case Revoke() | Abandon():
                pass  # `_settle` sees it by the phase, when the caller comes for more.
        return None

    async def _say_goodbye(self, member_id: str) -> None:
        """Raises ConnectionLost and ApiError."""
        connection = await self._connect()
        request = LeaveGroupRequest(group_id=self.member.settings.group_id)
        if connection.versions.highest(LeaveGroupRequest) < LEAVERS_VERSION_MIN:
            request.member_id = member_id
        else:
            request.members = [MemberIdentity(member_id=member_id)]
        await connection.send(request, LeaveGroupResponse)

    async def _ask(
        self,
        request: object,
        response_class: type[T],
        event: Callable[[T], Event | None],
        timeout_ms: int | None = None,
    ) -> Event | None:
        during = self.member.phase
        try:
            connection = await self._connect()
            return event(await connection.send(request, response_class, timeout_ms=timeout_ms))
        except (ConnectionLost, ClusterUnreachable):
            return Disconnected(during)
        except ApiError as error:
            if error.code not in COORDINATOR_MOVED:
                raise
            return Disconnected(during)

    def _joined(self, response: JoinGroupResponse) -> Joined:
        if response.error_code == ErrorCode.NONE:
            self._deadline = self._client.deadline()
        return Joined(response)

    @property
    def _patience_ms(self) -> int:
        """How long a JoinGroup or SyncGroup may take: as long as the slowest member."""
        return self.member.settings.rebalance_timeout_ms + ANSWER_MARGIN_MS

    async def _counts(self, topics: Collection[str]) -> dict[str, int]:
        """The number of partitions of each topic that exists."""
        metadata = await self._client.metadata(topics)
        self._counted_ms = self._now_ms()
        return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.partitions}

    async def _connect(self, *, purpose: str = PURPOSE) -> Connection:
        # A goodbye does not wait behind a JoinGroup that was given up.
        purpose = "" if self._is_closing else purpose
        return await self._client.coordinator(self.member.settings.group_id, purpose=purpose)

    async def _look_elsewhere(self, problem: str) -> None:
        self._client.forget_coordinator(self.member.settings.group_id)
        if not await self._deadline.pause():
            raise ClusterUnreachable(f"group '{self.member.settings.group_id}': {problem}")

    def _now_ms(self) -> int:
        return self._client.transport.monotonic_ms()


def _lies_between(bounds: tuple[OffsetAt, ...] | ApiError, position: int) -> bool:
    if isinstance(bounds, ApiError):
        raise bounds
    start, end = bounds
    return start.offset <= position <= end.offset

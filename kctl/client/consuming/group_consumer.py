"""Consumes the partitions that a group assigns: group membership and automatic commits beside the fetches.

    heartbeats, automatic commits, look-ups of topics: tasks of their own, on time whatever the application does
    settling: joins, revocations and new positions, which `poll` starts, whether or not records wait

Partitions are revoked only after the application has polled, so that none is lost while it processes records of it;
records that wait of a revoked partition are dropped.  Delivery is at least once: records after the last commit are read
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.consuming.assignors import COOPERATIVE_STICKY
from kctl.client.consuming.committed_offsets import CommittedOffset, commit_offsets, committed_offsets
from kctl.client.consuming.fetch_runner import FetchRunner, Recovery
from kctl.client.consuming.fetcher import BUFFERED_BYTES_MAX, GONE, Decode, Fetcher
from kctl.client.consuming.fetching import FetchLimits
from kctl.client.consuming.group_metadata import CommitFailed, GroupMetadata, RebalanceListener
from kctl.client.consuming.group_progress import Begin, GroupProgress
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.membership.member import (
    CommitResultReceived,
    Disconnected,
    Event,
    HeartbeatDue,
    Left,
    Member,
    MembershipSettings,
    Phase,
    PollOverdue,
    PollRequested,
    Revoked,
)
from kctl.client.consuming.membership.runner import PURPOSE, MembershipRunner
from kctl.client.consuming.positions import Divergence, Position
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.records.batch import iterate_records
from kctl.records.header import BatchHeader, Record
from kctl.system.reference_cycles import copy_of

logger = logging.getLogger(__name__)

R = TypeVar("R")

IDLE_MS = 100
"""How long a poll waits for records."""
RECORDS_PER_POLL = 10_000
BEAT_MS_MIN = 20
TOPICS_MS = 1_000
"""How often the leader of a group looks whether it has to look up topics."""
START_MS = 5_000
"""How long a leader may take to respond with start positions before the partitions of others are read."""
LATE_MS = 1_000
"""How soon start positions are looked up again that could not be found."""
CLOSE_MS = 5_000
GIVING_UP_BEATS = 2
"""Heartbeat intervals within which other members receive their assignment, revoke partitions and rejoin."""

_OF_PARTITIONS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
"""Commit errors about a partition; all others are about the member."""
_REBALANCED = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS})
_NOT_YET = frozenset({*COORDINATOR_MOVED, ErrorCode.UNSTABLE_OFFSET_COMMIT})


def decode_records(_tp: TopicPartition, buffer: memoryview, header: BatchHeader) -> Iterator[tuple[list[Record], int]]:
    """Yield the records of a batch in one list, with the offset after it.  Raises CorruptBatch."""
    yield list(iterate_records(buffer, header)), header.next_offset


class GroupConsumer(Generic[R]):
    """A consumer in a group.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        settings: MembershipSettings,
        begin: Begin,
        decode: Decode[R],
        *,
        on_lost: Callable[[TopicPartition, int, int], None] = lambda *_: None,
        on_recreated: Callable[[str], None] = logger.warning,
        on_truncated: Callable[[Divergence, int], None] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        limits: FetchLimits | None = None,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
        auto_commit_interval_ms: int | None = 5_000,
        listener: RebalanceListener | None = None,
        on_committed: Callable[[Mapping[TopicPartition, CommittedOffset]], None] = lambda _: None,
    ) -> None:
        """`begin` returns the positions where to start without a committed offset, or with one outside the log, and
        those of a topic with another id, about which `on_recreated` gets a sentence.  `decode` returns the records of a
        batch, such as `decode_records`.

        `on_lost` gets a partition, its position outside the log and the new one.  `on_truncated` gets a divergence and
        the offset where reading continues: where the histories part, or that of `begin` if this is unknown; without it
        `poll` raises LogTruncated.
        With an `auto_commit_interval_ms` of None, only `commit` commits.  `on_committed` gets what was committed.
        """
        self.commits = self.commit_errors = self.joins = 0
        """How many commits have succeeded and failed, and how many times the group was joined."""
        self._on_committed = on_committed
        self._client = client
        self._begin = begin
        self._auto_commit_interval_ms = auto_commit_interval_ms
        self._progress = GroupProgress()
        self._runner = MembershipRunner(client, settings, self._progress.forget)
        self._listener = listener or RebalanceListener()
        self._announced: set[TopicPartition] = set()
        """Partitions that the listener has been notified of."""
        fetcher = Fetcher(
            decode,
            limits=limits or FetchLimits(),
            isolation=isolation,
            buffered_bytes_max=buffered_bytes_max,
            near_ms=client.settings.metadata_max_age_ms,
        )
        self.fetches = FetchRunner(
            client,
            fetcher,
            isolation,
            Recovery(begin, on_lost, on_truncated, on_recreated, self._runner.expect_changed_topics),
        )
        self._fetcher = fetcher
        self._committed_ms = self._polled_ms = self._runner.now_ms()
        self._committing = asyncio.Lock()
        self._waiting = 0
        """How many calls of the application wait for records."""
        self._has_polled = False
        self._tasks: list[asyncio.Task[None]] = []
        self._joining: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._settled: tuple[TopicPartition, ...] | None = None
        """The partitions of the member when settling ended."""
        self._has_joined = False
        self._late: dict[TopicPartition, int] = {}
        """Partitions without a start position, because their topic or leader is absent, and when to try again (ms)."""

    @property
    def member(self) -> Member:
        """The state of the member."""
        return self._runner.member

    @property
    def expects_more(self) -> bool:
        """True while this member has no partitions but other members still have to revoke some."""
        member = self.member
        patience_ms = GIVING_UP_BEATS * member.settings.heartbeat_interval_ms
        is_recent = self._runner.now_ms() < self._runner.assigned_ms + patience_ms
        return member.assignor == COOPERATIVE_STICKY and not member.owned and is_recent

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of every partition that is read."""
        return {**self._progress.done, **self._fetcher.positions}

    @property
    def metadata(self) -> GroupMetadata:
        """The member and its generation, with which a transaction commits offsets (KIP-447)."""
        member = self.member
        settings = member.settings
        return GroupMetadata(settings.group_id, member.generation, member.member_id, settings.group_instance_id)

    # What the application does.

    async def poll(self) -> list[tuple[TopicPartition, list[R]]]:
        """Return the next records by partition, empty if none arrived in time; join the group first if necessary.

        A call confirms the records returned before.  A member leaves the group if the next call comes later than
        max.poll.interval.ms (KIP-62).  Raises ApiError for errors that are not retriable (the group is full, the
        group.instance.id is fenced, ...), LogTruncated, CorruptBatch and ClusterUnreachable.
        """
        self.confirm()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + IDLE_MS / 1000
        with self.waiting():
            while True:
                self.fetches.arrived.clear()
                self.attend()
                self.fetches.raise_failure()
                if self._fetcher.has_records and (polled := self._take_all()):
                    return polled
                if loop.time() >= end_s and (self._settling is None or self._fetcher.partitions):
                    return []
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(max(end_s, loop.time() + IDLE_MS / 1000)):
                        await self.fetches.arrived.wait()

    def _take_all(self) -> list[tuple[TopicPartition, list[R]]]:
        polled: list[tuple[TopicPartition, list[R]]] = []
        count = 0
        while count < RECORDS_PER_POLL and (part := self._fetcher.next_part()) is not None:
            records = part.records[part.taken :]
            part.taken = len(part.records)
            count += len(records)
            if polled and polled[-1][0] == part.tp:
                polled[-1][1].extend(records)
            else:
                polled.append((part.tp, records))
        self.fetches.note_change()
        return polled

    @contextlib.contextmanager
    def waiting(self) -> Any:
        """While the application waits for records, max.poll.interval.ms does not pass."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            self.note_poll()

    def note_poll(self) -> None:
        """Restart max.poll.interval.ms: the application takes records that an earlier `poll` has returned.

        May be called in any thread.
        """
        self._has_polled = True

    @property
    def needs_attention(self) -> bool:
        """Whether the group requires something that only a poll may do.  May be called in any thread."""
        member = self._runner.member
        if self._settling is not None or self._runner.failure is not None:
            return True
        if member.owned is not self._settled:
            return True
        if self._late and self._runner.now_ms() >= min(self._late.values()):
            return True
        if member.phase is Phase.STABLE:
            return False
        joining = self._joining
        return joining is None or joining.done() or not self._fetcher.partitions

    def attend(self) -> None:
        """Start what the group requires, and raise what has failed; the application polls.

        Until a revocation has ended, no records of the revoked partitions are returned.
        """
        self.note_poll()
        self._start()
        if (settling := self._settling) is not None and settling.done():
            self._settling = None
            try:
                settling.result()
            finally:
                del settling
        if self._settling is None and self.needs_attention:
            if self._runner.failure is not None:
                raise copy_of(self._runner.failure)
            self._settling = asyncio.create_task(self._settle(), name="group settles")
            self._settling.add_done_callback(lambda _: self.fetches.arrived.set())
        self._fetcher.withheld = frozenset(self.member.revoking)
        if lost := [tp for tp in self._fetcher.partitions if tp not in self.member.owned]:
            self._fetcher.remove(lost)

    def confirm(self) -> None:
        """Mark all returned records as processed, so that they can be committed."""
        self._fetcher.finish_part()
        self._progress.confirm(self._fetcher.positions)

    def finish(self, tp: TopicPartition, offset: int) -> None:
        """Mark the partition as processed up to `offset`, exclusive, and stop fetching it until reassigned."""
        self._fetcher.remove([tp])
        self._progress.confirm({tp: offset})

    def seek(self, tp: TopicPartition, position: int | Position) -> None:
        """Continue with this offset.  Raises UsageError for a partition that is not assigned."""
        if tp not in self._fetcher:
            raise UsageError(f"{tp} is not assigned to this member")
        self._fetcher.set({tp: position})
        self._progress.confirm({tp: position.offset if isinstance(position, Position) else position})
        self.fetches.note_change()

    def with_epoch(self, tp: TopicPartition, offset: int) -> Position:
        """Return the offset with the leader epoch of the record before it, if this member has read it."""
        return self._fetcher.history.position(tp, offset)

    @property
    def paused(self) -> set[TopicPartition]:
        """Partitions that are not fetched; partitions that are revoked are removed."""
        return self._fetcher.paused

    # Commits.

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | Position | CommittedOffset] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit these offsets, or those of processed records, with the leader epochs of the records before them.

        Retries until the timeout.  Raises ApiError, ClusterUnreachable, and CommitFailed if the member has lost one of
        the given partitions; without `offsets`, partitions that were lost are left out.
        """
        commits = (
            None if offsets is None else {tp: self._fetcher.history.commit_of(tp, at) for tp, at in offsets.items()}
        )
        if commits is not None:
            self._progress.confirm({tp: commit.offset for tp, commit in commits.items()})
        deadline = self._client.deadline(timeout_ms)
        while not await self._commit_once(commits):
            if not await deadline.pause():
                group_id = self.member.settings.group_id
                raise ClusterUnreachable(f"group '{group_id}': no commit within {deadline.timeout_ms} ms")

    async def _commit_once(self, explicit: Mapping[TopicPartition, CommittedOffset] | None = None) -> bool:
        """Send one commit; return True if nothing is left to commit, without `explicit` also if partitions were lost.

        One commit at a time, so that they arrive in their order.
        """
        async with self._committing:
            member = self.member
            if explicit is None:
                done = self._progress.uncommitted(member.owned)
                commits = {tp: self._fetcher.history.commit_of(tp, offset) for tp, offset in done.items()}
                if not commits or not member.may_commit:
                    return True
            else:
                commits = dict(explicit)
                if self._runner.failure is not None:
                    raise copy_of(self._runner.failure)
                if lost := sorted(tp for tp in commits if tp not in member.owned):
                    raise CommitFailed(member.settings.group_id, lost[0])
                if not commits:
                    return True
            return await self._send_commits(commits, is_explicit=explicit is not None)

    async def _send_commits(self, commits: Mapping[TopicPartition, CommittedOffset], *, is_explicit: bool) -> bool:
        member = self.member
        generation = member.generation
        # The connection used for joining is blocked until all members have joined.
        is_aside = not member.is_in_generation
        self._committed_ms = self._runner.now_ms()
        try:
            codes = await commit_offsets(
                await self._runner.connect(purpose="" if is_aside else PURPOSE),
                member.settings.group_id,
                commits,
                member_id=member.member_id,
                generation=generation,
                group_instance_id=member.settings.group_instance_id,
            )
        except (ConnectionLost, ClusterUnreachable):
            if is_aside:
                self._runner.forget_coordinator()
            else:
                await self._runner.drive(Disconnected(member.phase))
            return False
        except ApiError as error:
            if error.code not in COORDINATOR_MOVED:
                raise
            self._runner.forget_coordinator()
            return False
        done = {tp: commits[tp].offset for tp, code in codes.items() if code is ErrorCode.NONE}
        self._progress.note_committed(done)
        self.commits += len(done) == len(codes)
        self.commit_errors += len(done) < len(codes)
        if done:
            self._on_committed({tp: commits[tp] for tp in done})
        for code in sorted(set(codes.values()) - {ErrorCode.NONE}):
            await self._runner.drive(CommitResultReceived(code, generation))
        for tp, code in codes.items():
            if code in GONE and not is_explicit:
                continue  # The topic was deleted, and its offsets with it.
            if code in _OF_PARTITIONS:
                raise ApiError(code, f"{tp}: cannot commit: {code.description}")
            if is_explicit and code in _REBALANCED:
                raise CommitFailed(member.settings.group_id, tp, code)
            if is_explicit and code is not ErrorCode.NONE and not code.retriable:
                raise ApiError(code, f"{tp}: cannot commit: {code.description}")
        return not any(code is not ErrorCode.NONE and code.retriable for code in codes.values()) or (
            not is_explicit and any(code in _REBALANCED for code in codes.values())
        )

    # The end.

    async def close(self, *, commits: bool = True, timeout_ms: int = CLOSE_MS) -> None:
        """Commit processed offsets and leave the group, if that is possible in time.

        A cancellation ends the wait for the step in progress, but the following steps are done: a member that does not
        leave holds its partitions until its session expires.
        """
        self._runner.is_closing = True
        tasks, self._tasks = self._tasks, []
        tasks += [task for task in (self._joining, self._settling) if task is not None]
        self._joining = self._settling = None
        problems: list[BaseException] = []
        steps: list[Callable[[], Coroutine[Any, Any, None]]] = [
            lambda: self._end_tasks(tasks),
            lambda: self._last_commit(timeout_ms if commits and self._auto_commit_interval_ms is not None else 0),
            lambda: self._announce_revoked(sorted(self._announced)),
            self.fetches.close,
            lambda: self._leave(self._runner.step(Left()), timeout_ms),
        ]
        for step in steps:
            try:
                await step()
            except (asyncio.CancelledError, Exception) as problem:  # the following steps are done nevertheless
                problems.append(problem)
        if problems:
            try:
                raise problems[0]
            finally:
                problems.clear()

    async def _end_tasks(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _last_commit(self, timeout_ms: int) -> None:
        if timeout_ms <= 0:
            return
        with contextlib.suppress(KctlError, TimeoutError):  # The records will be read again: at least once.
            async with asyncio.timeout(timeout_ms / 1000):
                await self.commit(timeout_ms=timeout_ms)

    async def _leave(self, actions: Collection[Any], timeout_ms: int) -> None:
        """Send LeaveGroup; a second time after a cancellation, which may have come before it was sent."""
        for is_last in (False, True):
            try:
                with contextlib.suppress(KctlError, TimeoutError):  # the session expires in the end
                    async with asyncio.timeout(max(timeout_ms, IDLE_MS) / 1000):
                        await self._runner.perform_all(actions)
                return
            except asyncio.CancelledError:
                if is_last:
                    raise

    # Settling.

    async def _settle(self) -> None:
        """End when this member has partitions and positions: in a generation, or cooperatively while rejoining."""
        member = self.member
        while True:
            if self._runner.failure is not None:
                raise copy_of(self._runner.failure)
            self._read_only_owned()
            if lost := self._progress.missing(self._announced):
                self._announced.difference_update(lost)
                await self._listener.on_lost(sorted(lost))
            if self._joining is not None:
                if not self._joining.done() and self._fetcher.partitions:
                    break
                await self._end_join()
            elif member.phase is Phase.REVOKING:
                if self._auto_commit_interval_ms is not None:
                    await self._commit_before_revocation()
                await self._announce_revoked(member.revoking)
                self._drive_aside(Revoked())
            elif member.phase is not Phase.STABLE:
                if member.phase is Phase.OUTSIDE:
                    await self._match_topics()
                self._drive_aside(PollRequested())
            elif given := self._without_positions():
                await self._look_up_positions(given)
            else:
                break
        self._settled = member.owned
        self._has_joined = True
        self._runner.renew_deadline()
        self.fetches.note_change()

    async def _end_join(self) -> None:
        """Wait for the join.  Raises ApiError, and ClusterUnreachable at the first join; the next poll joins again."""
        joining, self._joining = self._joining, None
        assert joining is not None
        try:
            await joining
        except KctlError as error:
            actions = self._runner.step(Disconnected(self.member.phase))  # The outcome of the request is unknown.
            self._runner.renew_deadline()
            if not self._has_joined or not isinstance(error, ClusterUnreachable):
                self._runner.forget_coordinator()
                raise
            logger.warning("cannot join: %s", error)
            await self._runner.perform_all(actions)
        finally:
            del joining

    async def _match_topics(self) -> None:
        try:
            await self._runner.match_topics()
        except ClusterUnreachable as error:
            if not self._has_joined:
                raise
            logger.warning("cannot look up topics: %s", error)

    def _without_positions(self) -> list[TopicPartition]:
        """Return the partitions whose start positions are to be looked up now."""
        now_ms = self._runner.now_ms()
        missing = self._progress.missing(self.member.owned)
        self._late = {tp: self._late[tp] for tp in missing if tp in self._late}
        return [tp for tp in missing if now_ms >= self._late.get(tp, 0)]

    async def _commit_before_revocation(self) -> None:
        try:
            await self.commit()
        except (ApiError, ClusterUnreachable) as error:
            logger.warning("cannot commit before a revocation: %s", error)

    async def _announce_revoked(self, partitions: Collection[TopicPartition]) -> None:
        revoked = self._announced.intersection(partitions)
        self._announced -= revoked
        if revoked:
            await self._listener.on_revoked(sorted(revoked))

    def _drive_aside(self, event: Event) -> None:
        """Join, and wait for the response only if there is nothing to read meanwhile.

        The state of the member changes at once, so partitions that it revokes by joining are not read any more.
        """
        actions = self._runner.step(event)
        self.joins += 1
        self._joining = asyncio.create_task(self._runner.perform_all(actions), name="group join")
        self._joining.add_done_callback(lambda _: self.fetches.arrived.set())

    def _read_only_owned(self) -> None:
        owned = self.member.owned
        self._progress.keep_only(owned)
        kept = set(owned).difference(self._progress.missing(owned))
        self._fetcher.remove([tp for tp in self._fetcher.partitions if tp not in kept])

    async def _look_up_positions(self, given: Collection[TopicPartition]) -> None:
        committed = await self._request_committed(given)
        begun = await self._begin_fresh([tp for tp in given if tp not in committed])
        positions = {**begun, **committed}
        self._fetcher.set(positions)
        self._progress.begin(positions, {tp: position.offset for tp, position in committed.items()})
        self._announced.update(positions)
        if positions:
            await self._listener.on_assigned(sorted(positions))

    async def _begin_fresh(self, fresh: list[TopicPartition]) -> Mapping[TopicPartition, Position]:
        """Start positions; a topic that was deleted or has no leaders does not keep the others from being read."""
        if not fresh:
            return {}
        metadata = await self._client.metadata({tp.topic for tp in fresh})
        by_leader: dict[tuple[str, int], list[TopicPartition]] = {}
        for tp in fresh:
            by_leader.setdefault((tp.topic, metadata.leader_of(tp)[0]), []).append(tp)
        tasks = {asyncio.ensure_future(self._begin(tps)): tps for tps in by_leader.values()}
        begun: dict[TopicPartition, Position] = {}
        try:
            done, _ = await asyncio.wait(tasks, timeout=START_MS / 1000)
            for task, tps in tasks.items():
                try:
                    if task not in done:
                        raise ClusterUnreachable(f"the leader of {tps[0]} does not respond")
                    begun.update(task.result())
                except KctlError as error:
                    self._note_late(tps, error)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return begun

    def _note_late(self, tps: Collection[TopicPartition], error: KctlError) -> None:
        """Start positions are looked up again later, or the error is raised."""
        is_absent = isinstance(error, ClusterUnreachable) or (
            isinstance(error, ApiError) and (error.code in GONE or error.code.retriable)
        )
        if not is_absent:
            raise error
        logger.warning("no start positions: %s", error)
        self._late.update(dict.fromkeys(tps, self._runner.now_ms() + LATE_MS))
        self._runner.expect_changed_topics()

    async def _request_committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        while True:
            try:
                connection = await self._runner.connect()
                found = await committed_offsets(connection, self.member.settings.group_id, partitions)
                return {tp: commit.position for tp, commit in found.items()}
            except (ConnectionLost, ClusterUnreachable) as lost:
                await self._runner.look_elsewhere(str(lost))
            except ApiError as error:
                if error.code not in _NOT_YET:
                    raise
                await self._runner.look_elsewhere(str(error))

    # In the background.

    def _start(self) -> None:
        if not self._tasks and not self._runner.is_closing:
            loops: list[tuple[str, Coroutine[Any, Any, None]]] = [
                ("group heartbeats", self._keep_beating()),
                ("group topics", self._keep_looking()),
            ]
            if self._auto_commit_interval_ms is not None:
                loops.append(("automatic commits", self._keep_committing(self._auto_commit_interval_ms)))
            self._tasks = [asyncio.create_task(loop, name=name) for name, loop in loops]
            self.fetches.start()

    async def _keep_committing(self, interval_ms: int) -> None:
        """Commit what the application has processed; an error is reported by the commit before a revocation."""
        while True:
            wait_ms = max(BEAT_MS_MIN, self._committed_ms + interval_ms - self._runner.now_ms())
            await self._client.transport.sleep(wait_ms)
            if self._runner.now_ms() < self._committed_ms + interval_ms:
                continue
            self._committed_ms = self._runner.now_ms()
            self._progress.confirm(self._fetcher.processed)
            try:
                await self._commit_once()
            except KctlError as error:
                logger.warning("cannot commit group=%s: %s", self.member.settings.group_id, error)

    async def _keep_looking(self) -> None:
        """Look for topics that are new, gone or have more partitions."""
        interval_ms = max(BEAT_MS_MIN, min(TOPICS_MS, self._client.settings.metadata_max_age_ms))
        while True:
            await self._client.transport.sleep(interval_ms)
            try:
                await self._runner.look_for_changed_topics()
            except KctlError as error:
                logger.warning("cannot look up topics group=%s: %s", self.member.settings.group_id, error)

    async def _keep_beating(self) -> None:
        settings = self.member.settings
        while True:
            wait_ms = settings.heartbeat_interval_ms
            if self.member.phase is not Phase.OUTSIDE or self.member.owned:
                wait_ms = min(wait_ms, max(self.member.next_beat_ms - self._runner.now_ms(), BEAT_MS_MIN))
            await self._client.transport.sleep(wait_ms)
            before = self.member.phase
            try:
                await self._leave_if_overdue()
                await self._runner.drive(HeartbeatDue())
            except ClusterUnreachable:
                continue  # The session expires in the end, or the group is joined again.
            except ApiError as error:
                self._runner.failure = copy_of(error)
                self.fetches.arrived.set()
                return
            if self.member.phase is not before or self._runner.failure is not None:
                self.fetches.arrived.set()

    async def _leave_if_overdue(self) -> None:
        """Leave the group if the application does not poll; the next `poll` joins it again."""
        now_ms = self._runner.now_ms()
        interval_ms = self.member.settings.rebalance_timeout_ms
        if self._waiting or self._has_polled:
            self._polled_ms, self._has_polled = now_ms, False
        if now_ms < self._polled_ms + interval_ms:
            return
        actions = self._runner.step(PollOverdue())
        if actions:
            group_id = self.member.settings.group_id
            logger.warning("left the group: poll is overdue group=%s max_poll_interval_ms=%d", group_id, interval_ms)
        with contextlib.suppress(KctlError):  # the session expires in the end
            await self._runner.perform_all(actions)

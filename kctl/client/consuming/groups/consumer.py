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
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.fetching.fetcher import BUFFERED_BYTES_MAX, Decode, Fetcher
from kctl.client.consuming.fetching.runner import FetchRunner, Recovery
from kctl.client.consuming.groups.commits import GroupCommits
from kctl.client.consuming.groups.metadata import GroupMetadata, RebalanceListener
from kctl.client.consuming.groups.progress import GroupProgress
from kctl.client.consuming.groups.settling import GroupSettling
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.membership.consumer_protocol import ConsumerMember
from kctl.client.consuming.membership.member import (
    HeartbeatDue,
    Left,
    Member,
    MembershipSettings,
    Phase,
    PollOverdue,
)
from kctl.client.consuming.membership.runner import MembershipRunner
from kctl.client.consuming.positions import Begin, Divergence, Position
from kctl.errors import ApiError, ClusterUnreachable, KctlError, UsageError
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
BEAT_CHECK_MS = 500
"""How soon a member reports what it owns, and is looked after by its heartbeats."""
TOPICS_MS = 1_000
"""How often the leader of a group looks whether it has to look up topics."""
CLOSE_MS = 5_000
GIVING_UP_BEATS = 2
"""Heartbeat intervals within which other members receive their assignment, revoke partitions and rejoin."""


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
        self._client = client
        self._auto_commit_interval_ms = auto_commit_interval_ms
        self._progress = GroupProgress()
        self._runner = MembershipRunner(client, settings, self._progress.forget)
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
        self._commits = GroupCommits(client, self._runner, self._progress, fetcher, self.fetches.topic_id, on_committed)
        self._settlement = GroupSettling(
            client,
            self._runner,
            self._progress,
            self.fetches,
            begin,
            self._commits,
            listener or RebalanceListener(),
            commits_before_revocation=auto_commit_interval_ms is not None,
        )
        self._settling: asyncio.Task[None] | None = None
        """What a poll has started."""
        self._polled_ms = self._runner.now_ms()
        self._waiting = 0
        """How many calls of the application wait for records."""
        self._has_polled = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def member(self) -> Member | ConsumerMember:
        """The state of the member."""
        return self._runner.member

    @property
    def commits(self) -> int:
        """How many commits have succeeded."""
        return self._commits.count

    @property
    def commit_errors(self) -> int:
        """How many commits have failed."""
        return self._commits.error_count

    @property
    def joins(self) -> int:
        """How many times the group was joined."""
        return self._runner.joins

    @property
    def expects_more(self) -> bool:
        """True while this member has no partitions but other members still have to revoke some."""
        member = self.member
        patience_ms = GIVING_UP_BEATS * member.heartbeat_interval_ms
        is_recent = self._runner.now_ms() < self._runner.assigned_ms + patience_ms
        return member.is_expecting_more and is_recent

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
        return self._settling is not None or self._settlement.is_needed

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
            self._settling = asyncio.create_task(self._settlement.settle(), name="group settles")
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
        await self._commits.commit(offsets, timeout_ms=timeout_ms)

    # The end.

    async def close(self, *, commits: bool = True, timeout_ms: int = CLOSE_MS) -> None:
        """Commit processed offsets and leave the group, if that is possible in time.

        A cancellation ends the wait for the step in progress, but the following steps are done: a member that does not
        leave holds its partitions until its session expires.
        """
        self._runner.is_closing = True
        tasks, self._tasks = self._tasks, []
        tasks += [task for task in (self._settlement.joining, self._settling) if task is not None]
        self._settlement.joining = self._settling = None
        problems: list[BaseException] = []
        steps: list[Callable[[], Coroutine[Any, Any, None]]] = [
            lambda: self._end_tasks(tasks),
            lambda: self._last_commit(timeout_ms if commits and self._auto_commit_interval_ms is not None else 0),
            lambda: self._settlement.announce_revoked(sorted(self._settlement.announced)),
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
            wait_ms = max(BEAT_MS_MIN, self._commits.sent_ms + interval_ms - self._runner.now_ms())
            await self._client.transport.sleep(wait_ms)
            if self._runner.now_ms() < self._commits.sent_ms + interval_ms:
                continue
            self._commits.sent_ms = self._runner.now_ms()
            self._progress.confirm(self._fetcher.processed)
            try:
                await self._commits.commit_once()
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
        while True:
            member = self.member
            wait_ms = min(member.settings.heartbeat_interval_ms, BEAT_CHECK_MS)
            if member.phase is not Phase.OUTSIDE or member.owned:
                wait_ms = min(wait_ms, max(member.next_beat_ms - self._runner.now_ms(), BEAT_MS_MIN))
            await self._client.transport.sleep(wait_ms)
            before = member.phase, member.owned
            try:
                await self._leave_if_overdue()
                await self._runner.drive(HeartbeatDue())
            except ClusterUnreachable:
                continue  # The session expires in the end, or the group is joined again.
            except ApiError as error:
                self._runner.failure = copy_of(error)
                self.fetches.arrived.set()
                return
            if (member.phase, member.owned) != before or self._runner.failure is not None:
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

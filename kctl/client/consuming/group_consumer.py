"""Consumes the partitions that a group assigns: group membership and heartbeats around a simple consumer.

    poll() -> settle (join, sync, fetch committed offsets) -> fetch
    concurrently: heartbeats; joins of a cooperative member, which continues to fetch

The state of the member determines which partitions may be read; the consumer's partitions change inside `poll` only, so
that none is revoked between two calls.  Delivery is at least once: records after the last commit are read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.consuming.assignors import COOPERATIVE_STICKY
from kctl.client.consuming.committed_offsets import commit_of, commit_offsets, committed_offsets
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.fetching import FetchLimits
from kctl.client.consuming.group_metadata import GroupMetadata, RebalanceListener
from kctl.client.consuming.group_progress import Begin, GroupProgress, lost_positions, reset_positions
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
from kctl.client.consuming.positions import Divergence, LogTruncated, Position
from kctl.client.metadata import TopicRecreated
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.records.header import Record
from kctl.system.reference_cycles import copy_of

logger = logging.getLogger(__name__)

IDLE_MS = 100
"""How often a member without partitions checks for an assignment."""
BEAT_MS_MIN = 20
CLOSE_MS = 5_000
GIVING_UP_BEATS = 2
"""Heartbeat intervals within which other members receive their assignment, revoke partitions and rejoin."""

_OF_PARTITIONS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)
"""Commit errors about a partition; all others are about the member."""
GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""A topic that was deleted, or that a broker does not know yet."""
_NOT_YET = frozenset({*COORDINATOR_MOVED, ErrorCode.UNSTABLE_OFFSET_COMMIT})


class GroupConsumer:
    """A consumer in a group.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        settings: MembershipSettings,
        begin: Begin,
        *,
        on_lost: Callable[[TopicPartition, int, int], None] = lambda *_: None,
        on_recreated: Callable[[str], None] = logger.warning,
        on_truncated: Callable[[Divergence, int], None] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        limits: FetchLimits | None = None,
        auto_commit_interval_ms: int | None = 5_000,
        listener: RebalanceListener | None = None,
    ) -> None:
        """`begin` returns the positions where to start without a committed offset, or with one outside the log, and
        those of a topic with another id, about which `on_recreated` gets a sentence.

        `on_lost` gets a partition, its position outside the log and the new one.  `on_truncated` gets a divergence and
        the offset where reading continues: where the histories part, or that of `begin` if this is unknown; without it
        `poll` raises LogTruncated.
        With an `auto_commit_interval_ms` of None, only `commit` commits.
        """
        self._client = client
        self._begin = begin
        self._on_lost = on_lost
        self._on_recreated = on_recreated
        self._on_truncated = on_truncated
        self._consumer = Consumer(client, {}, limits=limits, isolation=isolation)
        self._auto_commit_interval_ms = auto_commit_interval_ms
        self._progress = GroupProgress()
        self._runner = MembershipRunner(client, settings, self._progress.forget)
        self._listener = listener or RebalanceListener()
        self._announced: set[TopicPartition] = set()
        """Partitions that the listener has been notified of."""
        self._committed_ms = self._polled_ms = self._runner.now_ms()
        self._is_polling = self._has_polled = False
        self._heartbeats: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[None] | None = None

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
        return {**self._progress.done, **self._consumer.positions}

    @property
    def metadata(self) -> GroupMetadata:
        """The member and its generation, with which a transaction commits offsets (KIP-447)."""
        member = self.member
        settings = member.settings
        return GroupMetadata(settings.group_id, member.generation, member.member_id, settings.group_instance_id)

    async def poll(self) -> list[tuple[TopicPartition, list[Record]]]:
        """The next records by partition, empty if none arrived in time; joins the group first if necessary.

        A call confirms the records returned before.  A member leaves the group if the next call comes later than
        max.poll.interval.ms (KIP-62).  Raises ApiError for errors that are not retriable (the group is full, the
        group.instance.id is fenced, ...), LogTruncated, CorruptBatch and ClusterUnreachable.
        """
        self._is_polling = True
        try:
            return await self._poll()
        finally:
            self._is_polling = False
            self.note_poll()

    def note_poll(self) -> None:
        """Restarts max.poll.interval.ms: the application takes records that an earlier `poll` has returned.

        May be called in any thread.
        """
        self._has_polled = True

    async def _poll(self) -> list[tuple[TopicPartition, list[Record]]]:
        self.confirm()
        if self._runner.failure is not None:
            raise copy_of(self._runner.failure)
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._keep_beating(), name="group heartbeats")
        await self._settle()
        interval_ms = self._auto_commit_interval_ms
        if interval_ms is not None and self._runner.now_ms() >= self._committed_ms + interval_ms:
            await self._commit_once()
        if not self._consumer.positions:
            await self._client.transport.sleep(IDLE_MS)
            return []
        try:
            return await self._consumer.poll()
        except TopicRecreated as change:
            await self._restart_topic(change)
            return []
        except LogTruncated as truncated:
            await self._continue_after(truncated)
            return []
        except ApiError as error:
            if error.code in GONE:
                # The next poll notices if the topic was created again; if it was deleted, the group leader does.
                self._runner.expect_changed_topics()
                self._consumer.assign(self._consumer.positions)
                await self._client.transport.sleep(IDLE_MS)
                return []
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await self._begin_again()
            return []

    def confirm(self) -> None:
        """Marks all returned records as processed, so that they can be committed."""
        self._progress.confirm(self._consumer.positions)

    def finish(self, tp: TopicPartition, offset: int) -> None:
        """Marks the partition as processed up to `offset`, exclusive, and stops fetching it until reassigned."""
        self._consumer.drop(tp)
        self._progress.confirm({tp: offset})

    def seek(self, tp: TopicPartition, position: int | Position) -> None:
        """Continues with this offset.  Raises UsageError for a partition that is not assigned."""
        if tp not in self._consumer.positions:
            raise UsageError(f"{tp} is not assigned to this member")
        if isinstance(position, Position):
            self._consumer.restart({tp: position})
        else:
            self._consumer.positions[tp] = position
        self._progress.confirm({tp: self._consumer.positions[tp]})

    def with_epoch(self, tp: TopicPartition, offset: int) -> Position:
        """The offset with the leader epoch of the record before it, if this member has read it."""
        return self._consumer.history.position(tp, offset)

    @property
    def paused(self) -> set[TopicPartition]:
        """Partitions that are not fetched; partitions that are revoked are removed."""
        return self._consumer.paused

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits these offsets, or those of processed records, with the leader epochs of the records before them.

        Raises ApiError and ClusterUnreachable, but nothing after a rebalance: the new owners of the partitions then
        read the uncommitted records again.
        """
        if offsets is not None:
            self._progress.confirm(offsets)
        deadline = self._client.deadline()
        while not await self._commit_once(offsets):
            if not await deadline.pause():
                raise ClusterUnreachable(f"group '{self.member.settings.group_id}': its coordinator does not respond")

    async def close(self) -> None:
        """Commits processed offsets and leaves the group, if that is possible within a few seconds."""
        self._runner.is_closing = True
        tasks = [task for task in (self._heartbeats, self._joining) if task is not None]
        self._heartbeats = self._joining = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_MS / 1000):
                if self._auto_commit_interval_ms is not None:
                    await self.commit()
        except (KctlError, TimeoutError):
            pass  # The records will be read again: delivery is at least once.
        try:
            await self._announce_revoked(self._announced)
        finally:
            with contextlib.suppress(KctlError, TimeoutError):  # the session expires in the end
                async with asyncio.timeout(CLOSE_MS / 1000):
                    await self._runner.drive(Left())

    async def _settle(self) -> None:
        """Returns when this member has partitions and positions: in a generation, or cooperatively while rejoining."""
        member = self.member
        while True:
            if self._runner.failure is not None:
                raise copy_of(self._runner.failure)
            self._read_only_owned()
            if lost := self._progress.missing(self._announced):
                self._announced.difference_update(lost)
                await self._listener.on_lost(sorted(lost))
            if self._joining is not None:
                if not self._joining.done() and self._consumer.positions:
                    return
                joining, self._joining = self._joining, None
                await joining
            elif member.phase is Phase.REVOKING:
                if self._auto_commit_interval_ms is not None:
                    await self.commit()
                await self._announce_revoked(member.revoking)
                self._drive_aside(Revoked())
            elif member.phase is not Phase.STABLE:
                self._drive_aside(PollRequested())
            elif given := self._progress.missing(member.owned):
                await self._look_up_positions(given)
            else:
                break
        self._runner.renew_deadline()

    async def _announce_revoked(self, partitions: Collection[TopicPartition]) -> None:
        revoked = self._announced.intersection(partitions)
        self._announced -= revoked
        if revoked:
            await self._listener.on_revoked(sorted(revoked))

    def _drive_aside(self, event: Event) -> None:
        """Joins, and waits for the response only if there is nothing to read meanwhile.

        The state of the member changes at once, so partitions that it revokes by joining are not read any more.
        """
        actions = self._runner.step(event)
        self._joining = asyncio.create_task(self._runner.perform_all(actions), name="group join")

    def _read_only_owned(self) -> None:
        self._progress.keep_only(self.member.owned)
        positions = self._consumer.positions
        lost = set(self._progress.missing(positions))
        if lost:
            self._consumer.assign({tp: position for tp, position in positions.items() if tp not in lost})

    async def _look_up_positions(self, given: Collection[TopicPartition]) -> None:
        committed = await self._request_committed(given)
        fresh = [tp for tp in given if tp not in committed]
        begun = await self._begin(fresh) if fresh else {}
        self._consumer.assign({**self._consumer.positions, **begun, **committed})
        self._progress.begin(given, {tp: position.offset for tp, position in committed.items()})
        self._announced.update(given)
        await self._listener.on_assigned(sorted(given))

    async def _request_committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        while True:
            try:
                connection = await self._runner.connect()
                found = await committed_offsets(connection, self.member.settings.group_id, partitions)
                return {tp: commit.position for tp, commit in found.items()}
            except ConnectionLost as lost:
                await self._runner.look_elsewhere(str(lost))
            except ApiError as error:
                if error.code not in _NOT_YET:
                    raise
                await self._runner.look_elsewhere(str(error))

    async def _restart_topic(self, change: TopicRecreated) -> None:
        """Reads the partitions of a topic with another id from what `begin` returns."""
        tps = [tp for tp in self._consumer.positions if tp.topic == change.topic]
        try:
            begun = await self._begin(tps)
        except ApiError as error:
            if not error.code.retriable:
                raise
            return  # It has no leaders yet; the next poll tries again.
        self._on_recreated(str(change))
        self._consumer.restart_topic(change.topic, begun)

    async def _begin_again(self) -> None:
        """Resets positions outside the log to what `begin` returns; calls `on_lost` or `on_truncated` for each."""
        try:
            await self._consumer.check_topics()
        except TopicRecreated as change:
            await self._restart_topic(change)
            return
        positions = self._consumer.positions
        lost = await lost_positions(self._client, positions)
        truncated = [
            Divergence(tp, self.with_epoch(tp, positions[tp]), None) for tp, is_after in lost.items() if is_after
        ]
        if truncated:
            await self._continue_after(LogTruncated(truncated))
        early = [tp for tp, is_after in lost.items() if not is_after]
        begun = await self._begin(early) if early else {}
        for tp, position in begun.items():
            self._on_lost(tp, positions[tp], position.offset)
        self._consumer.assign({**positions, **begun})

    async def _continue_after(self, truncated: LogTruncated) -> None:
        """Sets the positions that the log no longer has to where the histories part, or raises the error."""
        report = self._on_truncated
        if report is None:
            raise truncated
        positions = await reset_positions(truncated.divergences, self._begin)
        for divergence in truncated.divergences:
            report(divergence, positions[divergence.tp].offset)
        self._consumer.restart(positions)

    async def _commit_once(self, selected: Collection[TopicPartition] | None = None) -> bool:
        """Sends one commit, of all or of selected partitions.

        Returns True if nothing is left to commit, also because the partitions were lost.
        """
        member = self.member
        offsets = self._progress.uncommitted(member.owned if selected is None else selected)
        if not offsets or not member.may_commit:
            return True
        generation = member.generation
        # The connection used for joining is blocked until all members have joined.
        is_aside = member.phase is Phase.JOINING
        self._committed_ms = self._runner.now_ms()
        try:
            codes = await commit_offsets(
                await self._runner.connect(purpose="" if is_aside else PURPOSE),
                member.settings.group_id,
                {tp: commit_of(self.with_epoch(tp, offset)) for tp, offset in offsets.items()},
                member_id=member.member_id,
                generation=generation,
                group_instance_id=member.settings.group_instance_id,
            )
        except ConnectionLost:
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
        self._progress.note_committed({tp: offsets[tp] for tp, code in codes.items() if code is ErrorCode.NONE})
        for code in set(codes.values()) - {ErrorCode.NONE}:
            await self._runner.drive(CommitResultReceived(code, generation))
        for tp, code in codes.items():
            if code in GONE and selected is None:
                continue  # The topic was deleted, and its offsets with it.
            if code in _OF_PARTITIONS:
                raise ApiError(code, f"{tp}: cannot commit: {code.description}")
        return not any(code in COORDINATOR_MOVED for code in codes.values())

    async def _keep_beating(self) -> None:
        settings = self.member.settings
        while True:
            wait_ms = settings.heartbeat_interval_ms
            if self.member.phase is not Phase.OUTSIDE or self.member.owned:
                wait_ms = min(wait_ms, max(self.member.next_beat_ms - self._runner.now_ms(), BEAT_MS_MIN))
            await self._client.transport.sleep(wait_ms)
            try:
                await self._leave_if_overdue()
                await self._runner.drive(HeartbeatDue())
                await self._runner.look_for_changed_topics()
            except ClusterUnreachable:
                continue  # The next poll reports the problem, or the session expires.
            except ApiError as error:
                self._runner.failure = copy_of(error)
                return

    async def _leave_if_overdue(self) -> None:
        """Leaves the group if the application does not poll; the next `poll` joins it again."""
        now_ms = self._runner.now_ms()
        interval_ms = self.member.settings.rebalance_timeout_ms
        if self._is_polling or self._has_polled:
            self._polled_ms, self._has_polled = now_ms, False
        if now_ms < self._polled_ms + interval_ms:
            return
        actions = self._runner.step(PollOverdue())
        if actions:
            group_id = self.member.settings.group_id
            logger.warning("left the group: poll is overdue group=%s max_poll_interval_ms=%d", group_id, interval_ms)
        with contextlib.suppress(KctlError):  # the session expires in the end
            await self._runner.perform_all(actions)

"""The consumer for applications with an event loop; kctl.client.application.blocking_consumer is for the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from kctl.client.application.consumer_records import (
    ConsumerRecord,
    K,
    RawRecord,
    Unprepared,
    V,
    announce_commit,
    decode_raw,
    deserialized,
    intercepted,
    without_waiting,
)
from kctl.client.application.offset_lookups import OffsetLookups, note_outcome
from kctl.client.application.settings import ConsumerConfig, Deserializer, Subscription, as_is
from kctl.client.application.telemetry.payload import Metric
from kctl.client.application.telemetry.standard_metrics import consumer_metrics
from kctl.client.connections.traffic import Window
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import CommittedOffset, commit_offsets, no_topic_id
from kctl.client.consuming.fetching.fetcher import Fetcher, Part
from kctl.client.consuming.fetching.runner import FetchRunner, Recovery
from kctl.client.consuming.groups.consumer import CLOSE_MS, GroupConsumer
from kctl.client.consuming.groups.metadata import GroupMetadata, RebalanceListener, require_offsets
from kctl.client.consuming.positions import Divergence, Position
from kctl.client.consuming.read_history import ReadHistory
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

ITERATION_POLL_S = 60
TURN_S = 0.02
"""How long an iteration may go on before other tasks of the event loop get a turn."""
Offset = int | Position | CommittedOffset
"""What is committed: an offset, one with a leader epoch, or one with metadata."""


class WokenUp(KctlError):
    """`wakeup` was called, or another thread closes the consumer.  Java's WakeupException."""


class AsyncConsumer(OffsetLookups, Generic[K, V]):
    """Reads the partitions that a group or the caller assigns; use as an async context manager.  Owner: event loop.

    Records are fetched in the background.  A call that is cancelled leaves the consumer as it was: no record is lost,
    and what was started for the group goes on.
    """

    @overload
    def __init__(self: AsyncConsumer[Any, Any], config: ConsumerConfig) -> None: ...

    @overload
    def __init__(
        self,
        config: ConsumerConfig,
        *,
        key_deserializer: Callable[[bytes | None], K],
        value_deserializer: Callable[[bytes | None], V],
    ) -> None: ...

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        """Prepare the consumer; the deserializers replace those of the settings, and give the records their types."""
        super().__init__(config)
        self._deserializers = (
            key_deserializer or config.key_deserializer,
            value_deserializer or config.value_deserializer,
        )
        self._is_raw = self._deserializers == (as_is, as_is)
        self._on_loop = tuple(map(without_waiting, self._deserializers))
        self._group: GroupConsumer[RawRecord] | None = None
        self._fetches: FetchRunner[RawRecord] | None = None
        """Of the group, or of partitions without group membership."""
        self._ending: asyncio.Task[None] | None = None
        """The end of the last subscription or assignment."""
        self._closing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error_type: object, *_: object) -> None:
        await self.close(commit=error_type is None)

    # What is read.

    async def subscribe(self, topics: Subscription, listener: RebalanceListener | None = None) -> None:
        """Read the partitions that the group assigns, of these topics, or of those whose whole names match a pattern.

        A pattern is one of `re.compile` or a SubscriptionPattern.  The group is joined by `poll`.  New partitions and
        topics are read after metadata_max_age_ms at most.

        Replaces an earlier subscription or assignment.  Raises UsageError without a group_id.
        """
        if isinstance(topics, str):
            raise UsageError("subscribe takes a list of topics, or a pattern of re.compile or SubscriptionPattern")
        config = self._config
        settings = config.membership(topics)
        self._require_open()
        await self.unsubscribe()
        self._group = GroupConsumer(
            self._client,
            settings,
            self._begin,
            decode_raw,
            isolation=config.isolation,
            limits=config.fetch_limits(),
            buffered_bytes_max=config.fetch_buffer_bytes,
            auto_commit_interval_ms=config.auto_commit_interval_ms if config.enable_auto_commit else None,
            listener=listener,
            on_committed=self._announce_commit,
            on_truncated=None if config.auto_offset_reset == "none" else _report_reset,
        )
        self._fetches = self._group.fetches

    async def assign(self, partitions: Collection[TopicPartition] | Mapping[TopicPartition, int | Position]) -> None:
        """Read these partitions, from the given offsets, else from the committed ones, else by auto_offset_reset.

        `poll` checks that the log still has the history before committed offsets and before each Position.  Raises
        ApiError and ClusterUnreachable.
        """
        self._require_open()
        await self.unsubscribe()
        if isinstance(partitions, Mapping):
            positions: dict[TopicPartition, int | Position] = dict(partitions)
        else:
            commits = {} if self._config.group_id is None else await self._commits(partitions)
            positions = {tp: commit.position for tp, commit in commits.items()}
            positions.update(await self._begin([tp for tp in partitions if tp not in positions]))
        config = self._config
        fetcher = Fetcher(
            decode_raw,
            limits=config.fetch_limits(),
            isolation=config.isolation,
            buffered_bytes_max=config.fetch_buffer_bytes,
            near_ms=config.metadata_max_age_ms,
        )
        fetcher.set(positions)
        raises = config.auto_offset_reset == "none"
        recovery = Recovery(
            self._begin,
            on_truncated=None if raises else _report_reset,
            on_recreated=None if raises else _report_recreated,
        )
        self._fetches = FetchRunner(self._client, fetcher, config.isolation, recovery)
        self._fetches.start()

    async def unsubscribe(self, *, commit: bool = True) -> None:
        """Leave the group, after a commit if commits are automatic, and drop the partitions."""
        await self._end(commit=commit, timeout_ms=CLOSE_MS)

    async def close(self, *, commit: bool = True, timeout_ms: int = CLOSE_MS) -> None:
        """Leave the group and close the connections; commit before if `commit` and commit are automatic.

        Takes about twice the timeout at most.  Does not raise for an unreachable cluster.  If the call is cancelled,
        closing goes on, and another call waits for it.
        """
        if self._closing is None:
            if self._pid != os.getpid():
                self._is_closed = True
                return  # The member belongs to the process that has forked.
            self._is_closed = True
            self._notify()
            self._closing = asyncio.create_task(self._close(commit, timeout_ms), name="close consumer")
            self._closing.add_done_callback(note_outcome)
        await asyncio.shield(self._closing)

    async def _close(self, commit: bool, timeout_ms: int) -> None:
        is_cancelled = False
        last_push = self._start_last_push(timeout_ms)
        for _ in range(2):
            try:
                await self._end(commit=commit, timeout_ms=timeout_ms)
                break
            except asyncio.CancelledError:
                is_cancelled = True
        for task in list(self._shared):
            task.cancel()
        try:
            await asyncio.gather(*self._shared, last_push, return_exceptions=True)
        finally:
            await self._client.close()
        if is_cancelled:
            raise asyncio.CancelledError

    async def _end(self, *, commit: bool, timeout_ms: int) -> None:
        """End the subscription or assignment; this goes on if the caller is cancelled."""
        if self._fetches is not None and (self._ending is None or self._ending.done()):
            self._ending = asyncio.create_task(self._end_reading(commit=commit, timeout_ms=timeout_ms))
            self._ending.add_done_callback(note_outcome)
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _end_reading(self, *, commit: bool, timeout_ms: int) -> None:
        """Begin to leave the group, which stays in place until then: its listener may commit."""
        group, fetches = self._group, self._fetches
        try:
            if group is not None:
                if commit:
                    group.confirm()
                await group.close(commits=commit, timeout_ms=timeout_ms)
            elif fetches is not None:
                await fetches.close()
        finally:
            self._group = self._fetches = self._ending = None

    # Records.

    async def poll(self, timeout_ms: int = 1_000) -> list[ConsumerRecord[K, V]]:
        """Return the next records, at most `max_poll_records`; empty if none arrived in time.

        Records returned before count as processed: automatic commits include them.  Raises ApiError (not authorized,
        offset out of range, fenced member, ...), LogTruncated if auto_offset_reset is "none" and the log no longer has
        the records before a position, CorruptBatch, ClusterUnreachable if no broker has responded yet, WokenUp, and
        DeserializationFailed; the next call then continues with the same record.
        """
        self._confirm()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_ms / 1000
        while True:
            await self._wait_for_records(end_s)
            try:
                taken = self.take(self._config.max_poll_records)
            except Unprepared as unprepared:
                await self._prepare(unprepared.prepare, end_s)
                if loop.time() < end_s:
                    continue
                taken = []
            # What waits may have no visible records.
            if taken or loop.time() >= end_s:
                return intercepted(self._config.interceptors, taken) if taken else []

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Yield all records, without end.  Raises as `poll` does."""
        loop = asyncio.get_running_loop()
        turn_end_s = loop.time() + TURN_S
        while True:
            part = await self.next_part()
            while True:
                try:
                    record = self.next_of(part, may_wait=False)
                except Unprepared as unprepared:
                    await self._prepare(unprepared.prepare)
                    if self.must_attend(part):
                        break
                    continue
                if record is None:
                    break
                for shown in self.intercepted(record):
                    yield shown
                if loop.time() >= turn_end_s:
                    await asyncio.sleep(0)
                    turn_end_s = loop.time() + TURN_S
                if self.must_attend(part):
                    break

    async def next_part(self) -> Part[RawRecord]:
        """Return records for an iteration, which takes them by `next_of`, in any thread.  Raises as `poll` does."""
        self._confirm()
        while True:
            await self._wait_for_records(asyncio.get_running_loop().time() + ITERATION_POLL_S)
            fetches = self._fetches
            if fetches is not None and (part := fetches.fetcher.next_part()) is not None:
                fetches.note_change()
                return part

    def next_of(self, part: Part[RawRecord], *, may_wait: bool = True) -> ConsumerRecord[K, V] | None:
        """Return the next record of the part, None at its end; those before it are processed.  May run in any thread.

        On an event loop a deserializer must not wait (`may_wait`).  Raises DeserializationFailed and Unprepared; the
        next call then returns the same record.
        """
        index = part.processed = part.taken
        if part.is_void or index >= len(part.records):
            return None
        record: Any = part.records[index]
        if not self._is_raw:
            record = deserialized(record, *(self._deserializers if may_wait else self._on_loop))
        part.taken = index + 1
        return record  # type: ignore[no-any-return]

    def intercepted(self, record: ConsumerRecord[K, V]) -> Sequence[ConsumerRecord[K, V]]:
        """Return the record of an iteration as the interceptors return it."""
        interceptors = self._config.interceptors
        return intercepted(interceptors, [record]) if interceptors else (record,)

    def must_attend(self, part: Part[RawRecord]) -> bool:
        """Return whether an iteration has to call `next_part` before the part ends.  May run in any thread."""
        group = self._group
        if group is not None:
            group.note_poll()
            return part.is_void or self._is_woken or self._is_closed or group.needs_attention
        return part.is_void or self._is_woken or self._is_closed

    def take(self, count_max: int) -> list[ConsumerRecord[K, V]]:
        """Return records that have been fetched; neither wait nor send requests.  Raises as `next_of` does."""
        fetches = self._fetches
        taken: list[Any] = []
        while fetches is not None and (left := count_max - len(taken)) > 0:
            part = fetches.fetcher.next_part()
            if part is None:
                break
            found = part.records[part.taken : part.taken + left]
            if self._is_raw:
                taken += found
                part.taken += len(found)
                continue
            for record in found:
                try:
                    taken.append(deserialized(record, *self._on_loop))
                except Exception:
                    if taken:
                        return taken  # The records before it; the next call raises.
                    raise
                part.taken += 1
        if fetches is not None:
            fetches.note_change()
        return taken

    async def _prepare(self, prepare: Callable[[], None], end_s: float | None = None) -> None:
        """Run in a thread what a deserializer waits for.  Returns and raises as `_run_preparation` does."""
        fetches = self._fetches
        if fetches is None:
            return
        fetches.arrived.clear()
        if not (self._is_woken or self._is_closed):
            await self._run_preparation(prepare, fetches.arrived, end_s)

    async def _wait_for_records(self, end_s: float) -> None:
        """Return when `take` may have records, or at a time of the loop.  Raises as `poll` does."""
        self._require_open()
        fetches, group = self._fetches, self._group
        if fetches is None or self._ending is not None:
            raise UsageError("subscribe or assign first")
        loop = self._loop = asyncio.get_running_loop()
        with contextlib.nullcontext() if group is None else group.waiting():
            while True:
                fetches.arrived.clear()
                if group is not None:
                    group.attend()
                self._raise_if_woken()
                fetches.raise_failure()
                if fetches.fetcher.has_records:
                    return
                if loop.time() >= end_s:
                    await asyncio.sleep(0)  # A program that polls without a pause lets the fetches go on.
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(end_s):
                        await fetches.arrived.wait()
                if self._fetches is not fetches or self._ending is not None:
                    self._raise_if_woken()
                    return  # Another task has ended the subscription.

    def wakeup(self) -> None:
        """Make the `poll` or iteration in progress, or else the next one, raise WokenUp.  For any thread."""
        self._is_woken = True
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        if self._fetches is not None:
            self._fetches.arrived.set()

    def _raise_if_woken(self) -> None:
        if self._is_closed:
            raise WokenUp("the consumer was closed")
        if self._is_woken:
            self._is_woken = False
            raise WokenUp("wakeup was called")

    def metrics(self) -> dict[str, float]:
        """Totals since the subscription or assignment, and present values; names as of Kafka's metrics of consumers.

        `records-lag.TOPIC-PARTITION` is the number of records after the position, as of the last fetch.
        """
        fetches, group = self._fetches, self._group
        if fetches is None:
            return {}
        fetcher = fetches.fetcher
        lags = fetcher.lags
        found: dict[str, float] = {
            "records-consumed-total": fetcher.counts.records,
            "bytes-consumed-total": fetcher.counts.bytes,
            "fetch-total": fetcher.counts.requests,
            "fetch-error-total": fetcher.counts.errors,
            "buffered-bytes": fetcher.buffered_bytes,
            "assigned-partitions": len(fetcher.partitions),
            "records-lag-max": max(lags.values(), default=0),
        }
        if group is not None:
            found |= {
                "commit-total": group.commits,
                "commit-error-total": group.commit_errors,
                "join-total": group.joins,
            }
        return found | {f"records-lag.{tp}": lag for tp, lag in lags.items()}

    def _telemetry(self, window: Window) -> list[Metric]:
        return consumer_metrics(self.metrics(), window)

    def _telemetry_resource(self) -> dict[str, str]:
        config = self._config
        member_id = None if self._group is None else self._group.metadata.member_id
        attributes = {
            "client_rack": config.client_rack,
            "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
            "group_member_id": member_id,
        }
        return {name: text for name, text in attributes.items() if text}

    def _announce_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        announce_commit(self._config.interceptors, offsets)

    def _confirm(self) -> None:
        """All records that were returned are processed."""
        if self._group is not None:
            self._group.confirm()
        elif self._fetches is not None:
            self._fetches.fetcher.finish_part()

    # Positions.

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        return set() if self._fetches is None else set(self._fetches.fetcher.partitions)

    def position(self, tp: TopicPartition) -> int:
        """Return the offset of the next record that `poll` returns.

        Raises UsageError for a partition that is not read.
        """
        self._require_assigned([tp])
        return self.positions()[tp]

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record that `poll` returns, of all partitions that are read."""
        return {} if self._fetches is None else self._fetches.fetcher.positions

    def with_epochs(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position]:
        """Return the offsets with the leader epochs of the records before them, as far as this consumer has read
        those.
        """
        fetches = self._fetches
        if fetches is None:
            return {tp: Position(offset) for tp, offset in offsets.items()}
        return {tp: fetches.fetcher.history.position(tp, offset) for tp, offset in offsets.items()}

    def seek(self, tp: TopicPartition, offset: int | Position) -> None:
        """Continue with this offset; with a Position, the history before it is checked.

        Raises UsageError for a partition that is not read, and for an offset that is negative or no number.
        """
        self._require_assigned([tp])
        number = offset.offset if isinstance(offset, Position) else offset
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise UsageError(f"seek takes an offset, 0 or more, or a Position; not {offset!r}")
        if self._group is not None:
            self._group.seek(tp, offset)
        elif self._fetches is not None:
            self._fetches.fetcher.set({tp: offset})
            self._fetches.note_change()

    async def seek_to_beginning(self, partitions: Collection[TopicPartition]) -> None:
        """Continue with the first records.  Raises ApiError, ClusterUnreachable and UsageError."""
        for tp, offset in (await self.beginning_offsets(partitions)).items():
            self.seek(tp, offset)

    async def seek_to_end(self, partitions: Collection[TopicPartition]) -> None:
        """Continue with records that are written from now on.  Raises ApiError, ClusterUnreachable and UsageError."""
        for tp, offset in (await self.end_offsets(partitions)).items():
            self.seek(tp, offset)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Keep partitions without reading them, until `resume` or a revocation.  Raises UsageError."""
        self._require_assigned(partitions)
        if self._fetches is not None:
            self._fetches.fetcher.drop_fetched(partitions)  # It is fetched again after `resume`.
            self._fetches.fetcher.paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Read paused partitions again.  Raises UsageError for a partition that is not assigned."""
        self._require_assigned(partitions)
        if self._fetches is not None:
            self._fetches.fetcher.paused.difference_update(partitions)
            self._fetches.note_change()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset() if self._fetches is None else frozenset(self._fetches.fetcher.paused)

    # Commits.

    async def commit(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Commit these offsets (of the next records to read), or those after the records returned so far.

        The leader epochs of the records before them are committed too, as far as this consumer has read those.  Retries
        until the timeout, default_api_timeout_ms by default.  If the call is cancelled, the commit goes on.  Raises
        CommitFailed if a rebalance has taken a partition away, ApiError, ClusterUnreachable and UsageError.
        """
        if self._fetches is None:
            self._require_open()
        if offsets is None:
            offsets = self.positions()
        require_offsets(offsets)
        group_id = self._group_id()
        if self._group is not None:
            await self._share(self._group.commit(offsets, timeout_ms=timeout_ms))
            return
        fetches = self._fetches
        history = ReadHistory() if fetches is None else fetches.fetcher.history
        topic_id = no_topic_id if fetches is None else fetches.topic_id
        commits = {tp: history.commit_of(tp, at) for tp, at in offsets.items()}

        async def send_to(connection: Connection) -> None:
            codes = await commit_offsets(
                connection,
                group_id,
                commits,
                member_id="",
                generation=-1,
                group_instance_id=None,
                topic_id=topic_id,
            )
            for tp, code in codes.items():
                if code is not ErrorCode.NONE:
                    raise ApiError(code, f"{tp}: cannot commit: {code.description}")

        if offsets:
            await self._share(self._client.on_coordinator(group_id, send_to, timeout_ms=timeout_ms))
            self._announce_commit(commits)

    def group_metadata(self) -> GroupMetadata:
        """Return the identity of the member, with which `send_offsets` of a producer fences former members of the
        group.  Raises UsageError.
        """
        group_id = self._group_id()
        return GroupMetadata(group_id) if self._group is None else self._group.metadata

    # Internals.

    def _require_assigned(self, partitions: Collection[TopicPartition]) -> None:
        assigned = self.assignment
        for tp in partitions:
            if tp not in assigned:
                raise UsageError(f"{tp} is not assigned to this consumer")


def _report_reset(divergence: Divergence, offset: int) -> None:
    logger.warning("the log was truncated: reading continues at offset=%d %s", offset, divergence)


def _report_recreated(change: str) -> None:
    logger.warning("%s; its positions were reset", change)

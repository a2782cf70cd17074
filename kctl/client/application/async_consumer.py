"""The consumer for applications with an event loop; kctl.client.application.blocking_consumer is for the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self

from kctl.client.application.settings import ConsumerConfig
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import CommittedOffset, commit_of, commit_offsets, committed_offsets
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.group_consumer import CLOSE_MS, GroupConsumer
from kctl.client.consuming.group_metadata import GroupMetadata, RebalanceListener, require_offsets
from kctl.client.consuming.group_progress import ReadyRecords, lost_positions, reset_positions
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, OffsetAt, list_offsets
from kctl.client.consuming.positions import Divergence, LogTruncated, Position
from kctl.client.metadata import TopicRecreated
from kctl.client.properties.values import BY_DURATION, iso_duration_ms
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.records.header import Record

logger = logging.getLogger(__name__)

ITERATION_POLL_MS = 60_000


class ConsumerRecord(NamedTuple):
    """A record that was read; `key` and `value` are deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


class AsyncConsumer:
    """Reads the partitions that a group or the caller assigns; use as an async context manager.  Owner: event loop.

    Only one method may run at a time.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._client = ClusterClient(config.client_settings(), AsyncioTransport())
        self._group: GroupConsumer | None = None
        self._assigned: Consumer | None = None
        """Reads partitions without group membership."""
        self._fetching: asyncio.Task[list[tuple[TopicPartition, list[Record]]]] | None = None
        """A poll of the reader; it continues when `poll` returns because of its timeout."""
        self._ready = ReadyRecords()
        self._owned: tuple[TopicPartition, ...] = ()
        """The partitions of the member when records were last returned."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error_type: object, *_: object) -> None:
        await self.close(commit=error_type is None)

    async def subscribe(self, topics: Sequence[str], listener: RebalanceListener | None = None) -> None:
        """Reads the partitions of the topics that the group assigns; the group is joined by `poll`.

        Replaces an earlier subscription or assignment.  Raises UsageError without a group_id.
        """
        if isinstance(topics, str):
            raise UsageError("subscribe takes a list of topics")
        config = self._config
        settings = config.membership(topics)
        await self.unsubscribe()
        self._group = GroupConsumer(
            self._client,
            settings,
            self._begin,
            isolation=config.isolation,
            limits=config.fetch_limits(),
            auto_commit_interval_ms=config.auto_commit_interval_ms if config.enable_auto_commit else None,
            listener=listener,
            on_truncated=None if config.auto_offset_reset == "none" else _report_reset,
        )

    async def assign(self, partitions: Collection[TopicPartition] | Mapping[TopicPartition, int | Position]) -> None:
        """Reads these partitions, from the given offsets, else from the committed ones, else by auto_offset_reset.

        `poll` checks that the log still has the history before committed offsets and before each Position.  Raises
        ApiError and ClusterUnreachable.
        """
        await self.unsubscribe()
        if isinstance(partitions, Mapping):
            positions: dict[TopicPartition, int | Position] = dict(partitions)
        else:
            commits = {} if self._config.group_id is None else await self._commits(partitions)
            positions = {tp: commit.position for tp, commit in commits.items()}
            positions.update(await self._begin([tp for tp in partitions if tp not in positions]))
        config = self._config
        self._assigned = Consumer(self._client, positions, limits=config.fetch_limits(), isolation=config.isolation)

    async def unsubscribe(self, *, commit: bool = True) -> None:
        """Leaves the group, after a commit if commits are automatic, and drops the partitions."""
        await self._stop_fetching()
        self._assigned = None
        if (group := self._group) is not None:
            if commit and self._config.enable_auto_commit:
                with contextlib.suppress(KctlError, TimeoutError):  # the records are read again
                    async with asyncio.timeout(CLOSE_MS / 1000):
                        await group.commit(self._positions_of(group))
            try:
                await group.close()
            finally:
                self._group = None
        self._ready = ReadyRecords()

    async def close(self, *, commit: bool = True) -> None:
        """Leaves the group and closes the connections.  Does not raise for an unreachable cluster."""
        try:
            await self.unsubscribe(commit=commit)
        finally:
            await self._client.close()

    async def poll(self, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """The next records, at most `max_poll_records`; empty if none arrived in time.

        Records returned before count as processed: automatic commits include them.  Raises ApiError (not authorized,
        offset out of range, fenced member, ...), LogTruncated if auto_offset_reset is "none" and the log no longer has
        the records before a position, CorruptBatch, ClusterUnreachable, and what a deserializer raises; the next call
        then continues with the same record.
        """
        await self.wait_for_records(timeout_ms)
        return self.take(self._config.max_poll_records)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """All records, without end.  Raises as `poll` does."""
        while True:
            await self.wait_for_records(ITERATION_POLL_MS)
            for record in self.take(1):
                yield record

    def take(self, count_max: int) -> list[ConsumerRecord]:
        """Records that have been fetched; neither waits nor sends requests.  Raises what a deserializer raises."""
        config = self._config
        if self._group is not None:
            self._group.note_poll()
            self._drop_lost(self._group.member.owned)
        taken: list[ConsumerRecord] = []
        for tp, record in self._ready.take(count_max):
            try:
                key, value = config.key_deserializer(record.key), config.value_deserializer(record.value)
            except Exception:
                if taken:
                    break  # returns the records before it; the next call raises
                raise
            taken.append(ConsumerRecord(*tp, record.offset, record.timestamp, key, value, record.headers))
        return taken

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        reader = self._group or self._assigned
        return set(reader.positions) if reader is not None else set()

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record that `poll` returns.  Raises UsageError for a partition that is not read."""
        self._require_assigned([tp])
        return self.positions()[tp]

    def with_epochs(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position]:
        """The offsets with the leader epochs of the records before them, as far as this consumer has read those."""
        if self._group is not None:
            return {tp: self._group.with_epoch(tp, offset) for tp, offset in offsets.items()}
        reader = self._assigned
        return {tp: reader.history.position(tp, at) if reader else Position(at) for tp, at in offsets.items()}

    def seek(self, tp: TopicPartition, offset: int | Position) -> None:
        """Continues with this offset; with a Position, the history before it is checked.

        Raises UsageError for a partition that is not read.
        """
        self._require_assigned([tp])
        self._take_over()
        self._ready.drop({tp})
        if self._group is not None:
            self._group.seek(tp, offset)
        elif self._assigned is not None:
            self._assigned.restart({tp: offset if isinstance(offset, Position) else Position(offset)})

    async def seek_to_beginning(self, partitions: Collection[TopicPartition]) -> None:
        """Continues with the first records.  Raises ApiError, ClusterUnreachable and UsageError."""
        for tp, offset in (await self.beginning_offsets(partitions)).items():
            self.seek(tp, offset)

    async def seek_to_end(self, partitions: Collection[TopicPartition]) -> None:
        """Continues with records that are written from now on.  Raises ApiError, ClusterUnreachable and UsageError."""
        for tp, offset in (await self.end_offsets(partitions)).items():
            self.seek(tp, offset)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Keeps partitions without reading them, until `resume` or a revocation.  Raises UsageError."""
        self._require_assigned(partitions)
        self._take_over()
        positions = self.positions()
        for tp in partitions:
            self.seek(tp, positions[tp])  # records that were fetched are fetched again after `resume`
        self._paused().update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Reads paused partitions again.  Raises UsageError for a partition that is not assigned."""
        self._require_assigned(partitions)
        self._paused().difference_update(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(self._paused())

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits these offsets (of the next records to read), or those after the records returned so far.

        The leader epochs of the records before them are committed too, as far as this consumer has read those.
        Partitions lost in a rebalance are skipped.  Raises ApiError, ClusterUnreachable and UsageError.
        """
        if offsets is None:
            offsets = self.positions()
        require_offsets(offsets)
        group_id = self._group_id()
        if self._group is not None:
            await self._group.commit(offsets)
            return
        commits = {tp: commit_of(position) for tp, position in self.with_epochs(offsets).items()}

        async def send_to(connection: Connection) -> None:
            codes = await commit_offsets(
                connection, group_id, commits, member_id="", generation=-1, group_instance_id=None
            )
            for tp, code in codes.items():
                if code is not ErrorCode.NONE:
                    raise ApiError(code, f"{tp}: cannot commit: {code.description}")

        if offsets:
            await self._client.on_coordinator(group_id, send_to)

    def group_metadata(self) -> GroupMetadata:
        """The identity of the member, with which `send_offsets` of a producer fences former members of the group.
        Raises UsageError.
        """
        group_id = self._group_id()
        return GroupMetadata(group_id) if self._group is None else self._group.metadata

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of the group, of those partitions that have one.

        Raises ApiError, ClusterUnreachable, and UsageError without a group_id.
        """
        return {tp: commit.offset for tp, commit in (await self._commits(partitions)).items()}

    async def _commits(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        group_id = self._group_id()

        async def send_to(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
            return await committed_offsets(connection, group_id, partitions)

        return await self._client.on_coordinator(group_id, send_to, codes={ErrorCode.UNSTABLE_OFFSET_COMMIT})

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic.  Raises ApiError for one that does not exist, and ClusterUnreachable."""
        found = (await self._client.metadata([topic])).topics[topic]
        if found.error is not ErrorCode.NONE:
            raise ApiError(found.error, f"{topic}: {found.error.description}")
        return [TopicPartition(topic, number) for number in range(len(found.partitions))]

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets of the first records.  Raises ApiError and ClusterUnreachable."""
        return {tp: one.offset for tp, one in (await self._look_up(dict.fromkeys(partitions, EARLIEST))).items()}

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets after the last visible records.  Raises ApiError and ClusterUnreachable."""
        return {tp: one.offset for tp, one in (await self._look_up(dict.fromkeys(partitions, LATEST))).items()}

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt | None]:
        """The first record at or after each time (ms since the epoch), None if there is none.

        Raises ApiError and ClusterUnreachable.
        """
        found = await self._look_up(times_ms)
        return {tp: None if one.offset < 0 else one for tp, one in found.items()}

    async def wait_for_records(self, timeout_ms: int) -> None:
        """Returns when `take` has records, or after the timeout.  Raises as `poll` does."""
        reader = self._group or self._assigned
        if reader is None:
            raise UsageError("subscribe or assign first")
        end_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        while not self._ready:
            if self._fetching is None:
                self._fetching = asyncio.create_task(self._poll_once(reader), name="fetch records")
            left_s = end_s - asyncio.get_running_loop().time()
            await asyncio.wait({self._fetching}, timeout=max(0.0, left_s))
            if self._fetching.done():
                fetching, self._fetching = self._fetching, None
                self._ready.add(fetching.result())
            if left_s <= 0:
                return

    async def _poll_once(self, reader: GroupConsumer | Consumer) -> list[tuple[TopicPartition, list[Record]]]:
        """Polls; without a group, auto_offset_reset applies to partitions whose position is outside the log."""
        try:
            return await reader.poll()
        except TopicRecreated as change:
            if isinstance(reader, GroupConsumer) or self._config.auto_offset_reset == "none":
                raise
            tps = [tp for tp in reader.positions if tp.topic == change.topic]
            reader.restart_topic(change.topic, await self._begin(tps))
            logger.warning("%s; its positions were reset", change)
            return []
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or isinstance(reader, GroupConsumer):
                raise
            if isinstance(error, LogTruncated):
                if self._config.auto_offset_reset == "none":
                    raise
                positions = await reset_positions(error.divergences, self._begin)
                for divergence in error.divergences:
                    _report_reset(divergence, positions[divergence.tp].offset)
            else:
                positions = await self._begin(await lost_positions(self._client, reader.positions))
            reader.restart(positions)
            return []

    def _drop_lost(self, owned: tuple[TopicPartition, ...]) -> None:
        """Drops fetched records of partitions that now belong to other members."""
        if owned is not self._owned:
            self._owned = owned
            self._ready.keep_only(frozenset(owned))

    def _take_over(self) -> None:
        """Takes over the records of a finished fetch; the next `poll` raises its error."""
        fetching = self._fetching
        if fetching is not None and fetching.done() and not fetching.cancelled() and fetching.exception() is None:
            self._ready.add(fetching.result())
            self._fetching = None

    async def _stop_fetching(self) -> None:
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            if fetching.done() and not fetching.cancelled() and fetching.exception() is None:
                self._ready.add(fetching.result())
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record that `poll` returns, of all partitions that are read."""
        self._take_over()
        reader = self._group or self._assigned
        return {} if reader is None else self._positions_of(reader)

    def _positions_of(self, reader: GroupConsumer | Consumer) -> dict[TopicPartition, int]:
        """The offsets of the next records that the application will receive."""
        first = self._ready.first_offsets()
        return {tp: first.get(tp, position) for tp, position in reader.positions.items()}

    async def _begin(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """Start positions by auto_offset_reset.  Raises ApiError."""
        reset = self._config.auto_offset_reset
        if not partitions:
            return {}
        if reset == "none":
            text = f"{min(partitions)}: no valid committed offset, and auto_offset_reset is 'none'"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        if reset.startswith(BY_DURATION):
            start_ms = time.time_ns() // 1_000_000 - iso_duration_ms(reset[len(BY_DURATION) :])
            ends = await self.end_offsets(partitions)
            times = await self.offsets_for_times(dict.fromkeys(partitions, max(0, start_ms)))
            return {tp: Position(ends[tp] if at is None else at.offset) for tp, at in times.items()}
        found = await self._look_up(dict.fromkeys(partitions, EARLIEST if reset == "earliest" else LATEST))
        return {tp: Position(one.offset, one.leader_epoch, is_of_leader=True) for tp, one in found.items()}

    async def _look_up(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        found: dict[TopicPartition, OffsetAt] = {}
        for tp, outcome in (await list_offsets(self._client, timestamps, isolation=self._config.isolation)).items():
            if isinstance(outcome, ApiError):
                raise ApiError(outcome.code, f"{tp}: {outcome}")
            found[tp] = outcome
        return found

    def _paused(self) -> set[TopicPartition]:
        reader = self._group or self._assigned
        return set() if reader is None else reader.paused

    def _require_assigned(self, partitions: Collection[TopicPartition]) -> None:
        assigned = self.assignment
        for tp in partitions:
            if tp not in assigned:
                raise UsageError(f"{tp} is not assigned to this consumer")

    def _group_id(self) -> str:
        if not self._config.group_id:
            raise UsageError("commits require a group_id")
        return self._config.group_id


def _report_reset(divergence: Divergence, offset: int) -> None:
    logger.warning("the log was truncated: reading continues at offset=%d %s", offset, divergence)

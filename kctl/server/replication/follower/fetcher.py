"""A replica fetcher: copies records from one leader to this broker.

A partition that is new to a fetcher first finds where its log diverges from the leader's (truncation), then fetches
from its log end.  An error of one partition delays only that one.  A partition whose epoch the leader calls fenced
waits for the controller.  Kafka: ReplicaFetcherThread.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kctl.client.connections.transport import ConnectionLost
from kctl.errors import ApiError, ErrorCode, LogDirFailure, MalformedRequest
from kctl.limits import APPENDED_INLINE_BYTES_MAX
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import PartitionData
from kctl.protocol.apis.list_offsets import ListOffsetsPartitionResponse
from kctl.records.validate import ValidBatches, validate_replicated
from kctl.server.loop.tasks import in_thread
from kctl.server.peers.versions import InterBrokerVersions
from kctl.server.replication.follower.leader_endpoint import LastEpoch, LeaderEndpoint, Peers
from kctl.server.replication.follower.rules import UNDEFINED, Position, truncation
from kctl.server.replication.follower.truncating import truncate
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.throttles import ReplicationQuota
from kctl.storage.log.log import Log
from kctl.system.environment import Clock

log = logging.getLogger(__name__)


_COMMITTED_TRUNCATED = (
    "truncated committed records, which the leader does not have partition=%s offset=%s high_watermark=%s "
    "log_end_offset=%s: the leader was elected uncleanly, or from an older state of ZooKeeper"
)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The properties replica.fetch.*, and the protocol versions used with the leader."""

    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    response_max_bytes: int
    backoff_ms: int
    versions: InterBrokerVersions


@dataclass(slots=True, eq=False)
class _Following:
    """One partition of a fetcher."""

    partition: Partition
    leader_epoch: int
    unexamined: dict[TopicPartition, _Following]
    """The partitions of the fetcher whose position or role may differ from that in the last fetch."""
    is_watching: bool = True
    """False once the fetcher has removed the partition."""
    is_fetched: bool = False
    """Whether the fetcher's requests contain the partition."""
    needs_truncation: bool = True
    not_before_ms: int = 0
    """The last problem with the leader's data, logged once."""
    lag: int = 0
    """Records below the leader's high watermark that it did not have at the leader's last response."""
    is_caught_up: bool = False
    """True if it had all committed records at the leader's last response: then it is not throttled."""

    def moved(self) -> bool:
        """Note that the position of the next fetch may have changed."""
        if self.is_watching:
            self.unexamined[self.partition.topic_partition] = self
        return self.is_watching

    def high_watermark_moved(self) -> bool:
        """Ignored: it does not change the next fetch."""
        return self.is_watching


class ReplicaFetcher:
    """Fetches from one leader over one connection; call `close` when it has no partitions."""

    def __init__(
        self,
        leader_id: int,
        *,
        replicas: ReplicaManager,
        peers: Peers,
        clock: Clock,
        settings: FetchSettings,
        quota: ReplicationQuota,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._settings = settings
        self._quota = quota
        self.round_count = 0
        self.request_count = 0
        """Fetch requests that got a response."""
        self.byte_count = 0
        """Bytes of batches that were appended."""
        self._following: dict[TopicPartition, _Following] = {}
        self._unexamined: dict[TopicPartition, _Following] = {}
        self._changed = asyncio.Event()
        self._leader = LeaderEndpoint(leader_id, replica_id=replicas.broker_id, peers=peers, versions=settings.versions)
        self._task: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(
            self._run(), name=f"fetcher-{leader_id}"
        )

    def __len__(self) -> int:
        return len(self._following)

    def add(self, partition: Partition) -> None:
        """Start fetching the partition; one that is fetched already starts again with its new epoch."""
        self.remove(partition.topic_partition)
        following = _Following(partition, partition.leader_epoch, self._unexamined)
        self._following[partition.topic_partition] = following
        partition.watchers.add(following)
        following.moved()
        self._changed.set()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop fetching the partition; a pending response for it is ignored."""
        following = self._following.pop(topic_partition, None)
        if following is not None:
            following.is_watching = False
            following.partition.watchers.remove(following)
            self._unexamined.pop(topic_partition, None)
            self._leader.session.forget(topic_partition)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that are fetched."""
        return [following.partition for following in self._following.values()]

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """How many records of the leader this replica did not have after the latest fetch."""
        return {tp: following.lag for tp, following in self._following.items()}

    async def close(self) -> None:
        """Stop the fetcher and close its connection."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._leader.disconnect()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            self.round_count += 1
            try:
                await self._round()
            except (ConnectionLost, MalformedRequest) as error:
                await self._leader.disconnect()
                await self._pause(error)
            except ApiError as error:
                await self._pause(error)

    async def _round(self) -> None:
        """Truncate the partitions that need it, then send one fetch; wait while no partition is due."""
        untruncated = self._examine()
        if not untruncated and not len(self._leader.session):
            await self._wait_for_change()
            return
        await self._leader.connect()
        if untruncated:
            await self._truncate(untruncated)
            self._examine()
        if len(self._leader.session):
            await self._fetch()

    def _examine(self) -> dict[TopicPartition, _Following]:
        """Update the positions of the next fetch, and return the partitions that have to be truncated first.

        Only partitions that were changed, delayed or not caught up may have another position than before.
        """
        now_ms, session = self._clock.monotonic_ms(), self._leader.session
        untruncated: dict[TopicPartition, _Following] = {}
        for topic_partition, following in list(self._unexamined.items()):
            is_due = following.not_before_ms <= now_ms
            if is_due and following.needs_truncation:
                untruncated[topic_partition] = following
            following.is_fetched = (
                is_due
                and not following.needs_truncation
                and (following.is_caught_up or not self._is_throttled(topic_partition))
            )
            if not following.is_fetched:
                session.forget(topic_partition)
                continue
            session.put(topic_partition, _position(following, has_epoch=self._leader.supports_divergence))
            if following.is_caught_up:
                del self._unexamined[topic_partition]
        return untruncated

    def _is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Return whether the throttle stops a replica that is not caught up from fetching for now.

        Kafka's shouldFollowerThrottle.
        """
        return self._quota.is_throttled(topic_partition) and self._quota.is_exceeded(self._clock.monotonic_ms())

    async def _wait_for_change(self) -> None:
        timeout_s = self._settings.backoff_ms / 1000 if self._following else None
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _pause(self, error: Exception) -> None:
        pause_ms = self._settings.backoff_ms
        leader = self._leader.leader_id
        log.warning("cannot fetch, trying again leader=%s error=%s retry_ms=%d", leader, error, pause_ms)
        await asyncio.sleep(self._settings.backoff_ms / 1000)

    def _is_current(self, following: _Following) -> bool:
        """Return whether the partition still has the leader epoch for which the request was sent."""
        found = self._following.get(following.partition.topic_partition)
        return found is following and following.leader_epoch == following.partition.leader_epoch

    def _delay(self, following: _Following) -> None:
        following.moved()
        following.not_before_ms = self._clock.monotonic_ms() + self._settings.backoff_ms

    # Truncation

    async def _truncate(self, untruncated: Mapping[TopicPartition, _Following]) -> None:
        """Send one request for all of them; those that need another request are in the next round."""
        requested: dict[TopicPartition, _Following] = {}
        for topic_partition, following in untruncated.items():
            if (
                not self._leader.supports_leader_epochs
                or following.partition.log.leader_epochs.latest_epoch == UNDEFINED
            ):
                # No record with an epoch was ever written, or the leader does not support epochs: truncate to the high
                # watermark.
                await self._cut(following, following.partition.high_watermark, is_final=True)
            else:
                requested[topic_partition] = following
        if not requested:
            return
        last_epochs = {
            tp: LastEpoch(followed.partition.log.leader_epochs.latest_epoch, followed.leader_epoch)
            for tp, followed in requested.items()
        }
        for topic_partition, result in await self._leader.epoch_end_offsets(last_epochs):
            found = requested.get(topic_partition)
            if found is None or not self._is_current(found):
                continue
            if result.error_code != ErrorCode.NONE:
                self._refused(found, ErrorCode.of(result.error_code))
            else:
                await self._apply_truncation(found, result.leader_epoch, result.end_offset)

    async def _apply_truncation(self, following: _Following, leader_epoch: int, leader_end_offset: int) -> None:
        partition = following.partition
        own_epoch, own_end_offset = partition.log.end_offset_for_epoch(leader_epoch)
        if leader_epoch > partition.log.leader_epochs.latest_epoch:
            own_epoch, own_end_offset = partition.log.leader_epochs.latest_epoch, partition.log.log_end_offset
        cut = truncation(
            leader_epoch=leader_epoch,
            leader_end_offset=leader_end_offset,
            own_epoch=own_epoch,
            own_end_offset=own_end_offset,
            log_end_offset=partition.log.log_end_offset,
            high_watermark=partition.high_watermark,
        )
        await self._cut(following, cut.offset, is_final=cut.is_final)

    async def _cut(self, following: _Following, offset: int, *, is_final: bool) -> None:
        partition = following.partition
        try:
            high_watermark, end_offset = partition.high_watermark, partition.log.log_end_offset
            if await truncate(partition.log, offset, partial(self._is_current, following)):
                if offset < high_watermark:
                    log.error(_COMMITTED_TRUNCATED, partition.topic_partition, offset, high_watermark, end_offset)
                else:
                    log.info("truncated partition=%s offset=%s", partition.topic_partition, offset)
            if not self._is_current(following):
                return
        except LogDirFailure as failure:
            self._disk_failed(following, failure)
            return
        except ApiError as error:
            self._log_and_delay(following, f"cannot be truncated to offset={offset}: {error}")
            return
        partition.follow_high_watermark(partition.high_watermark)
        following.needs_truncation = not is_final
        following.moved()

    # Fetching

    async def _fetch(self) -> None:
        results = await self._leader.fetch(
            wait_max_ms=self._settings.wait_max_ms,
            min_bytes=self._settings.min_bytes,
            partition_max_bytes=self._settings.max_bytes,
            response_max_bytes=self._settings.response_max_bytes,
        )
        self.request_count += 1
        unflushed: list[Log] = []
        for topic_partition, result in results:
            found = self._following.get(topic_partition)
            # One that was added after the request is not fetched yet.
            if found is not None and found.is_fetched and found.leader_epoch == found.partition.leader_epoch:
                await self._take(found, result)
                if found.partition.log.awaits_flush:
                    unflushed.append(found.partition.log)
        # The next fetch reports to the leader up to where this replica has flushed.
        if unflushed:
            await self._replicas.flushes.settle(unflushed)

    async def _take(self, following: _Following, result: PartitionData) -> None:
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_range(following)
        elif result.error_code != ErrorCode.NONE:
            self._refused(following, ErrorCode.of(result.error_code))
        elif result.diverging_epoch is not None and result.diverging_epoch.end_offset >= 0:
            await self._apply_truncation(following, result.diverging_epoch.epoch, result.diverging_epoch.end_offset)
        elif isinstance(result.records, (bytes, memoryview)) and len(result.records) > APPENDED_INLINE_BYTES_MAX:
            await self._append_large(following, result)
        else:
            self._append(following, result)

    async def _append_large(self, following: _Following, result: PartitionData) -> None:
        """Check and write the batches in a thread, and append them if the partition is still followed.

        Their memory is freed in a thread too, which takes 30 ms for 250 MB.
        """
        partition_log = following.partition.log
        draft = partition_log.new_draft()
        held: list[ValidBatches] = []

        def write() -> None:
            assert isinstance(result.records, (bytes, memoryview))
            held.append(draft.with_batches(validate_replicated(result.records)))

        try:
            await in_thread(write)
            if self._is_current(following) and following.partition.log is partition_log:
                self._append(following, result, held[0])
            result.records = b""
            await in_thread(held.clear)
        except OSError as error:
            self._disk_failed(following, partition_log.log_directory.fail(error))
        except ApiError as error:
            self._log_and_delay(following, f"cannot append records of the leader: {error}")
        finally:
            if not draft.is_taken:
                with suppress(OSError):
                    await in_thread(draft.remove)

    def _append(self, following: _Following, result: PartitionData, valid: ValidBatches | None = None) -> None:
        partition = following.partition
        try:
            if isinstance(result.records, (bytes, memoryview)) and len(result.records):
                partition.log.append_as_follower(valid or result.records, now_ms=self._clock.now_ms())
                self.byte_count += len(result.records)
                partition.traffic.replication_bytes_in += len(result.records)
                if partition.broker_id in partition.adding_replicas:
                    partition.traffic.reassignment_bytes_in += len(result.records)
                if self._quota.is_throttled(partition.topic_partition):
                    self._quota.record(len(result.records), self._clock.monotonic_ms())
            if result.log_start_offset > partition.log.log_start_offset:
                partition.log.increment_log_start_offset(min(result.log_start_offset, partition.log.log_end_offset))
        except LogDirFailure as failure:
            self._disk_failed(following, failure)
            return
        except ApiError as error:
            self._log_and_delay(following, f"cannot append records of the leader: {error}")
            return
        following.lag = max(result.high_watermark - partition.log.log_end_offset, 0)
        following.is_caught_up = partition.log.log_end_offset >= result.high_watermark
        if not following.is_caught_up:
            following.moved()
        partition.follow_high_watermark(result.high_watermark)
        self._replicas.partition_moved(partition.topic_partition)

    async def _find_range(self, following: _Following) -> None:
        """Handle OFFSET_OUT_OF_RANGE: this log ends before the leader's start or after its end."""
        partition = following.partition
        topic_partition, leader_epoch = partition.topic_partition, following.leader_epoch
        leader_end = self._offset_in(following, await self._leader.end_offset(topic_partition, leader_epoch))
        if leader_end is None or not self._is_current(following):
            return
        try:
            if leader_end < partition.log.log_end_offset:
                await truncate(partition.log, leader_end, partial(self._is_current, following))
                if not self._is_current(following):
                    return
                log.warning(
                    "truncated to the end of the leader's log, which is shorter partition=%s offset=%s",
                    topic_partition,
                    leader_end,
                )
            else:
                leader_start = self._offset_in(
                    following, await self._leader.start_offset(topic_partition, leader_epoch)
                )
                if leader_start is None or not self._is_current(following):
                    return
                if leader_start > partition.log.log_end_offset:
                    partition.log.truncate_fully_and_start_at(leader_start)
                    log.info("reset to the leader's start partition=%s offset=%s", topic_partition, leader_start)
        except LogDirFailure as failure:
            self._disk_failed(following, failure)
            return
        partition.follow_high_watermark(partition.high_watermark)

    def _offset_in(self, following: _Following, result: ListOffsetsPartitionResponse) -> int | None:
        if result.error_code != ErrorCode.NONE:
            self._refused(following, ErrorCode.of(result.error_code))
            return None
        return result.offset

    # Errors

    def _refused(self, following: _Following, code: ErrorCode) -> None:
        """Handle an error code; for FENCED_LEADER_EPOCH, wait for the controller to send the new epoch."""
        topic_partition = following.partition.topic_partition
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            log.info("fenced by the leader partition=%s epoch=%s", topic_partition, following.leader_epoch)
            self.remove(topic_partition)
            return
        if code is ErrorCode.CORRUPT_MESSAGE:
            self._log_and_delay(following, "the leader cannot read its log, which is corrupt")
            return
        log.debug("fetch refused partition=%s error=%s", topic_partition, code.name)
        self._delay(following)

    def _log_and_delay(self, following: _Following, problem: str) -> None:
        """Delay the partition and log the problem."""
        partition = following.partition
        log.warning(
            "cannot replicate, trying again partition=%s leader=%s offset=%d error=%s retry_ms=%d",
            partition.topic_partition,
            self._leader.leader_id,
            partition.log.log_end_offset,
            problem,
            self._settings.backoff_ms,
        )
        self._delay(following)

    def _disk_failed(self, following: _Following, failure: LogDirFailure) -> None:
        self.remove(following.partition.topic_partition)
        self._replicas.log_dir_failed(failure)


def _position(following: _Following, *, has_epoch: bool) -> Position:
    """Return where to fetch next; `has_epoch` if the protocol version carries the last epoch of this log."""
    partition_log = following.partition.log
    return Position(
        partition_log.log_end_offset,
        partition_log.log_start_offset,
        following.leader_epoch,
        partition_log.leader_epochs.latest_epoch if has_epoch else UNDEFINED,
    )

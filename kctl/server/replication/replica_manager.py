"""The partitions of this broker and their logs: roles from the controller, appends, reads, checkpoints.

`partition(tp)` finds a partition or raises the client's error.  Code that advances a high watermark or a log end calls
`partition_moved`, which wakes the produce and fetch requests that wait for it.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.model import ZERO_UUID, TopicPartition, uuid_text
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kctl.protocol.apis.stop_replica import StopReplicaRequest
from kctl.server.loop.slices import run_steps, sliced_batches
from kctl.server.loop.tasks import in_thread
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.fetching.fetch_session import FetchSession
from kctl.server.replication.leader_lease import LeaderLease, UnlimitedLease
from kctl.server.replication.partition import Partition
from kctl.server.replication.produce_waits import AppendFlushes
from kctl.server.replication.role_checks import check_partition_name, check_role
from kctl.server.replication.throttles import BrokerTraffic
from kctl.server.requests.purgatory import Purgatory
from kctl.storage.directories.log_creation import NewLog
from kctl.system.environment import Clock

if TYPE_CHECKING:
    from kctl.records.allowance import Allowance
    from kctl.records.header import BatchHeader
    from kctl.records.validate import ValidBatches
    from kctl.storage.config import LogConfig
    from kctl.storage.log.appending import AppendResult
    from kctl.storage.log.flushing import CheckpointPlan
    from kctl.storage.log.log import Log
    from kctl.storage.log_manager import LogManager

log = logging.getLogger(__name__)
state_log = logging.getLogger("kctl.state_change")


class ReplicaManager:
    """Has every partition that this broker replicates."""

    def __init__(
        self,
        broker_id: int,
        *,
        logs: LogManager,
        metadata: MetadataCache,
        clock: Clock,
        produce_purgatory: Purgatory[TopicPartition],
        fetch_purgatory: Purgatory[TopicPartition | FetchSession],
        log_config: Callable[[str], LogConfig],
        lag_time_max_ms: int,
        min_insync_replicas: Callable[[str], int],
        lease: LeaderLease | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self.metadata = metadata
        self.partitions: dict[TopicPartition, Partition] = {}
        self.controller_epoch = -1
        self.traffic = BrokerTraffic()
        self.woken_sessions: dict[FetchSession, None] = {}
        """Fetch sessions with partitions that have changed since `partition_moved` was called."""
        self._moved: dict[TopicPartition, None] = {}
        """Partitions whose waiting fetches are about to be checked."""
        self._is_check_due = False
        self.lease = lease or UnlimitedLease()
        """Allows this broker to act as leader."""
        self._clock = clock
        self._produce_purgatory = produce_purgatory
        self._fetch_purgatory = fetch_purgatory
        self._log_config = log_config
        self._lag_time_max_ms = lag_time_max_ms
        self.min_insync_replicas = min_insync_replicas
        self._deleted_from: set[str] = set()
        """Topics of logs that were deleted since the checkpoints were written."""
        self.flushes = AppendFlushes(clock, on_settled=self._settled, on_failure=self.log_dir_failed)

    def partition(self, topic: str, index: int) -> Partition:
        """Return the partition.

        Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        # A tuple finds what its TopicPartition does, which would be a call more for each partition of each request.
        partition: Partition | None = self.partitions.get((topic, index))  # type: ignore[call-overload]
        if partition is not None:
            if partition.log.log_directory.failure is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
            return partition
        if self.metadata.has_partition(topic, index):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def append(
        self,
        partition: Partition,
        records: memoryview | ValidBatches,
        *,
        required_acks: int,
        request_version: int,
        from_client: bool = True,
        allowance: Allowance | None = None,
    ) -> AppendResult:
        """Append as leader and move the high watermark.  Raises ApiError, AllowanceExceeded as Log does."""
        partition.check_leader()
        if required_acks == -1 and len(partition.isr) < self.min_insync_replicas(partition.topic_partition.topic):
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            result = partition.log.append_as_leader(
                records,
                leader_epoch=partition.leader_epoch,
                now_ms=self._clock.now_ms(),
                from_client=from_client,
                request_version=request_version,
                allowance=allowance,
            )
        except LogDirFailure as failure:
            self.log_dir_failed(failure)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from failure
        if not result.duplicate:
            traffic = partition.traffic
            traffic.produce_conversions += result.is_converted
            traffic.messages_in += result.last_offset - result.base_offset + 1
            traffic.bytes_in += len(records) if isinstance(records, memoryview) else len(records.buffer)
        # The time matters to followers only.
        partition.advance_high_watermark(self._clock.monotonic_ms() if partition.followers else 0)
        if partition.log.awaits_flush:
            self.flushes.request(partition.log)
        return result

    def append_plain(
        self,
        partition: Partition,
        batch: memoryview,
        size: int,
        count: int,
        max_timestamp: int,
        *,
        required_acks: int,
        now_ms: int,
        header: BatchHeader | None = None,
    ) -> int:
        """As `append`, for a valid batch of `size` bytes from a client; return the offset of its first record.

        The caller has checked that this broker leads the partition.  `header` is that of a batch with a producer id.
        Return -1 for a batch that `append` has to append; others do not await a flush.  Raises ApiError.
        """
        if required_acks == -1 and len(partition.isr) < self.min_insync_replicas(partition.topic_partition.topic):
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            offset = partition.log.append_plain(
                batch,
                size,
                count,
                max_timestamp,
                leader_epoch=partition.leader_epoch,
                now_ms=now_ms,
                header=header,
            )
        except LogDirFailure as failure:
            self.log_dir_failed(failure)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from failure
        if offset >= 0:
            traffic = partition.traffic
            traffic.messages_in += count
            traffic.bytes_in += size
            if partition.followers or partition.watchers.watching:
                partition.advance_high_watermark(self._clock.monotonic_ms() if partition.followers else 0)
            else:
                partition.high_watermark = offset + count
        return offset

    def partition_moved(self, topic_partition: TopicPartition) -> None:
        """Check the requests that wait for the partition, whose log end or high watermark moved."""
        self.partitions_moved((topic_partition,))

    def partitions_moved(self, topic_partitions: Collection[TopicPartition]) -> None:
        """As `partition_moved` for many partitions; a request that waits for several of them is checked once."""
        producers, fetches = self._produce_purgatory.watched, self._fetch_purgatory.watched
        if producers and not producers.isdisjoint(topic_partitions):
            self._produce_purgatory.check(*topic_partitions)
        if self.woken_sessions or (fetches and not fetches.isdisjoint(topic_partitions)):
            if not self._is_check_due:
                self._is_check_due = True
                asyncio.get_running_loop().call_soon(self._check_fetches)
            self._moved.update(dict.fromkeys(topic_partitions))

    def _check_fetches(self) -> None:
        """Check the fetches that wait, after all appends of this iteration of the event loop: one response has the
        records of several requests.
        """
        self._is_check_due = False
        keys: list[TopicPartition | FetchSession] = [*self._moved, *self.woken_sessions]
        self._moved.clear()
        self.woken_sessions.clear()
        self._fetch_purgatory.check(*keys)

    async def create_logs(self, request: LeaderAndIsrRequest) -> None:
        """Create the logs of replicas that are new to this broker, in a thread.

        Call `become_leader_or_follower` with the same request next, and `discard_created_logs` in any case.
        """
        plan = self.logs.creation.plan(self._new_logs(request))
        if plan:
            await in_thread(plan.run)
            self.logs.creation.take(plan)

    def discard_created_logs(self) -> None:
        """Close the created logs whose partition got no role."""
        self.logs.creation.discard()

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> tuple[dict[TopicPartition, ErrorCode], list[Partition]]:
        """Apply the controller's decisions; return the error per partition, and the partitions with a new role.

        Raises ApiError(STALE_CONTROLLER_EPOCH) if a newer controller has sent a request.
        """
        self.check_controller_epoch(request.controller_epoch)
        outcome: dict[TopicPartition, ErrorCode] = {}
        changed: list[Partition] = []
        # Controllers before inter.broker.protocol.version 2.2 do not send the epoch.
        broker_epoch = request.broker_epoch if request.broker_epoch >= 0 else self.lease.broker_epoch
        for topic_partition, topic_id, state in _partition_states(request):
            try:
                changed.append(self._apply(topic_partition, topic_id, state, broker_epoch))
                outcome[topic_partition] = ErrorCode.NONE
            except ApiError as error:
                outcome[topic_partition] = error.code
                if error.code is ErrorCode.INCONSISTENT_TOPIC_ID:
                    self._log_inconsistent_topic_id(topic_partition, topic_id)
                state_log.info("ignored LeaderAndIsr partition=%s error=%s", topic_partition, error.code.name)
            except LogDirFailure as failure:
                outcome[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                self.log_dir_failed(failure)
        self.partitions_moved([partition.topic_partition for partition in changed])
        return outcome, changed

    def stop_replicas(self, request: StopReplicaRequest) -> tuple[dict[TopicPartition, ErrorCode], list[Partition]]:
        """Stop replicas and, if requested, delete their logs; return errors and the stopped partitions.

        Call `write_deletions` afterwards.  Raises ApiError(STALE_CONTROLLER_EPOCH).
        """
        self.check_controller_epoch(request.controller_epoch)
        outcome: dict[TopicPartition, ErrorCode] = {}
        stopped: list[Partition] = []
        deleted: list[TopicPartition] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                try:
                    check_partition_name(topic_partition)
                except ApiError as error:
                    outcome[topic_partition] = error.code
                    continue
                partition = self.partitions.get(topic_partition)
                if partition is not None and 0 <= state.leader_epoch < partition.leader_epoch:
                    outcome[topic_partition] = ErrorCode.FENCED_LEADER_EPOCH
                    continue
                if partition is not None:
                    partition.resign()
                    stopped.append(partition)
                if state.delete_partition:
                    self.partitions.pop(topic_partition, None)
                    deleted.append(topic_partition)
                outcome[topic_partition] = ErrorCode.NONE
        self.partitions_moved([tp for tp, error in outcome.items() if error is ErrorCode.NONE])
        if self.logs.retire(*deleted):
            self._deleted_from.update(topic for topic, _ in deleted)
        return outcome, stopped

    async def write_deletions(self) -> None:
        """Remove logs that were deleted since the last call from the checkpoints, so that a new topic starts empty.

        In a thread, and once for many deletions: each checkpoint contains all logs.
        """
        if self._deleted_from:
            self.traffic.drop(topic for topic in self._deleted_from if not self.logs.of_topic(topic))
            self._deleted_from.clear()
            plans = [await run_steps(steps, is_urgent=True) for steps in self.logs.checkpoints.plan_after_deletions()]
            await in_thread(partial(_run_all, plans))
            for plan in plans:
                self.logs.take_failures(plan)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks of all partitions, for the checkpoint."""
        return {topic_partition: partition.high_watermark for topic_partition, partition in self.partitions.items()}

    def checkpointed_high_watermark(self, topic_partition: TopicPartition) -> int | None:
        """Return the high watermark for the checkpoint; None without a replica here."""
        partition = self.partitions.get(topic_partition)
        return None if partition is None else partition.high_watermark

    def topic_configs_changed(self, topics: Collection[str]) -> None:
        """Apply the configuration of topics to their logs."""
        for topic in topics:
            logs = self.logs.of_topic(topic)
            config = self._log_config(topic) if logs else None
            for partition_log in logs:
                assert config is not None
                partition_log.config = config

    def configure(self, partition_log: Log) -> None:
        """Apply the configuration in force to a log."""
        partition_log.config = self._log_config(partition_log.topic_partition.topic)

    def high_watermark_of(self, topic_partition: TopicPartition) -> int:
        """Return the bound for retention; a partition without a role yet has the value of its checkpoint."""
        partition = self.partitions.get(topic_partition)
        return partition.high_watermark if partition is not None else self.logs.high_watermarks.get(topic_partition, 0)

    def log_dir_failed(self, failure: LogDirFailure) -> None:
        """Wake the requests that wait for partitions of the log directory; other partitions stay online."""
        log.error("log directory is offline, not serving its partitions error=%s", failure)
        offline = [partition for partition in self.partitions.values() if not partition.log.log_directory.is_online]
        for partition in offline:
            partition.notify()
        self.partitions_moved([partition.topic_partition for partition in offline])

    async def lease_changed(self) -> None:
        """Wake the requests that wait for the partitions that this broker leads: it may, or may not, act as leader."""
        async for partitions in sliced_batches(list(self.led())):
            for partition in partitions:
                partition.notify()
            self.partitions_moved([partition.topic_partition for partition in partitions])

    def led(self) -> Iterable[Partition]:
        """Return the partitions that this broker leads."""
        return (partition for partition in self.partitions.values() if partition.is_leader)

    def check_controller_epoch(self, epoch: int) -> None:
        """Store the newest controller epoch; raise ApiError(STALE_CONTROLLER_EPOCH) for an older one."""
        if epoch < self.controller_epoch:
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = epoch

    def _settled(self, partition_log: Log) -> None:
        partition = self.partitions.get(partition_log.topic_partition)
        if partition is not None and partition.log is partition_log:
            if partition.is_leader:
                partition.advance_high_watermark(self._clock.monotonic_ms())
            self.partition_moved(partition.topic_partition)

    def _apply(
        self, topic_partition: TopicPartition, topic_id: UUID, state: LeaderAndIsrPartitionState, broker_epoch: int
    ) -> Partition:
        check_partition_name(topic_partition)
        check_role(state)
        if self.broker_id not in state.replicas:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = self.partitions.get(topic_partition)
        if partition is None:
            partition = self._create(topic_partition, topic_id, is_new=state.is_new)
        elif not partition.log.log_directory.is_online:
            # Checked before any epoch: the controller sends the current epoch to find out which replicas are offline.
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        elif topic_id not in {ZERO_UUID, partition.log.topic_id}:
            if partition.log.topic_id is not None:
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
            partition.log.assign_topic_id(topic_id)
        partition.confirm(state, broker_epoch)
        latest_epoch = partition.log.leader_epochs.latest_epoch
        if partition.leader_epoch < state.leader_epoch < latest_epoch:
            message = (
                "ZooKeeper has an older state than this log partition=%s leader_epoch=%s latest_epoch=%s: see the "
                "restore of ZooKeeper in docs/operations.md"
            )
            log.error(message, topic_partition, state.leader_epoch, latest_epoch)
        partition.apply(state, self._clock.monotonic_ms())
        state_log.info(
            "changed role partition=%s role=%s leader=%s leader_epoch=%s isr=%s",
            topic_partition,
            "leader" if partition.is_leader else "follower",
            partition.leader,
            partition.leader_epoch,
            partition.isr,
        )
        return partition

    def _log_inconsistent_topic_id(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Log that the files belong to another topic of the same name: clients only see NOT_LEADER_OR_FOLLOWER."""
        found = self.logs.get(topic_partition)
        if found is not None and found.topic_id is not None:
            log.error(
                "inconsistent topic id partition=%s directory=%s on_disk=%s in_cluster=%s: the files belong to another "
                "topic of this name, so the partition is not served here; stop the broker, move the directory away and "
                "start it again to copy the replica from the leader",
                topic_partition,
                found.directory,
                uuid_text(found.topic_id),
                uuid_text(topic_id),
            )

    def _new_logs(self, request: LeaderAndIsrRequest) -> Iterable[NewLog]:
        for topic_partition, topic_id, state in _partition_states(request):
            if topic_partition in self.logs.logs or self.broker_id not in state.replicas:
                continue
            try:
                check_partition_name(topic_partition)
                check_role(state)
            except ApiError:
                continue  # `_apply` raises it too.
            yield NewLog(
                topic_partition,
                self._log_config(topic_partition.topic),
                topic_id=None if topic_id == ZERO_UUID else topic_id,
                leader_epoch=state.leader_epoch if state.leader == self.broker_id else None,
                is_new=state.is_new,
            )

    def _create(self, topic_partition: TopicPartition, topic_id: UUID, *, is_new: bool) -> Partition:
        try:
            config = self._log_config(topic_partition.topic)
            partition_log = self.logs.get_or_create(topic_partition, topic_id, config, is_new=is_new)
        except LogDirFailure as failure:
            self.log_dir_failed(failure)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from failure
        checkpointed = self.logs.high_watermarks.get(topic_partition, 0)
        partition = Partition(
            topic_partition,
            self.broker_id,
            partition_log,
            high_watermark=checkpointed,
            lag_time_max_ms=self._lag_time_max_ms,
            traffic=self.traffic.of(topic_partition.topic),
            lease=self.lease,
        )
        self.partitions[topic_partition] = partition
        return partition


def _run_all(plans: Iterable[CheckpointPlan]) -> None:
    for plan in plans:
        plan.run()


def _partition_states(
    request: LeaderAndIsrRequest,
) -> Iterable[tuple[TopicPartition, UUID, LeaderAndIsrPartitionState]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state
    for state in request.ungrouped_partition_states:
        yield TopicPartition(state.topic_name, state.partition_index), ZERO_UUID, state

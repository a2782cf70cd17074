"""Moves replicas between the log directories of this broker.  KIP-113; Kafka: ReplicaAlterLogDirsThread.

A move has a copy of the log in the target directory (`log_creation`).  A few workers fill the copies, one
partition per worker at a time, because that completes each single move sooner:

    1. truncate the copy to the records that it shares with the log, by leader epochs; again after each truncation
    2. copy     read a chunk in a thread and append it on the loop, until both have the same end
    3. prepare  fsync the copy, in a thread
    4. replace  swap the logs when both have the same end; the loop does this and appends, so nothing is appended then

A move is paused while the partition has no role, and ends when the partition is deleted, a log directory fails, or the
replica is moved elsewhere.  After a restart it resumes when the controller gives the partition a role.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.model import TopicPartition
from kctl.server.loop.tasks import in_thread
from kctl.server.replication.follower.rules import UNDEFINED, truncation
from kctl.server.replication.follower.truncating import truncate
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.storage.names import future_directory_name
from kctl.system.environment import Clock

log = logging.getLogger(__name__)


DIRECTORY_NAME_LENGTH_MAX = 255
_CREDIT_MS_MAX = 1_000
"""The most unused time that may be caught up by copying faster than the limit."""
_WAIT_MS_MIN = 10
_UNIQUE = "0" * 32


@dataclass(slots=True)
class _Move:
    """A partition that is being moved, and the state of the log at the last truncation of the copy."""

    partition: Partition
    log: Log | None = None
    truncations: int = -1
    not_before_ms: int = 0


class LogDirMoves:
    """All moves of a broker: `move` starts and ends them, `resume` and `stop` follow the partition's role."""

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        clock: Clock,
        *,
        workers: int,
        piece_bytes: int,
        backoff_ms: int,
        bytes_per_second: Callable[[], float],
    ) -> None:
        """`piece_bytes` is the size of a chunk; `bytes_per_second` may return another value at any time."""
        self._replicas = replicas
        self._logs = logs
        self._clock = clock
        self._workers = workers
        self._piece_bytes = piece_bytes
        self._backoff_ms = backoff_ms
        self._bytes_per_second = bytes_per_second
        self._owed_bytes = 0.0
        self._paid_at_ms = clock.monotonic_ms()
        self._moves: dict[TopicPartition, _Move] = {}
        self._taken: set[TopicPartition] = set()
        """Partitions that a worker processes.  A move that a new role or request replaces waits until the worker is
        done: two workers would write the same files of the copy and of the log.
        """
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return len(self._moves)

    def start(self) -> None:
        """Start the workers."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._work(), name=f"log-dir-moves-{n}") for n in range(self._workers)]

    async def close(self) -> None:
        """Stop the workers; work in threads finishes first."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def move(self, tp: TopicPartition, path: str) -> None:
        """Move the replica to the log directory `path`: start or change a move, or end it if the replica is there.

        Raises ApiError: INVALID_TOPIC_EXCEPTION for a name that leaves no room for that of a copy, LOG_DIR_NOT_FOUND,
        KAFKA_STORAGE_ERROR; REPLICA_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION when the replica is not here, but its
        log will be created in that directory.  Kafka's ReplicaManager.alterReplicaLogDirs.
        """
        if len(future_directory_name(tp, _UNIQUE).encode()) > DIRECTORY_NAME_LENGTH_MAX:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp.topic} is too long for the name of a future log")
        if not self._logs.is_directory_online(path):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        found, copy = self._logs.get(tp), self._logs.futures.get(tp)
        is_there = path in {replica_log.log_directory.path for replica_log in (found, copy) if replica_log is not None}
        partition = self._replicas.partitions.get(tp)
        if partition is not None:
            self._replicas.partition(*tp)
            if copy is not None and copy.log_directory.path != path:
                self.stop(tp)
                self._logs.delete_future(tp)
                copy = None
        if partition is None:
            if not is_there:
                self._logs.futures.prefer(tp, path)
            self._raise_unavailable(tp)
        elif copy is None and partition.log.log_directory.path != path:
            try:
                self._logs.create_future(tp, path)
            except LogDirFailure as failure:
                self._replicas.log_dir_failed(failure)
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from failure
            log.info("moving replica partition=%s from=%s to=%s", tp, partition.log.log_directory.path, path)
            self.resume(partition)

    def _raise_unavailable(self, tp: TopicPartition) -> None:
        try:
            self._replicas.partition(*tp)
        except ApiError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE) from error
            raise

    def resume(self, partition: Partition) -> None:
        """Continue the move, if any, of a partition with a (new) role, after truncating the copy."""
        tp = partition.topic_partition
        copy = self._logs.futures.get(tp)
        if copy is None:
            return
        known = (copy.topic_id, partition.log.topic_id)
        if copy.log_directory is partition.log.log_directory or (None not in known and known[0] != known[1]):
            log.warning("deleting the future log of a finished move partition=%s directory=%s", tp, copy.directory)
            self.stop(tp)
            self._logs.delete_future(tp)
            return
        self._moves[tp] = _Move(partition)
        self._changed.set()

    def stop(self, tp: TopicPartition) -> None:
        """Pause the move until `resume`."""
        self._moves.pop(tp, None)

    # The workers

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            move = self._next()
            if move is None:
                await self._wait_for_change()
                continue
            tp = move.partition.topic_partition
            self._taken.add(tp)
            try:
                await self._advance(move)
            except LogDirFailure as failure:
                self.stop(tp)
                self._replicas.log_dir_failed(failure)
            except Exception as error:
                log.warning(
                    "cannot continue moving a replica, trying again partition=%s error=%s retry_ms=%d",
                    tp,
                    error,
                    self._backoff_ms,
                    exc_info=error,
                )
                move.not_before_ms = self._clock.monotonic_ms() + self._backoff_ms
            finally:
                self._taken.remove(tp)

    def _next(self) -> _Move | None:
        """Return the first move without a worker, in order of partitions, so that started moves finish first."""
        now_ms = self._clock.monotonic_ms()
        waiting = [tp for tp, move in self._moves.items() if tp not in self._taken and move.not_before_ms <= now_ms]
        return self._moves[min(waiting)] if waiting else None

    async def _wait_for_change(self) -> None:
        timeout_s = self._backoff_ms / 1000 if self._moves else None
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _is_current(self, move: _Move, copy: Log) -> bool:
        """Return whether the move was not changed or ended in the meantime."""
        tp = move.partition.topic_partition
        return (
            self._moves.get(tp) is move
            and self._logs.futures.get(tp) is copy
            and move.log is move.partition.log
            and move.log.truncations == move.truncations
        )

    async def _advance(self, move: _Move) -> None:
        """Perform one step of the move.  Raises LogDirFailure, ApiError, OSError."""
        partition, tp = move.partition, move.partition.topic_partition
        current, copy = partition.log, self._logs.futures.get(tp)
        if copy is None or self._replicas.partitions.get(tp) is not partition or not current.log_directory.is_online:
            self.stop(tp)
            return
        truncations = current.truncations

        def is_current() -> bool:
            is_same = partition.log is current and current.truncations == truncations
            return is_same and self._moves.get(tp) is move and self._logs.futures.get(tp) is copy

        if move.log is not current or move.truncations != truncations:
            await self._cut(partition, copy, is_current)
            if not is_current():
                return
            move.log, move.truncations = current, truncations
        await _bring_into_range(current, copy, is_current)
        if not is_current():
            return
        if copy.log_end_offset < current.log_end_offset:
            await self._copy_piece(move, copy)
        elif self._logs.futures.is_ready(current):
            self._replace(move, copy)
        else:
            await self._prepare(current, copy)

    async def _cut(self, partition: Partition, copy: Log, is_current: Callable[[], bool]) -> None:
        """Truncate the copy as a follower does, epoch by epoch, until both logs have the same epoch."""
        was_cut, is_final = True, False
        while was_cut and not is_final:
            requested = copy.leader_epochs.latest_epoch
            epoch, end = (
                (UNDEFINED, UNDEFINED) if requested == UNDEFINED else partition.log.end_offset_for_epoch(requested)
            )
            own_epoch, own_end = copy.end_offset_for_epoch(epoch)
            offset, is_final = truncation(
                leader_epoch=epoch,
                leader_end_offset=end,
                own_epoch=own_epoch,
                own_end_offset=own_end,
                log_end_offset=copy.log_end_offset,
                high_watermark=partition.high_watermark,
            )
            was_cut = await truncate(copy, offset, is_current)
            if was_cut:
                log.info("truncated future log partition=%s offset=%s", partition.topic_partition, offset)

    async def _copy_piece(self, move: _Move, copy: Log) -> None:
        assert move.log is not None
        offset, end = copy.log_end_offset, move.log.log_end_offset
        piece = move.log.read(offset, self._piece_bytes, max_offset=end)
        directory = move.log.log_directory
        try:
            records = await in_thread(piece.read)
        except OSError as error:
            raise directory.fail(error) from error
        if not self._is_current(move, copy) or copy.log_end_offset != offset:
            return
        copy.append_as_follower(records, now_ms=self._clock.now_ms())
        await self._replicas.flushes.settle([copy])
        if not self._is_current(move, copy):
            return
        await _bring_into_range(move.log, copy, partial(self._is_current, move, copy))
        await self._pay(len(records))

    async def _pay(self, byte_count: int) -> None:
        """Wait until the rate limit allows these bytes; read the limit again after each wait."""
        self._owed_bytes += byte_count
        while True:
            per_ms = max(self._bytes_per_second(), 1) / 1000
            now_ms = self._clock.monotonic_ms()
            paid_bytes, self._paid_at_ms = (now_ms - self._paid_at_ms) * per_ms, now_ms
            self._owed_bytes = max(self._owed_bytes - paid_bytes, -_CREDIT_MS_MAX * per_ms)
            wait_ms = min(self._owed_bytes / per_ms, _CREDIT_MS_MAX)
            if wait_ms < _WAIT_MS_MIN:
                await asyncio.sleep(0)
                return
            await asyncio.sleep(wait_ms / 1000)

    async def _prepare(self, current: Log, copy: Log) -> None:
        plans = self._logs.plan_replacement(current.topic_partition)
        try:
            await in_thread(plans[1].run)
        finally:
            self._logs.replacement_prepared(current, copy, plans, self._clock.now_ms())

    def _replace(self, move: _Move, copy: Log) -> None:
        tp = move.partition.topic_partition
        move.partition.replace_log(self._logs.replace_with_future(tp))
        self.stop(tp)
        log.info("moved replica partition=%s to=%s", tp, copy.directory)
        self._replicas.partition_moved(tp)


async def _bring_into_range(current: Log, copy: Log, is_current: Callable[[], bool]) -> None:
    """Make the copy start where the log starts, and end no later than the log."""
    if copy.log_start_offset > current.log_start_offset or copy.log_end_offset < current.log_start_offset:
        copy.truncate_fully_and_start_at(current.log_start_offset)
    elif copy.log_end_offset > current.log_end_offset:
        await truncate(copy, current.log_end_offset, is_current)
        if not is_current():
            return
    copy.increment_log_start_offset(min(current.log_start_offset, copy.log_end_offset))

"""Periodic tasks on the logs of a broker: flushes, checkpoints, retention, compaction, removal of files.

Plans are made on the loop, executed in a thread, and completed on the loop, because disks may be slow.
Kafka: the tasks that LogManager schedules.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.environment import Clock, Random
from kctl.errors import LogDirFailure
from kctl.limits import COSTLY_ELEMENTS_PER_SLICE_MAX
from kctl.server.cleaners import LogCleaners
from kctl.server.producer_expiry import ROUND_S, ProducerExpiry
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.slices import end_of, pause, pieces
from kctl.server.schedule import run_every
from kctl.server.thread_pool import in_thread
from kctl.storage.flushing import FlushPlan
from kctl.storage.log import Log
from kctl.storage.log_manager import LogManager
from kctl.storage.offset_checkpoints import PlanSteps
from kctl.storage.plans import CheckpointPlan, RemovalPlan

log = logging.getLogger(__name__)

_FLUSH_CHECK_MS = 1_000
_REMOVAL_CHECK_MS = 1_000
_PLANS_PER_LOG_MAX = 100
_PLANNED_PER_SLICE = 500
"""Logs whose flushes are planned, in about 1 ms, before other work may be done."""


class LogTasks:
    """Call `start` when the broker serves, and `stop` before the logs are closed."""

    def __init__(
        self, logs: LogManager, replicas: ReplicaManager, clock: Clock, *, configs: ConfigView, random: Random
    ) -> None:
        self._configs = configs
        self.cleaners = LogCleaners(logs, self._last_stable_offset_of, clock, configs=configs, random=random)
        self.producers = ProducerExpiry(logs.all, clock)
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, config: BrokerConfig) -> None:
        """Starts all tasks at their configured intervals."""
        tasks = (
            (config.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks),
            (config.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points),
            (config.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_start_offsets),
            (config.log_retention_check_interval_ms, self.apply_retention),
            (_FLUSH_CHECK_MS, self.flush),
            (_REMOVAL_CHECK_MS, self.remove_files),
            (config.producer_id_expiration_check_interval_ms, self.expire_idle_producers),
            (ROUND_S * 1000, self.producers.count),
        )
        self._tasks = [
            self._loop.create_task(run_every(interval_ms, task), name=task.__name__) for interval_ms, task in tasks
        ]
        if config.log_cleaner_enable:
            self.cleaners.start()

    async def stop(self) -> None:
        """Stops the tasks; work in threads finishes first, a cleaning after its current batch."""
        for task in self._tasks:
            task.cancel()
        await self.cleaners.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def checkpoint_high_watermarks(self) -> None:
        """Writes the high watermark checkpoints."""
        await self._plan_and_run(
            self._logs.checkpoints.plan_high_watermarks(self._replicas.checkpointed_high_watermark)
        )

    async def checkpoint_recovery_points(self) -> None:
        """Writes the recovery point checkpoints."""
        await self._plan_and_run(self._logs.checkpoints.plan_recovery_points())

    async def checkpoint_log_start_offsets(self) -> None:
        """Writes the log start offset checkpoints."""
        await self._plan_and_run(self._logs.checkpoints.plan_log_start_offsets())

    async def remove_files(self) -> None:
        """Deletes files and directories whose file.delete.delay.ms has passed."""
        plan = self._logs.plan_removals(self._clock.now_ms())
        if plan:
            await self._run(plan)

    async def apply_retention(self) -> None:
        """Deletes segments by the retention properties."""
        deleted, now_ms = 0, self._clock.now_ms()
        for logs in pieces(self._logs.all(), COSTLY_ELEMENTS_PER_SLICE_MAX):
            deleted += self._logs.apply_retention(now_ms, self._replicas.high_watermark_of, logs)
            await pause()
        if deleted:
            log.info("retention deleted segments=%s", deleted)

    async def expire_idle_producers(self) -> None:
        """Removes the state of producers that were idle for producer.id.expiration.ms."""
        await self.producers.expire(self._configs.current.producer_id_expiration_ms)

    async def flush(self) -> None:
        """Flushes closed segments, and the logs that flush.ms requires."""
        for logs in pieces(self._logs.all(), _PLANNED_PER_SLICE):
            for partition_log, plan in self._logs.plan_flushes(self._clock.now_ms(), logs):
                await self._flush(partition_log, plan)
            await pause()

    async def _flush(self, partition_log: Log, first: FlushPlan) -> None:
        """Runs a plan, and those for the closed segments that it leaves."""
        plan: FlushPlan | None = first
        for _ in range(_PLANS_PER_LOG_MAX):
            if plan is None:
                break
            plan = await self._flush_planned(partition_log, plan)

    async def _flush_planned(self, partition_log: Log, plan: FlushPlan) -> FlushPlan | None:
        started_ms = self._clock.monotonic_ms()
        try:
            await in_thread(plan.run)
            self._replicas.flushes.times.record(self._clock.monotonic_ms() - started_ms)
            partition_log.flushed(plan, self._clock.now_ms())
            if plan.offset < partition_log.active_segment.base_offset:
                return partition_log.plan_due_flush(self._clock.now_ms())
        except OSError as error:
            if plan.directory == partition_log.directory:  # Else the log was deleted or moved in the meantime.
                self._replicas.log_dir_failed(partition_log.log_directory.fail(error))
        except LogDirFailure as failure:
            self._replicas.log_dir_failed(failure)
        return None

    def _last_stable_offset_of(self, partition_log: Log) -> int:
        return partition_log.last_stable_offset(self._replicas.high_watermark_of(partition_log.topic_partition))

    async def _plan_and_run(self, steps: PlanSteps) -> None:
        await self._run(await end_of(steps))

    async def _run(self, plan: CheckpointPlan | RemovalPlan) -> None:
        await in_thread(plan.run)
        self._logs.take_failures(plan)

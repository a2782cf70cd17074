"""The logs of a broker: created, loaded and closed in threads, and their periodic tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.topic import topic_config_ignoring_errors
from kctl.errors import KctlError, LogDirFailure
from kctl.limits import COSTLY_ELEMENTS_PER_SLICE_MAX
from kctl.server.loop.slices import run_steps, sliced_batches
from kctl.server.loop.tasks import in_thread, run_every
from kctl.server.network.world import World
from kctl.server.replication.logs.cleaners import LogCleaners
from kctl.server.replication.logs.producer_expiry import ROUND_S, ProducerExpiry
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.storage.checkpointing import PlanSteps
from kctl.storage.config import FOREVER, LogConfig
from kctl.storage.log.flushing import CheckpointPlan, FlushPlan, RemovalPlan
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.storage.segments.segment import OPEN_SEGMENTS
from kctl.system import open_files
from kctl.system.environment import Clock, Random

# The logs of a broker: created, loaded and closed in threads; failed directories are reported.


log = logging.getLogger(__name__)


class BrokerLogs:
    """`on_log_dir_failure` is called when a directory has failed and others are left; `fail` when none is left.

    Owner: event loop.
    """

    def __init__(
        self,
        configs: ConfigView,
        world: World,
        *,
        on_log_dir_failure: Callable[[], None],
        fail: Callable[[KctlError], None],
    ) -> None:
        self._configs = configs
        self._loop = asyncio.get_running_loop()
        self._on_log_dir_failure = on_log_dir_failure
        self._fail = fail
        self._loading: asyncio.Future[None] | None = None
        self.manager = LogManager(
            configs.current.log_directories,
            files=world.files,
            clock=world.clock,
            random=world.random,
            on_log_dir_failure=self._log_dir_failed,
        )

    async def load(self, config_of: Callable[[str], LogConfig]) -> None:
        """Load logs in a thread: recovery may take long, and the embedded ZooKeeper must respond meanwhile.

        `config_of` returns the configuration of a topic.
        """
        topics = {topic: config_of(topic) for topic in self._configs.topic_overrides}
        self.manager.default_config = LogConfig.of(topic_config_ignoring_errors(self._configs.current, {})[0])
        self._set_recovery_threads()
        OPEN_SEGMENTS.descriptor_max = open_files.descriptors_for_segments(open_files.limit())
        self._loading = self._loop.run_in_executor(None, self.manager.load, topics)
        await asyncio.shield(self._loading)  # `close` waits for its end.
        segments = sum(len(partition_log.segments) for partition_log in self.manager.logs.values())
        shortage = open_files.shortage(open_files.limit(), segments=segments)
        if shortage is not None:
            log.warning("%s", shortage)

    async def close(self, replicas: ReplicaManager | None) -> None:
        """Flush and close logs in a thread and write checkpoints.

        If they are still being loaded, that is stopped, and changes nothing in the directories.
        """
        if replicas is not None:
            await replicas.flushes.close()
        if self._loading is not None:
            self.manager.stop_loading()
            await asyncio.gather(self._loading, return_exceptions=True)
        if not self.manager.is_loaded:
            self.manager.release()
            return
        self._set_recovery_threads()
        high_watermarks = dict(self.manager.high_watermarks)
        if replicas is not None:
            high_watermarks.update(replicas.high_watermarks())
        await self._loop.run_in_executor(None, self.manager.clean_shutdown, high_watermarks)

    def _set_recovery_threads(self) -> None:
        """Set the threads that load or close logs to the number in the configuration in force."""
        config = self._configs.current
        threads = config.num_recovery_threads_per_data_dir * len(config.log_directories)
        self.manager.executor = ThreadPoolExecutor(threads, "recovery") if threads > 1 else None

    def _log_dir_failed(self, _: str) -> None:
        """Report a failed log directory, from any thread; the other log directories stay online."""
        if self.manager.online_directories:
            self._loop.call_soon_threadsafe(self._on_log_dir_failure)
        else:
            reasons = "; ".join(f"{state.path}: {state.failure}" for state in self.manager.directories)
            self._loop.call_soon_threadsafe(self._fail, KctlError(f"all log directories are offline: {reasons}"))


# Periodic tasks on the logs of a broker: flushes, checkpoints, retention, compaction, removal of files.
#
# Plans are made on the loop, executed in a thread, and completed on the loop, because disks may be slow. Kafka: the
# tasks that LogManager schedules.
#
# Owner: event loop.


_FLUSH_CHECK_MS = 1_000
_REMOVAL_CHECK_MS = 1_000
_PLANS_PER_LOG_MAX = 100
_PLANNED_PER_SLICE = 500
"""Logs whose flushes are planned, in about 1 ms, before other work may be done."""
_SCANNED_PER_CHECK = 2_000
"""Logs that one check looks at: 20,000 each second would cost 40 ms of it.  Those with flush.ms are in each check."""


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
        self._scanned = 0
        """How many logs the checks of this round have looked at."""
        self._timed: dict[Log, None] = {}
        """The logs with flush.ms that checks have found."""

    def start(self, config: BrokerConfig) -> None:
        """Start all tasks at their configured intervals."""
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
        """Stop the tasks; work in threads finishes first, a cleaning after its current batch."""
        for task in self._tasks:
            task.cancel()
        await self.cleaners.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def checkpoint_high_watermarks(self) -> None:
        """Write the high watermark checkpoints."""
        await self._plan_and_run(
            self._logs.checkpoints.plan_high_watermarks(self._replicas.checkpointed_high_watermark)
        )

    async def checkpoint_recovery_points(self) -> None:
        """Write the recovery point checkpoints."""
        await self._plan_and_run(self._logs.checkpoints.plan_recovery_points())

    async def checkpoint_log_start_offsets(self) -> None:
        """Write the log start offset checkpoints."""
        await self._plan_and_run(self._logs.checkpoints.plan_log_start_offsets())

    async def remove_files(self) -> None:
        """Delete files and directories whose file.delete.delay.ms has passed."""
        plan = self._logs.plan_removals(self._clock.now_ms())
        if plan:
            await self._run(plan)

    async def apply_retention(self) -> None:
        """Delete segments by the retention properties."""
        deleted, now_ms = 0, self._clock.now_ms()
        async for logs in sliced_batches(self._logs.all(), COSTLY_ELEMENTS_PER_SLICE_MAX):
            deleted += self._logs.apply_retention(now_ms, self._replicas.high_watermark_of, logs)
        if deleted:
            log.info("retention deleted segments=%s", deleted)

    async def expire_idle_producers(self) -> None:
        """Remove the state of producers that were idle for producer.id.expiration.ms."""
        await self.producers.expire(self._configs.current.producer_id_expiration_ms)

    async def flush(self) -> None:
        """Flush closed segments, and the logs that flush.ms requires."""
        async for logs in sliced_batches(self._checked_logs(), _PLANNED_PER_SLICE):
            for partition_log, plan in self._logs.plan_flushes(self._clock.now_ms(), logs):
                await self._flush(partition_log, plan)

    def _checked_logs(self) -> list[Log]:
        """Return the next _SCANNED_PER_CHECK logs, and those with flush.ms that earlier checks have found."""
        logs = self._logs.all()
        start = self._scanned if self._scanned < len(logs) else 0
        self._scanned = start + _SCANNED_PER_CHECK
        some = logs[start : self._scanned]
        checked = dict.fromkeys((*self._timed, *some))
        self._timed = {
            found: None for found in checked if found.config.flush_ms != FOREVER and self._logs.is_current(found)
        }
        return list(checked)

    async def _flush(self, partition_log: Log, first: FlushPlan) -> None:
        """Run a plan, and those for the closed segments that it leaves."""
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
        await self._run(await run_steps(steps))

    async def _run(self, plan: CheckpointPlan | RemovalPlan) -> None:
        await in_thread(plan.run)
        self._logs.take_failures(plan)

"""The logs of a broker: created, loaded and closed in threads; failed directories are reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kctl.config.dynamic import ConfigView
from kctl.config.topic import topic_config_ignoring_errors
from kctl.errors import KctlError
from kctl.server import open_files
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.world import World
from kctl.storage.config import LogConfig
from kctl.storage.log_manager import LogManager
from kctl.storage.open_segments import OPEN_SEGMENTS

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
        self._are_loaded = False
        self.manager = LogManager(
            configs.current.log_directories,
            files=world.files,
            clock=world.clock,
            random=world.random,
            on_log_dir_failure=self._log_dir_failed,
        )

    async def load(self, config_of: Callable[[str], LogConfig]) -> None:
        """Loads logs in a thread: recovery may take long, and the embedded ZooKeeper must respond meanwhile.

        `config_of` returns the configuration of a topic.
        """
        topics = {topic: config_of(topic) for topic in self._configs.topic_overrides}
        self.manager.default_config = LogConfig.of(topic_config_ignoring_errors(self._configs.current, {})[0])
        self._set_recovery_threads()
        OPEN_SEGMENTS.descriptor_max = open_files.descriptors_for_segments(open_files.limit())
        await self._loop.run_in_executor(None, self.manager.load, topics)
        self._are_loaded = True
        segments = sum(len(partition_log.segments) for partition_log in self.manager.logs.values())
        shortage = open_files.shortage(open_files.limit(), segments=segments)
        if shortage is not None:
            log.warning("%s", shortage)

    async def close(self, replicas: ReplicaManager | None) -> None:
        """Flushes and closes logs in a thread and writes checkpoints; only unlocks directories that were not loaded."""
        if replicas is not None:
            await replicas.flushes.close()
        if not self._are_loaded:
            self.manager.release()
            return
        self._set_recovery_threads()
        high_watermarks = dict(self.manager.high_watermarks)
        if replicas is not None:
            high_watermarks.update(replicas.high_watermarks())
        await self._loop.run_in_executor(None, self.manager.clean_shutdown, high_watermarks)

    def _set_recovery_threads(self) -> None:
        """Sets the threads that load or close logs to the number in the configuration in force."""
        config = self._configs.current
        threads = config.num_recovery_threads_per_data_dir * len(config.log_directories)
        self.manager.executor = ThreadPoolExecutor(threads, "recovery") if threads > 1 else None

    def _log_dir_failed(self, _: str) -> None:
        """Called in any thread; the other log directories stay online."""
        if self.manager.online_directories:
            self._loop.call_soon_threadsafe(self._on_log_dir_failure)
        else:
            reasons = "; ".join(f"{state.path}: {state.failure}" for state in self.manager.directories)
            self._loop.call_soon_threadsafe(self._fail, KctlError(f"all log directories are offline: {reasons}"))

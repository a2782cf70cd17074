"""Applies changes of the broker's own properties to components that keep values derived from them.

Most properties are read from `ConfigView.current` when they are used.  Values are kept by the configurations of logs,
the distribution of partitions over fetchers, the decision of elections, the listeners, and the endpoints in the
registration.  Kafka: DynamicLogConfig, DynamicThreadPool, DynamicListenerConfig.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kctl.config.dynamic import ConfigView
from kctl.limits import Subject, bound
from kctl.server.replication.follower.fetchers import ReplicaFetchers
from kctl.server.replication.replica_manager import ReplicaManager

RECONFIGURED_LOGS_PER_TURN = bound(
    Subject.LONG_WORK,
    "logs to which a change of the broker's properties is applied without a pause",
    200,
    "logs",
    on_excess="other connections are served in between",
)


log = logging.getLogger(__name__)


class BrokerConfigUpdates:
    """Call `start`, then `close`."""

    def __init__(
        self,
        configs: ConfigView,
        *,
        replicas: ReplicaManager,
        fetchers: ReplicaFetchers,
        unclean_election_changed: Callable[[], None],
        listeners_changed: Callable[[], Awaitable[None]],
    ) -> None:
        """`listeners_changed` opens and closes listeners, and registers changed endpoints in ZooKeeper."""
        self._configs = configs
        self._replicas = replicas
        self._fetchers = fetchers
        self._unclean_election_changed = unclean_election_changed
        self._listeners_changed = listeners_changed
        self._applied = configs.current
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Apply the configuration that is in force, and follow it."""
        self._configs.subscribe(self._changed)
        self._changed()

    async def close(self) -> None:
        """Cancel changes in progress."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _changed(self) -> None:
        if self._configs.current is not self._applied and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._apply(), name="broker-config-updates")

    async def _apply(self) -> None:
        try:
            while self._configs.current is not self._applied:
                before, self._applied = self._applied, self._configs.current
                if self._applied.unclean_leader_election_enable != before.unclean_leader_election_enable:
                    self._unclean_election_changed()
                self._fetchers.resize(self._applied.num_replica_fetchers)
                await self._configure_logs()
                await self._listeners_changed()
        except Exception as error:
            log.exception("cannot apply changed broker properties, applying them at the next start error=%r", error)
        finally:
            self._task = None

    async def _configure_logs(self) -> None:
        """In slices: with many partitions, other connections are served in between."""
        logs = self._replicas.logs
        every = [*logs.logs.values(), *logs.futures.logs.values()]
        for start in range(0, len(every), RECONFIGURED_LOGS_PER_TURN):
            for log in every[start : start + RECONFIGURED_LOGS_PER_TURN]:
                self._replicas.configure(log)
            await asyncio.sleep(0)

"""The finalized features of the cluster and their epoch, as the znode /feature has them (KIP-584).

Kafka: FinalizedFeatureCache and FinalizedFeatureChangeListener.  Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from kctl.errors import KctlError, NoNodeError
from kctl.output.quantities import INT16_MAX
from kctl.server.znodes.problem_log import ProblemLog
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

UNKNOWN_EPOCH = -1
NAME_BYTES_MAX = 249
NAME_SHOWN = 50


class FinalizedFeatures:
    """What ApiVersions responses contain; read again when the znode changes."""

    def __init__(self, zookeeper: ZooKeeper, *, has_features: bool) -> None:
        """Before inter.broker.protocol.version 2.7 the znode is not read, and nothing is known."""
        self._zookeeper = zookeeper
        self._has_features = has_features
        self._reading: asyncio.Task[None] | None = None
        self._problems = ProblemLog(log, "cannot read finalized features path=%s error=%s")
        self.epoch = UNKNOWN_EPOCH
        """The version of the znode; UNKNOWN_EPOCH before it is read, and while features are disabled."""
        self.levels: Mapping[str, tuple[int, int]] = {}
        """Minimum and maximum level by feature."""

    async def load(self) -> None:
        """Read the znode and set a watch."""
        if not self._has_features:
            return
        try:
            data, stat = await self._zookeeper.get(paths.FEATURE, watch=True)
            found, epoch = self._decoded(data), stat.version
        except NoNodeError:
            found, epoch = znodes.Features(znodes.FEATURES_DISABLED), UNKNOWN_EPOCH
            if await self._zookeeper.exists(paths.FEATURE, watch=True) is not None:
                await self.load()  # It was created in between.
                return
        is_enabled = found.status == znodes.FEATURES_ENABLED
        self.epoch, self.levels = (epoch, found.levels) if is_enabled else (UNKNOWN_EPOCH, {})

    def _decoded(self, data: bytes) -> znodes.Features:
        """Features are disabled while the contents are unusable, or do not fit into a response."""
        try:
            found = znodes.decode_features(paths.FEATURE, data)
            for name, levels in found.levels.items():
                if len(name.encode()) > NAME_BYTES_MAX or not all(0 <= level <= INT16_MAX for level in levels):
                    raise ValueError(f"the feature {name[:NAME_SHOWN]!r} has an invalid name or level")
        except ValueError as error:
            self._problems.report(paths.FEATURE, str(error))
            return znodes.Features(znodes.FEATURES_DISABLED)
        self._problems.report(paths.FEATURE)
        return found

    def on_watch(self, event: WatchEvent) -> None:
        """Handle a watch event of the session; other paths are ignored."""
        if event.path == paths.FEATURE and (self._reading is None or self._reading.done()):
            self._reading = asyncio.get_running_loop().create_task(self._load_again(), name="read features")

    async def close(self) -> None:
        """Cancel a pending read."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _load_again(self) -> None:
        try:
            await self.load()
        except KctlError as error:  # A new session loads it again.
            log.warning("cannot read finalized features path=%s error=%s", paths.FEATURE, error)

"""The features of the cluster: the levels that brokers support, and the finalized ones of the znode /feature (KIP-584).

A feature without a level in the znode has its initial level, which depends on the release that is served only.  So a
cluster in which no level was changed has no features in ZooKeeper, and brokers of Kafka 2.8, which support none of
these, can join it; with a level in the znode they refuse to.  Level 0 disables what a feature enables.

Kafka: FinalizedFeatureCache and FinalizedFeatureChangeListener.  Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from kctl.config.broker import BrokerConfig
from kctl.config.subjects.groups import CONSUMER_PROTOCOL, SHARE_PROTOCOL, STREAMS_PROTOCOL
from kctl.config.subjects.versions import KAFKA_RELEASES
from kctl.errors import KctlError, NoNodeError
from kctl.output.quantities import INT16_MAX
from kctl.server.znodes.problem_log import ProblemLog
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

UNKNOWN_EPOCH = -1
NAME_BYTES_MAX = 249
NAME_SHOWN = 50

GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION = "group.version", "share.version", "streams.version"
TRANSACTION_VERSION = "transaction.version"
FEATURES_OF_PROTOCOLS = {
    CONSUMER_PROTOCOL: GROUP_VERSION,
    SHARE_PROTOCOL: SHARE_VERSION,
    STREAMS_PROTOCOL: STREAMS_VERSION,
}
"""The feature that enables a protocol of groups, if group.coordinator.rebalance.protocols has it."""
GROUP_LEVEL_MAX = 1
TRANSACTION_LEVEL_MAX = 2
"""0 as in Kafka 2.8; 1 flexible records in `__transaction_state`; 2 KIP-890."""
_FIRST_RELEASE_WITH_FEATURES = "4.3"

Levels = Mapping[str, tuple[int, int]]
"""Minimum and maximum level by feature."""


def supported_features(config: BrokerConfig, *, has_features: bool) -> Levels:
    """Return the levels that this broker supports; none if it is served as an older release."""
    if not has_features or not _serves_features(config.served_release):
        return {}
    supported = {TRANSACTION_VERSION: (0, TRANSACTION_LEVEL_MAX)}
    for protocol, feature in FEATURES_OF_PROTOCOLS.items():
        if protocol in config.group_coordinator_rebalance_protocols:
            supported[feature] = (0, GROUP_LEVEL_MAX)
    return supported


def initial_levels(config: BrokerConfig) -> Mapping[str, int]:
    """Return the levels of features that have none in the znode: those of a new cluster."""
    transactions = TRANSACTION_LEVEL_MAX if config.served_release == _FIRST_RELEASE_WITH_FEATURES else 0
    return {**dict.fromkeys(FEATURES_OF_PROTOCOLS.values(), GROUP_LEVEL_MAX), TRANSACTION_VERSION: transactions}


def _serves_features(release: str | None) -> bool:
    return release is None or KAFKA_RELEASES.index(release) >= KAFKA_RELEASES.index(_FIRST_RELEASE_WITH_FEATURES)


def unsupported_levels(features: FinalizedFeatures) -> str | None:
    """Return why a broker cannot join the cluster, if levels of these features are above those that it supports."""
    above = [
        f"{name}={highest}"
        for name, (_, highest) in sorted(features.levels.items())
        if name in features.initial and highest > features.supported.get(name, (0, 0))[1]
    ]
    if not above:
        return None
    return (
        f"the cluster uses {', '.join(above)}, which this broker does not support as it is configured. Start it "
        "without served.release (--as-version) and with the group.coordinator.rebalance.protocols of other brokers, or "
        "lower the level with `kctl features downgrade` on another broker"
    )


class FinalizedFeatures:
    """What ApiVersions responses contain; read again when the znode changes."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        *,
        has_features: bool,
        supported: Levels | None = None,
        initial: Mapping[str, int] | None = None,
    ) -> None:
        """Before inter.broker.protocol.version 2.7 the znode is not read, and nothing is known.

        `supported` are the features of this broker; `initial` the levels of those that have none in the znode.
        """
        self._zookeeper = zookeeper
        self._has_features = has_features
        self.supported: Levels = supported or {}
        self.initial: Mapping[str, int] = initial or {}
        self._reading: asyncio.Task[None] | None = None
        self._problems = ProblemLog(log, "cannot read finalized features path=%s error=%s")
        self.epoch = UNKNOWN_EPOCH
        """The version of the znode; UNKNOWN_EPOCH before it is read, and while features are disabled."""
        self.levels: Levels = {}
        """Those in the znode."""

    def level(self, name: str) -> int:
        """Return the level of a feature that decides what is served."""
        if name in self.levels and name in self.supported:
            return self.levels[name][1]
        return self.initial.get(name, 0)

    def finalized(self) -> dict[str, tuple[int, int]]:
        """Return the levels for clients; a feature of level 0 is not finalized."""
        supported = {name: (self.level(name), self.level(name)) for name in self.supported}
        return {name: levels for name, levels in {**self.levels, **supported}.items() if levels[1] > 0}

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

"""The features in ApiVersions responses follow the znode /feature; its version is their epoch."""

from __future__ import annotations

import asyncio

from kctl.server.cluster.configs.features import UNKNOWN_EPOCH, FinalizedFeatures
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent


def test_epoch_and_levels_follow_the_znode() -> None:
    async def main(_loop: SimLoop) -> None:
        ensemble = SimZooKeeper()
        known: list[FinalizedFeatures] = []

        def on_watch(event: WatchEvent) -> None:
            for znode in known:
                znode.on_watch(event)

        session, other = ensemble.session(on_watch=on_watch), ensemble.session()
        await session.start(10_000)
        await other.start(10_000)
        features = FinalizedFeatures(session, has_features=True)
        known.append(features)
        await features.load()
        assert features.epoch == UNKNOWN_EPOCH
        enabled = znodes.Features(levels={"group.version": (1, 2)})
        disabled = znodes.Features(znodes.FEATURES_DISABLED)
        await other.create(paths.FEATURE, znodes.encode_features(znodes.Features()))
        for stored, epoch, levels in (
            (None, 0, {}),
            (enabled, 1, {"group.version": (1, 2)}),
            (disabled, UNKNOWN_EPOCH, {}),
            (enabled, 3, {"group.version": (1, 2)}),
        ):
            if stored is not None:
                await other.set(paths.FEATURE, znodes.encode_features(stored))
            for _ in range(100):
                await asyncio.sleep(0)
            assert (features.epoch, dict(features.levels)) == (epoch, levels)
        for unusable in (
            b"",
            b'{"version":1}',
            b'{"version":1,"status":1,"features":{"f":{"max_version_level":99999999999}}}',
        ):
            await other.set(paths.FEATURE, unusable)
            for _ in range(100):
                await asyncio.sleep(0)
            assert (features.epoch, dict(features.levels)) == (UNKNOWN_EPOCH, {}), unusable
        before = FinalizedFeatures(session, has_features=False)
        await before.load()
        assert before.epoch == UNKNOWN_EPOCH
        await features.close()

    simulate(main, seed=1)

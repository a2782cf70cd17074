"""Ids with thousands of characters: hashing 19 MB of them at once takes more than 10 ms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from kctl.errors import ErrorCode
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kctl.server.cluster.configs.features import FinalizedFeatures
from kctl.server.handlers.delete_groups import DeleteGroupsHandler
from kctl.server.handlers.update_features import UpdateFeaturesHandler
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import Host
from tests.unit.handlers.world import World, context, play

IDS = 40
LENGTH = 32_000
AT_ONCE = 2


class LongId(str):
    """Counts how many of them are hashed."""

    __slots__ = ()
    hashed = 0

    def __hash__(self) -> int:
        LongId.hashed += 1
        return super().__hash__()


def ids() -> list[str]:
    return [LongId(f"{number:0{LENGTH}}") for number in range(IDS)]


async def hashed_at_once(work: Awaitable[object]) -> int:
    """The most ids that are hashed between two iterations of the loop."""
    task = asyncio.ensure_future(work)
    most, before = 0, LongId.hashed
    while not task.done():
        await asyncio.sleep(0)
        most, before = max(most, LongId.hashed - before), LongId.hashed
    task.result()
    return most


def test_groups_with_long_ids_are_deleted_one_after_the_other() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        handler = DeleteGroupsHandler(host.coordinator)
        request = DeleteGroupsRequest(groups_names=[*ids(), "g", "g"])
        found = asyncio.ensure_future(handler.handle(request, context(2)))
        assert await hashed_at_once(found) <= IDS // 4
        assert [result.error_code for result in found.result().results] == [ErrorCode.GROUP_ID_NOT_FOUND] * (IDS + 1)

    simulate(main, seed=1)


def test_features_with_long_names_are_refused_one_after_the_other() -> None:
    async def scene(world: World) -> None:
        handler = UpdateFeaturesHandler(
            has_features=True,
            is_controller=lambda: True,
            features=FinalizedFeatures(world.zookeeper, has_features=True),
            controller=world.controller,
        )
        updates = [FeatureUpdateKey(feature=name, max_version_level=1, allow_downgrade=False) for name in ids()]
        found = asyncio.ensure_future(handler.handle(UpdateFeaturesRequest(feature_updates=updates), context(0)))
        assert await hashed_at_once(found) <= AT_ONCE
        assert len(found.result().results) == IDS

    play(scene)

"""UpdateFeatures: there are no features to update, and the error message contains that."""

from __future__ import annotations

from typing import Any

from kctl.errors import ErrorCode
from kctl.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kctl.server.handlers.update_features import UpdateFeaturesHandler
from tests.unit.handlers.world import World, exchange, play

UPDATES = UpdateFeaturesRequest(
    feature_updates=[
        FeatureUpdateKey(feature="f", max_version_level=1, allow_downgrade=False),
        FeatureUpdateKey(feature="g", max_version_level=0, allow_downgrade=True),
    ]
)


async def update(world: World, *, has_features: bool = True) -> Any:
    handler = UpdateFeaturesHandler(has_features=has_features, is_controller=world.is_controller)
    return await exchange(handler.handle, UPDATES, 0)


def test_every_feature_update_is_refused_individually() -> None:
    async def scene(world: World) -> None:
        response = await update(world)
        assert response.error_code == ErrorCode.NONE
        assert [(result.feature, result.error_code) for result in response.results] == [
            ("f", ErrorCode.INVALID_REQUEST),
            ("g", ErrorCode.INVALID_REQUEST),
        ]

    play(scene)


def test_only_the_controller_handles_feature_updates() -> None:
    async def scene(world: World) -> None:
        world.is_active = False
        response = await update(world)
        assert (response.error_code, response.results) == (ErrorCode.NOT_CONTROLLER, [])

    play(scene)


def test_an_old_inter_broker_protocol_has_no_features() -> None:
    async def scene(world: World) -> None:
        response = await update(world, has_features=False)
        assert (response.error_code, response.results) == (ErrorCode.INVALID_REQUEST, [])

    play(scene)

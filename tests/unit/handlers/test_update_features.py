"""UpdateFeatures: levels are stored in /feature, all of a request or none, and texts are those of Kafka."""

from __future__ import annotations

from typing import Any

from kctl.errors import ErrorCode
from kctl.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kctl.server.cluster.configs.features import (
    GROUP_VERSION,
    TRANSACTION_VERSION,
    FinalizedFeatures,
    initial_levels,
    supported_features,
    unsupported_levels,
)
from kctl.server.handlers.update_features import UpdateFeaturesHandler
from kctl.zookeeper import paths, znodes
from tests.unit.handlers.world import World, exchange, play

PROPERTIES = {"group.coordinator.rebalance.protocols": "classic,consumer", "served.release": "4.3"}
UPGRADE, SAFE, UNSAFE = 1, 2, 3
UPDATES = UpdateFeaturesRequest(
    feature_updates=[
        FeatureUpdateKey(feature="f", max_version_level=1, allow_downgrade=False),
        FeatureUpdateKey(feature="g", max_version_level=0, allow_downgrade=True),
    ]
)
PREFIX = "The update failed for all features since the following feature had an error: Invalid update version "
LOCAL = "Local controller 0"
DOWNGRADE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)
UNKNOWN_TYPE = "The controller does not support the given upgrade type."
SEEN_ON_4_3_1 = [
    ("nope", 1, UPGRADE, f"1 for feature nope. {LOCAL} does not support this feature."),
    ("nope", 0, SAFE, "0 for feature nope. Feature nope not found."),
    ("nope", 0, UPGRADE, "0 for feature nope. Feature nope not found."),
    ("", 1, UPGRADE, f"1 for feature . {LOCAL} does not support this feature."),
    (GROUP_VERSION, 1, UPGRADE, None),
    (GROUP_VERSION, 2, UPGRADE, f"2 for feature group.version. {LOCAL} only supports versions 0-1"),
    (GROUP_VERSION, 0, UPGRADE, f"0 for feature group.version. {DOWNGRADE}"),
    (GROUP_VERSION, -1, SAFE, "-1 for feature group.version. A feature version cannot be less than 0."),
    (TRANSACTION_VERSION, 1, UPGRADE, f"1 for feature transaction.version. {DOWNGRADE}"),
    (TRANSACTION_VERSION, 1, SAFE, None),
    (TRANSACTION_VERSION, 2, SAFE, "2 for feature transaction.version. Can't downgrade to a newer version."),
    (TRANSACTION_VERSION, 2, UPGRADE, None),
    (TRANSACTION_VERSION, 1, 7, f"1 for feature transaction.version. {UNKNOWN_TYPE}"),
    (TRANSACTION_VERSION, 1, UNSAFE, None),
    (GROUP_VERSION, 0, SAFE, None),
    (GROUP_VERSION, 0, SAFE, None),
    (GROUP_VERSION, 1, SAFE, "1 for feature group.version. Can't downgrade to a newer version."),
]
"""Updates one after the other of a broker of Apache Kafka 4.3.1, which begins with its highest levels; the error text
after PREFIX, or None."""


def features_of(world: World, *, has_features: bool = True) -> FinalizedFeatures:
    config = world.configs.current
    return FinalizedFeatures(
        world.zookeeper,
        has_features=has_features,
        supported=supported_features(config, has_features=has_features),
        initial=initial_levels(config),
    )


async def update(
    world: World,
    request: UpdateFeaturesRequest = UPDATES,
    version: int = 0,
    *,
    features: FinalizedFeatures | None = None,
    has_features: bool = True,
) -> Any:
    known = features or features_of(world, has_features=has_features)
    await known.load()
    handler = UpdateFeaturesHandler(
        has_features=has_features, is_controller=world.is_controller, features=known, controller=world.controller
    )
    return await exchange(handler.handle, request, version)


def change(*levels: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in levels
    ]
    return UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)


def test_updates_have_the_outcomes_of_kafka_4_3() -> None:
    async def scene(world: World) -> None:
        features = features_of(world)
        for name, level, kind, text in SEEN_ON_4_3_1:
            before = features.level(name) if name in features.supported else None
            for version in (1, 2):
                tried = await update(world, change((name, level, kind), validate_only=True), version, features=features)
                assert tried.error_message == (None if text is None else PREFIX + text), (name, level, kind)
                assert before is None or features.level(name) == before
            response = await update(world, change((name, level, kind)), 2, features=features)
            code = ErrorCode.NONE if text is None else ErrorCode.INVALID_UPDATE_VERSION
            assert (response.error_code, response.results) == (code, []), (name, level, kind)
            if text is None:
                assert features.level(name) == level
                assert (name in features.finalized()) == (level > 0)
        # The highest levels are initial ones of this release, so that the znode has none of them.
        mixed = change((GROUP_VERSION, 1, UPGRADE), (TRANSACTION_VERSION, 2, UPGRADE))
        assert (await update(world, mixed, 1, features=features)).error_code == ErrorCode.NONE
        data, _ = await world.zookeeper.get(paths.FEATURE)
        assert znodes.decode_features(paths.FEATURE, data).levels == {}

    play(scene, properties=PROPERTIES)


def test_no_update_is_made_if_one_of_them_is_refused() -> None:
    async def scene(world: World) -> None:
        features = features_of(world)
        both = change((TRANSACTION_VERSION, 1, SAFE), ("nope", 3, UPGRADE))
        assert (await update(world, both, 1, features=features)).error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert features.level(TRANSACTION_VERSION) == 2

    play(scene, properties=PROPERTIES)


def test_a_level_needs_the_support_of_every_broker() -> None:
    async def scene(world: World) -> None:
        features = features_of(world)
        upgrade = change((TRANSACTION_VERSION, 2, UPGRADE))
        response = await update(world, upgrade, 2, features=features)
        text = "2 for feature transaction.version. Broker 1 does not support this feature."
        assert (response.error_code, response.error_message) == (ErrorCode.INVALID_UPDATE_VERSION, PREFIX + text)
        assert features.level(TRANSACTION_VERSION) == 0

    play(scene, others=1)


def test_a_change_at_the_same_time_is_refused() -> None:
    async def scene(world: World) -> None:
        features = features_of(world)
        await features.load()
        await world.zookeeper.set(paths.FEATURE, znodes.encode_features(znodes.Features()))
        handler = UpdateFeaturesHandler(
            has_features=True, is_controller=world.is_controller, features=features, controller=world.controller
        )
        response = await exchange(handler.handle, change((TRANSACTION_VERSION, 2, UPGRADE)), 2)
        assert response.error_code == ErrorCode.FEATURE_UPDATE_FAILED

    play(scene)


def test_a_broker_that_does_not_support_a_level_is_told_why() -> None:
    async def scene(world: World) -> None:
        stored = znodes.Features(levels={TRANSACTION_VERSION: (2, 2), "of.others": (1, 1)})
        await world.zookeeper.set(paths.FEATURE, znodes.encode_features(stored))
        features = features_of(world)
        await features.load()
        assert (unsupported_levels(features) or "").startswith("the cluster uses transaction.version=2, which")
        assert features.level(TRANSACTION_VERSION) == 0

    play(scene, properties={"served.release": "2.8"})


def test_every_feature_update_of_version_0_is_refused_individually() -> None:
    async def scene(world: World) -> None:
        response = await update(world)
        assert response.error_code == ErrorCode.NONE
        assert [(result.feature, result.error_code) for result in response.results] == [
            ("f", ErrorCode.INVALID_REQUEST),
            ("g", ErrorCode.INVALID_REQUEST),
        ]

    play(scene)


def test_version_0_changes_levels_in_the_direction_that_it_allows() -> None:
    async def scene(world: World) -> None:
        features = features_of(world)
        for level, allows, code, after in (
            (2, False, ErrorCode.NONE, 2),
            (1, False, ErrorCode.INVALID_REQUEST, 2),
            (1, True, ErrorCode.NONE, 1),
            (3, True, ErrorCode.INVALID_REQUEST, 1),
            (0, True, ErrorCode.NONE, 0),
        ):
            key = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, allow_downgrade=allows)
            response = await update(world, UpdateFeaturesRequest(feature_updates=[key]), features=features)
            assert [result.error_code for result in response.results] == [code], (level, allows)
            assert features.level(TRANSACTION_VERSION) == after

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

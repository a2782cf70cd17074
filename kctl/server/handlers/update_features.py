"""UpdateFeatures (key 57, versions 0-2): finalizes levels of features in /feature (KIP-584, KIP-778).

Only the active controller updates features; other brokers respond with NOT_CONTROLLER.  The updates of a request are
all made, or none, and the first that is refused gives the error of the request, INVALID_UPDATE_VERSION; the texts are
those of Kafka 4.3 (FeatureControlManager).  A level has to be supported by all brokers that are registered.  If a
feature is listed twice, the last update counts.
If inter.broker.protocol.version is below 2.7 there are no features: INVALID_REQUEST for the whole request.

Version notes: in version 0, unless the broker is served as 4.3, each update succeeds or fails for itself, with
INVALID_REQUEST and the texts of Kafka 2.8 on ZooKeeper; allowDowngrade allows both directions.  1 kinds of downgrades,
validation only; 2 no results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kctl.errors import ApiError, BadVersionError, ErrorCode, KctlError, shortened
from kctl.protocol.apis.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kctl.security.acls import Operation
from kctl.server.cluster.configs.features import FinalizedFeatures, Levels
from kctl.server.cluster.controller.runner import ControllerRunner
from kctl.server.cluster.controller.znodes.znode_writer import ControllerMoved
from kctl.server.loop.slices import size_of_id, sliced
from kctl.server.requests.context import RequestContext

_VERSION_LEVEL_MIN = 1
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_WITH_RESULTS_MAX = 1
_NO_PROBLEM = "NONE"
"""The text of Kafka 4.3 for an update without an error."""
_NO_BROKERS: Mapping[int, Levels] = {}


class UpdateFeaturesHandler:
    """Serves UpdateFeatures requests.  Owner: event loop."""

    def __init__(
        self,
        *,
        has_features: bool,
        is_controller: Callable[[], bool],
        features: FinalizedFeatures,
        controller: ControllerRunner,
        is_newest: bool = False,
    ) -> None:
        """`is_newest`: whether version 0 is served as by Kafka 4.3, too."""
        self._has_features = has_features
        self._is_controller = is_controller
        self._features = features
        self._controller = controller
        self._is_newest = is_newest

    async def handle(self, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.ALTER):
            return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.description)
        if not self._has_features:
            return _refused(
                ErrorCode.INVALID_REQUEST, "Features need an inter.broker.protocol.version of 2.7 or higher."
            )
        if not self._is_controller():
            return _refused(ErrorCode.NOT_CONTROLLER, "The active controller must update features.")
        updates: dict[str, FeatureUpdateKey] = {}
        async for update in sliced(request.feature_updates, size_of=_size_of):
            updates[update.feature] = update
        is_as_2_8 = context.api_version == 0 and not self._is_newest
        levels: dict[str, int] = {}
        problems: dict[str, str] = {}
        async for name, update in sliced(updates.items(), size_of=lambda item: _size_of(item[1])):
            problem = self._problem_of_2_8(update) if is_as_2_8 else self._problem(update)
            if problem is None:
                levels[name] = update.max_version_level
            elif not is_as_2_8:
                text = "The update failed for all features since the following feature had an error: "
                return _refused(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"{text}Invalid update version {update.max_version_level} for feature {name}. {problem}",
                )
            else:
                problems[name] = problem
        if levels and not request.validate_only:
            try:
                await self._write(levels)
            except ApiError as error:
                return _refused(error.code, error.message or error.code.description)
        if context.api_version > _WITH_RESULTS_MAX:
            return UpdateFeaturesResponse(error_code=ErrorCode.NONE, results=[])
        return UpdateFeaturesResponse(
            error_code=ErrorCode.NONE,
            results=[
                UpdatableFeatureResult(
                    feature=name,
                    error_code=ErrorCode.INVALID_REQUEST if name in problems else ErrorCode.NONE,
                    error_message=shortened(problems.get(name, None if is_as_2_8 else _NO_PROBLEM)),
                )
                async for name in sliced(updates, size_of=size_of_id)
            ],
        )

    async def _write(self, levels: Mapping[str, int]) -> None:
        """Store the levels in /feature, except the initial ones.  Raises ApiError if that was not possible."""
        stored = {**self._features.levels, **{name: (max(level, 1), level) for name, level in levels.items()}}
        kept = {name: value for name, value in stored.items() if value[1] != self._features.initial.get(name)}
        try:
            if kept != dict(self._features.levels):
                await self._controller.write_features(kept, epoch=self._features.epoch)
                await self._features.load()
        except BadVersionError as error:
            raise ApiError(ErrorCode.FEATURE_UPDATE_FAILED, "The features were changed at the same time.") from error
        except (ControllerMoved, KctlError) as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "The active controller must update features.") from error

    def _problem(self, update: FeatureUpdateKey) -> str | None:
        """Return why the update is refused.  Kafka: FeatureControlManager.updateFeature (4.3)."""
        name, level = update.feature, update.max_version_level
        present = self._features.level(name)
        if update.upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        if level == 0 and name not in self._features.supported:
            return f"Feature {name} not found."
        if problem := _unsupported_level(
            f"Local controller {self._controller.state.broker_id}", name, level, self._own
        ):
            return problem
        for broker_id, supported in self._supported_by_brokers(name, level).items():
            if problem := _unsupported_level(f"Broker {broker_id}", name, level, supported):
                return problem
        if level < present and update.upgrade_type == _UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
                "downgrade."
            )
        if level > present and update.upgrade_type != _UPGRADE:
            return "Can't downgrade to a newer version."
        return None

    @property
    def _own(self) -> Levels:
        return self._features.supported

    def _supported_by_brokers(self, name: str, level: int) -> Mapping[int, Levels]:
        """Return what the other brokers support; level 0, and the initial one, are that of brokers without features."""
        if level in (0, self._features.initial.get(name)):
            return _NO_BROKERS
        state = self._controller.state
        return {
            broker_id: live.registration.features
            for broker_id, live in sorted(state.brokers.items())
            if broker_id != state.broker_id
        }

    def _problem_of_2_8(self, update: FeatureUpdateKey) -> str | None:
        """Return why the update is refused.  Kafka: KafkaController.validateFeatureUpdate (2.8)."""
        name, level = update.feature, update.max_version_level
        if not name:
            return "The feature name is empty."
        if name in self._own:
            return self._problem(
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=level,
                    upgrade_type=_SAFE_DOWNGRADE if level < self._features.level(name) else _UPGRADE,
                )
            ) or self._problem_of_direction(update)
        if level >= _VERSION_LEVEL_MIN:
            return f"This cluster does not support the feature {name}."
        if update.allow_downgrade:
            return f"The feature {name} is not finalized, so it cannot be deleted."
        return f"The maximum version level {level} is below 1, which requires allowDowngrade."

    def _problem_of_direction(self, update: FeatureUpdateKey) -> str | None:
        if update.max_version_level < self._features.level(update.feature) and not update.allow_downgrade:
            return f"A lower version level of the feature {update.feature} requires allowDowngrade."
        return None


def _size_of(update: FeatureUpdateKey) -> int:
    return size_of_id(update.feature)


def _refused(code: ErrorCode, message: str) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=shortened(message), results=[])


def _unsupported_level(who: str, name: str, level: int, supported: Levels) -> str | None:
    if name not in supported:
        return f"{who} does not support this feature."
    lowest, highest = supported[name]
    if level != 0 and not lowest <= level <= highest:
        return f"{who} only supports versions {lowest}-{highest}"
    return None

"""UpdateFeatures (key 57, version 0): every update is refused, as by Kafka 2.8 brokers on ZooKeeper.  KIP-584.

These brokers support no finalizable feature: each update gets INVALID_REQUEST with a reason; if a feature is listed
twice, the last update counts.  Only the active controller validates updates; other brokers respond with NOT_CONTROLLER.
If inter.broker.protocol.version is below 2.7 there are no features: INVALID_REQUEST for the whole request.
"""

from __future__ import annotations

from collections.abc import Callable

from kctl.errors import ErrorCode
from kctl.protocol.apis.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kctl.security.acls import Operation
from kctl.server.loop.slices import size_of_id, sliced
from kctl.server.requests.context import RequestContext

_VERSION_LEVEL_MIN = 1


class UpdateFeaturesHandler:
    """Serves UpdateFeatures requests.  Owner: event loop."""

    def __init__(self, *, has_features: bool, is_controller: Callable[[], bool]) -> None:
        self._has_features = has_features
        self._is_controller = is_controller

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
        return UpdateFeaturesResponse(
            error_code=ErrorCode.NONE,
            results=[
                UpdatableFeatureResult(
                    feature=name, error_code=ErrorCode.INVALID_REQUEST, error_message=_problem(update)
                )
                async for name, update in sliced(updates.items(), size_of=lambda item: _size_of(item[1]))
            ],
        )


def _size_of(update: FeatureUpdateKey) -> int:
    return size_of_id(update.feature)


def _refused(code: ErrorCode, message: str) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=message, results=[])


def _problem(update: FeatureUpdateKey) -> str:
    """Return why the update is refused.  Kafka: KafkaController.validateFeatureUpdate."""
    if not update.feature:
        return "The feature name is empty."
    if update.max_version_level >= _VERSION_LEVEL_MIN:
        return f"This cluster does not support the feature {update.feature}."
    if update.allow_downgrade:
        return f"The feature {update.feature} is not finalized, so it cannot be deleted."
    return f"The maximum version level {update.max_version_level} is below 1, which requires allowDowngrade."

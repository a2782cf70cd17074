"""UpdateFeatures (key 57, version 0): changes finalized features of the cluster (KIP-584).

Sent to the active controller.  Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int16, int32, request, response, string, struct


@struct
class FeatureUpdateKey:
    """A change of one feature."""

    feature: str = string()
    max_version_level: int = int16()
    """The new maximum version; less than 1 removes the feature."""
    allow_downgrade: bool = boolean()
    """Required to lower the version or to remove the feature."""


@request(key=57, versions="0", flexible="0+")
class UpdateFeaturesRequest:
    """Changes features; each succeeds or fails independently."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)


@struct
class UpdatableFeatureResult:
    """The result for one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(key=57, versions="0", flexible="0+")
class UpdateFeaturesResponse:
    """One result per feature of the request."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    """An error of the whole request, such as NOT_CONTROLLER."""
    error_message: str | None = string(nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult)

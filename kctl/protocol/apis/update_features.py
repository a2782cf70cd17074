"""UpdateFeatures (key 57, versions 0-2): changes finalized features of the cluster (KIP-584).

Sent to the active controller; brokers of a KRaft cluster forward it.
0: flexible.  1: kinds of downgrades, validation only (KIP-778).  2: no results; the first error is that of the
whole request.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int8, int16, int32, request, response, string, struct


@struct
class FeatureUpdateKey:
    """A change of one feature."""

    feature: str = string()
    max_version_level: int = int16()
    """The new maximum version; less than 1 removes the feature."""
    allow_downgrade: bool = boolean("0", default=False)
    """Required to lower the version or to remove the feature."""
    upgrade_type: int = int8("1+", default=1)
    """1 upgrade only, 2 downgrade that loses nothing, 3 downgrade that may lose metadata."""


@request(key=57, versions="0-2", flexible="0+", sent="0-2")
class UpdateFeaturesRequest:
    """Changes features; each succeeds or fails independently."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+", default=False)
    """Check the request, and change nothing."""


@struct
class UpdatableFeatureResult:
    """The result for one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """One result per feature of the request."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    """An error of the whole request, such as NOT_CONTROLLER."""
    error_message: str | None = string(nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", default=[], ignorable=True)

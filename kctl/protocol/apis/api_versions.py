"""ApiVersions (key 18, versions 0-4): the APIs and versions that this broker supports (KIP-35).

It is the first request of most clients, so two rules differ from all other APIs.  A version that is too new gets
UNSUPPORTED_VERSION in the format of version 0 (KIP-511), and the response header is never flexible.

1: throttle time.  3: flexible; name and version of the client software (KIP-511); features in tagged fields (KIP-584).
4: also features whose lowest version is 0 (KAFKA-17011).
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@request(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """Allowed before authentication, once."""

    client_software_name: str = string("3+", default="", ignorable=True)
    """Letters, digits, `-` and `.`; other characters fail with INVALID_REQUEST.  For metrics and logs."""
    client_software_version: str = string("3+", default="", ignorable=True)


@struct
class ApiVersion:
    """The range of versions of one API, both ends included."""

    api_key: int = int16()
    """The number of the API."""
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey:
    """A feature and the versions that this broker supports."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@struct
class FinalizedFeatureKey:
    """A feature and the versions that the whole cluster uses."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()
    """The finalized range of the cluster."""


@response(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """The APIs that this broker serves."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, default=[], ignorable=True)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    """Increases with each change of the finalized features; -1 if unknown."""
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, default=[], ignorable=True)

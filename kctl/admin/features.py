"""Describes and updates the finalized features of a cluster (KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kctl.admin.outcome import Outcome, outcome_of
from kctl.client.cluster import ClusterClient
from kctl.client.framing import api_versions_request
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

FIRST_VERSION_WITH_VALIDATION = 1


class UpdateType(IntEnum):
    """Which changes the controller allows."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """May lose metadata."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature; a finalized level of 0 means that it is disabled."""

    name: str
    supported_min: int | None
    """The range that all brokers support; None if some do not support the feature."""
    supported_max: int | None
    finalized: int
    differs: bool = False
    """True if the brokers support different ranges, as during an upgrade of their software."""


@dataclass(frozen=True, slots=True)
class Features:
    """All features of a cluster.  `epoch` increases with each change of the finalized ones; -1 if there are none."""

    epoch: int
    features: tuple[Feature, ...]


async def describe_features(client: ClusterClient) -> Features:
    """The features from the ApiVersions responses of all brokers.

    Raises ApiError and ConnectionLost if a broker cannot be read, because a feature is supported if all support it.
    """
    metadata = await client.metadata([])

    async def read(broker_id: int) -> ApiVersionsResponse:
        connection = await client.broker(broker_id)
        version = connection.versions.highest(ApiVersionsRequest)
        return await connection.send(api_versions_request(), ApiVersionsResponse, version=version)

    return features_of(await client.gather([read(broker_id) for broker_id in metadata.brokers]))


def features_of(responses: Iterable[ApiVersionsResponse]) -> Features:
    """The features in the responses of all brokers; the newest finalized levels count.  Pure."""
    ranges: list[dict[str, tuple[int, int]]] = []
    newest = ApiVersionsResponse(error_code=0, api_keys=[])
    for response in responses:
        ranges.append({one.name: (one.min_version, one.max_version) for one in response.supported_features})
        if response.finalized_features_epoch > newest.finalized_features_epoch:
            newest = response
    finalized = {one.name: one.max_version_level for one in newest.finalized_features}
    names = sorted({*finalized, *(name for one in ranges for name in one)})
    return Features(newest.finalized_features_epoch, tuple(_feature(name, ranges, finalized) for name in names))


def _feature(name: str, ranges: list[dict[str, tuple[int, int]]], finalized: Mapping[str, int]) -> Feature:
    found = [one.get(name) for one in ranges]
    differs = len(set(found)) > 1
    known = [one for one in found if one is not None]
    low, high = max((one[0] for one in known), default=0), min((one[1] for one in known), default=-1)
    if len(known) < len(found) or low > high:
        return Feature(name, None, None, finalized.get(name, 0), differs)
    return Feature(name, low, high, finalized.get(name, 0), differs)


async def update_features(
    client: ClusterClient, levels: Mapping[str, int], kind: UpdateType, *, validate_only: bool = False
) -> list[Outcome]:
    """Sets the finalized levels of features on the controller; 0 disables one.  The outcome of each, by name.

    Raises ApiError for errors of the whole request, and UNSUPPORTED_VERSION for `validate_only` on controllers before
    Kafka 3.3, which cannot validate.
    """
    updates = [
        FeatureUpdateKey(
            feature=name, max_version_level=level, allow_downgrade=kind is not UpdateType.UPGRADE, upgrade_type=kind
        )
        for name, level in sorted(levels.items())
    ]

    async def send_to(connection: Connection) -> list[Outcome]:
        version = connection.versions.highest(UpdateFeaturesRequest)
        if version < FIRST_VERSION_WITH_VALIDATION:
            if validate_only:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the controller cannot validate; that needs Kafka 3.3")
            for update in updates:
                update.upgrade_type = UpdateType.UPGRADE
        else:
            for update in updates:
                update.allow_downgrade = False
        request = UpdateFeaturesRequest(
            timeout_ms=client.deadline().remaining_ms, feature_updates=updates, validate_only=validate_only
        )
        response = await connection.send(request, UpdateFeaturesResponse, version=version)
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code), response.error_message)
        results = {one.feature: outcome_of(one.feature, one.error_code, one.error_message) for one in response.results}
        # Kafka 4 returns no results when all updates have succeeded.
        return [results.get(name, Outcome(name)) for name in sorted(levels)]

    return await client.on_controller(send_to)

"""The features of a cluster, the versions of their levels, and the API versions of its brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kctl.client.cluster import ClusterClient
from kctl.client.connections.framing import api_versions_request
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.outcome import Outcome, failure_of, outcome_of
from kctl.errors import ApiError, AuthenticationFailed, ErrorCode, UsageError
from kctl.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from kctl.protocol.registry import all_apis

# Describes and updates the finalized features of a cluster (KIP-584, KIP-778).


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
    """Return the features from the ApiVersions responses of all brokers.

    Raises ApiError and ConnectionLost if a broker cannot be read, because a feature is supported if all support it.
    """
    metadata = await client.metadata([])

    async def read(broker_id: int) -> ApiVersionsResponse:
        connection = await client.broker(broker_id)
        version = connection.versions.highest(ApiVersionsRequest)
        return await connection.send(api_versions_request(), ApiVersionsResponse, version=version)

    return features_of(await client.gather([read(broker_id) for broker_id in metadata.brokers]))


def features_of(responses: Iterable[ApiVersionsResponse]) -> Features:
    """Return the features in the responses of all brokers; the newest finalized levels count.  Pure."""
    ranges: list[dict[str, tuple[int, int]]] = []
    newest = ApiVersionsResponse(error_code=0, api_keys=[])
    for response in responses:
        ranges.append(
            {feature.name: (feature.min_version, feature.max_version) for feature in response.supported_features}
        )
        if response.finalized_features_epoch > newest.finalized_features_epoch:
            newest = response
    finalized = {feature.name: feature.max_version_level for feature in newest.finalized_features}
    names = sorted({*finalized, *(name for ranges_of_broker in ranges for name in ranges_of_broker)})
    return Features(newest.finalized_features_epoch, tuple(_feature(name, ranges, finalized) for name in names))


def _feature(name: str, ranges: list[dict[str, tuple[int, int]]], finalized: Mapping[str, int]) -> Feature:
    found = [ranges_of_broker.get(name) for ranges_of_broker in ranges]
    differs = len(set(found)) > 1
    known = [range_ for range_ in found if range_ is not None]
    low, high = max((range_[0] for range_ in known), default=0), min((range_[1] for range_ in known), default=-1)
    if len(known) < len(found) or low > high:
        return Feature(name, None, None, finalized.get(name, 0), differs)
    return Feature(name, low, high, finalized.get(name, 0), differs)


async def update_features(
    client: ClusterClient, levels: Mapping[str, int], kind: UpdateType, *, validate_only: bool = False
) -> list[Outcome]:
    """Set the finalized levels of features on the controller; 0 disables one.  The outcome of each, by name.

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
        results = {
            result.feature: outcome_of(result.feature, result.error_code, result.error_message)
            for result in response.results
        }
        # Kafka 4 returns no results when all updates have succeeded.
        return [results.get(name, Outcome(name)) for name in sorted(levels)]

    return await client.on_controller(send_to)


# The levels of the feature metadata.version and their names (KIP-778; Kafka's MetadataVersion). Pure.


METADATA_VERSION = "metadata.version"

_NAMES = (
    *("3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0"),
    *("3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
)
"""The first is level 1."""


def metadata_version_name(level: int) -> str | None:
    """Return the name of a level, such as 3.9-IV0 for 21; None if it is newer than these."""
    return _NAMES[level - 1] if 0 < level <= len(_NAMES) else None


def metadata_version_level(name: str) -> int:
    """Return the level of `3.9-IV0`, of `3.9` (its last) or of `21`.  Raises UsageError."""
    if name.isascii() and name.isdigit() and 0 < len(name) <= 4:
        return int(name)
    found = [
        level
        for level, level_name in enumerate(_NAMES, start=1)
        if level_name == name or level_name.startswith(f"{name}-")
    ]
    if not found:
        raise UsageError(f"'{name}' is not a metadata version; use a level, or a name from {_NAMES[0]} to {_NAMES[-1]}")
    return found[-1]


# The API versions of all brokers side by side, and those that kctl supports.


Range = tuple[int, int]
"""The lowest and the highest version."""

OTHER_APIS = {
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    58: "Envelope",
    59: "FetchSnapshot",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat",
    70: "ControllerRegistration",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    73: "AssignReplicasToDirs",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
    93: "StreamsGroupTopologyDescriptionUpdate",
    94: "UnregisterController",
}
"""APIs up to Kafka 4.4 that kctl does not support: between brokers and controllers, and of other kinds of groups."""


@dataclass(frozen=True, slots=True)
class BrokerApis:
    """The API versions of one broker."""

    broker_id: int
    ranges: dict[int, Range]
    """By API key."""


@dataclass(frozen=True, slots=True)
class ComparedApi:
    """One API on all brokers."""

    key: int
    name: str
    supported: Range | None
    """The versions that kctl supports; None if it does not use the API."""
    brokers: dict[int, Range | None]
    """The range of each broker; None if it lacks the API."""

    @property
    def differs(self) -> bool:
        """True if not all brokers support the same versions."""
        return len(set(self.brokers.values())) > 1

    @property
    def usable(self) -> int | None:
        """The highest version that kctl and all brokers support."""
        ranges = [*self.brokers.values(), self.supported]
        low = max((range_[0] for range_ in ranges if range_), default=0)
        high = min((range_[1] if range_ else -1 for range_ in ranges), default=-1)
        return high if low <= high else None


async def read_api_versions(client: ClusterClient) -> tuple[list[BrokerApis], list[Outcome]]:
    """Return the API versions of every live broker, and the brokers that could not be reached."""
    metadata = await client.metadata([])

    async def read(broker_id: int) -> BrokerApis | Outcome:
        try:
            return BrokerApis(broker_id, dict((await client.broker(broker_id)).versions.items()))
        except (ApiError, ConnectionLost, AuthenticationFailed) as error:
            return failure_of(str(broker_id), error)

    found = await client.gather([read(broker_id) for broker_id in metadata.brokers])
    return (
        [answer for answer in found if isinstance(answer, BrokerApis)],
        [answer for answer in found if isinstance(answer, Outcome)],
    )


def compare_apis(brokers: Sequence[BrokerApis]) -> list[ComparedApi]:
    """Return all APIs of the brokers and of kctl, by key."""
    ours = {key: api for key, api in all_apis().items() if api.sent}
    keys = sorted({*ours, *(key for broker in brokers for key in broker.ranges)})
    return [
        ComparedApi(
            key,
            ours[key].kafka_name if key in ours else OTHER_APIS.get(key, f"unknown {key}"),
            (ours[key].sent[0], ours[key].sent[-1]) if key in ours else None,
            {broker.broker_id: broker.ranges.get(key) for broker in brokers},
        )
        for key in keys
    ]

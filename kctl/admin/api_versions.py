"""The API versions of all brokers side by side, and those that kctl supports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kctl.admin.outcome import Outcome, failure_of
from kctl.client.cluster import ClusterClient
from kctl.client.transport import ConnectionLost
from kctl.errors import ApiError, AuthenticationFailed
from kctl.protocol.registry import all_apis

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
        low = max((one[0] for one in ranges if one), default=0)
        high = min((one[1] if one else -1 for one in ranges), default=-1)
        return high if low <= high else None


async def read_api_versions(client: ClusterClient) -> tuple[list[BrokerApis], list[Outcome]]:
    """The API versions of every live broker, and the brokers that could not be reached."""
    metadata = await client.metadata([])

    async def read(broker_id: int) -> BrokerApis | Outcome:
        try:
            return BrokerApis(broker_id, dict((await client.broker(broker_id)).versions.items()))
        except (ApiError, ConnectionLost, AuthenticationFailed) as error:
            return failure_of(str(broker_id), error)

    found = await client.gather([read(broker_id) for broker_id in metadata.brokers])
    return (
        [one for one in found if isinstance(one, BrokerApis)],
        [one for one in found if isinstance(one, Outcome)],
    )


def compare_apis(brokers: Sequence[BrokerApis]) -> list[ComparedApi]:
    """All APIs of the brokers and of kctl, by key."""
    ours = {key: one for key, one in all_apis().items() if one.versions}
    keys = sorted({*ours, *(key for one in brokers for key in one.ranges)})
    return [
        ComparedApi(
            key,
            ours[key].kafka_name if key in ours else OTHER_APIS.get(key, f"unknown {key}"),
            (ours[key].versions[0], ours[key].versions[-1]) if key in ours else None,
            {one.broker_id: one.ranges.get(key) for one in brokers},
        )
        for key in keys
    ]

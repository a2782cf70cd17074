"""Selects the version of each API for a broker.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.definition import definition_of

METADATA_KEY = 3
VOTE_KEY = 52
"""Of the quorum of KRaft: controllers advertise it and brokers do not (`listeners` in Kafka's Vote.json)."""
METADATA_VERSION_MIN = 4
OLDEST_KAFKA = "0.11"
"""The first version with record batches of magic 2, the only format that this client reads and writes."""

SINCE: Mapping[str, str] = {
    "AlterClientQuotas": "2.6",
    "AlterPartitionReassignments": "2.4",
    "AlterReplicaLogDirs": "1.0",
    "AlterShareGroupOffsets": "4.1",
    "AlterUserScramCredentials": "2.7",
    "ConsumerGroupDescribe": "3.7",
    "ConsumerGroupHeartbeat": "4.0",
    "CreateDelegationToken": "1.1",
    "CreatePartitions": "1.0",
    "DeleteGroups": "1.1",
    "DeleteShareGroupOffsets": "4.1",
    "DescribeClientQuotas": "2.6",
    "DescribeDelegationToken": "1.1",
    "DescribeLogDirs": "1.0",
    "DescribeProducers": "2.8",
    "DescribeShareGroupOffsets": "4.1",
    "DescribeTopicPartitions": "3.8",
    "DescribeTransactions": "3.0",
    "DescribeUserScramCredentials": "2.7",
    "ElectLeaders": "2.2",
    "ExpireDelegationToken": "1.1",
    "GetTelemetrySubscriptions": "3.7",
    "IncrementalAlterConfigs": "2.3",
    "ListConfigResources": "3.7",
    "ListPartitionReassignments": "2.4",
    "ListTransactions": "3.0",
    "OffsetDelete": "2.4",
    "PushTelemetry": "3.7",
    "RenewDelegationToken": "1.1",
    "ShareAcknowledge": "4.2",
    "ShareFetch": "4.2",
    "ShareGroupHeartbeat": "4.2",
    "ShareGroupDescribe": "4.1",
    "StreamsGroupDescribe": "4.1",
    "UnregisterBroker": "2.8",
    "UpdateFeatures": "2.7",
}
"""The Kafka version that introduced each API that commands use and 0.11 lacks."""


class BrokerVersions:
    """The API versions that a broker advertises, by API key."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        self._ranges = dict(ranges)

    def supports(self, request_class: type) -> bool:
        """Return whether the broker has this API in any version."""
        return definition_of(request_class).key in self._ranges

    def has(self, key: int, version: int) -> bool:
        """Return whether the broker has this version of an API, which kctl itself need not know."""
        lowest, highest = self._ranges.get(key, (0, -1))
        return lowest <= version <= highest

    def highest(self, request_class: type) -> int:
        """Return the highest common version.  Raises ApiError(UNSUPPORTED_VERSION)."""
        definition = definition_of(request_class)
        assert definition.key is not None
        ours = definition.sent
        name = definition.name.removesuffix("Request")
        lowest, highest = self._ranges.get(definition.key, (0, -1))
        version = min(highest, ours[-1])
        if highest < 0:
            since = f", which needs Kafka {SINCE[name]} or newer" if name in SINCE else ""
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not support {name}{since}")
        if version < max(lowest, ours[0]):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{name}: the broker supports versions {lowest} to {highest}, kctl {ours[0]} to {ours[-1]}",
            )
        return version

    @property
    def is_controller(self) -> bool:
        """Whether this is the listener of a KRaft controller, which does not serve Metadata."""
        return VOTE_KEY in self._ranges and METADATA_KEY not in self._ranges

    @property
    def is_too_old(self) -> bool:
        """Whether the broker is older than OLDEST_KAFKA, determined by its version of Metadata (key 3)."""
        return self._ranges.get(METADATA_KEY, (0, -1))[1] < METADATA_VERSION_MIN

    def items(self) -> list[tuple[int, tuple[int, int]]]:
        """Return all advertised ranges, sorted by key."""
        return sorted(self._ranges.items())

"""Which version of each API to speak with one broker.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.message import definition_of

METADATA_KEY = 3
METADATA_VERSION_MIN = 4
OLDEST_KAFKA = "0.11"
"""The first with record batches of magic 2, the only format that clients write and read here."""

SINCE: Mapping[str, str] = {
    "AlterPartitionReassignments": "2.4",
    "AlterReplicaLogDirs": "1.0",
    "ConsumerGroupDescribe": "3.7",
    "CreatePartitions": "1.0",
    "DeleteGroups": "1.1",
    "DescribeCluster": "2.8",
    "DescribeLogDirs": "1.0",
    "DescribeProducers": "2.8",
    "DescribeTransactions": "3.0",
    "ElectLeaders": "2.2",
    "IncrementalAlterConfigs": "2.3",
    "ListPartitionReassignments": "2.4",
    "ListTransactions": "3.0",
    "OffsetDelete": "2.4",
}
"""The version of Kafka that brought an API which commands use and 0.11 does not have."""


class BrokerVersions:
    """The versions that a broker advertised, by API key."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        self._ranges = dict(ranges)

    def knows(self, request_class: type) -> bool:
        """Whether the broker has this API at all, in whichever version."""
        return definition_of(request_class).key in self._ranges

    def highest(self, request_class: type) -> int:
        """The newest version both sides know.  Raises ApiError(UNSUPPORTED_VERSION)."""
        definition = definition_of(request_class)
        assert definition.key is not None
        ours = definition.versions
        name = definition.name.removesuffix("Request")
        lowest, highest = self._ranges.get(definition.key, (0, -1))
        version = min(highest, ours[-1])
        if highest < 0:
            since = f", which needs Kafka {SINCE[name]} or newer" if name in SINCE else ""
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not know {name}{since}")
        if version < max(lowest, ours[0]):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{name}: the broker speaks versions {lowest} to {highest}, kctl {ours[0]} to {ours[-1]}",
            )
        return version

    @property
    def is_too_old(self) -> bool:
        """Whether the broker is older than OLDEST_KAFKA, by the version of Metadata (key 3) that came with it."""
        return self._ranges.get(METADATA_KEY, (0, -1))[1] < METADATA_VERSION_MIN

    def items(self) -> list[tuple[int, tuple[int, int]]]:
        """All that was advertised, in order of the keys."""
        return sorted(self._ranges.items())

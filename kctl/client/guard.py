"""Checks of a client that may connect to the expected cluster only, or may not change anything there.

The checks are made where requests are sent, so that they hold for every command.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from kctl.client.transport import Connection
from kctl.client.versions import BrokerVersions
from kctl.errors import GuardRefused
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.definition import definition_of

T = TypeVar("T")

READING_APIS = frozenset(
    {
        1,  # Fetch
        2,  # ListOffsets
        3,  # Metadata
        9,  # OffsetFetch
        10,  # FindCoordinator
        15,  # DescribeGroups
        16,  # ListGroups
        17,  # SaslHandshake
        18,  # ApiVersions
        23,  # OffsetForLeaderEpoch
        29,  # DescribeAcls
        32,  # DescribeConfigs
        35,  # DescribeLogDirs
        36,  # SaslAuthenticate
        41,  # DescribeDelegationToken
        46,  # ListPartitionReassignments
        48,  # DescribeClientQuotas
        50,  # DescribeUserScramCredentials
        55,  # DescribeQuorum
        60,  # DescribeCluster
        61,  # DescribeProducers
        65,  # DescribeTransactions
        66,  # ListTransactions
        69,  # ConsumerGroupDescribe
        74,  # ListConfigResources
        75,  # DescribeTopicPartitions
        77,  # ShareGroupDescribe
        89,  # StreamsGroupDescribe
        90,  # DescribeShareGroupOffsets
    }
)
"""Keys of the requests that change nothing; any other key counts as a change."""


class Guard(NamedTuple):
    """What a client checks."""

    cluster_id: str | None = None
    """The id that the cluster must have; None for any."""
    refusal: str | None = None
    """Why requests that change something are refused; None if they are allowed."""


def is_change(request: object) -> bool:
    """Whether a request changes something on a broker that performs it."""
    if getattr(request, "validate_only", False):
        return False
    key = definition_of(type(request)).key
    return key not in READING_APIS or bool(getattr(request, "allow_auto_topic_creation", False))


async def guarded(connection: Connection, guard: Guard) -> Connection:
    """The connection with the checks of the guard.  Raises GuardRefused, after closing it, for another cluster."""
    if guard.cluster_id is not None:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        found = (await connection.send(request, MetadataResponse)).cluster_id
        if found != guard.cluster_id:
            await connection.close()
            raise GuardRefused(
                f"{connection.address} belongs to the cluster {found or 'without an id'}, but the profile expects"
                f" {guard.cluster_id}; nothing was done"
            )
    return connection if guard.refusal is None else _ReadingConnection(connection, guard.refusal)


class _ReadingConnection:
    """A connection that refuses requests that change something."""

    def __init__(self, connection: Connection, refusal: str) -> None:
        self._connection = connection
        self._refusal = refusal

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def versions(self) -> BrokerVersions:
        return self._connection.versions

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        self._check(request)
        return await self._connection.send(request, response_class, version=version, timeout_ms=timeout_ms)

    async def post(self, request: object, *, version: int | None = None) -> None:
        self._check(request)
        await self._connection.post(request, version=version)

    async def close(self) -> None:
        await self._connection.close()

    def _check(self, request: object) -> None:
        if is_change(request):
            raise GuardRefused(self._refusal)

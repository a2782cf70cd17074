"""Checks of a client that may connect to the expected cluster only, or may not change anything there, and a record of
the changes that it requests.

All of it is where requests are sent, so that it holds for every command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, TypeVar

from kctl.client.transport import Connection
from kctl.client.versions import BrokerVersions
from kctl.errors import ApiError, GuardRefused
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.definition import definition_of
from kctl.quantities import counted

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


class SentChanges:
    """The requests of a command that change something, by name, with and without a response."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.unanswered: Counter[str] = Counter()

    @contextmanager
    def sending(self, name: str) -> Iterator[None]:
        """Counts a request as answered if the block ends, and as unanswered while it runs or if it fails.

        After ApiError it is not counted: no broker supports the request, and it was not sent.
        """
        self.unanswered[name] += 1
        try:
            yield
        except ApiError:
            self.unanswered[name] -= 1
            raise
        self.unanswered[name] -= 1
        self.answered[name] += 1

    def __str__(self) -> str:
        """A sentence without its end about what was done."""
        answered, unanswered = (_requests(+counts) for counts in (self.answered, self.unanswered))
        if not (answered or unanswered):
            return "no request that changes something was sent"
        parts = [f"there are responses to {answered}"] if answered else []
        parts += [f"the outcome of {unanswered} is unknown"] if unanswered else []
        return f"{', '.join(parts)}, and no other change was requested"


def _requests(counts: Counter[str]) -> str:
    return ", ".join(counted(count, name) for name, count in counts.items())


class Guard(NamedTuple):
    """The checks and records of a client."""

    cluster_id: str | None = None
    """The id that the cluster must have; None for any."""
    refusal: str | None = None
    """Why requests that change something are refused; None if they are allowed."""
    changes: SentChanges | None = None
    """Where requests that change something are recorded."""


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
    if guard.refusal is None and guard.changes is None:
        return connection
    return _GuardedConnection(connection, guard.refusal, guard.changes or SentChanges())


class _GuardedConnection:
    """A connection that records requests that change something, or refuses them."""

    def __init__(self, connection: Connection, refusal: str | None, changes: SentChanges) -> None:
        self._connection = connection
        self._refusal = refusal
        self._changes = changes

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
        if not is_change(request):
            return await self._connection.send(request, response_class, version=version, timeout_ms=timeout_ms)
        with self._sending(request):
            return await self._connection.send(request, response_class, version=version, timeout_ms=timeout_ms)

    async def post(self, request: object, *, version: int | None = None) -> None:
        with self._sending(request):
            await self._connection.post(request, version=version)

    async def close(self) -> None:
        await self._connection.close()

    def _sending(self, request: object) -> AbstractContextManager[None]:
        """Raises GuardRefused."""
        if self._refusal is not None:
            raise GuardRefused(self._refusal)
        return self._changes.sending(type(request).__name__.removesuffix("Request") + " request")

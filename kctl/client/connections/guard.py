"""Checks of a client that may connect to the expected cluster only, or may not change anything there, and a record of
the changes that it requests.

All of it is where requests are sent, so that it holds for every command.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

from kctl.client.connections.transport import Connection
from kctl.client.connections.versions import BrokerVersions
from kctl.errors import ApiError, GuardRefused, TextTooLong
from kctl.output.quantities import counted
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.definition import definition_of
from kctl.security.quotas import name_text

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
        71,  # GetTelemetrySubscriptions
        72,  # PushTelemetry
        74,  # ListConfigResources
        75,  # DescribeTopicPartitions
        77,  # ShareGroupDescribe
        89,  # StreamsGroupDescribe
        90,  # DescribeShareGroupOffsets
    }
)
"""Keys of the requests that change nothing; any other key counts as a change."""
BROKER_RESOURCES = frozenset({4, 8})
"""BROKER and BROKER_LOGGER among the types of Kafka's ConfigResource."""
ITEMS_SHOWN = 10


class _Requests:
    """How many requests of one name there are, and how often each item occurs in them."""

    def __init__(self) -> None:
        self.count = 0
        self.items: Counter[str] = Counter()

    def add(self, items: Iterable[str], *, count: int = 1) -> None:
        """Add a request with these items; `count` -1 takes it away."""
        self.count += count
        for item in items:
            self.items[item] += count

    def described(self, name: str) -> str:
        """For example `2 OffsetCommit requests (billing, audit)`."""
        items = list(+self.items)
        more = f" and {len(items) - ITEMS_SHOWN} more" if len(items) > ITEMS_SHOWN else ""
        shown = f" ({', '.join(items[:ITEMS_SHOWN])}{more})" if items else ""
        return f"{counted(self.count, name)}{shown}"


class Sending:
    """A request that changes something while it is sent."""

    def __init__(self) -> None:
        self.is_refused = False


class SentChanges:
    """The requests of a command that change something, by name, with and without a response.

    Requests that were refused changed nothing and are not counted.
    """

    def __init__(self) -> None:
        self._answered: defaultdict[str, _Requests] = defaultdict(_Requests)
        self._unanswered: defaultdict[str, _Requests] = defaultdict(_Requests)

    @property
    def has_any(self) -> bool:
        """Whether any was sent."""
        return any(sending.count for group in (self._answered, self._unanswered) for sending in group.values())

    @contextmanager
    def sending(self, name: str, items: Sequence[str] = ()) -> Iterator[Sending]:
        """Count a request as answered if the block ends, and as unanswered while it runs or if it fails.

        After ApiError and TextTooLong it is not counted: no broker supports the request, or none can get it, so that it
        was not sent.  `items` are what it changes.
        """
        self._unanswered[name].add(items)
        sending = Sending()
        try:
            yield sending
        except (ApiError, TextTooLong):
            self._unanswered[name].add(items, count=-1)
            raise
        self._unanswered[name].add(items, count=-1)
        if not sending.is_refused:
            self._answered[name].add(items)

    def __str__(self) -> str:
        """Return a sentence without its end about what was done."""
        answered, unanswered = _described(self._answered), _described(self._unanswered)
        if not (answered or unanswered):
            return "no request that changes something was sent"
        parts = [f"there are responses to {answered}"] if answered else []
        parts += [f"the outcome of {unanswered} is unknown"] if unanswered else []
        return f"{', '.join(parts)}, and no other change was requested"


def _described(requests: Mapping[str, _Requests]) -> str:
    return " and ".join(request.described(name) for name, request in requests.items() if request.count)


def changed_items(request: object) -> list[str]:
    """Return the names of the groups, topics, users and other resources that a request changes; none for what has no
    name.
    """
    if (group := getattr(request, "group_id", "")) != "":
        return [str(group)]
    if resources := getattr(request, "resources", None):
        return [_resource(resource.resource_type, resource.resource_name) for resource in resources]
    names = [*getattr(request, "groups_names", ()), *getattr(request, "topic_names", ())]
    for users in ("deletions", "upsertions"):
        names += [str(user.name) for user in getattr(request, users, ())]
    for quota in getattr(request, "entries", ()):
        names.append(" ".join(f"{part.entity_type} {name_text(part.entity_name)}" for part in quota.entity))
    names += [f"{acl.principal} on {acl.resource_name}" for acl in getattr(request, "creations", ())]
    for acl in getattr(request, "filters", ()):
        names.append(f"{acl.principal_filter or 'any'} on {acl.resource_name_filter or 'any'}")
    topics = getattr(request, "topics", None) or ()
    return names + [str(topic.name) for topic in topics if getattr(topic, "name", None)]


def _resource(kind: int, name: str) -> str:
    if kind not in BROKER_RESOURCES:
        return name
    return f"broker {name}" if name else "all brokers"


class Guard(NamedTuple):
    """The checks and records of a client."""

    cluster_id: str | None = None
    """The id that the cluster must have; None for any."""
    refusal: str | None = None
    """Why requests that change something are refused; None if they are allowed."""
    changes: SentChanges | None = None
    """Where requests that change something are recorded."""


def is_change(request: object) -> bool:
    """Return whether a request changes something on a broker that performs it."""
    if getattr(request, "validate_only", False):
        return False
    key = definition_of(type(request)).key
    return key not in READING_APIS or bool(getattr(request, "allow_auto_topic_creation", False))


def is_refusal(response: object) -> bool:
    """Return whether a response has nothing but errors: one for the request, or one for each of its items."""
    if getattr(response, "error_code", 0):
        return True
    codes = list(_item_codes(response))
    return bool(codes) and all(codes)


def _item_codes(response: object) -> Iterator[int]:
    """Yield the error codes of the innermost items of a response."""
    assert is_dataclass(response)
    for member in fields(response):
        for item in _items(getattr(response, member.name)):
            inner = list(_item_codes(item))
            yield from inner or ([item.error_code] if hasattr(item, "error_code") else [])


def _items(value: object) -> list[Any]:
    return [element for element in value if is_dataclass(element)] if isinstance(value, list) else []


async def guarded(connection: Connection, guard: Guard) -> Connection:
    """Return the connection with the checks of the guard.

    Raises GuardRefused, after closing it, for another cluster.
    """
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
        with self._sending(request) as sending:
            response = await self._connection.send(request, response_class, version=version, timeout_ms=timeout_ms)
            sending.is_refused = is_refusal(response)
            return response

    async def post(self, request: object, *, version: int | None = None) -> None:
        with self._sending(request):
            await self._connection.post(request, version=version)

    async def close(self) -> None:
        await self._connection.close()

    def _sending(self, request: object) -> AbstractContextManager[Sending]:
        """Check the request, or raise GuardRefused."""
        if self._refusal is not None:
            raise GuardRefused(self._refusal)
        name = type(request).__name__.removesuffix("Request")
        return self._changes.sending(f"{name} request", changed_items(request))

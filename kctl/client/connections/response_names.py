"""Checks the names of topics, the numbers of partitions and the ids of clusters in responses.

A broker has only topics with valid names, and partitions from 0 on.  Names become paths, arguments of programs and
parts of SQL; a broker that returns other ones is wrong or hostile, and its response is refused where it arrives.  A
name that the request has may be invalid: brokers repeat it beside INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kctl.client.connections.transport import Connection
from kctl.client.connections.versions import BrokerVersions
from kctl.errors import MalformedRequest
from kctl.model import cluster_id_problem, topic_name_problem
from kctl.protocol.definition import Field, Role, definition_of

if TYPE_CHECKING:
    from kctl.client.connections.traffic import Traffic

T = TypeVar("T")


class _Places(NamedTuple):
    """The fields of one class of messages that have names, directly or in the structs of their values."""

    topics: tuple[tuple[str, object], ...] = ()
    """Each field with its default, the value in versions without the field."""
    cluster_ids: tuple[str, ...] = ()
    topic_arrays: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    partition_arrays: tuple[str, ...] = ()
    structs: tuple[str, ...] = ()
    struct_arrays: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no field has a name."""
        return not any(self)


def check_names(address: str, request: object, response: object) -> None:
    """Raise MalformedRequest for an invalid name that is not in the request, and for a negative partition."""
    requested: frozenset[str | int] | None = None
    for name, problem in _invalid_names(response):
        if requested is None:
            requested = frozenset(name for name, _ in _invalid_names(request))
        if name not in requested:
            raise MalformedRequest(f"{address}: the response of the broker is refused, because {problem}")


def _invalid_names(message: object) -> Iterator[tuple[str | int, str]]:
    """Yield the invalid names and the negative numbers of partitions in a message, and what is wrong with each."""
    waiting: list[Any] = [message]
    while waiting:
        item = waiting.pop()
        places = _places(item.__class__)
        for field, default in places.topics:
            name = getattr(item, field)
            if name is not None and name != default and (problem := topic_name_problem(name)):
                yield name, problem
        for field in places.topic_arrays:
            for name in getattr(item, field) or ():
                if problem := topic_name_problem(name):
                    yield name, problem
        for field in places.cluster_ids:
            name = getattr(item, field)
            if name and (problem := cluster_id_problem(name)):
                yield name, problem
        for field in places.partitions:
            if (number := getattr(item, field)) < 0:
                yield number, f"the number of a partition is {number}"
        for field in places.partition_arrays:
            for number in getattr(item, field) or ():
                if number < 0:
                    yield number, f"the number of a partition is {number}"
        waiting += [struct for field in places.structs if (struct := getattr(item, field)) is not None]
        for field in places.struct_arrays:
            waiting += getattr(item, field) or ()


def _places_of(cls: type) -> _Places:
    fields = definition_of(cls).fields
    elements = [(field.name, field.element) for field in fields if field.element is not None]

    def arrays_with(role: Role) -> tuple[str, ...]:
        return tuple(name for name, element in elements if element.role is role)

    def has_names(field: Field) -> bool:
        return field.struct is not None and not _places(field.struct).is_empty

    return _Places(
        topics=tuple((field.name, field.default) for field in fields if field.role is Role.TOPIC),
        topic_arrays=arrays_with(Role.TOPIC),
        cluster_ids=tuple(field.name for field in fields if field.role is Role.CLUSTER),
        partitions=tuple(field.name for field in fields if field.role is Role.PARTITION),
        partition_arrays=arrays_with(Role.PARTITION),
        structs=tuple(field.name for field in fields if has_names(field)),
        struct_arrays=tuple(name for name, element in elements if has_names(element)),
    )


_places: Callable[[type], _Places] = cache(_places_of)


class CheckedConnection:
    """A connection whose responses are checked, and counted if there is a `traffic`."""

    def __init__(self, connection: Connection, traffic: Traffic | None = None) -> None:
        self._connection = connection
        self._traffic = traffic

    @property
    def address(self) -> str:
        """See Connection.address."""
        return self._connection.address

    @property
    def versions(self) -> BrokerVersions:
        """See Connection.versions."""
        return self._connection.versions

    @property
    def is_open(self) -> bool:
        """See Connection.is_open."""
        return self._connection.is_open

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        """See Connection.send.  Raises MalformedRequest also for invalid names."""
        traffic = self._traffic
        started_ms = 0 if traffic is None else traffic.clock_ms()
        response = await self._connection.send(request, response_class, version=version, timeout_ms=timeout_ms)
        check_names(self.address, request, response)
        if traffic is not None:
            traffic.responded(self.address, request, response, started_ms)
        return response

    async def post(self, request: object, *, version: int | None = None) -> None:
        """See Connection.post."""
        await self._connection.post(request, version=version)

    async def close(self) -> None:
        """See Connection.close."""
        await self._connection.close()

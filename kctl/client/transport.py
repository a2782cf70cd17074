"""The port through which a client meets the world: connections, time, and doing several things at once."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from kctl.client.budget import Budget
from kctl.client.versions import BrokerVersions
from kctl.errors import KctlError

T = TypeVar("T")


class ConnectionLost(KctlError):
    """A broker could not be reached, went away or kept silent; whether the request was carried out is unknown."""


class HungUp(ConnectionLost):
    """The other side closed the connection."""


class Connection(Protocol):
    """One connection to one broker, which has told its versions already."""

    @property
    def address(self) -> str:
        """`host:port` as it was connected to."""
        ...

    @property
    def versions(self) -> BrokerVersions: ...

    @property
    def is_open(self) -> bool: ...

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        """Send a request in the highest version both sides know, or in `version`, and wait for its response.

        Raises ConnectionLost, MalformedRequest for bytes that are no such response, and ApiError(UNSUPPORTED_VERSION).
        Buffers of records in the response belong to the caller.
        """
        ...

    async def post(self, request: object, *, version: int | None = None) -> None:
        """Send a request that has no response: Produce with acks=0."""
        ...

    async def close(self) -> None: ...


class Transport(Protocol):
    """Makes connections and lets time pass."""

    async def connect(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_timeout_ms: int,
        timeout_ms: int,
        budget: Budget | None = None,
    ) -> Connection:
        """Connect and learn the broker's versions, both within `connect_timeout_ms`.  Raises ConnectionLost.

        Every request must be answered within `timeout_ms`, and before the deadline of `budget` if that has one.
        """
        ...

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """Do all of it, at once where that is possible; raises the first error after all have ended."""
        ...

    async def sleep(self, duration_ms: int) -> None: ...

    def monotonic_ms(self) -> int: ...

"""Bounds on what a peer can make the broker or a command allocate, compute or write.

Every bound is declared here, once: as a constant by `_limit`, or, where a Kafka property sets the value, as a row by
`_configured`.  Both add a row to LIMITS, from which `./dev docs` writes the table in docs/security.md.  A bound is
checked before the work that it limits, or while a request is decoded, never afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """One row of the table."""

    what: str
    """What is bounded, with the scope: "tagged fields in one request"."""
    value: int | str
    """The bound, or the name of the Kafka property that sets it."""
    unit: str
    """Unit of the bound: "bytes", "fields", "ms"; for a property, its default with the unit."""
    on_excess: str
    """What the peer sees and what happens to its connection."""


LIMITS: list[Limit] = []
"""All bounds, in the order of declaration."""


def _limit(what: str, value: int, unit: str, *, on_excess: str) -> int:
    LIMITS.append(Limit(what, value, unit, on_excess))
    return value


def _configured(property_name: str, what: str, default: str, *, on_excess: str) -> None:
    LIMITS.append(Limit(what, property_name, default, on_excess))


# Commands and clients.

RESPONSE_BYTES_MAX = _limit(
    "size of one response that a client takes",
    256 << 20,
    "bytes",
    on_excess="the client closes the connection and says that the other side does not speak Kafka's protocol",
)
"""Above the 50 MiB of fetch.max.bytes, and above any message.max.bytes in use."""

RESPONSE_READ_BYTES_MAX = _limit(
    "memory that a client reserves for a response before its bytes have arrived",
    1 << 20,
    "bytes",
    on_excess="more is reserved as bytes arrive, at most as much again as there is",
)

CONCURRENT_REQUESTS_MAX = _limit(
    "requests that a command has under way side by side",
    64,
    "requests",
    on_excess="the others follow when one of them is answered",
)

# Requests to the broker.

_configured(
    "socket.request.max.bytes",
    "size of one request frame",
    "100 MiB",
    on_excess="the connection is closed before the frame is read",
)

"""Sequences of requests at the start of a connection, without IO: ApiVersions, then SASL.

A dialogue is a generator: it yields a request to send, receives the frame of the response, and returns a result.  Both
transports run the same dialogues.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from kctl.client.framing import API_VERSIONS_MAX, api_versions_request, broker_versions_of
from kctl.client.versions import BrokerVersions
from kctl.errors import KctlError

T = TypeVar("T")


class Send(NamedTuple):
    """A request to send; the dialogue receives the frame of its response."""

    request: object
    version: int


class RawToken(NamedTuple):
    """A SASL message to send as a frame without a header; the dialogue receives the next frame (SaslHandshake 0)."""

    message: bytes


class Finished(NamedTuple, Generic[T]):
    """The end of a dialogue."""

    result: T


Dialogue: TypeAlias = Generator[Send | RawToken, memoryview, T]


def advance(dialogue: Dialogue[T], event: memoryview | KctlError | None) -> Send | RawToken | Finished[T]:
    """Continues a dialogue with a frame, or with the error that prevented it; None begins the dialogue.

    Raises AuthenticationFailed and other errors of the dialogue.  Steps of SASL may take a second of processor time.
    """
    try:
        if event is None:
            return next(dialogue)
        return dialogue.throw(event) if isinstance(event, KctlError) else dialogue.send(event)
    except StopIteration as stop:
        return Finished(stop.value)


def negotiate() -> Dialogue[BrokerVersions]:
    """Fetches the API versions; falls back to the ApiVersions version that an older broker returns (KIP-511)."""
    outcome: BrokerVersions | int = API_VERSIONS_MAX
    while isinstance(outcome, int):
        frame = yield Send(api_versions_request(), outcome)
        outcome = broker_versions_of(frame, outcome)
    return outcome

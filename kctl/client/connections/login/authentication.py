"""The SASL authentication of a connection, as a dialogue.  KIP-43, KIP-152, KIP-368.

It follows ApiVersions, whose response has the supported versions of SaslHandshake and SaslAuthenticate.

Kafka: SaslClientAuthenticator.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from kctl.client.connections.framing import API_VERSIONS_MAX, api_versions_request, broker_versions_of, response_of
from kctl.client.connections.transport import ConnectionClosed
from kctl.client.connections.versions import BrokerVersions
from kctl.errors import AuthenticationFailed, ErrorCode, KctlError, shortened
from kctl.limits import Subject, bound
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kctl.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kctl.security.sasl_client import SaslClient

SASL_ROUNDS_MAX = bound(
    Subject.COMMANDS,
    "messages of a client in one SASL authentication",
    16,
    "messages",
    on_excess="the client closes the connection and reports that the authentication failed",
)


# Sequences of requests at the start of a connection, without IO: ApiVersions, then SASL.
#
# A dialogue is a generator: it yields a request to send, receives the frame of the response, and returns a result.
# Both transports run the same dialogues.


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
    """Continue a dialogue with a frame, or with the error that prevented it; None begins the dialogue.

    Raises AuthenticationFailed and other errors of the dialogue.  Steps of SASL may take a second of processor time.
    """
    try:
        if event is None:
            return next(dialogue)
        return dialogue.throw(event) if isinstance(event, KctlError) else dialogue.send(event)
    except StopIteration as stop:
        return Finished(stop.value)


def negotiate() -> Dialogue[BrokerVersions]:
    """Fetch the API versions; fall back to the ApiVersions version that an older broker returns (KIP-511)."""
    outcome: BrokerVersions | int = API_VERSIONS_MAX
    while isinstance(outcome, int):
        frame = yield Send(api_versions_request(), outcome)
        outcome = broker_versions_of(frame, outcome)
    return outcome


def authenticate(mechanism: str, client: SaslClient, versions: BrokerVersions) -> Dialogue[int]:
    """Authenticate, or authenticate again; return the session lifetime in ms, 0 if it is not limited (KIP-368).

    Raises AuthenticationFailed, whose text names the property to change but not the broker.
    """
    if not versions.supports(SaslHandshakeRequest):
        raise AuthenticationFailed("the broker does not support SASL; set security.protocol to PLAINTEXT or SSL")
    version = versions.highest(SaslHandshakeRequest)
    frame = yield Send(SaslHandshakeRequest(mechanism=mechanism), version)
    _check_handshake(mechanism, response_of(frame, SaslHandshakeResponse, version))
    if version == 0:
        return (yield from _raw_exchange(mechanism, client))
    return (yield from _exchange(mechanism, client, versions))


def _check_handshake(mechanism: str, response: SaslHandshakeResponse) -> None:
    match ErrorCode.of(response.error_code):
        case ErrorCode.NONE:
            return
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = shortened(", ".join(response.mechanisms)) or "none"
            raise AuthenticationFailed(
                f"the broker does not enable {mechanism}; set sasl.mechanism to one of: {enabled}"
            )
        case ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed("the listener does not use SASL; set security.protocol to PLAINTEXT or SSL")
        case code:
            raise AuthenticationFailed(f"the broker refused SaslHandshake: {code.name}: {code.description}")


def _exchange(mechanism: str, client: SaslClient, versions: BrokerVersions) -> Dialogue[int]:
    """Exchange the messages in SaslAuthenticate requests."""
    version = versions.highest(SaslAuthenticateRequest)
    message = _first(mechanism, client)
    for _ in range(SASL_ROUNDS_MAX):
        frame = yield Send(SaslAuthenticateRequest(auth_bytes=message), version)
        response = response_of(frame, SaslAuthenticateResponse, version)
        if response.error_code:
            raise AuthenticationFailed(_refused(mechanism, response.error_message))
        reply = _next(mechanism, client, bytes(response.auth_bytes))
        if reply is None:
            return max(0, response.session_lifetime_ms)
        message = reply
    raise AuthenticationFailed(_endless(mechanism))


def _raw_exchange(mechanism: str, client: SaslClient) -> Dialogue[int]:
    """Exchange the messages as frames, for brokers before 1.0, which can refuse credentials only by closing the
    connection.
    """
    if mechanism == "GSSAPI":
        raise AuthenticationFailed("GSSAPI needs Kafka 1.0 or newer; set sasl.mechanism to another one")
    message = _first(mechanism, client)
    for _ in range(SASL_ROUNDS_MAX):
        try:
            frame = yield RawToken(message)
        except ConnectionClosed:
            raise AuthenticationFailed(_refused(mechanism, "the broker closed the connection")) from None
        reply = _next(mechanism, client, bytes(frame))
        if reply is None:
            return 0
        message = reply
    raise AuthenticationFailed(_endless(mechanism))


def _first(mechanism: str, client: SaslClient) -> bytes:
    try:
        return client.first()
    except KctlError as error:
        raise AuthenticationFailed(_refused(mechanism, str(error))) from None


def _next(mechanism: str, client: SaslClient, message: bytes) -> bytes | None:
    try:
        return client.respond(message)
    except KctlError as error:
        raise AuthenticationFailed(_refused(mechanism, str(error))) from None


def _refused(mechanism: str, reason: str | None) -> str:
    """Return the error text for a failed exchange; the reasons of broker and client contain no secret."""
    text = shortened(reason) or "the broker gave no reason"
    return f"authentication with {mechanism} failed: {text.removesuffix('.')}; check sasl.jaas.config"


def _endless(mechanism: str) -> str:
    return f"the broker does not complete {mechanism} in {SASL_ROUNDS_MAX} messages"

"""The state machine of a SASL listener: which requests it accepts in which state.

    OPENED ------------- ApiVersions ------> VERSIONS_SENT      (an invalid ApiVersions may be repeated)
    OPENED, VERSIONS_SENT -- SaslHandshake --> AUTHENTICATING
    AUTHENTICATING ------- tokens ---------> AUTHENTICATED
    AUTHENTICATED -------- SaslHandshake --> AUTHENTICATING     (again, if the session has an end: KIP-368)
    any ------------------ anything else --> CLOSED

After SaslHandshake version 0 tokens are frames of their own, without an error message for the client; from version 1 on
they are in SaslAuthenticate requests (KIP-152).  A session ends after connections.max.reauth.ms, or when the client's
credential expires, whichever comes first; then only a handshake is accepted.

Kafka: SaslServerAuthenticator, KafkaChannel.maybeBeginServerReauthentication (2.8).

Pure.  Times are monotonic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from kctl.errors import ErrorCode

REAUTHENTICATION_INTERVAL_MS_MIN = 1_000
"""A client that authenticates again earlier gets ILLEGAL_SASL_STATE, as from Kafka."""


class Phase(Enum):
    """The states; see the module's docstring."""

    OPENED = "opened"
    VERSIONS_SENT = "versions sent"
    AUTHENTICATING = "authenticating"
    AUTHENTICATED = "authenticated"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Identity:
    """The authenticated identity of a client."""

    principal: str
    """As `Type:name`."""
    is_token: bool = False
    """Whether it used a delegation token."""
    lifetime_ms: int | None = None
    """Time until its credential expires; None if it does not."""


@dataclass(slots=True)
class Negotiation:
    """The state of one connection."""

    mechanisms: tuple[str, ...]
    """The enabled mechanisms of the listener."""
    max_reauth_ms: dict[str, int] = field(default_factory=dict)
    """connections.max.reauth.ms by mechanism; 0 or missing for no limit."""
    phase: Phase = Phase.OPENED
    mechanism: str = ""
    """The chosen one."""
    has_requests: bool = False
    """Whether tokens come in SaslAuthenticate requests."""
    identity: Identity | None = None
    """Set after the first successful authentication."""
    expires_ms: int | None = None
    """When the session ends."""
    reauthentication_started_ms: int | None = None
    is_mechanism_changed: bool = False
    """Whether the client requested re-authentication with another mechanism."""

    @property
    def activity(self) -> str:
        """The activity of the client, for error messages."""
        return "authentication" if self.identity is None else "re-authentication"


# Events.


@dataclass(frozen=True, slots=True)
class VersionsRequested:
    """An ApiVersions request, and whether its response has no error."""

    is_accepted: bool


@dataclass(frozen=True, slots=True)
class HandshakeRequested:
    """A SaslHandshake request."""

    mechanism: str
    version: int


@dataclass(frozen=True, slots=True)
class TokenReceived:
    """A message of the chosen mechanism, in a SaslAuthenticate request or as a frame."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenReply:
    """The mechanism's reply; `identity` is set if the authentication is complete."""

    token: bytes = field(repr=False)
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class TokenRefused:
    """The mechanism ended the authentication.  `reason` is for the log, `message` for the client if it is not empty."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request of another API."""

    api_key: int


Event = VersionsRequested | HandshakeRequested | TokenReceived | TokenReply | TokenRefused | RequestReceived


# Actions.


@dataclass(frozen=True, slots=True)
class SendVersions:
    """Send the response to ApiVersions."""


@dataclass(frozen=True, slots=True)
class SendMechanisms:
    """Respond to SaslHandshake with the listener's mechanisms; the exchange begins."""

    mechanism: str


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Pass the token to the mechanism; its result is the next event."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SendToken:
    """Send the mechanism's reply."""

    token: bytes = field(repr=False)
    session_lifetime_ms: int = 0
    """0 for no end."""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Pass the request to its handler."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The authentication has failed: respond after connection.failed.authentication.delay.ms, then close.

    The response has the error code; if that is NONE, no response is sent.
    """

    reason: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """Close without a response."""

    reason: str
    is_expiry: bool = False
    """Whether the session has expired."""


Action = SendVersions | SendMechanisms | Evaluate | SendToken | Dispatch | Refuse | Close


def step(state: Negotiation, event: Event, now_ms: int) -> Action:
    """Update `state` for the event and return the action to perform."""
    action = _action(state, event, now_ms)
    if isinstance(action, Refuse | Close):
        state.phase = Phase.CLOSED
    return action


def _action(state: Negotiation, event: Event, now_ms: int) -> Action:
    if state.phase is Phase.CLOSED:
        return Close("a request after the end of the connection")
    match event:
        case TokenReceived():
            return _token_received(state, event, now_ms)
        case TokenReply():
            return _token_reply(state, event, now_ms)
        case TokenRefused():
            return _token_refused(state, event)
        case HandshakeRequested():
            return _handshake_requested(state, event, now_ms)
        case VersionsRequested():
            return _versions_requested(state, event, now_ms)
        case RequestReceived():
            return _request_received(state, event, now_ms)
        case _:
            assert_never(event)


def _versions_requested(state: Negotiation, event: VersionsRequested, now_ms: int) -> Action:
    if state.phase is Phase.AUTHENTICATED:
        return _in_session(state, now_ms)
    if state.phase is not Phase.OPENED:
        return Refuse(f"ApiVersions during SASL {state.activity}, state {state.phase.value}")
    if event.is_accepted:
        state.phase = Phase.VERSIONS_SENT
    return SendVersions()


def _handshake_requested(state: Negotiation, event: HandshakeRequested, now_ms: int) -> Action:
    if state.phase is Phase.AUTHENTICATED:
        if state.expires_ms is None or _was_reauthenticated_recently(state, now_ms):
            return _in_session(state, now_ms)
        state.reauthentication_started_ms = now_ms
    elif state.phase not in {Phase.OPENED, Phase.VERSIONS_SENT}:
        reason = f"SaslHandshake during SASL {state.activity}, state {state.phase.value}"
        return Refuse(reason, ErrorCode.ILLEGAL_SASL_STATE)
    state.has_requests = event.version >= 1
    if event.mechanism not in state.mechanisms:
        return Refuse("unsupported SASL mechanism", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    if state.identity is None:
        state.mechanism = event.mechanism
    else:
        state.is_mechanism_changed = event.mechanism != state.mechanism
    state.phase = Phase.AUTHENTICATING
    return SendMechanisms(event.mechanism)


def _was_reauthenticated_recently(state: Negotiation, now_ms: int) -> bool:
    started_ms = state.reauthentication_started_ms
    return started_ms is not None and now_ms - started_ms < REAUTHENTICATION_INTERVAL_MS_MIN


def _token_received(state: Negotiation, event: TokenReceived, now_ms: int) -> Action:
    if state.phase is Phase.AUTHENTICATED:
        return _in_session(state, now_ms)
    if state.phase is not Phase.AUTHENTICATING:
        return Refuse("a SASL token before a handshake")
    if state.is_mechanism_changed:
        return Refuse(f"re-authentication with another mechanism than {state.mechanism}")
    return Evaluate(event.token)


def _token_reply(state: Negotiation, event: TokenReply, now_ms: int) -> Action:
    assert state.phase is Phase.AUTHENTICATING
    identity = event.identity
    if identity is None:
        return SendToken(event.token)
    if state.identity is not None and identity.principal != state.identity.principal:
        old, new = state.identity.principal.replace(":", ".", 1), identity.principal.replace(":", ".", 1)
        message = f"Cannot change principals during re-authentication from {old}: {new}"
        return _refused(state, "re-authentication with another principal", message)
    state.phase = Phase.AUTHENTICATED
    state.identity = identity
    lifetime_ms = _session_lifetime_ms(identity, state.max_reauth_ms.get(state.mechanism, 0))
    state.expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
    return SendToken(event.token, lifetime_ms or 0, is_complete=True)


def _session_lifetime_ms(identity: Identity, max_reauth_ms: int) -> int | None:
    limits = [limit_ms for limit_ms in (identity.lifetime_ms, max_reauth_ms or None) if limit_ms is not None]
    return max(0, min(limits)) if limits else None


def _token_refused(state: Negotiation, event: TokenRefused) -> Action:
    assert state.phase is Phase.AUTHENTICATING
    generic = f"Authentication failed during {state.activity} due to invalid credentials with SASL mechanism "
    return _refused(state, event.reason, event.message or generic + state.mechanism)


def _refused(state: Negotiation, reason: str, message: str) -> Refuse:
    if not state.has_requests:
        return Refuse(reason)
    return Refuse(reason, ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def _request_received(state: Negotiation, event: RequestReceived, now_ms: int) -> Action:
    if state.phase is Phase.AUTHENTICATED:
        return _in_session(state, now_ms)
    return Refuse(
        f"request with API key {event.api_key} during SASL {state.activity}: a client that is configured for another "
        "security protocol, or no Kafka client"
    )


def _in_session(state: Negotiation, now_ms: int) -> Action:
    if state.expires_ms is not None and now_ms > state.expires_ms:
        return Close("the session has expired and the client has not authenticated again", is_expiry=True)
    return Dispatch()

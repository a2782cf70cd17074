"""The channel of a connection whose client authenticates by SASL.

It decodes requests into events of `negotiation`, performs the actions, and passes requests to their handlers once the
client is known.  A token whose evaluation takes long is evaluated in a thread; the connection waits, others do not.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from kctl.errors import ErrorCode, MalformedRequest
from kctl.output.log_lines import by_peer
from kctl.protocol import codec, registry
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kctl.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kctl.protocol.headers import RequestHeader, decode_request_header
from kctl.server.network.connections.channel import ChannelEnded, Handle, Reply
from kctl.server.network.connections.outbox import Chunk
from kctl.server.network.dispatch import API_VERSIONS_KEY
from kctl.server.network.response_frames import framed_response
from kctl.server.requests.context import Peer
from kctl.server.security.sasl.exchanges import AuthenticationRefused, Exchange, OpenExchange
from kctl.server.security.sasl.negotiation import (
    Action,
    Close,
    Dispatch,
    Evaluate,
    Event,
    HandshakeRequested,
    Negotiation,
    Phase,
    Refuse,
    RequestReceived,
    SendMechanisms,
    SendToken,
    SendVersions,
    TokenReceived,
    TokenRefused,
    TokenReply,
    VersionsRequested,
    step,
)

log = logging.getLogger(__name__)

_HANDSHAKE = registry.api_named("sasl_handshake")
_AUTHENTICATE = registry.api_named("sasl_authenticate")
_API_KEY = struct.Struct(">h")
_LENGTH = struct.Struct(">i")
_VERSIONS_ERROR_CODE = struct.Struct(">8xh")
"""The error code of a framed ApiVersions response, whose header never has tagged fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslListener:
    """The settings that the connections of a listener share."""

    name: str
    security_protocol: str
    mechanisms: Mapping[str, OpenExchange]
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms by mechanism."""
    unauthenticated_bytes_max: int
    """sasl.server.max.receive.size."""
    request_bytes_max: int
    """socket.request.max.bytes."""
    failure_delay_ms: int
    """connection.failed.authentication.delay.ms."""
    monotonic_ms: Callable[[], int]
    session_expired: Callable[[], None] = lambda: None
    """Called when a connection is closed because its client has not authenticated again in time."""


class SaslChannel:
    """See the module's docstring; implements network.channel.Channel."""

    __slots__ = (
        "_admitted",
        "_current_listener",
        "_dispatch",
        "_exchange",
        "_header",
        "_listener",
        "_peer",
        "_state",
        "frame_bytes_max",
    )

    def __init__(self, current_listener: Callable[[], SaslListener], dispatch: Handle, peer: Peer) -> None:
        """`current_listener` returns the settings that the listener has now."""
        self._current_listener = current_listener
        self._listener = listener = current_listener()
        self._dispatch = dispatch
        self._peer = replace(peer, security_protocol=listener.security_protocol)
        self._state = Negotiation(tuple(listener.mechanisms), dict(listener.max_reauth_ms))
        self._exchange: Exchange | None = None
        self._header: RequestHeader | None = None
        """The header of the request that is being handled; None for a token in a frame of its own."""
        self.frame_bytes_max = listener.unauthenticated_bytes_max
        self._admitted: Callable[[memoryview], Reply | asyncio.Future[Reply]] | None = None
        """Handles all further frames; None while the client is not authenticated or its session has an end."""

    @property
    def peer(self) -> Peer:
        """The connection and, after authentication, the principal."""
        return self._peer

    @property
    def handle(self) -> Callable[[memoryview], Reply | asyncio.Future[Reply]]:
        """See network.channel.Channel.

        Not an attribute with a bound method: that would be a reference cycle, which every ended connection would leave
        to the rare collections of old objects.
        """
        return self._admitted or self._handle

    def _handle(self, frame: memoryview) -> Reply | asyncio.Future[Reply]:
        """Handle a frame while the client is not authenticated or its session has an end."""
        try:
            event, versions = self._event(frame)
        except MalformedRequest as error:
            if self._state.phase is Phase.AUTHENTICATED:
                raise
            return self._perform(self._refuse(str(error)), frame, None)
        return self._perform(self._step(event), frame, versions)

    def _event(self, frame: memoryview) -> tuple[Event, Reply]:
        """Return the event of the frame, and for ApiVersions its response.  Raises MalformedRequest.

        Other requests are not decoded, so that unauthenticated clients reach only a few decoders.
        """
        state = self._state
        self._header = None
        if state.phase is Phase.AUTHENTICATING and not state.has_requests:
            return TokenReceived(bytes(frame)), None
        if len(frame) < _API_KEY.size:
            raise MalformedRequest("no request")
        (api_key,) = _API_KEY.unpack_from(frame)
        if api_key == API_VERSIONS_KEY and state.phase is Phase.OPENED:
            versions = self._dispatch(frame, self._peer)
            assert isinstance(versions, list)
            assert isinstance(versions[0], bytes)
            is_accepted = _VERSIONS_ERROR_CODE.unpack_from(versions[0])[0] == ErrorCode.NONE
            return VersionsRequested(is_accepted), versions
        if api_key == API_VERSIONS_KEY:
            return VersionsRequested(is_accepted=True), None
        if api_key not in {_HANDSHAKE.key, _AUTHENTICATE.key}:
            return RequestReceived(api_key), None
        header, offset = decode_request_header(frame)
        api = _HANDSHAKE if api_key == _HANDSHAKE.key else _AUTHENTICATE
        if header.api_version not in api.served:
            raise MalformedRequest(f"{api.name} version {header.api_version} is not served")
        self._header = header
        if api is _HANDSHAKE:
            if state.phase is Phase.AUTHENTICATED:
                self._use_current_listener()
            handshake = codec.decode(SaslHandshakeRequest, frame, header.api_version, offset)[0]
            return HandshakeRequested(handshake.mechanism, header.api_version), None
        request = codec.decode(SaslAuthenticateRequest, frame, header.api_version, offset)[0]
        return TokenReceived(bytes(request.auth_bytes)), None

    def _use_current_listener(self) -> None:
        """Use the present users and mechanisms for a client that authenticates again: removed ones are not accepted."""
        self._listener = listener = self._current_listener()
        self._state.mechanisms = tuple(listener.mechanisms)
        self._state.max_reauth_ms = dict(listener.max_reauth_ms)

    def _step(self, event: Event) -> Action:
        return step(self._state, event, self._listener.monotonic_ms())

    def _refuse(self, reason: str) -> Action:
        self._state.phase = Phase.CLOSED
        return Refuse(reason)

    def _perform(self, action: Action, frame: memoryview, versions: Reply) -> Reply | asyncio.Future[Reply]:
        match action:
            case Dispatch():
                return self._dispatch(frame, self._peer)
            case SendVersions():
                return versions
            case SendMechanisms():
                self._exchange = self._listener.mechanisms[action.mechanism]()
                self.frame_bytes_max = self._listener.unauthenticated_bytes_max
                return self._handshake_response(ErrorCode.NONE, self._state.mechanisms)
            case Evaluate():
                return self._evaluate(action.token)
            case SendToken():
                return self._send_token(action)
            case Refuse():
                return self._fail(action)
            case Close():
                self._log_failure(action.reason)
                if action.is_expiry:
                    self._listener.session_expired()
                raise ChannelEnded

    def _evaluate(self, token: bytes) -> Reply | asyncio.Future[Reply]:
        assert self._exchange is not None
        try:
            token_reply = self._exchange.respond(token)
        except AuthenticationRefused as error:
            return self._perform(self._step(TokenRefused(str(error), error.message)), memoryview(b""), None)
        if isinstance(token_reply, TokenReply):
            return self._perform(self._step(token_reply), memoryview(b""), None)
        return asyncio.ensure_future(self._evaluate_later(token_reply))

    async def _evaluate_later(self, token_reply: Awaitable[TokenReply]) -> Reply:
        try:
            event: Event = await token_reply
        except AuthenticationRefused as error:
            event = TokenRefused(str(error), error.message)
        reply = self._perform(self._step(event), memoryview(b""), None)
        return await reply if isinstance(reply, asyncio.Future) else reply

    def _send_token(self, action: SendToken) -> Reply:
        if action.is_complete:
            self._admit()
        if not self._state.has_requests:
            return [_LENGTH.pack(len(action.token)) + action.token]
        return self._authenticate_response(ErrorCode.NONE, None, action.token, action.session_lifetime_ms)

    def _admit(self) -> None:
        identity = self._state.identity
        assert identity is not None
        self._peer = replace(self._peer, principal=identity.principal, is_token_authenticated=identity.is_token)
        self._exchange = None
        self.frame_bytes_max = self._listener.request_bytes_max
        if self._state.expires_ms is None:
            dispatch, peer = self._dispatch, self._peer
            self._admitted = lambda frame: dispatch(frame, peer)

    def _log_failure(self, reason: str) -> None:
        """Log a failure, whose reason must contain no secret."""
        log.info(
            "authentication failed, closing connection listener=%s peer=%s mechanism=%s reason=%s",
            self._listener.name,
            self._peer.client_host,
            self._state.mechanism or "none",
            reason,
            extra=by_peer(self._listener.name),
        )

    def _fail(self, action: Refuse) -> asyncio.Future[Reply]:
        """Return a future that fails after the delay, with the response to send before the connection is closed."""
        listener = self._listener
        self._log_failure(action.reason)
        self._exchange = None
        last: list[Chunk] | None = None
        if action.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            last = self._handshake_response(action.code, self._state.mechanisms)
        elif action.code is ErrorCode.ILLEGAL_SASL_STATE:
            last = self._handshake_response(action.code)
        elif action.code is not ErrorCode.NONE:
            last = self._authenticate_response(action.code, action.message, b"", 0)
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Reply] = loop.create_future()
        delay = loop.call_later(listener.failure_delay_ms / 1000, partial(_end, reply, last))
        reply.add_done_callback(lambda _: delay.cancel())
        return reply

    def _handshake_response(self, code: ErrorCode, mechanisms: Iterable[str] = ()) -> list[Chunk]:
        response = SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))
        assert self._header is not None
        return framed_response(_HANDSHAKE, self._header, response)

    def _authenticate_response(
        self, code: ErrorCode, message: str | None, token: bytes, lifetime_ms: int
    ) -> list[Chunk]:
        response = SaslAuthenticateResponse(
            error_code=code, error_message=message, auth_bytes=token, session_lifetime_ms=lifetime_ms
        )
        assert self._header is not None
        return framed_response(_AUTHENTICATE, self._header, response)


def _end(reply: asyncio.Future[Reply], last: list[Chunk] | None) -> None:
    if not reply.done():
        reply.set_exception(ChannelEnded(last))

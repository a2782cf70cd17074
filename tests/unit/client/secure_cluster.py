"""A fake cluster behind TLS and SASL: real handshakes by Python's ssl, and the server's end of each mechanism.

What a broker may do wrong is a hook: `sasl_response` may replace the server's message.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kctl.client.connections.security import ClientSecurity
from kctl.client.settings import ClientSettings
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kctl.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kctl.protocol.codec import decode, encode
from kctl.protocol.headers import decode_request_header, encode_response_header
from kctl.protocol.registry import api
from kctl.security.scram import NONCE_BYTES, Mechanism, ScramError, ScramServer, credential_of_password
from tests.unit.client.fake_cluster import FakeCluster

API_VERSIONS = 18
SASL_KEYS = frozenset({17, 36})
"""SaslHandshake and SaslAuthenticate."""
AUTHENTICATION_FAILED = 58
UNSUPPORTED_MECHANISM = 33


@dataclass
class SaslSession:
    """The state of one connection."""

    mechanism: str = ""
    handshake: int = -1
    scram: ScramServer | None = None
    is_authenticated: bool = False
    rounds: list[bytes] = field(default_factory=list)
    """The messages of the client."""


class Refused(Exception):
    """The authentication failed, for the reason in the text."""


class SecureCluster(FakeCluster):
    """A FakeCluster that requires TLS if it has a context, and SASL if it has mechanisms."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        mechanisms: tuple[str, ...] = (),
        users: dict[str, str] | None = None,
        iterations: int = 4096,
        session_lifetime_ms: int = 0,
        versions: dict[int, tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(versions=versions)
        self.tls = tls
        self.mechanisms = mechanisms
        self.users = users or {}
        self.tokens: set[str] = set()
        self.iterations = iterations
        self.session_lifetime_ms = session_lifetime_ms
        self.sessions: list[SaslSession] = []
        self.sasl_response: Callable[[SaslSession, bytes], bytes] = lambda _, message: message

    def settings_with(self, protocol: str, properties: dict[str, str], *, timeout_ms: int = 30_000) -> ClientSettings:
        """Client settings for this cluster, by the name localhost."""
        return ClientSettings(
            (("localhost", self.ports[0]),),
            timeout_ms=timeout_ms,
            connect_timeout_ms=timeout_ms,
            security=ClientSecurity.of(protocol, properties),
        )

    def _serves(self, key: int) -> bool:
        return key in SASL_KEYS or super()._serves(key)

    def _serve(self, broker: int, connection: socket.socket) -> None:
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            if self.mechanisms:
                self._serve_sasl(broker, connection)
            elif connection.recv(1, socket.MSG_PEEK) != b"\0" if self.tls is None else False:
                return  # A broker reads this as a frame larger than any request.
            else:
                super()._serve(broker, connection)
        except (OSError, ValueError, Refused, ScramError):
            return
        finally:
            connection.close()

    def _serve_sasl(self, broker: int, connection: socket.socket) -> None:
        session = SaslSession()
        self.sessions.append(session)
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                if session.handshake == 0 and not session.is_authenticated:
                    message = self._step(session, frame)
                    connection.sendall(struct.pack(">i", len(message)) + message)
                    continue
                reply = self._respond_to(broker, session, frame)
                if not isinstance(reply, bytes):
                    return
                connection.sendall(reply)

    def _respond_to(self, broker: int, session: SaslSession, frame: bytes) -> Any:
        header, position = decode_request_header(frame)
        known = api(header.api_key)
        assert known is not None
        if header.api_key == API_VERSIONS or (session.is_authenticated and header.api_key not in SASL_KEYS):
            return self._respond(broker, frame)
        request: Any = decode(known.request, frame, header.api_version, position)[0]
        self.requests.append((broker, request))
        if isinstance(request, SaslHandshakeRequest):
            response: Any = self._handshake(session, request, header.api_version)
        elif isinstance(request, SaslAuthenticateRequest) and session.mechanism:
            response = self._authenticate(session, request)
        else:
            return None
        body = b"".join(bytes(chunk) for chunk in encode(response, header.api_version))
        reply = encode_response_header(header.api_key, header.api_version, header.correlation_id) + body
        return struct.pack(">i", len(reply)) + reply

    def _handshake(self, session: SaslSession, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        is_enabled = request.mechanism in self.mechanisms
        if is_enabled:
            session.mechanism, session.handshake, session.scram = request.mechanism, version, None
        return SaslHandshakeResponse(
            error_code=0 if is_enabled else UNSUPPORTED_MECHANISM, mechanisms=list(self.mechanisms)
        )

    def _authenticate(self, session: SaslSession, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        try:
            message = self._step(session, bytes(request.auth_bytes))
        except (Refused, ScramError) as error:
            return SaslAuthenticateResponse(
                error_code=AUTHENTICATION_FAILED, error_message=str(error), auth_bytes=b"", session_lifetime_ms=0
            )
        return SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=message, session_lifetime_ms=self.session_lifetime_ms
        )

    def _step(self, session: SaslSession, message: bytes) -> bytes:
        session.rounds.append(message)
        if session.mechanism == "PLAIN":
            _, user, password = message.decode().split("\0")
            if self.users.get(user) != password:
                raise Refused("Authentication failed: Invalid username or password")
            reply = b""
            session.is_authenticated = True
        elif session.mechanism == "OAUTHBEARER":
            reply = self._check_token(session, message)
        else:
            reply = self._scram(session, message)
        return self.sasl_response(session, reply)

    def _check_token(self, session: SaslSession, message: bytes) -> bytes:
        if message == b"\x01":
            raise Refused('{"status":"invalid_token"}')
        fields = dict(entry.split("=", 1) for entry in message.decode().split("\x01") if "=" in entry)
        if fields["auth"].removeprefix("Bearer ") not in self.tokens:
            return json.dumps({"status": "invalid_token"}).encode()
        session.is_authenticated = True
        return b""

    def _scram(self, session: SaslSession, message: bytes) -> bytes:
        mechanism = Mechanism.named(session.mechanism)
        assert mechanism is not None
        if session.scram is None:

            def lookup(user: str, _is_token: bool) -> Any:
                if user not in self.users:
                    raise Refused("Authentication failed during authentication due to invalid credentials")
                return credential_of_password(
                    mechanism, self.users[user], salt=secrets.token_bytes(16), iterations=self.iterations
                )

            session.scram = ScramServer(mechanism, nonce=secrets.token_urlsafe(NONCE_BYTES), lookup=lookup)
            return session.scram.respond(message)
        try:
            reply = session.scram.respond(message)
        except ScramError:
            raise Refused("Authentication failed during authentication due to invalid credentials") from None
        session.is_authenticated = True
        return reply


def jwt(claims: dict[str, Any]) -> str:
    """A token with these claims and an arbitrary signature."""
    parts = [{"alg": "RS256"}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])

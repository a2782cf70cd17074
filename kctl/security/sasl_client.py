"""The client's side of a SASL authentication: messages of the server in, messages of the client out.  No IO.

Every mechanism is a small state machine with the same two methods.  `kctl.client.connections.login.authentication`
sends the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kctl.errors import KctlError


class SaslRefused(KctlError):
    """The exchange failed: the server refused the client, or the server's message is invalid."""


class SaslClient(Protocol):
    """One authentication with one mechanism."""

    def first(self) -> bytes:
        """Return the message that begins the exchange."""
        ...

    def respond(self, message: bytes) -> bytes | None:
        """Return the reply to a message of the server; None if that completes the exchange.  Raises KctlError."""
        ...


@dataclass(slots=True)
class PlainClient:
    """PLAIN: user name and password in one message.  RFC 4616."""

    user: str
    password: str = field(repr=False)

    def first(self) -> bytes:
        """Return an empty authorization id, the user and the password."""
        return f"\0{self.user}\0{self.password}".encode()

    def respond(self, message: bytes) -> None:
        """Complete the exchange; the server's only message is empty."""
        if message:
            raise SaslRefused("the broker sent data, but PLAIN has no message from the server")


@dataclass(slots=True)
class OAuthBearerClient:
    """OAUTHBEARER: a token, and extensions that the broker may interpret.  RFC 7628, KIP-255, KIP-342."""

    token: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    _reason: str = field(default="", init=False)

    def first(self) -> bytes:
        """Return the token without an authorization id, and the extensions."""
        pairs = {"auth": f"Bearer {self.token}", **self.extensions}
        return ("n,,\x01" + "".join(f"{name}={value}\x01" for name, value in pairs.items()) + "\x01").encode()

    def respond(self, message: bytes) -> bytes | None:
        """Complete the exchange if the message is empty.

        Otherwise the message is JSON with the reason why the token is refused; the reply is a single 0x01 byte, after
        which the server fails the authentication.
        """
        if self._reason:
            raise SaslRefused(self._reason)
        if not message:
            return None
        self._reason = f"the broker refused the token: {message.decode(errors='replace')}"
        return b"\x01"


class GssapiClient:
    """GSSAPI: Kerberos.  RFC 4752.  `context` is a new `gssapi.SecurityContext` of the initiator.

    The context reads the ticket cache or the key table and may send requests to the key distribution center, so call
    the methods in a thread.
    """

    _NO_SECURITY_LAYER = 1

    def __init__(self, context: Any) -> None:
        self._context = context
        self._is_final = False

    def first(self) -> bytes:
        """Return the ticket for the service."""
        return bytes(self._context.step() or b"")

    def respond(self, message: bytes) -> bytes | None:
        """Return the context's messages until it is established, then the choice of no security layer."""
        if self._is_final:
            return None
        if not self._context.complete:
            return bytes(self._context.step(message) or b"")
        offered = self._context.unwrap(message).message
        if len(offered) != 4 or not offered[0] & self._NO_SECURITY_LAYER:
            raise SaslRefused("the broker does not offer GSSAPI without a security layer")
        self._is_final = True
        return bytes(self._context.wrap(bytes([self._NO_SECURITY_LAYER, 0, 0, 0]), False).message)

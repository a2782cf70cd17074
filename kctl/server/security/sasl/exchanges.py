"""The broker's side of PLAIN and SCRAM authentication.

Owner: event loop.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kctl.errors import KctlError
from kctl.security.sasl import INVALID, PlainError, is_password, parse_plain
from kctl.security.scram import NONCE_BYTES, Mechanism, OtherUserError, Phase, ScramCredential, ScramError, ScramServer
from kctl.server.security.sasl.negotiation import Identity, TokenReply
from kctl.server.security.sasl.scram_credentials import ScramCredentials
from kctl.server.security.tokens.token_cache import TokenCache

USER = "User"
_OTHER_USER = "Client requested an authorization id that is different from username"


class AuthenticationRefused(KctlError):
    """The credentials are invalid, or the client's message is malformed.

    The text is for the log and contains no secret; `message` is for the client, "" for the default message.
    """

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(reason)
        self.message = message


class Exchange(Protocol):
    """One authentication."""

    def respond(self, token: bytes) -> TokenReply | Awaitable[TokenReply]:
        """Handle a message of the client.  Raises AuthenticationRefused."""
        ...


OpenExchange = Callable[[], Exchange]


class PlainExchange:
    """PLAIN with the users of the listener's JAAS configuration."""

    __slots__ = ("_users",)

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def respond(self, token: bytes) -> TokenReply:
        """Complete the authentication."""
        try:
            message = parse_plain(token)
        except PlainError as error:
            raise AuthenticationRefused(f"malformed message: {error}", str(error)) from None
        if not is_password(self._users, message):
            raise AuthenticationRefused("invalid user name or password", INVALID)
        if message.authorization_id not in ("", message.user):
            raise AuthenticationRefused(_OTHER_USER, f"Authentication failed: {_OTHER_USER}")
        return TokenReply(b"", Identity(f"{USER}:{message.user}"))


class _NotDerived(Exception):
    """The credential of a delegation token has to be derived first."""

    def __init__(self, token_id: str) -> None:
        super().__init__()
        self.token_id = token_id


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Finds the credentials of users and of delegation tokens.

    Apart from ScramExchange, so that this and its ScramServer do not refer to each other: such cycles, one for each
    authentication, would stay until one of the rare collections of old objects.
    """

    mechanism: Mechanism
    credentials: ScramCredentials
    tokens: TokenCache
    now_ms: Callable[[], int]
    """The wall clock, by which tokens expire."""

    def __call__(self, name: str, is_token: bool) -> ScramCredential:
        """See scram.Lookup.  Raises _NotDerived."""
        if not is_token:
            return self.credentials.credential(self.mechanism, name)
        if not self.tokens.is_valid(name, self.now_ms()):
            return self.credentials.unknown(self.mechanism, name)
        credential = self.tokens.credential(self.mechanism, name)
        if credential is None:
            raise _NotDerived(name)
        return credential


class ScramExchange:
    """SCRAM with the credentials of users and delegation tokens.

    The credential of a token is derived from its HMAC when it is first used, in a thread.
    """

    __slots__ = ("_lookup", "_server")

    def __init__(
        self, mechanism: Mechanism, *, credentials: ScramCredentials, tokens: TokenCache, now_ms: Callable[[], int]
    ) -> None:
        """`now_ms` is the wall clock, by which tokens expire."""
        self._lookup = _Lookup(mechanism, credentials, tokens, now_ms)
        self._server = self._begin()

    def respond(self, token: bytes) -> TokenReply | Awaitable[TokenReply]:
        """Return the next message of the exchange."""
        try:
            return self._reply(token)
        except _NotDerived as missing:
            self._server = self._begin()
            return self._reply_after_derivation(missing.token_id, token)

    async def _reply_after_derivation(self, token_id: str, token: bytes) -> TokenReply:
        await self._lookup.tokens.derive_credential(self._lookup.mechanism, token_id)
        return self._reply(token)

    def _reply(self, token: bytes) -> TokenReply:
        try:
            reply = self._server.respond(token)
        except OtherUserError:
            raise AuthenticationRefused(_OTHER_USER, f"Authentication failed: {_OTHER_USER}") from None
        except ScramError as error:
            raise AuthenticationRefused(str(error)) from None
        is_complete = self._server.phase is Phase.COMPLETE
        return TokenReply(reply, self._identity() if is_complete else None)

    def _begin(self) -> ScramServer:
        return ScramServer(self._lookup.mechanism, nonce=secrets.token_urlsafe(NONCE_BYTES), lookup=self._lookup)

    def _identity(self) -> Identity:
        name = self._server.user
        if not self._server.is_token:
            return Identity(f"{USER}:{name}")
        token, now_ms = self._lookup.tokens.get(name), self._lookup.now_ms()
        if token is None or token.is_expired(now_ms):
            raise AuthenticationRefused("the delegation token has expired during the authentication")
        return Identity(token.owner, is_token=True, lifetime_ms=token.expiry_ms - now_ms)

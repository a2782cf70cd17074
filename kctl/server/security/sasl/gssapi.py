"""GSSAPI: clients present Kerberos tickets for the broker's principal.  RFC 4752, without a security layer.

It needs the gssapi package (`pip install 'kctl-kafka[kerberos]'`) and the system's Kerberos library, which reads the
key table and, to refuse tickets that are sent twice, writes a replay cache: each message is handled in a thread.

Kafka: SaslServerAuthenticator.createSaslKerberosServer, KerberosShortNamer (2.8).

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from kctl.errors import ConfigError
from kctl.security.principals import KerberosNameError, Rule, user_name
from kctl.server.security.sasl.exchanges import USER, AuthenticationRefused
from kctl.server.security.sasl.negotiation import Identity, TokenReply

_ROUNDS_MAX = 10
"""Messages of a client in one authentication; Kerberos needs three."""
_NO_SECURITY_LAYER = b"\x01\x00\x00\x00"
"""One byte with the layers that are offered, and three with the size of the messages that they would protect."""


class _Phase(Enum):
    CONTEXT = "context"
    """Tickets are exchanged."""
    OFFER = "offer"
    """The client's empty reply to the last ticket is expected."""
    CHOICE = "choice"
    """The client's choice of a security layer is expected."""


class Acceptor:
    """The broker's principal with its keys."""

    def __init__(self, jaas_options: Mapping[str, str], rules: Sequence[Rule], property_name: str) -> None:
        """Read `keyTab` and `principal` of a Krb5LoginModule.  Raises ConfigError."""
        try:
            import gssapi  # noqa: PLC0415 - an extra
        except ImportError:
            raise ConfigError(
                "sasl.enabled.mechanisms",
                "GSSAPI",
                "the gssapi package is missing; install it with pip install 'kctl-kafka[kerberos]', "
                "or set sasl.enabled.mechanisms to other mechanisms",
            ) from None
        self._gssapi: Any = gssapi
        principal, key_table = jaas_options.get("principal", ""), jaas_options.get("keyTab", "")
        _, separator, self._realm = principal.rpartition("@")
        if not key_table or not separator:
            raise ConfigError(
                property_name, "[hidden]", 'has to name keyTab="/path" and principal="service/host@REALM"'
            )
        self._rules = tuple(rules)
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            self._credentials: Any = gssapi.Credentials(usage="accept", name=name, store={"keytab": key_table})
        except gssapi.exceptions.GSSError as error:
            raise ConfigError(property_name, "[hidden]", f"the keys of {principal} cannot be read: {error}") from None

    def context(self) -> Any:
        """Return a security context for one client."""
        return self._gssapi.SecurityContext(creds=self._credentials, usage="accept")

    def refusal(self, error: Exception) -> bool:
        """Return whether the exception means that the client is refused."""
        return isinstance(error, self._gssapi.exceptions.GSSError)

    def user(self, principal: str) -> str:
        """Return the name of the user.  Raises AuthenticationRefused."""
        try:
            return user_name(principal, self._rules, default_realm=self._realm)
        except KerberosNameError as error:
            raise AuthenticationRefused(str(error)) from None


class GssapiExchange:
    """One authentication: tickets until the context is complete, then the security layer is chosen, which is none."""

    __slots__ = ("_acceptor", "_context", "_phase", "_rounds")

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._context = acceptor.context()
        self._phase = _Phase.CONTEXT
        self._rounds = 0

    async def respond(self, token: bytes) -> TokenReply:
        """Return the next message of the exchange."""
        return await asyncio.get_running_loop().run_in_executor(None, self._reply, token)

    def _reply(self, token: bytes) -> TokenReply:
        try:
            return self._step(token)
        except AuthenticationRefused:
            raise
        except Exception as error:
            if self._acceptor.refusal(error):
                raise AuthenticationRefused(f"Kerberos: {error}") from None
            raise

    def _step(self, token: bytes) -> TokenReply:
        self._rounds += 1
        if self._rounds > _ROUNDS_MAX:
            raise AuthenticationRefused("too many messages")
        if self._phase is _Phase.CHOICE:
            return self._chosen(token)
        if self._phase is _Phase.CONTEXT:
            if not token:
                raise AuthenticationRefused("an empty message where a ticket is expected")
            reply = self._context.step(token) or b""
            if not self._context.complete:
                return TokenReply(reply)
            self._phase = _Phase.OFFER
            if reply:
                return TokenReply(reply)
        elif token:
            raise AuthenticationRefused("a message where the client's empty reply is expected")
        self._phase = _Phase.CHOICE
        return TokenReply(self._context.wrap(_NO_SECURITY_LAYER, False).message)

    def _chosen(self, token: bytes) -> TokenReply:
        choice: bytes = self._context.unwrap(token).message
        if len(choice) < len(_NO_SECURITY_LAYER) or choice[0] != _NO_SECURITY_LAYER[0]:
            raise AuthenticationRefused("the client has chosen a security layer, and none is offered")
        principal = str(self._context.initiator_name)
        user = self._acceptor.user(principal)
        authorization_id = choice[len(_NO_SECURITY_LAYER) :].decode("utf-8", "replace")
        if authorization_id not in ("", principal, principal.partition("@")[0], user):
            raise AuthenticationRefused("the client requested an authorization id that is different from its principal")
        return TokenReply(b"", Identity(f"{USER}:{user}"))

"""SCRAM-SHA-256 and SCRAM-SHA-512, client and server.  RFC 5802, RFC 7677, without channel binding.

    client                              server
    client-first: user, nonce      ->
                                   <-   server-first: both nonces, salt, iterations
    client-final: both nonces,     ->
      proof of the client key
                                   <-   server-final: signature with the server key

The password is never sent.  Each side is a small state machine that takes one message and returns the next; after it
has raised ScramError it accepts no further message.

Kafka: ScramSaslServer, ScramSaslClient (2.8).

Pure: nonces are arguments.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from enum import Enum

from kctl.security.scram_credentials import (
    Mechanism,
    ScramCredential,
    client_key,
    salted_password,
    server_key,
    stored_key,
)
from kctl.security.scram_messages import (
    TOKEN_AUTH,
    ClientFinal,
    ClientFirst,
    ScramError,
    ServerFirst,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
    server_final,
)

NONCE_BYTES = 24
"""Random bytes of a nonce; make it with `secrets.token_urlsafe(NONCE_BYTES)`."""

Lookup = Callable[[str, bool], ScramCredential]
"""(name, is_token) -> credential of a user, or of a delegation token with that id.

For an unknown name it may return one that no password matches, so that the exchange does not reveal which users exist.
"""


class OtherUserError(ScramError):
    """The client requested the identity of another user."""


class Phase(Enum):
    """The message that this side expects or sends next."""

    FIRST = "first"
    """Server: expects client-first.  Client: sends it."""
    FINAL = "final"
    """Server: expects client-final.  Client: expects server-first."""
    SIGNATURE = "signature"
    """Client: expects server-final."""
    COMPLETE = "complete"
    FAILED = "failed"


class ScramServer:
    """The server's side.  `nonce` is its part of the nonce, random and used once."""

    __slots__ = ("_credential", "_first", "_lookup", "_mechanism", "_nonce", "_signed", "phase")

    def __init__(self, mechanism: Mechanism, *, nonce: str, lookup: Lookup) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        self._lookup = lookup
        self._first: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        self._signed = ""
        self.phase = Phase.FIRST

    @property
    def user(self) -> str:
        """The name that the client sent, "" before; it is authenticated when the phase is COMPLETE."""
        return self._first.user if self._first else ""

    @property
    def is_token(self) -> bool:
        """Whether the name is the id of a delegation token."""
        return self._first is not None and self._first.is_token

    def respond(self, message: bytes) -> bytes:
        """The next message of the server.  Raises ScramError if the exchange fails, and what `lookup` raises."""
        phase, self.phase = self.phase, Phase.FAILED
        if phase is Phase.FIRST:
            reply = self._server_first(message)
            self.phase = Phase.FINAL
        elif phase is Phase.FINAL:
            reply = self._server_final(message)
            self.phase = Phase.COMPLETE
        else:
            raise ScramError("a message after the end of the exchange")
        return reply

    def _server_first(self, message: bytes) -> bytes:
        first, bare = parse_client_first(message)
        if first.authorization_id not in ("", first.user):
            raise OtherUserError("the client requested an authorization id that is different from the user name")
        credential = self._lookup(first.user, first.is_token)
        reply = ServerFirst(first.nonce + self._nonce, credential.salt, credential.iterations).text()
        self._first, self._credential, self._signed = first, credential, f"{bare},{reply}"
        return reply.encode()

    def _server_final(self, message: bytes) -> bytes:
        assert self._first is not None
        assert self._credential is not None
        final, unsigned = parse_client_final(message)
        nonce = self._first.nonce + self._nonce
        # librdkafka before 2.6.1 repeats only its own part.  The proof covers the whole nonce all the same.
        if not (_equal(final.nonce, nonce) or _equal(final.nonce, self._first.nonce + nonce)):
            raise ScramError("client-final has another nonce than server-first")  # CVE-2024-56128
        if not _equal(final.gs2_header, self._first.gs2_header):
            raise ScramError("client-final has another channel binding than client-first")
        signed = f"{self._signed},{unsigned}".encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._mechanism.hash_name)
        if len(final.proof) != len(signature):
            raise ScramError("the proof has the wrong size")
        key = stored_key(self._mechanism, _xor(final.proof, signature))
        if not hmac.compare_digest(key, self._credential.stored_key):
            raise ScramError("the proof is wrong")
        return server_final(hmac.digest(self._credential.server_key, signed, self._mechanism.hash_name))


class ScramClient:
    """The client's side.  `nonce` is its part of the nonce, random and used once."""

    __slots__ = ("_first", "_mechanism", "_password", "_server_signature", "phase")

    def __init__(self, mechanism: Mechanism, *, user: str, password: str, nonce: str, is_token: bool = False) -> None:
        self._mechanism = mechanism
        self._password = password
        self._first = ClientFirst(user, nonce, extensions={TOKEN_AUTH: "true"} if is_token else {})
        self._server_signature = b""
        self.phase = Phase.FIRST

    def first(self) -> bytes:
        """The first message of the exchange."""
        assert self.phase is Phase.FIRST
        self.phase = Phase.FINAL
        return self._first.encode()

    def respond(self, message: bytes) -> bytes | None:
        """The client's reply to server-first; None after server-final, which completes the exchange.

        Raises ScramError.  The reply to server-first hashes the password as often as the server requires, up to
        SCRAM_ITERATIONS_MAX times, which takes a second, so call it in a thread.
        """
        phase, self.phase = self.phase, Phase.FAILED
        if phase is Phase.FINAL:
            reply = self._client_final(message)
            self.phase = Phase.SIGNATURE
            return reply
        if phase is not Phase.SIGNATURE:
            raise ScramError("a message after the end of the exchange")
        if not hmac.compare_digest(parse_server_final(message), self._server_signature):
            raise ScramError("the server's signature is wrong: the server does not have the credential of the user")
        self.phase = Phase.COMPLETE
        return None

    def _client_final(self, message: bytes) -> bytes:
        server_first, text = parse_server_first(message)
        nonce = server_first.nonce
        if not nonce.startswith(self._first.nonce) or len(nonce) == len(self._first.nonce):
            raise ScramError("the nonce of server-first does not continue the client's")
        salted = salted_password(self._mechanism, self._password, server_first.salt, server_first.iterations)
        unsigned = ClientFinal(nonce, b"").unsigned
        signed = f"{self._first.bare},{text},{unsigned}".encode()
        key = client_key(self._mechanism, salted)
        signature = hmac.digest(stored_key(self._mechanism, key), signed, self._mechanism.hash_name)
        self._server_signature = hmac.digest(server_key(self._mechanism, salted), signed, self._mechanism.hash_name)
        return ClientFinal(nonce, _xor(key, signature)).encode()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _xor(one: bytes, other: bytes) -> bytes:
    size = len(one)
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(size, "big")

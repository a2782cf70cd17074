"""SCRAM-SHA-256 and SCRAM-SHA-512: messages, credentials, and the two sides of an authentication."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from kctl.errors import KctlError
from kctl.limits import SCRAM_ITERATIONS_MAX, SCRAM_SALT_BYTES_MAX, Subject, bound

SCRAM_MESSAGE_BYTES_MAX = bound(
    Subject.AUTHENTICATION,
    "one SCRAM message",
    16_384,
    "bytes",
    on_excess="the authentication fails before the message is read",
)


# The messages of SCRAM without channel binding, as bytes and as values. RFC 5802, section 7.
#
# A client sends client-first and client-final, a server replies with server-first and server-final. Every parser
# checks the size of a message first, and raises ScramError with a text that contains no part of the message.
#
# Kafka: ScramMessages, ScramFormatter, ScramExtensions (2.8).
#
# Pure.


TOKEN_AUTH = "tokenauth"  # noqa: S105 - the name of an extension
"""The extension of client-first that marks the user name as the id of a delegation token."""

ITERATIONS_MIN = 4096
"""The minimum of RFC 7677; fewer are refused by clients and for new credentials."""

_SASLNAME = r"(?:[^=,\x00]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\x00]+)*"

_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_SASLNAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_SASLNAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unsigned>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:v=(?P<signature>{_BASE64})|e=(?P<error>[^,\x00]+)){_EXTENSIONS}")
_ESCAPED = re.compile("=2C|=3D")


class ScramError(KctlError):
    """The exchange failed.  The text contains no secret and no part of the peer's message."""


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message of a client."""

    user: str
    nonce: str = field(repr=False)
    authorization_id: str = ""
    """The identity that the client requests; empty for `user`."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    gs2_header: str = "n,,"
    """The channel binding flag and the authorization id, which client-final repeats."""

    @property
    def bare(self) -> str:
        """The part that is signed."""
        extensions = "".join(f",{name}={value}" for name, value in self.extensions.items())
        return f"n={escaped(self.user)},r={self.nonce}{extensions}"

    @property
    def is_token(self) -> bool:
        """Whether `user` is the id of a delegation token."""
        return self.extensions.get(TOKEN_AUTH, "").lower() == "true"

    def encode(self) -> bytes:
        """Return the message."""
        return (self.gs2_header + self.bare).encode()


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The fields from which the client derives its proof."""

    nonce: str = field(repr=False)
    """The client's nonce followed by the server's."""
    salt: bytes = field(repr=False)
    iterations: int

    def text(self) -> str:
        """Return the message as text, which is signed."""
        return f"r={self.nonce},s={_base64(self.salt)},i={self.iterations}"


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's proof."""

    nonce: str = field(repr=False)
    proof: bytes = field(repr=False)
    gs2_header: str = "n,,"

    @property
    def unsigned(self) -> str:
        """The part before the proof, which is signed."""
        return f"c={_base64(self.gs2_header.encode())},r={self.nonce}"

    def encode(self) -> bytes:
        """Return the message."""
        return f"{self.unsigned},p={_base64(self.proof)}".encode()


def parse_client_first(message: bytes) -> tuple[ClientFirst, str]:
    """Return the message, and the part of its text that is signed.  Raises ScramError."""
    match = _matched(_CLIENT_FIRST, message, "client-first")
    pairs = (pair.partition("=") for pair in match["extensions"].split(",")[1:])
    first = ClientFirst(
        user=unescaped(match["user"]),
        nonce=match["nonce"],
        authorization_id=unescaped(match["authzid"] or ""),
        extensions={name: value for name, _, value in pairs},
        gs2_header=match["gs2"],
    )
    return first, match["bare"]


def parse_server_first(message: bytes) -> tuple[ServerFirst, str]:
    """Return the message and its text.  Raises ScramError, also for too few or too many iterations (CVE-2026-10143)."""
    match = _matched(_SERVER_FIRST, message, "server-first")
    iterations = int(match["iterations"])
    if not ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
        raise ScramError(
            f"the server requires {iterations} iterations; {ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX} are accepted"
        )
    return ServerFirst(match["nonce"], _unbase64(match["salt"], "server-first"), iterations), match[0]


def parse_client_final(message: bytes) -> tuple[ClientFinal, str]:
    """Return the message, and the part of its text that is signed.  Raises ScramError."""
    match = _matched(_CLIENT_FINAL, message, "client-final")
    binding = _unbase64(match["binding"], "client-final")
    proof = _unbase64(match["proof"], "client-final")
    return ClientFinal(match["nonce"], proof, binding.decode("utf-8", "replace")), match["unsigned"]


def server_final(signature: bytes) -> bytes:
    """Return the message that ends a successful exchange."""
    return f"v={_base64(signature)}".encode()


def parse_server_final(message: bytes) -> bytes:
    """Return the server's signature.  Raises ScramError, also if the server reports that the authentication failed."""
    match = _matched(_SERVER_FINAL, message, "server-final")
    if match["error"] is not None:
        raise ScramError("the server refused the proof")
    return _unbase64(match["signature"], "server-final")


def escaped(name: str) -> str:
    """Return a user name as `saslname`."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(text: str) -> str:
    """Return the user name of a `saslname`."""
    return _ESCAPED.sub(lambda found: "," if found[0] == "=2C" else "=", text)


def _matched(pattern: re.Pattern[str], message: bytes, name: str) -> re.Match[str]:
    if len(message) > SCRAM_MESSAGE_BYTES_MAX:
        raise ScramError(f"{name} has {len(message)} bytes; the limit is {SCRAM_MESSAGE_BYTES_MAX}")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramError(f"{name} is not UTF-8") from None
    match = pattern.fullmatch(text)
    if match is None:
        raise ScramError(f"{name} is malformed")
    return match


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError(f"{name} contains invalid base64") from None


# SCRAM credentials: derived from a password, and as text in Kafka's format. RFC 5802, section 3.
#
# A server stores no password, but two keys derived from it: one verifies the client, the other one proves the
# identity of the server.
#
# Kafka: ScramFormatter, ScramCredentialUtils (2.8).
#
# Pure.


class Mechanism(IntEnum):
    """A mechanism, by its number in the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def config_key(self) -> str:
        """The name of the mechanism and the key of a stored credential: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name in hashlib."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()

    @property
    def key_bytes(self) -> int:
        """The size in bytes of the hash and of every key."""
        return 32 if self is Mechanism.SCRAM_SHA_256 else 64

    @classmethod
    def named(cls, name: str) -> Mechanism | None:
        """Return the mechanism with a name such as `SCRAM-SHA-256`, or None."""
        return next((mechanism for mechanism in cls if mechanism.config_key == name), None)


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """The stored credential.  It is a secret: anyone who has it can act as the server."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the key from which all others are derived.  4,096 iterations take about 2 ms, so call it in a thread.

    Like Kafka's, the password is not prepared by SASLprep.
    """
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_key(mechanism: Mechanism, salted: bytes) -> bytes:
    """Return the key that the client proves to have."""
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def server_key(mechanism: Mechanism, salted: bytes) -> bytes:
    """Return the key that the server proves to have."""
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def stored_key(mechanism: Mechanism, key: bytes) -> bytes:
    """Return the hash of the client key, which the server stores."""
    return hashlib.new(mechanism.hash_name, key).digest()


def credential_of_salted(mechanism: Mechanism, salted: bytes, *, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a salted password."""
    return ScramCredential(
        salt=salt,
        stored_key=stored_key(mechanism, client_key(mechanism, salted)),
        server_key=server_key(mechanism, salted),
        iterations=iterations,
    )


def credential_of_password(mechanism: Mechanism, password: str, *, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a password; see `salted_password` for the time that it takes."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of_salted(mechanism, salted, salt=salt, iterations=iterations)


def credential_text(credential: ScramCredential) -> str:
    """Return the credential as it is stored in ZooKeeper: `salt=...,stored_key=...,server_key=...,iterations=4096`."""
    return ",".join(
        (
            f"salt={base64.b64encode(credential.salt).decode()}",
            f"stored_key={base64.b64encode(credential.stored_key).decode()}",
            f"server_key={base64.b64encode(credential.server_key).decode()}",
            f"iterations={credential.iterations}",
        )
    )


_PARTS = frozenset({"salt", "stored_key", "server_key", "iterations"})
_ITERATIONS = re.compile("[0-9]{1,10}")


def parse_credential(mechanism: Mechanism, text: str) -> ScramCredential:
    """Read a stored credential.  Raises ScramError, whose text contains no part of the credential.

    Fewer than 4,096 iterations are refused, as clients refuse them.
    """
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if parts.keys() != _PARTS:
        raise ScramError("the credential does not consist of salt, stored_key, server_key and iterations")
    keys = {}
    for name in ("salt", "stored_key", "server_key"):
        try:
            keys[name] = base64.b64decode(parts[name], validate=True)
        except (binascii.Error, ValueError):
            raise ScramError(f"{name} of the credential is not base64") from None
        if name != "salt" and len(keys[name]) != mechanism.key_bytes:
            raise ScramError(f"{name} of the credential has {len(keys[name])} bytes, not {mechanism.key_bytes}")
    if len(keys["salt"]) > SCRAM_SALT_BYTES_MAX:  # Kafka stores an empty one as well.
        raise ScramError(f"the salt of the credential has {len(keys['salt'])} bytes, more than {SCRAM_SALT_BYTES_MAX}")
    digits = parts["iterations"]
    iterations = int(digits) if _ITERATIONS.fullmatch(digits) else -1
    if not ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
        raise ScramError(f"iterations of the credential are not between {ITERATIONS_MIN} and {SCRAM_ITERATIONS_MAX}")
    return ScramCredential(keys["salt"], keys["stored_key"], keys["server_key"], iterations)


# SCRAM-SHA-256 and SCRAM-SHA-512, client and server. RFC 5802, RFC 7677, without channel binding.
#
#     client                              server
#     client-first: user, nonce      ->
#                                    <-   server-first: both nonces, salt, iterations
#     client-final: both nonces,     ->
#       proof of the client key
#                                    <-   server-final: signature with the server key
#
# The password is never sent. Each side is a small state machine that takes one message and returns the next; after it
# has raised ScramError it accepts no further message.
#
# Kafka: ScramSaslServer, ScramSaslClient (2.8).
#
# Pure: nonces are arguments.


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
        """Return the next message of the server.  Raises ScramError if the exchange fails, and what `lookup` raises."""
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
        """Return the first message of the exchange."""
        assert self.phase is Phase.FIRST
        self.phase = Phase.FINAL
        return self._first.encode()

    def respond(self, message: bytes) -> bytes | None:
        """Return the client's reply to server-first; None after server-final, which completes the exchange.

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


def _equal(text: str, other: str) -> bool:
    return hmac.compare_digest(text.encode(), other.encode())


def _xor(value: bytes, other: bytes) -> bytes:
    size = len(value)
    return (int.from_bytes(value, "big") ^ int.from_bytes(other, "big")).to_bytes(size, "big")

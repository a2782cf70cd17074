"""The messages of SCRAM without channel binding, as bytes and as values.  RFC 5802, section 7.

A client sends client-first and client-final, a server replies with server-first and server-final.  Every parser checks
the size of a message first, and raises ScramError with a text that contains no part of the message.

Kafka: ScramMessages, ScramFormatter, ScramExtensions (2.8).

Pure.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.errors import KctlError
from kctl.limits import SCRAM_ITERATIONS_MAX, SCRAM_MESSAGE_BYTES_MAX

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
        """The message."""
        return (self.gs2_header + self.bare).encode()


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The fields from which the client derives its proof."""

    nonce: str = field(repr=False)
    """The client's nonce followed by the server's."""
    salt: bytes = field(repr=False)
    iterations: int

    def text(self) -> str:
        """The message as text, which is signed."""
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
        """The message."""
        return f"{self.unsigned},p={_base64(self.proof)}".encode()


def parse_client_first(message: bytes) -> tuple[ClientFirst, str]:
    """The message, and the part of its text that is signed.  Raises ScramError."""
    found = _matched(_CLIENT_FIRST, message, "client-first")
    pairs = (each.partition("=") for each in found["extensions"].split(",")[1:])
    first = ClientFirst(
        user=unescaped(found["user"]),
        nonce=found["nonce"],
        authorization_id=unescaped(found["authzid"] or ""),
        extensions={name: value for name, _, value in pairs},
        gs2_header=found["gs2"],
    )
    return first, found["bare"]


def parse_server_first(message: bytes) -> tuple[ServerFirst, str]:
    """The message and its text.  Raises ScramError, also for too few or too many iterations (CVE-2026-10143)."""
    found = _matched(_SERVER_FIRST, message, "server-first")
    iterations = int(found["iterations"])
    if not ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
        raise ScramError(
            f"the server requires {iterations} iterations; {ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX} are accepted"
        )
    return ServerFirst(found["nonce"], _unbase64(found["salt"], "server-first"), iterations), found[0]


def parse_client_final(message: bytes) -> tuple[ClientFinal, str]:
    """The message, and the part of its text that is signed.  Raises ScramError."""
    found = _matched(_CLIENT_FINAL, message, "client-final")
    binding = _unbase64(found["binding"], "client-final")
    proof = _unbase64(found["proof"], "client-final")
    return ClientFinal(found["nonce"], proof, binding.decode("utf-8", "replace")), found["unsigned"]


def server_final(signature: bytes) -> bytes:
    """The message that ends a successful exchange."""
    return f"v={_base64(signature)}".encode()


def parse_server_final(message: bytes) -> bytes:
    """The server's signature.  Raises ScramError, also if the server reports that the authentication failed."""
    found = _matched(_SERVER_FINAL, message, "server-final")
    if found["error"] is not None:
        raise ScramError("the server refused the proof")
    return _unbase64(found["signature"], "server-final")


def escaped(name: str) -> str:
    """A user name as `saslname`."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(text: str) -> str:
    """The user name of a `saslname`."""
    return _ESCAPED.sub(lambda found: "," if found[0] == "=2C" else "=", text)


def _matched(pattern: re.Pattern[str], message: bytes, name: str) -> re.Match[str]:
    if len(message) > SCRAM_MESSAGE_BYTES_MAX:
        raise ScramError(f"{name} has {len(message)} bytes; the limit is {SCRAM_MESSAGE_BYTES_MAX}")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramError(f"{name} is not UTF-8") from None
    found = pattern.fullmatch(text)
    if found is None:
        raise ScramError(f"{name} is malformed")
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError(f"{name} contains invalid base64") from None

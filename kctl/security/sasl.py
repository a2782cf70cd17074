"""The messages of PLAIN and OAUTHBEARER."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.errors import KctlError
from kctl.limits import Subject, bound

OAUTHBEARER_MESSAGE_BYTES_MAX = bound(
    Subject.AUTHENTICATION,
    "one OAUTHBEARER message with its token",
    65_536,
    "bytes",
    on_excess="the authentication fails before the message is read",
)


# PLAIN: a user name and a password in one message. RFC 4616.
#
# Kafka: PlainSaslServer, PlainServerCallbackHandler (2.8).
#
# Pure.


USER_OPTION_PREFIX = "user_"
"""Options of PlainLoginModule with this prefix are the users of a broker: user_alice="password"."""

INVALID = "Authentication failed: Invalid username or password"


class PlainError(KctlError):
    """The message is malformed.  The text is Kafka's for the client, and contains no part of the message."""


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """The message of a client."""

    authorization_id: str
    user: str
    password: str = field(repr=False)


def parse_plain(message: bytes) -> PlainMessage:
    """Return the authorization id, the user and the password, separated by NUL.  Raises PlainError."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise PlainError(INVALID) from None
    if len(parts) != 3:
        # Kafka reads no further than the fourth.
        raise PlainError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}")
    if not parts[1]:
        raise PlainError("Authentication failed: username not specified")
    if not parts[2]:
        raise PlainError("Authentication failed: password not specified")
    return PlainMessage(*parts)


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords by user in the options of a PlainLoginModule."""
    return {
        name.removeprefix(USER_OPTION_PREFIX): password
        for name, password in options.items()
        if name.startswith(USER_OPTION_PREFIX)
    }


def is_password(users: Mapping[str, str], message: PlainMessage) -> bool:
    """Return whether the password is correct; this takes the same time whether or not the user exists."""
    expected = users.get(message.user)
    is_equal = hmac.compare_digest((expected or "").encode(), message.password.encode())
    return is_equal and expected is not None


# The messages of OAUTHBEARER. RFC 7628, KIP-255, KIP-342.
#
# Kafka: OAuthBearerClientInitialResponse, OAuthBearerSaslServer (2.8).
#
# Pure.


ACKNOWLEDGEMENT = b"\x01"
"""The message of a client after an error message, so that the server can end the exchange."""

_MESSAGE = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\x00\x01]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER = re.compile(r"bearer +(?P<token>[A-Za-z0-9._~+/=-]+)", re.IGNORECASE)


class OAuthBearerError(KctlError):
    """The message is malformed.  The text contains no part of it."""


@dataclass(frozen=True, slots=True)
class OAuthBearerMessage:
    """The first message of a client."""

    token: str = field(repr=False)
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_oauthbearer(message: bytes) -> OAuthBearerMessage:
    """Return the token, the authorization id and the extensions.  Raises OAuthBearerError."""
    if len(message) > OAUTHBEARER_MESSAGE_BYTES_MAX:
        raise OAuthBearerError(
            f"the OAUTHBEARER message has {len(message)} bytes; the limit is {OAUTHBEARER_MESSAGE_BYTES_MAX}"
        )
    try:
        match = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        raise OAuthBearerError("the OAUTHBEARER message is not UTF-8") from None
    if match is None:
        raise OAuthBearerError("the OAUTHBEARER message is malformed")
    pairs = dict(pair.partition("=")[::2] for pair in match["pairs"].split("\x01") if pair)
    authorization = _BEARER.fullmatch(pairs.pop("auth", ""))
    if authorization is None:
        raise OAuthBearerError("the OAUTHBEARER message has no bearer token")
    name = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return OAuthBearerMessage(authorization["token"], name, pairs)


def invalid_token_message() -> bytes:
    """Return the message of a server that refuses a token."""
    return json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()

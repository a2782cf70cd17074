"""PLAIN: a user name and a password in one message.  RFC 4616.

Kafka: PlainSaslServer, PlainServerCallbackHandler (2.8).

Pure.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.errors import KctlError

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
    """The authorization id, the user and the password, separated by NUL.  Raises PlainError."""
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
    """The passwords by user in the options of a PlainLoginModule."""
    return {
        name.removeprefix(USER_OPTION_PREFIX): password
        for name, password in options.items()
        if name.startswith(USER_OPTION_PREFIX)
    }


def is_password(users: Mapping[str, str], message: PlainMessage) -> bool:
    """Whether the password is correct; takes the same time whether or not the user exists."""
    expected = users.get(message.user)
    is_equal = hmac.compare_digest((expected or "").encode(), message.password.encode())
    return is_equal and expected is not None

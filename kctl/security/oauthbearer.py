"""The messages of OAUTHBEARER.  RFC 7628, KIP-255, KIP-342.

Kafka: OAuthBearerClientInitialResponse, OAuthBearerSaslServer (2.8).

Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.errors import KctlError
from kctl.limits import OAUTHBEARER_MESSAGE_BYTES_MAX

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
    """The token, the authorization id and the extensions.  Raises OAuthBearerError."""
    if len(message) > OAUTHBEARER_MESSAGE_BYTES_MAX:
        raise OAuthBearerError(
            f"the OAUTHBEARER message has {len(message)} bytes; the limit is {OAUTHBEARER_MESSAGE_BYTES_MAX}"
        )
    try:
        found = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        raise OAuthBearerError("the OAUTHBEARER message is not UTF-8") from None
    if found is None:
        raise OAuthBearerError("the OAUTHBEARER message is malformed")
    pairs = dict(each.partition("=")[::2] for each in found["pairs"].split("\x01") if each)
    authorization = _BEARER.fullmatch(pairs.pop("auth", ""))
    if authorization is None:
        raise OAuthBearerError("the OAUTHBEARER message has no bearer token")
    name = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return OAuthBearerMessage(authorization["token"], name, pairs)


def invalid_token_message() -> bytes:
    """The message of a server that refuses a token."""
    return json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()

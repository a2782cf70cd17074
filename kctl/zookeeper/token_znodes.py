"""The znodes of delegation tokens.  KIP-48; Kafka: DelegationTokenManager.toJsonCompatibleMap, fromBytes (2.8).

Kafka 2.8 writes and reads version 1; later brokers write version 3 with the requester of the token, and read all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kctl.zookeeper import paths
from kctl.zookeeper.znode_json import load_json

_VERSION = 1
_VERSIONS_READ = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class TokenZnode:
    """The content of /delegation_token/tokens/ID.  Principals are `Type:name`, times are wall-clock times in ms."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int


def encode_token(token: TokenZnode) -> bytes:
    """The content of the znode."""
    znode = {
        "version": _VERSION,
        "owner": paths.sanitize(token.owner),
        "renewers": [paths.sanitize(each) for each in token.renewers],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(znode, separators=(",", ":")).encode()


def decode_token(path: str, data: bytes) -> TokenZnode:
    """Reads the content of the znode.  Raises ValueError with the path."""
    try:
        znode: Any = load_json(data)
        if znode["version"] not in _VERSIONS_READ:
            raise ValueError("its version is unknown")
        token = TokenZnode(
            token_id=str(znode["tokenId"]),
            owner=_principal(znode["owner"]),
            renewers=tuple(_principal(each) for each in znode["renewers"]),
            issue_ms=int(znode["issueTimestamp"]),
            max_ms=int(znode["maxTimestamp"]),
            expiry_ms=int(znode["expiryTimestamp"]),
        )
        if paths.delegation_token(token.token_id) != path:
            raise ValueError("its token id is not its name")
    except KeyError as missing:
        raise ValueError(f"znode {path} has no {missing}") from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"znode {path} is not a delegation token: {error}") from None
    return token


def _principal(element: str) -> str:
    principal = paths.desanitize(element)
    kind, separator, name = principal.partition(":")
    if not (kind and separator and name):
        raise ValueError("a principal is not written as Type:name")
    return principal

"""JSON of which a digest is computed.  Pure."""

from __future__ import annotations

import hashlib
import json


def canonical_json(value: object) -> str:
    """Return the one text of a value: sorted names, no blanks, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest_of_json(value: object) -> str:
    """Return the SHA-256 of a value, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_of_bytes(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()

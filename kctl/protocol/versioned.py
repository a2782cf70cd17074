"""Messages that start with their version: 2 bytes, then the body.

Consumers' subscriptions and assignments have this format in group requests, and records of the internal topics too.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode, encode_bytes

T = TypeVar("T")

_VERSION = struct.Struct(">h")


def version_of(blob: memoryview | bytes) -> int:
    """Return the version at the start.  Raises MalformedRequest if the message is too short."""
    if len(blob) < _VERSION.size:
        raise MalformedRequest("a message with a version must have at least 2 bytes")
    (version,) = _VERSION.unpack_from(blob)
    return int(version)


def decode_body(cls: type[T], blob: memoryview | bytes, version: int) -> T:
    """Decode the message after the version, as `version`.  Bytes after it, from a newer version, are ignored."""
    message, _ = decode(cls, blob, version, _VERSION.size)
    return message


def encode_versioned(message: object, version: int) -> bytes:
    """Return the version and the body."""
    return _VERSION.pack(version) + encode_bytes(message, version)

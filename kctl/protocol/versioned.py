"""Messages that carry their own version: 2 bytes of it, then the body.

Consumers' subscriptions and assignments travel like this inside of group requests, and the records of the internal
topics are stored like this.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode, encode_bytes

T = TypeVar("T")

_VERSION = struct.Struct(">h")


def version_of(blob: memoryview | bytes) -> int:
    """The version in front; MalformedRequest when there is none."""
    if len(blob) < _VERSION.size:
        raise MalformedRequest("a versioned message is shorter than its version")
    (version,) = _VERSION.unpack_from(blob)
    return int(version)


def decode_body(cls: type[T], blob: memoryview | bytes, version: int) -> T:
    """The message behind the version, read as `version`.  Bytes left over are those of a newer version: ignored."""
    message, _ = decode(cls, blob, version, _VERSION.size)
    return message


def encode_versioned(message: object, version: int) -> bytes:
    """The version, then the body."""
    return _VERSION.pack(version) + encode_bytes(message, version)

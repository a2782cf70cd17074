"""Values with a frame: varints for the frame version, the type and the version, then a message.

Kafka: AbstractApiMessageSerde.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode
from kctl.protocol.definition import definition_of
from kctl.protocol.varint import read_uvarint

FRAME_VERSION = 1


class Framed(NamedTuple):
    """A message and the version in which it was written."""

    message: Any
    version: int


def decode_framed(types: Mapping[int, type], value: bytes) -> Framed:
    """Decode a value; `types` are the classes by type number.  Raises MalformedRequest."""
    view = memoryview(value)
    try:
        frame_version, position = read_uvarint(view, 0)
        number, position = read_uvarint(view, position)
        version, position = read_uvarint(view, position)
    except IndexError:
        raise MalformedRequest("the value is incomplete") from None
    if frame_version != FRAME_VERSION:
        raise MalformedRequest(f"frame version is {frame_version}, expected {FRAME_VERSION}")
    cls = types.get(number)
    if cls is None:
        raise MalformedRequest(f"unknown record type {number}")
    if version not in definition_of(cls).versions:
        raise MalformedRequest(f"unknown version {version} of {cls.__name__}")
    message: Any
    message, end = decode(cls, value, version, position)
    if end != len(value):
        raise MalformedRequest(f"{len(value) - end} bytes after {cls.__name__}")
    return Framed(message, version)

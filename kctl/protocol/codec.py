"""Decoding and encoding: the doors to the compiled codecs.

Codecs are compiled when a version of a message is used for the first time (a few milliseconds) and kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from kctl.errors import MalformedRequest
from kctl.limits import REQUEST_COST_MAX
from kctl.protocol.decoding import compile_decoder
from kctl.protocol.encoding import compile_encoder
from kctl.protocol.message import COST_PER_BYTE_MAX, definition_of

T = TypeVar("T")

SMALL_BYTES = REQUEST_COST_MAX // COST_PER_BYTE_MAX
"""A request of so few bytes cannot cost too much: it is decoded without counting."""

Chunk = Any
"""bytes, a memoryview, or whatever else with a length was put into a `records` field."""


def decode(cls: type[T], buffer: memoryview | bytes, version: int, offset: int = 0) -> tuple[T, int]:
    """(message, offset of the byte after it).  `records` fields are views into `buffer`, all else is copied.

    Raises MalformedRequest when the bytes are not such a message, ValueError when there is no such version.  Bytes left
    over are the caller's to judge.
    """
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        return cast("tuple[T, int]", decoder(cls, version, len(view) <= SMALL_BYTES)(view, offset))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"{cls.__name__} v{version}: {error}") from error


def is_long_to_decode(cls: type, size: int) -> bool:
    """Whether decoding a request of `size` bytes may cost more than one of a client may, and hold a loop too long."""
    cost_max = definition_of(cls).cost_max
    return size > SMALL_BYTES and cost_max is not None and cost_max > REQUEST_COST_MAX


def encode(message: object, version: int) -> list[Chunk]:
    """Chunks to be sent one after the other; what `records` fields hold is passed on as it is, unless it is empty.

    Raises ValueError for values that do not fit, for None where the version knows no null, and for values other than
    the default in fields that the version lacks (unless they are marked ignorable).
    """
    try:
        return encoder(type(message), version)(message)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from error


def encode_bytes(message: object, version: int) -> bytes:
    """The same in one piece, for messages whose records are bytes or views."""
    return b"".join(encode(message, version))


def _decoder(cls: type, version: int, is_small: bool = False) -> Callable[[memoryview, int], tuple[Any, int]]:
    _check_version(cls, version)
    return compile_decoder(cls, version, is_small=is_small)


def _encoder(cls: type, version: int) -> Callable[[Any], list[Chunk]]:
    _check_version(cls, version)
    return compile_encoder(cls, version)


def _check_version(cls: type, version: int) -> None:
    if version not in definition_of(cls).versions:
        raise ValueError(f"{cls.__name__} has no version {version}")


decoder: Callable[..., Callable[[memoryview, int], tuple[Any, int]]] = cache(_decoder)
"""The compiled decoder of one version of a class, and whether it is for small messages; ValueError as for `decode`."""

encoder: Callable[[type, int], Callable[[Any], list[Chunk]]] = cache(_encoder)
"""The compiled encoder of one version of a class; ValueError when there is no such version."""

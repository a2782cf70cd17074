"""Decodes and encodes messages with the compiled codecs.

The codec of a version of a message is compiled on first use (a few milliseconds) and cached.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from kctl.errors import MalformedRequest
from kctl.limits import DECODED_AT_ONCE_BYTES_MAX, REQUEST_COST_MAX, SLICE_OBJECTS, Subject, bound
from kctl.protocol.cost import COST_PER_BYTE_MAX, CostExceeded
from kctl.protocol.decoding import compile_decoder, write_decoder
from kctl.protocol.definition import definition_of
from kctl.protocol.encoding import compile_encoder, write_encoder

REQUEST_BYTES_MAX = bound(
    Subject.DECODING,
    "size of one request that is neither Produce nor Fetch; strings of this size exceed the cost of decoding",
    20 << 20,
    "bytes",
    on_excess="the connection is closed before the request is decoded",
)
CONTROL_REQUEST_BYTES_MAX = bound(
    Subject.DECODING,
    "size of one LeaderAndIsr, StopReplica or UpdateMetadata request, about 400,000 partitions",
    32 << 20,
    "bytes",
    on_excess="the connection is closed before the request is decoded",
)
"""Requests are copied to be decoded in a thread; 100 MiB took 50 ms."""
DECODED_AT_ONCE_COST_MAX = bound(
    Subject.LONG_WORK,
    "cost of decoding a Produce or Fetch request on the event loop, which is 1,100 partitions to produce to",
    20_000,
    "units",
    on_excess="it is copied and decoded in a thread",
)
ENCODED_AT_ONCE_BYTES_MAX = bound(
    Subject.LONG_WORK,
    "strings and bytes of a response, other than Produce and Fetch, that is encoded on the event loop",
    1 << 20,
    "bytes",
    on_excess="it is encoded in a thread, one at a time",
)


T = TypeVar("T")

SMALL_BYTES = REQUEST_COST_MAX // COST_PER_BYTE_MAX
"""A request of at most this size cannot exceed REQUEST_COST_MAX, so it is decoded without counting its cost."""

Chunk = Any
"""bytes, a memoryview, or another object with a length that was the value of a `records` field."""


def decode(cls: type[T], buffer: memoryview | bytes, version: int, offset: int = 0) -> tuple[T, int]:
    """Return (message, offset of the byte after it).  `records` fields are views into `buffer`, everything else is
    copied.

    Raises MalformedRequest when the bytes are not such a message, ValueError when there is no such version.  Bytes
    after the message are left to the caller.
    """
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        return decoder(cls, version, len(view) <= SMALL_BYTES)(view, offset)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"{cls.__name__} v{version}: {error}") from error


def decode_at_once(cls: type[T], buffer: memoryview, version: int, offset: int = 0) -> tuple[T, int] | None:
    """As `decode`, for messages that are long because of records; None if it would hold the event loop for long.

    That is known after the time for DECODED_AT_ONCE_COST_MAX.
    """
    size = len(buffer)
    try:
        if size <= DECODED_AT_ONCE_BYTES_MAX:
            return decoder(cls, version, size <= SMALL_BYTES)(buffer, offset)
        return decoder_at_once(cls, version)(buffer, offset)
    except CostExceeded:
        if size <= DECODED_AT_ONCE_BYTES_MAX:
            raise
        return None
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"{cls.__name__} v{version}: {error}") from error


def is_long_to_decode(cls: type, size: int) -> bool:
    """Return whether decoding a request of `size` bytes may block the event loop too long: 10 ms for REQUEST_COST_MAX.

    Raises MalformedRequest for a request that would take too long to copy for another thread.
    """
    cost_max = definition_of(cls).cost_max
    if size <= DECODED_AT_ONCE_BYTES_MAX or cost_max is None:
        return False
    size_max = REQUEST_BYTES_MAX if cost_max <= REQUEST_COST_MAX else CONTROL_REQUEST_BYTES_MAX
    if size > size_max:
        raise MalformedRequest(f"{cls.__name__} of {size} bytes; the limit is {size_max}")
    return True


def is_long_to_encode(message: object) -> bool:
    """Return whether encoding a message would hold the event loop: it has more than SLICE_OBJECTS array elements, or
    strings and bytes of more than ENCODED_AT_ONCE_BYTES_MAX.
    """
    elements_left, bytes_left = SLICE_OBJECTS, ENCODED_AT_ONCE_BYTES_MAX
    waiting: list[Any] = [message]
    while waiting:
        each = waiting.pop()
        texts, arrays = _long_fields(each.__class__)
        for name in texts:
            text = getattr(each, name)
            if text:
                bytes_left -= len(text)
        for name, is_visited, is_of_texts in arrays:
            elements = getattr(each, name)
            if elements:
                elements_left -= len(elements)
                if elements_left < 0:
                    return True
                if is_visited:
                    waiting += elements
                elif is_of_texts:
                    bytes_left -= sum(map(len, elements))
        if bytes_left < 0:
            return True
    return False


def arrays_of(message: object) -> Iterator[Sequence[object]]:
    """Yield the arrays of structs in a message that are not empty, without those in their elements."""
    for name in _names_of_arrays(message.__class__):
        elements = getattr(message, name)
        if elements:
            yield elements


def _collect_array_names(cls: type) -> tuple[str, ...]:
    fields = definition_of(cls).fields
    return tuple(field.name for field in fields if field.element is not None and field.element.struct is not None)


_names_of_arrays: Callable[[type], tuple[str, ...]] = cache(_collect_array_names)


def _collect_long_fields(cls: type) -> tuple[tuple[str, ...], tuple[tuple[str, bool, bool], ...]]:
    """Return the strings and bytes of a message; and its arrays, whether their elements have such fields, or are
    strings.
    """
    fields = definition_of(cls).fields
    arrays = ((field.name, field.element) for field in fields if field.element is not None)
    return (
        tuple(field.name for field in fields if field.kind in _TEXTS),
        tuple(
            (name, element.struct is not None and any(_long_fields(element.struct)), element.kind in _TEXTS)
            for name, element in arrays
        ),
    )


_TEXTS = frozenset({"string", "bytes"})
_long_fields: Callable[[type], tuple[tuple[str, ...], tuple[tuple[str, bool, bool], ...]]] = cache(_collect_long_fields)


def encode(message: object, version: int) -> list[Chunk]:
    """Return the chunks to send, in order; non-empty values of `records` fields are chunks of their own, not copied.

    Raises ValueError for values that do not fit, for None where the version has no null, and for values other than the
    default in fields that the version lacks (unless they are ignorable).
    """
    try:
        return encoder(type(message), version)(message)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from error


def encode_bytes(message: object, version: int) -> bytes:
    """Return the encoded message as one bytes object; the values of `records` fields must be bytes or views."""
    return b"".join(encode(message, version))


def _decoder(cls: type, version: int, is_small: bool = False) -> Callable[[memoryview, int], tuple[Any, int]]:
    _check_version(cls, version)
    return compile_decoder(cls, version, is_small=is_small)


def _decoder_at_once(cls: type, version: int) -> Callable[[memoryview, int], tuple[Any, int]]:
    _check_version(cls, version)
    return compile_decoder(cls, version, cost_max=DECODED_AT_ONCE_COST_MAX)


def _encoder(cls: type, version: int) -> Callable[[Any], list[Chunk]]:
    _check_version(cls, version)
    return compile_encoder(cls, version)


def _check_version(cls: type, version: int) -> None:
    if version not in definition_of(cls).versions:
        raise ValueError(f"{cls.__name__} has no version {version}")


decoder: Callable[..., Callable[[memoryview, int], tuple[Any, int]]] = cache(_decoder)
"""Return the compiled decoder for (class, version, whether the message is at most SMALL_BYTES); ValueError as
`decode`.
"""

decoder_at_once: Callable[[type, int], Callable[[memoryview, int], tuple[Any, int]]] = cache(_decoder_at_once)
"""Return the compiled decoder for (class, version) that raises CostExceeded above DECODED_AT_ONCE_COST_MAX."""

encoder: Callable[[type, int], Callable[[Any], list[Chunk]]] = cache(_encoder)
"""Return the compiled encoder for (class, version); ValueError if there is no such version."""


# Messages that start with their version: 2 bytes, then the body.
#
# Consumers' subscriptions and assignments have this format in group requests, and records of the internal topics too.


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


# Shows the source of a message's compiled codec, for debugging.


def codec_source(cls: type, version: int) -> str:
    """Return the source of the decoder and the encoder of one version.  Raises ValueError if there is no such
    version.
    """
    definition = definition_of(cls)
    if version not in definition.versions:
        raise ValueError(f"{definition.name} has no version {version}")
    sources = (write_decoder(cls, version).text(), write_encoder(cls, version).text())
    return f"# {definition.name} v{version}\n\n" + "\n\n".join(sources)

"""Messages of magic 0 and 1 encoded by hand, so that they can be malformed."""

from __future__ import annotations

import struct
import zlib

from kctl.records.compression import Codec, compress

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def message(
    body: bytes, *, offset: int = 0, magic: int = 1, attributes: int = 0, timestamp: int = 7, size: int | None = None
) -> bytes:
    """A message with a valid checksum and the given bytes as its key and value."""
    start = struct.pack(">bbq", magic, attributes, timestamp) if magic else struct.pack(">bb", 0, attributes)
    data = start + body
    return struct.pack(">qiI", offset, len(data) + 4 if size is None else size, zlib.crc32(data)) + data


def pair(key: bytes | None, value: bytes | None) -> bytes:
    """Key and value with length prefixes."""
    return b"".join(
        struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part for part in (key, value)
    )


def wrapper(inner: bytes, *, codec: Codec = Codec.GZIP, offset: int = 0, magic: int = 1, attributes: int = 0) -> bytes:
    """A wrapper with compressed messages."""
    return message(pair(None, compress(codec, inner)), offset=offset, magic=magic, attributes=attributes | codec)

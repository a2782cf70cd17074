"""The four codecs of the record formats, each bounded on the way out.

gzip   one RFC 1952 member (several are read), level 6, no time in the header
snappy the framing of snappy-java ("xerial") is written; a bare raw block, as librdkafka sends it, is read as well
lz4    one LZ4 frame of independent 64 KiB blocks
zstd   standard frames, level 3

The libraries are imported on first use: a broker that only passes batches through never loads them.
"""

# ruff: noqa: PLC0415 - the codec libraries load when the first batch needs them.

from __future__ import annotations

import struct
import zlib
from enum import IntEnum

from kctl.errors import KctlError

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_SIZE_MAX = 256 << 20
"""What one batch may grow to, 256 times the default max.message.bytes.  Kafka streams and has no bound."""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
_LENGTH = struct.Struct(">i")
_ZSTD_FIRST_GUESS = 64 * 1024
_LZ4_STEP = 1 << 20


class Codec(IntEnum):
    """Bits 0 to 2 of the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Codec:
        """The codec of a `compression.type`; `uncompressed` is NONE.  Raises KeyError for `producer` and strangers."""
        return cls.NONE if name == "uncompressed" else cls[name.upper()]


class DecompressionError(KctlError):
    """The bytes are not what the codec writes, or would grow beyond the bound."""


def compress(codec: Codec, data: Buffer) -> bytes:
    """`data` as one stream of `codec`, with the settings that Kafka's broker uses."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data)


def decompress(codec: Codec, data: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """What was compressed into `data`.

    Raises DecompressionError on damage, on bytes after the stream's end that are not another stream, and as soon as the
    result would pass `size_max`; memory stays near the true size.
    """
    if codec is Codec.NONE:
        return bytes(data)
    return _DECOMPRESSORS[codec](data, size_max)


def _too_large(size_max: int) -> DecompressionError:
    return DecompressionError(f"decompresses to more than {size_max} bytes")


def _gzip_compress(data: Buffer) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def _gzip_decompress(data: Buffer, size_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while True:
        stream = zlib.decompressobj(31)
        try:
            part = stream.decompress(rest, size_max - size + 1)
        except zlib.error as error:
            raise DecompressionError(f"gzip: {error}") from error
        size += len(part)
        if size > size_max:
            raise _too_large(size_max)
        if not stream.eof:
            raise DecompressionError("gzip: the stream ends early")
        parts.append(part)
        rest = stream.unused_data
        if not rest:
            return part if len(parts) == 1 else b"".join(parts)


def _snappy_compress(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, size_max: int) -> bytes:
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _snappy_block(view, size_max, size_max)
    parts: list[bytes] = []
    position, size = len(_XERIAL_HEADER), 0
    while position < len(view):
        if position + 4 > len(view):
            raise DecompressionError("snappy: a block length is cut off")
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if length < 0 or position + length > len(view):
            raise DecompressionError(f"snappy: a block of {length} bytes does not fit")
        block = _snappy_block(view[position : position + length], size_max - size, size_max)
        size += len(block)
        parts.append(block)
        position += length
    return b"".join(parts)


def _snappy_block(block: memoryview, room: int, size_max: int) -> bytes:
    import cramjam

    if not len(block):
        raise DecompressionError("snappy: a block is empty")
    try:
        if cramjam.snappy.decompress_raw_len(block) > room:
            raise _too_large(size_max)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error


def _lz4_compress(data: Buffer) -> bytes:
    import lz4.frame

    # Kafka's readers refuse linked blocks; store_size off gives the frame header that they all know (FLG 0x60).
    compressed: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return compressed


def _lz4_decompress(data: Buffer, size_max: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    try:
        while not stream.eof:
            # Asking for all up to the bound at once would make the library prepare room for it, 2.5 times slower.
            part = stream.decompress(rest, max_length=min(_LZ4_STEP, size_max - size + 1))
            size += len(part)
            if size > size_max:
                raise _too_large(size_max)
            if stream.needs_input and not stream.eof:
                raise DecompressionError("lz4: the frame ends early")
            parts.append(part)
            rest = b""
    except (RuntimeError, ValueError) as error:
        raise DecompressionError(f"lz4: {error}") from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_compress(data: Buffer) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, 3))


def _zstd_decompress(data: Buffer, size_max: int) -> bytes:
    """Into a buffer that grows until all fits: the size in the frame header is optional and nobody's promise."""
    import cramjam

    if not len(data):
        raise DecompressionError("zstd: no frame")
    room = min(max(4 * len(data), _ZSTD_FIRST_GUESS), size_max)
    while True:
        target = bytearray(room)
        try:
            size = cramjam.zstd.decompress_into(data, target)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise DecompressionError(f"zstd: {error}") from error
            if room >= size_max:
                raise _too_large(size_max) from error
            room = min(room * 4, size_max)
            continue
        return bytes(memoryview(target)[:size])


_COMPRESSORS = {
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}
_DECOMPRESSORS = {
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}

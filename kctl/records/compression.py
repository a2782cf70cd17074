"""The four codecs of the record formats, with a bound on the decompressed size.

gzip   one RFC 1952 member, level 6, no time in the header; several are read, and what follows them is ignored
snappy the framing of snappy-java ("xerial") is written; several such streams are read, an incomplete length at the end
       is ignored; a raw block without framing, as from librdkafka, is read too
lz4    one LZ4 frame of independent 64 KiB blocks
zstd   standard frames, level 3

The libraries are imported on first use: a broker that stores batches unchanged never loads them.
"""

# ruff: noqa: PLC0415 - the codec libraries load when the first batch needs them.

from __future__ import annotations

import struct
import zlib
from enum import IntEnum

from kctl.errors import KctlError
from kctl.limits import Subject, bound

GZIP_MEMBERS_MAX = bound(
    Subject.RECORDS,
    "gzip members in one record batch",
    1000,
    "members",
    on_excess="INVALID_RECORD for the partition of a Produce request, CORRUPT_MESSAGE for a stored batch",
)
"""Producers write one member."""


Buffer = bytes | bytearray | memoryview

DECOMPRESSED_SIZE_MAX = 256 << 20
"""Maximum decompressed size of a batch, 256 times the default max.message.bytes.  Kafka decompresses streams,
unbounded.
"""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
_LENGTH = struct.Struct(">i")
_ZSTD_FIRST_GUESS = 64 * 1024
_STEP = 1 << 20
"""Maximum output of one library call: copying larger results would hold the interpreter lock for too long."""
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_INPUT_STEP = 16 * 1024
"""Compressed input of one call: zlib copies the rest of its input at the end of each member."""
_LZ4_FLAGS_POSITION = 4
_LZ4_INDEPENDENT_BLOCKS = 0x20
_SNAPPY_RATIO_MAX = 32
"""snappy needs at least 3 bytes for 64."""


class Codec(IntEnum):
    """A codec; the values are bits 0 to 2 of the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Codec:
        """Return the codec of a `compression.type`; `uncompressed` is NONE.  Raises KeyError for `producer` and
        unknown names.
        """
        return cls.NONE if name == "uncompressed" else cls[name.upper()]


class DecompressionError(KctlError):
    """The bytes are not valid data of the codec, or decompress to more than the bound."""


class DecompressedSizeExceeded(DecompressionError):
    """The decompressed size exceeds the caller's bound."""


GZIP_LEVEL, ZSTD_LEVEL, LZ4_LEVEL = 6, 3, 0
"""The levels that Kafka's broker uses."""
LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131_072, 22)}
"""The lowest and the highest level of the codecs with levels (KIP-390)."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`, without a level with the settings that Kafka's broker uses; snappy has no levels."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Decompress `data`.

    Raises DecompressionError for damage, and as soon as the result would exceed `size_max`; memory stays close to the
    actual size.  What may follow a stream depends on the codec, as for Kafka's readers.
    """
    if codec is Codec.NONE:
        return bytes(data)
    return _DECOMPRESSORS[codec](data, size_max)


def _too_large(size_max: int) -> DecompressedSizeExceeded:
    return DecompressedSizeExceeded(f"decompresses to more than {size_max} bytes")


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(GZIP_LEVEL if level is None else level, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def _gzip_decompress(data: Buffer, size_max: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    position = size = members = 0
    while not members or view[position : position + len(_GZIP_MAGIC)] == _GZIP_MAGIC:
        members += 1
        if members > GZIP_MEMBERS_MAX:
            raise DecompressionError(f"gzip: more than {GZIP_MEMBERS_MAX} members")
        stream = zlib.decompressobj(31)
        while not stream.eof:
            if position == len(view):
                raise DecompressionError("gzip: the stream ends early")
            rest: Buffer = view[position : position + _GZIP_INPUT_STEP]
            position += len(rest)
            while len(rest) and not stream.eof:
                part = _gzip_step(stream, rest, min(_STEP, size_max - size + 1))
                size += len(part)
                if size > size_max:
                    raise _too_large(size_max)
                parts.append(part)
                rest = stream.unconsumed_tail
        position -= len(stream.unused_data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gzip_step(stream: zlib._Decompress, data: Buffer, size_max: int) -> bytes:
    try:
        return stream.decompress(data, size_max)
    except zlib.error as error:
        raise DecompressionError(f"gzip: {error}") from error


def _snappy_compress(data: Buffer, _level: int | None) -> bytes:
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
    while position + _LENGTH.size <= len(view):
        if view[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if length < 0 or position + length > len(view):
            raise DecompressionError(f"snappy: invalid block length {length}")
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
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_RATIO_MAX * len(block):
            raise DecompressionError(f"snappy: a block of {len(block)} bytes cannot contain {size} bytes")
        if size > room:
            raise _too_large(size_max)
        return _copied(memoryview(cramjam.snappy.decompress_raw(block)))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # Kafka's readers refuse linked blocks; store_size=False writes the frame header that they support (FLG 0x60).
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=LZ4_LEVEL if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def has_linked_blocks(frame: Buffer) -> bool:
    """Return whether blocks of the lz4 frame refer to earlier ones: Kafka's clients cannot read such frames."""
    return len(frame) > _LZ4_FLAGS_POSITION and not frame[_LZ4_FLAGS_POSITION] & _LZ4_INDEPENDENT_BLOCKS


def _lz4_decompress(data: Buffer, size_max: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    try:
        while not stream.eof:
            # Requesting all bytes up to the bound at once would make the library allocate them, which takes 2.5 times
            # longer.
            part = stream.decompress(rest, max_length=min(_STEP, size_max - size + 1))
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


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL if level is None else level))


def _zstd_decompress(data: Buffer, size_max: int) -> bytes:
    """Decompress into a buffer that grows as needed: the size in the frame header is optional and may be wrong."""
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
        return _copied(memoryview(target)[:size])


def _copied(view: memoryview) -> bytes:
    """Copy in steps: one copy of all bytes would hold the interpreter lock for 1 ms per MB."""
    if len(view) <= _STEP:
        return bytes(view)
    return b"".join([bytes(view[start : start + _STEP]) for start in range(0, len(view), _STEP)])


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

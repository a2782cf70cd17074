"""Decompresses LZ4 frames into a buffer, block by block: cramjam's reader of frames takes twice as long."""

from __future__ import annotations

import struct

import cramjam
import numpy as np

from kctl.spark.exec.varints import Bytes

_HEADER_BYTES = 7
_BLOCK_BYTES_MAX = {
    bytes.fromhex("04224d18604082"): 64 << 10,
    bytes.fromhex("04224d186050fb"): 256 << 10,
    bytes.fromhex("04224d18606051"): 1 << 20,
    bytes.fromhex("04224d18607073"): 4 << 20,
}
"""Size of a block by the header of the frame, with its checksum: independent blocks, no sizes and other checksums, as
Kafka's clients write them."""
_IS_STORED = 1 << 31
"""In the size of a block: it is not compressed."""
_SIZE = struct.Struct("<I")


def decompress_into(frame: memoryview, target: Bytes) -> int | None:
    """The number of bytes that were written.

    None for frames with another header, damaged ones, and those that are longer than the target.
    """
    block_max = _BLOCK_BYTES_MAX.get(bytes(frame[:_HEADER_BYTES]))
    if block_max is None:
        return None
    position, end, written = _HEADER_BYTES, len(frame), 0
    while position + _SIZE.size <= end:
        (length,) = _SIZE.unpack_from(frame, position)
        position += _SIZE.size
        if not length:
            return written if position == end else None
        is_stored, length = length & _IS_STORED, length & ~_IS_STORED
        room = target[written : written + block_max]
        if length > end - position or (is_stored and length > len(room)):
            return None
        block = frame[position : position + length]
        position += length
        if is_stored:
            room[:length] = np.frombuffer(block, np.uint8)
            written += length
            continue
        try:
            written += cramjam.lz4.decompress_block_into(block, room.data, output_len=len(room))
        except cramjam.DecompressionError:
            return None
    return None

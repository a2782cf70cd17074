"""Divides the bytes of a damaged segment into valid batches and damage.

A batch is valid if its checksum is right and its offsets are between those of the batches before it and the end of the
segment.  Nothing in an invalid batch is used, including its size: reading resumes at the first byte after its start
where a whole valid batch begins.

Damage therefore affects only the batches that it touches, and no index is needed to get past it.  The checksum does not
cover the base offset: if the offsets of two adjacent batches overlap, the one with a gap before it is invalid if the
other one would fit into the gap.

A record can contain bytes that look like a batch; they are taken for one only if the surrounding batch is damaged and
their offset fits.  Messages of magic 0 and 1 cannot be searched for: after a damaged one reading resumes at the end
that it states, or else at the next batch of magic 2.

Pure: works on bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kctl.records.batch import parse_any_header, records_region
from kctl.records.compiled.walk import locate_keys
from kctl.records.compression import Buffer
from kctl.records.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    BatchHeader,
    CorruptBatch,
    crc_of,
)

OFFSET_MAX = (1 << 63) - 1
NO_OFFSET = -1
KEYS_MAX = 8
SEARCH_EFFORT = 8
"""How often the search for the next batch may read the remaining bytes: malicious bytes can look like the start of a
batch at every position.
"""
SEARCH_EFFORT_MIN = 1 << 20
_SEARCH_READ_SIZE = 64 << 10
_KEYS_REGION_MAX = 64 << 10
_ATTRIBUTES_KNOWN = 0x7F
_MAGIC = b"\x02"
_OFFSET = struct.Struct(">q")
_OFFSET_AND_LENGTH = struct.Struct(">qi")


class Damage(NamedTuple):
    """A range of a segment that is left out."""

    offset: int
    last_offset: int
    """Last offset that may be lost; compaction may have removed some of the range before."""
    size: int
    """Size in bytes."""
    keys: tuple[bytes | None, ...]
    """The first keys in the damage, at most KEYS_MAX, as far as they can be read."""
    reason: str


class Cut(NamedTuple):
    """The result for a chunk."""

    batches: list[BatchHeader]
    damage: list[Damage]
    consumed: int
    """Position in the chunk where the next chunk begins."""
    needed: int
    """Required size of the next chunk, if the segment has that many bytes left."""


class Piece(NamedTuple):
    """Bytes of a log with their batches and damage."""

    data: bytes
    batches: list[BatchHeader]
    damage: list[Damage]


def cut_all(data: bytes, *, expected_offset: int = 0, end_offset: int = OFFSET_MAX) -> Piece:
    """Divide a whole segment with offsets in [expected_offset, end_offset)."""
    cut = BatchCutter(expected_offset).cut(data, left=len(data), end_offset=end_offset)
    return Piece(data, cut.batches, cut.damage)


@dataclass(slots=True)
class _Lost:
    """Damage whose end is not known yet.  Positions are relative to the segment."""

    start: int
    keys: tuple[bytes | None, ...]
    reason: str
    effort: int
    claimed_offset: int
    claimed_end: int
    """The end that the first damaged batch states."""


class BatchCutter:
    """Divides the bytes of one segment, chunk by chunk."""

    def __init__(self, expected_offset: int, *, start_offset: int = 0) -> None:
        """Begin a segment of offsets from `expected_offset` on; batches that end before `start_offset` are skipped."""
        self.expected_offset = expected_offset
        """The lowest possible base offset of the next batch."""
        self._start_offset = start_offset
        self._origin = 0
        """Position of the current chunk in the segment."""
        self._lost: _Lost | None = None

    def cut(self, chunk: Buffer, *, left: int, end_offset: int) -> Cut:
        """Return the batches in `chunk`, the first of the `left` bytes that follow the consumed ones.

        The segment's offsets are below `end_offset`.
        """
        cut = Cut([], [], 0, 0)
        position = needed = 0
        while position < left and not needed:
            walk = self._walk if self._lost is None else self._search
            position, needed = walk(chunk, position, left, end_offset, cut)
        if position >= left:
            self._resume(end_offset, position, cut)
        self._origin += position
        return Cut(cut.batches, cut.damage, position, needed)

    def _walk(self, chunk: Buffer, position: int, left: int, end_offset: int, cut: Cut) -> tuple[int, int]:
        """Read batches up to an invalid one; return its position, and the number of bytes needed from there."""
        size = len(chunk)
        expected, start_offset, add = self.expected_offset, self._start_offset, cut.batches.append
        while position < left:
            if size - position < HEADER_SIZE and size < left:
                return position, HEADER_SIZE
            try:
                header = parse_any_header(chunk, position)
                end = header.end
                if size < end <= left:
                    return position, header.size
                if end > left:
                    raise CorruptBatch(position, f"batch of {header.size} bytes where {left - position} are left")
            except CorruptBatch as error:
                self._lose(chunk, position, left, error.reason)
                return position + 1, 0
            if crc_of(chunk, position, end, header.magic) != header.crc:
                self._lose(chunk, position, left, "wrong checksum")
                return position + 1, 0
            base_offset = header.base_offset
            following = base_offset + header.last_offset_delta + 1
            if base_offset != expected or not expected < following <= end_offset:
                if size < min(end + _OFFSET.size, left):
                    return position, header.size + _OFFSET.size
                if not self._fits(chunk, header, left, end_offset):
                    reason = f"offset {base_offset} does not fit between the adjacent batches"
                    self._lose(chunk, position, left, reason, is_misplaced=True)
                    return end, 0
            expected = self.expected_offset = following
            if expected > start_offset:
                add(header)
            position = end
        return position, 0

    def _fits(self, chunk: Buffer, header: BatchHeader, left: int, end_offset: int) -> bool:
        """Return whether the offsets of a batch with a valid checksum are possible."""
        expected, base_offset, following = self.expected_offset, header.base_offset, header.next_offset
        if not expected <= base_offset < following <= end_offset:
            return False
        if base_offset == expected or header.end + _OFFSET.size > left:
            return True
        (next_base_offset,) = _OFFSET.unpack_from(chunk, header.end)
        return not expected <= next_base_offset < following

    def _lose(self, chunk: Buffer, position: int, left: int, reason: str, *, is_misplaced: bool = False) -> None:
        offset, length = NO_OFFSET, -LOG_OVERHEAD
        if len(chunk) - position >= LOG_OVERHEAD:
            offset, length = _OFFSET_AND_LENGTH.unpack_from(chunk, position)
        start = self._origin + position
        self._lost = _Lost(
            start=start,
            keys=tuple(_readable_keys(chunk, position)),
            reason=reason,
            effort=SEARCH_EFFORT * (left - position) + SEARCH_EFFORT_MIN,
            claimed_offset=NO_OFFSET if is_misplaced else offset,
            claimed_end=start + LOG_OVERHEAD + length,
        )

    def _search(self, chunk: Buffer, position: int, left: int, end_offset: int, cut: Cut) -> tuple[int, int]:
        """Find the first valid batch from `position` on; return the same as _walk."""
        lost, size, expected = self._lost, len(chunk), self.expected_offset
        assert lost is not None
        for candidate in _candidates(chunk, position, left, expected, lost.claimed_end - self._origin):
            try:
                header = parse_any_header(chunk, candidate)
            except CorruptBatch:
                continue
            if header.end > left or not is_possible(header, expected) or header.next_offset > end_offset:
                continue
            if header.end > size:
                return candidate, header.size
            if crc_of(chunk, candidate, header.end, header.magic) == header.crc:
                self._resume(header.base_offset, candidate, cut)
                return candidate, 0
            lost.effort -= header.size
            if lost.effort < 0:
                lost.reason += "; too many bytes look like a batch"
                return left, 0
        if size >= left:
            return left, 0
        return max(position, size - HEADER_SIZE + 1), _SEARCH_READ_SIZE

    def _resume(self, offset: int, position: int, cut: Cut) -> None:
        """End the current damage, if any, at `offset`."""
        lost = self._lost
        if lost is None:
            return
        self._lost = None
        first, end = self.expected_offset, self._origin + position
        if end == lost.claimed_end and first < lost.claimed_offset < offset:
            first = lost.claimed_offset  # The damaged batch stated its end correctly.
        self.expected_offset = offset
        if offset > self._start_offset:
            size = end - lost.start
            cut.damage.append(Damage(first, offset - 1, size, lost.keys, lost.reason))


def is_possible(header: BatchHeader, least_offset: int) -> bool:
    """Return whether all fields of the header are possible in a segment with offsets from `least_offset` on."""
    return (
        0 <= header.base_offset - least_offset < 1 << 31
        and header.last_offset_delta >= 0
        and 0 <= header.record_count <= header.last_offset_delta + 1
        and 0 <= header.attributes <= _ATTRIBUTES_KNOWN
    )


def possible_starts(chunk: Buffer, start: int, least_offset: int | None) -> Iterator[int]:
    """Yield the positions in the chunk, from `start` on, where the header of a batch of magic 2 may begin.

    `least_offset` is that of the segment, None if it is not known.

    Searching for the next magic byte is fast in Python.
    """
    # Offsets of a segment differ in 31 bits, so the upper four bytes of a base offset have one of two values.
    high = {((least_offset >> 32) + more).to_bytes(4, "big") for more in (0, 1)} if least_offset is not None else None
    data = chunk if isinstance(chunk, bytes) else bytes(chunk)
    last = len(data) - HEADER_SIZE + MAGIC_POSITION
    at = data.find(_MAGIC, start + MAGIC_POSITION)
    while 0 <= at <= last:
        begin = at - MAGIC_POSITION
        # No bit in the upper byte of the attributes is in use.
        if (high is None or data[begin : begin + 4] in high) and not data[begin + ATTRIBUTES_POSITION]:
            yield begin
        at = data.find(_MAGIC, at + 1)


def _candidates(chunk: Buffer, start: int, left: int, least_offset: int, claimed_end: int) -> Iterator[int]:
    """Yield as possible_starts, and in any case the stated end of the damaged batch."""
    readable = len(chunk) if len(chunk) >= left else len(chunk) - HEADER_SIZE + 1
    is_claim_open = start <= claimed_end < readable
    for candidate in possible_starts(chunk, start, least_offset):
        if is_claim_open and candidate > claimed_end:
            yield claimed_end
        is_claim_open = is_claim_open and candidate < claimed_end
        yield candidate
    if is_claim_open:
        yield claimed_end


def _readable_keys(chunk: Buffer, position: int) -> Iterator[bytes | None]:
    """Return the first keys of a possibly damaged batch of magic 2; its stated end is used if it is compressed."""
    if len(chunk) - position < HEADER_SIZE:
        return
    header = BatchHeader(0, HEADER.unpack_from(chunk, position))
    if header.magic in {0, 1}:
        return
    size = max(header.size, HEADER_SIZE) if header.attributes & CODEC_MASK else _KEYS_REGION_MAX
    data = bytes(chunk[position : position + size])
    header.size, header.magic = len(data), 2
    end = 0
    try:
        region = bytes(records_region(data, header, _KEYS_REGION_MAX))
        for _ in range(min(header.record_count, KEYS_MAX)):
            (position, size), end = locate_keys(region, 1, end)
            yield None if size < 0 else region[position : position + size]
    except (CorruptBatch, IndexError, ValueError):
        return

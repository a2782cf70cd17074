"""Cutting a segment's bytes into batches that can be believed, whatever has become of the others.

A damaged batch is believed in nothing, least of all in where it ends:

    believed     it has the checksum that it claims, and its offsets lie behind those before and below the segment's end
    resumed at   the first byte, behind the start of one that is not believed, where a whole batch begins that is

So damage costs the batches that it touches and no others, and it takes no index to get past it.  The checksum does not
cover the base offset: of two neighbours whose offsets cross, the one with a gap in front of it is not believed if the
other would fit in there.

What a client wrote into a record can look like a batch, and pass for one when the batch around it is damaged; its
offset has to fit as well.  Messages of magic 0 and 1 look like anything: behind a damaged one the next is looked for
where that one says, or else reading resumes at the next batch of magic 2.

Pure: bytes in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kctl.records.batch import parse_any_header, records_region
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
from kctl.records.walk import walk_keys

OFFSET_MAX = (1 << 63) - 1
NO_OFFSET = -1
KEYS_MAX = 8
SEARCH_EFFORT = 8
"""How often the search for the next batch may read what is left in vain before it gives up: hostile bytes can look like
the start of a batch everywhere."""
SEARCH_EFFORT_MIN = 1 << 20
_SEARCH_READ_SIZE = 64 << 10
_KEYS_REGION_MAX = 64 << 10
_ATTRIBUTES_KNOWN = 0x7F
_MAGIC = b"\x02"
_OFFSET = struct.Struct(">q")
_OFFSET_AND_LENGTH = struct.Struct(">qi")


class Damage(NamedTuple):
    """A stretch of a segment that is left out."""

    offset: int
    last_offset: int
    """What is lost lies between the two; compaction may have taken some of that before."""
    size: int
    """In bytes."""
    keys: tuple[bytes | None, ...]
    """The first of its keys, KEYS_MAX at most, as far as they can be read."""
    reason: str


class Cut(NamedTuple):
    """What there was in a chunk."""

    batches: list[BatchHeader]
    damage: list[Damage]
    consumed: int
    """Where the next chunk begins."""
    wanted: int
    """How large the next chunk has to be, if the segment has so much left."""


class Piece(NamedTuple):
    """Bytes of a log, and what there is in them."""

    data: bytes
    batches: list[BatchHeader]
    damage: list[Damage]


def cut_all(data: bytes, *, expected_offset: int = 0, end_offset: int = OFFSET_MAX) -> Piece:
    """A whole segment at once: its offsets lie in [expected_offset, end_offset)."""
    cut = BatchCutter(expected_offset).cut(data, left=len(data), end_offset=end_offset)
    return Piece(data, cut.batches, cut.damage)


@dataclass(slots=True)
class _Lost:
    """A stretch whose end is not known yet.  Positions are those in the segment."""

    start: int
    keys: tuple[bytes | None, ...]
    reason: str
    effort: int
    claimed_offset: int
    claimed_end: int
    """What its first batch says of itself."""


class BatchCutter:
    """Feed it the bytes of one segment, chunk by chunk."""

    def __init__(self, expected_offset: int, *, start_offset: int = 0) -> None:
        """The segment begins at or above `expected_offset`; what ends before `start_offset` is passed over."""
        self.expected_offset = expected_offset
        """No batch that is still to come may begin below."""
        self._start_offset = start_offset
        self._origin = 0
        """Where in the segment the present chunk begins."""
        self._lost: _Lost | None = None

    def cut(self, chunk: Buffer, *, left: int, end_offset: int) -> Cut:
        """The batches in `chunk`, the first of the `left` bytes from where the last chunk was consumed to.

        The segment's offsets lie below `end_offset`.
        """
        cut = Cut([], [], 0, 0)
        position = wanted = 0
        while position < left and not wanted:
            walk = self._walk if self._lost is None else self._search
            position, wanted = walk(chunk, position, left, end_offset, cut)
        if position >= left:
            self._resume(end_offset, position, cut)
        self._origin += position
        return Cut(cut.batches, cut.damage, position, wanted)

    def _walk(self, chunk: Buffer, position: int, left: int, end_offset: int, cut: Cut) -> tuple[int, int]:
        """From batch to batch up to one that is not believed; where that is, and how many bytes are wanted from it."""
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
                    reason = f"offset {base_offset} does not go with those around it"
                    self._lose(chunk, position, left, reason, is_misplaced=True)
                    return end, 0
            expected = self.expected_offset = following
            if expected > start_offset:
                add(header)
            position = end
        return position, 0

    def _fits(self, chunk: Buffer, header: BatchHeader, left: int, end_offset: int) -> bool:
        """Whether the offsets of a sound batch can be right."""
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
        """The first batch from `position` on that is believed, as _walk says it."""
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
        """What was lost, if anything was, ends here."""
        lost = self._lost
        if lost is None:
            return
        self._lost = None
        first, end = self.expected_offset, self._origin + position
        if end == lost.claimed_end and first < lost.claimed_offset < offset:
            first = lost.claimed_offset  # It was right about its end.
        self.expected_offset = offset
        if offset > self._start_offset:
            size = end - lost.start
            cut.damage.append(Damage(first, offset - 1, size, lost.keys, lost.reason))


def is_possible(header: BatchHeader, least_offset: int) -> bool:
    """Whether nothing in the header is impossible in a segment with offsets from `least_offset` on."""
    return (
        0 <= header.base_offset - least_offset < 1 << 31
        and header.last_offset_delta >= 0
        and 0 <= header.record_count <= header.last_offset_delta + 1
        and 0 <= header.attributes <= _ATTRIBUTES_KNOWN
    )


def possible_starts(chunk: Buffer, start: int, least_offset: int) -> Iterator[int]:
    """Where in the chunk, from `start` on, the header of a batch of magic 2 may begin.

    Going from one magic byte to the next is what is fast in Python.
    """
    # Offsets of a segment differ in 31 bits, so the upper four bytes of a base offset are one of two.
    high = {((least_offset >> 32) + more).to_bytes(4, "big") for more in (0, 1)}
    data = chunk if isinstance(chunk, bytes) else bytes(chunk)
    last = len(data) - HEADER_SIZE + MAGIC_POSITION
    at = data.find(_MAGIC, start + MAGIC_POSITION)
    while 0 <= at <= last:
        begin = at - MAGIC_POSITION
        # No bit in the upper byte of the attributes is used.
        if data[begin : begin + 4] in high and not data[begin + ATTRIBUTES_POSITION]:
            yield begin
        at = data.find(_MAGIC, at + 1)


def _candidates(chunk: Buffer, start: int, left: int, least_offset: int, claimed_end: int) -> Iterator[int]:
    """As possible_starts, with the claimed end among them, whatever is there."""
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
    """The first keys of a batch of magic 2 that need not make sense.  Where it ends is believed if it is compressed."""
    if len(chunk) - position < HEADER_SIZE:
        return
    header = BatchHeader(0, HEADER.unpack_from(chunk, position))
    if header.magic in {0, 1}:
        return
    size = max(header.size, HEADER_SIZE) if header.attributes & CODEC_MASK else _KEYS_REGION_MAX
    data = bytes(chunk[position : position + size])
    header.length, header.magic = len(data) - LOG_OVERHEAD, 2
    end = 0
    try:
        region = bytes(records_region(data, header, _KEYS_REGION_MAX))
        for _ in range(min(header.record_count, KEYS_MAX)):
            (key,), (end,) = walk_keys(region, 1, bytes, end)
            if end > len(region):
                return
            yield key
    except (CorruptBatch, IndexError, ValueError):
        return

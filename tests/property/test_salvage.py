"""Damage anywhere in a segment: undamaged batches are found, and each loss is reported once.

Goal: a damaged batch costs itself and nothing else, whatever the damage and however the segment is cut into chunks.
Method: random batches, with the gaps that compaction leaves or without; random damage; which batches are whole is known
from where the damage went.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record, parse_header
from kctl.records.old_formats.legacy import build_messages
from kctl.records.salvage import BatchCutter, Damage, cut_all
from tests.property.examples import examples

LENGTH = slice(8, 12)
BASE_OFFSET = 8
"""Its size."""
LEADER_EPOCH = range(12, 16)
"""Undecidable."""
CRC_OF_OLD_FORMATS = 12
CHUNKS = (1, 100, 1000, 1 << 20)
FIRST_OFFSET = 7_000_000_000


class Segment:
    """Batches, their positions, and which of them were changed."""

    def __init__(self, chance: Random, *, has_gaps: bool = False) -> None:
        self.data = bytearray()
        self.starts: list[int] = []
        self.offsets: list[range] = []
        self.end_offset = FIRST_OFFSET
        for _ in range(chance.randint(1, 15)):
            base_offset = self.end_offset + (chance.randrange(20) if has_gaps else 0)
            batch = build_batch(
                [some_record(chance) for _ in range(chance.randint(1, 4))],
                base_offset=base_offset,
                codec=chance.choice((Codec.NONE, Codec.NONE, Codec.LZ4)),
            )
            self.starts.append(len(self.data))
            self.data += batch
            self.end_offset = parse_header(batch).next_offset
            self.offsets.append(range(base_offset, self.end_offset))
        self._sound = bytes(self.data)

    @property
    def touched(self) -> set[int]:
        """The batches that are damaged."""
        ends = [*self.starts[1:], len(self.data)]
        pairs = enumerate(zip(self.starts, ends, strict=True))
        return {index for index, (start, end) in pairs if self.data[start:end] != self._sound[start:end]}

    @property
    def whole(self) -> list[range]:
        """The offsets of the undamaged batches."""
        touched = self.touched
        return [offsets for index, offsets in enumerate(self.offsets) if index not in touched]

    @property
    def has_wrong_offsets(self) -> bool:
        places = (slice(start, start + BASE_OFFSET) for start in self.starts)
        return any(self.data[place] != self._sound[place] for place in places)

    def damage(self, chance: Random) -> None:
        """Wrong bytes, zeros, another length, or all of them."""
        start = chance.randrange(len(self.data))
        stop = min(start + chance.choice((1, 1, 3, 70, 512)), len(self.data))
        match chance.randrange(4):
            case 0:
                self._overwrite(start, chance.randbytes(stop - start))
            case 1:
                self._overwrite(start, bytes(stop - start))
            case 2:
                self._overwrite(start, bytes([self.data[start] ^ 1 << chance.randrange(8)]))
            case _:
                index = chance.randrange(len(self.starts))
                length = chance.choice((0, -1, -12, 12, 49, 70, 1 << 30, (1 << 31) - 1, chance.randrange(1000)))
                self._overwrite(self.starts[index] + LENGTH.start, length.to_bytes(4, "big", signed=True))

    def _overwrite(self, start: int, what: bytes) -> None:
        for position, byte in enumerate(what, start):
            if self.data[position] != byte and not self._is_leader_epoch(position):
                self.data[position] = byte

    def _is_leader_epoch(self, position: int) -> bool:
        first = max(start for start in self.starts if start <= position)
        return position - first in LEADER_EPOCH


def some_record(chance: Random) -> Record:
    return Record(0, chance.randrange(1 << 40), chance.randbytes(chance.randrange(30)), bytes(chance.randrange(200)))


def read(segment: Segment, chunk_bytes: int) -> tuple[list[int], list[Damage]]:
    """The base offsets of accepted and of lost batches, chunk by chunk."""
    cutter = BatchCutter(FIRST_OFFSET)
    position = expected = 0
    found: list[int] = []
    lost: list[Damage] = []
    while position < len(segment.data):
        chunk = bytes(segment.data[position : position + max(chunk_bytes, expected)])
        cut = cutter.cut(chunk, left=len(segment.data) - position, end_offset=segment.end_offset)
        found += [header.base_offset for header in cut.batches]
        lost += cut.damage
        position, expected = position + cut.consumed, cut.needed
    return found, lost


def test_damage_loses_only_the_batches_it_touches_and_is_reported_once() -> None:
    @examples(600)
    @given(seed=st.integers(0, 2**32), chunk_bytes=st.sampled_from(CHUNKS))
    def check(seed: int, chunk_bytes: int) -> None:
        chance = Random(seed)
        segment = Segment(chance)
        for _ in range(chance.randrange(4)):
            segment.damage(chance)
        if segment.has_wrong_offsets and len(segment.touched) > 1:
            return  # An offset that is wrong can be just right where a batch before it is lost.
        found, lost = read(segment, chunk_bytes)
        assert found == [whole.start for whole in segment.whole]
        output = [offset for damage in lost for offset in range(damage.offset, damage.last_offset + 1)]
        assert output == [offset for index in sorted(segment.touched) for offset in segment.offsets[index]]

    check()


def test_damage_in_a_compacted_segment_loses_only_the_batches_it_touches() -> None:
    @examples(600)
    @given(seed=st.integers(0, 2**32), chunk_bytes=st.sampled_from(CHUNKS))
    def check(seed: int, chunk_bytes: int) -> None:
        chance = Random(seed)
        segment = Segment(chance, has_gaps=True)
        for _ in range(chance.randrange(4)):
            segment.damage(chance)
        if segment.has_wrong_offsets:
            return  # Where offsets may be missing, a wrong one cannot be detected.
        found, lost = read(segment, chunk_bytes)
        assert found == [whole.start for whole in segment.whole]
        output = {offset for damage in lost for offset in range(damage.offset, damage.last_offset + 1)}
        assert output >= {offset for index in segment.touched for offset in segment.offsets[index]}
        assert not any(offset in output for whole in segment.whole for offset in whole)

    check()


def test_wrong_offset_loses_its_batch_and_at_most_its_neighbour() -> None:
    @examples(300)
    @given(seed=st.integers(0, 2**32))
    def check(seed: int) -> None:
        chance = Random(seed)
        segment = Segment(chance, has_gaps=True)
        index = chance.randrange(len(segment.starts))
        wrong = segment.offsets[index].start ^ 1 << chance.randrange(63)
        place = segment.starts[index]
        segment.data[place : place + BASE_OFFSET] = wrong.to_bytes(8, "big")
        found, _ = read(segment, 1 << 20)
        assert len({whole.start for whole in segment.whole} - set(found)) <= 1

    check()


def test_batches_after_removed_or_inserted_bytes_are_found() -> None:
    @examples(300)
    @given(seed=st.integers(0, 2**32), chunk_bytes=st.sampled_from(CHUNKS))
    def check(seed: int, chunk_bytes: int) -> None:
        chance = Random(seed)
        segment = Segment(chance)
        index = chance.randrange(len(segment.starts))
        place = chance.randrange(segment.starts[index], len(segment.data))
        if chance.random() < 0.5:
            del segment.data[segment.starts[index] + 1 : place]
        else:
            segment.data[place:place] = chance.randbytes(chance.randrange(1, 600))
        found, _ = read(segment, chunk_bytes)
        first_behind = next(
            (number for number, start in enumerate(segment.starts) if start >= place), len(segment.starts)
        )
        behind = [offset.start for offset in segment.offsets[first_behind:]]
        assert found[len(found) - len(behind) :] == behind

    check()


def test_bytes_that_resemble_headers_everywhere_end_the_search() -> None:
    """Each start would be checked up to the end of the segment otherwise: hours for a large one."""
    first, second = build_batch([Record(0, 1, b"k", b"v")]), build_batch([Record(0, 1, b"k", b"v")], base_offset=1)
    size = 1 << 20
    start = (1).to_bytes(8, "big") + (size >> 1).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(6) + bytes(40)
    hostile = b"\xff" * 16 + start * (size // len(start))
    piece = cut_all(first + hostile + second, end_offset=2)
    assert [header.base_offset for header in piece.batches] == [0]
    (lost,) = piece.damage
    assert (lost.offset, lost.last_offset, lost.size) == (1, 1, len(hostile) + len(second))
    assert "too many bytes look like a batch" in lost.reason


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_damaged_message_of_an_old_format_loses_only_itself(magic: int, codec: Codec) -> None:
    messages = [
        build_messages([Record(offset, 1, b"key", b"value" * 10)], magic=magic, codec=codec) for offset in range(3)
    ]
    for position in range(CRC_OF_OLD_FORMATS, len(messages[1])):
        data = bytearray(b"".join(messages))
        data[len(messages[0]) + position] ^= 0xFF
        piece = cut_all(bytes(data), end_offset=3)
        assert [header.position for header in piece.batches] == [0, len(messages[0]) + len(messages[1])], position
        assert [(damage.offset, damage.last_offset) for damage in piece.damage] == [(1, 1)], position


def test_readable_keys_of_a_damaged_batch_are_reported() -> None:
    batch = bytearray(build_batch([Record(0, 1, b"key-%d" % number, b"value") for number in range(3)]))
    for position, keys in (
        (LENGTH.start, (b"key-0", b"key-1", b"key-2")),
        (batch.index(b"value"), (b"key-0", b"key-1", b"key-2")),
        (batch.index(b"key-1") - 1, (b"key-0",)),
        (len(batch) - 1, (b"key-0", b"key-1", b"key-2")),
    ):
        data = bytes(batch[:position]) + bytes([batch[position] ^ 0x80]) + bytes(batch[position + 1 :])
        (lost,) = cut_all(data, end_offset=3).damage
        assert (lost.offset, lost.last_offset, lost.keys) == (0, 2, keys)


def test_batches_before_the_log_start_are_skipped_without_a_report() -> None:
    batches = [build_batch([Record(0, 1, b"k", b"v")], base_offset=offset) for offset in range(4)]
    batches[1] = batches[1][:-1] + b"?"
    data = b"".join(batches)
    cut = BatchCutter(0, start_offset=3).cut(data, left=len(data), end_offset=4)
    assert [header.base_offset for header in cut.batches] == [3]
    assert cut.damage == []

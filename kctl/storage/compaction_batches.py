"""The batches of a compaction: finds the last record of each key and filters batches.  Pure.

Records are not decoded: those that stay are copied unchanged, because their offsets and timestamps are relative to the
batch header, which is kept too.  A compressed wrapper of magic 0 or 1 is kept until all of its records can be removed.

Records of the dirty part are numbered in the first pass, and the end of each record in its batch is kept.  The second
pass therefore looks up no keys of the dirty part: one byte per record marks whether it is retained, and runs of records
are copied at once.  Only records of the clean part are walked; they stay if the dirty part does not have their key.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from hashlib import blake2b
from itertools import compress, islice

from kctl.records.batch import iterate_records, records_region
from kctl.records.build import assemble_batch, rebuild_batch
from kctl.records.header import BatchHeader, CorruptBatch, TimestampType, wrapped
from kctl.records.walk import LONG_KEY_SIZE, is_tombstone, largest_timestamp_delta, walk_keys

ENTRY_BYTES = 128
"""Memory of a key beside its bytes: the object (33), its number (32), its share of a dictionary just resized (60)."""
RECORD_BYTES = 5
"""Memory of a record: its end in the batch and whether it stays."""
BATCH_BYTES = 16
_DIGEST_SIZE = 24
_AT_ONCE = 1000
"""Records processed between two calls of `pause`: less than a millisecond of work."""

_Name = bytes | int | None
"""A key, the digest of a long key as a number, or None for a record without key."""


class LatestRecords:
    """Finds the records between `start_offset` and `end_offset` that are the last of their key.

    Call `add` for all batches, then `find_last`, then `filter`.  Long keys are represented by a digest keyed with
    `secret`, so that clients cannot construct collisions; the digest is a number, which differs from every short key.
    `pause` is called within large batches.
    """

    def __init__(
        self, start_offset: int, *, memory_bytes: int, secret: bytes, pause: Callable[[], None] = lambda: None
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._memory_bytes = memory_bytes
        self._secret = secret
        self._pause = pause
        self._numbers: dict[_Name, int] = {}
        self._key_bytes = 0
        self._ends = array("i")
        self._base_offsets = array("q")
        self._first_numbers = array("q")
        self._stays = bytearray()

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def memory_bytes(self) -> int:
        """Memory in use, in bytes."""
        return (
            ENTRY_BYTES * len(self._numbers)
            + self._key_bytes
            + RECORD_BYTES * len(self._ends)
            + BATCH_BYTES * len(self._base_offsets)
        )

    @property
    def is_full(self) -> bool:
        """True once the memory is used up; the last batch may exceed it, because batches are taken in as a whole."""
        return self.memory_bytes >= self._memory_bytes

    def skip(self, header: BatchHeader) -> None:
        """Ignore the records of a batch, such as a control batch."""
        self.end_offset = max(self.end_offset, header.next_offset)

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Note the keys of a data batch; batches come in offset order.  Raises CorruptBatch."""
        if header.next_offset <= self.start_offset:
            return
        if self._base_offsets and header.base_offset <= self._base_offsets[-1]:
            raise CorruptBatch(header.position, f"offset {header.base_offset} follows {self._base_offsets[-1]}")
        first = len(self._ends)
        if header.magic == 2:
            for keys, ends in self._walk(header, _region(header, batch)):
                self._note(keys, ends)
        else:
            names = [None if record.key is None else self._name(record.key) for record in iterate_records(batch)]
            self._note(names, bytes(self._ends.itemsize * len(names)))
        self._base_offsets.append(header.base_offset)
        self._first_numbers.append(first)
        self.end_offset = header.next_offset

    def _note(self, keys: list[_Name], ends: bytes | memoryview) -> None:
        numbers, first = self._numbers, len(self._ends)
        keys_before = len(numbers)
        numbers.update(zip(keys, range(first, first + len(keys)), strict=True))
        numbers.pop(None, None)
        added = len(numbers) - keys_before
        if added > 0:
            self._key_bytes += sum(_DIGEST_SIZE if isinstance(key, int) else len(key) for key in self._newest(added))
        self._ends.frombytes(ends)

    def _newest(self, count: int) -> Iterator[bytes | int]:
        return (key for key in islice(reversed(self._numbers), count) if key is not None)

    def find_last(self) -> Iterator[None]:
        """Determine the records that stay, after all batches were taken in; a generator, so that the caller can
        pause.
        """
        stays = self._stays = bytearray(len(self._ends))
        numbers = iter(self._numbers.values())
        while part := list(islice(numbers, _AT_ONCE)):
            for number in part:
                stays[number] = 1
            yield

    def filter(self, header: BatchHeader, batch: memoryview, *, drops_tombstones: bool) -> bytes | memoryview | None:
        """Return the batch unchanged, a batch with fewer records, or None if no records are left.

        Raises CorruptBatch.
        """
        if header.base_offset >= self.end_offset:
            return batch
        stays = self._stays_of(header)
        if stays is not None and 1 not in stays:
            return None
        if stays is not None and not drops_tombstones and 0 not in stays:
            return batch
        if header.magic != 2:
            return batch if self._any_stays(batch, stays, drops_tombstones=drops_tombstones) else None
        region = _region(header, batch)
        ends: MutableSequence[int]
        if stays is None:
            stays, ends, numbers = bytearray(), array("i"), self._numbers
            for keys, their_ends in self._walk(header, region):
                stays += bytes([key is not None and key not in numbers for key in keys])
                ends.frombytes(their_ends)
        else:
            ends = self._ends_of(header)
        if drops_tombstones:
            start = 0
            for index, end in enumerate(ends):
                if stays[index] and is_tombstone(region, start):
                    stays[index] = 0
                start = end
        count = stays.count(1)
        if not count:
            return None
        if count == len(stays):
            return batch
        return assemble_batch(_header_for(header, region, stays, ends, count), _cut(region, stays, ends))

    def _numbers_of(self, header: BatchHeader) -> slice | None:
        """Return the numbers of the records of a batch, None if it was not taken in."""
        index = bisect_left(self._base_offsets, header.base_offset)
        if index == len(self._base_offsets) or self._base_offsets[index] != header.base_offset:
            return None
        following = index + 1
        end = self._first_numbers[following] if following < len(self._first_numbers) else len(self._ends)
        return slice(self._first_numbers[index], end)

    def _stays_of(self, header: BatchHeader) -> bytearray | None:
        """Return a byte per record, 1 if it is the last of its key; None for a batch of the clean part."""
        numbers = self._numbers_of(header)
        return None if numbers is None else self._stays[numbers]

    def _ends_of(self, header: BatchHeader) -> MutableSequence[int]:
        numbers = self._numbers_of(header)
        assert numbers is not None
        return self._ends[numbers]

    def _any_stays(self, batch: memoryview, stays: bytearray | None, *, drops_tombstones: bool) -> bool:
        for index, record in enumerate(iterate_records(batch)):
            if record.key is None or (drops_tombstones and record.value is None):
                continue
            if stays[index] if stays is not None else self._name(record.key) not in self._numbers:
                return True
        return False

    def _walk(self, header: BatchHeader, region: bytes) -> Iterator[tuple[list[_Name], memoryview]]:
        """Yield keys and the ends of the records as 32-bit integers, up to _AT_ONCE at a time."""
        left, end = header.record_count, 0
        try:
            while left > 0:
                keys, found = walk_keys(region, min(left, _AT_ONCE), self._digest, end)
                ends = memoryview(found)
                yield keys, ends.cast("B")
                left, end = left - len(keys), ends[-1]
                if left:
                    self._pause()
        except (IndexError, ValueError) as error:
            raise CorruptBatch(header.position, f"malformed record: {error}") from error
        if end != len(region):
            raise CorruptBatch(header.position, f"{len(region) - end} bytes after the last record")

    def _name(self, key: bytes) -> _Name:
        return key if len(key) < LONG_KEY_SIZE else self._digest(key)

    def _digest(self, key: bytes) -> int:
        return int.from_bytes(blake2b(key, digest_size=_DIGEST_SIZE, key=self._secret).digest(), "big")


def without_records(header: BatchHeader) -> bytes:
    """Return the batch without records; it keeps a producer's last sequence number (KIP-98)."""
    return rebuild_batch(header, [])


def _cut(region: bytes, stays: bytearray, ends: Sequence[int]) -> bytearray:
    """Return the bytes of the records that stay."""
    kept = bytearray()
    first = stays.find(1)
    while first >= 0:
        stop = stays.find(0, first)
        if stop < 0:
            stop = len(stays)
        kept += region[ends[first - 1] if first else 0 : ends[stop - 1]]
        first = stays.find(1, stop)
    return kept


def _header_for(header: BatchHeader, region: bytes, stays: bytearray, ends: Sequence[int], count: int) -> BatchHeader:
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        starts = compress((0, *ends), stays)
        max_timestamp = wrapped(header.base_timestamp + largest_timestamp_delta(region, starts))
    fields = (
        header.base_offset,
        0,
        header.leader_epoch,
        2,
        0,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    return BatchHeader(0, fields)


def _region(header: BatchHeader, batch: memoryview) -> bytes:
    """Return the uncompressed records of the batch at the start of `batch`; `header` may have been read from
    elsewhere.
    """
    position, header.position = header.position, 0
    try:
        return bytes(records_region(batch, header))
    finally:
        header.position = position

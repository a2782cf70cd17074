"""The batches of a compaction: finds the last record of each key and filters batches.  Pure.

Records are not decoded: those that stay are copied unchanged, because their offsets and timestamps are relative to the
batch header, which is kept too.  Only compressed messages of magic 0 and 1 are decoded and built again.

Records of the dirty part are numbered in the first pass, and one byte per record notes whether it is the last of its
key.  The second pass therefore looks up no keys of the dirty part, and does not decompress a batch that stays or goes
as a whole.  Only keys of the clean part are looked up; a record stays if the dirty part does not have its key.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from hashlib import blake2b, shake_256
from itertools import chain

from librt.vecs import vec
from mypy_extensions import i32, u8

from kctl.records.batch import iterate_records, records_region
from kctl.records.build import assemble_batch, rebuild_batch
from kctl.records.compiled.key_table import DIGEST_SIZE, ENTRY_BYTES, SECRET_SIZE, KeyTable
from kctl.records.compiled.walk import locate_keys, retain_records
from kctl.records.header import (
    TIMESTAMP_MIN,
    BatchHeader,
    CorruptBatch,
    TimestampType,
    describe_malformed_record,
    wrapped,
)
from kctl.records.old_formats.legacy import build_messages

RECORD_BYTES = 1
"""Memory of a record: whether it is the last of its key."""
BATCH_BYTES = 16
_AT_ONCE = 1000
"""Records processed between two calls of `pause`: less than a millisecond of work."""


class LatestRecords:
    """Finds the records between `start_offset` and `end_offset` that are the last of their key.

    Call `add` for all batches, then `filter`.  Keys are represented by digests that depend on `secret`
    (`key_table`), so that clients cannot construct collisions.  `pause` is called within large batches.
    """

    def __init__(
        self, start_offset: int, *, memory_bytes: int, secret: bytes, pause: Callable[[], None] = lambda: None
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._memory_bytes = memory_bytes
        self._pause = pause
        self._table = KeyTable(
            shake_256(secret).digest(SECRET_SIZE),
            lambda key: blake2b(key, digest_size=DIGEST_SIZE, key=secret).digest(),
        )
        self._base_offsets = array("q")
        self._first_numbers = array("q")

    def __len__(self) -> int:
        return self._table.key_count

    @property
    def memory_bytes(self) -> int:
        """Memory in use, in bytes."""
        return (
            ENTRY_BYTES * self._table.key_count
            + RECORD_BYTES * self._table.record_count
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
        first = self._table.record_count
        if header.magic == 2:
            region = _region(header, batch)
            for keys in self._walk(header, region):
                self._table.add(region, keys)
        else:
            self._table.add(*_keys_of(batch))
        self._base_offsets.append(header.base_offset)
        self._first_numbers.append(first)
        self.end_offset = header.next_offset

    def filter(self, header: BatchHeader, batch: memoryview, *, drops_tombstones: bool) -> bytes | memoryview | None:
        """Return the batch unchanged, a batch with fewer records, or None if no records are left.

        Raises CorruptBatch.
        """
        if header.base_offset >= self.end_offset:
            return batch
        numbers = self._numbers_of(header)
        if numbers is not None:
            last_count = self._table.last_count(numbers.start, len(numbers))
            if not last_count:
                return None
            if last_count == len(numbers) and not drops_tombstones:
                return batch
        if header.magic != 2:
            return self._cut_messages(header, batch, numbers, drops_tombstones=drops_tombstones)
        return self._cut(header, batch, numbers, drops_tombstones=drops_tombstones)

    def _cut(
        self, header: BatchHeader, batch: memoryview, numbers: range | None, *, drops_tombstones: bool
    ) -> bytes | memoryview | None:
        runs: list[bytes] = []
        count, end, largest = 0, 0, TIMESTAMP_MIN
        region = _region(header, batch)
        try:
            for stays in self._unknown(header, region) if numbers is None else self._last(numbers):
                found, retained, delta, end = retain_records(region, end, stays, drops_tombstones)
                runs += found
                count += retained
                largest = max(largest, delta)
        except (IndexError, ValueError) as error:
            raise _malformed(header, error) from error
        if not count:
            return None
        if count == header.record_count:
            return batch
        return assemble_batch(_header_for(header, largest, count), b"".join(runs))

    def _numbers_of(self, header: BatchHeader) -> range | None:
        """Return the numbers of the records of a batch, None for a batch of the clean part."""
        index = bisect_left(self._base_offsets, header.base_offset)
        if index == len(self._base_offsets) or self._base_offsets[index] != header.base_offset:
            return None
        following = index + 1
        is_last = following == len(self._first_numbers)
        end = self._table.record_count if is_last else self._first_numbers[following]
        return range(self._first_numbers[index], end)

    def _last(self, numbers: range) -> Iterator[vec[u8]]:
        """Yield a byte per record of the dirty part, 1 if it is the last of its key, up to _AT_ONCE at a time."""
        for start in range(numbers.start, numbers.stop, _AT_ONCE):
            if start > numbers.start:
                self._pause()
            yield self._table.are_last(start, min(_AT_ONCE, numbers.stop - start))

    def _unknown(self, header: BatchHeader, region: bytes) -> Iterator[vec[u8]]:
        """Yield a byte per record of the clean part, 1 if the dirty part does not have its key."""
        for keys in self._walk(header, region):
            yield self._table.are_unknown(region, keys)

    def _cut_messages(
        self, header: BatchHeader, batch: memoryview, numbers: range | None, *, drops_tombstones: bool
    ) -> bytes | memoryview | None:
        """As _cut, for a message of magic 0 or 1, which may be a wrapper."""
        parts = [self._table.are_unknown(*_keys_of(batch))] if numbers is None else self._last(numbers)
        records = list(iterate_records(batch))
        left = [
            record
            for stays, record in zip(chain.from_iterable(parts), records, strict=True)
            if stays and not (drops_tombstones and record.value is None)
        ]
        if len(left) == len(records):
            return batch
        if not left:
            return None
        return build_messages(left, magic=header.magic, codec=header.codec, timestamp_type=header.timestamp_type)

    def _walk(self, header: BatchHeader, region: bytes) -> Iterator[vec[i32]]:
        """Yield positions and sizes of keys in the region, up to _AT_ONCE at a time."""
        left, end = header.record_count, 0
        while left > 0:
            try:
                keys, end = locate_keys(region, min(left, _AT_ONCE), end)
            except (IndexError, ValueError) as error:
                raise _malformed(header, error) from error
            yield keys
            left -= _AT_ONCE
            if left > 0:
                self._pause()
        if end != len(region):
            raise CorruptBatch(header.position, f"{len(region) - end} bytes after the last record")


def without_records(header: BatchHeader) -> bytes:
    """Return the batch without records; it keeps a producer's last sequence number (KIP-98)."""
    return rebuild_batch(header, [])


def _header_for(header: BatchHeader, largest_delta: int, count: int) -> BatchHeader:
    """Return the header of the batch with `count` of its records; `largest_delta` is their largest timestamp delta."""
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = wrapped(header.base_timestamp + largest_delta)
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


def _keys_of(message: memoryview) -> tuple[bytes, vec[i32]]:
    """Return the keys of a message of magic 0 or 1 in a buffer, and their positions and sizes as in locate_keys."""
    keys = [record.key for record in iterate_records(message)]
    found, position = array("i"), 0
    for key in keys:
        found.extend((position, -1 if key is None else len(key)))
        position += len(key or b"")
    return b"".join(key or b"" for key in keys), vec[i32](found)


def _malformed(header: BatchHeader, error: ValueError | IndexError) -> CorruptBatch:
    return CorruptBatch(header.position, describe_malformed_record(error))


def _region(header: BatchHeader, batch: memoryview) -> bytes:
    """Return the uncompressed records of the batch at the start of `batch`; `header` may have been read from
    elsewhere.
    """
    position, header.position = header.position, 0
    try:
        return bytes(records_region(batch, header))
    finally:
        header.position = position

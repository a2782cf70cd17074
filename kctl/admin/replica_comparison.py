"""Compares the records in the replicas of a partition.  Pure.

Followers store the batches of their leader as they are, so that replicas are equal byte for byte.  Only the cleaner of
a compacted topic, which runs on each broker at a time of its own, rewrites batches: there the records are compared, and
one that a replica lacks is not a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kctl.limits import VERIFY_RECORD_BYTES_MAX
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.header import BatchHeader, BatchTooLarge, CorruptBatch, Record, crc_of


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """The batch of one replica at the place of a difference."""

    base_offset: int
    last_offset: int
    size_bytes: int
    checksum: int
    """CRC in the header of the batch."""
    computed_checksum: int
    """CRC of its bytes; another one than `checksum` means that the batch is damaged."""

    @property
    def is_damaged(self) -> bool:
        """True if the bytes of the batch are not those that its producer or leader wrote."""
        return self.checksum != self.computed_checksum


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a partition.  A replica without an entry in `held` has no readable batch there."""

    offset: int
    reason: str
    held: Mapping[int, HeldBatch]

    @property
    def damaged(self) -> tuple[int, ...]:
        """The replicas whose batch has a wrong checksum."""
        return tuple(sorted(replica for replica, one in self.held.items() if one.is_damaged))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Records of a partition that were compared up to, not including, `next_offset`."""

    next_offset: int
    compared_bytes: int
    """Size of the compared batches in one replica."""
    difference: Difference | None = None


def compare_batches(fetched: Mapping[int, memoryview], start: int, end: int) -> Comparison:
    """Compares the complete batches of all replicas from `start` to `end`, byte for byte; stops at a difference."""
    readers = {replica: _batches(buffer, start) for replica, buffer in sorted(fetched.items())}
    position, compared = start, 0
    while True:
        batches: dict[int, BatchHeader] = {}
        for replica, reader in readers.items():
            try:
                header = next(reader, None)
            except CorruptBatch as damage:
                held = {one: _held(fetched[one], batch) for one, batch in batches.items()}
                difference = Difference(position, f"replica {replica}: {damage.reason}", held)
                return Comparison(position, compared, difference)
            if header is None:
                return Comparison(position, compared)
            batches[replica] = header
        first = min(header.base_offset for header in batches.values())
        if first >= end:
            return Comparison(end, compared)
        if (reason := _reason(fetched, batches)) is not None:
            held = {replica: _held(fetched[replica], header) for replica, header in batches.items()}
            return Comparison(position, compared, Difference(max(first, start), reason, held))
        some = next(iter(batches.values()))
        position, compared = min(some.next_offset, end), compared + some.size


def compare_records(fetched: Mapping[int, memoryview], start: int, end: int) -> Comparison:
    """Compares the records that more than one replica has.

    A replica without any bytes has no records before `end`.  Raises BatchTooLarge for records that decompress to more
    than VERIFY_RECORD_BYTES_MAX.
    """
    boundary, compared = end, 0
    records: dict[int, tuple[int, Record]] = {}
    for replica, buffer in sorted(fetched.items()):
        position = start
        try:
            for header in _batches(buffer, start):
                if header.base_offset >= boundary:
                    position = boundary
                    break
                held = _held(buffer, header)
                if held.is_damaged:
                    return Comparison(
                        start, compared, Difference(header.base_offset, _wrong([replica]), {replica: held})
                    )
                compared += held.size_bytes
                for record in iterate_records(buffer, header, size_max=VERIFY_RECORD_BYTES_MAX):
                    other, same = records.setdefault(record.offset, (replica, record))
                    if same != record and record.offset >= start:
                        where = {other: _holder(fetched[other], record.offset), replica: held}
                        reason = f"replicas {other} and {replica} have different records at offset {record.offset}"
                        return Comparison(start, compared, Difference(record.offset, reason, where))
                position = header.next_offset
        except BatchTooLarge:
            raise
        except CorruptBatch as damage:
            return Comparison(start, compared, Difference(position, f"replica {replica}: {damage.reason}", {}))
        if len(buffer):
            boundary = min(boundary, position)
    return Comparison(boundary, compared // max(1, len(fetched)))


def _batches(buffer: memoryview, start: int) -> Iterator[BatchHeader]:
    """The complete batches that end after `start`, which is often in the middle of the first batch."""
    # The last offset of a damaged batch may be wrong; its first offset is where the previous batch ends.
    return (header for header in iterate_batches(buffer) if header.next_offset > start or header.base_offset >= start)


def _reason(fetched: Mapping[int, memoryview], batches: Mapping[int, BatchHeader]) -> str | None:
    """Why the batches at the same place differ; None if they are equal and their checksum is right."""
    data = {replica: fetched[replica][header.position : header.end] for replica, header in batches.items()}
    checksums = {
        replica: crc_of(fetched[replica], header.position, header.end, header.magic)
        for replica, header in batches.items()
    }
    if wrong := [replica for replica, header in batches.items() if checksums[replica] != header.crc]:
        return _wrong(wrong)
    first, *others = batches
    spans = {replica: (header.base_offset, header.last_offset) for replica, header in batches.items()}
    for other in others:
        if spans[other] != spans[first]:
            (a, b), (c, d) = spans[first], spans[other]
            return f"replica {first} has a batch of offsets {a} to {b}, replica {other} one of {c} to {d}"
        if data[other] != data[first]:
            return f"replicas {first} and {other} have different bytes"
    return None


def _wrong(replicas: list[int]) -> str:
    names = ", ".join(map(str, replicas))
    return f"wrong checksum of the batch on replica{'' if len(replicas) == 1 else 's'} {names}"


def _holder(buffer: memoryview, offset: int) -> HeldBatch:
    """The batch with that offset, which is in the buffer."""
    return next(_held(buffer, header) for header in iterate_batches(buffer) if header.next_offset > offset)


def _held(buffer: memoryview, header: BatchHeader) -> HeldBatch:
    computed = crc_of(buffer, header.position, header.end, header.magic)
    return HeldBatch(header.base_offset, header.last_offset, header.size, header.crc, computed)

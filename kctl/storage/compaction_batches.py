"""The batches of a compaction: which keys they have, and what is left of them.  Pure.

Records are not decoded: what stays is copied as it stands, because the offsets and timestamps in it are relative to the
header of the batch, which stays as well.  A compressed batch of magic 0 or 1 stays whole until all of it may go.
"""

from __future__ import annotations

from hashlib import blake2b

from kctl.records.batch import (
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    Record,
    TimestampType,
    iterate_records,
    records_region,
)
from kctl.records.build import assemble_batch, rebuild_batch

ENTRY_BYTES = 160
"""What one key costs in memory: its bytes object, its number, its share of a dictionary that grows by doubling."""
_KEY_SIZE_MAX = 23
_DIGEST_SIZE = 24
"""Longer than any key that stands for itself, so that no short key passes for the digest of a long one."""

_SMALL_VARINTS = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))
"""Varints are read in place while they are one byte long: these loops are what a compaction costs."""


class LatestOffsets:
    """The offset of the last record of each key between `start_offset` and `end_offset`.

    Long keys are represented by a digest under `secret`, which whoever writes keys cannot know.
    """

    def __init__(self, start_offset: int, *, memory_bytes: int, secret: bytes) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.capacity = max(memory_bytes // ENTRY_BYTES, 1)
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """The last batch may have brought more keys than fit: batches are taken whole."""
        return len(self._offsets) >= self.capacity

    def skip(self, header: BatchHeader) -> None:
        """Nothing in this batch counts."""
        self.end_offset = max(self.end_offset, header.next_offset)

    def take_in(self, header: BatchHeader, batch: memoryview) -> None:
        """Note the keys of a batch of data.  Raises CorruptBatch."""
        if header.next_offset <= self.start_offset:
            return
        offsets, start_offset = self._offsets, self.start_offset
        if header.magic == 2:
            for key, offset_delta in _keys(header, _region(header, batch)):
                offset = header.base_offset + offset_delta
                if offset >= start_offset:
                    offsets[key if len(key) <= _KEY_SIZE_MAX else self._digest(key)] = offset
        else:
            for record in iterate_records(batch):
                if record.key is not None and record.offset >= start_offset:
                    offsets[self._name(record.key)] = record.offset
        self.end_offset = header.next_offset

    def filter(self, header: BatchHeader, batch: memoryview, *, drops_tombstones: bool) -> bytes | memoryview | None:
        """What is left of a batch of data: the same bytes, fewer records in the same batch, or None for no records."""
        if header.base_offset >= self.end_offset:
            return batch
        if header.magic != 2:
            return batch if any(self._stays(record, drops_tombstones) for record in iterate_records(batch)) else None
        region = _region(header, batch)
        kept, count, lost = self._kept(header, region, drops_tombstones)
        if not count:
            return None
        if not lost:
            return batch
        return assemble_batch(_header_for(header, kept, count), kept)

    def _kept(self, header: BatchHeader, region: bytes, drops_tombstones: bool) -> tuple[bytearray, int, int]:
        """The records that stay, how many they are, and how many go."""
        kept = bytearray()
        latest = self._offsets.get
        base_offset, end_offset = header.base_offset, self.end_offset
        count = lost = run_start = position = 0
        total, small = len(region), _SMALL_VARINTS
        try:
            for _ in range(header.record_count):
                start = position
                byte = region[position]
                if byte < 0x80:
                    length, position = small[byte], position + 1
                else:
                    length, position = _varint(region, position)
                end = position + length
                if length < 0 or end > total:
                    raise CorruptBatch(header.position, f"record of {length} bytes does not fit")
                position += 1
                while region[position] >= 0x80:
                    position += 1
                byte = region[position + 1]
                if byte < 0x80:
                    offset_delta, position = small[byte], position + 2
                else:
                    offset_delta, position = _varint(region, position + 1)
                byte = region[position]
                if byte < 0x80:
                    key_size, position = small[byte], position + 1
                else:
                    key_size, position = _varint(region, position)
                stays = False
                if key_size >= 0:
                    stop = position + key_size
                    if stop >= end:
                        raise CorruptBatch(header.position, f"key of {key_size} bytes does not fit")
                    key = region[position:stop]
                    offset = base_offset + offset_delta
                    if key_size > _KEY_SIZE_MAX:
                        key = self._digest(key)
                    # A value length of -1 is the byte 1.
                    stays = offset >= end_offset or (
                        offset >= latest(key, -1) and not (drops_tombstones and region[stop] == 1)
                    )
                if stays:
                    count += 1
                else:
                    kept += region[run_start:start]
                    run_start = end
                    lost += 1
                position = end
        except (IndexError, ValueError) as error:
            raise CorruptBatch(header.position, f"record does not parse: {error}") from error
        if position != total:
            raise CorruptBatch(header.position, f"{total - position} bytes after the last record")
        if lost:
            kept += region[run_start:]
        return kept, count, lost

    def _stays(self, record: Record, drops_tombstones: bool) -> bool:
        if record.key is None:
            return False
        if record.offset >= self.end_offset:
            return True
        if drops_tombstones and record.value is None:
            return False
        return record.offset >= self._offsets.get(self._name(record.key), -1)

    def _name(self, key: bytes) -> bytes:
        return key if len(key) <= _KEY_SIZE_MAX else self._digest(key)

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=_DIGEST_SIZE, key=self._secret).digest()


def emptied(header: BatchHeader) -> bytes:
    """The batch without records, which remembers a producer's last sequence number."""
    return rebuild_batch(header, [])


def _header_for(header: BatchHeader, region: bytearray, count: int) -> BatchHeader:
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        deltas = _timestamp_deltas(bytes(region), count)
        max_timestamp = max((header.base_timestamp + delta for delta in deltas), default=NO_TIMESTAMP)
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
    """The plain records of the batch that `batch` starts with, wherever its header was read from."""
    position, header.position = header.position, 0
    try:
        return bytes(records_region(batch, header))
    finally:
        header.position = position


def _keys(header: BatchHeader, region: bytes) -> list[tuple[bytes, int]]:
    """(key, offset delta) of the records that have a key."""
    keys: list[tuple[bytes, int]] = []
    position, total, small = 0, len(region), _SMALL_VARINTS
    try:
        for _ in range(header.record_count):
            byte = region[position]
            if byte < 0x80:
                length, position = small[byte], position + 1
            else:
                length, position = _varint(region, position)
            end = position + length
            if length < 0 or end > total:
                raise CorruptBatch(header.position, f"record of {length} bytes does not fit")
            position += 1
            while region[position] >= 0x80:
                position += 1
            byte = region[position + 1]
            if byte < 0x80:
                offset_delta, position = small[byte], position + 2
            else:
                offset_delta, position = _varint(region, position + 1)
            byte = region[position]
            if byte < 0x80:
                key_size, position = small[byte], position + 1
            else:
                key_size, position = _varint(region, position)
            if key_size >= 0:
                stop = position + key_size
                if stop > end:
                    raise CorruptBatch(header.position, f"key of {key_size} bytes does not fit")
                keys.append((region[position:stop], offset_delta))
            position = end
    except (IndexError, ValueError) as error:
        raise CorruptBatch(header.position, f"record does not parse: {error}") from error
    return keys


def _timestamp_deltas(region: bytes, count: int) -> list[int]:
    deltas: list[int] = []
    position = 0
    for _ in range(count):
        length, position = _varint(region, position)
        deltas.append(_varint(region, position + 1)[0])
        position += length
    return deltas


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag number and the position after it."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("number is longer than 64 bits")

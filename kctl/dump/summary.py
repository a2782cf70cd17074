"""Summarizes the log files of a partition, and copies the valid batches of one, offline.

Batches are valid by the rules of kctl.records.salvage: their checksum is right, and their offsets fit.  Their records
are not decoded.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.dump.batches import Progress
from kctl.dump.indexes import open_file
from kctl.dump.kinds import base_offset_of
from kctl.errors import KctlError
from kctl.records.header import BatchHeader
from kctl.storage.config import RELATIVE_OFFSET_MAX
from kctl.storage.files import RealFile
from kctl.storage.segments.batch_reader import read_all_parts
from kctl.system.operating_system import flush_to_disk

COPY_SIZE = 1 << 20
_CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_CODEC_BITS = 7


class LostRange(NamedTuple):
    """Offsets whose batches are damaged.  Compaction may have removed some of them before."""

    path: str
    first: int
    last: int | None
    """None if it is unknown where the log ended."""
    size_bytes: int
    """Size of the damage."""
    reason: str


@dataclass(slots=True)
class LogSummary:
    """The valid batches of consecutive segments of one partition, and the damage between them."""

    segments: int = 0
    size_bytes: int = 0
    batches: int = 0
    records: int = 0
    """As far as batches state it; one for a compressed batch of magic 0 or 1."""
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    codecs: Counter[str] = field(default_factory=Counter)
    """Number of batches by codec."""
    absent_offsets: int = 0
    """Offsets between valid batches without damage there, as compaction leaves them."""
    lost: list[LostRange] = field(default_factory=list)

    @property
    def lost_bytes(self) -> int:
        """Size of all damage."""
        return sum(lost.size_bytes for lost in self.lost)

    @property
    def lost_offsets(self) -> int:
        """Number of lost offsets, without those of ranges with an unknown end."""
        return sum(lost.last - lost.first + 1 for lost in self.lost if lost.last is not None)

    def add_batch(self, header: BatchHeader, *, after_damage: bool) -> None:
        """Add the next valid batch."""
        if self.first_offset is None or self.last_offset is None:
            self.first_offset = header.base_offset
        elif not after_damage:
            self.absent_offsets += max(0, header.base_offset - self.last_offset - 1)
        self.last_offset = header.last_offset
        self.batches += 1
        self.records += header.record_count
        codec = header.attributes & _CODEC_BITS
        self.codecs[_CODEC_NAMES[codec] if codec < len(_CODEC_NAMES) else str(codec)] += 1
        for time_ms in (header.base_timestamp, header.max_timestamp):
            if time_ms >= 0 and header.delete_horizon_ms != time_ms:
                first, last = self.first_timestamp_ms, self.last_timestamp_ms
                self.first_timestamp_ms = time_ms if first is None else min(first, time_ms)
                self.last_timestamp_ms = time_ms if last is None else max(last, time_ms)


def summarize(logs: Sequence[str], progress: Progress | None = None) -> LogSummary:
    """Summarize the `.log` files of one partition, in the order of their offsets.  Raises OSError."""
    summary = LogSummary()
    done_bytes = 0
    for index, path in enumerate(logs):
        next_base = base_offset_of(logs[index + 1]) if index + 1 < len(logs) else None
        file = open_file(path)
        try:
            end = file.size()
            after_damage = False
            for part in _parts(file, path, end, next_base):
                if isinstance(part, LostRange):
                    summary.lost.append(part)
                    after_damage = True
                    continue
                summary.add_batch(part, after_damage=after_damage)
                after_damage = False
                if progress is not None:
                    progress(done_bytes + part.end)
        finally:
            file.close()
        summary.segments += 1
        summary.size_bytes += end
        done_bytes += end
    return summary


def salvage(path: str, target: str, progress: Progress | None = None) -> LogSummary:
    """Copy the valid batches of one `.log` file, byte for byte, to a new file, and summarize them.

    Raises FileExistsError if the target exists, OSError, and KctlError if there is no valid batch; in both of the last
    cases no file is left behind.
    """
    summary = LogSummary(segments=1)
    file = open_file(path)
    try:
        with open(target, "xb") as copy:
            try:
                after_damage = False
                for part in _parts(file, path, file.size(), None):
                    if isinstance(part, LostRange):
                        summary.lost.append(part)
                        after_damage = True
                        continue
                    copy.writelines(_read_bytes(file, part))
                    summary.add_batch(part, after_damage=after_damage)
                    summary.size_bytes += part.size
                    after_damage = False
                    if progress is not None:
                        progress(part.end)
                if not summary.batches:
                    raise KctlError(f"{path} has no valid batch")
                copy.flush()
                flush_to_disk(copy.fileno())
            except BaseException:
                with suppress(OSError):
                    os.unlink(target)
                raise
    finally:
        file.close()
    return summary


def _parts(file: RealFile, path: str, end: int, next_base: int | None) -> Iterator[BatchHeader | LostRange]:
    """Yield valid batches and damage in the order of offsets; `next_base` is the offset of the next segment."""
    base_offset = base_offset_of(path)
    end_offset = base_offset + RELATIVE_OFFSET_MAX
    if next_base is not None:
        end_offset = min(end_offset, next_base)
    for part in read_all_parts(file, base_offset, end, end_offset=end_offset):
        if isinstance(part, BatchHeader):
            yield part
            continue
        is_open = next_base is None and part.last_offset == end_offset - 1
        yield LostRange(path, part.offset, None if is_open else part.last_offset, part.size, part.reason)


def _read_bytes(file: RealFile, header: BatchHeader) -> Iterator[bytes]:
    for position in range(header.position, header.end, COPY_SIZE):
        yield file.read_at(position, min(COPY_SIZE, header.end - position))

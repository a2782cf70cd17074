"""The `.txnindex` of a segment: the transactions whose abort markers are in the segment.  KIP-98.

Entries are 34 bytes: version (0), producer id, first offset, offset of the marker, and the last stable offset at that
time.  They are in the order of the markers.  Most segments have no such file.  Kafka's TransactionIndex.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from itertools import islice
from typing import NamedTuple

from kctl.errors import CorruptLog
from kctl.storage.files import Files

ENTRY_SIZE = 34
_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """An aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, read from the file on first use."""

    __slots__ = ("_entries", "_files", "path")

    def __init__(self, files: Files, path: str, *, exists: bool) -> None:
        self._files = files
        self.path = path
        self._entries: list[AbortedTransaction] | None = None if exists else []

    @property
    def exists(self) -> bool:
        """True if the file exists."""
        return self._entries is None or bool(self._entries)

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries.  Raises CorruptLog."""
        if self._entries is None:
            self._entries = parse_transaction_index(self._files.read(self.path), self.path)
        return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry; its marker must be after those of all others."""
        entries = self.entries()
        assert not entries or entries[-1].last_offset < entry.last_offset
        file = self._files.open(self.path, create=True)
        try:
            file.write_at(len(entries) * ENTRY_SIZE, _ENTRY.pack(_VERSION, *entry))
        finally:
            file.close()
        entries.append(entry)

    def clear(self) -> None:
        """Remove all entries and the file."""
        if self.exists:
            self._files.remove(self.path)
        self._entries = []

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions with markers at or above `offset`."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) == len(entries):
            return
        if not kept:
            self.clear()
            return
        file = self._files.open(self.path)
        try:
            file.truncate(len(kept) * ENTRY_SIZE)
        finally:
            file.close()
        self._entries = kept

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions with records in [fetch_offset, upper_bound), and True if later segments can have
        no more.
        """
        found: list[AbortedTransaction] = []
        entries = self.entries()
        start = bisect_left(entries, fetch_offset, key=lambda entry: entry.last_offset)
        for entry in islice(entries, start, None):
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False


def parse_transaction_index(data: bytes, path: str) -> list[AbortedTransaction]:
    """Parse the content of a file.  Raises CorruptLog."""
    if len(data) % ENTRY_SIZE:
        raise CorruptLog(path, len(data) - len(data) % ENTRY_SIZE, f"size is not a multiple of {ENTRY_SIZE}")
    entries: list[AbortedTransaction] = []
    for position, fields in zip(range(0, len(data), ENTRY_SIZE), _ENTRY.iter_unpack(data), strict=True):
        if fields[0] != _VERSION:
            raise CorruptLog(path, position, f"version {fields[0]}, expected {_VERSION}")
        entries.append(AbortedTransaction(*fields[1:]))
    return entries

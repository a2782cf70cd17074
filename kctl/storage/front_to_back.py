"""Reads a log from its start to its end by file position, so that damaged indexes or batches cannot stop it.

    reading = FrontToBack(log, buffer_bytes)
    while (read := reading.next_read()) is not None:      loop: choose the segment and position
        piece = read()                                    thread: valid batches and the damage between them

Appends during the reading are read as well.  If the cleaner replaces the segment, reading continues in its replacement
after the last offset that was read.

Owner: event loop, except for the callables that `next_read` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kctl.records.salvage import BatchCutter, Piece
from kctl.storage.files import File
from kctl.storage.log import Log
from kctl.storage.segment import Segment


class FrontToBack:
    """One reading; each read must complete before the next one is requested."""

    def __init__(self, log: Log, buffer_bytes: int) -> None:
        """Read `buffer_bytes` at a time, more for a larger batch."""
        self._log = log
        self._buffer_bytes = buffer_bytes
        self._enter(log.log_start_offset)

    def next_read(self) -> Callable[[], Piece] | None:
        """Return a callable that reads the next piece, for a thread; None at the end of the log.

        Both raise OSError.
        """
        while True:
            segments = self._log.segments
            if self._segment not in segments:
                self._enter(self._cutter.expected_offset)
                continue
            index = segments.index(self._segment) + 1
            following = segments[index].base_offset if index < len(segments) else None
            if self._position < self._segment.size:
                end_offset = self._log.log_end_offset if following is None else following
                return partial(self._read, self._segment.file, self._segment.size, end_offset)
            if following is None:
                return None
            self._enter(following)

    def _enter(self, offset: int) -> None:
        """Continue in the segment that holds `offset`."""
        segments = self._log.segments
        self._segment: Segment = max(
            (each for each in segments if each.base_offset <= offset),
            key=lambda each: each.base_offset,
            default=segments[0],
        )
        self._cutter = BatchCutter(self._segment.base_offset, start_offset=offset)
        self._position = self._needed = 0

    def _read(self, file: File, size: int, end_offset: int) -> Piece:
        left = size - self._position
        read_size = min(max(self._buffer_bytes, self._needed), left)
        # A file truncated by another process is read as if it ended with zeros.
        data = file.read_at(self._position, read_size).ljust(read_size, b"\0")
        cut = self._cutter.cut(data, left=left, end_offset=end_offset)
        self._position, self._needed = self._position + cut.consumed, cut.needed
        return Piece(data, cut.batches, cut.damage)

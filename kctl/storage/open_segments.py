"""Closes files of segments when descriptors are scarce.

Each segment that takes appends or has been read keeps its file open.  Clients determine how many these are: a topic may
have segments of one batch.  A log directory in which no file can be opened goes offline, so that the files that were
opened first are closed then, and opened again when they are used.  Readers keep the file that they have.

Descriptors belong to the process, and so does the one object here, in which several threads register segments.
"""

from __future__ import annotations

import contextlib
import sys
from itertools import islice
from typing import Protocol
from weakref import WeakValueDictionary

from kctl.storage.files import File

CLOSED_TOGETHER = 16


class _Segment(Protocol):
    def close(self) -> None:
        """Close the file once no reader uses it, and call `closed`; the next use opens it again."""


class OpenSegments:
    """The segments with an open file."""

    def __init__(self) -> None:
        self.descriptor_max = sys.maxsize
        """With this descriptor or a larger one, descriptors are scarce: the system assigns the lowest that is free."""
        self._segments: WeakValueDictionary[int, _Segment] = WeakValueDictionary()
        """By identity; those that were opened first come first."""

    def opened(self, segment: _Segment, file: File) -> None:
        """A segment has opened its file."""
        key = id(segment)
        self._segments.pop(key, None)
        if _descriptor(file) >= self.descriptor_max:
            self._close_oldest()
        self._segments[key] = segment

    def closed(self, segment: _Segment) -> None:
        """A segment has closed its file."""
        self._segments.pop(id(segment), None)

    def _close_oldest(self) -> None:
        with contextlib.suppress(RuntimeError):  # Another thread registers segments: it is as scarce for the next one.
            for segment in list(islice(self._segments.values(), CLOSED_TOGETHER)):
                segment.close()


def _descriptor(file: File) -> int:
    try:
        return file.fileno()
    except OSError:  # A simulated file.
        return -1


OPEN_SEGMENTS = OpenSegments()
"""Those of this process."""

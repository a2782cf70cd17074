"""The producers of a log at an earlier offset, read by a thread before the log is truncated to it.

    reload = log.plan_truncation(offset)   loop: which snapshots and batches to read
    reload.run()                           any thread
    log.truncate_to(offset, reload)        loop: its producers are used if nothing else truncated the log meanwhile
    reload.release()                       any thread: frees the producers of before

The snapshot of 100,000 producers takes 0.5 s to read, and a segment of small batches several seconds.  What is read
lies before the offset: appends do not change it, and the files of segments that retention or compaction removes stay
open.  Nothing is written, so that a crash leaves the log as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kctl.errors import CorruptLog
from kctl.storage.batch_reader import read_headers, read_past_damage
from kctl.storage.checkpoints import parse_snapshot
from kctl.storage.files import File, Files
from kctl.storage.producer_replay import replay_headers
from kctl.storage.producer_state import ProducerState, release


class ReplayedFile(NamedTuple):
    """The batches of a segment that were in it when the truncation was planned."""

    base_offset: int
    file: File
    size: int


class ProducerReload:
    """What `run` reads, and its result."""

    __slots__ = ("_files", "_segments", "_snapshots", "log_start_offset", "offset", "state", "truncations")

    def __init__(
        self,
        offset: int,
        *,
        log_start_offset: int,
        truncations: int,
        snapshots: Sequence[tuple[int, str]],
        segments: Sequence[ReplayedFile],
        files: Files,
    ) -> None:
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.truncations = truncations
        """The number of truncations of the log when this was planned."""
        self.state: ProducerState | None = None
        """The producers at the offset; None before `run`, and if a file could not be read."""
        self._snapshots = snapshots
        self._segments = segments
        self._files = files

    def run(self) -> None:
        """Read the producers."""
        state = ProducerState()
        try:
            self._load(state)
            self._replay(state)
        except OSError:
            return  # The truncation reads them again, and reports the error.
        self.state = state

    def release(self) -> None:
        """Free the producers."""
        if self.state is not None:
            producers = self.state.capture()
            self.state.clear(self.offset)
            release(producers)
            self.state = None

    def _load(self, state: ProducerState) -> None:
        """Load the newest readable snapshot; the log removes damaged ones when it finds them itself."""
        for offset, path in reversed(self._snapshots):
            try:
                state.load(parse_snapshot(self._files.read(path), path), offset)
            except CorruptLog:
                continue
            return
        state.clear(self.log_start_offset)

    def _replay(self, state: ProducerState) -> None:
        for index, (base_offset, file, size) in enumerate(self._segments):
            if index + 1 < len(self._segments) and self._segments[index + 1].base_offset <= state.end_offset:
                continue
            try:
                replay_headers(state, read_headers(file, 0, size), file, self.offset)
            except CorruptLog:
                replay_headers(state, read_past_damage(file, base_offset, size), file, self.offset)
        state.skip_to(self.offset)

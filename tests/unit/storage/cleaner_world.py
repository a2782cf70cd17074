"""One log under a log manager on a simulated disk, with its cleaner."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import BatchHeader, Record
from kctl.storage.cleaning.cleaner import LogCleaner
from kctl.storage.cleaning.cleaning import CleanerBuffers, CleaningTask, CleaningWork
from kctl.storage.cleaning.pace import Pace
from kctl.storage.config import LogConfig
from kctl.storage.files import Files
from kctl.storage.log.appending import AppendResult
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.system.steps import run_at_once
from kctl.testing.sim_files import SimFiles
from tests.unit.storage.log_builder import NOW_MS, read_records

TP = TopicPartition("orders", 0)
COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
    index_interval_bytes=0,
    segment_index_bytes=64 << 10,  # Preallocated on the simulated disk, of which some tests keep hundreds.
)


class _Clock:
    def __init__(self, world: CleanerWorld) -> None:
        self._world = world

    def now_ms(self) -> int:
        return self._world.now_ms

    def monotonic_ms(self) -> int:
        return self._world.now_ms


class CleanerWorld:
    """The log with helpers for tests."""

    def __init__(
        self,
        config: LogConfig = COMPACTED,
        *,
        dedupe_buffer_bytes: int = 1 << 20,
        pace: Pace | None = None,
        files: Files | None = None,
        at: str = "/data",
        work_on: Callable[[CleaningTask], CleaningWork] | None = None,
    ) -> None:
        self.disk = SimFiles()
        self.files = self.disk if files is None else files
        self.at = at
        self.now_ms = NOW_MS
        self.config = config
        self.dedupe_buffer_bytes = dedupe_buffer_bytes
        self.pace = pace
        self.work_on = work_on
        self.stable_offset: int | None = None
        self.start()

    def start(self) -> Log:
        """Restarts the broker with the same disk."""
        self.manager = LogManager([self.at], files=self.files, clock=_Clock(self), random=random.Random(3))
        self.manager.load({TP.topic: self.config})
        self.log = self.manager.get_or_create(TP, config=self.config)
        self.cleaner = LogCleaner(
            self.manager,
            lambda log: (
                log.last_stable_offset(log.log_end_offset) if self.stable_offset is None else self.stable_offset
            ),
            random=random.Random(4),
            pace=self.pace,
            buffers=lambda: CleanerBuffers(keys_bytes=self.dedupe_buffer_bytes),
            work_on=self.work_on,
        )
        return self.log

    def restart(self) -> Log:
        self.manager.clean_shutdown()
        return self.start()

    def kill(self) -> Log:
        self.disk.kill()
        return self.start()

    def lose_power(self, seed: int) -> Log:
        self.disk.crash(random.Random(seed))
        return self.start()

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.disk.now_ms = self.now_ms

    def clean(self) -> bool:
        """Performs one cleaning if one is due; returns whether it was."""
        found = run_at_once(self.cleaner.next(self.now_ms))
        if found is None:
            return False
        for work in self.cleaner.steps(*found, self.now_ms):
            work()
        return True

    def clean_all(self) -> None:
        self.roll()
        while self.clean():
            pass

    def roll(self) -> None:
        self.log.roll(self.now_ms)
        self.log.flush()

    def put(
        self,
        *pairs: tuple[bytes | None, bytes | None],
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        epoch: int = 0,
        sequence: int = 0,
        transactional: bool = False,
        timestamps: Sequence[int] = (),
    ) -> AppendResult:
        """One batch of (key, value)."""
        times = timestamps or [self.now_ms] * len(pairs)
        records = [Record(0, at, key, value) for at, (key, value) in zip(times, pairs, strict=True)]
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=transactional,
        )
        return self.log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=self.now_ms, from_client=False)

    def end(self, kind: ControlType, producer_id: int, *, epoch: int = 0) -> AppendResult:
        marker = build_end_transaction_marker(
            EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=epoch, timestamp=self.now_ms
        )
        result = self.log.append_as_leader(bytearray(marker), leader_epoch=0, now_ms=self.now_ms, from_client=False)
        self.log.producer_state.on_high_watermark(self.log.log_end_offset)
        return result

    def records(self) -> list[Record]:
        """All records in the log, including markers."""
        return read_records(self.log, self.log.log_start_offset)

    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records()]

    def headers(self) -> list[BatchHeader]:
        return [header for segment in self.log.segments for header in segment.headers()]

    def file_names(self) -> list[str]:
        return [entry.name for entry in self.files.list(f"{self.at}/{TP}")]

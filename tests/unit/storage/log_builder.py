"""Logs on a simulated disk with default settings, so that a test sets only what it depends on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kctl.model import TopicPartition
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record
from kctl.storage.checkpointing import close_logs
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import Files
from kctl.storage.log.appending import AppendResult
from kctl.storage.log.log import Log
from kctl.storage.recovery.recovery import open_log
from kctl.testing.sim_files import SimFiles

TP = TopicPartition("orders", 0)
NOW_MS = 1_600_000_000_000


class LogOnDisk:
    """One log and its disk, with helpers for tests."""

    def __init__(self, config: LogConfig | None = None, *, files: Files | None = None, at: str = "/data") -> None:
        self.files = files if files is not None else SimFiles()
        self.at = at
        self.config = config or LogConfig()
        self.removals = DelayedRemovals()
        self.now_ms = NOW_MS
        self.log = self.open()

    @property
    def disk(self) -> SimFiles:
        assert isinstance(self.files, SimFiles)
        return self.files

    @property
    def directory(self) -> str:
        return f"{self.at}/orders-0"

    def open(self, *, was_clean: bool = True, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
        self.log_directory = LogDirectory(self.at)
        self.log = open_log(
            TP,
            self.directory,
            self.config,
            files=self.files,
            log_directory=self.log_directory,
            removals=self.removals,
            random=random.Random(1),
            now_ms=self.now_ms,
            was_clean=was_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )
        return self.log

    def crash_and_reopen(self, *, recovery_point: int | None = None, seed: int | None = None) -> Log:
        """Reopens without a shutdown; with a seed, after a power failure."""
        point = self.log.recovery_point if recovery_point is None else recovery_point
        start = self.log.log_start_offset
        self.log.release()
        if seed is not None:
            self.disk.crash(random.Random(seed))
        return self.open(was_clean=False, recovery_point=point, log_start_offset=start)

    def close(self) -> None:
        """Closes the log as a clean shutdown does."""
        close_logs([self.log], self.files)
        self.log_directory.check()

    def close_and_reopen(self) -> Log:
        start = self.log.log_start_offset
        self.close()
        return self.open(recovery_point=self.log.recovery_point, log_start_offset=start)

    def append(
        self,
        *values: bytes,
        keys: Sequence[bytes | None] | None = None,
        leader_epoch: int = 0,
        timestamp: int | None = None,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        producer_epoch: int = 0,
        sequence: int = 0,
        transactional: bool = False,
        from_client: bool = True,
    ) -> AppendResult:
        at = self.now_ms if timestamp is None else timestamp
        records = [Record(0, at, keys[i] if keys else b"k", value) for i, value in enumerate(values or (b"v",))]
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=transactional,
        )
        return self.log.append_as_leader(
            bytearray(batch), leader_epoch=leader_epoch, now_ms=self.now_ms, from_client=from_client
        )

    def end_transaction(
        self, kind: ControlType, *, producer_id: int, producer_epoch: int = 0, coordinator_epoch: int = 0
    ) -> AppendResult:
        marker = build_end_transaction_marker(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self.now_ms,
        )
        return self.log.append_as_leader(marker, leader_epoch=0, now_ms=self.now_ms, from_client=False)

    def records(self, *, max_bytes: int = 1 << 20) -> list[Record]:
        """All records that a consumer reads from the start."""
        return read_records(self.log, self.log.log_start_offset, max_bytes=max_bytes)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def file_names(self) -> list[str]:
        return [entry.name for entry in self.files.list(self.directory)]


def read_records(log: Log, offset: int, *, max_bytes: int = 1 << 20) -> list[Record]:
    """The records that a consumer reads from `offset`."""
    records: list[Record] = []
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, max_offset=log.log_end_offset).read()
        before = offset
        for header in iterate_batches(data):
            records += (record for record in iterate_records(data, header) if record.offset >= offset)
            offset = header.next_offset
        if offset == before:
            break
    return records


def unload_indexes(log: Log) -> None:
    """Makes the next look-up in a closed segment read its index file."""
    for segment in log.segments[:-1]:
        segment.unload_indexes()


def value_batch(*values: bytes, base_offset: int = 0, leader_epoch: int = 0, timestamp: int = NOW_MS) -> bytes:
    """A batch as a follower fetches it."""
    records = [Record(0, timestamp, b"k", value) for value in values]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)

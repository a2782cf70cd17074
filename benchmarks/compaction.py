"""Measures the speed of compaction against reading and writing the same bytes.

    python -m benchmarks.compaction [--runs 3] [--megabytes 128]

MB/s of log that goes in: the keys are noted in one pass, the second writes what is left.  With many duplicates each key
is written four times, so that about a quarter stays; with few, one of fifty records is overwritten.  Beside it a copy
that reads all bytes twice, looks at none, writes all and syncs.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.report import Figure, report
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.server.loop.tasks import SystemClock
from kctl.storage.cleaning.cleaner import LogCleaner
from kctl.storage.cleaning.cleaning import CleanerBuffers
from kctl.storage.config import LogConfig
from kctl.storage.files import RealFiles
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.system.steps import run_at_once

BATCH_BYTES = 16_000
WRITTEN_TIMES = 4
UNIQUE_KEYS = 50
"""With few duplicates, one of so many records has a key that is written again."""
TP = TopicPartition("orders", 0)
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=32 << 20, min_cleanable_dirty_ratio=0.0)
CASES = tuple(
    (f"{size}{' lz4' if codec is Codec.LZ4 else ''}, {'many' if many else 'few'} duplicates", value_bytes, codec, many)
    for size, value_bytes in (("100 B", 100), ("1 KB", 1000))
    for codec in (Codec.NONE, Codec.LZ4)
    for many in (True, False)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=128)
    options = parser.parse_args()
    figures = []
    for name, value_bytes, codec, many in CASES:
        cleaned, copied, processor = [], [], []
        for _ in range(options.runs):
            with tempfile.TemporaryDirectory() as folder:
                clean_rate, copy_rate, processor_rate = measure(
                    folder, options.megabytes, value_bytes, codec, many=many
                )
            cleaned.append(clean_rate)
            copied.append(copy_rate)
            processor.append(processor_rate)
        ratios = [clean / copy for clean, copy in zip(cleaned, copied, strict=True)]
        figures += [
            Figure(f"{name}: compaction", "MB/s", cleaned),
            Figure(f"{name}: plain copy", "MB/s", copied),
            Figure(f"{name}: compaction / copy", "x", ratios),
            Figure(f"{name}: compaction per processor second", "MB", processor),
        ]
    report("compaction", figures, runs=options.runs, megabytes=options.megabytes)


def measure(folder: str, megabytes: int, value_bytes: int, codec: Codec, *, many: bool) -> tuple[float, float, float]:
    """MB/s of a cleaning, of copying the same segments, and MB per second of processor time of the cleaning."""
    manager = LogManager([folder], files=RealFiles(), clock=SystemClock(), random=random.Random(1))
    manager.load()
    log = manager.get_or_create(TP, config=CONFIG)
    fill(log, megabytes * 1_000_000, value_bytes, codec, many=many)
    segments = log.segments[:-1]
    size = sum(segment.size for segment in segments)
    started = time.perf_counter()
    copy([Path(segment.path(".log")) for segment in segments], Path(folder) / "copy")
    copy_s = time.perf_counter() - started
    cleaner = LogCleaner(
        manager,
        lambda log: log.log_end_offset,
        random=random.Random(2),
        buffers=lambda: CleanerBuffers(keys_bytes=1 << 30),
    )
    due = run_at_once(cleaner.next(0))
    assert due is not None
    started, processor_started = time.perf_counter(), time.process_time()
    for work in cleaner.steps(*due, 0):
        work()
    clean_s, processor_s = time.perf_counter() - started, time.process_time() - processor_started
    assert cleaner.uncleanable == {}
    assert (log.size_bytes < size / 2) == many
    assert log.size_bytes < size
    manager.release()
    return size / clean_s / 1e6, size / copy_s / 1e6, size / processor_s / 1e6


def fill(log: Log, total_bytes: int, value_bytes: int, codec: Codec, *, many: bool) -> None:
    for batch in batches(total_bytes // (value_bytes + 24), value_bytes, codec, many=many):
        log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=0)
    log.roll(0)
    log.flush()


def batches(count: int, value_bytes: int, codec: Codec, *, many: bool = True) -> Iterator[bytes]:
    chance = random.Random(7)
    words = chance.randbytes(1 << 20).hex().encode()
    per_batch = max(BATCH_BYTES // (value_bytes + 24), 1)
    keys = count // WRITTEN_TIMES
    for base in range(0, count, per_batch):
        records = []
        for index in range(base, min(base + per_batch, count)):
            at = chance.randrange(len(words) - value_bytes)
            number = chance.randrange(keys) if many else index - index % UNIQUE_KEYS // (UNIQUE_KEYS - 1)
            records.append(Record(0, 1_700_000_000_000 + index, b"user-%09d" % number, words[at : at + value_bytes]))
        yield build_batch(records, codec=codec)


def copy(paths: list[Path], target: Path) -> None:
    for path in paths:
        path.read_bytes()
    with target.open("wb") as out:
        for path in paths:
            out.write(path.read_bytes())
        out.flush()
        os.fsync(out.fileno())


if __name__ == "__main__":
    main()

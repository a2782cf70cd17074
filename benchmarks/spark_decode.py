"""Compares decoding of batches with numpy to loops over records: the same batches into the same Arrow columns.

    python -m benchmarks.spark_decode [--runs 5] [--megabytes 16]

One loop reads records in Python alone, as a program would, and is what the goals refer to; the other one reads them
with kctl's compiled walk.  All sides check every checksum and decompress with the same library, so the ratio is that of
the decoding alone only where nothing is compressed.  Processor time of this process, one thread, the sides in turn so
that a busy machine disturbs all alike.  Batches are of 16 KB, as librdkafka makes them with a short linger.  Limit:
checksums and decompression alone.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from benchmarks.harness.report import Figure, report
from kctl.records.batch import crc_ok, iterate_batches, iterate_interpreted, iterate_records, records_region
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import BatchHeader, Record
from kctl.tables.exec.decoding.decode import decode
from kctl.tables.exec.reading.chunk import Memories, chunks
from kctl.tables.exec.selection.columns import schema

BATCH_BYTES = 16_000
TOPIC = "orders"
GOALS = {"100 B": 8.0, "1 KB": 3.0}
"""Of the codecs that have one."""
CODECS_WITH_GOALS = (Codec.NONE, Codec.LZ4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=16, help="of values, per data set")
    options = parser.parse_args()
    figures = []
    for name, value_bytes in (("1 KB", 1000), ("100 B", 100)):
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY):
            count = options.megabytes * 1_000_000 // value_bytes
            data = memoryview(b"".join(log(count, value_bytes, codec)))
            goal = GOALS[name] if codec in CODECS_WITH_GOALS else None
            figures += compare(f"{name} {codec.name.lower()}", data, count, options.runs, goal)
    report("spark_decode", figures, runs=options.runs, megabytes=options.megabytes)


def log(count: int, value_bytes: int, codec: Codec) -> Iterator[bytes]:
    """Batches with JSON values that compress about as real ones do."""
    chance = random.Random(7)
    per_batch = max(BATCH_BYTES // (value_bytes + 24), 1)
    for base in range(0, count, per_batch):
        records = [
            Record(
                0, 1_700_000_000_000 + index // 7, b"user-%09d" % chance.randrange(50_000), value(chance, value_bytes)
            )
            for index in range(base, min(base + per_batch, count))
        ]
        yield build_batch(records, base_offset=base, codec=codec)


def value(chance: random.Random, size: int) -> bytes:
    words: dict[str, str | int | float] = {}
    while len(json.dumps(words)) < size - 12:
        words[f"f{len(words)}"] = chance.choice(
            ("shipped", "ordered", chance.randrange(10**6), round(chance.random(), 4))
        )
    return json.dumps(words).encode().ljust(size)[:size]


def compare(name: str, data: memoryview, count: int, runs: int, goal: float | None) -> list[Figure]:
    batches = list(iterate_batches(data))
    expected = by_record(data, batches, interpreted)
    found = pa.Table.from_batches(by_chunk(data, batches))
    assert found.equals(pa.Table.from_batches([expected])), "the two sides disagree"
    loop, compiled, vector, floor = [], [], [], []
    memories = Memories()
    for _ in range(runs):
        loop.append(count / seconds(lambda: by_record(data, batches, interpreted)))
        compiled.append(count / seconds(lambda: by_record(data, batches, iterate_records)))
        vector.append(count / seconds(lambda: by_chunk(data, batches, memories)))
        floor.append(count / seconds(lambda: only_decompress(data, batches)))
    ratios = [fast / slow for fast, slow in zip(vector, loop, strict=True)]
    to_compiled = [fast / slow for fast, slow in zip(vector, compiled, strict=True)]
    return [
        Figure(f"{name}: loop over records", "records/s", loop),
        Figure(f"{name}: loop with the compiled walk", "records/s", compiled),
        Figure(f"{name}: vectorised", "records/s", vector),
        Figure(f"{name}: checksums and decompression only", "records/s", floor),
        Figure(f"{name}: ratio", "x", [statistics.median(ratios)], f">= {goal}" if goal else ""),
        Figure(f"{name}: ratio to the compiled walk", "x", [statistics.median(to_compiled)]),
    ]


def interpreted(data: memoryview, batch: BatchHeader) -> Iterator[Record]:
    return iterate_interpreted(bytes(records_region(data, batch)), batch)


def by_record(
    data: memoryview, batches: list[BatchHeader], records_of: Callable[[memoryview, BatchHeader], Iterable[Record]]
) -> pa.RecordBatch:
    """The straightforward way: one Python object per record and field."""
    keys, values, offsets, timestamps, types = [], [], [], [], []
    for batch in batches:
        assert crc_ok(data, batch)
        kind = int(batch.timestamp_type)
        for record in records_of(data, batch):
            keys.append(record.key)
            values.append(record.value)
            offsets.append(record.offset)
            timestamps.append(record.timestamp * 1000)
            types.append(kind)
    count = len(keys)
    fields = schema(include_headers=False)
    columns = [keys, values, [TOPIC] * count, [3] * count, offsets, timestamps, types]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)], schema=fields
    )


def by_chunk(data: memoryview, batches: list[BatchHeader], memories: Memories | None = None) -> list[pa.RecordBatch]:
    """As a task does, with the memory that it has for all its responses."""
    return [
        decode(chunk, topic=TOPIC, partition=3, start=0, end=1 << 62)
        for chunk in chunks(data, batches, memories=memories)
    ]


def only_decompress(data: memoryview, batches: list[BatchHeader]) -> int:
    return sum(len(records_region(data, batch)) for batch in batches if crc_ok(data, batch))


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()

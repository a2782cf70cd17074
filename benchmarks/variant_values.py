"""Compares `--value variant` with json and string: decoding values of about 1 KB, and writing them.

    python -m benchmarks.variant_values [--runs 5] [--records 4000]

Processor time of this process per record, formats in turn so that a busy machine disturbs all alike, and the size of
the file.  All members of the values have columns in json; with `one more member`, a tenth of the values has one without
a column.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.harness.report import Figure, report
from kctl.tables.exec.decoding.batch_decoder import BatchDecoder
from kctl.tables.exec.schema.column_types import STRING, VARIANT, Columns, Decoding, Format
from kctl.tables.exec.schema.json_fields import inferred
from kctl.tables.exec.targets.writer import ParquetFile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--records", type=int, default=4_000)
    options = parser.parse_args()
    numbers = random.Random(1)
    orders = [order(number, numbers) for number in range(options.records)]
    more = [{**document, "note": "x"} if number % 10 == 0 else document for number, document in enumerate(orders)]
    type_ = inferred(json.dumps(document) for document in orders)
    formats = {
        "string": Decoding(Format.STRING, STRING),
        "json": Decoding(Format.JSON, type_),
        "variant": Decoding(Format.VARIANT, VARIANT),
    }
    figures: list[Figure] = []
    for label, values in (("", orders), (", one more member", more)):
        found: dict[str, list[float]] = {}
        for _ in range(options.runs):
            for name, decoding in formats.items():
                for what, figure in measure(values, decoding).items():
                    found.setdefault(f"{name}{label}: {what}", []).append(figure)
        units = {name: "MB" if name.endswith("size") else "us" for name in found}
        figures += [Figure(name, units[name], samples) for name, samples in found.items()]
    report("variant_values", figures, runs=options.runs, records=options.records)


def order(number: int, numbers: random.Random) -> dict[str, Any]:
    """An object of about 1 KB with 56 members."""
    items = [
        {
            "sku": f"SKU-{numbers.randrange(10**6):06}",
            "name": f"Item name {n}",
            "quantity": numbers.randrange(1, 9),
            "price": numbers.randrange(1, 10_000) / 100,
        }
        for n in range(6)
    ]
    address = {"street": f"Street {numbers.randrange(999)}", "city": "Berlin", "zip": f"{number:05}", "country": "DE"}
    customer = {"id": numbers.randrange(10**6), "name": f"Customer {number}", "address": address}
    return {
        "order_id": number,
        "customer": customer,
        "created_at": f"2026-11-23T12:00:{number % 60:02}.123Z",
        "items": items,
        "total": numbers.randrange(1, 100_000) / 100,
        "currency": "EUR",
        "paid": True,
        "tags": ["a", "b", "express"],
        "comment": f"{numbers.getrandbits(720):0180x}",
    }


def measure(values: list[dict[str, Any]], decoding: Decoding) -> dict[str, float]:
    texts = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    offsets = pa.array(range(len(values)), pa.int64())
    batch = pa.RecordBatch.from_arrays([texts, offsets], ["value", "offset"])
    decoder = BatchDecoder(Columns(value=decoding))
    start = time.process_time()
    fitting, misfits, _ = decoder.decode(batch)
    decoded = time.process_time()
    assert misfits is None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.parquet")
        file = ParquetFile(partial(Path, path), schema=fitting.schema, compression="zstd", metadata={})
        file.add(fitting)
        file.finish({})
        written = time.process_time()
        per_record = 1e6 / len(values)
        return {
            "decoding": (decoded - start) * per_record,
            "writing": (written - decoded) * per_record,
            "size": path.stat().st_size / 1e6,
        }


if __name__ == "__main__":
    main()

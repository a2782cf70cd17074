"""Measures how long a search for an offset and a timestamp takes in a full index of 10 MiB.

    python -m benchmarks.index_lookup [--runs 5]

Random look-ups in memory, and what it costs to load the index of a closed segment when the first one comes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable

from benchmarks.harness.report import Figure, report
from kctl.storage.files import RealFiles
from kctl.storage.segments.index_file import OffsetIndex, TimeIndex

SIZE_MAX = 10 << 20
LOOKUPS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kctl-index-") as at:
        offsets = OffsetIndex(RealFiles(), f"{at}/offsets", base_offset=1000, size_max=SIZE_MAX)
        times = TimeIndex(RealFiles(), f"{at}/times", base_offset=1000, size_max=SIZE_MAX)
        offsets.create(preallocate=True)
        times.create(preallocate=True)
        while not offsets.is_full:
            offsets.append(1000 + 16 * len(offsets), 16_500 * len(offsets) % (1 << 31))
        while not times.is_full:
            times.append(1_700_000_000_000 + 7 * len(times), 1000 + 16 * len(times))
        chance = random.Random(1)
        requested = [1000 + chance.randrange(16 * len(offsets)) for _ in range(LOOKUPS)]
        moments = [1_700_000_000_000 + chance.randrange(7 * len(times)) for _ in range(LOOKUPS)]
        offsets.file.trim()
        times.file.trim()
        runs = options.runs
        figures = [
            Figure("offset look-up", "us", per_lookup(runs, lambda: look_up(offsets.lookup, requested)), "< 3"),
            Figure("timestamp look-up", "us", per_lookup(runs, lambda: look_up(times.lookup, moments)), "< 3"),
            Figure("loading the offset index", "ms", milliseconds(runs, lambda: offsets.load(1 << 31))),
            Figure("loading the time index", "ms", milliseconds(runs, times.load)),
        ]
        report("index_lookup", figures, runs=options.runs, entries=len(offsets))


def look_up(lookup: Callable[[int], int], requested: list[int]) -> None:
    for target in requested:
        lookup(target)


def per_lookup(runs: int, call: Callable[[], None]) -> list[float]:
    """Microseconds for one of LOOKUPS."""
    return [1000 * taken / LOOKUPS for taken in milliseconds(runs, call)]


def milliseconds(runs: int, call: Callable[[], None]) -> list[float]:
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - started))
    return taken


if __name__ == "__main__":
    main()

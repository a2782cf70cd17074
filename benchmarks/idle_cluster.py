"""Measures what a cluster of three brokers with 1,000 partitions costs while it is idle.

    python -m benchmarks.idle_cluster [--runs 3] [--partitions 1000] [--seconds 20] [--apache 2.8.2]

Every partition has three replicas, so that each broker leads a third and follows two thirds.  What is left to do is
fetching by followers twice a second, checkpoints, looking for old segments and keeping sessions alive.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.harness.cluster import BROKERS, Observer, cluster, parser
from benchmarks.harness.report import Figure, report

SETTLED_AFTER_S = 10


def main() -> None:
    arguments = parser(__doc__, runs=3)
    arguments.add_argument("--partitions", type=int, default=1000)
    arguments.add_argument("--seconds", type=float, default=20.0)
    options = arguments.parse_args()
    with cluster(options) as brokers:
        asyncio.run(create(Observer(brokers), options.partitions))
        time.sleep(SETTLED_AFTER_S)
        shares, resident_mb = [], []
        for _ in range(options.runs):
            subjects = [brokers.broker(broker_id) for broker_id in BROKERS]
            before, started = [subject.cpu_s() for subject in subjects], time.perf_counter()
            time.sleep(options.seconds)
            took_s = time.perf_counter() - started
            used = [subject.cpu_s() - cpu_s for subject, cpu_s in zip(subjects, before, strict=True)]
            shares.append(100 * max(used) / took_s)
            resident_mb.append(max(subject.resident_mb() for subject in subjects))
    figures = [
        Figure("busiest broker", "% of a core", shares, "< 5"),
        Figure("largest broker", "MB", resident_mb),
    ]
    conditions = {"runs": options.runs, "partitions": options.partitions}
    report("idle_cluster", figures, subject=options.apache or "kctl", **conditions)


async def create(observer: Observer, partitions: int) -> None:
    async with observer:
        await observer.create(partitions)


if __name__ == "__main__":
    main()

"""Measures how long a cluster with many partitions takes to recover from a killed controller.

    python -m benchmarks.controller_failover [--runs 3] [--partitions 1000 5000] [--apache 2.8.2]

Three brokers, every partition with three replicas, so that the failure affects each of them: a third needs a new
leader, all lose an in-sync replica.  The controller is ended by `kill -9`.  Time begins when ZooKeeper expires its
session.  Two times are measured: until the metadata of both other brokers has a live leader for every partition, and
until it has in-sync replicas without the killed broker.  Processor time is that of the new controller.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from benchmarks.harness.cluster import BROKERS, Cluster, Observer, cluster, is_in_sync, is_led, kill, parser
from benchmarks.harness.report import Figure, report
from kctl.client.metadata import ClusterMetadata, Partition

GOALS = {1000: "< 2", 5000: "< 6"}


@dataclass
class Samples:
    """What each run took."""

    led_s: list[float] = field(default_factory=list)
    written_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


def main() -> None:
    arguments = parser(__doc__, runs=3)
    arguments.add_argument("--partitions", type=int, nargs="+", default=[1000, 5000])
    options = arguments.parse_args()
    figures = []
    for partitions in options.partitions:
        with cluster(options) as brokers:
            samples = asyncio.run(measure(brokers, partitions, options.runs))
        what = f"{partitions} partitions,"
        figures += [
            Figure(f"{what} all led again", "s", samples.led_s, GOALS.get(partitions, "")),
            Figure(f"{what} all in-sync sets", "s", samples.written_s),
            Figure(f"{what} new controller", "CPU s", samples.cpu_s),
        ]
    report("controller_failover", figures, subject=options.apache or "kctl", runs=options.runs)


async def measure(brokers: Cluster, partitions: int, runs: int) -> Samples:
    samples = Samples()
    async with Observer(brokers) as observer:
        topics = await observer.create(partitions)
        for _ in range(runs):
            controller = await observer.controller()
            survivors = [broker_id for broker_id in BROKERS if broker_id != controller]
            for survivor in survivors:
                await observer.metadata(survivor, [])
            used = {survivor: brokers.broker(survivor).cpu_s() for survivor in survivors}
            session = await observer.watch_broker(controller)
            kill(brokers.broker(controller))
            ended = await session

            def is_led_again(partition: Partition, metadata: ClusterMetadata, dead: int = controller) -> bool:
                return dead not in metadata.brokers and is_led(partition, metadata)

            def is_without_the_dead(partition: Partition, _: ClusterMetadata, dead: int = controller) -> bool:
                return dead not in partition.isr

            samples.led_s.append(await observer.until_all(topics, is_led_again, brokers=survivors) - ended)
            samples.written_s.append(await observer.until_all(topics, is_without_the_dead, brokers=survivors) - ended)
            elected = await observer.controller()
            samples.cpu_s.append(brokers.broker(elected).cpu_s() - used[elected])
            await observer.disconnect()
            brokers.start()
            await observer.until_all(topics, is_in_sync)
    return samples


if __name__ == "__main__":
    main()

"""Measures how long a broker that leads 500 partitions takes to hand them over and stop.

    python -m benchmarks.controlled_shutdown [--runs 5] [--partitions 1500] [--apache 2.8.2]

Three brokers, every partition with three replicas, so that each broker leads a third of them.  One that is not the
controller gets SIGTERM.  Two times are measured: until the metadata of another broker names it as leader of no
partition, and until the process has ended.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from benchmarks.harness.cluster import BROKERS, Cluster, Observer, cluster, is_in_sync, kill, parser, poll
from benchmarks.harness.report import Figure, report
from kctl.admin.placement.election import ElectionType, elect_leaders
from kctl.client.metadata import ClusterMetadata, Partition

SIGTERM = 15


def main() -> None:
    arguments = parser(__doc__, runs=5)
    arguments.add_argument("--partitions", type=int, default=1500)
    options = arguments.parse_args()
    with cluster(options) as brokers:
        runs = asyncio.run(measure(brokers, options.partitions, options.runs))
    handed_over, stopped = zip(*runs, strict=True)
    figures = [
        Figure("SIGTERM to leading nothing", "s", handed_over, "< 2"),
        Figure("SIGTERM to the end of the process", "s", stopped),
    ]
    conditions = {"runs": options.runs, "partitions": options.partitions}
    report("controlled_shutdown", figures, subject=options.apache or "kctl", **conditions)


async def measure(brokers: Cluster, partitions: int, runs: int) -> list[tuple[float, float]]:
    """For each run: seconds to leading nothing, and to the end of the process."""
    outcomes = []
    async with Observer(brokers) as observer:
        topics = await observer.create(partitions)
        for _ in range(runs):
            controller = await observer.controller()
            leaving, staying = (broker_id for broker_id in BROKERS if broker_id != controller)
            await observer.metadata(staying, [])
            pid = brokers.broker(leaving).pid
            reported = kill(brokers.broker(leaving), SIGTERM)

            def is_led_by_another(partition: Partition, _: ClusterMetadata, leaving: int = leaving) -> bool:
                return partition.leader >= 0 and partition.leader != leaving

            handed_over = await observer.until_all(topics, is_led_by_another, brokers=[staying]) - reported
            outcomes.append(
                (handed_over, await poll(partial(has_ended, pid), what="the end of the process") - reported)
            )
            await observer.disconnect()
            brokers.start()
            await observer.until_all(topics, is_in_sync)
            await lead_evenly(observer)
    return outcomes


async def lead_evenly(observer: Observer) -> None:
    """Preferred leaders lead again."""
    client = observer.client(0)
    await elect_leaders(client, ElectionType.PREFERRED, None, await client.metadata())


async def has_ended(pid: int) -> bool:
    return state_of(pid) in {None, "Z"}


def state_of(pid: int) -> str | None:
    """The letter of /proc; Z is a process that has ended and whose status has not been read yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


if __name__ == "__main__":
    main()

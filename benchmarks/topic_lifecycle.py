"""Measures how long a topic with 1,000 partitions and three replicas takes to be created and deleted.

    python -m benchmarks.topic_lifecycle [--runs 5] [--partitions 1000] [--apache 2.8.2]

Three brokers.  Creation ends when the metadata of every broker has a live leader and all replicas in sync for each
partition, deletion when the response to DeleteTopics arrives.  Processor time is that of the three brokers together.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.harness.cluster import BROKERS, Cluster, Observer, cluster, is_in_sync, parser
from benchmarks.harness.report import Figure, report
from kctl.admin.topics.topics import NewTopic, create_topics, delete_topics


def main() -> None:
    arguments = parser(__doc__, runs=5)
    arguments.add_argument("--partitions", type=int, default=1000)
    options = arguments.parse_args()
    with cluster(options) as brokers:
        runs = asyncio.run(measure(brokers, options.partitions, options.runs))
    created, creating, deleted, deleting = zip(*runs, strict=True)
    figures = [
        Figure("creation until all are in sync", "s", created),
        Figure("three brokers meanwhile", "CPU s", creating),
        Figure("deletion until the response", "s", deleted),
        Figure("three brokers meanwhile", "CPU s", deleting),
    ]
    conditions = {"runs": options.runs, "partitions": options.partitions}
    report("topic_lifecycle", figures, subject=options.apache or "kctl", **conditions)


async def measure(brokers: Cluster, partitions: int, runs: int) -> list[tuple[float, float, float, float]]:
    """For each run: seconds and processor seconds of the creation and of the deletion."""
    outcomes = []
    async with Observer(brokers) as observer:
        client = observer.client(0)
        for run in range(runs):
            topic = f"bench-{run}"
            used, started = cpu_s(brokers), time.perf_counter()
            (created,) = await create_topics(client, [NewTopic(topic, partitions, len(BROKERS))])
            assert created.outcome.is_done, created.outcome
            creation_s = await observer.until_all([topic], is_in_sync) - started
            creation_cpu_s = cpu_s(brokers) - used
            used, started = cpu_s(brokers), time.perf_counter()
            (deleted,) = await delete_topics(client, [topic])
            assert deleted.is_done, deleted
            outcomes.append((creation_s, creation_cpu_s, time.perf_counter() - started, cpu_s(brokers) - used))
    return outcomes


def cpu_s(brokers: Cluster) -> float:
    """Processor seconds that the brokers have used since their starts."""
    return sum(brokers.broker(broker_id).cpu_s() for broker_id in BROKERS)


if __name__ == "__main__":
    main()

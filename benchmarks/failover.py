"""Measures the time from `kill -9` of a leader to the first produce with acks=all that succeeds.

    python -m benchmarks.failover [--runs 5] [--session-timeout-ms 6000] [--apache 2.8.2]

Three brokers, one partition with three replicas.  Most of the time is ZooKeeper's: it expires the session of the
killed broker one time-out after its last heartbeat.  The rest is the broker's: the controller elects a leader and sends
LeaderAndIsr and UpdateMetadata, the new leader starts, and its follower looks up the epoch's end and fetches.  The
client requests metadata and produces every few milliseconds; the backoff of other clients adds to the result.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.harness.cluster import BROKERS, Cluster, Observer, cluster, is_in_sync, kill, parser, poll
from benchmarks.harness.report import Figure, report
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record

ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 5_000


def main() -> None:
    options = parser(__doc__, runs=5).parse_args()
    with cluster(options) as brokers:
        runs = asyncio.run(measure(brokers, options.runs))
    totals, sessions, rests = zip(*runs, strict=True)
    figures = [
        Figure("kill -9 to first produce", "s", totals),
        Figure("of that until the session ended", "s", sessions),
        Figure("from then to first produce", "s", rests, "< 2"),
    ]
    conditions = {"runs": options.runs, "session_timeout_ms": options.session_timeout_ms}
    report("failover", figures, subject=options.apache or "kctl", **conditions)


async def measure(brokers: Cluster, runs: int) -> list[tuple[float, float, float]]:
    """For each run: seconds from the kill to the first produce, to the end of the session, and between the two."""
    outcomes = []
    async with Observer(brokers) as observer:
        (topic,) = await observer.create(1)
        for _ in range(runs):
            metadata = await observer.metadata(0, [topic])
            assert metadata is not None
            leader = metadata.topics[topic].partitions[0].leader
            survivor = next(broker_id for broker_id in BROKERS if broker_id != leader)
            assert await produces(observer.client(leader), leader, topic)
            session = await observer.watch_broker(leader)
            killed = kill(brokers.broker(leader))
            attempt = partial(has_produced, observer, survivor, topic, dead=leader)
            produced = await poll(attempt, what="a produce to the new leader")
            ended = await session
            outcomes.append((produced - killed, ended - killed, produced - ended))
            await observer.disconnect()
            brokers.start()
            await observer.until_all([topic], is_in_sync)
    return outcomes


async def has_produced(observer: Observer, survivor: int, topic: str, *, dead: int) -> bool:
    """One attempt, if the metadata of the remaining broker has a new leader."""
    metadata = await observer.metadata(survivor, [topic])
    if metadata is None:
        return False
    leader = metadata.topics[topic].partitions[0].leader
    if leader == dead or leader not in metadata.brokers:
        return False
    return await produces(observer.client(survivor), leader, topic)


async def produces(client: ClusterClient, leader: int, topic: str) -> bool:
    """Whether the leader takes a record that all in-sync replicas must have."""
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, b"value")])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=ACKS_ALL, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data])
    try:
        response = await (await client.broker(leader)).send(request, ProduceResponse)
    except (ConnectionLost, ApiError):
        return False
    return response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


if __name__ == "__main__":
    main()

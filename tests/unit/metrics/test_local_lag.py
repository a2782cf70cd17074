"""The lag that a broker reads from its own state is that which a client of the cluster reads."""

from __future__ import annotations

import random

import pytest

from kctl.admin.groups.lag import LagOptions, LagReader
from kctl.admin.groups.offsets import commit_offsets
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.leaders import on_leaders
from kctl.errors import ApiError
from kctl.lag.rules import GroupLag
from kctl.model import TopicPartition
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.metrics.local_lag import lag_of_groups, read_local_lag, read_missing_lag
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate
from tests.simulation.scene import create_topic

TOPIC = "orders"
PARTITIONS = 12
GROUPS = 4
STEPS = 8
PRODUCERS = (1, 2)
TIME_MS = 1_700_000_000_000
PROPERTIES = {"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"}
Lags = dict[tuple[str, TopicPartition], tuple[int | None, object, int | None, int | None]]


class History:
    """Random contents of a partition."""

    def __init__(self, chance: random.Random, tp: TopicPartition) -> None:
        self._chance = chance
        self._tp = tp
        self._sequences = dict.fromkeys(PRODUCERS, 0)
        self._open: set[int] = set()

    async def write(self, connection: Connection) -> None:
        """Plain batches, small and large, and transactions that are committed, aborted or left open."""
        for _ in range(self._chance.randrange(STEPS)):
            producer = self._chance.choice(PRODUCERS)
            if producer in self._open and self._chance.random() < 0.5:
                await self._end(connection, producer)
            else:
                await self._produce(connection, self._chance.choice((None, producer, producer)))

    async def _produce(self, connection: Connection, producer: int | None) -> None:
        size = self._chance.choice((1, 1, 1, 30_000, 200_000))
        count = self._chance.randint(1, 3)
        records = [
            Record(number, TIME_MS + self._chance.randrange(10**9), None, b"v" * size) for number in range(count)
        ]
        if producer is None:
            batch = build_batch(records)
        else:
            sequence = self._sequences[producer]
            batch = build_batch(
                records, producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True
            )
            self._sequences[producer] += count
            self._open.add(producer)
        data = PartitionProduceData(index=self._tp.partition, records=batch)
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(transactional_id="t", acks=-1, timeout_ms=30_000, topic_data=[topic])
        response = await connection.send(request, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 0

    async def _end(self, connection: Connection, producer: int) -> None:
        marker = WritableTxnMarker(
            producer_id=producer,
            producer_epoch=0,
            transaction_result=self._chance.random() < 0.5,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[self._tp.partition])],
            coordinator_epoch=0,
        )
        await connection.send(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        self._open.discard(producer)


def compared(groups: list[GroupLag]) -> Lags:
    return {
        (group.outcome.name, partition.tp): (
            partition.committed,
            partition.log or partition.error,
            partition.judgement.lag if partition.judgement else None,
            partition.judgement.time_lag_ms if partition.judgement else None,
        )
        for group in groups
        for partition in group.partitions
    }


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_lag_is_that_which_a_client_reads(seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        chance = random.Random(seed)
        cluster = SimCluster(loop, properties=PROPERTIES)
        await cluster.start(3)
        async with cluster.client() as client:
            await fill(client, chance)
            found: Lags = {}
            missing = 0
            for broker in cluster.brokers.values():
                assert broker.broker is not None
                parts = broker.broker._parts
                assert parts is not None
                local = await read_local_lag(parts.groups, parts.replicas)
                missing += len(local.missing)
                await read_missing_lag(client, local)
                found.update(compared(lag_of_groups(local, TIME_MS + 10**9)))
            reader = LagReader(LagOptions(with_rates=False))
            expected: Lags = {}
            for number in range(GROUPS):
                # One at a time: groups that are read together share responses, and count more records.
                expected.update(compared(await reader.read(client, [f"g{number}"], TIME_MS + 10**9)))
        await cluster.stop()
        assert found.keys() == expected.keys()
        different = {key: lag for key, lag in found.items() if lag != expected[key]}
        for key, lag in different.items():
            # All groups of a broker share the bytes that are searched: fewer records are known not to be read.
            read = expected[key]
            assert (*lag[:2], lag[3]) == (*read[:2], read[3]), key
            assert lag[2] is not None, key
            assert read[2] is not None, key
            assert lag[2] > read[2], key
        assert len(different) <= len(found) // 20
        assert 0 < missing < len(found) == GROUPS * PARTITIONS
        assert len({lag[2:] for lag in found.values()}) > 10

    simulate(main, seed=seed)


async def fill(client: ClusterClient, chance: random.Random) -> None:
    await create_topic(client, TOPIC, PARTITIONS)
    tps = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]

    async def write(connection: Connection, some: list[TopicPartition]) -> dict[TopicPartition, ApiError | None]:
        for tp in some:
            await History(chance, tp).write(connection)
        return dict.fromkeys(some)

    await on_leaders(client, tps, write)
    for number in range(GROUPS):
        await commit_offsets(client, f"g{number}", {tp: CommittedOffset(chance.randrange(8)) for tp in tps})

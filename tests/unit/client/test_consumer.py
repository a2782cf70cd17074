"""A consumer reads every visible record once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.fetching import FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchRequest, FetchResponse
from kctl.records.build import build_batch
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import CorruptBatch, Record
from tests.unit.client.calls import call
from tests.unit.client.fake_cluster import DROP, FakeCluster, FakePartition
from tests.unit.client.transports_without_pauses import NoPauseBlockingTransport

T = TypeVar("T")
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as started:
        yield started


def batch(*values: str, **rest: Any) -> bytes:
    return build_batch([Record(0, 1_000, None, value.encode()) for value in values], **rest)


def values_of(polled: list[tuple[TopicPartition, list[Record]]]) -> dict[str, list[str]]:
    return {str(tp): [(record.value or b"").decode() for record in records] for tp, records in polled}


def poll_values(cluster: FakeCluster, positions: dict[TopicPartition, int], polls: int = 1, **rest: Any) -> list[str]:
    async def work(client: ClusterClient) -> list[str]:
        consumer = Consumer(client, positions, **rest)
        values: list[str] = []
        for _ in range(polls):
            for of_partition in values_of(await consumer.poll()).values():
                values.extend(of_partition)
        return values

    return call(cluster, work)


def test_records_before_the_position_are_left_out(cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders")
    partition.append(batch("a", "b", "c"))
    assert poll_values(cluster, {ORDERS: 1}) == ["b", "c"]


def test_cut_off_batch_is_read_with_the_next_fetch(cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders")
    partition.append(batch("a" * 50))
    partition.append(batch("b" * 50))
    limits = FetchLimits(partition_max_bytes=len(partition.data) - 10)
    assert poll_values(cluster, {ORDERS: 0}, polls=2, limits=limits) == ["a" * 50, "b" * 50]


def test_records_of_all_leaders_are_returned_in_order(cluster: FakeCluster) -> None:
    for index, partition in enumerate(cluster.create("orders", leaders=[1, 0])):
        partition.append(batch(f"p{index}"))
    positions = {TopicPartition("orders", index): 0 for index in (1, 0)}
    assert poll_values(cluster, positions) == ["p0", "p1"]


def transactional(partition: FakePartition) -> None:
    """Producer 7 aborts x and commits z; producer 8 commits y in between."""
    ids: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    partition.append(batch("plain"))
    partition.append(batch("x", producer_id=7, **ids))
    partition.append(batch("y", producer_id=8, **ids))
    partition.append(marker(ControlType.ABORT, 7))
    partition.append(batch("z", producer_id=7, **ids))
    partition.append(marker(ControlType.COMMIT, 8))
    partition.append(marker(ControlType.COMMIT, 7))
    partition.aborted = [(1, 7)]


def marker(kind: ControlType, producer_id: int) -> bytes:
    ending = EndTransactionMarker(kind, coordinator_epoch=0)
    return build_end_transaction_marker(ending, producer_id=producer_id, producer_epoch=0, timestamp=1_000)


def test_aborted_records_and_markers_are_filtered(cluster: FakeCluster) -> None:
    transactional(cluster.create("orders")[0])
    assert poll_values(cluster, {ORDERS: 0}) == ["plain", "y", "z"]


def test_read_uncommitted_returns_all_but_markers(cluster: FakeCluster) -> None:
    transactional(cluster.create("orders")[0])
    values = poll_values(cluster, {ORDERS: 0}, isolation=IsolationLevel.READ_UNCOMMITTED)
    assert values == ["plain", "x", "y", "z"]


def test_position_advances_over_filtered_records(cluster: FakeCluster) -> None:
    partition = cluster.create("orders")[0]
    transactional(partition)

    async def work(client: ClusterClient) -> int:
        consumer = Consumer(client, {ORDERS: 5})
        assert await consumer.poll() == []
        return consumer.positions[ORDERS]

    assert call(cluster, work) == partition.end == 7


def test_reading_continues_at_the_new_leader(cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders", leaders=[0])
    partition.append(batch("a"))

    def move(_: Any) -> None:
        partition.leader = 1

    cluster.intercept(FetchRequest, move)
    assert poll_values(cluster, {ORDERS: 0}, polls=2) == ["a"]
    assert [broker for broker, _ in cluster.requested(FetchRequest)] == [0, 1]


def follow(cluster: FakeCluster, *, error: ErrorCode = ErrorCode.NONE) -> None:
    """Broker 0 is the leader and names broker 1 as preferred read replica, which has the same records, or an error."""

    def reply(request: FetchRequest) -> FetchResponse | None:
        broker, _ = cluster.requests[-1]
        response: FetchResponse = cluster._fetch(0, request)
        for topic in response.responses:
            for partition in topic.partitions:
                if broker == 0 and request.rack_id == "near":
                    partition.preferred_read_replica, partition.records = 1, b""
                elif broker == 1 and error is not ErrorCode.NONE:
                    partition.error_code, partition.records = error, b""
        return response

    cluster.intercept(FetchRequest, reply)


def read_near(cluster: FakeCluster, polls: int) -> tuple[list[str], list[int]]:
    """The records read by a consumer in the rack, and the brokers it fetched from."""

    async def main() -> list[str]:
        settings = cluster.settings()._replace(rack="near")
        async with ClusterClient(settings, BlockingTransport()) as client:
            consumer = Consumer(client, {ORDERS: 0}, limits=FetchLimits(partition_max_bytes=80))
            return [
                (record.value or b"").decode()
                for _ in range(polls)
                for _, got in await consumer.poll()
                for record in got
            ]

    return run_blocking(main()), [broker for broker, _ in cluster.requested(FetchRequest)]


def test_a_consumer_with_a_rack_reads_from_the_preferred_read_replica(cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders", leaders=[0])
    partition.append(batch("a"))
    partition.append(batch("b"))
    follow(cluster)
    assert read_near(cluster, polls=2) == (["a", "b"], [0, 1, 1])


@pytest.mark.parametrize("error", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_errors_of_a_preferred_read_replica_fall_back_to_the_leader(cluster: FakeCluster, error: ErrorCode) -> None:
    cluster.create("orders", leaders=[0])[0].append(batch("a"))
    follow(cluster, error=error)
    assert read_near(cluster, polls=2) == ([], [0, 1, 0, 1])


def test_a_consumer_without_a_rack_reads_from_the_leader(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[0])[0].append(batch("a"))
    follow(cluster)
    assert poll_values(cluster, {ORDERS: 0}) == ["a"]


def test_permanently_unavailable_leader_ends_reading(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[0])
    cluster.intercept(FetchRequest, lambda _: DROP)

    async def work(client: ClusterClient) -> None:
        consumer = Consumer(client, {ORDERS: 0})
        while True:
            await consumer.poll()

    with pytest.raises(ClusterUnreachable, match="cannot continue to read"):
        call(cluster, work, NoPauseBlockingTransport)


def test_offset_outside_of_the_log_is_an_error_that_names_it(cluster: FakeCluster) -> None:
    cluster.create("orders")
    with pytest.raises(ApiError, match="orders-0 at offset 99") as caught:
        poll_values(cluster, {ORDERS: 99})
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_error_of_one_partition_loses_no_records_of_another(cluster: FakeCluster) -> None:
    for partition in cluster.create("orders", leaders=[0, 0]):
        partition.append(batch("a"))
    positions = {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 99}

    async def work(client: ClusterClient) -> dict[str, list[str]]:
        consumer = Consumer(client, positions)
        with pytest.raises(ApiError, match="orders-1 at offset 99"):
            await consumer.poll()
        assert consumer.positions == positions
        return values_of(await Consumer(client, {**consumer.positions, TopicPartition("orders", 1): 0}).poll())

    assert call(cluster, work) == {"orders-0": ["a"], "orders-1": ["a"]}


def test_broker_that_supports_only_old_record_formats_is_refused(cluster: FakeCluster) -> None:
    cluster.versions |= {1: (0, 3), 3: (0, 2)}
    cluster.create("orders")
    with pytest.raises(ApiError, match=r"older than Kafka 0\.11, which is the minimum"):
        poll_values(cluster, {ORDERS: 0})


def test_damaged_batch_ends_reading_after_earlier_records_and_names_its_offset(cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders")
    for values in (("a", "b"), ("c",)):
        partition.append(batch(*values))
    partition.data[-2] ^= 1
    partition.append(batch("d"))

    async def work(client: ClusterClient) -> None:
        consumer = Consumer(client, {ORDERS: 0})
        assert values_of(await consumer.poll()) == {"orders-0": ["a", "b"]}
        with pytest.raises(CorruptBatch, match=r"^orders-0 at offset 2: wrong checksum$"):
            await consumer.poll()
        assert consumer.positions == {ORDERS: 2}

    call(cluster, work)

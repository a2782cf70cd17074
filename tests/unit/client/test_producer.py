"""A producer keeps the order, batches records, and reports the outcome of each."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.producing.batches import RecordMetadata
from kctl.client.producing.partitioners import DefaultPartitioner, partition_of_key
from kctl.client.producing.producer import Delivery, Producer, ProducerSettings
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kctl.records.compression import Codec
from kctl.records.header import parse_header
from tests.unit.client.fake_cluster import DROP, FakeCluster

PATIENT_MS = 60_000
"""Longer than any test: batches close because they are full or flushed."""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as started:
        yield started


def produce(
    cluster: FakeCluster,
    work: Callable[[Producer], Awaitable[None]],
    timeout_ms: int = 30_000,
    **settings: Any,
) -> list[Delivery]:
    deliveries: list[Delivery] = []

    async def main() -> None:
        async with ClusterClient(cluster.settings()._replace(timeout_ms=timeout_ms), AsyncioTransport()) as client:
            chosen = ProducerSettings(**({"linger_ms": PATIENT_MS} | settings))
            producer = Producer(
                client, chosen, deliveries.append, clock_ms=lambda: 1_000, partitioner=DefaultPartitioner(lambda _: 0)
            )
            await work(producer)
            await producer.flush()

    asyncio.run(main())
    return deliveries


def sending(*values: str, topic: str = "orders", **rest: Any) -> Callable[[Producer], Awaitable[None]]:
    async def work(producer: Producer) -> None:
        for value in values:
            await producer.send(topic, value.encode(), **rest)

    return work


def refusing(code: ErrorCode, times: int, *records: str, message: str | None = None) -> Callable[[Any], Any]:
    """Refuses so many requests with a code and texts about records, then accepts them."""
    left = [times]

    def response(request: Any) -> Any:
        if left[0] == 0:
            return None
        left[0] -= 1
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=partition.index,
                            error_code=code,
                            base_offset=-1,
                            error_message=message,
                            record_errors=[
                                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                                for index, text in enumerate(records)
                            ],
                        )
                        for partition in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    return response


def headers_of(cluster: FakeCluster) -> list[Any]:
    return [
        parse_header(bytes(request.topic_data[0].partition_data[0].records))
        for _, request in cluster.requested(ProduceRequest)
    ]


def test_records_become_one_batch(cluster: FakeCluster) -> None:
    cluster.create("orders")
    (delivery,) = produce(cluster, sending("a", "b", "c"))
    assert (delivery.base_offset, delivery.error, len(delivery.records)) == (0, None, 3)
    assert [record.value for record in cluster.records_of("orders", 0)] == [b"a", b"b", b"c"]


def test_full_batch_is_closed(cluster: FakeCluster) -> None:
    cluster.create("orders")
    by_count = produce(cluster, sending(*"abcde"), batch_records=2)
    assert [len(delivery.records) for delivery in by_count] == [2, 2, 1]
    by_size = produce(cluster, sending("x" * 100, "y" * 100), batch_bytes=200)
    assert [len(delivery.records) for delivery in by_size] == [1, 1]


@pytest.mark.parametrize("batch_bytes", [60, 200, 1_000, 100_000])
@pytest.mark.parametrize("batch_records", [1, 7, 1_000])
def test_run_of_values_is_divided_into_batches_as_single_records_are(
    cluster: FakeCluster, batch_bytes: int, batch_records: int
) -> None:
    values = [b"x" * (number * 37 % 150) for number in range(100)]
    shared: dict[str, Any] = {"key": b"k", "headers": [("h", b"1")], "partition": 1}

    async def one_by_one(producer: Producer) -> None:
        for value in values:
            await producer.send("single", value, timestamp_ms=1_000, **shared)

    async def as_runs(producer: Producer) -> None:
        done = 0
        while done < len(values):
            count = producer.send_run_at_once("runs", values[done : done + 40], **shared)
            if count == 0:
                await producer.ready("runs")
            done += count

    for topic in ("single", "runs"):
        cluster.create(topic, leaders=2)
    limits: dict[str, Any] = {"batch_bytes": batch_bytes, "batch_records": batch_records}
    single, runs = produce(cluster, one_by_one, **limits), produce(cluster, as_runs, **limits)
    assert [delivery.records for delivery in runs] == [delivery.records for delivery in single]
    assert cluster.records_of("runs", 1) == cluster.records_of("single", 1)
    assert [record.value for record in cluster.records_of("runs", 1)] == values


def test_run_without_partition_goes_to_one_partition_per_batch(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=2)

    async def work(producer: Producer) -> None:
        assert producer.send_run_at_once("orders", [b"a"]) == 0, "the partitions are not known yet"
        await producer.ready("orders")
        assert producer.send_run_at_once("orders", []) == 0
        for left in ([b"a", b"b", b"c", b"d"], [b"c", b"d"]):
            assert producer.send_run_at_once("orders", left) == 2

    produce(cluster, work, batch_records=2)
    assert [[record.value for record in cluster.records_of("orders", number)] for number in (0, 1)] == [
        [b"a", b"b"],
        [b"c", b"d"],
    ]


def test_halves_of_a_batch_that_is_too_large_for_the_topic_are_sent_in_order(cluster: FakeCluster) -> None:
    cluster.create("orders")
    in_time = refusing(ErrorCode.MESSAGE_TOO_LARGE, 10)

    def refuse_several(request: Any) -> Any:
        batch = parse_header(bytes(request.topic_data[0].partition_data[0].records))
        return in_time(request) if batch.record_count > 2 else None

    cluster.intercept(ProduceRequest, refuse_several)
    results: list[RecordMetadata | KctlError] = []

    async def work(producer: Producer) -> None:
        for value in "abcde":
            await producer.send("orders", value.encode(), on_result=results.append)

    deliveries = produce(cluster, work)
    assert [delivery.error for delivery in deliveries] == [None] * 3
    assert [record.value for record in cluster.records_of("orders", 0)] == [b"a", b"b", b"c", b"d", b"e"]
    assert [result.offset for result in results if isinstance(result, RecordMetadata)] == [0, 1, 2, 3, 4]
    sent = [(header.record_count, header.base_sequence) for header in headers_of(cluster)]
    assert sent == [(5, 0), (2, 0), (3, 2), (1, 2), (2, 3)]


def test_batches_are_smaller_after_a_refusal(cluster: FakeCluster) -> None:
    cluster.create("orders")
    once = refusing(ErrorCode.MESSAGE_TOO_LARGE, 1)
    cluster.intercept(ProduceRequest, once)

    async def work(producer: Producer) -> None:
        for _ in range(2):
            await sending(*["x" * 100] * 8)(producer)
            await producer.flush()

    produce(cluster, work, batch_bytes=1000)
    assert [header.record_count for header in headers_of(cluster)] == [8, 4, 4, 4, 4]


def test_one_record_that_is_too_large_fails(cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.intercept(ProduceRequest, refusing(ErrorCode.MESSAGE_TOO_LARGE, 1))
    (delivery,) = produce(cluster, sending("a"))
    assert isinstance(delivery.error, ApiError)
    assert delivery.error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_lingering_batch_is_closed_by_time(cluster: FakeCluster) -> None:
    cluster.create("orders")
    delivered: list[Delivery] = []

    async def main() -> None:
        async with ClusterClient(cluster.settings(), AsyncioTransport()) as client:
            arrival = asyncio.Event()

            def deliver(delivery: Delivery) -> None:
                delivered.append(delivery)
                arrival.set()

            producer = Producer(client, ProducerSettings(linger_ms=1), deliver)
            await producer.send("orders", b"a")
            await arrival.wait()  # without any flush

    asyncio.run(main())
    assert [delivery.error for delivery in delivered] == [None]


def test_keys_headers_and_timestamps_arrive(cluster: FakeCluster) -> None:
    cluster.create("orders")
    produce(cluster, sending("v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp_ms=77))
    (record,) = cluster.records_of("orders", 0)
    assert (record.key, record.value, record.headers, record.timestamp) == (b"k", b"v", (("h", b"1"), ("h", None)), 77)


def test_key_decides_the_partition(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=4)
    produce(cluster, sending("v", key=b"customer-1"))
    assert len(cluster.records_of("orders", partition_of_key(b"customer-1", 4))) == 1


def test_records_without_key_change_partition_with_each_batch(cluster: FakeCluster) -> None:
    """KIP-480."""
    cluster.create("orders", leaders=3)
    produce(cluster, sending(*"abcdef"), batch_records=2)
    counts = [len(cluster.records_of("orders", partition)) for partition in range(3)]
    assert counts == [2, 2, 2]


def test_codec_is_used(cluster: FakeCluster) -> None:
    cluster.create("orders")
    produce(cluster, sending("a" * 500), codec=Codec.GZIP)
    assert headers_of(cluster)[0].codec is Codec.GZIP
    assert cluster.records_of("orders", 0)[0].value == b"a" * 500


def test_sequence_numbers_count_records(cluster: FakeCluster) -> None:
    cluster.create("orders")
    produce(cluster, sending(*"abcde"), batch_records=2)
    assert [header.base_sequence for header in headers_of(cluster)] == [0, 2, 4]
    assert {header.producer_id for header in headers_of(cluster)} == {4001}


def test_producer_id_request_is_retried_while_the_broker_fetches_a_block(cluster: FakeCluster) -> None:
    cluster.create("orders")
    loading = [InitProducerIdResponse(error_code=14, producer_epoch=0)]
    cluster.intercept(InitProducerIdRequest, lambda _: loading.pop() if loading else None)
    (delivery,) = produce(cluster, sending("a"))
    assert delivery.error is None
    assert len(cluster.requested(InitProducerIdRequest)) == 2


def test_batch_with_a_lost_response_is_resent_as_it_was(cluster: FakeCluster) -> None:
    """CVE-2026-35554: Kafka's producer reused the buffer of a batch that was still in flight for another topic."""
    topics = ("orders", "refunds")
    for topic in topics:
        cluster.create(topic)
    drops = [DROP, DROP]
    cluster.intercept(ProduceRequest, lambda _: drops.pop() if drops else None)

    async def send_to_both(producer: Producer) -> None:
        for number in range(20):  # Further batches are built while the first ones are in flight and sent again.
            for topic in topics:
                await producer.send(topic, f"{topic} {number}".encode())

    deliveries = produce(cluster, send_to_both, batch_records=4)
    assert [delivery.error for delivery in deliveries] == [None] * 10
    assert not drops
    for topic in topics:
        expected = [f"{topic} {number}".encode() for number in range(20)]
        assert [record.value for record in cluster.records_of(topic, 0)] == expected
    sent: dict[tuple[str, int], set[bytes]] = {}
    for _, request in cluster.requested(ProduceRequest):
        for data in request.topic_data:
            records = bytes(data.partition_data[0].records)
            sent.setdefault((data.name, parse_header(records, 0).base_sequence), set()).add(records)
    assert len(sent) == 10
    assert all(len(versions) == 1 for versions in sent.values())


def test_batch_follows_its_leader(cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders", leaders=[0])

    def move(_: Any) -> None:
        partition.leader = 1

    cluster.intercept(ProduceRequest, move)
    (delivery,) = produce(cluster, sending("a"))
    assert delivery.error is None
    assert [broker for broker, _ in cluster.requested(ProduceRequest)] == [0, 1]


def test_retriable_error_is_retried(cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.intercept(ProduceRequest, refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 2))
    (delivery,) = produce(cluster, sending("a"))
    assert (delivery.error, delivery.base_offset) == (None, 0)


def test_fatal_error_is_raised_and_later_batches_get_a_new_epoch(cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.intercept(ProduceRequest, refusing(ErrorCode.MESSAGE_TOO_LARGE, 1))
    refused, written = produce(cluster, sending("a", "b"), batch_records=1)
    assert isinstance(refused.error, ApiError)
    assert refused.error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert written.error is None
    sent = [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers_of(cluster)]
    assert sent[0] == (4001, 0, 0)
    assert sent[-1] == (4001, 1, 0), "KIP-360"
    assert [record.value for record in cluster.records_of("orders", 0)] == [b"b"]


def test_error_has_the_reason_for_the_first_record(cluster: FakeCluster) -> None:
    cluster.create("orders")
    reply = refusing(ErrorCode.INVALID_RECORD, 1, "it has no key", "nor has this", message="Records were rejected")
    cluster.intercept(ProduceRequest, reply)
    (refused,) = produce(cluster, sending("a", "b"))
    assert "Records were rejected (it has no key and 1 more)" in str(refused.error)


@pytest.mark.long
def test_persistent_retriable_error_ends_with_the_timeout(cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.intercept(ProduceRequest, refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 1_000))
    (delivery,) = produce(cluster, sending("a"), timeout_ms=500)
    assert isinstance(delivery.error, ApiError)
    assert delivery.error.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_acks_0_gets_no_response(cluster: FakeCluster) -> None:
    cluster.create("orders")
    (delivery,) = produce(cluster, sending("a"), acks=0, idempotent=False)
    assert (delivery.base_offset, delivery.error) == (-1, None)
    assert cluster.requested(InitProducerIdRequest) == []


def test_topic_that_does_not_exist_is_refused_at_once(cluster: FakeCluster) -> None:
    with pytest.raises(ApiError, match="topic 'nope' does not exist"):
        produce(cluster, sending("a", topic="nope"))


def test_sender_waits_while_too_many_records_are_in_flight(cluster: FakeCluster) -> None:
    cluster.create("orders")
    deliveries = produce(cluster, sending(*map(str, range(50))), batch_records=5, buffered_records_max=10)
    assert sum(len(delivery.records) for delivery in deliveries) == 50
    assert [record.value for record in cluster.records_of("orders", 0)] == [b"%d" % number for number in range(50)]


def test_five_batches_of_a_partition_are_in_flight_with_idempotence_and_one_without(cluster: FakeCluster) -> None:
    cluster.create("orders")
    most = [0]
    arrival, is_released = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        arrival.set()
        is_released.wait(30)

    cluster.intercept(ProduceRequest, hold)

    async def work(producer: Producer) -> None:
        for number in range(20):
            await producer.send("orders", b"%d" % number)
        await asyncio.to_thread(arrival.wait, 30)
        most[0] = int(producer.metrics()["requests_in_flight"])
        is_released.set()

    for settings, expected in (
        ({}, 5),
        ({"in_flight_max": 2}, 2),
        ({"idempotent": False, "acks": 1}, 1),
    ):
        is_released.clear()
        arrival.clear()
        deliveries = produce(cluster, work, batch_records=1, **settings)
        assert most[0] == expected, settings
        assert [delivery.error for delivery in deliveries] == [None] * 20, settings
    assert [int(record.value) for record in cluster.records_of("orders", 0)] == [*range(20)] * 3


@pytest.mark.long
def test_pauses_between_attempts_to_connect_grow(cluster: FakeCluster) -> None:
    """reconnect.backoff.ms and reconnect.backoff.max.ms."""
    cluster.create("orders", leaders=[1])
    cluster.kill(1)
    times: list[float] = []

    class Counting(AsyncioTransport):
        async def connect(self, host: str, port: int, **options: Any) -> Any:
            if port == cluster.ports[1]:
                times.append(asyncio.get_running_loop().time())
            return await super().connect(host, port, **options)

    async def main() -> None:
        settings = cluster.settings()._replace(
            timeout_ms=1_000, reconnect_backoff_ms=100, reconnect_backoff_ms_max=400, retry_backoff_ms=1
        )
        async with ClusterClient(settings, Counting()) as client:
            producer = Producer(client, ProducerSettings(linger_ms=0), jitter=lambda: 1.0)
            await producer.send("orders", b"a")
            await producer.flush()
            assert isinstance(producer.failure, KctlError)
            assert producer.metrics()["connections_failed_total"] == len(times)
            await producer.stop()

    asyncio.run(main())
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(pause >= least for pause, least in zip(pauses, (0.1, 0.2, 0.4), strict=False)), pauses
    assert len(times) >= 2


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.LZ4, 12), (Codec.ZSTD, -7), (Codec.ZSTD, 19)])
def test_levels_of_codecs_are_used(cluster: FakeCluster, codec: Codec, level: int) -> None:
    cluster.create("orders")
    values = [str(number * number).zfill(100) for number in range(200)]
    sizes = []
    for chosen in (None, level):
        produce(cluster, sending(*values), codec=codec, codec_level=chosen)
        sizes.append(headers_of(cluster)[-1].size)
    assert sizes[0] != sizes[1]
    assert [record.value.decode() for record in cluster.records_of("orders", 0)] == values * 2

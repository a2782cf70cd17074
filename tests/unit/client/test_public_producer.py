"""The producer for applications: results per record, bounded memory, partitioners, interceptors and settings."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kctl.client import (
    AsyncProducer,
    Producer,
    ProducerConfig,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    RoundRobinPartitioner,
    TopicPartition,
)
from kctl.client.producing.partitioners import partition_of_key
from kctl.errors import ApiError, ConfigError, ErrorCode, KctlError, UsageError
from kctl.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kctl.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kctl.protocol.apis.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from tests.unit.client.fake_cluster import FakeCluster

WAIT_S = 60.0


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as started:
        yield started


def config(cluster: FakeCluster, **settings: Any) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers=cluster.bootstrap, **settings)


def refused(request: Any, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def test_each_record_gets_its_own_offset(cluster: FakeCluster) -> None:
    cluster.create("orders")
    with Producer(config(cluster)) as producer:
        futures = [producer.send("orders", value, timestamp_ms=7) for value in ("a", "b", "c")]
        results = [future.result(WAIT_S) for future in futures]
    assert results == [RecordMetadata("orders", 0, offset, 7) for offset in range(3)]
    assert [record.value for record in cluster.records_of("orders", 0)] == [b"a", b"b", b"c"]


def test_records_of_several_threads_all_arrive(cluster: FakeCluster) -> None:
    cluster.create("orders")
    with Producer(config(cluster)) as producer:

        def send(name: str) -> None:
            for number in range(50):
                producer.send("orders", f"{name}{number}")

        threads = [threading.Thread(target=send, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    values = [record.value.decode() for record in cluster.records_of("orders", 0)]
    for name in "ab":
        assert [value for value in values if value[0] == name] == [f"{name}{number}" for number in range(50)]


def test_error_belongs_to_its_records(cluster: FakeCluster) -> None:
    cluster.create("orders")
    with Producer(config(cluster, allow_auto_create_topics=False)) as producer:
        lost = producer.send("missing", "a")
        stored = producer.send("orders", "b")
        assert stored.result(WAIT_S).offset == 0
        error = lost.exception(WAIT_S)
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_full_buffer_refuses_after_max_block(cluster: FakeCluster) -> None:
    cluster.create("orders")
    is_released = threading.Event()

    def respond_later(_: Any) -> None:
        is_released.wait(WAIT_S)

    cluster.intercept(ProduceRequest, respond_later)
    with Producer(config(cluster, buffer_memory=10, max_block_ms=50)) as producer:
        first = producer.send("orders", "x" * 100)
        with pytest.raises(ApiError, match="the buffer was full"):
            producer.send("orders", "y")
        is_released.set()
        assert first.result(WAIT_S).offset == 0
        assert len(cluster.records_of("orders", 0)) == 1


def test_delivery_timeout_fails_the_batch(cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.intercept(ProduceRequest, lambda request: refused(request, ErrorCode.NOT_ENOUGH_REPLICAS))
    with Producer(config(cluster, delivery_timeout_ms=200)) as producer:
        error = producer.send("orders", "a").exception(WAIT_S)
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert cluster.records_of("orders", 0) == []


def test_batch_is_retried_beyond_the_request_timeout(cluster: FakeCluster) -> None:
    cluster.create("orders")
    refusals = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    cluster.intercept(ProduceRequest, lambda request: refused(request, refusals.pop()) if refusals else None)
    with Producer(config(cluster, request_timeout_ms=60)) as producer:
        assert producer.send("orders", "a").result(WAIT_S).offset == 0
    assert [record.value for record in cluster.records_of("orders", 0)] == [b"a"]


def test_transaction_in_which_nothing_is_ends_without_the_coordinator(cluster: FakeCluster) -> None:
    denied = AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    cluster.intercept(AddOffsetsToTxnRequest, lambda _: denied)
    cluster.intercept(EndTxnRequest, lambda _: EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
    with Producer(config(cluster, transactional_id="loader")) as producer:
        for _ in range(2):
            with pytest.raises(ApiError) as raised, producer.transaction():
                producer.send_offsets("billing", {TopicPartition("orders", 0): 1})
            assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_offsets_need_the_topic_of_a_partition(cluster: FakeCluster) -> None:
    offsets: Any = {0: 1}
    with (
        Producer(config(cluster, transactional_id="loader")) as producer,
        pytest.raises(UsageError, match="TopicPartition, not by 0"),
        producer.transaction(),
    ):
        producer.send_offsets("billing", offsets)


def test_next_batch_is_written_after_a_delivery_timeout(cluster: FakeCluster) -> None:
    cluster.create("orders")
    refusing = threading.Event()
    refusing.set()
    cluster.intercept(
        ProduceRequest,
        lambda request: refused(request, ErrorCode.NOT_ENOUGH_REPLICAS) if refusing.is_set() else None,
    )
    with Producer(config(cluster, delivery_timeout_ms=300)) as producer:
        assert producer.send("orders", "a").exception(WAIT_S) is not None
        refusing.clear()
        # On a busy machine one more batch may take longer than the time-out.
        assert any(producer.send("orders", "b").exception(WAIT_S) is None for _ in range(100))
    assert cluster.records_of("orders", 0)[-1].value == b"b"


def test_partitioners_decide(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=3)

    def last(topic: str, key: bytes | None, partition_count: int) -> int:
        return partition_count - 1

    def partitions(**settings: Any) -> list[int]:
        with Producer(config(cluster, **settings)) as producer:
            return [producer.send("orders", "v", key=f"k{i}").result(WAIT_S).partition for i in range(4)]

    assert partitions() == [partition_of_key(f"k{i}".encode(), 3) for i in range(4)]
    assert partitions(partitioner=RoundRobinPartitioner()) == [0, 1, 2, 0]
    assert partitions(partitioner=last) == [2, 2, 2, 2]


def test_added_partitions_are_used_after_the_age_of_metadata(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=1)

    def last(topic: str, key: bytes | None, partition_count: int) -> int:
        return partition_count - 1

    with Producer(config(cluster, partitioner=last, metadata_max_age_ms=0)) as producer:
        assert producer.send("orders", "a").result(WAIT_S).partition == 0
        cluster.create("orders", leaders=3)
        # The metadata is looked up again in the background.
        assert any(producer.send("orders", "b").result(WAIT_S).partition == 2 for _ in range(1_000))


def test_error_of_own_partitioner_is_the_result(cluster: FakeCluster) -> None:
    cluster.create("orders")

    def fails(topic: str, key: bytes | None, partition_count: int) -> int:
        raise ValueError(f"{topic} {key!r} {partition_count}")

    with Producer(config(cluster, partitioner=fails)) as producer:
        assert isinstance(producer.send("orders", "a").exception(WAIT_S), ValueError)
        assert isinstance(producer.send("orders", "b").exception(WAIT_S), ValueError)
    with Producer(config(cluster, partitioner=lambda topic, key, count: count)) as producer:
        assert isinstance(producer.send("orders", "a").exception(WAIT_S), UsageError)


def test_records_pass_through_serializers_and_interceptors(cluster: FakeCluster) -> None:
    cluster.create("orders")
    results: list[RecordMetadata | KctlError] = []

    class Stamp(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(headers=(*record.headers, ("stamp", b"1")))

        def on_result(self, record: ProducerRecord, result: RecordMetadata | KctlError) -> None:
            assert record.value == {"n": 1}
            results.append(result)
            raise RuntimeError("an interceptor must not stop the producer")

    settings = config(cluster, value_serializer=lambda value: json.dumps(value).encode(), interceptors=[Stamp()])
    with Producer(settings) as producer:
        sent = producer.send("orders", {"n": 1}, headers=[("h", None)]).result(WAIT_S)
    (record,) = cluster.records_of("orders", 0)
    assert (record.value, record.headers) == (b'{"n": 1}', (("h", None), ("stamp", b"1")))
    assert results == [sent]


def test_record_too_large_is_refused_at_once(cluster: FakeCluster) -> None:
    cluster.create("orders")
    with Producer(config(cluster, max_request_size=100)) as producer:
        with pytest.raises(ApiError, match=r"max\.request\.size=100"):
            producer.send("orders", "x" * 200)
        with pytest.raises(UsageError, match="int needs a serializer"):
            producer.send("orders", 1)
    with pytest.raises(UsageError, match="closed"):
        producer.send("orders", "a")


def test_async_producer_sends_records(cluster: FakeCluster) -> None:
    cluster.create("orders")

    async def main() -> list[RecordMetadata]:
        async with AsyncProducer(config(cluster, compression_type="gzip")) as producer:
            futures = [await producer.send("orders", value) for value in "ab"]
            return [await future for future in futures]

    assert [result.offset for result in asyncio.run(main())] == [0, 1]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"acks": "1"}, "require acks='all'"),
        ({"acks": "2"}, "acks is '2'"),
        ({"compression_type": "zip"}, "compression_type is 'zip'"),
        ({"transactional_id": "t", "enable_idempotence": False}, "requires enable_idempotence"),
        ({"buffer_memory": 0}, "buffer_memory must be positive"),
    ],
)
def test_contradicting_settings_are_refused(settings: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        ProducerConfig(bootstrap_servers="localhost:9092", **settings)


def test_client_properties_become_settings() -> None:
    properties = {"bootstrap.servers": "a:1,b:2", "acks": "1", "linger.ms": "20", "compression.type": "zstd"}
    made = ProducerConfig.from_properties(properties, linger_ms=30)
    assert (made.acks, made.linger_ms, made.compression_type, made.enable_idempotence) == ("1", 30, "zstd", False)
    secure = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="secret-word";'
            ),
        }
    )
    assert secure.security is not None
    assert secure.security.uses_sasl
    assert "secret-word" not in repr(secure)
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        ProducerConfig.from_properties({"bootstrap.servers": "a:1", "linger.ms": "soon"})

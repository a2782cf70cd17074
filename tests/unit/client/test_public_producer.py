"""The producer for applications: results per record, bounded memory, partitioners, interceptors and settings."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, as_completed, wait
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
from kctl.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kctl.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest
from kctl.protocol.apis.metadata import MetadataRequest
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
                    PartitionProduceResponse(index=partition.index, error_code=code, base_offset=-1)
                    for partition in topic.partition_data
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


def test_flush_in_a_callback_is_refused_and_send_works(cluster: FakeCluster) -> None:
    cluster.create("orders")
    outcomes: list[BaseException | None] = []
    done = threading.Event()

    with Producer(config(cluster)) as producer:

        def call_back(_: Any) -> None:
            for call in (producer.flush, producer.close):
                try:
                    call()
                    outcomes.append(None)
                except UsageError as error:
                    outcomes.append(error)
            producer.send("orders", "b")
            done.set()

        producer.send("orders", "a").add_done_callback(call_back)
        assert done.wait(WAIT_S)
    assert [str(outcome) for outcome in outcomes] == ["a callback must not wait: call this in another thread"] * 2
    assert [record.value for record in cluster.records_of("orders", 0)] == [b"a", b"b"]


def test_flush_and_close_take_a_time_out(cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.intercept(ProduceRequest, lambda request: refused(request, ErrorCode.NOT_ENOUGH_REPLICAS))
    producer = Producer(config(cluster)).__enter__()
    future = producer.send("orders", "a")
    with pytest.raises(ApiError, match="1 record without a result after 50 ms"):
        producer.flush(timeout_ms=50)
    producer.close(timeout_ms=50)
    assert isinstance(future.exception(0), UsageError)
    producer.close()


def test_close_in_another_thread_ends_the_waits(cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.intercept(ProduceRequest, lambda request: refused(request, ErrorCode.NOT_ENOUGH_REPLICAS))
    producer = Producer(config(cluster, buffer_memory=10)).__enter__()
    future = producer.send("orders", "a" * 100)
    errors: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except UsageError as error:
            errors.append(error)

    waits: list[Callable[[], object]] = [producer.flush, lambda: producer.send("orders", "b")]
    threads = [threading.Thread(target=run, args=(call,)) for call in waits]
    for thread in threads:
        thread.start()
    producer.close(timeout_ms=100)
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert isinstance(future.exception(0), UsageError)
    assert [str(error) for error in errors if "closed" not in str(error)] == []


def test_interrupted_flush_stops_no_delivery(cluster: FakeCluster) -> None:
    """Ctrl-C while the main thread waits."""
    cluster.create("orders")
    is_released = threading.Event()

    def interrupt(_: Any) -> None:
        if not is_released.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            is_released.wait(WAIT_S)

    cluster.intercept(ProduceRequest, interrupt)
    with Producer(config(cluster, linger_ms=60_000)) as producer:
        futures = [producer.send("orders", f"{number}") for number in range(1_000)]
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        is_released.set()
        assert [future.result(WAIT_S).offset for future in futures] == list(range(1_000))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_producer_in_a_forked_child_says_so_at_once(cluster: FakeCluster) -> None:
    cluster.create("orders")
    with Producer(config(cluster)) as producer:
        producer.send("orders", "a").result(WAIT_S)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            for call in (lambda: producer.send("orders", "b"), producer.flush):
                try:
                    call()
                    os.write(writing, b"nothing raised\n")
                except UsageError as error:
                    os.write(writing, f"{error}\n".encode())
            producer.close()
            os._exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            lines = pipe.read().splitlines()
        assert os.waitpid(child, 0)[1] == 0
        assert lines == ["the producer was opened before this process was forked: open one in the child process"] * 2
        assert producer.send("orders", "c").result(WAIT_S).offset == 1


def test_unknown_topic_may_be_created_by_the_brokers(cluster: FakeCluster) -> None:
    def create(request: Any) -> None:
        for topic in request.topics or ():
            if request.allow_auto_topic_creation and topic.name not in cluster.topics:
                requested.append(topic.name)
                if len(requested) > 1:  # Apache Kafka returns an error until the topic is there
                    cluster.create(topic.name)

    requested: list[str] = []
    cluster.intercept(MetadataRequest, create)
    with Producer(config(cluster)) as producer:
        assert producer.send("orders", "a").result(WAIT_S).offset == 0
    with Producer(config(cluster, allow_auto_create_topics=False)) as producer:
        assert "topic 'other' does not exist" in str(producer.send("other", "a").exception(WAIT_S))
    assert set(requested) == {"orders"}


def test_futures_are_those_of_the_standard_library(cluster: FakeCluster) -> None:
    cluster.create("orders")

    async def wrapped(future: Future[RecordMetadata]) -> RecordMetadata:
        return await asyncio.wrap_future(future)

    with Producer(config(cluster, linger_ms=20)) as producer:
        futures = [producer.send("orders", "x") for _ in range(10)]
        called: list[int] = []
        futures[0].add_done_callback(lambda done: called.append(done.result().offset))
        assert not futures[0].cancel()
        assert wait(futures, WAIT_S).not_done == set()
        assert sorted(future.result().offset for future in as_completed(futures, WAIT_S)) == list(range(10))
        assert asyncio.run(wrapped(producer.send("orders", "y"))).offset == 10
        futures[0].add_done_callback(lambda done: called.append(done.result().offset))
        assert called == [0, 0]
        with pytest.raises(TimeoutError):
            producer.send("orders", "z").result(0)


def test_call_out_of_order_is_refused(cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.intercept(AddPartitionsToTxnRequest, added)
    cluster.intercept(EndTxnRequest, lambda _: EndTxnResponse(error_code=0))
    with Producer(config(cluster, transactional_id="loader")) as producer:
        with pytest.raises(UsageError, match="call begin_transaction first"):
            producer.send("orders", "a")
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(UsageError, match="not in a transaction"):
                call()
        producer.begin_transaction()
        with pytest.raises(UsageError, match="already in a transaction"):
            producer.begin_transaction()
        cluster.intercept(ProduceRequest, lambda request: refused(request, ErrorCode.INVALID_RECORD))
        assert producer.send("orders", "a").exception(WAIT_S) is not None
        with pytest.raises(ApiError, match="must be aborted"):
            producer.send("orders", "b")
        for _ in range(2):
            with pytest.raises(ApiError) as raised:
                producer.commit_transaction()
            assert raised.value.code is ErrorCode.INVALID_RECORD
        producer.abort_transaction()
        with pytest.raises(UsageError, match="call begin_transaction first"):
            producer.send("orders", "c")
        cluster.intercept(ProduceRequest, lambda _: None)
        with producer.transaction():
            assert producer.send("orders", "d").result(WAIT_S).offset == 0
    ends = [request.committed for _, request in cluster.requested(EndTxnRequest)]
    assert ends == [False, True]
    renewals = [request.producer_id for _, request in cluster.requested(InitProducerIdRequest)]
    assert renewals == [-1, 4001], "the epoch of the same producer is raised (KIP-360)"


def test_fenced_producer_can_only_be_closed(cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.intercept(AddPartitionsToTxnRequest, lambda request: added(request, ErrorCode.PRODUCER_FENCED))
    with Producer(config(cluster, transactional_id="loader")) as producer:
        producer.begin_transaction()
        assert "another producer" in str(producer.send("orders", "a").exception(WAIT_S))
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(ApiError) as raised:
                call()
            assert raised.value.code is ErrorCode.PRODUCER_FENCED
    assert len(cluster.requested(InitProducerIdRequest)) == 1, "it must not fence its successor"


def added(request: Any, code: ErrorCode = ErrorCode.NONE) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_threads_that_close_together_all_return(cluster: FakeCluster) -> None:
    cluster.create("orders")
    for _ in range(20):
        producer = Producer(config(cluster)).__enter__()
        future = producer.send("orders", "a")
        threads = [threading.Thread(target=producer.close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert future.exception(0) is None


def test_producer_whose_id_the_coordinator_has_forgotten_gets_a_new_one(cluster: FakeCluster) -> None:
    """transactional.id.expiration.ms has passed between two transactions."""
    cluster.create("orders")
    cluster.intercept(AddPartitionsToTxnRequest, lambda request: added(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    cluster.intercept(EndTxnRequest, lambda _: EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    with Producer(config(cluster, transactional_id="loader")) as producer:
        with pytest.raises(ApiError), producer.transaction():
            producer.send("orders", "a").result(WAIT_S)
        cluster.intercept(AddPartitionsToTxnRequest, added)
        cluster.intercept(EndTxnRequest, lambda _: EndTxnResponse(error_code=0))
        with producer.transaction():
            producer.send("orders", "b")
    assert [record.value for record in cluster.records_of("orders", 0)] == [b"b"]

"""Serializers and deserializers with a registry, against those of Confluent and against a registry over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry import SchemaReference as ConfluentReference
from confluent_kafka.schema_registry import avro as confluent_avro
from confluent_kafka.schema_registry import json_schema as confluent_json
from confluent_kafka.schema_registry import protobuf as confluent_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext

from kctl.client import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerConfig,
    DeserializationFailed,
    Producer,
    ProducerConfig,
    TopicPartition,
    WokenUp,
)
from kctl.client.application.consumer_records import Unprepared
from kctl.client.producing.interceptors import RecordRules, as_bytes
from kctl.client.registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    RegistryUnreachable,
    SchemaError,
    SchemaRegistry,
    record_name,
    topic_record_name,
)
from kctl.client.registry import client as registry_client
from kctl.client.registry.registry import FAILURE_MAX_AGE_MS, UNREACHABLE_MAX_AGE_MS
from kctl.client.registry.schema import header_of
from kctl.errors import ConfigError, UsageError
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers import probe
from tests.peers.schema_registry import SchemaRegistry as RegistryServer
from tests.peers.schema_registry import basic, schema_registry
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.test_schema_registry import protobuf_types

VALUE = SerializationContext("orders", MessageField.VALUE)
KEY = SerializationContext("orders", MessageField.KEY)
CUSTOMER = {"type": "record", "name": "Customer", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}
PRICED: dict[str, Any] = {
    "type": "record",
    "name": "Priced",
    "namespace": "shop",
    "fields": [{"name": "item", "type": "string"}, {"name": "price", "type": "double"}],
}
WIDER = {**PRICED, "fields": [*PRICED["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}
OBJECT = {"title": "Priced", "type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}


@dataclass
class Priced:
    item: str
    price: float


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with schema_registry() as started:
        yield started


def confluent(server: RegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": server.url})


def test_avro_is_exchanged_with_confluents(server: RegistryServer) -> None:
    registry, text = SchemaRegistry(server.url), json.dumps(PRICED)
    ours = AvroSerializer[Priced](registry, text, to_value=asdict)
    theirs = confluent_avro.AvroSerializer(confluent(server), text, lambda value, _: asdict(value))
    order = Priced("pear", 2.5)
    for is_key, context in ((False, VALUE), (True, KEY)):
        data = ours.serialize("orders", order, is_key=is_key)
        assert data == theirs(order, context)
        assert confluent_avro.AvroDeserializer(confluent(server), text)(data, context) == asdict(order)
        assert AvroDeserializer(registry, from_value=lambda value: Priced(**value))(data) == order
    assert sorted(server.answer("GET", "/subjects", b"")[1]) == ["orders-key", "orders-value"]


def test_avro_with_a_reference_is_exchanged_with_confluents(server: RegistryServer) -> None:
    server.register("customer", json.dumps(CUSTOMER))
    text = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "by", "type": "shop.Customer"}]})
    registry, value = SchemaRegistry(server.url), {"by": {"name": "Zoë"}}
    ours = AvroSerializer[Any](registry, text, references=[Reference("shop.Customer", "customer", 1)])
    schema = Schema(text, "AVRO", [ConfluentReference("shop.Customer", "customer", 1)])
    data = ours.serialize("orders", value)
    assert data == confluent_avro.AvroSerializer(confluent(server), schema)(value, VALUE)
    assert AvroDeserializer(registry)(data) == value


def test_json_schema_is_exchanged_with_confluents(server: RegistryServer) -> None:
    registry, text, value = SchemaRegistry(server.url), json.dumps(OBJECT), {"price": 2.5, "note": "für Zoë"}
    data = JsonSerializer[Any](registry, text).serialize("orders", value)
    theirs = confluent_json.JSONSerializer(text, confluent(server))(value, VALUE)
    assert data is not None
    assert data[:5] == theirs[:5]
    assert json.loads(data[5:]) == json.loads(theirs[5:])
    assert confluent_json.JSONDeserializer(text, schema_registry_client=confluent(server))(data, VALUE) == value
    assert JsonDeserializer(registry)(theirs) == value


@pytest.mark.filterwarnings("ignore")  # of Confluent's serializer
def test_protobuf_is_exchanged_with_confluents(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    options = {"use.deprecated.format": False}
    order_type, line_type = protobuf_types()
    for message_type, message in ((order_type, order_type(order_id=7)), (line_type, line_type(item="x"))):
        data = ProtobufSerializer(registry, message_type).serialize("orders", message)
        assert data == confluent_protobuf.ProtobufSerializer(message_type, confluent(server), options)(message, VALUE)
        assert confluent_protobuf.ProtobufDeserializer(message_type, options)(data, VALUE) == message
        assert ProtobufDeserializer(registry, message_type)(data) == message
        assert str(ProtobufDeserializer(registry)(data)) == str(message)  # a class that is made of the schema
    with pytest.raises(SchemaError, match=r"schema \d+: it is a shop.Order.Line, not a shop.Order"):
        ProtobufDeserializer(registry, order_type)(data)


def test_values_are_resolved_to_the_schema_of_the_reader(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    old = AvroSerializer[Any](registry, json.dumps(PRICED)).serialize("orders", {"item": "fig", "price": 1.0})
    new_value = {"item": "fig", "price": 1.0, "currency": "CHF"}
    new = AvroSerializer[Any](registry, json.dumps(WIDER)).serialize("orders", new_value)
    assert AvroDeserializer(registry, json.dumps(WIDER))(old) == {**new_value, "currency": "EUR"}
    assert AvroDeserializer(registry, json.dumps(PRICED))(new) == {"item": "fig", "price": 1.0}
    with pytest.raises(SchemaError, match="schema 1: it cannot be read with the schema of the reader"):
        AvroDeserializer(registry, '{"type":"record","name":"Priced","fields":[{"name":"x","type":"int"}]}')(old)


def test_subjects_follow_the_strategy(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    order_type, _ = protobuf_types()
    for strategy, prefix in ((record_name, ""), (topic_record_name, "orders-")):
        avro = AvroSerializer[Any](registry, json.dumps(PRICED), subject_name=strategy)
        avro.serialize("orders", {"item": "x", "price": 1.0})
        JsonSerializer[Any](registry, json.dumps(OBJECT), subject_name=strategy).serialize("orders", {"price": 1})
        ProtobufSerializer(registry, order_type, subject_name=strategy).serialize("orders", order_type())
        for name in ("shop.Priced", "Priced", "shop.Order"):
            assert f"{prefix}{name}" in server.answer("GET", "/subjects", b"")[1]
        with pytest.raises(UsageError, match="subject_name needs the name of the type"):
            AvroSerializer[Any](registry, '"long"', subject_name=strategy).serialize("orders", 1)


def test_schemas_are_requested_once(server: RegistryServer) -> None:
    """By eight threads, records of two topics, and a schema id that does not exist."""
    registry = SchemaRegistry(server.url)
    serializer = AvroSerializer[Any](registry, '"long"')
    missing = header_of(99) + b"\x02"

    def use(number: int) -> None:
        for topic in ("orders", "copies"):
            data = serializer.serialize(topic, number)
            assert AvroDeserializer(registry)(data) == number
        with pytest.raises(SchemaError, match="has no schema with id 99"):
            AvroDeserializer(registry)(missing)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(64)))
    assert sorted(server.requests) == [
        "GET /schemas/ids/1",
        "GET /schemas/ids/99",
        "POST /subjects/copies-value/versions",
        "POST /subjects/orders-value/versions",
    ]


def test_failures_are_kept_for_a_time(server: RegistryServer) -> None:
    now_s = [0.0]
    registry = SchemaRegistry(server.url, monotonic_s=lambda: now_s[0])
    deserialize = AvroDeserializer(registry)
    for count in (1, 2):
        for _ in range(3):
            with pytest.raises(SchemaError, match="has no schema with id 1"):
                deserialize(header_of(1) + b"\x02")
        assert len(server.requests) == count
        now_s[0] += FAILURE_MAX_AGE_MS / 1000
    server.register("s", '"long"')
    assert deserialize(header_of(1) + b"\x02") == 1
    server.status, before = 503, len(server.requests)
    for _ in range(3):
        with pytest.raises(RegistryUnreachable, match="status 503"):
            deserialize(header_of(2) + b"\x02")
    assert len(server.requests) == before + 1
    server.status = None
    now_s[0] += UNREACHABLE_MAX_AGE_MS / 1000
    server.register("s", '"string"')
    assert deserialize(header_of(2) + b"\x02x") == "x"


def test_threads_may_serialize_for_more_topics_than_are_kept(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_client, "REGISTRY_SCHEMAS_MAX", 2)
    serializer = AvroSerializer[Any](SchemaRegistry(server.url), '"long"')
    with ThreadPoolExecutor(8) as threads:
        data = list(threads.map(lambda number: serializer.serialize(f"topic-{number % 5}", number), range(200)))
    assert data == [serializer.serialize("topic-0", number) for number in range(200)]


def test_what_is_kept_is_bounded(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_client, "REGISTRY_SCHEMAS_MAX", 5)
    registry = SchemaRegistry(server.url)
    serializer = AvroSerializer[Any](registry, '"long"')
    for number in range(20):
        server.register(f"s{number}", f'"long"{" " * number}')
        data = serializer.serialize(f"topic-{number}", number)
        assert AvroDeserializer(registry)(header_of(number + 1) + (data or b"")[5:]) == number
        with pytest.raises(SchemaError):
            AvroDeserializer(registry)(header_of(1_000 + number) + b"\x02")
    caches = [cache for owner in (registry, registry._client, serializer) for cache in vars(owner).values()]
    assert {len(cache) for cache in caches if isinstance(cache, dict)} <= {0, 5}


def test_the_latest_version_is_used_and_looked_up_again(server: RegistryServer) -> None:
    server.register("orders-value", json.dumps(PRICED))
    registry = SchemaRegistry(server.url, latest_max_age_ms=0)
    serializer = AvroSerializer[Any](registry, use_latest_version=True)
    value = {"item": "x", "price": 1.0}
    data = serializer.serialize("orders", value)
    assert data is not None
    assert data.startswith(header_of(1))
    server.register("orders-value", json.dumps(WIDER))
    data = serializer.serialize("orders", value)
    assert data is not None
    assert data.startswith(header_of(2))
    assert AvroDeserializer(registry)(data) == {**value, "currency": "EUR"}
    order_type, _ = protobuf_types()
    with pytest.raises(SchemaError, match="subject orders-value has schemas of type AVRO, not PROTOBUF"):
        ProtobufSerializer(registry, order_type, use_latest_version=True).serialize("orders", order_type())


def test_a_schema_that_is_not_registered_is_named(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    serializer = AvroSerializer[Any](registry, '"long"', auto_register=False)
    with pytest.raises(SchemaError, match=r"subject orders-value: .* register it, or use auto_register=True"):
        serializer.serialize("orders", 1)
    server.register("others-value", '"long"')
    assert serializer.serialize("others", 1) == header_of(1) + b"\x02"
    assert "POST /subjects/others-value/versions" not in server.requests
    server.incompatible.add("others-value")
    with pytest.raises(SchemaError, match=r"subject others-value: the schema cannot be registered: .*incompatible"):
        AvroSerializer[Any](registry, '"string"').serialize("others", "x")


def _avro(registry: SchemaRegistry) -> AvroSerializer[Any]:
    return AvroSerializer(registry, json.dumps(PRICED))


def _json(registry: SchemaRegistry) -> JsonSerializer[Any]:
    return JsonSerializer(registry, json.dumps(OBJECT))


@for_rows(
    "make, value, problem",
    [
        (_avro, {"item": "x", "price": "dear"}, "price"),
        (_avro, {"item": "x"}, "price"),
        (_avro, {"item": "x", "price": 1.0, "colour": "red"}, "colour"),
        (_avro, 7, "does not match the schema"),
        (_json, {"price": "dear"}, "it is not valid at $.price: 'dear' is not of type 'number'"),
        (_json, {}, "'price' is a required property"),
        (_json, {"price": float("nan")}, "cannot be written as JSON"),
        (_json, object(), "cannot be written as JSON"),
    ],
)
def test_a_value_that_does_not_match_is_refused(make: Callable[..., Any], value: Any, problem: str) -> None:
    with schema_registry() as server, pytest.raises(SchemaError) as raised:
        make(SchemaRegistry(server.url)).serialize("orders", value)
    assert str(raised.value).startswith("subject orders-value: the value cannot be written: ")
    assert problem in str(raised.value)


@for_rows(
    "data, problem",
    [
        (b"", "it is not in the wire format of schema registries"),
        (b"plain text", "it is not in the wire format of schema registries"),
        (header_of(1), "schema 1: it is not a value of its schema"),
        (header_of(1) + b"\x02\x02", "schema 1: its value is followed by further bytes"),
        (header_of(2) + b"{}", "schema 2 is of type JSON, not AVRO: use JsonDeserializer"),
    ],
)
def test_data_that_cannot_be_read_names_the_schema(data: bytes, problem: str) -> None:
    with schema_registry() as server:
        server.register("s", '"long"')
        server.register("t", "{}", "JSON")
        with pytest.raises(SchemaError) as raised:
            AvroDeserializer(SchemaRegistry(server.url))(data)
    assert problem in str(raised.value)


_AVRO: Any = AvroSerializer
"""Without types, which would refuse wrong arguments before the call does."""
_PROTOBUF: Any = ProtobufDeserializer


@for_rows(
    "call, problem",
    [
        (lambda _: SchemaRegistry(), "url is missing"),
        (lambda _: SchemaRegistry("localhost:8081"), "must be http://HOST:PORT"),
        (lambda _: SchemaRegistry("http://x", timeout_ms=0), "timeout_ms must be positive"),
        (lambda _: _AVRO("http://x", '"long"'), "registry must be a SchemaRegistry, not str"),
        (_AVRO, "schema is missing"),
        (lambda registry: _AVRO(registry, {"type": "long"}), "the schema must be a str, not dict"),
        (lambda registry: _AVRO(registry, '"lng"'), "the schema is not a valid Avro schema"),
        (lambda registry: _AVRO(registry, '"long"', subject_name="x"), "subject_name must be topic_name"),
        (lambda registry: _AVRO(registry, '"long"', references=["x"]), "references must be Reference("),
        (lambda registry: _AVRO(registry, '"long"')(1), "this serializer needs a topic"),
        (lambda registry: JsonSerializer(registry, '{"type": 7}'), "the schema is not a valid JSON Schema"),
        (lambda registry: ProtobufSerializer(registry, str), "message_type must be a class"),
        (lambda registry: AvroDeserializer(registry, '"lng"'), "the schema is not a valid Avro schema"),
        (lambda registry: _PROTOBUF(registry, 7), "message_type must be a class"),
        (lambda registry: registry.schema("7"), "schema_id must be an int"),
        (lambda registry: registry.version("s", "latest"), "version must be an int from 1"),
        (lambda registry: registry.latest(""), "subject must be the name of a subject"),
        (lambda registry: registry.register("s", "{}", "XML"), "kind is 'XML'; it must be one of AVRO"),
    ],
)
def test_wrong_arguments_are_named_at_the_call(call: Callable[[Any], object], problem: str) -> None:
    with pytest.raises((UsageError, ConfigError, SchemaError)) as raised:
        call(SchemaRegistry("http://127.0.0.1:1"))
    assert problem in str(raised.value)


def test_credentials_are_sent_and_not_shown(server: RegistryServer) -> None:
    server.authorization = basic("ann", "s3cret")
    registry = SchemaRegistry(server.url, properties={"basic.auth.user.info": "ann:s3cret"})
    assert registry.register("s", '"long"') == 1
    assert registry.subjects() == ["s"]
    assert registry.latest("s").text == '"long"'
    assert registry.look_up("s", '"long"') == (1, 1)
    assert registry.version("s", 1) == registry.schema(1)
    with pytest.raises(RegistryUnreachable, match="refused the client: status 401") as raised:
        SchemaRegistry.from_properties({"schema.registry.url": server.url}).schema(1)
    assert "s3cret" not in str(raised.value) + repr(registry)


def test_rules_of_a_producer_pass_the_topic_and_tell_what_to_prepare(server: RegistryServer) -> None:
    serializer = AvroSerializer[Any](SchemaRegistry(server.url), '"long"')
    rules = RecordRules(serializer, as_bytes, (), 1 << 20)
    prepare = rules.preparation("orders")
    assert prepare is not None
    prepare()
    assert rules.preparation("orders") is None
    assert server.requests == ["POST /subjects/orders-key/versions"]
    fields = rules.serialize("orders", b"v", 1, (), None, 0)[2]
    assert fields[2] == header_of(1) + b"\x02"
    assert RecordRules(as_bytes, as_bytes, (), 1).preparation("orders") is None
    with pytest.raises(UsageError, match="topic:"):
        rules.preparation("not a topic!")


def test_on_an_event_loop_a_deserializer_asks_for_a_thread(server: RegistryServer) -> None:
    server.register("s", '"long"')
    deserializer = AvroDeserializer(SchemaRegistry(server.url))
    assert deserializer.without_waiting(None) is None
    with pytest.raises(Unprepared) as raised:
        deserializer.without_waiting(header_of(1) + b"\x02")
    assert server.requests == []
    thread = threading.Thread(target=raised.value.prepare)
    thread.start()
    thread.join()
    assert deserializer.without_waiting(header_of(1) + b"\x02") == 1
    with pytest.raises(Unprepared) as raised:
        deserializer.without_waiting(header_of(2) + b"\x02")
    raised.value.prepare()
    with pytest.raises(SchemaError, match="has no schema with id 2"):
        deserializer.without_waiting(header_of(2) + b"\x02")


def test_a_registry_that_does_not_respond_holds_neither_the_event_loop_nor_poll(server: RegistryServer) -> None:
    async def run(cluster: FakeCluster) -> list[Any]:
        registry = SchemaRegistry(server.url)
        config = ProducerConfig(
            bootstrap_servers=cluster.bootstrap, value_serializer=AvroSerializer[int](registry, '"long"')
        )
        async with AsyncProducer[Any, int](config) as producer:
            server.responds.clear()
            sending = asyncio.create_task(producer.send("orders", 7))
            await asyncio.to_thread(probe.wait_until, lambda: bool(server.requests), what="a request", timeout_s=30)
            assert not sending.done()
            server.responds.set()
            await (await sending)
            await (await producer.send("orders", 8))
        reading = ConsumerConfig(bootstrap_servers=cluster.bootstrap, max_poll_records=1)
        async with AsyncConsumer(
            reading, key_deserializer=as_bytes, value_deserializer=AvroDeserializer(SchemaRegistry(server.url))
        ) as consumer:
            await consumer.assign({TopicPartition("orders", 0): 0})
            server.responds.clear()
            before = len(server.requests)
            while len(server.requests) == before:
                assert await consumer.poll(10) == []
            assert await consumer.poll(10) == []
            consumer.wakeup()
            with pytest.raises(WokenUp):
                await consumer.poll(60_000)
            server.responds.set()
            records: list[Any] = []
            while not records:
                records = await consumer.poll(60_000)
            async for record in consumer:
                assert len(server.requests) == before + 1
                return [records[0].value, record.value]
        return []

    with FakeCluster() as cluster:
        cluster.create("orders")
        assert asyncio.run(run(cluster)) == [7, 8]


def test_records_pass_through_the_blocking_clients(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    serializer = AvroSerializer[Priced](registry, json.dumps(PRICED), to_value=asdict)
    priced = AvroDeserializer(registry, from_value=lambda value: Priced(**value))
    with FakeCluster() as cluster:
        cluster.create("orders")
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap, value_serializer=serializer)
        with Producer[str, Priced](config) as producer:
            producer.send("orders", Priced("fig", 2.0), key="a").result(60)
            refused: Future[Any] = Future()

            def send_again(_: Future[Any]) -> None:
                with pytest.raises(UsageError, match="a callback must not wait for a schema registry"):
                    producer.send("copies", Priced("fig", 2.0))
                refused.set_result(None)

            server.responds.clear()
            sent = producer.send("orders", None, key="a")
            sent.add_done_callback(send_again)
            refused.result(60)
            server.responds.set()
            with pytest.raises(SchemaError, match="subject orders-value: the value cannot be written"):
                producer.send("orders", Priced("fig", "dear"))  # type: ignore[arg-type]
        reading = ConsumerConfig(bootstrap_servers=cluster.bootstrap)
        with Consumer(reading, key_deserializer=as_bytes, value_deserializer=priced) as consumer:
            consumer.assign({TopicPartition("orders", 0): 0})
            records = iter(consumer)
            values = [next(records).value, next(records).value]
            log = cluster.topics["orders"][0]
            log.append(build_batch([Record(0, 1, None, b"text"), Record(1, 1, None, header_of(99) + b"x")]))
            with pytest.raises(DeserializationFailed, match=r"orders-0 at offset 2 .* not in the wire format"):
                next(iter(consumer))
            with pytest.raises(DeserializationFailed) as failed:
                consumer.poll(60_000)
            consumer.seek(failed.value.tp, failed.value.record.offset + 1)
            server.status = 503
            with pytest.raises(RegistryUnreachable, match="status 503"):  # not about the record: try again later
                next(iter(consumer))
    assert values == [Priced("fig", 2.0), None]

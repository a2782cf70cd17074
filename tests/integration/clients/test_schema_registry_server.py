"""The schema registry of a test broker with confluent-kafka's client and serializers, and over restarts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from kctl.testing import KafkaBroker

pytestmark = [pytest.mark.clients, pytest.mark.long]

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'
ORDER_2 = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},{"name":"note","type":"string"}]}'


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(schema_registry=True) as broker:
        yield broker


@pytest.fixture
def client(broker: KafkaBroker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as client:
        yield client


def request(url: str | None, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    asked = urllib.request.Request(f"{url}{path}", data=body, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_confluents_client_registers_reads_and_deletes(client: SchemaRegistryClient) -> None:
    first = client.register_schema("c-value", Schema(ORDER, "AVRO"))
    assert client.register_schema("c-value", Schema(ORDER, "AVRO")) == first
    assert "c-value" in client.get_subjects()
    assert client.get_latest_version("c-value").version == 1
    assert client.lookup_schema("c-value", Schema(ORDER, "AVRO")).schema_id == first
    assert client.get_schema(first).schema_str == ORDER
    assert not client.test_compatibility("c-value", Schema(ORDER_2, "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("c-value", Schema(ORDER_2, "AVRO"))
    assert refused.value.http_status_code == 409
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in str(refused.value)
    client.set_compatibility("c-value", "NONE")
    assert client.get_compatibility("c-value") == "NONE"
    client.register_schema("c-value", Schema(ORDER_2, "AVRO"))
    assert client.get_versions("c-value") == [1, 2]
    reference = SchemaReference("Order", "c-value", 2)
    holder = '{"type":"record","name":"Holder","fields":[{"name":"order","type":"Order"}]}'
    client.register_schema("holder-value", Schema(holder, "AVRO", [reference]))
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject("c-value")
    assert refused.value.error_code == 42206
    assert client.delete_subject("holder-value") == [1]
    assert client.delete_subject("c-value") == [1, 2]
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_versions("c-value")  # Unlike a version, not from the client's cache.
    assert refused.value.error_code == 40401


def test_confluents_serializers_write_and_read_all_formats(broker: KafkaBroker, client: SchemaRegistryClient) -> None:
    schema = '{"title":"Point","type":"object","properties":{"x":{"type":"integer"}},"additionalProperties":false}'
    plain = {"use.deprecated.format": False}
    formats: dict[str, tuple[Any, Any, Any]] = {
        "avro": (AvroSerializer(client, ORDER), AvroDeserializer(client), {"id": 5}),
        "json": (JSONSerializer(schema, client), JSONDeserializer(schema), {"x": 3}),
        "protobuf": (
            ProtobufSerializer(Timestamp, client, plain),
            ProtobufDeserializer(Timestamp, plain),
            Timestamp(seconds=7),
        ),
    }
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for topic, (serialize, _, value) in formats.items():
        producer.produce(topic, serialize(value, SerializationContext(topic, MessageField.VALUE)))
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(list(formats))
    found: dict[str, Any] = {}
    while len(found) < len(formats):
        for message in consumer.consume(10, 0.5):
            name = str(message.topic())
            found[name] = formats[name][1](message.value(), SerializationContext(name, MessageField.VALUE))
    consumer.close()
    assert found == {topic: value for topic, (_, _, value) in formats.items()}


def test_schemas_survive_a_kill_of_the_broker_at_the_same_url(broker: KafkaBroker) -> None:
    url = broker.schema_registry_url
    subject = "/subjects/kept%2Fname"
    assert request(url, "POST", f"{subject}/versions", json.dumps({"schema": ORDER}).encode())[0] == 200
    assert request(url, "DELETE", f"{subject}/versions/1") == (200, 1)
    before = request(url, "GET", "/schemas?deleted=true")
    broker.kill()
    broker.start()
    assert broker.schema_registry_url == url
    assert request(url, "GET", "/schemas?deleted=true") == before
    assert request(url, "GET", f"{subject}/versions") == (
        404,
        {"error_code": 40401, "message": "Subject 'kept/name' not found."},
    )


def test_what_is_not_http_of_the_api_is_refused(broker: KafkaBroker) -> None:
    url = broker.schema_registry_url
    assert request(url, "GET", "/nope")[0] == 404
    assert request(url, "PUT", "/subjects")[0] == 405
    assert request(url, "POST", "/subjects/a/versions", b"\xff")[0] == 400
    assert request(url, "POST", "/subjects/a/versions", b"[" * 100_000)[0] == 400
    assert request(url, "POST", "/subjects/a/versions", b" " * 1_000_001)[0] == 413
    assert request(url, "GET", "/subjects?" + "&".join(["a=1"] * 101))[0] == 400
    assert request(url, "GET", "/" + "a/" * 100)[0] == 404
    assert request(url, "GET", "/subjects")[0] == 200

"""The program examples/clients/avro_registry.py, on our broker and with a registry over HTTP."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from examples.clients.avro_registry import OLD_SCHEMA, SCHEMA, Order, read, write
from tests.peers.schema_registry import schema_registry


def test_orders_are_read_with_both_schemas_and_by_confluents_client(
    bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = [Order("ann", 12.5), Order("bob", 7.0, "CHF")]
    wrong = Order("cyd", "much")  # type: ignore[arg-type]
    with schema_registry() as registry:
        assert write(bootstrap, registry.url, topic, [*orders, wrong]) == [wrong]
        assert f"subject {topic}-value: the value cannot be written: it does not match the schema" in (
            capsys.readouterr().err
        )
        without_currency = [Order(order.customer, order.amount) for order in orders]
        for schema, expected in ((SCHEMA, orders), (OLD_SCHEMA, without_currency)):
            with closing(read(bootstrap, registry.url, topic, schema)) as values:
                found = [next(values) for _ in orders]
            assert sorted(found, key=repr) == expected
        assert sum("versions" in request for request in registry.requests) == 1
        deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
        reader.subscribe([topic])
        theirs: list[str] = []
        while len(theirs) < len(orders):
            for message in reader.consume(10, 0.5):
                value = deserialize(message.value(), SerializationContext(topic, MessageField.VALUE))
                theirs.append(value["customer"])
        reader.close()
    assert sorted(theirs) == ["ann", "bob"]

#!/usr/bin/env python3
"""Orders as Avro with a schema registry: one program writes them, another one reads them with an older schema.

pip install 'kctl-kafka[registry]'
python examples/clients/avro_registry.py localhost:9092 http://localhost:8081 orders write
python examples/clients/avro_registry.py localhost:9092 http://localhost:8081 orders read
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from kctl.client import Consumer, ConsumerConfig, Producer, ProducerConfig
from kctl.client.registry import AvroDeserializer, AvroSerializer, SchemaError, SchemaRegistry

FIELDS = [{"name": "customer", "type": "string"}, {"name": "amount", "type": "double"}]
CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
OLD_SCHEMA = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS})
SCHEMA = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [*FIELDS, CURRENCY]})


@dataclass(frozen=True)
class Order:
    """A value of SCHEMA; one of OLD_SCHEMA has the default currency."""

    customer: str
    amount: float
    currency: str = "EUR"


def order_of(value: dict[str, Any]) -> Order:
    """Return the order of an Avro record."""
    return Order(**value)


def customer_of(key: bytes | None) -> str:
    """Return the key as text."""
    return "" if key is None else key.decode()


def write(bootstrap: str, registry_url: str, topic: str, orders: Iterable[Order]) -> list[Order]:
    """Write the orders that match the schema; return the others."""
    serializer = AvroSerializer[Order](SchemaRegistry(registry_url), SCHEMA, to_value=asdict)
    refused = []
    config = ProducerConfig(bootstrap_servers=bootstrap, value_serializer=serializer)
    with Producer[str, Order](config) as producer:  # registers the schema as orders-value before the first record
        for order in orders:
            try:
                producer.send(topic, order, key=order.customer)
            except SchemaError as error:  # at the call, and without harm to other records
                print(error, file=sys.stderr)
                refused.append(order)
    return refused


def read(
    bootstrap: str, registry_url: str, topic: str, schema: str = OLD_SCHEMA
) -> Generator[Order | None, None, None]:
    """Yield orders without end, resolved to the schema of the reader; None is a deleted one."""
    values = AvroDeserializer(SchemaRegistry(registry_url), schema, from_value=order_of)
    config = ConsumerConfig(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    with Consumer(config, key_deserializer=customer_of, value_deserializer=values) as consumer:
        consumer.assign(consumer.partitions_of(topic))
        for record in consumer:
            yield record.value  # Order | None, for type checkers too


if __name__ == "__main__":
    bootstrap, registry_url, topic, action = sys.argv[1:]
    if action == "write":
        write(bootstrap, registry_url, topic, [Order("customer-1", 12.5), Order("customer-2", 7.0, "CHF")])
    else:
        for order in read(bootstrap, registry_url, topic):
            print(order, flush=True)

"""Kafka's client properties as fields of ProducerConfig and ConsumerConfig."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kctl.client.assignors import assignor_names
from kctl.client.security import client_security
from kctl.errors import ConfigError, UsageError
from kctl.integers import parse_integer


def producer_fields(properties: Mapping[str, str]) -> dict[str, Any]:
    """Fields of ProducerConfig.  Raises ConfigError."""
    fields = _fields(properties, _COMMON | _PRODUCER)
    # As in Kafka's producer, acks below all disable idempotence unless it is requested.
    if fields.get("acks", "all") != "all" and "enable_idempotence" not in fields:
        fields["enable_idempotence"] = False
    return fields


def consumer_fields(properties: Mapping[str, str]) -> dict[str, Any]:
    """Fields of ConsumerConfig.  Raises ConfigError."""
    return _fields(properties, _COMMON | _CONSUMER)


def _fields(properties: Mapping[str, str], parsers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, parse in parsers.items():
        if name not in properties:
            continue
        try:
            fields[_FIELDS.get(name) or name.replace(".", "_")] = parse(properties[name].strip())
        except UsageError as error:
            raise ConfigError(name, properties[name], str(error)) from None
    fields["security"] = client_security(properties)
    return fields


def _text(value: str) -> str:
    return value


def _count(value: str) -> int:
    return parse_integer(value, "a number", low=0)


def _switch(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise UsageError("must be true or false")
    return value.lower() == "true"


def _acks(value: str) -> str:
    return "all" if value == "-1" else value


_FIELDS = {"partition.assignment.strategy": "assignors"}
"""Fields whose names differ from the property's."""
_COMMON: dict[str, Callable[[str], Any]] = {
    "bootstrap.servers": _text,
    "client.id": _text,
    "request.timeout.ms": _count,
    "metadata.max.age.ms": _count,
}
_PRODUCER: dict[str, Callable[[str], Any]] = {
    "acks": _acks,
    "enable.idempotence": _switch,
    "compression.type": _text,
    "linger.ms": _count,
    "batch.size": _count,
    "buffer.memory": _count,
    "max.block.ms": _count,
    "max.request.size": _count,
    "delivery.timeout.ms": _count,
    "transactional.id": _text,
    "transaction.timeout.ms": _count,
}
_CONSUMER: dict[str, Callable[[str], Any]] = {
    "group.id": _text,
    "group.instance.id": _text,
    "client.rack": _text,
    "auto.offset.reset": _text,
    "isolation.level": _text,
    "enable.auto.commit": _switch,
    "auto.commit.interval.ms": _count,
    "partition.assignment.strategy": assignor_names,
    "session.timeout.ms": _count,
    "heartbeat.interval.ms": _count,
    "max.poll.interval.ms": _count,
    "max.poll.records": _count,
    "fetch.min.bytes": _count,
    "fetch.max.wait.ms": _count,
    "fetch.max.bytes": _count,
    "max.partition.fetch.bytes": _count,
}

"""Settings of the clients from Kafka's client properties.

For the Python client these are fields of ProducerConfig and ConsumerConfig, for commands the settings that
--command-config sets in place of their own defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kctl.client.connections.security import client_security
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.membership.assignors import assignor_names
from kctl.client.producing.partitioners import (
    AdaptivePartitioner,
    DefaultPartitioner,
    Partitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
)
from kctl.client.producing.producer import ACKS_ALL, ProducerSettings
from kctl.client.properties.table import Client, check_properties, unknown_names
from kctl.errors import ConfigError, UsageError
from kctl.records.compression import Codec

ACKS: Mapping[str, int] = {"all": ACKS_ALL, "1": 1, "0": 0}
_PARTITIONERS: Mapping[str, Callable[[], Partitioner]] = {
    "DefaultPartitioner": DefaultPartitioner,
    "UniformStickyPartitioner": StickyPartitioner,
    "RoundRobinPartitioner": RoundRobinPartitioner,
}


def producer_fields(properties: Mapping[str, str], known: frozenset[str]) -> dict[str, Any]:
    """Fields of ProducerConfig, whose names are `known`.  Raises ConfigError."""
    values = _api_values(properties, Client.PRODUCER)
    found = _fields(values, known)
    # As in Kafka's producer, acks below all disable idempotence unless it is requested.
    if found.get("acks", "all") != "all" and "enable_idempotence" not in found:
        found["enable_idempotence"] = False
    partitioner = partitioner_of(values)
    if partitioner is not None:
        found["partitioner"] = partitioner
    return found | {"security": client_security(properties)}


def consumer_fields(properties: Mapping[str, str], known: frozenset[str]) -> dict[str, Any]:
    """Fields of ConsumerConfig, whose names are `known`.  Raises ConfigError."""
    values = _api_values(properties, Client.CONSUMER)
    found = _fields(values, known)
    if (strategy := values.get("partition.assignment.strategy")) is not None:
        try:
            found["assignors"] = assignor_names(strategy)
        except UsageError as error:
            raise ConfigError("partition.assignment.strategy", strategy, str(error)) from None
    for field in ("key", "value"):
        if properties.get(f"{field}.deserializer", "").strip().endswith("StringDeserializer"):
            found[f"{field}_deserializer"] = _decoded
    return found | {"security": client_security(properties)}


def admin_fields(properties: Mapping[str, str], known: frozenset[str]) -> dict[str, Any]:
    """Fields of AdminConfig, whose names are `known`.  Raises ConfigError."""
    return _fields(_api_values(properties, Client.ADMIN), known) | {"security": client_security(properties)}


def _api_values(properties: Mapping[str, str], client: Client) -> dict[str, Any]:
    """Return the values for the Python client, which has no other way to report a name that is not known."""
    values = check_properties(properties, client)
    if unknown := unknown_names(properties):
        raise UsageError(f"not a property of Kafka's clients: {', '.join(unknown)}")
    return values


def _fields(values: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    by_field = {name.replace(".", "_"): value for name, value in values.items()}
    skipped = {"key_serializer", "value_serializer", "key_deserializer", "value_deserializer", "partitioner"}
    return {field: value for field, value in by_field.items() if field in known - skipped}


def _decoded(data: bytes | None) -> str | None:
    """StringDeserializer."""
    return None if data is None else data.decode(errors="replace")


def partitioner_of(values: Mapping[str, Any]) -> Partitioner | None:
    """Return the partitioner that `partitioner.class` and `partitioner.ignore.keys` select; None for the default.

    KIP-794: keys are ignored only without a class.
    """
    name = values.get("partitioner.class")
    if isinstance(name, str):
        return _PARTITIONERS[name]()
    ignores_keys = values.get("partitioner.ignore.keys", False)
    is_adaptive = values.get("partitioner.adaptive.partitioning.enable", True)
    if not ignores_keys and is_adaptive:
        return None
    batch_bytes = values.get("batch.size", 64 << 10)
    return AdaptivePartitioner(batch_bytes, ignores_keys=ignores_keys, is_adaptive=is_adaptive)


class Writing(NamedTuple):
    """How a command writes records."""

    settings: ProducerSettings
    partitioner: Partitioner | None
    """None for the default."""
    transaction_timeout_ms: int | None


def writing_settings(
    properties: Mapping[str, str], defaults: ProducerSettings, *, request_timeout_ms: int, **options: Any
) -> Writing:
    """Return the settings of the properties and, where these have none, of `defaults`; `options` by the names of
    properties with _ for the dots take precedence, None is no option.  Raises ConfigError.
    """
    values = check_properties(properties, Client.PRODUCER)
    if (stored := values.get("transactional.id")) and options.get("transactional_id") is None:
        raise ConfigError(
            "transactional.id", stored, "has no effect without --transactional-id: add that option, or remove it"
        )
    values |= {name.replace("_", "."): value for name, value in options.items() if value is not None}
    acks = ACKS[values["acks"]] if "acks" in values else defaults.acks
    idempotent = values.get("enable.idempotence", acks == ACKS_ALL)
    if idempotent and acks != ACKS_ALL:
        raise ConfigError("enable.idempotence", "true", "requires acks=all")
    linger_ms = values.get("linger.ms", defaults.linger_ms)
    delivery_timeout_ms = values.get("delivery.timeout.ms", defaults.delivery_timeout_ms)
    if delivery_timeout_ms is not None and delivery_timeout_ms < linger_ms + request_timeout_ms:
        raise ConfigError(
            "delivery.timeout.ms",
            str(delivery_timeout_ms),
            f"must be at least linger.ms + request.timeout.ms, which are {linger_ms + request_timeout_ms}",
        )
    record_bytes_max = values.get("max.request.size")
    codec = Codec.named(values["compression.type"]) if "compression.type" in values else defaults.codec
    buffered_bytes_max = max(1, values.get("buffer.memory", defaults.buffered_bytes_max))
    batch_bytes = min(values.get("batch.size", defaults.batch_bytes), buffered_bytes_max)
    settings = replace(
        defaults,
        acks=acks,
        codec=codec,
        codec_level=values.get(f"compression.{codec.name.lower()}.level"),
        in_flight_max=values.get("max.in.flight.requests.per.connection", defaults.in_flight_max),
        idempotent=idempotent,
        linger_ms=linger_ms,
        batch_bytes=batch_bytes if record_bytes_max is None else min(batch_bytes, record_bytes_max),
        buffered_bytes_max=buffered_bytes_max,
        delivery_timeout_ms=delivery_timeout_ms,
        retries=values.get("retries"),
        record_bytes_max=record_bytes_max,
    )
    return Writing(settings, partitioner_of(values), values.get("transaction.timeout.ms"))


def fetch_limits(properties: Mapping[str, str], defaults: FetchLimits) -> FetchLimits:
    """Return the limits of fetches of the properties and, where these have none, of `defaults`.  Raises ConfigError."""
    values = check_properties(properties, Client.CONSUMER)
    return FetchLimits(
        values.get("fetch.max.wait.ms", defaults.max_wait_ms),
        values.get("fetch.min.bytes", defaults.min_bytes),
        values.get("fetch.max.bytes", defaults.max_bytes),
        values.get("max.partition.fetch.bytes", defaults.partition_max_bytes),
    )

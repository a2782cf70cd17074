"""Checks the values of Kafka's client properties, of those too that have no effect here.

As in Kafka's tools, a command checks the properties of the clients that it uses: each those of AdminClientConfig, one
that produces those of ProducerConfig, one that consumes those of ConsumerConfig (3.9).  Properties of other clients and
unknown ones are ignored, so that a file may be shared.  Security properties are checked by `kctl.client.security`.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kctl.errors import ConfigError, UsageError
from kctl.integers import INT32_MAX, INT64_MAX, parse_integer

Check = Callable[[str], object]
"""Raises UsageError."""


def check_properties(properties: Mapping[str, str], checks: Mapping[str, Check]) -> None:
    """Raises ConfigError for the first property, in the order of the checks, whose value is not valid."""
    for name, check in checks.items():
        if name not in properties:
            continue
        try:
            check(properties[name].strip())
        except UsageError as error:
            raise ConfigError(name, properties[name], str(error)) from None


def _int(low: int = 0) -> Check:
    return lambda text: parse_integer(text, "the value", low=low, high=INT32_MAX)


def _long(low: int = 0) -> Check:
    return lambda text: parse_integer(text, "the value", low=low, high=INT64_MAX)


def _one_of(*values: str) -> Check:
    def check(text: str) -> None:
        if text not in values:
            raise UsageError(f"use {', '.join(values[:-1])} or {values[-1]}")

    return check


def _switch(text: str) -> None:
    _one_of("true", "false")(text.lower())


def _isolation_level(text: str) -> None:
    _one_of("read_committed", "read_uncommitted")(text.lower())


def _offset_reset(text: str) -> None:
    if not text.lower().startswith("by_duration:"):
        _one_of("latest", "earliest", "none", "by_duration:DURATION")(text.lower())


ANY_CLIENT: Mapping[str, Check] = {
    "auto.include.jmx.reporter": _switch,
    "client.dns.lookup": _one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only", "default"),
    "connections.max.idle.ms": _long(low=-INT64_MAX),
    "default.api.timeout.ms": _int(low=1),
    "enable.metrics.push": _switch,
    "metadata.max.age.ms": _long(),
    "metadata.recovery.rebootstrap.trigger.ms": _long(),
    "metadata.recovery.strategy": _one_of("none", "rebootstrap"),
    "metrics.num.samples": _int(low=1),
    "metrics.recording.level": _one_of("INFO", "DEBUG", "TRACE"),
    "metrics.sample.window.ms": _long(),
    "receive.buffer.bytes": _int(low=-1),
    "reconnect.backoff.max.ms": _long(),
    "reconnect.backoff.ms": _long(),
    "request.timeout.ms": _int(),
    "retries": _int(),
    "retry.backoff.max.ms": _long(),
    "retry.backoff.ms": _long(),
    "send.buffer.bytes": _int(low=-1),
    "socket.connection.setup.timeout.max.ms": _long(),
    "socket.connection.setup.timeout.ms": _long(),
}
PRODUCER: Mapping[str, Check] = {
    "acks": _one_of("all", "-1", "0", "1"),
    "batch.size": _int(),
    "buffer.memory": _long(),
    "compression.type": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "delivery.timeout.ms": _int(),
    "enable.idempotence": _switch,
    "linger.ms": _long(),
    "max.block.ms": _long(),
    "max.in.flight.requests.per.connection": _int(low=1),
    "max.request.size": _int(),
    "metadata.max.idle.ms": _long(low=5000),
    "partitioner.adaptive.partitioning.enable": _switch,
    "partitioner.availability.timeout.ms": _long(),
    "partitioner.ignore.keys": _switch,
    "transaction.timeout.ms": _int(low=1),
}
CONSUMER: Mapping[str, Check] = {
    "allow.auto.create.topics": _switch,
    "auto.commit.interval.ms": _int(),
    "auto.offset.reset": _offset_reset,
    "check.crcs": _switch,
    "enable.auto.commit": _switch,
    "exclude.internal.topics": _switch,
    "fetch.max.bytes": _int(),
    "fetch.max.wait.ms": _int(),
    "fetch.min.bytes": _int(),
    "heartbeat.interval.ms": _int(low=1),
    "isolation.level": _isolation_level,
    "max.partition.fetch.bytes": _int(),
    "max.poll.interval.ms": _int(low=1),
    "max.poll.records": _int(low=1),
    "session.timeout.ms": _int(low=1),
}

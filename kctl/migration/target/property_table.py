"""The properties of topics and brokers that releases 4.x of Apache Kafka refuse, have forgotten or changed.  Pure.

One row per property.  They were read from the ConfigDef of LogConfig and KafkaConfig in the jars of 0.11.0.3, 1.1.1,
2.0.1, 2.4.1, 2.8.2, 3.0.2, 3.9.1, 4.0.1, 4.1.1, 4.2.0, 4.3.1 and 4.4.0, which
tests/integration/jvm/test_target_properties.py compares with this table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from kctl.model import INT32_MAX
from kctl.output.quantities import INT16_MAX, INT64_MAX

TARGETS = ("4.0", "4.1", "4.2", "4.3", "4.4")
"""Releases that a cluster can be checked for; all later rules hold until the last one."""


class Scope(StrEnum):
    """What a property belongs to."""

    TOPIC = "topic"
    BROKER = "broker"


class Type(StrEnum):
    """Types of ConfigDef that are checked."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    LONG = "LONG"
    SHORT = "SHORT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    LIST = "LIST"


class Property(NamedTuple):
    """What a target does with a property: `removed_in` or a rule for its value, which holds from `rule_in` on."""

    name: str
    type: Type = Type.STRING
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    rule_in: str = "4.0"
    minimum_before: float | None = None
    """The minimum of targets before `rule_in`."""
    unique_in: str | None = None
    """The release from which a list must not have the same item twice."""
    filled_in: str | None = None
    """The release from which a list must not be empty."""
    removed_in: str | None = None
    """The first release that was looked at and does not have it."""
    instead: str = ""
    """What replaces a removed property."""
    default_in: tuple[str, str] | None = None
    """A release and the default from then on, if it differs from that of 3.9 and can change what clients see."""
    effect: str = ""
    """What the new default changes."""


def _later(release: str, than: str) -> bool:
    """Return whether `release` is the same as `than` or a later one."""
    return tuple(map(int, release.split("."))) >= tuple(map(int, than.split(".")))


SEGMENT_BYTES_MIN = 1 << 20
"""KIP-1030."""
NOTHING = "nothing: "
"""Before the reason why nothing replaces a property."""
_COMPRESSION = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_OLD_CLIENTS = f"{NOTHING}4.x writes format 2 only, and does not convert records for old clients (KIP-724, KIP-896)"

TOPIC_PROPERTIES = (
    Property("cleanup.policy", Type.LIST, choices=("compact", "delete"), unique_in="4.2"),
    Property("compression.gzip.level", Type.INT, -1, 9),
    Property("compression.lz4.level", Type.INT, 1, 17),
    Property("compression.type", choices=_COMPRESSION),
    Property("compression.zstd.level", Type.INT, -131_072, 22),
    Property("delete.retention.ms", Type.LONG, 0),
    Property("file.delete.delay.ms", Type.LONG, 0),
    Property("flush.messages", Type.LONG, 1),
    Property("flush.ms", Type.LONG, 0),
    Property("index.interval.bytes", Type.INT, 0),
    Property("local.retention.bytes", Type.LONG, -2),
    Property("local.retention.ms", Type.LONG, -2),
    Property("max.compaction.lag.ms", Type.LONG, 1),
    Property("max.message.bytes", Type.INT, 0),
    Property("message.downconversion.enable", Type.BOOLEAN, removed_in="4.0", instead=_OLD_CLIENTS),
    Property("message.format.version", removed_in="4.0", instead=_OLD_CLIENTS),
    Property(
        "message.timestamp.after.max.ms",
        Type.LONG,
        0,
        default_in=("4.0", "3600000"),
        effect="records with a timestamp more than an hour ahead of the broker's clock are refused",
    ),
    Property("message.timestamp.before.max.ms", Type.LONG, 0),
    Property(
        "message.timestamp.difference.max.ms",
        Type.LONG,
        removed_in="4.0",
        instead="message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    ),
    Property("message.timestamp.type", choices=("CreateTime", "LogAppendTime")),
    Property("min.cleanable.dirty.ratio", Type.DOUBLE, 0, 1),
    Property("min.compaction.lag.ms", Type.LONG, 0),
    Property("min.insync.replicas", Type.INT, 1),
    Property("preallocate", Type.BOOLEAN),
    Property("remote.log.copy.disable", Type.BOOLEAN),
    Property("remote.log.delete.on.disable", Type.BOOLEAN),
    Property("remote.storage.enable", Type.BOOLEAN),
    Property("retention.bytes", Type.LONG),
    Property("retention.ms", Type.LONG, -1),
    Property("segment.bytes", Type.INT, SEGMENT_BYTES_MIN, rule_in="4.1", minimum_before=14),
    Property("segment.index.bytes", Type.INT, 4),
    Property("segment.jitter.ms", Type.LONG, 0),
    Property("segment.ms", Type.LONG, 1),
    Property("unclean.leader.election.enable", Type.BOOLEAN),
)
"""All properties of topics that 3.9 has, except for the lists of throttled replicas.  Values are stored in the metadata
of the cluster: one that the target refuses stops every broker with a replica of the topic."""

_ZOOKEEPER = f"{NOTHING}remove it when no node uses ZooKeeper any more"
_ENCODER = f"{NOTHING}passwords in dynamic properties are stored without encryption in the metadata log"
_SHUTDOWN = f"{NOTHING}the controller decides when a broker has moved its leaders away"

BROKER_PROPERTIES = (
    Property("advertised.host.name", removed_in="3.0", instead="advertised.listeners"),
    Property("advertised.listeners", Type.LIST, unique_in="4.2", filled_in="4.2"),
    Property("advertised.port", Type.INT, removed_in="3.0", instead="advertised.listeners"),
    Property("auto.include.jmx.reporter", Type.BOOLEAN, removed_in="4.0", instead="metric.reporters"),
    Property("broker.id.generation.enable", Type.BOOLEAN, removed_in="4.0", instead="node.id"),
    Property("compression.type", choices=_COMPRESSION),
    Property("control.plane.listener.name", removed_in="4.0", instead="controller.listener.names on the controllers"),
    Property("controlled.shutdown.max.retries", Type.INT, removed_in="4.0", instead=_SHUTDOWN),
    Property("controlled.shutdown.retry.backoff.ms", Type.LONG, removed_in="4.0", instead=_SHUTDOWN),
    Property("delegation.token.master.key", removed_in="4.0", instead="delegation.token.secret.key, the same value"),
    Property("early.start.listeners", Type.LIST, unique_in="4.2"),
    Property(
        "eligible.leader.replicas.enable",
        Type.BOOLEAN,
        removed_in="4.0",
        instead="the feature eligible.leader.replicas.version",
    ),
    Property("group.consumer.assignors", Type.LIST, unique_in="4.2", filled_in="4.2"),
    Property("group.coordinator.new.enable", Type.BOOLEAN, removed_in="4.1", instead=f"{NOTHING}it is always in use"),
    Property("host.name", removed_in="3.0", instead="listeners"),
    Property("inter.broker.protocol.version", removed_in="4.0", instead="the feature metadata.version"),
    Property("kafka.metrics.reporters", Type.LIST, unique_in="4.2"),
    Property("leader.imbalance.check.interval.seconds", Type.LONG, 1),
    Property(
        "leader.imbalance.per.broker.percentage", Type.INT, removed_in="4.0", instead=f"{NOTHING}it had no effect"
    ),
    Property("listeners", Type.LIST, unique_in="4.2", filled_in="4.2"),
    Property("log.cleaner.delete.retention.ms", Type.LONG, 0),
    Property("log.cleaner.max.compaction.lag.ms", Type.LONG, 1),
    Property("log.cleaner.min.cleanable.ratio", Type.DOUBLE, 0, 1),
    Property("log.cleaner.min.compaction.lag.ms", Type.LONG, 0),
    Property("log.cleanup.policy", Type.LIST, choices=("compact", "delete"), unique_in="4.2"),
    Property("log.dir", Type.LIST, unique_in="4.2", filled_in="4.2"),
    Property("log.dirs", Type.LIST, unique_in="4.2", filled_in="4.2"),
    Property("log.message.downconversion.enable", Type.BOOLEAN, removed_in="4.0", instead=_OLD_CLIENTS),
    Property("log.message.format.version", removed_in="4.0", instead=_OLD_CLIENTS),
    Property(
        "log.message.timestamp.difference.max.ms",
        Type.LONG,
        removed_in="4.0",
        instead="log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
    ),
    Property("log.segment.bytes", Type.INT, SEGMENT_BYTES_MIN),
    Property("metric.reporters", Type.LIST, unique_in="4.2"),
    Property("num.replica.fetchers", Type.INT, 1, rule_in="4.2"),
    Property("offsets.commit.required.acks", Type.SHORT, removed_in="4.0", instead=f"{NOTHING}commits are acks=all"),
    Property("password.encoder.cipher.algorithm", removed_in="4.0", instead=_ENCODER),
    Property("password.encoder.iterations", Type.INT, removed_in="4.0", instead=_ENCODER),
    Property("password.encoder.key.length", Type.INT, removed_in="4.0", instead=_ENCODER),
    Property("password.encoder.keyfactory.algorithm", removed_in="4.0", instead=_ENCODER),
    Property("password.encoder.old.secret", removed_in="4.0", instead=_ENCODER),
    Property("password.encoder.secret", removed_in="4.0", instead=_ENCODER),
    Property("port", Type.INT, removed_in="3.0", instead="listeners"),
    Property("quota.consumer.default", Type.LONG, removed_in="3.0", instead="a default quota: 'kctl quotas alter'"),
    Property("quota.producer.default", Type.LONG, removed_in="3.0", instead="a default quota: 'kctl quotas alter'"),
    Property("remote.log.manager.copier.thread.pool.size", Type.INT, 1),
    Property("remote.log.manager.expiration.thread.pool.size", Type.INT, 1),
    Property("reserved.broker.max.id", Type.INT, removed_in="4.0", instead="node.id"),
    Property("sasl.enabled.mechanisms", Type.LIST, unique_in="4.2"),
    Property("sasl.kerberos.principal.to.local.rules", Type.LIST, unique_in="4.2"),
    Property(
        "security.inter.broker.protocol",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Property("ssl.cipher.suites", Type.LIST, unique_in="4.2"),
    Property("ssl.enabled.protocols", Type.LIST, unique_in="4.2"),
    Property("zookeeper.clientCnxnSocket", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.connect", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.connection.timeout.ms", Type.INT, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.max.in.flight.requests", Type.INT, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.metadata.migration.enable", Type.BOOLEAN, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.metadata.migration.min.batch.size", Type.INT, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.session.timeout.ms", Type.INT, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.set.acl", Type.BOOLEAN, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.cipher.suites", Type.LIST, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.client.enable", Type.BOOLEAN, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.crl.enable", Type.BOOLEAN, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.enabled.protocols", Type.LIST, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.endpoint.identification.algorithm", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.keystore.location", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.keystore.password", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.keystore.type", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.ocsp.enable", Type.BOOLEAN, removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.protocol", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.truststore.location", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.truststore.password", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.ssl.truststore.type", removed_in="4.0", instead=_ZOOKEEPER),
    Property("zookeeper.sync.time.ms", Type.INT, removed_in="3.9", instead=_ZOOKEEPER),
)
"""The properties of brokers that a release after 0.11 has removed, or whose values it restricts more than 0.11."""

PROPERTIES: Mapping[Scope, Mapping[str, Property]] = {
    Scope.TOPIC: {row.name: row for row in TOPIC_PROPERTIES},
    Scope.BROKER: {row.name: row for row in BROKER_PROPERTIES},
}


def rules_of(row: Property) -> list[tuple[str, str]]:
    """Return the rules of a property for people, each with the release from which it holds."""
    if row.removed_in is not None:
        return [(row.removed_in, f"removed; instead: {row.instead}")]
    bounds = [
        text
        for text in (
            row.type.lower() if row.type is not Type.STRING else "",
            f"only {', '.join(row.choices)}" if row.choices else "",
            f"minimum {row.minimum:.0f}" if row.minimum is not None else "",
            f"maximum {row.maximum:.0f}" if row.maximum is not None else "",
        )
        if text
    ]
    rules = [(row.rule_in, ", ".join(bounds))] if bounds else []
    if row.minimum_before is not None:
        rules.insert(0, (TARGETS[0], f"minimum {row.minimum_before:.0f}"))
    if row.unique_in is not None:
        rules.append((row.unique_in, "no item twice" + (", and not empty" if row.filled_in else "")))
    if row.default_in is not None:
        rules.append((row.default_in[0], f"default {row.default_in[1]}: {row.effect}"))
    return rules


def is_removed(row: Property, target: str) -> bool:
    """Return whether the target does not have the property."""
    return row.removed_in is not None and _later(target, row.removed_in)


def new_default(row: Property, target: str) -> str | None:
    """Return the default of the target if it differs from that of 3.9."""
    return row.default_in[1] if row.default_in is not None and _later(target, row.default_in[0]) else None


def minimum_text(minimum: float) -> str:
    """Return why a smaller value is refused."""
    return f"the minimum is {minimum:.0f}"


def refusal_of(row: Property, value: str, target: str) -> str | None:
    """Return why the target refuses the value; None if it accepts it, or does not have the property."""
    if is_removed(row, target):
        return None
    problem = _type_problem(row.type, value)
    if problem is not None:
        return problem
    items = _items(value) if row.type is Type.LIST else [value.strip()]
    if row.unique_in is not None and _later(target, row.unique_in) and len(set(items)) < len(items):
        return "an item is listed twice"
    if row.filled_in is not None and _later(target, row.filled_in) and not items:
        return "the list is empty"
    is_in_force = _later(target, row.rule_in)
    minimum = row.minimum if is_in_force else row.minimum_before
    if minimum is not None and float(value) < minimum:
        return minimum_text(minimum)
    if not is_in_force:
        return None
    if row.choices and any(item not in row.choices for item in items):
        return f"only {', '.join(row.choices)} are allowed"
    if row.maximum is not None and float(value) > row.maximum:
        return f"the maximum is {row.maximum:.0f}"
    if row.name == "compression.gzip.level" and int(value) == 0:
        return "0 is not a level"
    return None


_BITS_MAX = {Type.SHORT: INT16_MAX, Type.INT: INT32_MAX, Type.LONG: INT64_MAX}


def _type_problem(kind: Type, value: str) -> str | None:
    """Return why the value is not of the type, as ConfigDef.parseType decides."""
    text = value.strip()
    if kind is Type.BOOLEAN:
        return None if text.lower() in {"true", "false"} else "only true and false are allowed"
    if kind in _BITS_MAX:
        digits = text[1:] if text[:1] in {"-", "+"} else text
        # Longer than any number that fits: not converted, which takes quadratic time.
        if not (digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= len(str(INT64_MAX))):
            return "it is not a whole number"
        most = _BITS_MAX[kind]
        return None if -most - 1 <= int(text) <= most else f"it is not between {-most - 1} and {most}"
    if kind is Type.DOUBLE:
        try:
            return "it is not a number" if math.isnan(float(text)) else None
        except ValueError:
            return "it is not a number"
    return None


def _items(value: str) -> list[str]:
    text = value.strip()
    return [item.strip() for item in text.split(",")] if text else []

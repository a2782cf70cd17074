"""Properties of Kafka 4 from those of the ZooKeeper era: of topics, dynamic ones of brokers, and server.properties.

Removed: KIP-1041, KIP-1030 and the upgrade notes of Kafka 4.0.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

SEGMENT_BYTES_MIN = 1 << 20
"""KIP-1030: a broker of 4.x does not start with a topic whose segment.bytes is smaller."""

TOPIC_PROPERTIES = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""All of Kafka 4.  A topic with another one cannot be altered any more."""

_DIFFERENCE = "message.timestamp.difference.max.ms"
_DIFFERENCE_NOW = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")

_REMOVED = {
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "broker.id": "it is node.id",
    "broker.id.generation.enable": "ids are not generated",
    "control.plane.listener.name": "controllers have listeners of their own",
    "controller.quorum.voters": "replaced",
    "delegation.token.master.key": "it is delegation.token.secret.key",
    "host.name": "use listeners",
    "inter.broker.protocol.version": "the feature metadata.version replaces it",
    "log.message.downconversion.enable": "clients before 2.1 are refused (KIP-896)",
    "log.message.format.version": "records have format 2",
    "log.message.timestamp.difference.max.ms": "it is log.message.timestamp.before.max.ms and after.max.ms",
    "offsets.commit.required.acks": "commits wait for all in-sync replicas",
    "password.encoder.cipher.algorithm": "passwords are not encrypted in the metadata log",
    "password.encoder.iterations": "passwords are not encrypted in the metadata log",
    "password.encoder.key.length": "passwords are not encrypted in the metadata log",
    "password.encoder.keyfactory.algorithm": "passwords are not encrypted in the metadata log",
    "password.encoder.old.secret": "passwords are not encrypted in the metadata log",
    "password.encoder.secret": "passwords are not encrypted in the metadata log",
    "port": "use listeners",
    "quota.consumer.default": "use dynamic quotas",
    "quota.producer.default": "use dynamic quotas",
    "reserved.broker.max.id": "ids are not generated",
    "zookeeper.metadata.migration.enable": "nothing is left to migrate",
}
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_ZOOKEEPER_AUTHORIZERS = {"kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"}


class Change(NamedTuple):
    """A property that is not carried as it is."""

    name: str
    reason: str


def translate_topic(config: Mapping[str, str]) -> tuple[dict[str, str], list[Change]]:
    """Return the properties of a topic for 4.x, and what was changed."""
    carried: dict[str, str] = {}
    changes: list[Change] = []
    for name, value in sorted(config.items()):
        if name == _DIFFERENCE:
            carried |= {new: value for new in _DIFFERENCE_NOW if new not in config}
            changes.append(Change(name, f"set as {' and '.join(_DIFFERENCE_NOW)}"))
        elif name not in TOPIC_PROPERTIES:
            changes.append(Change(name, f"dropped ({name}={value}), 4.x does not have it"))
        elif name == "segment.bytes" and _is_below(value, SEGMENT_BYTES_MIN):
            carried[name] = str(SEGMENT_BYTES_MIN)
            changes.append(Change(name, f"raised from {value} to {SEGMENT_BYTES_MIN}, the smallest in 4.x (KIP-1030)"))
        else:
            carried[name] = value
    return carried, changes


def translate_dynamic(config: Mapping[str, str]) -> tuple[dict[str, str], list[Change]]:
    """Return the dynamic properties of a broker for 4.x, and what was dropped."""
    carried: dict[str, str] = {}
    changes: list[Change] = []
    for name, value in sorted(config.items()):
        reason = _removal(name)
        if reason is not None:
            changes.append(Change(name, f"dropped, {reason}"))
        elif name == "log.segment.bytes" and _is_below(value, SEGMENT_BYTES_MIN):
            carried[name] = str(SEGMENT_BYTES_MIN)
            changes.append(Change(name, f"raised from {value} to {SEGMENT_BYTES_MIN} (KIP-1030)"))
        else:
            carried[name] = value
    return carried, changes


def translate_server(properties: Mapping[str, str], settings: Mapping[str, str]) -> tuple[dict[str, str], list[Change]]:
    """Return server.properties of a node of 4.x: the old ones that exist there, and `settings`, which prevail.

    Values may be secrets: the changes name properties only.
    """
    carried: dict[str, str] = {}
    changes: list[Change] = []
    for name, value in properties.items():
        reason = _removal(name)
        if name in settings:
            continue
        if name == "delegation.token.master.key":
            carried.setdefault("delegation.token.secret.key", value)
        if name == "log.message.timestamp.difference.max.ms":
            for new in _DIFFERENCE_NOW:
                carried.setdefault(f"log.{new}", properties.get(f"log.{new}", value))
        if reason is not None:
            changes.append(Change(name, reason))
        elif name == "authorizer.class.name" and value.strip() in _ZOOKEEPER_AUTHORIZERS:
            carried[name] = _AUTHORIZER
            changes.append(Change(name, f"set to {_AUTHORIZER}"))
        elif name == "log.segment.bytes" and _is_below(value, SEGMENT_BYTES_MIN):
            carried[name] = str(SEGMENT_BYTES_MIN)
            changes.append(Change(name, f"raised to {SEGMENT_BYTES_MIN} (KIP-1030)"))
        else:
            carried[name] = value
    return carried | dict(settings), changes


def _removal(name: str) -> str | None:
    """Return why 4.x does not have a property of brokers; None if it may have it."""
    if name.startswith("zookeeper."):
        return "there is no ZooKeeper"
    return _REMOVED.get(name)


def _is_below(value: str, low: int) -> bool:
    try:
        return int(value) < low
    except ValueError:
        return False

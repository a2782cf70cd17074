"""Properties of Kafka 4 from those of the ZooKeeper era: of topics, dynamic ones of brokers, and server.properties.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kctl.migration.target.property_table import NOTHING, PROPERTIES, SEGMENT_BYTES_MIN, Scope

TOPIC_PROPERTIES = frozenset(
    {name for name, row in PROPERTIES[Scope.TOPIC].items() if row.removed_in is None}
    | {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
"""All of Kafka 4.  A topic with another one cannot be altered any more."""

_DIFFERENCE = "message.timestamp.difference.max.ms"
_DIFFERENCE_NOW = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")

_REPLACED = {"broker.id": "it is node.id", "controller.quorum.voters": "replaced"}
"""Properties of brokers that the plan writes anew."""
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
    row = PROPERTIES[Scope.BROKER].get(name)
    if name in _REPLACED:
        return _REPLACED[name]
    if name.startswith("zookeeper."):
        return "there is no ZooKeeper"
    if row is None or row.removed_in is None:
        return None
    reason = row.instead.removeprefix(NOTHING)
    return f"use {reason}" if reason == row.instead else reason


def _is_below(value: str, low: int) -> bool:
    try:
        return int(value) < low
    except ValueError:
        return False

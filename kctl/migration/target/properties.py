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

CONTROLLER_LISTENER = "CONTROLLER"
PLAINTEXT = "PLAINTEXT"
_CONTROLLER_PREFIX = f"listener.name.{CONTROLLER_LISTENER.lower()}."
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
    for copy, original in controller_listener_properties(properties, settings).items():
        carried[copy] = properties[original]
        changes.append(Change(copy, f"added, with the value of {original}"))
    return carried | dict(settings), changes


def controller_listener_properties(properties: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a secured listener of controllers needs, with those of the listener between brokers.

    Brokers connect to controllers as to each other: with the key stores and logins of that listener, where it has its
    own.  Properties without the prefix of a listener hold for both.
    """
    protocols = _protocols(settings)
    if protocols.get(CONTROLLER_LISTENER, PLAINTEXT) == PLAINTEXT:
        return {}
    prefix = f"listener.name.{inter_broker_listener(properties).lower()}."
    names = {name: f"{_CONTROLLER_PREFIX}{name.removeprefix(prefix)}" for name in properties if name.startswith(prefix)}
    return {copy: name for name, copy in names.items() if copy not in properties}


def inter_broker_listener(properties: Mapping[str, str]) -> str:
    """Return the name of the listener between brokers; without inter.broker.listener.name it is that of a protocol."""
    return properties.get("inter.broker.listener.name", "").strip() or inter_broker_protocol(properties)


def inter_broker_protocol(properties: Mapping[str, str]) -> str:
    """Return the security protocol between brokers."""
    name = properties.get("inter.broker.listener.name", "").strip()
    if name:
        return _protocols(properties).get(name, name)
    return properties.get("security.inter.broker.protocol", "").strip() or PLAINTEXT


def _protocols(properties: Mapping[str, str]) -> dict[str, str]:
    pairs = (part.partition(":") for part in properties.get("listener.security.protocol.map", "").split(","))
    return {name.strip(): protocol.strip() for name, _, protocol in pairs if name.strip()}


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

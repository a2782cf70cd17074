"""Properties of a broker in environment variables, as the container images of Kafka take them.

KAFKA_LOG_RETENTION_MS=1000 is log.retention.ms=1000: in a name three underscores are a dash, two are an underscore, and
one is a dot.  Source: KIP-975, kafka.docker.KafkaDockerWrapper; images of Confluent do the same.

Such an environment is often that of a KRaft node.  A single node that is broker and controller becomes a broker with an
embedded ZooKeeper; what can be no broker of kctl is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kctl.errors import ConfigError

PREFIX = "KAFKA_"
_ROLES = f"{PREFIX}PROCESS_ROLES"
_OF_THE_JVM = frozenset(
    f"{PREFIX}{name}"
    for name in (
        *("VERSION", "OPTS", "HEAP_OPTS", "JVM_PERFORMANCE_OPTS", "GC_LOG_OPTS", "DEBUG"),
        *("JMX_OPTS", "JMX_PORT", "JMX_HOSTNAME", "JMX_HOST"),
        *("LOG4J_OPTS", "LOG4J_ROOT_LOGLEVEL", "LOG4J_LOGGERS", "TOOLS_LOG4J_LOGLEVEL"),
    )
)
_OF_KUBERNETES = re.compile(r"KAFKA_SERVICE_.*|KAFKA_PORT(_.*)?")
"""What Kubernetes adds for a service with the name kafka; `port` is also a property of Kafka before 0.10."""
_SEPARATORS = {"___": "-", "__": "_", "_": "."}
_OF_LISTENERS = ("listeners", "advertised.listeners", "listener.security.protocol.map")


class EnvironmentProperties(NamedTuple):
    """Properties, and remarks about variables without an effect."""

    properties: dict[str, str]
    notes: tuple[str, ...]


def properties_of_environment(environment: Mapping[str, str]) -> EnvironmentProperties:
    """Return the properties of the variables that begin with KAFKA_.

    Raises ConfigError for a KRaft controller, and for a node among several without `zookeeper.connect`.
    """
    given = {
        _property_name(name): value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and name not in _OF_THE_JVM and not _OF_KUBERNETES.fullmatch(name)
    }
    notes = []
    if "process.roles" in given:
        given, dropped = _without_kraft(given)
        notes.append(f"{', '.join(dropped)}: without effect, the broker uses ZooKeeper and not KRaft")
    if "listeners" not in given and "advertised.listeners" in given:
        given["listeners"] = ",".join(
            f"{name}://0.0.0.0:{address.rpartition(':')[2]}"
            for name, address in _listeners(given["advertised.listeners"])
        )
    return EnvironmentProperties(given, tuple(notes))


def _property_name(variable: str) -> str:
    words = variable.removeprefix(PREFIX).lower()
    return re.sub("_{1,3}", lambda separator: _SEPARATORS[separator[0]], words)


def _without_kraft(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the properties of the broker of a KRaft node, and the names of those that were left out."""
    roles = {role.strip() for role in given["process.roles"].split(",")}
    if "broker" not in roles:
        raise ConfigError(_ROLES, given["process.roles"], "kctl has no KRaft controllers; leave this node out")
    voters = [voter for voter in given.get("controller.quorum.voters", "").split(",") if voter.strip()]
    if (len(voters) > 1 or "controller" not in roles) and not given.get("zookeeper.connect", "").strip():
        reason = "this is one of several nodes; several brokers of kctl need a ZooKeeper: set KAFKA_ZOOKEEPER_CONNECT"
        raise ConfigError(_ROLES, given["process.roles"], reason)
    controllers = {name.strip().upper() for name in given.get("controller.listener.names", "").split(",")}
    kept, dropped = {}, []
    for name, value in given.items():
        if name in {"process.roles", "node.id"} or name.startswith("controller."):
            dropped.append(name)
        elif name in _OF_LISTENERS:
            entries = [entry.strip() for entry in value.split(",")]
            kept[name] = ",".join(entry for entry in entries if entry.partition(":")[0].upper() not in controllers)
        else:
            kept[name] = value
    if "node.id" in given:
        kept.setdefault("broker.id", given["node.id"])
        dropped.remove("node.id")
    return kept, dropped


def _listeners(value: str) -> Iterator[tuple[str, str]]:
    """Yield the name and HOST:PORT of each listener."""
    for entry in value.split(","):
        name, _, address = entry.strip().partition("://")
        yield name, address

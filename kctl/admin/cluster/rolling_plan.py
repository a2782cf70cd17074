"""Plans a rolling restart: the order of the brokers, and what stopping each of them costs.  Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kctl.client.metadata import Broker, ClusterMetadata
from kctl.client.outcome import absent_broker
from kctl.errors import UsageError
from kctl.model import TopicPartition

PLACEHOLDERS = ("id", "host", "port", "rack")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SAFE = re.compile(r"[A-Za-z0-9_:\[](?!.*\.\.)[A-Za-z0-9_.:%/\[\]-]*|")
"""Addresses and racks are reported by brokers: a text that begins with `-`, or has blanks or characters of a shell,
would change the command, and `..` or the `/` of a host a path in it."""


@dataclass(frozen=True, slots=True)
class RollStep:
    """The restart of one broker."""

    broker: Broker
    is_controller: bool
    leaders: int
    """Partitions that it leads now."""
    replicas: int
    unavailable: tuple[TopicPartition, ...]
    """Partitions that have no other in-sync replica."""
    under_min_isr: tuple[TopicPartition, ...]
    """Partitions that would refuse writes with acks=all."""

    @property
    def is_harmless(self) -> bool:
        """Whether clients can read and write everything during the restart."""
        return not self.unavailable and not self.under_min_isr


def plan_roll(
    metadata: ClusterMetadata, min_insync_replicas: Mapping[str, int], chosen: Collection[int] | None
) -> list[RollStep]:
    """Return a step for each chosen broker, or for all: by id, the controller last, so that it moves only once.

    Raises ApiError for a broker that is not alive.
    """
    for broker_id in sorted(set(chosen or ()) - metadata.brokers.keys()):
        raise absent_broker(broker_id, metadata.brokers)
    order = sorted(metadata.brokers if chosen is None else set(chosen))
    order.sort(key=lambda broker_id: broker_id == metadata.controller_id)
    return [_step(metadata, min_insync_replicas, broker_id) for broker_id in order]


def preferred_elsewhere(metadata: ClusterMetadata, broker_id: int) -> list[TopicPartition]:
    """Return the partitions whose preferred leader is this broker and that another one leads."""
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in metadata.topics.values()
        for partition in topic.partitions
        if partition.replicas[:1] == (broker_id,) and partition.leader != broker_id and broker_id in partition.isr
    ]


def command_for(template: str, broker: Broker) -> list[str]:
    """Return the words of a command for one broker, with its id, host, port and rack for {id}, {host}, {port} and
    {rack}.

    Raises UsageError for a malformed template, and for an address or rack that could change the command.
    """
    values = {"id": str(broker.node_id), "host": broker.host, "port": str(broker.port), "rack": broker.rack or ""}
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise UsageError(f"--restart-command: {error}") from None
    if not words:
        raise UsageError("--restart-command: is empty")

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            known = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            raise UsageError(f"--restart-command: {{{name}}} is none of {known}")
        if not _SAFE.fullmatch(values[name]) or (name == "host" and "/" in values[name]):
            raise UsageError(f"broker {broker.node_id}: its {name} {values[name]!r} must not be part of a command")
        return values[name]

    return [_PLACEHOLDER.sub(value, word) for word in words]


def _step(metadata: ClusterMetadata, min_insync_replicas: Mapping[str, int], broker_id: int) -> RollStep:
    leaders = replicas = 0
    unavailable, under_min_isr = [], []
    for topic in metadata.topics.values():
        for partition in topic.partitions:
            if broker_id not in partition.replicas:
                continue
            replicas += 1
            leaders += partition.leader == broker_id
            others = [replica for replica in partition.isr if replica != broker_id]
            tp = TopicPartition(topic.name, partition.partition)
            if not others:
                unavailable.append(tp)
            elif len(others) < min_insync_replicas.get(topic.name, 1):
                under_min_isr.append(tp)
    return RollStep(
        broker=metadata.brokers[broker_id],
        is_controller=broker_id == metadata.controller_id,
        leaders=leaders,
        replicas=replicas,
        unavailable=tuple(unavailable),
        under_min_isr=tuple(under_min_isr),
    )

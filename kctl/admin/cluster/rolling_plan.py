"""Plans a rolling restart: the order of the brokers, and what stopping each of them costs.  Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kctl.admin.cluster.quorum import MetadataQuorum, QuorumReplica
from kctl.client.metadata import Broker, ClusterMetadata
from kctl.client.outcome import absent_broker
from kctl.errors import UsageError
from kctl.model import TopicPartition

PLACEHOLDERS = ("id", "host", "port", "rack")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SAFE = re.compile(r"[A-Za-z0-9_:\[](?!.*\.\.)[A-Za-z0-9_.:%/\[\]-]*|")
"""Addresses and racks are reported by brokers: a text that begins with `-`, or has blanks or characters of a shell,
would change the command, and `..` or the `/` of a host a path in it."""


BROKER, CONTROLLER, COMBINED = "broker", "controller", "broker,controller"


@dataclass(frozen=True, slots=True)
class RollStep:
    """The restart of one broker or dedicated controller."""

    broker: Broker
    """Its id and address; those of a controller are empty and 0 before Kafka 3.9."""
    is_controller: bool
    """Whether it is the active controller."""
    leaders: int
    """Partitions that it leads now."""
    replicas: int
    unavailable: tuple[TopicPartition, ...]
    """Partitions that have no other in-sync replica."""
    under_min_isr: tuple[TopicPartition, ...]
    """Partitions that would refuse writes with acks=all."""
    role: str = BROKER
    """Its process.roles."""

    @property
    def is_broker(self) -> bool:
        """Whether it serves clients."""
        return self.role != CONTROLLER

    @property
    def is_harmless(self) -> bool:
        """Whether clients can read and write everything during the restart."""
        return not self.unavailable and not self.under_min_isr


def plan_roll(
    metadata: ClusterMetadata,
    min_insync_replicas: Mapping[str, int],
    chosen: Collection[int] | None,
    quorum: MetadataQuorum | None = None,
) -> list[RollStep]:
    """Return a step for each chosen broker or controller, or for all: brokers by id, then dedicated controllers by id.

    The active controller is the last of all, so that it moves only once; `quorum` is that of a KRaft cluster, whose
    metadata names any broker.  Raises ApiError for a broker that is not alive.
    """
    voters = {} if quorum is None else {voter.node_id: voter for voter in quorum.voters}
    active = metadata.controller_id if quorum is None else quorum.leader_id
    everything = metadata.brokers.keys() | voters.keys()
    for node_id in sorted(set(chosen or ()) - everything):
        raise absent_broker(node_id, everything)
    order = sorted(everything if chosen is None else set(chosen))
    order.sort(key=lambda node_id: (node_id == active, node_id not in metadata.brokers))
    steps = []
    for node_id in order:
        if node_id in metadata.brokers:
            step = _step(metadata, min_insync_replicas, node_id)
            role = COMBINED if node_id in voters else BROKER
            steps.append(replace(step, is_controller=node_id == active, role=role))
        else:
            controller = _controller(voters[node_id])
            steps.append(RollStep(controller, node_id == active, 0, 0, (), (), CONTROLLER))
    return steps


def _controller(voter: QuorumReplica) -> Broker:
    """Return the controller with the address of its first listener, if the quorum names it."""
    _, _, address = next(iter(voter.endpoints), "").partition("://")
    host, _, port = address.rpartition(":")
    return Broker(voter.node_id, host, int(port) if port.isdecimal() else 0)


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
        if name in {"host", "port"} and not broker.host:
            raise UsageError(f"controller {broker.node_id}: its {name} is unknown before Kafka 3.9: use {{id}}")
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

"""Decisions about many partitions, made in slices.

A function that decides about every partition of a large topic, or of all topics, is a generator: it yields wherever the
event loop may serve other connections, and returns its actions.  Only the runner of the controller changes the state,
and it begins no other decision in between.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import TypeAlias

from kctl.limits import Subject, bound
from kctl.model import LEADER_DURING_DELETE, LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import (
    Action,
    PartitionUpdate,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from kctl.server.cluster.controller.state import ControllerState
from kctl.system.steps import Steps

DECISIONS_PER_SLICE_MAX = bound(
    Subject.PARTITIONS,
    "partitions about which the controller decides without a pause",
    1_000,
    "partitions",
    on_excess="other connections are served in between; later events of the controller wait",
)


Decision: TypeAlias = Steps[list[Action]]


def is_slice_full(number: int) -> bool:
    """Return whether a loop over partitions should yield before the partition with this number."""
    return number % DECISIONS_PER_SLICE_MAX == DECISIONS_PER_SLICE_MAX - 1


def is_long(objects: Sized) -> bool:
    """Return whether a loop over these objects without a pause should be in a slice of its own."""
    return len(objects) >= DECISIONS_PER_SLICE_MAX


# Collects requests per broker, so that a change of a thousand partitions takes a few requests.
#
# Kafka: ControllerBrokerRequestBatch. Each LeaderAndIsr implies an UpdateMetadata for the partition to all live
# brokers.


EPOCH_DURING_DELETE = -2
"""Leader epoch of a StopReplica for a topic that is being deleted; valid whatever epoch the broker has."""


class RequestBatch:
    """Filled by `step`; `actions` returns the requests in the order in which brokers must get them."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._leader_and_isr: dict[int, dict[TopicPartition, PartitionUpdate]] = {}
        self._metadata: dict[TopicPartition, PartitionUpdate] = {}
        self._stop: dict[tuple[int, bool], dict[TopicPartition, int]] = {}
        self._sends_live_brokers = False
        self._brokers = frozenset(state.brokers)

    def leader_and_isr(self, broker_id: int, topic_partition: TopicPartition, *, is_new: bool = False) -> None:
        """Add the broker's role in the partition, from the current state."""
        update = self._metadata[topic_partition] = self._update(topic_partition)
        self._add_role(broker_id, update._replace(is_new=True) if is_new else update)

    def leader_and_isr_of_all(self, topic_partition: TopicPartition, brokers: Iterable[tuple[int, bool]]) -> None:
        """As `leader_and_isr` for several brokers, each with whether its replica is new; for none it adds metadata."""
        update = self._metadata[topic_partition] = self._update(topic_partition)
        new_update = update._replace(is_new=True)
        for broker_id, is_new in brokers:
            self._add_role(broker_id, new_update if is_new else update)

    def _add_role(self, broker_id: int, update: PartitionUpdate) -> None:
        roles = self._leader_and_isr.get(broker_id)
        if roles is None:
            roles = self._leader_and_isr[broker_id] = {}
        roles[update.topic_partition] = update

    def metadata(self, topic_partition: TopicPartition) -> None:
        """Add the partition's state to the metadata sent to all live brokers."""
        self._metadata[topic_partition] = self._update(topic_partition)

    def metadata_of_deleted(self, topic_partition: TopicPartition) -> None:
        """Add the partition's deletion to the metadata sent to all live brokers."""
        known = self._state.leaders.get(topic_partition) or LeaderAndIsr(LEADER_DURING_DELETE, 0, ())
        gone = LeaderAndIsr(LEADER_DURING_DELETE, known.leader_epoch, known.isr, known.controller_epoch)
        self._metadata[topic_partition] = self._update(topic_partition, gone)

    def send_live_brokers(self) -> None:
        """Send the live brokers to all live brokers, even if no partition changed."""
        self._sends_live_brokers = True

    def full_metadata(self, broker_ids: Iterable[int]) -> Steps[SendUpdateMetadata]:
        """Return the request that sends these brokers every partition that has a leader; yield between slices.

        Topics whose deletion has started are left out: no later request would remove them from the metadata.
        """
        updates: list[PartitionUpdate] = []
        for number, topic_partition in enumerate(self._state.all_partitions()):
            if is_slice_full(number):
                yield
            is_led = topic_partition in self._state.leaders
            if is_led and topic_partition.topic not in self._state.deletions_started:
                updates.append(self._update(topic_partition))
        return SendUpdateMetadata(tuple(sorted(broker_ids)), tuple(updates))

    def stop_replica(self, broker_id: int, topic_partition: TopicPartition, *, is_deleting: bool) -> None:
        """Add a StopReplica; ignored when the broker is not alive, since it gets its replicas when it restarts."""
        if broker_id not in self._state.brokers:
            return
        is_topic_going = topic_partition.topic in self._state.deleting
        known = self._state.leaders.get(topic_partition)
        epoch = EPOCH_DURING_DELETE if is_topic_going or known is None else known.leader_epoch
        self._stop.setdefault((broker_id, is_deleting), {})[topic_partition] = epoch

    def actions(self) -> list[Action]:
        """Return LeaderAndIsr, then UpdateMetadata, then StopReplica."""
        live = tuple(sorted(self._state.brokers))
        actions: list[Action] = [
            SendLeaderAndIsr(broker_id, tuple(updates.values()))
            for broker_id, updates in sorted(self._leader_and_isr.items())
        ]
        if (self._metadata or self._sends_live_brokers) and live:
            actions.append(SendUpdateMetadata(live, tuple(self._metadata.values())))
        actions += [
            SendStopReplica(broker_id, partitions, is_deleting)
            for (broker_id, is_deleting), partitions in sorted(self._stop.items())
        ]
        return actions

    def _update(self, topic_partition: TopicPartition, state: LeaderAndIsr | None = None) -> PartitionUpdate:
        topic, partition = topic_partition
        assignment = self._state.topics[topic]
        replicas = assignment.replicas[partition]
        brokers = self._brokers
        return PartitionUpdate(
            topic_partition,
            assignment.topic_id,
            state or self._state.leaders[topic_partition],
            replicas,
            assignment.adding_replicas.get(partition, ()),
            assignment.removing_replicas.get(partition, ()),
            () if brokers.issuperset(replicas) else tuple(b for b in replicas if b not in brokers),
        )

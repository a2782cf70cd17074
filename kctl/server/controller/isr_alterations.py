"""AlterIsr: since 2.7-IV2, leaders change in-sync replicas through the controller.  KIP-497.

The controller has every state that it wrote itself, so it refuses a change based on an older state.  It sends what it
has written to all brokers as metadata; the leader gets it in the response.  A leader that requests the current
state again, because a response was lost, gets success.  Kafka: KafkaController.alterIsrs.

Pure.
"""

from __future__ import annotations

from dataclasses import replace

from kctl.errors import ErrorCode
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.controller.actions import Action, AlterStates, CompleteRequest
from kctl.server.controller.decisions import Decision
from kctl.server.controller.events import IsrAlterationsRequested, StatesAltered, StatesRead
from kctl.server.controller.reassignment_steps import states_read
from kctl.server.controller.state import ControllerState


def alterations_requested(state: ControllerState, event: IsrAlterationsRequested) -> list[Action]:
    """Writes the valid changes; CompleteRequest follows when they are written."""
    outcome: dict[TopicPartition, ErrorCode] = {}
    accepted: dict[TopicPartition, LeaderAndIsr] = {}
    for topic_partition, requested in event.requested.items():
        outcome[topic_partition] = code = _judge(state, topic_partition, requested)
        if code is ErrorCode.NONE and not _is_same(state.leaders[topic_partition], requested):
            accepted[topic_partition] = replace(requested, controller_epoch=state.epoch)
    return [AlterStates(accepted, outcome, event.token)]


def states_altered(state: ControllerState, event: StatesAltered) -> Decision:
    """The new in-sync replicas are written: updates all brokers and completes reassignments that are now in sync."""
    updates = yield from states_read(state, StatesRead({**event.written, **event.conflicts}))
    outcome = dict(event.outcome)
    outcome.update(dict.fromkeys(event.conflicts, ErrorCode.INVALID_UPDATE_VERSION))
    outcome.update(dict.fromkeys(event.missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return [CompleteRequest(event.token, outcome), *updates]


def _judge(state: ControllerState, topic_partition: TopicPartition, requested: LeaderAndIsr) -> ErrorCode:
    known = state.leaders.get(topic_partition)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if requested.leader_epoch < known.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    is_leader = requested.leader == known.leader and requested.leader_epoch == known.leader_epoch
    if not is_leader or requested.leader not in requested.isr:
        return ErrorCode.INVALID_REQUEST
    # The leader may have a newer state, which it wrote itself before it was upgraded to AlterIsr.
    is_old = requested.partition_epoch < known.partition_epoch
    return ErrorCode.INVALID_UPDATE_VERSION if is_old and not _is_same(known, requested) else ErrorCode.NONE


def _is_same(known: LeaderAndIsr, requested: LeaderAndIsr) -> bool:
    return (known.leader, known.leader_epoch, known.isr) == (requested.leader, requested.leader_epoch, requested.isr)

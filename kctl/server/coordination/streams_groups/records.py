"""Converts between the values of a streams group and the messages in its records.

Pure.  Kafka: StreamsCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from kctl.records.internal import newer_group_records as messages
from kctl.server.coordination.newer_groups import MemberState, TargetEpoch
from kctl.server.coordination.streams_groups.state import (
    CopartitionGroup,
    Endpoint,
    InternalTopic,
    OwnedTasks,
    RecordType,
    StreamsAssignment,
    StreamsEpoch,
    StreamsMember,
    Subtopology,
    TaskEpochs,
    Tasks,
    TaskSets,
    Topology,
)

_STATES = {
    MemberState.STABLE: 1,
    MemberState.UNREVOKED: 2,
    MemberState.UNRELEASED: 3,
    MemberState.UNKNOWN: 127,
}
"""The numbers of states differ from those of consumer groups."""
_STATES_BY_NUMBER = {number: state for state, number in _STATES.items()}
Value: TypeAlias = StreamsEpoch | TargetEpoch | StreamsMember | StreamsAssignment | Topology | TaskSets


def message_of(value: Value) -> object:
    """Return the message of a value."""
    match value:
        case StreamsEpoch():
            return messages.StreamsGroupMetadataValue(
                epoch=value.epoch,
                metadata_hash=value.metadata_hash,
                validated_topology_epoch=value.validated_topology_epoch,
                last_assignment_configs=_pairs(value.assignment_configs),
            )
        case TargetEpoch(epoch, timestamp_ms):
            return messages.StreamsGroupTargetAssignmentMetadataValue(
                assignment_epoch=epoch, assignment_timestamp=timestamp_ms
            )
        case StreamsMember():
            return messages.StreamsGroupMemberMetadataValue(
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                topology_epoch=value.topology_epoch,
                process_id=value.process_id,
                user_endpoint=None if value.endpoint is None else messages.Endpoint(**value.endpoint._asdict()),
                client_tags=_pairs(value.client_tags),
            )
        case StreamsAssignment():
            return _assignment_message(value)
        case Topology():
            return messages.StreamsGroupTopologyValue(
                epoch=value.epoch, subtopologies=list(map(_subtopology_message, value.subtopologies.values()))
            )
        case TaskSets():
            return messages.StreamsGroupTargetAssignmentMemberValue(
                active_tasks=_target(value.active),
                standby_tasks=_target(value.standby),
                warmup_tasks=_target(value.warmup),
            )


def _assignment_message(value: StreamsAssignment) -> object:
    return messages.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=value.epoch,
        previous_member_epoch=value.previous_epoch,
        state=_STATES[value.state],
        active_tasks=_with_epochs(value.assigned.active),
        standby_tasks=_current(value.assigned.standby),
        warmup_tasks=_current(value.assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(value.revoking.active),
        standby_tasks_pending_revocation=_current(value.revoking.standby),
        warmup_tasks_pending_revocation=_current(value.revoking.warmup),
    )


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[messages.KeyValue]:
    return [messages.KeyValue(key=key, value=value) for key, value in pairs]


def _target(tasks: Tasks) -> list[messages.TargetTasks]:
    return [
        messages.TargetTasks(subtopology_id=name, partitions=sorted(numbers)) for name, numbers in sorted(tasks.items())
    ]


def _current(tasks: Tasks) -> list[messages.CurrentTasks]:
    return [
        messages.CurrentTasks(subtopology_id=name, partitions=sorted(numbers), assignment_epochs=[])
        for name, numbers in sorted(tasks.items())
    ]


def _with_epochs(tasks: TaskEpochs) -> list[messages.CurrentTasks]:
    return [
        messages.CurrentTasks(
            subtopology_id=name,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[number] for number in sorted(epochs)],
        )
        for name, epochs in sorted(tasks.items())
    ]


def _subtopology_message(value: Subtopology) -> messages.Subtopology:
    return messages.Subtopology(
        subtopology_id=value.subtopology_id,
        source_topics=[*value.source_topics],
        source_topic_regex=[*value.source_regexes],
        state_changelog_topics=list(map(_topic_message, value.changelogs)),
        repartition_sink_topics=[*value.repartition_sinks],
        repartition_source_topics=list(map(_topic_message, value.repartition_sources)),
        copartition_groups=[
            messages.CopartitionGroup(
                source_topics=[*group.source_topics],
                source_topic_regex=[*group.source_regexes],
                repartition_source_topics=[*group.repartition_sources],
            )
            for group in value.copartition_groups
        ],
    )


def _topic_message(topic: InternalTopic) -> messages.InternalTopic:
    return messages.InternalTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=_pairs(topic.configs),
    )


def value_in(record_type: RecordType, message: Any) -> Value:
    """Return the value in a message."""
    match record_type:
        case RecordType.GROUP:
            configs = _tuples(message.last_assignment_configs or ())
            return StreamsEpoch(message.epoch, message.metadata_hash, message.validated_topology_epoch, configs)
        case RecordType.TARGET:
            return TargetEpoch(message.assignment_epoch, message.assignment_timestamp)
        case RecordType.MEMBER:
            endpoint = message.user_endpoint
            return StreamsMember(
                instance_id=message.instance_id,
                rack_id=message.rack_id,
                client_id=message.client_id,
                client_host=message.client_host,
                rebalance_timeout_ms=message.rebalance_timeout_ms,
                topology_epoch=message.topology_epoch,
                process_id=message.process_id,
                endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
                client_tags=_tuples(message.client_tags),
            )
        case RecordType.MEMBER_TARGET:
            return TaskSets(
                tasks_in(message.active_tasks), tasks_in(message.standby_tasks), tasks_in(message.warmup_tasks)
            )
        case RecordType.MEMBER_ASSIGNMENT:
            return StreamsAssignment(
                epoch=message.member_epoch,
                previous_epoch=message.previous_member_epoch,
                state=_STATES_BY_NUMBER.get(message.state, MemberState.UNKNOWN),
                assigned=OwnedTasks(
                    _epochs(message.active_tasks, message.member_epoch),
                    tasks_in(message.standby_tasks),
                    tasks_in(message.warmup_tasks),
                ),
                revoking=OwnedTasks(
                    _epochs(message.active_tasks_pending_revocation, message.member_epoch),
                    tasks_in(message.standby_tasks_pending_revocation),
                    tasks_in(message.warmup_tasks_pending_revocation),
                ),
            )
        case RecordType.TOPOLOGY:
            return topology_in(message)


def topology_in(message: Any) -> Topology:
    """Return the topology of a record or a request; of two subtopologies with the same id the last one counts."""
    return Topology(message.epoch, {entry.subtopology_id: subtopology_in(entry) for entry in message.subtopologies})


def subtopology_in(message: Any) -> Subtopology:
    """Return the subtopology of a record or a request."""
    return Subtopology(
        subtopology_id=message.subtopology_id,
        source_topics=tuple(message.source_topics),
        source_regexes=tuple(message.source_topic_regex),
        changelogs=_topics(message.state_changelog_topics),
        repartition_sinks=tuple(message.repartition_sink_topics),
        repartition_sources=_topics(message.repartition_source_topics),
        copartition_groups=tuple(
            CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in message.copartition_groups
        ),
    )


def _topics(topics: Iterable[Any]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=_tuples(topic.topic_configs),
        )
        for topic in topics
    )


def _tuples(pairs: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((pair.key, pair.value) for pair in pairs)


def tasks_in(tasks: Iterable[Any]) -> Tasks:
    """Return the tasks of one role in a record or a request."""
    return {entry.subtopology_id: frozenset(entry.partitions) for entry in tasks}


def _epochs(tasks: Iterable[Any], epoch: int) -> TaskEpochs:
    """Return the tasks with their epochs; brokers before 4.3 do not store these."""
    found = {}
    for entry in tasks:
        epochs = entry.assignment_epochs or ()
        if len(epochs) != len(entry.partitions):
            epochs = (epoch,) * len(entry.partitions)
        found[entry.subtopology_id] = dict(zip(entry.partitions, epochs, strict=True))
    return found

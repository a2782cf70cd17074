"""Builds LeaderAndIsr, UpdateMetadata and StopReplica requests from the controller's state and actions.

Requests are built in the newest version; older versions list partitions flat or grouped differently.  Long ones are
built in slices, as decisions are (see decisions).  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from kctl.model import ZERO_UUID
from kctl.protocol.apis.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.apis.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.server.cluster.controller.actions import PartitionUpdate, SendLeaderAndIsr, SendStopReplica
from kctl.server.cluster.controller.rules.decisions import is_slice_full
from kctl.server.cluster.controller.state import ControllerState
from kctl.system.steps import Steps

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_TYPE_UNKNOWN = 0
_FIRST_LEADER_AND_ISR_BY_TOPIC = 2
_FIRST_UPDATE_METADATA_BY_TOPIC = 5
_FIRST_STOP_REPLICA_WITH_EPOCHS = 3

TopicState = TypeVar("TopicState")
PartitionState = TypeVar("PartitionState")


def leader_and_isr_request(
    state: ControllerState, controller_id: int, action: SendLeaderAndIsr
) -> Steps[LeaderAndIsrRequest]:
    """Build the request in its newest version; `in_version_of_leader_and_isr` converts it."""
    request = LeaderAndIsrRequest(
        controller_id=controller_id,
        controller_epoch=state.epoch,
        broker_epoch=state.brokers[action.broker_id].epoch,
        type=_TYPE_UNKNOWN,
        topic_states=[],
        live_leaders=_live_leaders(state, {update.state.leader for update in action.partitions}),
    )
    request.topic_states.extend(
        (yield from _by_topic(action.partitions, LeaderAndIsrTopicState, _leader_and_isr_state))
    )
    return request


def _leader_and_isr_state(update: PartitionUpdate) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=update.topic_partition[1],
        controller_epoch=update.state.controller_epoch,
        leader=update.state.leader,
        leader_epoch=update.state.leader_epoch,
        isr=list(update.state.isr),
        partition_epoch=update.state.partition_epoch,
        replicas=list(update.replicas),
        adding_replicas=list(update.adding_replicas),
        removing_replicas=list(update.removing_replicas),
        is_new=update.is_new,
    )


def _live_leaders(state: ControllerState, leaders: set[int]) -> list[LeaderAndIsrLiveLeader]:
    return [
        LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
        for broker_id, live in sorted(state.brokers.items())
        if broker_id in leaders
        for endpoint in live.registration.endpoints[:1]
    ]


def update_metadata_request(
    state: ControllerState, controller_id: int, partitions: Iterable[PartitionUpdate]
) -> Steps[UpdateMetadataRequest]:
    """Build a request with all live brokers, all their endpoints, and the given partitions."""
    request = UpdateMetadataRequest(
        controller_id=controller_id,
        controller_epoch=state.epoch,
        topic_states=[],
        live_brokers=_live_brokers(state),
    )
    request.topic_states += yield from _by_topic(partitions, UpdateMetadataTopicState, _update_metadata_state)
    return request


def _update_metadata_state(update: PartitionUpdate) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=update.topic_partition[1],
        controller_epoch=update.state.controller_epoch,
        leader=update.state.leader,
        leader_epoch=update.state.leader_epoch,
        isr=list(update.state.isr),
        zk_version=update.state.partition_epoch,
        replicas=list(update.replicas),
        offline_replicas=list(update.offline_replicas),
    )


def _live_brokers(state: ControllerState) -> list[UpdateMetadataBroker]:
    return [
        UpdateMetadataBroker(
            id=broker_id,
            endpoints=[
                UpdateMetadataEndpoint(
                    port=endpoint.port,
                    host=endpoint.host,
                    listener=endpoint.listener,
                    security_protocol=SECURITY_PROTOCOL_IDS[endpoint.security_protocol],
                )
                for endpoint in live.registration.endpoints
            ],
            rack=live.registration.rack,
        )
        for broker_id, live in sorted(state.brokers.items())
    ]


def _by_topic(
    updates: Iterable[PartitionUpdate],
    topic_state: Callable[..., TopicState],
    partition_state: Callable[[PartitionUpdate], PartitionState],
) -> Steps[list[TopicState]]:
    """Return the states of the partitions, grouped by topic, in the order of the first partition of each topic."""
    topics: dict[str, TopicState] = {}
    partitions: dict[str, list[PartitionState]] = {}
    for number, update in enumerate(updates):
        if is_slice_full(number):
            yield
        name = update.topic_partition[0]
        states = partitions.get(name)
        if states is None:
            states = partitions[name] = []
            topics[name] = topic_state(topic_name=name, topic_id=update.topic_id or ZERO_UUID, partition_states=states)
        states.append(partition_state(update))
    return list(topics.values())


def stop_replica_request(state: ControllerState, controller_id: int, action: SendStopReplica) -> StopReplicaRequest:
    """Build the request in version 3, the newest."""
    topics: dict[str, list[StopReplicaPartitionState]] = {}
    for (topic, partition), leader_epoch in action.partitions.items():
        topics.setdefault(topic, []).append(
            StopReplicaPartitionState(
                partition_index=partition, leader_epoch=leader_epoch, delete_partition=action.is_deleting
            )
        )
    return StopReplicaRequest(
        controller_id=controller_id,
        controller_epoch=state.epoch,
        broker_epoch=state.brokers[action.broker_id].epoch,
        topic_states=[StopReplicaTopicState(topic_name=t, partition_states=p) for t, p in topics.items()],
    )


def in_version_of_leader_and_isr(request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrRequest:
    """Convert the request to an older version."""
    if version >= _FIRST_LEADER_AND_ISR_BY_TOPIC:
        return request
    flat = [replace(s, topic_name=t.topic_name) for t in request.topic_states for s in t.partition_states]
    return replace(request, topic_states=[], ungrouped_partition_states=flat)


def in_version_of_update_metadata(request: UpdateMetadataRequest, version: int) -> UpdateMetadataRequest:
    """Convert the request to an older version."""
    if version >= _FIRST_UPDATE_METADATA_BY_TOPIC:
        return request
    flat = [replace(s, topic_name=t.topic_name) for t in request.topic_states for s in t.partition_states]
    return replace(request, topic_states=[], ungrouped_partition_states=flat)


def in_version_of_stop_replica(request: StopReplicaRequest, version: int) -> StopReplicaRequest:
    """Convert the request to an older version, which has one delete flag for all partitions."""
    if version >= _FIRST_STOP_REPLICA_WITH_EPOCHS:
        return request
    is_deleting = any(s.delete_partition for t in request.topic_states for s in t.partition_states)
    old = replace(request, topic_states=[], delete_partitions=is_deleting)
    if version == 0:
        flat = [
            StopReplicaPartitionV0(topic_name=t.topic_name, partition_index=s.partition_index)
            for t in request.topic_states
            for s in t.partition_states
        ]
        return replace(old, ungrouped_partitions=flat)
    topics = [
        StopReplicaTopicV1(name=t.topic_name, partition_indexes=[s.partition_index for s in t.partition_states])
        for t in request.topic_states
    ]
    return replace(old, topics=topics)

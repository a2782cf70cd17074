"""Forged controller requests, and the values that a client can read for them."""

from __future__ import annotations

from kctl.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.hostile.raw_client import Attacker

FIRST_EPOCH = 1
"""Epoch of the controller of a newly started broker with an empty data folder."""
LEADER_AND_ISR_VERSION, STOP_REPLICA_VERSION, UPDATE_METADATA_VERSION = 4, 3, 6


def controller_id(attacker: Attacker) -> int:
    """The controller id from Metadata."""
    return attacker.call(MetadataRequest(topics=[]), MetadataResponse, 1).controller_id


def leader_and_isr(
    topic: str, partition: int, *, controller: int, epoch: int = FIRST_EPOCH, broker_epoch: int = -1
) -> LeaderAndIsrRequest:
    """Makes the broker leader of a new partition."""
    state = LeaderAndIsrPartitionState(
        partition_index=partition,
        controller_epoch=epoch,
        leader=controller,
        leader_epoch=0,
        isr=[controller],
        partition_epoch=0,
        replicas=[controller],
        is_new=True,
    )
    topics = [LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])]
    return LeaderAndIsrRequest(
        controller_id=controller,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        topic_states=topics,
        live_leaders=[],
    )


def stop_replica(
    topic: str, partition: int, *, controller: int, epoch: int = FIRST_EPOCH, broker_epoch: int = -1
) -> StopReplicaRequest:
    """Makes the broker delete a partition."""
    state = StopReplicaPartitionState(partition_index=partition, leader_epoch=-2, delete_partition=True)
    topics = [StopReplicaTopicState(topic_name=topic, partition_states=[state])]
    return StopReplicaRequest(
        controller_id=controller, controller_epoch=epoch, broker_epoch=broker_epoch, topic_states=topics
    )


def update_metadata(
    topic: str,
    partition: int,
    *,
    controller: int,
    brokers: list[UpdateMetadataBroker],
    epoch: int = FIRST_EPOCH,
    broker_epoch: int = -1,
) -> UpdateMetadataRequest:
    """Adds a partition to the metadata."""
    state = UpdateMetadataPartitionState(
        partition_index=partition,
        controller_epoch=epoch,
        leader=controller,
        leader_epoch=0,
        isr=[controller],
        zk_version=0,
        replicas=[controller],
    )
    topics = [UpdateMetadataTopicState(topic_name=topic, partition_states=[state])]
    return UpdateMetadataRequest(
        controller_id=controller,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        topic_states=topics,
        live_brokers=brokers,
    )

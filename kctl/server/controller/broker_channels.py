"""From the controller to brokers: requests in Kafka's messages, one ordered queue per broker.

This broker is told directly, by the same message that would travel.  Not done: channels to other brokers; they come
with replication.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol.apis.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.server.controller.actions import PartitionNews, SendLeaderAndIsr, SendStopReplica, SendUpdateMetadata
from kctl.server.controller.events import Event, LeaderAndIsrAnswered, StopReplicaAnswered
from kctl.server.controller.state import ControllerState

log = logging.getLogger(__name__)

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_TYPE_UNKNOWN = 0


class ControlPlane(Protocol):
    """What a broker does with the controller's requests."""

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> Mapping[TopicPartition, ErrorCode]: ...

    def update_metadata(self, request: UpdateMetadataRequest) -> None: ...

    def stop_replica(self, request: StopReplicaRequest) -> Mapping[TopicPartition, ErrorCode]: ...


class BrokerChannels:
    """Owner: event loop."""

    def __init__(self, broker_id: int, local: ControlPlane, on_answer: Callable[[Event], None]) -> None:
        self._broker_id = broker_id
        self._local = local
        self._on_answer = on_answer

    def send(self, state: ControllerState, action: SendLeaderAndIsr | SendUpdateMetadata | SendStopReplica) -> None:
        """Delivers in the order of the calls; answers come through `on_answer`."""
        try:
            if isinstance(action, SendUpdateMetadata):
                if self._broker_id in action.broker_ids:
                    self._local.update_metadata(update_metadata_request(state, self._broker_id, action.partitions))
            elif action.broker_id != self._broker_id:
                log.warning("broker %s is registered, but there are no channels to other brokers yet", action.broker_id)
            elif isinstance(action, SendLeaderAndIsr):
                errors = self._local.leader_and_isr(leader_and_isr_request(state, self._broker_id, action))
                self._on_answer(LeaderAndIsrAnswered(self._broker_id, errors))
            else:
                errors = self._local.stop_replica(stop_replica_request(state, self._broker_id, action))
                if action.is_deleting:
                    self._on_answer(StopReplicaAnswered(self._broker_id, errors))
        except ApiError as error:
            log.warning("this broker refused a request of the controller error=%s", error.code.name)


def leader_and_isr_request(state: ControllerState, controller_id: int, action: SendLeaderAndIsr) -> LeaderAndIsrRequest:
    """The request in its newest shape; older versions are a matter of encoding."""
    leaders = {news.state.leader for news in action.partitions}
    return LeaderAndIsrRequest(
        controller_id=controller_id,
        controller_epoch=state.epoch,
        broker_epoch=state.brokers[action.broker_id].epoch,
        type=_TYPE_UNKNOWN,
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=topic,
                topic_id=news[0].topic_id or ZERO_UUID,
                partition_states=[
                    LeaderAndIsrPartitionState(
                        partition_index=each.topic_partition.partition,
                        controller_epoch=each.state.controller_epoch,
                        leader=each.state.leader,
                        leader_epoch=each.state.leader_epoch,
                        isr=list(each.state.isr),
                        partition_epoch=each.state.partition_epoch,
                        replicas=list(each.replicas),
                        adding_replicas=list(each.adding_replicas),
                        removing_replicas=list(each.removing_replicas),
                        is_new=each.is_new,
                    )
                    for each in news
                ],
            )
            for topic, news in _by_topic(action.partitions).items()
        ],
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
            for broker_id, live in sorted(state.brokers.items())
            if broker_id in leaders
            for endpoint in live.registration.endpoints[:1]
        ],
    )


def update_metadata_request(
    state: ControllerState, controller_id: int, partitions: Iterable[PartitionNews]
) -> UpdateMetadataRequest:
    """All live brokers with all their endpoints, and the partitions named."""
    return UpdateMetadataRequest(
        controller_id=controller_id,
        controller_epoch=state.epoch,
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=news[0].topic_id or ZERO_UUID,
                partition_states=[
                    UpdateMetadataPartitionState(
                        partition_index=each.topic_partition.partition,
                        controller_epoch=each.state.controller_epoch,
                        leader=each.state.leader,
                        leader_epoch=each.state.leader_epoch,
                        isr=list(each.state.isr),
                        zk_version=each.state.partition_epoch,
                        replicas=list(each.replicas),
                        offline_replicas=list(each.offline_replicas),
                    )
                    for each in news
                ],
            )
            for topic, news in _by_topic(partitions).items()
        ],
        live_brokers=[
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
        ],
    )


def stop_replica_request(state: ControllerState, controller_id: int, action: SendStopReplica) -> StopReplicaRequest:
    """The request in the shape of version 3."""
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


def _by_topic(partitions: Iterable[PartitionNews]) -> dict[str, list[PartitionNews]]:
    topics: dict[str, list[PartitionNews]] = {}
    for news in partitions:
        topics.setdefault(news.topic_partition.topic, []).append(news)
    return topics

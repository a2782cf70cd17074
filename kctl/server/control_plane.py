"""Applies the controller's requests: roles, metadata, replicas to stop.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError, ErrorCode
from kctl.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from kctl.protocol.apis.stop_replica import StopReplicaRequest
from kctl.protocol.apis.update_metadata import UpdateMetadataRequest
from kctl.server.config_changes import ConfigChanges
from kctl.server.control_request_checks import check_live_brokers, remove_invalid_partitions
from kctl.server.coordinators.partitions import CoordinatorPartitions
from kctl.server.groups.coordinator import GroupCoordinator
from kctl.server.metadata_cache import MetadataCache
from kctl.server.metadata_waits import MetadataWaits
from kctl.server.replication.fetcher import ReplicaFetchers
from kctl.server.replication.log_dir_moves import LogDirMoves
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.transactions.coordinator import TransactionCoordinator
from kctl.server.transactions.ports import DeletedPartitions

log = logging.getLogger(__name__)


class BrokerControlPlane:
    """Implements controller.broker_channels.ControlPlane for this broker."""

    def __init__(
        self,
        broker_id: int,
        *,
        metadata: MetadataCache,
        configs: ConfigView,
        config_changes: ConfigChanges,
        replicas: ReplicaManager,
        fetchers: ReplicaFetchers,
        moves: LogDirMoves,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        markers: DeletedPartitions,
        metadata_waits: MetadataWaits,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._configs = configs
        self._config_changes = config_changes
        self._replicas = replicas
        self._fetchers = fetchers
        self._moves = moves
        self._groups = groups
        self._coordinated: Mapping[str, CoordinatorPartitions[Any]] = {
            GROUP_METADATA_TOPIC: groups.partitions,
            TRANSACTION_STATE_TOPIC: transactions.partitions,
        }
        self._markers = markers
        self._metadata_waits = metadata_waits
        self.broker_epoch = -1
        """Zxid of this broker's registration; requests for an earlier registration are refused."""
        self.known = asyncio.Event()
        """Set when a controller has sent metadata that includes this broker."""

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> Mapping[TopicPartition, ErrorCode]:
        """Applies roles; returns the error per partition.  Raises ApiError: STALE_{CONTROLLER,BROKER}_EPOCH."""
        self._check_broker_epoch(request.broker_epoch)
        errors, changed = self._replicas.become_leader_or_follower(request)
        refused = {partition.topic for partition, code in errors.items() if code is ErrorCode.INVALID_TOPIC_EXCEPTION}
        self._config_changes.topics_appeared(topic for topic in _topics_of(request) if topic not in refused)
        for partition in changed:
            self._fetchers.follow(partition)
            self._moves.resume(partition)
            self._notify_coordinators(partition)
        self._fetchers.close_idle()
        return errors

    def update_metadata(self, request: UpdateMetadataRequest) -> None:
        """Applies metadata.  Raises ApiError: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH, INVALID_REQUEST."""
        self._check_broker_epoch(request.broker_epoch)
        check_live_brokers(request.live_brokers)
        self._replicas.check_controller_epoch(request.controller_epoch)
        problems = remove_invalid_partitions(request)
        if problems:
            log.warning("ignored partitions of UpdateMetadata count=%d first=%s", len(problems), problems[0])
        deleted = self._metadata.update(request)
        if self._broker_id in self._metadata.brokers:
            self.known.set()
        if deleted:
            topics = {topic_partition.topic for topic_partition in deleted}
            self._groups.topics_deleted(topics)
            self._markers.partitions_deleted(deleted)
            for topic in topics:
                self._configs.forget_topic(topic)
        topics_told = _topics_of(request)
        self._config_changes.topics_appeared(topic for topic in topics_told if topic in self._metadata.topics)
        self._metadata_waits.changed(topics_told)

    def stop_replica(self, request: StopReplicaRequest) -> Mapping[TopicPartition, ErrorCode]:
        """Stops replicas; returns the error per partition.  Raises ApiError: STALE_{CONTROLLER,BROKER}_EPOCH."""
        self._check_broker_epoch(request.broker_epoch)
        errors, stopped = self._replicas.stop_replicas(request)
        for partition in stopped:
            self._fetchers.stop(partition.topic_partition)
            self._moves.stop(partition.topic_partition)
            self._notify_coordinators(partition)
        return errors

    def _check_broker_epoch(self, epoch: int) -> None:
        if -1 < epoch < self.broker_epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH)

    def _notify_coordinators(self, partition: Partition) -> None:
        topic, index = partition.topic_partition
        coordinated = self._coordinated.get(topic)
        if coordinated is None:
            return
        if partition.is_leader:
            coordinated.on_leader(index, partition.leader_epoch)
        else:
            coordinated.on_resign(index, partition.leader_epoch)


def _topics_of(request: LeaderAndIsrRequest | UpdateMetadataRequest) -> list[str]:
    """The topics in a request, each once, in request order."""
    grouped = (topic.topic_name for topic in request.topic_states)
    ungrouped = (state.topic_name for state in request.ungrouped_partition_states)
    return list(dict.fromkeys([*grouped, *ungrouped]))

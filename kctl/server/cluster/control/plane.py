"""Applies the controller's requests: roles, metadata, replicas to stop.

A request may name ten thousand partitions that have to be created, which takes seconds.  It is applied in pieces, and
the event loop serves other connections in between.  A later request waits until the earlier one has been applied, so
that the order is the controller's; a partition is always applied as a whole.  If the process ends in between, the
controller sends the state of all partitions to the restarted broker.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.model import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from kctl.protocol.apis.stop_replica import StopReplicaRequest
from kctl.protocol.apis.update_metadata import UpdateMetadataRequest
from kctl.server.cluster.configs.changes import ConfigChanges
from kctl.server.cluster.control.metadata_waits import MetadataWaits
from kctl.server.cluster.control.pieces import (
    parts_of_update_metadata,
    pieces_of_leader_and_isr,
    pieces_of_stop_replica,
)
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.partitions import CoordinatorPartitions
from kctl.server.coordination.share_state.coordinator import ShareCoordinator
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.ports import DeletedPartitions
from kctl.server.loop.slices import sliced
from kctl.server.peers.metadata import MetadataCache, MetadataUpdate
from kctl.server.replication.follower.fetchers import ReplicaFetchers
from kctl.server.replication.leader_lease import LeaderLease
from kctl.server.replication.logs.log_dir_moves import LogDirMoves
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.role_checks import check_live_brokers, remove_invalid_partitions

ROLES_FOLLOWED_TOGETHER = bound(
    Subject.PARTITIONS,
    "partitions of a LeaderAndIsr request that a broker begins to follow together",
    500,
    "partitions",
    on_excess="it begins to follow these while it applies the rest",
)


log = logging.getLogger(__name__)

T = TypeVar("T")


class BrokerControlPlane:
    """Implements controller.broker_channels.ControlPlane for this broker."""

    def __init__(
        self,
        broker_id: int,
        *,
        metadata: MetadataCache,
        config_changes: ConfigChanges,
        replicas: ReplicaManager,
        fetchers: ReplicaFetchers,
        moves: LogDirMoves,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        share_coordinator: ShareCoordinator,
        markers: DeletedPartitions,
        metadata_waits: MetadataWaits,
        lease: LeaderLease,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._config_changes = config_changes
        self._replicas = replicas
        self._fetchers = fetchers
        self._moves = moves
        self._groups = groups
        self._coordinated: Mapping[str, CoordinatorPartitions[Any]] = {
            GROUP_METADATA_TOPIC: groups.partitions,
            TRANSACTION_STATE_TOPIC: transactions.partitions,
            SHARE_GROUP_STATE_TOPIC: share_coordinator.partitions,
        }
        self._markers = markers
        self._metadata_waits = metadata_waits
        self._lease = lease
        self._turn = asyncio.Lock()
        self._is_closed = False
        self.known = asyncio.Event()
        """Set when a controller has sent metadata that includes this broker."""

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> Mapping[TopicPartition, ErrorCode]:
        """Apply roles; return the error per partition.  Raises ApiError: STALE_{CONTROLLER,BROKER}_EPOCH."""
        errors: dict[TopicPartition, ErrorCode] = {}
        changed: list[Partition] = []

        def apply(piece: LeaderAndIsrRequest) -> None:
            errors.update(self._apply_roles(piece, changed))
            if len(changed) >= ROLES_FOLLOWED_TOGETHER:
                self._follow(changed)

        async with self._turn:
            self._check_epochs(request)
            try:
                pieces = pieces_of_leader_and_isr(request, self._has_log)
                await self._in_slices(pieces, apply, prepare=self._replicas.create_logs)
            finally:
                self._replicas.discard_created_logs()
                self._follow(changed)
            self._fetchers.close_idle()
        return errors

    async def update_metadata(self, request: UpdateMetadataRequest, *, may_clear: bool = False) -> None:
        """Apply metadata; with `may_clear`, free the partitions of the request meanwhile.

        Raises ApiError: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH, INVALID_REQUEST.
        """
        update = MetadataUpdate()

        def apply(piece: tuple[UpdateMetadataRequest, bool]) -> None:
            nonlocal update
            part, is_complete = piece
            self._check_epochs(part)
            problems = remove_invalid_partitions(part)
            if problems:
                log.warning(
                    "ignoring invalid partitions of UpdateMetadata count=%d error=%s", len(problems), problems[0]
                )
            update.add(part)
            if is_complete:
                self._apply_metadata(part, update)
                update = MetadataUpdate()

        async with self._turn:
            self._check_epochs(request)
            check_live_brokers(request.live_brokers)
            await self._in_slices(parts_of_update_metadata(request, may_clear=may_clear), apply)
            if self._broker_id in self._metadata.brokers:
                self.known.set()

    async def stop_replica(self, request: StopReplicaRequest) -> Mapping[TopicPartition, ErrorCode]:
        """Stop replicas; return the error per partition.  Raises ApiError: STALE_{CONTROLLER,BROKER}_EPOCH."""
        errors: dict[TopicPartition, ErrorCode] = {}
        async with self._turn:
            self._check_epochs(request)
            await self._in_slices(pieces_of_stop_replica(request), lambda piece: errors.update(self._stop(piece)))
            await self._replicas.write_deletions()
        return errors

    async def close(self) -> None:
        """Wait for the slice that is being applied; the rest of its request and later requests are refused.

        Call it before the logs are closed.
        """
        self._is_closed = True
        async with self._turn:
            pass

    async def _in_slices(
        self,
        pieces: Iterator[T],
        apply: Callable[[T], None],
        prepare: Callable[[T], Awaitable[None]] | None = None,
    ) -> None:
        """Apply the pieces of one request, with an iteration of the event loop between two of them.

        Each piece waits for `prepare` before it is applied.  Raises ApiError(STALE_BROKER_EPOCH) when the broker
        has begun to stop, and what `apply` raises.
        """
        async for piece in sliced(pieces, per_slice=1, is_urgent=True):
            self._check_open()
            if prepare is not None:
                await prepare(piece)
                self._check_open()
            apply(piece)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH)

    def _apply_roles(
        self, request: LeaderAndIsrRequest, all_changed: list[Partition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        self._check_epochs(request)
        errors, changed = self._replicas.become_leader_or_follower(request)
        all_changed += changed
        refused = {partition.topic for partition, code in errors.items() if code is ErrorCode.INVALID_TOPIC_EXCEPTION}
        self._config_changes.topics_appeared(topic for topic in _topics_of(request) if topic not in refused)
        for partition in changed:
            self._fetchers.stop(partition.topic_partition)
            self._moves.resume(partition)
            self._notify_coordinators(partition)
        return errors

    def _follow(self, changed: list[Partition]) -> None:
        """Start following the leaders of these partitions, which are removed from the list.

        Many at a time: each change of the partitions of a leader changes the fetch from it, and one fetch for every few
        new partitions took two thirds of the processor time of creating a topic.
        """
        for partition in changed:
            self._fetchers.follow(partition)
        changed.clear()

    def _apply_metadata(self, request: UpdateMetadataRequest, update: MetadataUpdate) -> None:
        deleted = self._metadata.apply(request, update)
        if deleted:
            topics = {topic_partition.topic for topic_partition in deleted}
            self._groups.topics_deleted(topics)
            self._markers.partitions_deleted(deleted)
            self._config_changes.topics_deleted(topics)
        topic_names = list(update.topics)
        self._config_changes.topics_appeared(topic for topic in topic_names if topic in self._metadata.topics)
        self._metadata_waits.changed(topic_names)

    def _stop(self, request: StopReplicaRequest) -> Mapping[TopicPartition, ErrorCode]:
        self._check_epochs(request)
        errors, stopped = self._replicas.stop_replicas(request)
        for partition in stopped:
            self._fetchers.stop(partition.topic_partition)
            self._moves.stop(partition.topic_partition)
            self._notify_coordinators(partition)
        return errors

    def _has_log(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._replicas.logs.logs

    def _check_epochs(self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest) -> None:
        """Refuse requests for an earlier registration of this broker, and those of an earlier controller."""
        if -1 < request.broker_epoch < self._lease.broker_epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH)
        self._replicas.check_controller_epoch(request.controller_epoch)

    def _notify_coordinators(self, partition: Partition) -> None:
        topic, index = partition.topic_partition
        coordinated = self._coordinated.get(topic)
        if coordinated is None:
            return
        if partition.is_leader:
            coordinated.on_leader(index, partition.leader_epoch)
        else:
            coordinated.on_resign(index, partition.leader_epoch)


def _topics_of(request: LeaderAndIsrRequest) -> list[str]:
    """Return the topics in a request, each once, in request order."""
    grouped = (topic.topic_name for topic in request.topic_states)
    ungrouped = (state.topic_name for state in request.ungrouped_partition_states)
    return list(dict.fromkeys([*grouped, *ungrouped]))

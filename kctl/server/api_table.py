"""Registers the handler of each API; ApiVersions advertises the registered ones."""

from __future__ import annotations

from kctl.model import GROUP_METADATA_TOPIC
from kctl.server.admin_api_table import register_admin_handlers
from kctl.server.groups.config import GroupConfig
from kctl.server.handlers.add_offsets_to_txn import AddOffsetsToTxnHandler
from kctl.server.handlers.add_partitions_to_txn import AddPartitionsToTxnHandler
from kctl.server.handlers.alter_partition import AlterPartitionHandler
from kctl.server.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from kctl.server.handlers.api_versions import ApiVersionsHandler
from kctl.server.handlers.controlled_shutdown import ControlledShutdownHandler
from kctl.server.handlers.delete_groups import DeleteGroupsHandler
from kctl.server.handlers.describe_groups import DescribeGroupsHandler
from kctl.server.handlers.describe_producers import DescribeProducersHandler
from kctl.server.handlers.describe_transactions import DescribeTransactionsHandler
from kctl.server.handlers.elect_leaders import ElectLeadersHandler
from kctl.server.handlers.end_txn import EndTxnHandler
from kctl.server.handlers.fetch import FetchHandler
from kctl.server.handlers.find_coordinator import FindCoordinatorHandler
from kctl.server.handlers.heartbeat import HeartbeatHandler
from kctl.server.handlers.init_producer_id import InitProducerIdHandler
from kctl.server.handlers.join_group import JoinGroupHandler
from kctl.server.handlers.leader_and_isr import LeaderAndIsrHandler
from kctl.server.handlers.leave_group import LeaveGroupHandler
from kctl.server.handlers.list_groups import ListGroupsHandler
from kctl.server.handlers.list_offsets import ListOffsetsHandler
from kctl.server.handlers.list_partition_reassignments import ListPartitionReassignmentsHandler
from kctl.server.handlers.list_transactions import ListTransactionsHandler
from kctl.server.handlers.metadata import MetadataHandler
from kctl.server.handlers.offset_commit import OffsetCommitHandler
from kctl.server.handlers.offset_delete import OffsetDeleteHandler
from kctl.server.handlers.offset_fetch import OffsetFetchHandler
from kctl.server.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from kctl.server.handlers.produce import ProduceHandler
from kctl.server.handlers.stop_replica import StopReplicaHandler
from kctl.server.handlers.sync_group import SyncGroupHandler
from kctl.server.handlers.txn_offset_commit import TxnOffsetCommitHandler
from kctl.server.handlers.update_metadata import UpdateMetadataHandler
from kctl.server.handlers.write_txn_markers import WriteTxnMarkersHandler
from kctl.server.internal_topics import InternalTopicsView, OffsetsInZooKeeper
from kctl.server.parts import BrokerParts, Foundations
from kctl.server.replication.fetch_session import FetchSessionCache
from kctl.server.replication.replica_selector import ReplicaSelector
from kctl.server.requests.dispatch import Dispatcher
from kctl.server.security_api_table import register_security_handlers


def register_handlers(dispatcher: Dispatcher, base: Foundations, parts: BrokerParts) -> None:
    """Registers the handlers of all APIs that this broker serves."""
    configs, metadata, waits = base.configs, base.metadata, base.metadata_waits
    clock = base.world.clock
    replicas, control_plane, controller = parts.replicas, parts.control_plane, parts.controller
    groups, transactions = parts.groups, parts.transactions
    fetch = FetchHandler(
        replicas,
        base.fetch_purgatory,
        FetchSessionCache(configs.current.max_incremental_fetch_session_cache_slots),
        parts.isr_changes,
        throttles=parts.throttles,
        selector=ReplicaSelector(metadata, configs.current.replica_selector_class),
        clock=clock,
        random=base.world.random,
        work=parts.record_work,
        fetch_max_bytes=configs.current.fetch_max_bytes,
    )
    old_offsets = OffsetsInZooKeeper(parts.zookeeper)
    commit = OffsetCommitHandler(groups, metadata, old_offsets, config=GroupConfig.of(configs.current), clock=clock)

    def offsets_partitions() -> int:
        return metadata.partition_count(GROUP_METADATA_TOPIC) or configs.current.offsets_topic_num_partitions

    serve = dispatcher.register
    serve("produce", ProduceHandler(replicas, base.produce_purgatory, parts.record_work, clock).handle)
    serve("fetch", fetch.handle)
    serve("list_offsets", ListOffsetsHandler(replicas, parts.record_work, clock).handle)
    serve("metadata", MetadataHandler(parts.cluster_id, metadata, parts.auto_topics, configs).handle)
    serve("api_versions", ApiVersionsHandler(dispatcher.api_versions).handle)
    serve("init_producer_id", InitProducerIdHandler(parts.producer_ids, transactions).handle)
    serve("leader_and_isr", LeaderAndIsrHandler(control_plane, parts.authority).handle)
    serve("stop_replica", StopReplicaHandler(control_plane, parts.authority).handle)
    serve("update_metadata", UpdateMetadataHandler(control_plane, parts.authority).handle)
    serve("controlled_shutdown", ControlledShutdownHandler(controller).handle)
    serve("alter_partition", AlterPartitionHandler(controller).handle)
    serve("elect_leaders", ElectLeadersHandler(controller, metadata, waits).handle)
    serve("alter_partition_reassignments", AlterPartitionReassignmentsHandler(controller).handle)
    serve("list_partition_reassignments", ListPartitionReassignmentsHandler(controller).handle)
    serve("offset_for_leader_epoch", OffsetForLeaderEpochHandler(replicas).handle)
    serve("find_coordinator", FindCoordinatorHandler(InternalTopicsView(metadata, parts.auto_topics)).handle)
    serve("join_group", JoinGroupHandler(groups).handle)
    serve("sync_group", SyncGroupHandler(groups).handle)
    serve("heartbeat", HeartbeatHandler(groups).handle)
    serve("leave_group", LeaveGroupHandler(groups).handle)
    serve("offset_commit", commit.handle)
    serve("offset_fetch", OffsetFetchHandler(groups, metadata, old_offsets).handle)
    serve("offset_delete", OffsetDeleteHandler(groups, metadata).handle)
    serve("describe_groups", DescribeGroupsHandler(groups).handle)
    serve("list_groups", ListGroupsHandler(groups).handle)
    serve("delete_groups", DeleteGroupsHandler(groups).handle)
    serve("add_partitions_to_txn", AddPartitionsToTxnHandler(transactions, metadata).handle)
    serve("add_offsets_to_txn", AddOffsetsToTxnHandler(transactions, offsets_partitions).handle)
    serve("end_txn", EndTxnHandler(transactions).handle)
    serve("txn_offset_commit", TxnOffsetCommitHandler(groups, metadata, clock).handle)
    serve("write_txn_markers", WriteTxnMarkersHandler(parts.partition_markers).handle)
    serve("describe_producers", DescribeProducersHandler(replicas).handle)
    serve("describe_transactions", DescribeTransactionsHandler(transactions).handle)
    serve("list_transactions", ListTransactionsHandler(transactions).handle)
    register_admin_handlers(dispatcher, base, parts)
    register_security_handlers(dispatcher, parts)

"""Registers the handler of each API; ApiVersions advertises the registered ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kctl.config.subjects.groups import CONSUMER_PROTOCOL, SHARE_PROTOCOL, STREAMS_PROTOCOL
from kctl.config.subjects.versions import KAFKA_RELEASES
from kctl.model import GROUP_METADATA_TOPIC
from kctl.records.compiled.fetch_frame import read_plain_fetch
from kctl.records.compiled.produce_frame import read_plain_produce
from kctl.server.broker.gates import gate
from kctl.server.broker.new_leaders import NewLeaders
from kctl.server.broker.releases import REPLACED_ERRORS, ServedVersions, ranges_for_unsupported
from kctl.server.cluster.configs.resources import ConfigResources
from kctl.server.cluster.control.deletions import TopicDeletions
from kctl.server.cluster.topics.internal import InternalTopicsView, OffsetsInZooKeeper
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.handlers.add_offsets_to_txn import AddOffsetsToTxnHandler
from kctl.server.handlers.add_partitions_to_txn import AddPartitionsToTxnHandler
from kctl.server.handlers.alter_client_quotas import AlterClientQuotasHandler
from kctl.server.handlers.alter_configs import AlterConfigsHandler
from kctl.server.handlers.alter_partition import AlterPartitionHandler
from kctl.server.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from kctl.server.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from kctl.server.handlers.alter_share_group_offsets import AlterShareGroupOffsetsHandler
from kctl.server.handlers.alter_user_scram_credentials import AlterUserScramCredentialsHandler
from kctl.server.handlers.api_versions import ApiVersionsHandler
from kctl.server.handlers.consumer_group_describe import ConsumerGroupDescribeHandler
from kctl.server.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from kctl.server.handlers.controlled_shutdown import ControlledShutdownHandler
from kctl.server.handlers.create_acls import CreateAclsHandler
from kctl.server.handlers.create_delegation_token import CreateDelegationTokenHandler
from kctl.server.handlers.create_partitions import CreatePartitionsHandler
from kctl.server.handlers.create_topics import CreateTopicsHandler
from kctl.server.handlers.delete_acls import DeleteAclsHandler
from kctl.server.handlers.delete_groups import DeleteGroupsHandler
from kctl.server.handlers.delete_records import DeleteRecordsHandler
from kctl.server.handlers.delete_share_group_offsets import DeleteShareGroupOffsetsHandler
from kctl.server.handlers.delete_share_group_state import DeleteShareGroupStateHandler
from kctl.server.handlers.delete_topics import DeleteTopicsHandler
from kctl.server.handlers.describe_acls import DescribeAclsHandler
from kctl.server.handlers.describe_client_quotas import DescribeClientQuotasHandler
from kctl.server.handlers.describe_cluster import DescribeClusterHandler
from kctl.server.handlers.describe_configs import DescribeConfigsHandler
from kctl.server.handlers.describe_delegation_token import DescribeDelegationTokenHandler
from kctl.server.handlers.describe_groups import DescribeGroupsHandler
from kctl.server.handlers.describe_log_dirs import DescribeLogDirsHandler
from kctl.server.handlers.describe_producers import DescribeProducersHandler
from kctl.server.handlers.describe_share_group_offsets import DescribeShareGroupOffsetsHandler
from kctl.server.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from kctl.server.handlers.describe_transactions import DescribeTransactionsHandler
from kctl.server.handlers.describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from kctl.server.handlers.elect_leaders import ElectLeadersHandler
from kctl.server.handlers.end_txn import EndTxnHandler
from kctl.server.handlers.expire_delegation_token import ExpireDelegationTokenHandler
from kctl.server.handlers.fetch import FetchHandler
from kctl.server.handlers.find_coordinator import FindCoordinatorHandler
from kctl.server.handlers.heartbeat import HeartbeatHandler
from kctl.server.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from kctl.server.handlers.init_producer_id import InitProducerIdHandler
from kctl.server.handlers.initialize_share_group_state import InitializeShareGroupStateHandler
from kctl.server.handlers.join_group import JoinGroupHandler
from kctl.server.handlers.leader_and_isr import LeaderAndIsrHandler
from kctl.server.handlers.leave_group import LeaveGroupHandler
from kctl.server.handlers.list_config_resources import ListConfigResourcesHandler
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
from kctl.server.handlers.read_share_group_state import ReadShareGroupStateHandler
from kctl.server.handlers.read_share_group_state_summary import ReadShareGroupStateSummaryHandler
from kctl.server.handlers.renew_delegation_token import RenewDelegationTokenHandler
from kctl.server.handlers.sasl_authenticate import sasl_authenticate
from kctl.server.handlers.sasl_handshake import sasl_handshake
from kctl.server.handlers.share_acknowledge import ShareAcknowledgeHandler
from kctl.server.handlers.share_fetch import ShareFetchHandler
from kctl.server.handlers.share_group_describe import ShareGroupDescribeHandler
from kctl.server.handlers.share_group_heartbeat import ShareGroupHeartbeatHandler
from kctl.server.handlers.stop_replica import StopReplicaHandler
from kctl.server.handlers.streams_group_describe import StreamsGroupDescribeHandler
from kctl.server.handlers.streams_group_heartbeat import StreamsGroupHeartbeatHandler
from kctl.server.handlers.sync_group import SyncGroupHandler
from kctl.server.handlers.txn_offset_commit import TxnOffsetCommitHandler
from kctl.server.handlers.update_features import UpdateFeaturesHandler
from kctl.server.handlers.update_metadata import UpdateMetadataHandler
from kctl.server.handlers.write_share_group_state import WriteShareGroupStateHandler
from kctl.server.handlers.write_txn_markers import WriteTxnMarkersHandler
from kctl.server.network.dispatch import Dispatcher, Handler
from kctl.server.parts.parts import BrokerParts, Foundations
from kctl.server.peers.connections import resolves
from kctl.server.peers.versions import has_features, uses_topic_ids
from kctl.server.replication.fetching.plain_fetch import PlainFetchHandler
from kctl.server.replication.fetching.replica_selector import ReplicaSelector
from kctl.server.replication.plain_produce import PlainProduceHandler
from kctl.server.security.authorization.access import Authorizer
from kctl.server.share_partitions.service import ShareService

Serve = Callable[[str, Handler], None]


def register_handlers(
    dispatcher: Dispatcher,
    base: Foundations,
    parts: BrokerParts,
    authorizer: Authorizer | None,
    zookeeper_problem: Callable[[], str],
) -> None:
    """Register the handlers of all APIs that this broker serves.

    `zookeeper_problem` returns why this broker cannot change anything in ZooKeeper; empty if it can.
    """
    protocols = base.configs.current.group_coordinator_rebalance_protocols
    has_topic_ids = uses_topic_ids(base.configs.current.inter_broker_protocol_version)
    release = base.configs.current.served_release
    versions = ServedVersions(has_topic_ids=has_topic_ids, release=release)
    dispatcher.versions_of, dispatcher.advertised_of = versions.of, versions.advertised
    dispatcher.ranges_for_unsupported = partial(ranges_for_unsupported, release)
    dispatcher.add_new_leaders = NewLeaders(parts.replicas, base.metadata).add
    dispatcher.replaced_errors = REPLACED_ERRORS.get(release or "", {})

    def serve(name: str, handler: Handler) -> None:
        dispatcher.register(name, gate(name, handler, parts.features))

    serve("api_versions", ApiVersionsHandler(dispatcher.api_versions, parts.features).handle)
    _register_records(dispatcher, base, parts)
    _register_cluster(serve, base, parts, zookeeper_problem)
    _register_controller(serve, base, parts)
    _register_topics(serve, base, parts)
    _register_configs(serve, base, parts)
    _register_groups(serve, base, parts)
    if CONSUMER_PROTOCOL in protocols:
        _register_consumer_groups(serve, base, parts)
    if SHARE_PROTOCOL in protocols:
        _register_share_groups(serve, base, parts)
    if STREAMS_PROTOCOL in protocols:
        serve("streams_group_heartbeat", StreamsGroupHeartbeatHandler(parts.groups, parts.auto_topics).handle)
        serve("streams_group_describe", StreamsGroupDescribeHandler(parts.groups).handle)
    _register_transactions(serve, base, parts)
    _register_security(serve, parts, authorizer)


def _register_records(dispatcher: Dispatcher, base: Foundations, parts: BrokerParts) -> None:
    serve = dispatcher.register
    configs, metadata, clock = base.configs, base.metadata, base.world.clock
    replicas = parts.replicas
    fetch = FetchHandler(
        replicas,
        base.fetch_purgatory,
        parts.fetch_sessions,
        parts.isr_changes,
        throttles=parts.throttles,
        selector=ReplicaSelector(metadata, configs.current.replica_selector_class),
        clock=clock,
        random=base.world.random,
        work=parts.record_work,
        fetch_max_bytes=configs.current.fetch_max_bytes,
        metadata=metadata,
    )
    dispatcher.topic_names = metadata.names_by_id
    produce = ProduceHandler(replicas, base.produce_purgatory, parts.record_work, clock, metadata, parts.verifier)
    dispatcher.register("produce", produce.handle, for_long=produce.handle_long)
    verifies = parts.verifier.is_needed
    plain_produce = PlainProduceHandler(
        replicas, base.produce_purgatory, clock, verifies=lambda adds: verifies(adds=adds)
    )
    dispatcher.register_plain("produce", read_plain_produce, plain_produce.handle)
    serve("fetch", fetch.handle)
    plain_fetch = PlainFetchHandler(
        replicas,
        base.fetch_purgatory,
        parts.fetch_sessions,
        fetch,
        quota=parts.throttles.leader,
        clock=clock,
        fetch_max_bytes=configs.current.fetch_max_bytes,
        metadata=metadata,
    )
    dispatcher.register_plain("fetch", read_plain_fetch, plain_fetch.handle)
    serve("list_offsets", ListOffsetsHandler(replicas, parts.record_work, clock).handle)
    serve("offset_for_leader_epoch", OffsetForLeaderEpochHandler(replicas).handle)
    serve("delete_records", DeleteRecordsHandler(replicas, metadata, configs, base.produce_purgatory).handle)
    serve("alter_replica_log_dirs", AlterReplicaLogDirsHandler(parts.moves).handle)
    serve("describe_log_dirs", DescribeLogDirsHandler(base.logs, replicas).handle)


def _register_cluster(
    serve: Serve, base: Foundations, parts: BrokerParts, zookeeper_problem: Callable[[], str]
) -> None:
    metadata, inter_broker_protocol = base.metadata, base.configs.current.inter_broker_protocol_version
    features = UpdateFeaturesHandler(
        has_features=has_features(inter_broker_protocol),
        is_controller=_is_controller(parts),
        features=parts.features,
        controller=parts.controller,
        is_newest=base.configs.current.served_release == KAFKA_RELEASES[-1],
    )
    serve(
        "metadata",
        MetadataHandler(parts.cluster_id, metadata, parts.auto_topics, base.configs, parts.control_plane.known).handle,
    )
    serve("describe_topic_partitions", DescribeTopicPartitionsHandler(metadata).handle)
    serve("describe_cluster", DescribeClusterHandler(parts.cluster_id, metadata, zookeeper_problem).handle)
    find_coordinator = FindCoordinatorHandler(
        InternalTopicsView(metadata, parts.auto_topics),
        is_unknown_here=parts.groups.is_missing,
        now_ms=base.world.clock.monotonic_ms,
        timer=base.timer,
    )
    serve("find_coordinator", find_coordinator.handle)
    serve("update_features", features.handle)


def _register_controller(serve: Serve, base: Foundations, parts: BrokerParts) -> None:
    """Register the APIs of the controller and its requests to brokers."""
    control_plane, controller = parts.control_plane, parts.controller
    serve("leader_and_isr", LeaderAndIsrHandler(control_plane, parts.authority).handle)
    serve("stop_replica", StopReplicaHandler(control_plane, parts.authority).handle)
    serve("update_metadata", UpdateMetadataHandler(control_plane, parts.authority).handle)
    serve("controlled_shutdown", ControlledShutdownHandler(controller).handle)
    serve("alter_partition", AlterPartitionHandler(controller).handle)
    serve("elect_leaders", ElectLeadersHandler(controller, base.metadata, base.metadata_waits).handle)
    serve("alter_partition_reassignments", AlterPartitionReassignmentsHandler(controller).handle)
    serve("list_partition_reassignments", ListPartitionReassignmentsHandler(controller).handle)


def _register_topics(serve: Serve, base: Foundations, parts: BrokerParts) -> None:
    configs, metadata, waits, random = base.configs, base.metadata, base.metadata_waits, base.world.random
    topics, is_controller = parts.topics, _is_controller(parts)
    deletions = TopicDeletions(parts.zookeeper, parts.controller.state, metadata, waits)
    create = CreateTopicsHandler(
        topics, deletions, metadata, waits, configs, random, is_controller=is_controller, policies=base.policies
    )
    delete = DeleteTopicsHandler(topics, metadata, waits, configs, is_controller=is_controller)
    partition_creation = CreatePartitionsHandler(topics, parts.zookeeper, metadata, waits, is_controller=is_controller)
    serve("create_topics", create.handle)
    serve("delete_topics", delete.handle)
    serve("create_partitions", partition_creation.handle)


def _register_configs(serve: Serve, base: Foundations, parts: BrokerParts) -> None:
    broker_id, configs, metadata, topics = parts.broker_id, base.configs, base.metadata, parts.topics
    resources = ConfigResources(broker_id, configs, metadata, topics, base.policies)
    describe = DescribeConfigsHandler(broker_id, configs, metadata, parts.watched_configs)
    serve("describe_configs", describe.handle)
    serve("alter_configs", AlterConfigsHandler(resources).handle)
    serve("incremental_alter_configs", IncrementalAlterConfigsHandler(broker_id, resources, configs.notify).handle)
    serve("list_config_resources", ListConfigResourcesHandler(configs, metadata).handle)
    serve("describe_client_quotas", DescribeClientQuotasHandler(topics).handle)
    serve("alter_client_quotas", AlterClientQuotasHandler(topics, resolves).handle)


def _register_groups(serve: Serve, base: Foundations, parts: BrokerParts) -> None:
    configs, metadata, clock = base.configs, base.metadata, base.world.clock
    groups, old_offsets = parts.groups, OffsetsInZooKeeper(parts.zookeeper)
    commit = OffsetCommitHandler(groups, metadata, old_offsets, config=GroupConfig.of(configs.current), clock=clock)
    serve("join_group", JoinGroupHandler(groups).handle)
    serve("sync_group", SyncGroupHandler(groups).handle)
    serve("heartbeat", HeartbeatHandler(groups).handle)
    serve("leave_group", LeaveGroupHandler(groups).handle)
    serve("offset_commit", commit.handle)
    fetch = OffsetFetchHandler(groups, metadata, old_offsets)
    serve("offset_fetch", fetch.handle)
    serve("offset_delete", OffsetDeleteHandler(groups, metadata).handle)
    serve("describe_groups", DescribeGroupsHandler(groups).handle)
    serve("list_groups", ListGroupsHandler(groups).handle)
    serve("delete_groups", DeleteGroupsHandler(groups).handle)


def _register_consumer_groups(serve: Serve, base: Foundations, parts: BrokerParts) -> None:
    """Register the APIs of the consumer protocol (KIP-848)."""
    heartbeat = ConsumerGroupHeartbeatHandler(parts.groups)
    default_assignor = base.configs.current.group_consumer_assignors[0]
    describe = ConsumerGroupDescribeHandler(parts.groups, base.metadata, default_assignor)
    for name, handler in (("consumer_group_heartbeat", heartbeat), ("consumer_group_describe", describe)):
        serve(name, handler.handle)


def _register_share_groups(serve: Serve, base: Foundations, parts: BrokerParts) -> None:
    """Register the APIs of share groups (KIP-932), for members, administrators and brokers."""
    groups, metadata, manager = parts.groups, base.metadata, parts.share_partitions
    service = ShareService(
        manager, metadata, base.world.clock, sessions_max=base.configs.current.group_share_max_share_sessions
    )
    fetch = ShareFetchHandler(
        service, manager, base.fetch_purgatory, fetch_max_bytes=base.configs.current.fetch_max_bytes
    )
    serve("share_group_heartbeat", ShareGroupHeartbeatHandler(groups).handle)
    serve("share_group_describe", ShareGroupDescribeHandler(groups, metadata).handle)
    serve("share_fetch", fetch.handle)
    serve("share_acknowledge", ShareAcknowledgeHandler(service, manager).handle)
    describe = DescribeShareGroupOffsetsHandler(groups, parts.share_states, metadata, parts.replicas)
    serve("describe_share_group_offsets", describe.handle)
    serve("alter_share_group_offsets", AlterShareGroupOffsetsHandler(groups, metadata).handle)
    serve("delete_share_group_offsets", DeleteShareGroupOffsetsHandler(groups, metadata).handle)
    coordinator = parts.share_coordinator
    serve("initialize_share_group_state", InitializeShareGroupStateHandler(coordinator).handle)
    serve("read_share_group_state", ReadShareGroupStateHandler(coordinator).handle)
    serve("write_share_group_state", WriteShareGroupStateHandler(coordinator).handle)
    serve("delete_share_group_state", DeleteShareGroupStateHandler(coordinator).handle)
    serve("read_share_group_state_summary", ReadShareGroupStateSummaryHandler(coordinator).handle)


def _register_transactions(serve: Serve, base: Foundations, parts: BrokerParts) -> None:
    configs, metadata, clock = base.configs, base.metadata, base.world.clock
    groups, transactions = parts.groups, parts.transactions

    def offsets_partitions() -> int:
        return metadata.partition_count(GROUP_METADATA_TOPIC) or configs.current.offsets_topic_num_partitions

    serve("init_producer_id", InitProducerIdHandler(parts.producer_ids, transactions).handle)
    serve("add_partitions_to_txn", AddPartitionsToTxnHandler(transactions, metadata).handle)
    serve("add_offsets_to_txn", AddOffsetsToTxnHandler(transactions, offsets_partitions).handle)
    serve("end_txn", EndTxnHandler(transactions).handle)
    serve(
        "txn_offset_commit", TxnOffsetCommitHandler(groups, metadata, clock, parts.verifier, offsets_partitions).handle
    )
    serve("write_txn_markers", WriteTxnMarkersHandler(parts.partition_markers).handle)
    serve("describe_producers", DescribeProducersHandler(parts.replicas).handle)
    serve("describe_transactions", DescribeTransactionsHandler(transactions).handle)
    serve("list_transactions", ListTransactionsHandler(transactions).handle)


def _register_security(serve: Serve, parts: BrokerParts, authorizer: Authorizer | None) -> None:
    alter_credentials = AlterUserScramCredentialsHandler(parts.topics, is_controller=_is_controller(parts))
    serve("sasl_handshake", sasl_handshake)
    serve("sasl_authenticate", sasl_authenticate)
    serve("describe_acls", DescribeAclsHandler(authorizer).handle)
    serve("create_acls", CreateAclsHandler(authorizer).handle)
    serve("delete_acls", DeleteAclsHandler(authorizer).handle)
    serve("create_delegation_token", CreateDelegationTokenHandler(parts.tokens).handle)
    serve("renew_delegation_token", RenewDelegationTokenHandler(parts.tokens).handle)
    serve("expire_delegation_token", ExpireDelegationTokenHandler(parts.tokens).handle)
    serve("describe_delegation_token", DescribeDelegationTokenHandler(parts.tokens).handle)
    serve("describe_user_scram_credentials", DescribeUserScramCredentialsHandler(parts.topics).handle)
    serve("alter_user_scram_credentials", alter_credentials.handle)


def _is_controller(parts: BrokerParts) -> Callable[[], bool]:
    return lambda: parts.controller.state.is_active

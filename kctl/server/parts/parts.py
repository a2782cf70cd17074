"""Creates the components of a broker and connects them.

The foundations exist before the broker has an id; the parts are created when it has an id, a session, its
configuration and its logs, all at once, so that no component uses another one half-initialised.  The order in which
they start and stop is in `broker`.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ALTER_LOG_DIRS_RATE, ConfigView
from kctl.config.listeners import control_plane_listener, inter_broker_listener
from kctl.config.subjects.groups import GroupConfig as ConfigOfGroup
from kctl.config.subjects.groups import duration_ms
from kctl.config.topic import TopicConfig
from kctl.model import SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from kctl.server.cluster.configs.changes import ConfigChanges
from kctl.server.cluster.configs.features import (
    TRANSACTION_VERSION,
    FinalizedFeatures,
    initial_levels,
    supported_features,
)
from kctl.server.cluster.configs.resources import WatchedConfigs
from kctl.server.cluster.control.authority import ControllerAuthority
from kctl.server.cluster.control.metadata_waits import MetadataWaits
from kctl.server.cluster.control.plane import BrokerControlPlane
from kctl.server.cluster.controller.runner import ControllerRunner
from kctl.server.cluster.topics.automatic import AutoTopics
from kctl.server.cluster.topics.internal import (
    CoordinatorAppends,
    InternalLog,
    InternalTopicsView,
    PartitionLeadersView,
)
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.share_groups.requests import ShareGroupSettings
from kctl.server.coordination.share_state.client import ShareStateClient
from kctl.server.coordination.share_state.coordinator import ShareCoordinator, ShareCoordinatorConfig
from kctl.server.coordination.streams_groups.requests import StreamsGroupSettings
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.markers import MarkerSender
from kctl.server.coordination.transactions.partition_markers import PartitionMarkers
from kctl.server.coordination.transactions.ports import TransactionConfig
from kctl.server.coordination.transactions.producer_ids import ProducerIds
from kctl.server.coordination.transactions.verification import TransactionVerifier
from kctl.server.loop.timer import WheelTimer
from kctl.server.network.tls.listeners import ListenerCertificates
from kctl.server.network.world import World
from kctl.server.peers.connections import BrokerPeers, PeerSecurity, PeerSettings, Purpose
from kctl.server.peers.metadata import MetadataCache
from kctl.server.peers.versions import (
    InterBrokerVersions,
    allows_zstd,
    alters_isr_at_controller,
    has_features,
    inter_broker_versions,
    uses_topic_ids,
    write_txn_markers_version,
)
from kctl.server.policies import Policies
from kctl.server.replication.fetching.fetch_session import FetchSession, FetchSessionCache
from kctl.server.replication.follower.fetcher import FetchSettings
from kctl.server.replication.follower.fetchers import ReplicaFetchers
from kctl.server.replication.isr_changes import ControllerStates, IsrChanges, StateStore, ZooKeeperStates
from kctl.server.replication.leader_lease import LeaderLease
from kctl.server.replication.logs.broker_logs import LogTasks
from kctl.server.replication.logs.log_dir_moves import LogDirMoves
from kctl.server.replication.logs.producer_expiry import largest_producer_id
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.quotas.client_quotas import ClientQuotas
from kctl.server.requests.record_work import RecordWork
from kctl.server.security.sasl.mechanisms import Secrets
from kctl.server.security.tokens.token import TokenLifetimes
from kctl.server.security.tokens.token_manager import TokenManager
from kctl.server.share_partitions.manager import ShareManager, ShareSettings
from kctl.server.share_partitions.partition import ShareLimits
from kctl.storage.config import LogConfig
from kctl.storage.log_manager import LogManager
from kctl.zookeeper.operations import ZooKeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundations:
    """The components that do not depend on the broker's id."""

    world: World
    configs: ConfigView
    timer: WheelTimer
    produce_purgatory: Purgatory[TopicPartition]
    fetch_purgatory: Purgatory[TopicPartition | FetchSession]
    metadata: MetadataCache
    metadata_waits: MetadataWaits
    logs: LogManager
    quotas: ClientQuotas
    certificates: ListenerCertificates
    secrets: Secrets
    peer_security: PeerSecurity
    policies: Policies
    lease: LeaderLease

    def log_config(self, topic: str) -> LogConfig:
        """Return the current configuration of the topic's logs."""
        return _log_config(self.configs.topic(topic), self.configs.current.inter_broker_protocol_version)

    def unclean_topics(self, topics: Iterable[str]) -> frozenset[str]:
        """Return the topics among these with unclean.leader.election.enable."""
        return frozenset(topic for topic in topics if self.configs.topic(topic).unclean_leader_election_enable)


@lru_cache
def _log_config(topic: TopicConfig, protocol_version: str) -> LogConfig:
    """Return the settings of logs: one object for all topics with these properties, because most have the same."""
    return replace(LogConfig.of(topic), allows_zstd=allows_zstd(protocol_version))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """The components of one broker that depend on its id and cluster."""

    broker_id: int
    cluster_id: str
    zookeeper: ZooKeeper
    replicas: ReplicaManager
    fetchers: ReplicaFetchers
    fetch_sessions: FetchSessionCache
    isr_changes: IsrChanges
    moves: LogDirMoves
    throttles: ReplicationThrottles
    record_work: RecordWork
    log_tasks: LogTasks
    groups: GroupCoordinator
    share_coordinator: ShareCoordinator
    share_states: ShareStateClient
    share_partitions: ShareManager
    transactions: TransactionCoordinator
    partition_markers: PartitionMarkers
    verifier: TransactionVerifier
    producer_ids: ProducerIds
    control_plane: BrokerControlPlane
    authority: ControllerAuthority
    controller: ControllerRunner
    topics: TopicWriter
    watched_configs: WatchedConfigs
    features: FinalizedFeatures
    auto_topics: AutoTopics
    peers: BrokerPeers
    tokens: TokenManager


def assemble(
    base: Foundations, *, broker_id: int, cluster_id: str, zookeeper: ZooKeeper, config_changes: ConfigChanges
) -> BrokerParts:
    """Create all parts and connect them; none of them is started."""
    world, config = base.world, base.configs.current
    versions = inter_broker_versions(config.inter_broker_protocol_version)
    listener = inter_broker_listener(config)
    has_topic_ids = uses_topic_ids(config.inter_broker_protocol_version)
    topics = TopicWriter(
        zookeeper,
        world.random,
        racks=base.metadata.racks,
        has_topic_ids=has_topic_ids,
        created=lambda name: controller.topic_created(name),  # noqa: PLW0108 - the controller is made later
    )
    peers = BrokerPeers(
        broker_id,
        transport=world.transport,
        security=base.peer_security,
        metadata=base.metadata,
        listener=listener,
        settings=PeerSettings.of(base.configs),
    )
    replicas = ReplicaManager(
        broker_id,
        logs=base.logs,
        metadata=base.metadata,
        clock=world.clock,
        produce_purgatory=base.produce_purgatory,
        fetch_purgatory=base.fetch_purgatory,
        log_config=base.log_config,
        lag_time_max_ms=config.replica_lag_time_max_ms,
        min_insync_replicas=lambda topic: base.configs.topic(topic).min_insync_replicas,
        lease=base.lease,
    )
    throttles = ReplicationThrottles(broker_id, base.configs)
    fetchers = ReplicaFetchers(
        replicas=replicas,
        peers=peers,
        clock=world.clock,
        settings=_fetch_settings(config, versions),
        quota=throttles.follower,
        per_leader=config.num_replica_fetchers,
    )
    moves = LogDirMoves(
        replicas,
        base.logs,
        world.clock,
        workers=config.num_replica_alter_log_dirs_threads or len(config.log_directories),
        piece_bytes=config.replica_fetch_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        bytes_per_second=lambda: base.configs.dynamic_only(ALTER_LOG_DIRS_RATE),
    )
    auto_topics = AutoTopics(topics, base.metadata, base.configs, world.random, base.policies)
    share_coordinator = ShareCoordinator(
        broker_id,
        config=ShareCoordinatorConfig.of(config),
        state_log=InternalLog(
            replicas,
            base.metadata,
            base.produce_purgatory,
            load_buffer_bytes=config.share_coordinator_load_buffer_size,
            topic=SHARE_GROUP_STATE_TOPIC,
        ),
        clock=world.clock,
        timer=base.timer,
    )
    share_states = ShareStateClient(
        broker_id,
        local=share_coordinator,
        topics=InternalTopicsView(base.metadata, auto_topics),
        leaders=PartitionLeadersView(base.metadata),
        peers=peers,
    )
    share_partitions = ShareManager(
        replicas,
        share_states,
        settings=lambda group_id: _share_settings(base.configs.group(group_id)),
        changed=lambda topic_partition: base.fetch_purgatory.check(topic_partition),  # noqa: PLW0108 - for mypy
        clock=world.clock,
        timer=base.timer,
    )
    groups = GroupCoordinator(
        broker_id=broker_id,
        config=GroupConfig.of(
            config,
            lambda group_id: _share_group_settings(base.configs, group_id),
            lambda group_id: _streams_group_settings(base.configs, group_id),
        ),
        offsets_log=InternalLog(
            replicas, base.metadata, base.produce_purgatory, load_buffer_bytes=config.offsets_load_buffer_size
        ),
        topics=base.metadata,
        topic_names=lambda: base.metadata.topics,
        share_states=share_states,
        clock=world.clock,
        timer=base.timer,
        random=world.random,
    )
    coordinator_appends = CoordinatorAppends(replicas, base.produce_purgatory)
    partition_markers = PartitionMarkers(
        coordinator_appends,
        groups,
        world.clock,
        timeout_ms=config.request_timeout_ms,
        on_append=lambda *marker: verifier.marker_written(*marker),  # noqa: PLW0108 - created below
    )
    are_features_known = has_features(config.inter_broker_protocol_version)
    features = FinalizedFeatures(
        zookeeper,
        has_features=are_features_known,
        supported=supported_features(config, has_features=are_features_known),
        initial=initial_levels(config),
    )

    def transaction_level() -> int:
        return features.level(TRANSACTION_VERSION)

    markers = MarkerSender(
        broker_id,
        leaders=PartitionLeadersView(base.metadata),
        local=partition_markers,
        peers=peers,
        version=lambda: write_txn_markers_version(config.inter_broker_protocol_version, transaction_level()),
        timer=base.timer,
        clock=world.clock,
    )
    producer_ids = ProducerIds(broker_id, zookeeper, lambda below: largest_producer_id(base.logs.all(), below))
    transactions = TransactionCoordinator(
        broker_id=broker_id,
        config=TransactionConfig.of(config),
        state_log=InternalLog(
            replicas,
            base.metadata,
            base.produce_purgatory,
            load_buffer_bytes=config.transaction_state_log_load_buffer_size,
            topic=TRANSACTION_STATE_TOPIC,
        ),
        producer_ids=producer_ids,
        markers=markers,
        clock=world.clock,
        timer=base.timer,
        level=transaction_level,
    )
    verifier = TransactionVerifier(
        broker_id,
        coordinator=transactions,
        partitions=coordinator_appends,
        leaders=PartitionLeadersView(base.metadata),
        state_partitions=lambda: base.metadata.partition_count(TRANSACTION_STATE_TOPIC),
        peers=peers,
        level=transaction_level,
        verifies_older_clients=config.transaction_partition_verification_enable,
    )
    control_plane = BrokerControlPlane(
        broker_id,
        metadata=base.metadata,
        config_changes=config_changes,
        replicas=replicas,
        fetchers=fetchers,
        moves=moves,
        groups=groups,
        transactions=transactions,
        share_coordinator=share_coordinator,
        markers=markers,
        metadata_waits=base.metadata_waits,
        lease=base.lease,
    )
    controller = ControllerRunner(
        broker_id,
        zookeeper=zookeeper,
        local=control_plane,
        connect=peers.connect_to,
        versions=versions,
        listener=control_plane_listener(config) or listener,
        clock=world.clock,
        random=world.random,
        allows_topic_deletion=config.delete_topic_enable,
        unclean_topics=base.unclean_topics,
        has_topic_ids=has_topic_ids,
        has_features=has_features(config.inter_broker_protocol_version),
        deletions_ended=base.metadata_waits.changed,
    )
    states = _state_store(base, zookeeper, peers, broker_id)
    return BrokerParts(
        broker_id=broker_id,
        cluster_id=cluster_id,
        zookeeper=zookeeper,
        replicas=replicas,
        fetchers=fetchers,
        fetch_sessions=FetchSessionCache(config.max_incremental_fetch_session_cache_slots),
        isr_changes=IsrChanges(replicas, states, world.clock, lag_time_max_ms=config.replica_lag_time_max_ms),
        moves=moves,
        throttles=throttles,
        record_work=RecordWork(thread_pool=base.world.thread_pool),
        log_tasks=LogTasks(base.logs, replicas, world.clock, configs=base.configs, random=world.random),
        groups=groups,
        share_coordinator=share_coordinator,
        share_states=share_states,
        share_partitions=share_partitions,
        transactions=transactions,
        partition_markers=partition_markers,
        verifier=verifier,
        producer_ids=producer_ids,
        control_plane=control_plane,
        authority=ControllerAuthority(broker_id, zookeeper),
        controller=controller,
        topics=topics,
        watched_configs=WatchedConfigs(zookeeper),
        features=features,
        auto_topics=auto_topics,
        peers=peers,
        tokens=TokenManager(
            base.secrets.tokens,
            zookeeper,
            lifetimes=TokenLifetimes(config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms),
            clock=world.clock,
            random=world.random,
        ),
    )


@lru_cache
def _share_settings(config: ConfigOfGroup) -> ShareSettings:
    """Return the settings of share-partitions: one object for all groups with these properties."""
    return ShareSettings(
        limits=ShareLimits(
            delivery_count_max=config.share_delivery_count_limit,
            in_flight_max=config.share_partition_max_record_locks,
            lock_ms=config.share_record_lock_duration_ms,
        ),
        is_committed_only=config.share_isolation_level == "read_committed",
        may_renew=config.share_renew_acknowledge_enable,
        offset_reset=config.share_auto_offset_reset,
        reset_duration_ms=duration_ms(config.share_auto_offset_reset),
    )


def _share_group_settings(configs: ConfigView, group_id: str) -> ShareGroupSettings:
    broker, config = configs.current, configs.group(group_id)
    return ShareGroupSettings(
        session_timeout_ms=config.share_session_timeout_ms,
        heartbeat_interval_ms=config.share_heartbeat_interval_ms,
        max_size=broker.group_share_max_size,
        assignment_interval_ms=broker.group_share_assignment_interval_ms,
    )


def _streams_group_settings(configs: ConfigView, group_id: str) -> StreamsGroupSettings:
    config = configs.group(group_id)
    return StreamsGroupSettings(
        session_timeout_ms=config.streams_session_timeout_ms,
        heartbeat_interval_ms=config.streams_heartbeat_interval_ms,
        max_size=configs.current.group_streams_max_size,
        num_standby_replicas=config.streams_num_standby_replicas,
        initial_rebalance_delay_ms=config.streams_initial_rebalance_delay_ms,
        assignment_interval_ms=config.streams_assignment_interval_ms,
    )


def _state_store(base: Foundations, zookeeper: ZooKeeper, peers: BrokerPeers, broker_id: int) -> StateStore:
    """Return the writer of in-sync replicas: ZooKeeper or, since 2.7, the controller."""
    if not alters_isr_at_controller(base.configs.current.inter_broker_protocol_version):
        return ZooKeeperStates(zookeeper, base.world.clock)
    return ControllerStates(
        broker_id,
        lambda: peers.connect_to_controller(Purpose.ALTER_ISR),
        broker_epoch=lambda: base.lease.broker_epoch,
    )


def _fetch_settings(config: BrokerConfig, versions: InterBrokerVersions) -> FetchSettings:
    return FetchSettings(
        wait_max_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_max_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        versions=versions,
    )

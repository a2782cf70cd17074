"""The broker put together: what it is made of, in which order it starts, in which order it stops.

Kafka's KafkaServer.  The order of `start` is the order of promises: the caller has bound the port and holds the data
folder, which say whether this broker may run at all; then ZooKeeper, configuration and logs; registration last,
because from then on the controller gives it partitions to lead.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ALTER_LOG_DIRS_RATE, ConfigView
from kctl.config.listeners import advertised_endpoints, inter_broker_listener, listener_endpoints
from kctl.config.topic import topic_config_ignoring_errors
from kctl.errors import KctlError, ZooKeeperError
from kctl.model import TRANSACTION_STATE_TOPIC, Endpoint, TopicPartition
from kctl.server import open_files
from kctl.server.api_table import register_handlers
from kctl.server.auto_topics import AutoTopics
from kctl.server.config_changes import ConfigChanges
from kctl.server.control_plane import BrokerControlPlane
from kctl.server.controlled_shutdown import ControlledShutdown
from kctl.server.controller.runner import ControllerRunner
from kctl.server.groups.config import MINUTE_MS, GroupConfig
from kctl.server.groups.coordinator import GroupCoordinator
from kctl.server.inter_broker import (
    InterBrokerVersions,
    alters_isr_at_controller,
    inter_broker_versions,
    write_txn_markers_version,
)
from kctl.server.internal_topics import CoordinatorAppends, InternalLog, PartitionLeadersView
from kctl.server.log_chores import LogChores
from kctl.server.metadata_cache import MetadataCache
from kctl.server.metadata_waits import MetadataWaits
from kctl.server.peers import BrokerPeers
from kctl.server.producer_ids import ProducerIds
from kctl.server.registration import cluster_id, ensure_paths, generate_broker_id, register
from kctl.server.replication.fetcher import FetchSettings, ReplicaFetchers
from kctl.server.replication.isr_changes import IsrChanges
from kctl.server.replication.log_dir_moves import LogDirMoves
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.state_stores import ControllerStates, StateStore, ZooKeeperStates
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.server.requests.dispatch import Dispatcher
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.timer import WheelTimer
from kctl.server.topic_writer import TopicWriter
from kctl.server.transactions.config import TransactionConfig
from kctl.server.transactions.coordinator import TransactionCoordinator
from kctl.server.transactions.markers import MarkerSender
from kctl.server.transactions.partition_markers import PartitionMarkers
from kctl.server.world import World
from kctl.storage.config import LogConfig
from kctl.storage.log_manager import LogManager
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import SessionState, WatchEvent, ZooKeeper
from kctl.zookeeper.znodes import BrokerRegistration

log = logging.getLogger(__name__)

_KNOWN_WAIT_S = 30.0
_RECONNECT_PAUSE_S = 1.0


class Broker:
    """`bind`, `open_logs`, `start`, then `stop`; `failed` is done when the broker cannot go on."""

    def __init__(self, world: World, properties: Mapping[str, str]) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.broker_id = -1
        self.advertised: tuple[Endpoint, ...] = ()
        self.configs = ConfigView(properties)
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._timer = WheelTimer(world.clock, self._loop)
        self._produce_purgatory: Purgatory[TopicPartition] = Purgatory(self._timer)
        self._fetch_purgatory: Purgatory[TopicPartition] = Purgatory(self._timer)
        self._metadata = MetadataCache()
        self._metadata_waits = MetadataWaits(self._timer)
        self._dispatcher = Dispatcher()
        self._listening = world.listen(
            handle=self._dispatcher.handle,
            frame_bytes_max=self._config.socket_request_max_bytes,
            connections_max_idle_ms=self._config.connections_max_idle_ms,
        )
        self._logs = self._make_logs()
        self._is_loaded = False
        self._is_stopping = False
        self._session: ZooKeeper | None = None
        self._changes: ConfigChanges | None = None
        self._new_session: asyncio.Task[None] | None = None
        self._announcement: asyncio.Task[None] | None = None
        # Known from `_assemble` on.
        self._replicas: ReplicaManager | None = None
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._controller: ControllerRunner | None = None
        self._control_plane: BrokerControlPlane | None = None
        self._peers: BrokerPeers | None = None
        self._fetchers: ReplicaFetchers | None = None
        self._moves: LogDirMoves | None = None
        self._isr_changes: IsrChanges | None = None
        self._chores: LogChores | None = None

    @property
    def _config(self) -> BrokerConfig:
        return self.configs.current

    def bind(self) -> None:
        """Takes the ports without accepting yet.  Raises ListenError."""
        bound = {endpoint.listener: self._listening.bind(endpoint) for endpoint in listener_endpoints(self._config)}
        self.advertised = tuple(
            replace(
                endpoint,
                host=endpoint.host or socket.getfqdn(),
                port=endpoint.port or bound[endpoint.listener].port,
            )
            for endpoint in advertised_endpoints(self._config)
        )

    def open_logs(self) -> None:
        """Locks the log directories.  Raises LogDirFailure, ConfigError."""
        self._logs.open_directories()

    async def start(self, zookeeper_connect: str) -> None:
        """Serves when it returns.  Raises KctlError when that cannot be; the caller then calls `stop`."""
        zookeeper = await self._open_session(zookeeper_connect)
        await ensure_paths(zookeeper)
        cluster = await cluster_id(zookeeper, self._world.random)
        self.broker_id = await self._choose_broker_id(zookeeper)
        self._logs.assign_identity(broker_id=self.broker_id, cluster_id=cluster)
        self._changes = ConfigChanges(
            self.broker_id, zookeeper, self.configs, self._world.clock, self._topic_config_changed
        )
        await self._changes.load()
        await self._load_logs()
        known = self._assemble(zookeeper, cluster)
        await self._join_cluster(zookeeper)
        # The controller has to get through before anybody can be told that this broker serves.
        self._listening.start()
        try:
            async with asyncio.timeout(_KNOWN_WAIT_S):
                await known.wait()
        except TimeoutError:
            raise KctlError(f"no controller took notice of this broker in {_KNOWN_WAIT_S:.0f} s") from None
        assert self._chores is not None
        assert self._isr_changes is not None
        assert self._moves is not None
        self._chores.start(self._config)
        self._moves.start()
        self._isr_changes.start()
        log.info("serving broker=%s endpoints=%s cluster=%s", self.broker_id, _text(self.advertised), cluster)

    async def stop(self) -> None:
        """Stops in order; after a start that failed it stops what had started."""
        self._is_stopping = True
        if self._fetchers is not None:
            self._fetchers.begin_shutdown()
        if self._controller is not None and not self.failed.done():
            await self._move_leadership_away(self._controller)
        self._listening.stop_accepting()
        if self._chores is not None:
            await self._chores.stop()
        if self._new_session is not None:
            self._new_session.cancel()
            await asyncio.gather(self._new_session, return_exceptions=True)
        if self._moves is not None:
            await self._moves.close()
        if self._fetchers is not None:
            await self._fetchers.close()
        if self._isr_changes is not None:
            await self._isr_changes.close()
        if self._transactions is not None:
            await self._transactions.stop()
        if self._groups is not None:
            await self._groups.stop()
        self._produce_purgatory.expire_all()
        self._fetch_purgatory.expire_all()
        self._metadata_waits.expire_all()
        if self._controller is not None:
            await self._controller.close()
        if self._changes is not None:
            await self._changes.close()
        self._listening.close()
        self._timer.close()
        await self._close_logs()
        if self._session is not None:
            await self._session.close()
        if self.broker_id >= 0:
            log.info("stopped broker=%s", self.broker_id)

    # Start, in order.

    def _make_logs(self) -> LogManager:
        config = self._config
        threads = config.num_recovery_threads_per_data_dir * len(config.log_directories)
        return LogManager(
            config.log_directories,
            files=self._world.files,
            clock=self._world.clock,
            random=self._world.random,
            executor=ThreadPoolExecutor(threads, "recovery") if threads > 1 else None,
            on_log_dir_failure=self._log_dir_failed,
        )

    async def _open_session(self, connect: str) -> ZooKeeper:
        session = self._session = self._world.open_session(
            connect,
            session_timeout_ms=self._config.zookeeper_session_timeout_ms,
            on_watch=self._on_watch,
            on_state=self._on_session_state,
        )
        await session.start(self._config.zookeeper_connection_timeout)
        return session

    async def _choose_broker_id(self, zookeeper: ZooKeeper) -> int:
        configured, stored = self._config.broker_id, self._logs.broker_id
        if configured >= 0 and stored is not None and configured != stored:
            raise KctlError(
                f"broker.id={configured} differs from {stored} in meta.properties of "
                f"{self._config.log_directories[0]}: set broker.id={stored}, "
                f"or use the folder that belongs to broker {configured}"
            )
        if configured >= 0:
            return configured
        if stored is not None:
            return stored
        return await generate_broker_id(zookeeper, self._config.reserved_broker_max_id)

    async def _load_logs(self) -> None:
        """In a thread: recovery may take long, and the embedded ZooKeeper has to answer meanwhile."""
        topics = {topic: self._log_config(topic) for topic in self.configs.topic_overrides}
        self._logs.default_config = LogConfig.of(topic_config_ignoring_errors(self._config, {})[0])
        await self._loop.run_in_executor(None, self._logs.load, topics)
        self._is_loaded = True
        segments = sum(len(partition_log.segments) for partition_log in self._logs.logs.values())
        shortage = open_files.shortage(open_files.limit(), segments=segments)
        if shortage is not None:
            log.warning("%s", shortage)

    def _assemble(self, zookeeper: ZooKeeper, cluster: str) -> asyncio.Event:
        """Makes all parts and connects them; answers what is set once the controller knows this broker."""
        world, config = self._world, self._config
        assert self._changes is not None
        writer = TopicWriter(zookeeper, world.random)
        auto_topics = AutoTopics(writer, self._metadata, self.configs, world.random)
        replicas = self._replicas = ReplicaManager(
            self.broker_id,
            logs=self._logs,
            metadata=self._metadata,
            clock=world.clock,
            produce_purgatory=self._produce_purgatory,
            fetch_purgatory=self._fetch_purgatory,
            log_config=self._log_config,
            lag_time_max_ms=config.replica_lag_time_max_ms,
            min_insync_replicas=lambda topic: self.configs.topic(topic).min_insync_replicas,
        )
        offsets_log = InternalLog(
            replicas,
            self._metadata,
            self._produce_purgatory,
            load_buffer_bytes=config.offsets_load_buffer_size,
        )
        group_config = _group_config(config)
        groups = self._groups = GroupCoordinator(
            broker_id=self.broker_id,
            config=group_config,
            offsets_log=offsets_log,
            clock=world.clock,
            timer=self._timer,
            random=world.random,
        )
        versions = inter_broker_versions(config.inter_broker_protocol_version)
        listener = inter_broker_listener(config)
        peers = self._peers = BrokerPeers(
            self.broker_id,
            transport=world.transport,
            metadata=self._metadata,
            listener=listener,
            timeout_ms=config.replica_socket_timeout_ms,
        )
        producer_ids = ProducerIds(self.broker_id, zookeeper)
        partition_markers = PartitionMarkers(
            CoordinatorAppends(replicas, self._produce_purgatory),
            groups,
            world.clock,
            timeout_ms=config.request_timeout_ms,
        )
        markers = MarkerSender(
            self.broker_id,
            leaders=PartitionLeadersView(self._metadata),
            local=partition_markers,
            peers=peers,
            version=write_txn_markers_version(config.inter_broker_protocol_version),
            timer=self._timer,
            clock=world.clock,
        )
        transactions = self._transactions = TransactionCoordinator(
            broker_id=self.broker_id,
            config=_transaction_config(config),
            state_log=InternalLog(
                replicas,
                self._metadata,
                self._produce_purgatory,
                load_buffer_bytes=config.transaction_state_log_load_buffer_size,
                topic=TRANSACTION_STATE_TOPIC,
            ),
            producer_ids=producer_ids,
            markers=markers,
            clock=world.clock,
            timer=self._timer,
        )
        throttles = ReplicationThrottles(self.broker_id, self.configs)
        fetchers = self._fetchers = ReplicaFetchers(
            replicas=replicas,
            peers=peers,
            clock=world.clock,
            settings=_fetch_settings(config, versions),
            quota=throttles.follower,
            per_leader=config.num_replica_fetchers,
        )
        moves = self._moves = LogDirMoves(
            replicas,
            self._logs,
            world.clock,
            workers=config.num_replica_alter_log_dirs_threads or len(config.log_directories),
            piece_bytes=config.replica_fetch_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
            bytes_per_second=lambda: self.configs.dynamic_only(ALTER_LOG_DIRS_RATE),
        )
        isr_changes = self._isr_changes = IsrChanges(
            replicas, self._state_store(zookeeper, peers), world.clock, lag_time_max_ms=config.replica_lag_time_max_ms
        )
        control_plane = self._control_plane = BrokerControlPlane(
            self.broker_id,
            metadata=self._metadata,
            configs=self.configs,
            config_changes=self._changes,
            replicas=replicas,
            fetchers=fetchers,
            moves=moves,
            groups=groups,
            transactions=transactions,
            markers=markers,
            metadata_waits=self._metadata_waits,
        )
        self._controller = ControllerRunner(
            self.broker_id,
            zookeeper=zookeeper,
            local=control_plane,
            connect=peers.connect_to,
            versions=versions,
            listener=listener,
            clock=world.clock,
            random=world.random,
            allows_topic_deletion=config.delete_topic_enable,
            unclean_topics=self._unclean_topics,
        )
        self._chores = LogChores(self._logs, replicas, world.clock, configs=self.configs, random=world.random)
        register_handlers(
            self._dispatcher,
            broker_id=self.broker_id,
            cluster_id=cluster,
            configs=self.configs,
            metadata=self._metadata,
            waits=self._metadata_waits,
            replicas=replicas,
            logs=self._logs,
            groups=groups,
            group_config=group_config,
            control_plane=control_plane,
            controller=self._controller,
            isr_changes=isr_changes,
            moves=moves,
            throttles=throttles,
            auto_topics=auto_topics,
            topics=writer,
            producer_ids=producer_ids,
            transactions=transactions,
            partition_markers=partition_markers,
            zookeeper=zookeeper,
            produce_purgatory=self._produce_purgatory,
            fetch_purgatory=self._fetch_purgatory,
            timer=self._timer,
            clock=world.clock,
            random=world.random,
        )
        return control_plane.known

    def _state_store(self, zookeeper: ZooKeeper, peers: BrokerPeers) -> StateStore:
        if not alters_isr_at_controller(self._config.inter_broker_protocol_version):
            return ZooKeeperStates(zookeeper, self._world.clock)

        def broker_epoch() -> int:
            assert self._control_plane is not None
            return self._control_plane.broker_epoch

        return ControllerStates(
            self.broker_id, lambda: peers.connect_to_controller("alter-isr"), broker_epoch=broker_epoch
        )

    async def _join_cluster(self, zookeeper: ZooKeeper) -> None:
        assert self._controller is not None
        assert self._groups is not None
        assert self._transactions is not None
        self._groups.start()
        self._transactions.start()
        await self._register(zookeeper)
        config = self._config
        self._controller.start(
            rebalance_every_ms=(
                config.leader_imbalance_check_interval_seconds * 1000 if config.auto_leader_rebalance_enable else None
            ),
            imbalance_percentage=config.leader_imbalance_per_broker_percentage,
        )

    async def _register(self, zookeeper: ZooKeeper) -> None:
        assert self._control_plane is not None
        registration = BrokerRegistration(self.advertised, self._world.clock.now_ms(), self._config.broker_rack)
        self._control_plane.broker_epoch = await register(zookeeper, self.broker_id, registration)

    # What ZooKeeper tells this broker.

    def _on_watch(self, event: WatchEvent) -> None:
        if self._controller is not None:
            self._controller.on_watch(event)
        if self._changes is not None:
            self._changes.on_watch(event)

    def _on_session_state(self, state: SessionState) -> None:
        log.info("ZooKeeper session is %s", state.value)
        if state is SessionState.EXPIRED and not self._is_stopping and self._controller is not None:
            self._controller.session_expired()
            if self._new_session is None or self._new_session.done():
                # A session that ends while one is being begun is that one's own business.
                self._new_session = self._loop.create_task(self._start_over(), name="new-session")

    async def _start_over(self) -> None:
        """A new session: register again, read all configuration again, run for controller again."""
        assert self._session is not None
        assert self._changes is not None
        assert self._controller is not None
        while True:
            try:
                await self._session.reconnect(self._config.zookeeper_connection_timeout)
                await self._register(self._session)
                await self._changes.load()
                self._controller.run_for_election()
                return
            except ZooKeeperError as error:
                log.warning("no new ZooKeeper session yet: %s", error)
                await asyncio.sleep(_RECONNECT_PAUSE_S)
            except KctlError as error:
                # Another broker has taken this one's id: nobody would know of this one any more.
                if not self.failed.done():
                    self.failed.set_exception(error)
                return

    def _topic_config_changed(self, topic: str) -> None:
        if self._replicas is not None:
            self._replicas.topic_config_changed(topic)
        if self._controller is not None and self.configs.topic(topic).unclean_leader_election_enable:
            self._controller.unclean_election_changed()

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.of(self.configs.topic(topic))

    def _unclean_topics(self, topics: Iterable[str]) -> frozenset[str]:
        return frozenset(topic for topic in topics if self.configs.topic(topic).unclean_leader_election_enable)

    def _log_dir_failed(self, _: str) -> None:
        """The controller hears of it and the other directories are served on; without any this broker is of no use."""
        if self._logs.online_directories:
            self._loop.call_soon_threadsafe(self._announce_log_dir_failure)
        else:
            reasons = "; ".join(f"{state.path}: {state.failure}" for state in self._logs.directories)
            self._loop.call_soon_threadsafe(self._fail, KctlError(f"all log directories are offline: {reasons}"))

    def _fail(self, error: KctlError) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # Nobody asks for it when the start fails by an error of its own.

    def _announce_log_dir_failure(self) -> None:
        self._announcement = self._loop.create_task(self._write_log_dir_event(), name="log-dir-event")

    async def _write_log_dir_event(self) -> None:
        if self._session is None:
            return
        try:
            event = znodes.encode_log_dir_event(znodes.LogDirEvent(self.broker_id))
            await self._session.create(paths.LOG_DIR_EVENT_PREFIX, event, sequence=True)
        except ZooKeeperError as error:
            log.warning("the controller could not be told of the failed log directory: %s", error)

    # Stop.

    async def _move_leadership_away(self, controller: ControllerRunner) -> None:
        if not self._config.controlled_shutdown_enable or self._peers is None or self._control_plane is None:
            return
        shutdown = ControlledShutdown(
            self.broker_id,
            broker_epoch=self._control_plane.broker_epoch,
            controller=controller,
            metadata=self._metadata,
            peers=self._peers,
            version=inter_broker_versions(self._config.inter_broker_protocol_version).controlled_shutdown,
        )
        await shutdown.run(
            tries_max=self._config.controlled_shutdown_max_retries,
            backoff_ms=self._config.controlled_shutdown_retry_backoff_ms,
        )

    async def _close_logs(self) -> None:
        if self._replicas is not None:
            await self._replicas.flushes.close()
        if not self._is_loaded:
            # Nothing was read, so nothing may be written either.
            self._logs.release()
            return
        high_watermarks = dict(self._logs.high_watermarks)
        if self._replicas is not None:
            high_watermarks.update(self._replicas.high_watermarks())
        await self._loop.run_in_executor(None, self._logs.clean_shutdown, high_watermarks)


def _text(endpoints: Iterable[Endpoint]) -> str:
    return ",".join(f"{endpoint.listener}://{endpoint.host}:{endpoint.port}" for endpoint in endpoints)


def _fetch_settings(config: BrokerConfig, versions: InterBrokerVersions) -> FetchSettings:
    return FetchSettings(
        wait_max_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_max_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        versions=versions,
    )


def _group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
        offsets_commit_required_acks=config.offsets_commit_required_acks,
        offsets_topic_compression_codec=config.offsets_topic_compression_codec,
    )


def _transaction_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        abort_check_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiration_check_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )

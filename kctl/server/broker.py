"""The broker put together: what it is made of, in which order it starts, in which order it stops.

Kafka's KafkaServer.  The order of `start` is the order of promises: the port and the folder first, because they say
whether this broker may run at all; then ZooKeeper, configuration and logs; registration last, because from then on
the controller gives it partitions to lead.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listeners import advertised_endpoints, listener_endpoints
from kctl.config.topic import topic_config_ignoring_errors
from kctl.errors import ErrorCode, KctlError, ZooKeeperError
from kctl.model import GROUP_METADATA_TOPIC, Endpoint, TopicPartition
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from kctl.protocol.apis.stop_replica import StopReplicaRequest
from kctl.protocol.apis.update_metadata import UpdateMetadataRequest
from kctl.server.api_table import register_handlers
from kctl.server.auto_topics import AutoTopics
from kctl.server.clock import SystemClock
from kctl.server.config_changes import ConfigChanges
from kctl.server.controller.runner import ControllerRunner
from kctl.server.data_folder import DataFolder, RunningBroker
from kctl.server.groups.config import MINUTE_MS, GroupConfig
from kctl.server.groups.coordinator import GroupCoordinator
from kctl.server.internal_topics import InternalLog
from kctl.server.log_chores import LogChores
from kctl.server.metadata_cache import MetadataCache
from kctl.server.network.acceptor import Acceptor
from kctl.server.producer_ids import ProducerIds
from kctl.server.registration import cluster_id, ensure_paths, generate_broker_id, register
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.dispatch import Dispatcher
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.timer import WheelTimer
from kctl.server.topic_writer import TopicWriter
from kctl.storage.config import LogConfig
from kctl.storage.files import RealFiles
from kctl.storage.log_manager import LogManager
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper
from kctl.zookeeper.operations import SessionState, WatchEvent
from kctl.zookeeper.session import ZooKeeperSession
from kctl.zookeeper.znodes import BrokerRegistration

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_KNOWN_WAIT_MS = 30_000
_RECONNECT_PAUSE_S = 1.0


class Broker:
    """`start`, then `stop`; `failed` is done when the broker cannot go on."""

    def __init__(self, folder: DataFolder, properties: Mapping[str, str], embedded_zookeeper_port: int | None) -> None:
        self.folder = folder
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._configs = ConfigView(properties)
        self._embedded_zookeeper_port = embedded_zookeeper_port
        self._clock = SystemClock()
        self._random = random.SystemRandom()
        self._loop = asyncio.get_running_loop()
        self._timer = WheelTimer(self._clock, self._loop)
        self._produce_purgatory: Purgatory[TopicPartition] = Purgatory(self._timer)
        self._fetch_purgatory: Purgatory[TopicPartition] = Purgatory(self._timer)
        self._metadata = MetadataCache()
        self._dispatcher = Dispatcher()
        self._chores: LogChores | None = None
        self._new_session: asyncio.Task[None] | None = None
        self._is_loaded = False
        self._known = asyncio.Event()
        self._is_stopping = False
        self._acceptor: Acceptor | None = None
        self._embedded: EmbeddedZooKeeper | None = None
        self._session: ZooKeeperSession | None = None
        self._logs: LogManager | None = None
        self._replicas: ReplicaManager | None = None
        self._groups: GroupCoordinator | None = None
        self._changes: ConfigChanges | None = None
        self._controller: ControllerRunner | None = None
        self._broker_id = -1
        self._advertised: tuple[Endpoint, ...] = ()

    @property
    def _config(self) -> BrokerConfig:
        return self._configs.current

    async def start(self) -> RunningBroker:
        """Serves when it returns.  Raises KctlError when that cannot be; the caller then calls `stop`."""
        self._bind()
        self.folder.acquire()
        logs = self._logs = self._open_logs()
        zookeeper = await self._open_session(await self._zookeeper_address())
        await ensure_paths(zookeeper)
        cluster = await cluster_id(zookeeper, self._random)
        self._broker_id = await self._choose_broker_id(zookeeper, logs)
        logs.assign_identity(broker_id=self._broker_id, cluster_id=cluster)
        self._changes = ConfigChanges(self._broker_id, zookeeper, self._configs, self._clock, self._topic_changed)
        await self._changes.load()
        await self._load_logs(logs)
        self._assemble(zookeeper, logs, cluster)
        await self._join_cluster(zookeeper)
        async with asyncio.timeout(_KNOWN_WAIT_MS / 1000):
            await self._known.wait()
        assert self._acceptor is not None
        assert self._replicas is not None
        self._acceptor.start()
        self._chores = LogChores(logs, self._replicas, self._clock)
        self._chores.start(self._config)
        running = self._running()
        self.folder.announce(running)
        log.info("serving broker=%s address=%s cluster=%s", self._broker_id, running.address, cluster)
        return running

    async def stop(self) -> None:
        """Stops in order; after a start that failed it stops what had started."""
        self._is_stopping = True
        if self._controller is not None and not self.failed.done():
            await self._move_leadership_away()
        if self._acceptor is not None:
            self._acceptor.stop_accepting()
        if self._chores is not None:
            await self._chores.stop()
        if self._new_session is not None:
            self._new_session.cancel()
            await asyncio.gather(self._new_session, return_exceptions=True)
        if self._groups is not None:
            await self._groups.stop()
        self._produce_purgatory.expire_all()
        self._fetch_purgatory.expire_all()
        if self._controller is not None:
            await self._controller.close()
        if self._changes is not None:
            await self._changes.close()
        if self._acceptor is not None:
            self._acceptor.close()
        self._timer.close()
        if self._logs is not None:
            await self._close_logs(self._logs)
        if self._session is not None:
            await self._session.close()
        if self._embedded is not None:
            await self._embedded.stop()
        self.folder.release()
        if self._broker_id >= 0:
            log.info("stopped broker=%s", self._broker_id)

    # Start, in order.

    def _bind(self) -> None:
        """Before anything is touched: another broker on this port is the commonest reason not to start."""
        config = self._config
        self._acceptor = Acceptor(
            handle=self._dispatcher.handle,
            frame_bytes_max=config.socket_request_max_bytes,
            connections_max_idle_ms=config.connections_max_idle_ms,
        )
        bound = {endpoint.listener: self._acceptor.bind(endpoint) for endpoint in listener_endpoints(config)}
        self._advertised = tuple(
            replace(
                endpoint,
                host=endpoint.host or socket.getfqdn(),
                port=endpoint.port or bound[endpoint.listener].port,
            )
            for endpoint in advertised_endpoints(config)
        )

    async def _zookeeper_address(self) -> str:
        if self._config.zookeeper_connect:
            return self._config.zookeeper_connect
        self._embedded = EmbeddedZooKeeper(
            self.folder.zookeeper, host=LOOPBACK, port=self._embedded_zookeeper_port or 0
        )
        await self._embedded.start()
        return f"{LOOPBACK}:{self._embedded.port}"

    async def _open_session(self, address: str) -> ZooKeeperSession:
        session = self._session = ZooKeeperSession(
            address,
            session_timeout_ms=self._config.zookeeper_session_timeout_ms,
            on_watch=self._on_watch,
            on_state=self._on_session_state,
        )
        await session.start(self._config.zookeeper_connection_timeout)
        return session

    def _open_logs(self) -> LogManager:
        self._recovery_threads = ThreadPoolExecutor(
            self._config.num_recovery_threads_per_data_dir * len(self._config.log_directories), "recovery"
        )
        logs = LogManager(
            self._config.log_directories,
            files=RealFiles(),
            clock=self._clock,
            random=self._random,
            executor=self._recovery_threads,
            on_log_dir_failure=self._log_dir_failed,
        )
        logs.open_directories()
        return logs

    async def _choose_broker_id(self, zookeeper: ZooKeeperSession, logs: LogManager) -> int:
        configured, stored = self._config.broker_id, logs.broker_id
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

    async def _load_logs(self, logs: LogManager) -> None:
        """In a thread: recovery may take long, and the embedded ZooKeeper has to answer meanwhile."""
        topics = {topic: self._log_config(topic) for topic in self._configs.topic_overrides}
        logs.default_config = LogConfig.of(topic_config_ignoring_errors(self._config, {})[0])
        await self._loop.run_in_executor(None, logs.load, topics)
        self._is_loaded = True

    def _assemble(self, zookeeper: ZooKeeperSession, logs: LogManager, cluster: str) -> None:
        config = self._config
        writer = TopicWriter(zookeeper, self._random)
        auto_topics = AutoTopics(writer, self._metadata, self._configs, self._random)
        self._replicas = ReplicaManager(
            self._broker_id,
            logs=logs,
            metadata=self._metadata,
            clock=self._clock,
            produce_purgatory=self._produce_purgatory,
            fetch_purgatory=self._fetch_purgatory,
            log_config=self._log_config,
            min_insync_replicas=lambda topic: self._configs.topic(topic).min_insync_replicas,
            on_leader=self._on_leader,
            on_follower=self._on_follower,
        )
        offsets_log = InternalLog(
            self._replicas,
            self._metadata,
            self._produce_purgatory,
            load_buffer_bytes=config.offsets_load_buffer_size,
        )
        group_config = _group_config(config)
        self._groups = GroupCoordinator(
            broker_id=self._broker_id,
            config=group_config,
            offsets_log=offsets_log,
            clock=self._clock,
            timer=self._timer,
            random=self._random,
        )
        self._controller = ControllerRunner(
            self._broker_id,
            zookeeper=zookeeper,
            local=self,
            clock=self._clock,
            random=self._random,
            allows_topic_deletion=config.delete_topic_enable,
            unclean_topics=self._unclean_topics,
        )
        register_handlers(
            self._dispatcher,
            broker_id=self._broker_id,
            cluster_id=cluster,
            configs=self._configs,
            metadata=self._metadata,
            replicas=self._replicas,
            logs=logs,
            groups=self._groups,
            group_config=group_config,
            auto_topics=auto_topics,
            topics=writer,
            producer_ids=ProducerIds(self._broker_id, zookeeper),
            zookeeper=zookeeper,
            produce_purgatory=self._produce_purgatory,
            fetch_purgatory=self._fetch_purgatory,
            timer=self._timer,
            clock=self._clock,
            random=self._random,
        )

    async def _join_cluster(self, zookeeper: ZooKeeperSession) -> None:
        assert self._controller is not None
        assert self._groups is not None
        self._groups.start()
        registration = BrokerRegistration(self._advertised, self._clock.now_ms(), self._config.broker_rack)
        await register(zookeeper, self._broker_id, registration)
        self._controller.start()

    def _running(self) -> RunningBroker:
        endpoint = self._advertised[0]
        zookeeper = self._config.zookeeper_connect or f"{LOOPBACK}:{self._embedded.port if self._embedded else 0}"
        return RunningBroker(
            pid=os.getpid(),
            host=endpoint.host,
            port=endpoint.port,
            broker_id=self._broker_id,
            zookeeper=zookeeper,
            started_ms=self._clock.now_ms(),
        )

    # What the controller tells this broker: controller.broker_channels.ControlPlane.

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> Mapping[TopicPartition, ErrorCode]:
        assert self._replicas is not None
        return self._replicas.become_leader_or_follower(request)

    def update_metadata(self, request: UpdateMetadataRequest) -> None:
        assert self._groups is not None
        deleted = self._metadata.update(request)
        if self._broker_id in self._metadata.brokers:
            self._known.set()
        if deleted:
            topics = {topic_partition.topic for topic_partition in deleted}
            self._groups.topics_deleted(topics)
            for topic in topics:
                self._configs.forget_topic(topic)

    def stop_replica(self, request: StopReplicaRequest) -> Mapping[TopicPartition, ErrorCode]:
        assert self._replicas is not None
        return self._replicas.stop_replicas(request)

    def _on_leader(self, partition: Partition) -> None:
        topic, index = partition.topic_partition
        if topic == GROUP_METADATA_TOPIC and self._groups is not None:
            self._groups.on_leader(index, partition.leader_epoch)

    def _on_follower(self, partition: Partition) -> None:
        topic, index = partition.topic_partition
        if topic == GROUP_METADATA_TOPIC and self._groups is not None:
            self._groups.on_resign(index, partition.leader_epoch)

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
            self._new_session = self._loop.create_task(self._start_over(), name="new-session")

    async def _start_over(self) -> None:
        """A new session: register again, read all configuration again, run for controller again."""
        session = self._session
        assert session is not None
        assert self._changes is not None
        assert self._controller is not None
        while True:
            try:
                await session.reconnect(self._config.zookeeper_connection_timeout)
                registration = BrokerRegistration(self._advertised, self._clock.now_ms(), self._config.broker_rack)
                await register(session, self._broker_id, registration)
                await self._changes.load()
                self._controller.run_for_election()
                return
            except ZooKeeperError as error:
                log.warning("no new ZooKeeper session yet: %s", error)
                await asyncio.sleep(_RECONNECT_PAUSE_S)

    def _topic_changed(self, topic: str) -> None:
        if self._replicas is not None:
            self._replicas.topic_config_changed(topic)

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.of(self._configs.topic(topic))

    def _unclean_topics(self, topics: Iterable[str]) -> frozenset[str]:
        return frozenset(topic for topic in topics if self._configs.topic(topic).unclean_leader_election_enable)

    def _log_dir_failed(self, path: str) -> None:
        """The other directories are served on; without any this broker is of no use."""
        if self._logs is not None and not self._logs.online_directories and not self.failed.done():
            self.failed.set_exception(KctlError(f"all log directories are offline, the last one was {path}"))

    # Stop.

    async def _move_leadership_away(self) -> None:
        assert self._controller is not None
        if not self._config.controlled_shutdown_enable or not self._controller.state.is_active:
            return
        try:
            async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                remaining = await self._controller.controlled_shutdown(self._broker_id)
        except TimeoutError:
            remaining = []
        if remaining:
            log.warning("stopping although %s partitions have no other leader", len(remaining))

    async def _close_logs(self, logs: LogManager) -> None:
        if not self._is_loaded:
            # Nothing was read, so nothing may be written either.
            logs.release()
            return
        high_watermarks = dict(logs.high_watermarks)
        if self._replicas is not None:
            high_watermarks.update(self._replicas.high_watermarks())
        await self._loop.run_in_executor(None, logs.clean_shutdown, high_watermarks)


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

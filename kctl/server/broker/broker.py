"""Starts and stops a broker, in order.  Its components are created in `parts`.  Kafka: KafkaServer.

The order of `start`: the caller has bound the port and locked the data folder, which ensures that no other process runs
this broker; then ZooKeeper, configuration and logs; registration last, because after it the controller assigns
partitions to this broker.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listeners import (
    advertised_endpoints,
    control_plane_listener,
    inter_broker_listener,
)
from kctl.errors import KctlError, ZooKeeperError
from kctl.metrics.definitions import Dialect
from kctl.model import Endpoint
from kctl.records.compiled import walk_is_compiled
from kctl.server.broker.api_table import register_handlers
from kctl.server.broker.listeners import Listeners
from kctl.server.broker.registration import (
    EXPIRY_DELAY_MS,
    EndedSessions,
    NoEndedSessions,
    announce_failed_log_dir,
    choose_broker_id,
    cluster_id,
    ensure_paths,
    register,
    update_registration,
)
from kctl.server.cluster.configs.broker import BrokerConfigUpdates
from kctl.server.cluster.configs.changes import ConfigChanges
from kctl.server.cluster.configs.features import supported_features, unsupported_levels
from kctl.server.cluster.control.metadata_waits import MetadataWaits
from kctl.server.cluster.control.shutdown import ControlledShutdown
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.loop.lag import LoopLag, MeasuredEventLoop
from kctl.server.loop.timer import WheelTimer
from kctl.server.metrics.sources import BrokerState, Sources
from kctl.server.network.connection_limits import ConnectionLimits, set_size
from kctl.server.network.dispatch import Dispatcher
from kctl.server.network.limit_updates import LimitUpdates
from kctl.server.network.listen_settings import ListenSettings
from kctl.server.network.tls.listeners import ListenerCertificates
from kctl.server.network.world import World
from kctl.server.parts.parts import BrokerParts, Foundations, assemble
from kctl.server.parts.session import BrokerSession
from kctl.server.peers.connections import PeerSecurity, address_of
from kctl.server.peers.metadata import MetadataCache
from kctl.server.peers.versions import has_features, inter_broker_versions, registration_version
from kctl.server.policies import policies_of
from kctl.server.replication.leader_lease import LeaderLease, LeaseKeeper
from kctl.server.replication.logs.broker_logs import BrokerLogs
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.quotas.client_quotas import ClientQuotas
from kctl.server.requests.recorder import Measuring, RequestRecorder
from kctl.server.requests.request_log import RequestLog
from kctl.server.security.authorization.access import Access, Authorizer
from kctl.server.security.authorization.loading import authorizer_of
from kctl.server.security.authorization.zookeeper_acls import ZooKeeperAcls
from kctl.server.security.sasl.listeners import Channels
from kctl.server.security.sasl.mechanisms import Secrets
from kctl.server.security.sasl.scram_credentials import ScramCredentials
from kctl.server.security.tokens.token_cache import TokenCache
from kctl.zookeeper.broker_znodes import BrokerRegistration
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

if TYPE_CHECKING:
    from kctl.server.metrics.broker_metrics import BrokerMetrics

log = logging.getLogger(__name__)

_KNOWN_WAIT_S = 30.0


class OwnZooKeeper(Protocol):
    """A ZooKeeper that runs in the process of the broker."""

    @property
    def session_timeout_ms_max(self) -> int:
        """The longest timeout of a session."""
        ...

    def has_session(self, session_id: int) -> bool:
        """Return whether the session is open."""
        ...


class Broker:
    """Call `bind`, `open_logs`, `start`, then `stop`; `failed` is done when the broker cannot continue."""

    def __init__(
        self,
        world: World,
        properties: Mapping[str, str],
        *,
        sessions: EndedSessions | None = None,
        own_zookeeper: OwnZooKeeper | None = None,
        on_leadership: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`sessions` are those of earlier processes.  `on_leadership` is called with the reason when the broker stops
        acting as leader, and with an empty text when it does so again.
        """
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.broker_id = -1
        self.advertised: tuple[Endpoint, ...] = ()
        self.metrics_url = ""
        """The URL of the metrics; empty without an endpoint."""
        self.configs = ConfigView(properties)
        self._world = world
        self._sessions = sessions or NoEndedSessions()
        self._own_zookeeper = own_zookeeper
        self._on_leadership = on_leadership
        self._registering = asyncio.Lock()
        self._lease = (
            LeaderLease(world.clock)
            if own_zookeeper is None
            else LeaderLease(world.clock, is_session_open=own_zookeeper.has_session)
        )
        self._lease_keeper: LeaseKeeper | None = None
        self._waking: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        timer = WheelTimer(world.clock, self._loop)
        self._logs = BrokerLogs(self.configs, world, on_log_dir_failure=self._announce_log_dir_failure, fail=self._fail)
        self._base = Foundations(
            world=world,
            configs=self.configs,
            timer=timer,
            produce_purgatory=Purgatory(timer),
            fetch_purgatory=Purgatory(timer),
            metadata=MetadataCache(),
            metadata_waits=MetadataWaits(timer),
            logs=self._logs.manager,
            quotas=ClientQuotas(self._config, world.clock, address_of),
            certificates=ListenerCertificates(self.configs),
            peer_security=PeerSecurity(self.configs),
            policies=policies_of(properties),
            secrets=Secrets(ScramCredentials(), TokenCache(_token_secret_key(self._config))),
            lease=self._lease,
        )
        self._state = BrokerState.NOT_RUNNING
        self._dispatcher = dispatcher = Dispatcher(self._base.quotas, self._loop.time)
        if isinstance(self._loop, MeasuredEventLoop):
            self._loop.lag.slow.latest_request = lambda: dispatcher.latest_api
        self._channels = Channels(
            self.configs,
            handle=world.around(self._dispatcher.handle),
            clock=world.clock,
            secrets=self._base.secrets,
            accepts_unsigned_tokens=world.accepts_unsigned_tokens,
        )
        self._limits = ConnectionLimits()
        self._metrics: BrokerMetrics | None = self._make_metrics()
        self._measuring = Measuring(for_metrics=self._metrics is not None)
        self._request_log = RequestLog(self.configs, self._loop.time, self._measuring, self._dispatcher.set_request_log)
        self._request_log.refresh()
        self.configs.subscribe(self._request_log.refresh)
        self._limits.connection_rate_of = self._base.quotas.connection_rate_of
        self._limit_updates = LimitUpdates(self.configs, self._limits, address_of)
        self._listening = world.listen(
            open_channel=self._channels.open,
            settings=ListenSettings(
                connections_max_idle_ms=self._config.connections_max_idle_ms,
                request_bytes_max=self._config.queued_max_request_bytes,
                urgent_listener=control_plane_listener(self._config),
                limits=self._limits,
                send_buffer_bytes=set_size(self.configs, "socket.send.buffer.bytes"),
                receive_buffer_bytes=set_size(self.configs, "socket.receive.buffer.bytes"),
                measuring=self._measuring,
                tls=self._base.certificates,
            ),
        )
        self._listeners = Listeners(self.configs, self._listening, self._base.certificates, self._channels)
        self._session = BrokerSession(
            self.configs, open_session=world.open_session, on_watch=self._on_watch, fail=self._fail
        )
        self._config_changes: ConfigChanges | None = None
        self._config_updates: BrokerConfigUpdates | None = None
        self._open_authorizer = authorizer_of(self._config, self.configs.static, world.clock)
        self._authorizer: Authorizer | None = None
        self._access: Access | None = None
        self._parts: BrokerParts | None = None
        self._announcement: asyncio.Task[None] | None = None

    @property
    def replicas(self) -> ReplicaManager | None:
        """The replica manager; None before `start` has created it."""
        return None if self._parts is None else self._parts.replicas

    @property
    def topic_names(self) -> dict[bytes, str]:
        """The names of topics by the bytes of their ids."""
        return self._base.metadata.names_by_id

    @property
    def transactions(self) -> TransactionCoordinator | None:
        """The transaction coordinator; None before `start` has created it."""
        return None if self._parts is None else self._parts.transactions

    @property
    def leadership_problem(self) -> str:
        """Why the broker does not act as leader; empty if it does."""
        return self._lease.problem

    @property
    def _config(self) -> BrokerConfig:
        return self.configs.current

    def bind(self) -> None:
        """Bind the ports without accepting connections.  Raises ListenError."""
        if self._metrics is not None:
            host = self._config.metrics_host
            port = self._metrics.bind(host, self._config.metrics_port)
            self.metrics_url = f"http://{host or '0.0.0.0'}:{port}/metrics"  # noqa: S104 - a text
            log.info("metrics url=%s", self.metrics_url)
        self._listeners.bind()
        self.advertised = self._advertised_endpoints()

    def _advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints for clients in the configuration in force, of open listeners."""
        bound = self._listeners.bound
        return tuple(
            replace(
                endpoint, host=endpoint.host or socket.getfqdn(), port=endpoint.port or bound[endpoint.listener].port
            )
            for endpoint in advertised_endpoints(self._config)
            if endpoint.listener in bound
        )

    def open_logs(self) -> None:
        """Lock the log directories.  Raises LogDirFailure, ConfigError."""
        self._logs.manager.open_directories()

    async def start(self, zookeeper_connect: str) -> None:
        """Start; when it returns, the broker serves.  Raises KctlError on failure; the caller then calls `stop`."""
        self._state = BrokerState.STARTING
        if self._metrics is not None:
            await self._metrics.start()
        zookeeper = await self._session.open(zookeeper_connect)
        await ensure_paths(zookeeper)
        cluster = await cluster_id(zookeeper, self._world.random)
        self.broker_id = await choose_broker_id(zookeeper, self._config, stored=self._logs.manager.broker_id)
        self._logs.manager.assign_identity(broker_id=self.broker_id, cluster_id=cluster)
        changes = self._config_changes = ConfigChanges(
            self.broker_id,
            zookeeper,
            self.configs,
            (self._base.secrets.credentials, self._base.quotas),
            self._world.clock,
            self._topic_configs_changed,
        )
        await changes.load()
        await self._start_authorizer(zookeeper)
        await self._configure_listeners()
        self._state = BrokerState.RECOVERY
        await self._logs.load(self._base.log_config)
        parts = self._parts = assemble(
            self._base, broker_id=self.broker_id, cluster_id=cluster, zookeeper=zookeeper, config_changes=changes
        )
        register_handlers(self._dispatcher, self._base, parts, self._authorizer, lambda: self._session.problem)
        self._measure(parts)
        self._session.renew_by(on_expired=self._session_expired, on_new_session=self._on_new_session)
        parts.groups.start()
        parts.share_coordinator.start()
        parts.transactions.start()
        await parts.tokens.load()
        await self._channels.start()
        await parts.features.load()
        if (message := unsupported_levels(parts.features)) is not None:
            raise KctlError(message)
        await self._register()
        self._lease_keeper = LeaseKeeper(
            self._lease,
            self.broker_id,
            zookeeper,
            self._world.clock,
            register_again=self._register_again,
            on_change=self._leadership_changed,
        )
        self._lease_keeper.start()
        parts.controller.start(
            rebalance_every_ms=(
                self._config.leader_imbalance_check_interval_seconds * 1000
                if self._config.auto_leader_rebalance_enable
                else None
            ),
            imbalance_percentage=self._config.leader_imbalance_per_broker_percentage,
        )
        # The controller has to connect before this broker can be known to other brokers.
        self._listening.start()
        await self._wait_until_known(parts)
        await parts.features.load()
        parts.log_tasks.start(self._config)
        parts.moves.start()
        parts.isr_changes.start()
        parts.tokens.start(
            check_interval_ms=self._config.delegation_token_expiry_check_interval_ms,
            is_controller=lambda: parts.controller.state.is_active,
        )
        self._config_updates = BrokerConfigUpdates(
            self.configs,
            replicas=parts.replicas,
            fetchers=parts.fetchers,
            unclean_election_changed=lambda: parts.controller.topic_configs_changed(None),
            listeners_changed=self._change_listeners,
        )
        self._config_updates.start()
        self._state = BrokerState.RUNNING
        if not walk_is_compiled():
            log.warning(
                "checking records without compiled code, which is slower; install kctl where a C compiler is available "
                "module=%s",
                "kctl.records.compiled.walk",
            )
        log.info("serving broker=%s endpoints=%s cluster=%s", self.broker_id, _text(self.advertised), cluster)

    async def stop(self) -> None:
        """Stop in order; after a failed start it stops what was started."""
        parts = self._parts
        self._state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._session.begin_shutdown()
        if parts is not None:
            parts.fetchers.begin_shutdown()
            await self._move_leadership_away(parts)
        self._state = BrokerState.SHUTTING_DOWN
        self._listening.stop_accepting()
        await self._channels.close()
        if parts is not None:
            await parts.tokens.close()
            await parts.features.close()
            await parts.log_tasks.stop()
        await self._session.stop_renewing()
        if self._lease_keeper is not None:
            await self._lease_keeper.close()
        if self._config_updates is not None:
            await self._config_updates.close()
        if parts is not None:
            await parts.moves.close()
            await parts.fetchers.close()
            await parts.isr_changes.close()
            await parts.verifier.close()
            await parts.transactions.stop()
            await parts.groups.stop()
            await parts.share_partitions.close()
            await parts.share_coordinator.stop()
            await parts.share_states.close()
        self._base.produce_purgatory.expire_all()
        self._base.fetch_purgatory.expire_all()
        self._base.metadata_waits.expire_all()
        if parts is not None:
            await parts.controller.close()
            await parts.control_plane.close()
        if self._config_changes is not None:
            await self._config_changes.close()
        self._listening.close()
        if self._access is not None:
            await self._access.close()
        await self._limit_updates.close()
        await self._base.certificates.close()
        if parts is not None:
            await parts.record_work.close()
        self._base.timer.close()
        await self._logs.close(self.replicas)
        await self._session.close()
        if self._metrics is not None:
            await self._metrics.close()
        if self.broker_id >= 0:
            log.info("stopped broker=%s", self.broker_id)

    async def _start_authorizer(self, zookeeper: ZooKeeper) -> None:
        """Start the configured authorizer, if any.  Raises ZooKeeperError, and what a plug-in raises."""
        if self._open_authorizer is not None:
            self._authorizer = self._open_authorizer(zookeeper)
            self._access = self._dispatcher.access = Access(self._authorizer)
            await self._access.start()

    # Listeners: configured when the dynamic properties are known.

    async def _configure_listeners(self) -> None:
        """Configure the listeners, or raise ConfigError."""
        await self._limit_updates.start()
        await self._listeners.configure()
        self.advertised = self._advertised_endpoints()
        control_plane = control_plane_listener(self._config)
        own = inter_broker_listener(self._config)
        await self._base.peer_security.load([own] if control_plane is None else [own, control_plane])

    # Metrics: only with metrics.port, because recording requests costs time.

    def _make_metrics(self) -> BrokerMetrics | None:
        if self._config.metrics_port < 0:
            return None
        # Imported here because it imports prometheus_client.
        from kctl.server.metrics.broker_metrics import BrokerMetrics  # noqa: PLC0415

        lag = self._loop.lag if isinstance(self._loop, MeasuredEventLoop) else LoopLag()
        return BrokerMetrics(Dialect(self._config.metrics_naming), self._limits, lag, lambda: self._state)

    def _measure(self, parts: BrokerParts) -> None:
        metrics = self._metrics
        if metrics is None:
            return
        recorder = self._dispatcher.recorder = RequestRecorder(self._loop.time)
        metrics.serve(
            Sources(
                base=self._base,
                parts=parts,
                recorder=recorder,
                listening=self._listening.measurements,
                limits=self._limits,
                channels=self._channels,
                session=self._session,
                state=lambda: self._state,
                lag=metrics.lag,
                last_minute=metrics.last_minute,
                sample=metrics.sample,
                started_ms=self._world.clock.now_ms(),
                denials=lambda: [] if self._access is None else self._access.denials.counts(),
                idle_s=metrics.idle_s,
            )
        )

    # Membership in the cluster: registration, renewal after an expired session, controlled shutdown.

    def _registration(self) -> BrokerRegistration:
        return BrokerRegistration(
            self.advertised,
            self._world.clock.now_ms(),
            self._config.broker_rack,
            features=self._features_for_registration(),
            version=registration_version(self._config.inter_broker_protocol_version),
        )

    def _features_for_registration(self) -> dict[str, tuple[int, int]]:
        """Return the supported features; brokers of 2.8 refuse a znode with a level below 1."""
        known = has_features(self._config.inter_broker_protocol_version)
        supported = supported_features(self._config, has_features=known)
        return {name: (max(lowest, 1), highest) for name, (lowest, highest) in supported.items()}

    async def _register(self) -> None:
        """Register in the present session, unless that has been done.  Raises BrokerIdInUse, ZooKeeperError."""
        zookeeper = self._session.zookeeper
        assert zookeeper is not None
        async with self._registering:
            if self._lease.is_of(zookeeper.session_id):
                return
            timeout_ms = zookeeper.session_timeout_ms
            own = self._own_zookeeper
            # The timeout of another session is unknown: with a ZooKeeper of its own, no later start could wait longer.
            expiry_ms = timeout_ms if own is None else max(timeout_ms, own.session_timeout_ms_max)
            session_id = zookeeper.session_id
            registered = await register(
                zookeeper,
                self.broker_id,
                self._registration(),
                sessions=self._sessions,
                clock=self._world.clock,
                patience_ms=expiry_ms + EXPIRY_DELAY_MS,
            )
            if zookeeper.session_id == session_id:
                asked_ms = registered.asked_ms
                self._lease.begin(registered.broker_epoch, session_id, asked_ms=asked_ms, timeout_ms=timeout_ms)
                if self._lease_keeper is not None:
                    self._lease_keeper.check()

    async def _register_again(self) -> None:
        """After the registration was deleted, for example by a user, in a session that has not expired."""
        try:
            await self._register()
        except ZooKeeperError:
            raise
        except KctlError as error:
            self._fail(error)

    def _session_expired(self) -> None:
        assert self._parts is not None
        self._lease.end("the session with ZooKeeper has expired")
        if self._lease_keeper is not None:
            self._lease_keeper.check()
        self._parts.controller.session_expired()

    def _leadership_changed(self) -> None:
        """Wake the requests that wait for partitions that this broker leads, and notify the owner of the process."""
        assert self._parts is not None
        waking = self._loop.create_task(self._parts.replicas.lease_changed(), name="leadership-changed")
        self._waking.add(waking)
        waking.add_done_callback(self._waking.discard)
        self._on_leadership(self._lease.problem)

    async def _change_listeners(self) -> None:
        """Open and close listeners; register changed endpoints, of which the controller notifies all brokers."""
        await self._listeners.apply()
        advertised = self._advertised_endpoints()
        if advertised == self.advertised or self._session.zookeeper is None:
            return
        self.advertised = advertised
        log.info("changing advertised endpoints broker=%s endpoints=%s", self.broker_id, _text(advertised))
        await update_registration(self._session.zookeeper, self.broker_id, self._registration())

    async def _wait_until_known(self, parts: BrokerParts) -> None:
        try:
            async with asyncio.timeout(_KNOWN_WAIT_S):
                await parts.control_plane.known.wait()
        except TimeoutError:
            raise KctlError(f"no controller sent metadata with this broker in {_KNOWN_WAIT_S:.0f} s") from None

    async def _on_new_session(self, zookeeper: ZooKeeper) -> None:
        """In a new session: registers again, reads all configuration again, takes part in controller elections."""
        assert self._parts is not None
        assert self._config_changes is not None
        await self._register()
        await self._config_changes.load()
        if isinstance(self._authorizer, ZooKeeperAcls):
            await self._authorizer.load()
        await self._parts.tokens.load()
        await self._parts.features.load()
        self._parts.controller.run_for_election()

    async def _move_leadership_away(self, parts: BrokerParts) -> None:
        if self.failed.done() or not self._config.controlled_shutdown_enable:
            return
        shutdown = ControlledShutdown(
            self.broker_id,
            broker_epoch=self._lease.broker_epoch,
            controller=parts.controller,
            metadata=self._base.metadata,
            peers=parts.peers,
            version=inter_broker_versions(self._config.inter_broker_protocol_version).controlled_shutdown,
        )
        await shutdown.run(
            tries_max=self._config.controlled_shutdown_max_retries,
            backoff_ms=self._config.controlled_shutdown_retry_backoff_ms,
        )

    # Events.

    def _on_watch(self, event: WatchEvent) -> None:
        if self._lease_keeper is not None:
            self._lease_keeper.on_watch(event)
        if self._parts is not None:
            self._parts.authority.on_watch(event)
            self._parts.controller.on_watch(event)
            self._parts.tokens.on_watch(event)
            self._parts.watched_configs.on_watch(event)
            self._parts.features.on_watch(event)
        if self._config_changes is not None:
            self._config_changes.on_watch(event)
        if isinstance(self._authorizer, ZooKeeperAcls):
            self._authorizer.on_watch(event)

    def _topic_configs_changed(self, topics: Collection[str]) -> None:
        if self._parts is None:
            return
        self._parts.replicas.topic_configs_changed(topics)
        self._parts.controller.topic_configs_changed(topics)

    def _announce_log_dir_failure(self) -> None:
        """Notify the controller."""
        if self._session.zookeeper is not None:
            announcement = self._notify_log_dir_failure(self._session.zookeeper)
            self._announcement = self._loop.create_task(announcement, name="log-dir-event")

    async def _notify_log_dir_failure(self, zookeeper: ZooKeeper) -> None:
        try:
            await announce_failed_log_dir(zookeeper, self.broker_id)
        except ZooKeeperError as error:
            log.warning(
                "cannot notify the controller of a failed log directory broker=%s error=%s", self.broker_id, error
            )

    def _fail(self, error: KctlError) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # Marks it as retrieved, in case that the start fails with another error.


def _token_secret_key(config: BrokerConfig) -> str | None:
    """delegation.token.secret.key, or its older name; None disables delegation tokens."""
    return config.delegation_token_secret_key or config.delegation_token_master_key


def _text(endpoints: Iterable[Endpoint]) -> str:
    return ",".join(
        f"{endpoint.listener}://{f'[{endpoint.host}]' if ':' in endpoint.host else endpoint.host}:{endpoint.port}"
        for endpoint in endpoints
    )

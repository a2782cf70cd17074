"""Client of a cluster: looks up leaders, the controller and coordinators, and keeps connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Self, TypeVar

from kctl.client.connections.response_names import CheckedConnection
from kctl.client.connections.transport import Budget, Connection, ConnectionLost, NameUnresolved, Transport
from kctl.client.connections.versions import OLDEST_KAFKA
from kctl.client.metadata import Broker, ClusterMetadata, metadata_of
from kctl.client.retrying import CONTROLLER_MOVED, COORDINATOR_MOVED, Deadline, retry
from kctl.client.settings import ClientSettings
from kctl.config.addresses import address_text
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kctl.system.reference_cycles import copy_of

if TYPE_CHECKING:
    from kctl.client.connections.traffic import Traffic

T = TypeVar("T")

DESCRIBE_QUORUM_KEY = 55
"""Only brokers of KRaft clusters, and controllers, have this API."""
CONTROLLERS_VERSION_MIN = 1
"""The first version of DescribeCluster for controllers (KIP-919)."""
ANOTHER_BROKER_MS = 5_000
"""How long a producer waits for metadata from one broker, if there are others."""


QUORUM_SHARE = 3
"""A leader of the metadata quorum is waited for at most this fraction of the time that a command has."""


def lost_quorum_text(seen: datetime, reason: str) -> str:
    """Return what a lost quorum means.

    No node says when the leader was lost: `seen` is the time of the first observation.
    """
    return f"no quorum leader: metadata is frozen since {seen:%Y-%m-%dT%H:%M:%SZ} or earlier ({reason})"


class CoordinatorType(IntEnum):
    """Key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class ClusterClient:
    """Connections to the brokers of one cluster.  Use as an async context manager."""

    def __init__(self, settings: ClientSettings, transport: Transport, budget: Budget | None = None) -> None:
        """`budget` is the budget of the command that opens this client."""
        self.settings = settings
        self.transport = transport
        self.budget = budget or Budget(transport.monotonic_ms)
        self._budget_of_connections = self.budget
        self._response_timeout_ms = settings.response_timeout_ms
        self._connections: dict[tuple[str, int, str], Connection] = {}
        """Connections by host, port and purpose; "" is the shared one."""
        self._metadata: ClusterMetadata | None = None
        self._resolved = dict(settings.resolved)
        self._has_quorum = False
        """Whether the metadata quorum of a KRaft cluster was seen with a leader."""
        self._coordinators: dict[tuple[CoordinatorType, str], tuple[str, int]] = {}
        self.traffic: Traffic | None = None
        """What telemetry counts of the connections; None without it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        connections = list(self._connections.values())
        self._connections.clear()
        await self.transport.gather([connection.close() for connection in connections])

    def deadline(self, timeout_ms: int | None = None) -> Deadline:
        """Return the deadline of an operation that starts now; None for the timeout of the settings."""
        settings = self.settings
        return Deadline(
            self.transport,
            settings.timeout_ms if timeout_ms is None else timeout_ms,
            self.budget,
            backoff_ms=settings.retry_backoff_ms,
            backoff_ms_max=settings.retry_backoff_ms_max,
        )

    @property
    def delayed_timeout_ms(self) -> int:
        """The timeout of a request whose response the broker delays until its work is done.

        A tenth less than the time that is left, so that a response that says why it is not done arrives in time.
        """
        return self.budget.limited(self.settings.timeout_ms) * 9 // 10

    def one_deadline(self, *, follows_elections: bool = False) -> AbstractContextManager[None]:
        """Run all operations of the block within one timeout, and try each broker at most once.

        With `follows_elections` they wait for the successor of an unreachable leader instead, also while the metadata
        has none.  Partitions without a leader and without a live in-sync replica are retried only briefly either way.
        """
        return self.budget.command(self.settings.timeout_ms, follows_elections=follows_elections)

    def for_call(self, timeout_ms: int) -> ClusterClient:
        """Return this client for one of several concurrent operations, with a deadline of its own.

        The connections and coordinators are those of this client.  The operation follows elections, and tries brokers
        that it does not reach again.
        """
        client = copy(self)
        client.settings = self.settings._replace(timeout_ms=timeout_ms)
        client.budget = Budget(self.transport.monotonic_ms)
        client.budget.begin(timeout_ms, follows_elections=True)
        return client

    async def metadata(self, topics: Collection[str] | None = None) -> ClusterMetadata:
        """Return the metadata of `topics`, or of all, from any broker; topics that do not exist have an error.

        Does not create topics.  Raises ClusterUnreachable.
        """
        return await retry(lambda: self._request_metadata(topics), deadline=self.deadline())

    def node_id_at(self, address: str) -> int | None:
        """Return the id of the broker with this address (`host:port`), if the metadata has one."""
        brokers = {} if self._metadata is None else self._metadata.brokers
        return next((broker.node_id for broker in brokers.values() if broker.address == address), None)

    def open_connections(self) -> list[Connection]:
        """Return the shared connections that are open: one to each broker that was used so far, the first one first."""
        return [
            connection
            for (_, _, purpose), connection in self._connections.items()
            if connection.is_open and not purpose
        ]

    async def refreshed(
        self, topics: Collection[str], *, creates_topics: bool = False, avoided: Collection[str] = ()
    ) -> ClusterMetadata:
        """Return the metadata of topics, after one attempt; brokers may create those that do not exist
        (`creates_topics`).

        `avoided` are addresses of brokers that respond late.  Raises ConnectionLost and ClusterUnreachable.
        """
        connection = await self.any_broker(avoided)
        others = 0 if self._metadata is None else len(self._metadata.brokers) - 1
        timeout_ms = self.settings.response_timeout_ms
        try:
            self._metadata = await self.metadata_from(
                connection,
                topics,
                creates_topics=creates_topics,
                timeout_ms=min(timeout_ms, ANOTHER_BROKER_MS) if others > 0 else timeout_ms,
            )
        except ConnectionLost:
            await connection.close()  # the next attempt is made on another one
            raise
        return self._metadata

    async def connected(self, broker: Broker, *, purpose: str = "") -> Connection:
        """Return a connection to a broker; see `coordinator` for `purpose`.  Raises ConnectionLost."""
        return await self._connect(broker.host, broker.port, purpose)

    async def any_broker(self, avoided: Collection[str] = ()) -> Connection:
        """Return a connection to any broker: an open one, else to the first reachable bootstrap address.

        An open one to one of the `avoided` addresses only if there is no other.
        """
        for connection in sorted(self.open_connections(), key=lambda connection: connection.address in avoided):
            return connection
        addresses = list(self.settings.bootstrap)
        if self._metadata is not None:
            addresses += [(broker.host, broker.port) for broker in self._metadata.brokers.values()]
        problems = []
        for host, port in dict.fromkeys(addresses):
            try:
                return await self._connect(host, port)
            except ConnectionLost as problem:
                problems.append(str(problem))
        raise ClusterUnreachable(f"cannot reach {'; '.join(problems)}")

    async def broker(self, node_id: int) -> Connection:
        """Return a connection to one broker.  Raises ApiError(BROKER_NOT_AVAILABLE) if it is not in the metadata."""
        if self._metadata is None or node_id not in self._metadata.brokers:
            await self._request_metadata([])
        assert self._metadata is not None
        broker = self._metadata.brokers.get(node_id)
        if broker is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not alive")
        return await self._connect(broker.host, broker.port)

    async def on_any_broker(
        self, work: Callable[[Connection], Awaitable[T]], *, codes: Collection[ErrorCode] = ()
    ) -> T:
        """Run `work` on any broker; retry after one of `codes` and after a lost connection.

        Raises ClusterUnreachable.
        """

        async def attempt() -> T:
            return await work(await self.any_broker())

        return await retry(attempt, deadline=self.deadline(), codes=codes)

    async def on_controller(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` on the active controller, in a KRaft cluster through any broker that is reached.

        Retry if `work` raises ApiError(NOT_CONTROLLER).  Raises ClusterUnreachable, before anything is sent, if the
        metadata quorum has no leader.

        Does not retry after a lost connection, because the controller may have performed the request.
        """

        async def attempt() -> T:
            connection = await self.any_broker()
            if connection.versions.has(DESCRIBE_QUORUM_KEY, 0) and not self.settings.are_controllers:
                await self.check_quorum(connection)
                return await work(connection)  # KRaft: its metadata name any broker, and any broker forwards.
            metadata = await self._request_metadata([])
            if metadata.controller_id not in metadata.brokers:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no active controller")
            return await work(await self.broker(metadata.controller_id))

        return await retry(attempt, deadline=self.deadline(), codes=CONTROLLER_MOVED, is_repeatable=False)

    async def check_quorum(self, connection: Connection) -> None:
        """Return if the metadata quorum has a leader, or the user may not see it, or there is none without KRaft.

        To be called before a change that a broker forwards: without a leader it would not answer, and the outcome of
        the change would be unknown.  Raises ClusterUnreachable.
        """
        if self._has_quorum or self.settings.are_controllers or not connection.versions.has(DESCRIBE_QUORUM_KEY, 0):
            return
        from kctl.protocol.apis.describe_quorum import (  # noqa: PLC0415 - only for what the controller does
            METADATA_LOG,
            DescribeQuorumRequest,
            DescribeQuorumResponse,
        )

        asked, start_ms = datetime.now(UTC), self.transport.monotonic_ms()
        limit_ms = max(1, self.deadline().remaining_ms // QUORUM_SHARE)
        try:
            await connection.send(
                DescribeQuorumRequest(topics=METADATA_LOG), DescribeQuorumResponse, timeout_ms=limit_ms
            )
        except ConnectionLost as lost:
            await connection.close()
            if self.transport.monotonic_ms() - start_ms < limit_ms:
                # The broker has ended; nothing that changes the cluster was sent to it.
                raise ApiError(ErrorCode.NOT_CONTROLLER, str(lost)) from None
            raise ClusterUnreachable(lost_quorum_text(asked, str(lost))) from None
        self._has_quorum = True

    async def on_coordinator(
        self,
        key: str,
        work: Callable[[Connection], Awaitable[T]],
        kind: CoordinatorType = CoordinatorType.GROUP,
        *,
        codes: Collection[ErrorCode] = (),
        timeout_ms: int | None = None,
    ) -> T:
        """Run `work` on the coordinator of a group or transactional id; retry if `work` raises that it has moved.

        Also retries after a lost connection and after `codes`.
        """

        async def attempt() -> T:
            return await work(await self.coordinator(key, kind))

        def forget() -> None:
            self.forget_coordinator(key, kind)

        codes = {*COORDINATOR_MOVED, *codes}
        return await retry(attempt, deadline=self.deadline(timeout_ms), codes=codes, forget=forget)

    def forget_coordinator(self, key: str, kind: CoordinatorType = CoordinatorType.GROUP) -> None:
        """Drop the cached coordinator of `key`."""
        self._coordinators.pop((kind, key), None)

    async def coordinator(
        self, key: str, kind: CoordinatorType = CoordinatorType.GROUP, *, purpose: str = ""
    ) -> Connection:
        """Return a connection to the coordinator of `key`.  Raises ApiError, with a retriable code while there is none.

        A broker handles the requests of a connection in order, so requests that may take long (JoinGroup) name a
        `purpose` and get a connection of their own.
        """
        address = self._coordinators.get((kind, key))
        if address is None:
            found = (await self._find_coordinators(await self.any_broker(), [key], kind))[key]
            if isinstance(found, ApiError):
                raise copy_of(found)
            address = found
        return await self._connect(*address, purpose)

    async def find_coordinators(
        self, keys: Collection[str], kind: CoordinatorType = CoordinatorType.GROUP
    ) -> dict[str, tuple[str, int] | ApiError]:
        """Look up the coordinators of the keys that are not cached.  Raises ClusterUnreachable."""

        async def attempt() -> dict[str, tuple[str, int] | ApiError]:
            missing = [key for key in keys if (kind, key) not in self._coordinators]
            found = await self._find_coordinators(await self.any_broker(), missing, kind) if missing else {}
            return {key: found[key] if key in found else self._coordinators[kind, key] for key in keys}

        return await retry(attempt, deadline=self.deadline())

    def cache_coordinators(self, node_ids: Mapping[str, int], kind: CoordinatorType = CoordinatorType.GROUP) -> None:
        """Cache brokers that have confirmed that they coordinate these keys."""
        brokers = {} if self._metadata is None else self._metadata.brokers
        for key, node_id in node_ids.items():
            if node_id in brokers:
                self._coordinators[kind, key] = brokers[node_id].host, brokers[node_id].port

    async def _find_coordinators(
        self, connection: Connection, keys: Sequence[str], kind: CoordinatorType
    ) -> dict[str, tuple[str, int] | ApiError]:
        """Look up the coordinators of the keys and cache them."""

        found = await find_coordinators(connection, keys, kind, self.gather)
        self._coordinators.update({
            (kind, key): address for key, address in found.items() if not isinstance(address, ApiError)
        })  # fmt: skip
        return found

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """Run all concurrently if the transport supports that."""
        return await self.transport.gather(work)

    async def metadata_from(
        self,
        connection: Connection,
        topics: Collection[str] | None,
        *,
        creates_topics: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterMetadata:
        """Return the metadata from the cache of one broker, which may differ from others.  Raises ConnectionLost."""
        if self.settings.are_controllers:
            return await self._controllers_from(connection, topics, timeout_ms)
        requested = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(topics)]
        request = MetadataRequest(topics=requested, allow_auto_topic_creation=creates_topics)
        return metadata_of(await connection.send(request, MetadataResponse, timeout_ms=timeout_ms))

    async def _controllers_from(
        self, connection: Connection, topics: Collection[str] | None, timeout_ms: int | None
    ) -> ClusterMetadata:
        """Return the controllers in place of brokers: they answer no Metadata (KIP-919).  Raises ApiError."""
        from kctl.protocol.apis.describe_cluster import (  # noqa: PLC0415 - only with --bootstrap-controller
            ENDPOINT_CONTROLLERS,
            DescribeClusterRequest,
            DescribeClusterResponse,
        )

        if topics is None or topics:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "a controller has no topics: use --bootstrap-server")
        if connection.versions.highest(DescribeClusterRequest) < CONTROLLERS_VERSION_MIN:
            text = f"{connection.address} cannot be asked as a controller: this needs Kafka 3.7 or newer"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
        request = DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLERS)
        response = await connection.send(request, DescribeClusterResponse, timeout_ms=timeout_ms)
        if response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
            text = f"{connection.address} is a broker, and not a controller: use --bootstrap-server"
            raise ApiError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code), response.error_message)
        controllers = {node.broker_id: Broker(node.broker_id, node.host, node.port, node.rack) for node in sorted(
            response.brokers, key=lambda node: node.broker_id
        )}  # fmt: skip
        return ClusterMetadata(response.cluster_id, response.controller_id, controllers, {})

    async def _request_metadata(self, topics: Collection[str] | None) -> ClusterMetadata:
        self._metadata = await self.metadata_from(await self.any_broker(), topics)
        return self._metadata

    async def _connect(self, host: str, port: int, purpose: str = "") -> Connection:
        known = self._connections.get((host, port, purpose))
        if known is not None and known.is_open:
            return known
        opened = await self._open(host, port)
        # Two tasks may have connected at the same time; both use the first connection.
        known = self._connections.get((host, port, purpose))
        if known is not None and known.is_open:
            await opened.close()
            return known
        self._connections[host, port, purpose] = opened
        if self.traffic is not None:
            self.traffic.opened(opened)
        return opened

    def _explain(self, lost: ConnectionLost, host: str, port: int) -> None:
        """Add to the error that the address is one that a broker advertises, and what to do if it has none here."""
        text = str(lost)
        brokers = {} if self._metadata is None else self._metadata.brokers
        node_id = next(
            (broker.node_id for broker in brokers.values() if (broker.host, broker.port) == (host, port)), None
        )
        if node_id is not None and (host, port) not in self.settings.bootstrap:
            text = f"{text} (advertised by broker {node_id} as {address_text(host, port)})"
        reached_at = self._resolved.get(host.lower())
        if reached_at is not None:
            text = f"{text} (reached at {reached_at}, because of --resolve or kctl.resolve)"
        elif isinstance(lost, NameUnresolved):
            text = f"{text}; the name cannot be resolved here: --resolve {host}=ADDRESS gives its address"
        lost.args = (text,)

    async def _open(self, host: str, port: int) -> Connection:
        """Open a connection.  During a command, unreachable brokers are not tried again."""
        budget = self.budget
        if reason := budget.unreachable.get((host, port)):
            raise ConnectionLost(reason)
        connect_timeout_ms = self.settings.connect_timeout_ms
        if budget.is_active:
            # Leave time for other brokers if this one does not respond.
            connect_timeout_ms = min(connect_timeout_ms, budget.limited(self.settings.timeout_ms) // 2)
            if connect_timeout_ms == 0:
                raise ConnectionLost(f"{host}:{port}: the timeout of {self.settings.timeout_ms} ms has expired")
        try:
            connection: Connection = await self.transport.connect(
                host,
                port,
                client_id=self.settings.client_id,
                connect_timeout_ms=connect_timeout_ms,
                timeout_ms=self._response_timeout_ms,
                budget=self._budget_of_connections,
                security=self.settings.security,
                reached_at=self._resolved.get(host.lower()),
            )
        except ConnectionLost as lost:
            self._explain(lost, host, port)
            if budget.is_active and not budget.follows_elections:
                budget.unreachable[host, port] = str(lost)
            raise
        if connection.versions.is_too_old and not self.settings.are_controllers:
            await connection.close()
            text = f"the broker at {host}:{port} is older than Kafka {OLDEST_KAFKA}, which is the minimum"
            if connection.versions.is_controller:
                text = (
                    f"{host}:{port} is a KRaft controller: give --bootstrap-server the address of a broker, or the "
                    "address of the controller as --bootstrap-controller to the commands that have this option"
                )
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
        connection = CheckedConnection(connection, self.traffic)
        if self.settings.guard is None:
            return connection
        from kctl.client.connections.guard import guarded  # noqa: PLC0415 - only with a profile

        return await guarded(connection, self.settings.guard)


# Looks up the coordinators of groups and transactional ids.


SEVERAL_KEYS_VERSION_MIN = 4

Address = tuple[str, int]
Gather = Callable[[Sequence[Awaitable[FindCoordinatorResponse]]], Awaitable[list[FindCoordinatorResponse]]]
"""Runs all concurrently, if the transport supports that."""


async def find_coordinators(
    connection: Connection, keys: Sequence[str], key_type: int, gather: Gather
) -> dict[str, Address | ApiError]:
    """Return the address or the error of each key, by one request, or before Kafka 3.0 by one for each key
    (KIP-699).
    """
    if connection.versions.highest(FindCoordinatorRequest) >= SEVERAL_KEYS_VERSION_MIN:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        response = await connection.send(request, FindCoordinatorResponse)
        found = {coordinator.key: coordinator for coordinator in response.coordinators}
    else:
        requests = [FindCoordinatorRequest(key=key, key_type=key_type) for key in keys]
        responses = await gather([connection.send(request, FindCoordinatorResponse) for request in requests])
        found = {key: _only(key, response) for key, response in zip(keys, responses, strict=True)}
    return {key: _address(key, found.get(key)) for key in keys}


def _only(key: str, response: FindCoordinatorResponse) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )


def _address(key: str, found: Coordinator | None) -> Address | ApiError:
    if found is None:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker's response does not contain this key.")
    code = ErrorCode.of(found.error_code)
    if code in {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}:
        return ApiError(code, f"{code.description.removesuffix('.')}: '{key}'")  # the broker's text does not name it
    return (found.host, found.port) if code is ErrorCode.NONE else ApiError(code, found.error_message)

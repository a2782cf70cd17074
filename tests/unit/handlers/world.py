"""A broker without network and disk: ZooKeeper, controller and metadata cache are the real code, in virtual time.

`play(scene)` runs a scenario; the controller's requests update the metadata cache, and partitions in `leaderless` get
no leader until `elect` is called.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from kctl.client.connections.versions import BrokerVersions
from kctl.config.dynamic import ConfigView
from kctl.errors import ErrorCode
from kctl.model import Endpoint, TopicPartition
from kctl.protocol import codec
from kctl.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicError,
)
from kctl.protocol.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest
from kctl.protocol.apis.update_metadata import UpdateMetadataRequest
from kctl.server.broker.registration import NoEndedSessions, ensure_paths, register
from kctl.server.cluster.configs.changes import ConfigChanges
from kctl.server.cluster.configs.resources import ConfigResources, WatchedConfigs
from kctl.server.cluster.control.deletions import TopicDeletions
from kctl.server.cluster.control.metadata_waits import MetadataWaits
from kctl.server.cluster.controller.runner import ControllerRunner
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.loop.timer import WheelTimer
from kctl.server.peers.connections import Purpose, address_of
from kctl.server.peers.metadata import MetadataCache
from kctl.server.peers.versions import FIRST_REGISTRATION_WITH_FEATURES, inter_broker_versions
from kctl.server.policies import Policies
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.requests.quotas.client_quotas import ClientQuotas
from kctl.server.security.sasl.scram_credentials import ScramCredentials
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper, SimZooKeeperSession
from kctl.zookeeper.broker_znodes import BrokerRegistration
from kctl.zookeeper.operations import WatchEvent

T = TypeVar("T")

BROKER_ID = 0


class AcceptingPeer:
    """A kctl.client.connections.transport.Connection to a broker that accepts every request of the controller."""

    address = "peer"
    versions = BrokerVersions({})
    is_open = True

    async def send(self, request: object, response_class: Callable[..., T], **options: Any) -> T:
        match request:
            case LeaderAndIsrRequest():
                topics = [
                    LeaderAndIsrTopicError(
                        topic_id=topic.topic_id,
                        partition_errors=[
                            LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=0)
                            for state in topic.partition_states
                        ],
                    )
                    for topic in request.topic_states
                ]
                return response_class(error_code=0, topics=topics)
            case StopReplicaRequest():
                errors = [
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=0
                    )
                    for topic in request.topic_states
                    for state in topic.partition_states
                ]
                return response_class(error_code=0, partition_errors=errors)
        return response_class(error_code=0)

    async def post(self, request: object, *, version: int | None = None) -> None:
        raise NotImplementedError("the controller expects an answer to each of its requests")

    async def close(self) -> None:
        """Nothing to close."""


async def _connect(_endpoint: Endpoint, _purpose: Purpose) -> AcceptingPeer:
    return AcceptingPeer()


class World:
    """One broker, which is the controller, and `others` registered brokers."""

    def __init__(
        self,
        loop: SimLoop,
        properties: Mapping[str, str],
        *,
        registration_version: int = FIRST_REGISTRATION_WITH_FEATURES,
    ) -> None:
        self.loop = loop
        self._registration_version = registration_version
        self.clock = SimClock(loop.time)
        self.random = random.Random(loop.seed)
        self.configs = ConfigView(properties)
        self.metadata = MetadataCache()
        self.waits = MetadataWaits(WheelTimer(self.clock, loop))
        self.is_active = True
        self.is_silent = False
        """Whether the controller's requests are lost."""
        self.policies = Policies()
        self.ensemble = SimZooKeeper()
        self.zookeeper = self.ensemble.session(on_watch=self._on_watch)
        self.topics = TopicWriter(self.zookeeper, self.random, created=self._topic_created)
        self.resources = ConfigResources(
            BROKER_ID,
            self.configs,
            self.metadata,
            self.topics,
            self.policies,
        )
        self.watched_configs = WatchedConfigs(self.zookeeper)
        self.credentials = ScramCredentials()
        self.quotas = ClientQuotas(self.configs.current, self.clock, address_of)
        self.changes = ConfigChanges(
            BROKER_ID,
            self.zookeeper,
            self.configs,
            (self.credentials, self.quotas),
            self.clock,
            lambda _: None,
        )
        self.controller = ControllerRunner(
            BROKER_ID,
            zookeeper=self.zookeeper,
            local=self,
            connect=_connect,
            versions=inter_broker_versions("2.8-IV1"),
            listener="PLAINTEXT",
            clock=self.clock,
            random=self.random,
            allows_topic_deletion=self.configs.current.delete_topic_enable,
            unclean_topics=lambda _: frozenset(),
            deletions_ended=self.waits.changed,
        )
        self.deletions = TopicDeletions(self.zookeeper, self.controller.state, self.metadata, self.waits)
        self._others: list[SimZooKeeperSession] = []

    async def start(self, others: int) -> None:
        await self.zookeeper.start(10_000)
        await ensure_paths(self.zookeeper)
        await self.changes.load()
        await self._register(self.zookeeper, BROKER_ID)
        for number in range(1, others + 1):
            session = self.ensemble.session()
            await session.start(10_000)
            await self._register(session, number)
            self._others.append(session)
        self.controller.start()
        await self.until(lambda: len(self.metadata.brokers) == others + 1)

    async def stop(self) -> None:
        await self.changes.close()
        await self.controller.close()
        for session in (*self._others, self.zookeeper):
            await session.close()

    def _topic_created(self, name: str) -> None:
        self.controller.topic_created(name)

    async def until(self, is_reached: Callable[[], bool]) -> None:
        """Advances virtual time."""
        async with asyncio.timeout(60):
            while not is_reached():  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(0.01)

    async def topic(self, name: str, *replicas: tuple[int, ...], overrides: Mapping[str, str] | None = None) -> None:
        """Creates a topic with one partition per entry, and waits until the cache has it."""
        assignment = dict(enumerate(replicas or ((BROKER_ID,),)))
        await self.topics.create(name, assignment, overrides or {})
        await self.until(
            lambda: self.metadata.has_leaders(name, len(assignment)) and name in self.configs.topic_overrides
        )

    def is_controller(self) -> bool:
        return self.is_active

    # controller.broker_channels.ControlPlane

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> Mapping[TopicPartition, ErrorCode]:
        self.changes.topics_appeared(topic.topic_name for topic in request.topic_states)
        return {
            TopicPartition(topic.topic_name, state.partition_index): ErrorCode.NONE
            for topic in request.topic_states
            for state in topic.partition_states
        }

    async def update_metadata(self, request: UpdateMetadataRequest) -> None:
        if self.is_silent:
            return
        self.changes.topics_deleted({topic for topic, _ in self.metadata.update(request)})
        self.waits.changed(topic.topic_name for topic in request.topic_states)

    async def stop_replica(self, request: StopReplicaRequest) -> Mapping[TopicPartition, ErrorCode]:
        return {
            TopicPartition(topic.topic_name, state.partition_index): ErrorCode.NONE
            for topic in request.topic_states
            for state in topic.partition_states
        }

    def _on_watch(self, event: WatchEvent) -> None:
        self.controller.on_watch(event)
        self.changes.on_watch(event)
        self.watched_configs.on_watch(event)

    async def _register(self, session: SimZooKeeperSession, broker_id: int) -> None:
        endpoints = (Endpoint("PLAINTEXT", f"host-{broker_id}", 9092), Endpoint("INSIDE", f"inner-{broker_id}", 9093))
        registration = BrokerRegistration(endpoints, self.clock.now_ms(), version=self._registration_version)
        await register(session, broker_id, registration, sessions=NoEndedSessions(), clock=self.clock, patience_ms=0)


def play(
    scene: Callable[[World], Awaitable[T]],
    *,
    properties: Mapping[str, str] | None = None,
    others: int = 0,
    registration_version: int = FIRST_REGISTRATION_WITH_FEATURES,
) -> T:
    """Runs a scenario with `others` brokers beside broker 0."""

    async def main(loop: SimLoop) -> T:
        world = World(loop, properties or {}, registration_version=registration_version)
        await world.start(others)
        try:
            return await scene(world)
        finally:
            await world.stop()

    return simulate(main, seed=1)


def known() -> asyncio.Event:
    """For handlers of a broker to which a controller has sent metadata."""
    event = asyncio.Event()
    event.set()
    return event


def context(version: int, *, listener: str = "PLAINTEXT") -> RequestContext:
    return RequestContext(version, 1, "client", Peer("/127.0.0.1", listener))


async def exchange(
    handler: Callable[..., object], request: object, version: int, *, listener: str = "PLAINTEXT"
) -> Any:
    """Sends a request encoded in this version, and returns the decoded response."""
    received, _ = codec.decode(type(request), codec.encode_bytes(request, version), version)
    response = handler(received, context(version, listener=listener))
    if isinstance(response, Awaitable):
        response = await response
    completed, _ = codec.decode(type(response), codec.encode_bytes(response, version), version)
    return completed

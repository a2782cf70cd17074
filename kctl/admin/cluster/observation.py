"""Reads what health and rolling restarts need: brokers, the quorum of controllers, disks and partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import time
from typing import cast

from kctl.admin.cluster.health import Observation, brokers_not_leading, min_insync_replicas, zookeeper_problem
from kctl.admin.cluster.quorum import MetadataQuorum, QuorumReading, quorum_of
from kctl.admin.placement.log_dirs import LogDir, describe_log_dirs, file_systems_of
from kctl.admin.placement.reassignment import NOT_LISTED, Ongoing, list_reassignments
from kctl.client.cluster import QUORUM_SHARE, ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.metadata import Broker, ClusterMetadata
from kctl.errors import ApiError, AuthenticationFailed, ClusterUnreachable, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kctl.protocol.apis.describe_quorum import METADATA_LOG, DescribeQuorumRequest, DescribeQuorumResponse

NO_LEADER_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors of a node that is not the leader, and of a broker that finds none."""
QUORUM_MS_MAX = 4_000
"""A leader responds within milliseconds, and is elected within seconds; without one, brokers wait for it."""
NODES_ASKED_MAX = 5
FENCED_VERSION_MIN = 2
"""The first version of DescribeCluster with fenced brokers."""
_PAUSE_MS = 100


async def describe_metadata_quorum(client: ClusterClient) -> MetadataQuorum:
    """Return the quorum by the active controller.

    Raises ApiError(UNSUPPORTED_VERSION) for a cluster on ZooKeeper, and ClusterUnreachable without a leader.
    """
    reading = await read_quorum(client)
    if not reading.is_kraft:
        text = "the cluster has no metadata quorum: its metadata is in ZooKeeper, or it is older than Kafka 3.3"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
    if reading.refused is not None:
        raise reading.refused
    if reading.quorum is None:
        raise ClusterUnreachable(reading.frozen or "the metadata quorum is unknown")
    return reading.quorum


async def read_quorum(client: ClusterClient) -> QuorumReading:
    """Ask several nodes side by side for the quorum, and wait at most QUORUM_MS_MAX.  Needs an event loop.

    Uses connections of its own: a broker that waits for a controller handles no other request of the connection.

    Raises ClusterUnreachable if no node responds at all.
    """
    asked_ms = round(time() * 1000)
    if not await client.on_any_broker(_has_quorum):
        return QuorumReading(is_kraft=False, asked_ms=asked_ms)
    limit_s = min(QUORUM_MS_MAX, client.deadline().remaining_ms // QUORUM_SHARE) / 1000
    async with ClusterClient(client.settings, client.transport, client.budget) as own:
        nodes = (await own.metadata([])).brokers
        without_leader: set[int] = set()
        asked = [asyncio.create_task(_ask(own, node_id, without_leader)) for node_id in list(nodes)[:NODES_ASKED_MAX]]
        lost = ""
        refused: ApiError | None = None
        try:
            async with asyncio.timeout(limit_s):
                for task in asyncio.as_completed(asked):
                    try:
                        quorum = await task
                    except ApiError as error:
                        is_refusal = error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                        refused, lost = (error if is_refusal else refused), str(error)
                    except KctlError as error:
                        lost = str(error)
                    else:
                        if quorum.leader_id is not None:
                            return QuorumReading(is_kraft=True, asked_ms=asked_ms, quorum=quorum)
        except TimeoutError:
            lost = f"no controller responded within {limit_s:.0f} s"
            if without_leader:
                lost = f"no leader within {limit_s:.0f} s, by node {', '.join(map(str, sorted(without_leader)))}"
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if refused is not None:
            return QuorumReading(is_kraft=True, asked_ms=asked_ms, refused=refused)
        return QuorumReading(is_kraft=True, asked_ms=asked_ms, lost=lost)


async def _has_quorum(connection: Connection) -> bool:
    return connection.versions.supports(DescribeQuorumRequest)


async def _ask(client: ClusterClient, node_id: int, without_leader: set[int]) -> MetadataQuorum:
    """Return the quorum by a broker, which forwards the request, or by a controller; repeats while it finds no leader.

    Then it adds the node to `without_leader`.
    """
    connection = await client.broker(node_id)
    while True:
        try:
            return quorum_of(await connection.send(DescribeQuorumRequest(topics=METADATA_LOG), DescribeQuorumResponse))
        except ApiError as error:
            if error.code not in NO_LEADER_CODES:
                raise
            without_leader.add(node_id)
        await client.transport.sleep(_PAUSE_MS)


async def observe(client: ClusterClient) -> Observation:
    """Query brokers, topics and reassignments.  Raises ClusterUnreachable."""
    metadata = await client.metadata()

    unreachable: dict[int, str] = {}
    without_changes: dict[int, str] = {}

    async def look_at(broker_id: int) -> None:
        try:
            problem = await zookeeper_problem(await client.broker(broker_id))
        except (ConnectionLost, AuthenticationFailed, ApiError) as error:
            unreachable[broker_id] = str(error)
            return
        if problem is not None:
            without_changes[broker_id] = problem

    quorums, _ = await client.gather(
        [
            client.gather([read_quorum(client)]),
            client.gather([look_at(broker_id) for broker_id in metadata.brokers]),
        ]
    )
    (quorum,) = cast("list[QuorumReading]", quorums)
    ongoing: Mapping[TopicPartition, Ongoing] = {}
    is_restricted = quorum.refused is not None
    is_controlled = metadata.controller_id in metadata.brokers and metadata.controller_id not in unreachable
    if quorum.lost is None if quorum.is_kraft else is_controlled:
        try:
            ongoing = await list_reassignments(client)
        except ApiError as error:
            if error.code not in NOT_LISTED:
                raise
            is_restricted = error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    not_leading = await brokers_not_leading(client, metadata, unreachable)
    minimum: Mapping[str, int] = {}
    # A broker without ZooKeeper does not respond to questions about configuration.
    if not without_changes and (not_leading.keys() < metadata.brokers.keys() or not not_leading):
        try:
            minimum = await min_insync_replicas(client, metadata.topics)
        except ClusterUnreachable:
            if not not_leading:
                raise
    directories, unseen = await _directories(client, metadata.brokers.keys() - unreachable.keys())
    return Observation(
        metadata,
        unreachable,
        minimum,
        ongoing,
        not_leading=not_leading,
        without_changes=without_changes,
        is_restricted=is_restricted,
        quorum=quorum if quorum.is_kraft else None,
        file_systems=tuple(file_systems_of(directories)),
        unseen=tuple(unseen),
    )


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers and controllers of a cluster."""

    metadata: ClusterMetadata
    quorum: QuorumReading
    fenced: Mapping[int, Broker]
    """Brokers that are registered and that the controller has fenced, such as those that are down (KIP-1073)."""
    unreachable: Mapping[int, str]
    """Brokers that are listed as alive and do not respond; asked only without a quorum leader."""
    out_of_sync: frozenset[int]
    """Brokers that are alive and in sync for none of their replicas: they are being shut down, or have just started."""

    def state_of(self, broker_id: int) -> str:
        """For users: alive, fenced, draining or no response."""
        if broker_id in self.unreachable:
            return "no response"
        if broker_id in self.fenced:
            return "fenced"
        return "draining" if broker_id in self.out_of_sync else "alive"


async def describe_cluster(client: ClusterClient) -> ClusterState:
    """Read brokers and controllers, of controllers only these.  Raises ClusterUnreachable."""
    with client.one_deadline():
        quorum = await read_quorum(client)
        topics: list[str] | None = None if quorum.is_kraft and not client.settings.are_controllers else []
        metadata = await client.metadata(topics)
        fenced: Mapping[int, Broker] = {}
        unreachable: Mapping[int, str] = {}
        if quorum.is_kraft and not client.settings.are_controllers:
            fenced = await client.on_any_broker(_fenced_brokers)
        if quorum.lost is not None:
            unreachable = await unreachable_brokers(client, metadata)
    return ClusterState(metadata, quorum, fenced, unreachable, out_of_sync_brokers(metadata))


async def _fenced_brokers(connection: Connection) -> Mapping[int, Broker]:
    if connection.versions.highest(DescribeClusterRequest) < FENCED_VERSION_MIN:
        return {}
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response = await connection.send(request, DescribeClusterResponse)
    return {
        broker.broker_id: Broker(broker.broker_id, broker.host, broker.port, broker.rack)
        for broker in response.brokers
        if broker.is_fenced
    }


async def unreachable_brokers(client: ClusterClient, metadata: ClusterMetadata) -> dict[int, str]:
    """Return the brokers that do not respond, and the error."""

    async def problem_of(broker_id: int) -> str | None:
        try:
            await zookeeper_problem(await client.broker(broker_id))
        except (ConnectionLost, AuthenticationFailed, ApiError) as error:
            return str(error)
        return None

    ids = list(metadata.brokers)
    problems = await client.gather([problem_of(broker_id) for broker_id in ids])
    return {broker_id: problem for broker_id, problem in zip(ids, problems, strict=True) if problem is not None}


def out_of_sync_brokers(metadata: ClusterMetadata) -> frozenset[int]:
    """Return the live brokers that have replicas, and are in sync for none of them."""
    holders, in_sync = set[int](), set[int]()
    for topic in metadata.topics.values():
        for partition in topic.partitions:
            holders.update(partition.replicas)
            in_sync.update(partition.isr)
    return frozenset(holders.intersection(metadata.brokers) - in_sync)


async def _directories(client: ClusterClient, brokers: Collection[int]) -> tuple[list[LogDir], list[str]]:
    """Return the log directories, and why those of some brokers are unknown."""
    directories, failed = await describe_log_dirs(client, brokers)
    return directories, [
        f"log directories of broker {outcome.name}: {outcome.message or outcome.error.name}"
        for outcome in failed
        if outcome.error is not ErrorCode.UNSUPPORTED_VERSION
    ]

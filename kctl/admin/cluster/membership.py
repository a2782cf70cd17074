"""Removes a broker that holds nothing any more from a cluster (KIP-631)."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.admin.cluster.observation import describe_cluster
from kctl.admin.cluster.quorum import QuorumReading
from kctl.admin.placement.log_dirs import describe_log_dirs
from kctl.admin.placement.tasks import left_on
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@dataclass(frozen=True, slots=True)
class Remains:
    """What a cluster still has of a broker."""

    broker: int
    alive: frozenset[int]
    """The brokers that are alive."""
    partitions: list[TopicPartition]
    """Those with a replica on the broker, or led by it."""
    on_disk: list[TopicPartition]
    """Replicas that its log directories have although no partition names them."""
    is_fenced: bool
    """Registered, and not alive for the controller; False if brokers do not say (before Kafka 4.0)."""
    quorum: QuorumReading

    @property
    def is_alive(self) -> bool:
        """Whether the broker is alive."""
        return self.broker in self.alive

    @property
    def is_voter(self) -> bool:
        """Whether the node is also a controller that elects the leader of the metadata quorum."""
        replica = None if self.quorum.quorum is None else self.quorum.quorum.replica(self.broker)
        return replica is not None and replica.is_voter


async def look_at_remains(client: ClusterClient, broker: int) -> Remains:
    """Return what is left of a broker; wait until it has deleted the replicas that were moved away."""
    state = await describe_cluster(client)
    metadata = await client.metadata()
    partitions = left_on(metadata, broker)
    on_disk: list[TopicPartition] = []
    deadline = client.deadline()
    while broker in metadata.brokers and not partitions:
        log_dirs, _ = await describe_log_dirs(client, [broker])
        on_disk = sorted({replica.tp for log_dir in log_dirs for replica in log_dir.replicas})
        if not on_disk or not await deadline.pause():
            break
    return Remains(broker, frozenset(metadata.brokers), partitions, on_disk, broker in state.fenced, state.quorum)


async def unregister_broker(client: ClusterClient, broker: int) -> bool:
    """Remove the registration of a broker of a KRaft cluster; return False if it has none.  Raises ApiError."""

    async def send_to(connection: Connection) -> bool:
        response = await connection.send(UnregisterBrokerRequest(broker_id=broker), UnregisterBrokerResponse)
        code = ErrorCode.of(response.error_code)
        if code in {ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED}:
            return code is ErrorCode.NONE
        raise ApiError(code, response.error_message or None)

    return await client.on_controller(send_to)

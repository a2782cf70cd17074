"""Names the leader of a partition in a response that refuses a request because another broker leads it (KIP-951).

Clients of Kafka 3.7 and newer then send the request to that broker without reading metadata first.  The leader is that
of this broker's replica or of its metadata, whichever has the newer leader epoch; -1 if none is known.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis import fetch, produce
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.replica_manager import ReplicaManager

FIRST_PRODUCE_WITH_LEADERS, FIRST_FETCH_WITH_LEADERS = 10, 16
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class NewLeaders:
    """Adds leaders to responses.  Owner: event loop."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self._replicas = replicas
        self._metadata = metadata

    def add(self, response: object, version: int, listener: str) -> None:
        """Add the leaders to a response of Produce or Fetch; `listener` is that of the client."""
        leaders: set[int] = set()
        if isinstance(response, produce.ProduceResponse) and version >= FIRST_PRODUCE_WITH_LEADERS:
            for produced in response.responses:
                for result in produced.partition_responses:
                    if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        leader, epoch = self._leader(TopicPartition(produced.name, result.index))
                        result.current_leader = produce.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                        leaders.add(leader)
            if leaders:
                response.node_endpoints = [
                    produce.NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
                    for node, host, port, rack in self._endpoints(leaders, listener)
                ]
        elif isinstance(response, fetch.FetchResponse) and version >= FIRST_FETCH_WITH_LEADERS:
            for fetched in response.responses:
                for partition in fetched.partitions:
                    if partition.error_code in _MOVED:
                        leader, epoch = self._leader(TopicPartition(fetched.topic, partition.partition_index))
                        partition.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                        leaders.add(leader)
            if leaders:
                response.node_endpoints = [
                    fetch.NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
                    for node, host, port, rack in self._endpoints(leaders, listener)
                ]

    def _leader(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return the leader and its epoch, -1 if they are not known."""
        info = self._metadata.partition(topic_partition)
        known = (-1, -1) if info is None else (info.leader, info.leader_epoch)
        replica = self._replicas.partitions.get(topic_partition)
        if replica is not None and replica.leader_epoch > known[1]:
            return replica.leader, replica.leader_epoch
        return known

    def _endpoints(self, leaders: set[int], listener: str) -> list[tuple[int, str, int, str | None]]:
        """Return id, host, port and rack of these brokers, as far as they have the listener."""
        found = []
        for broker_id in sorted(leaders):
            broker = self._metadata.brokers.get(broker_id)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                found.append((broker_id, endpoint.host, endpoint.port, broker.rack))
        return found

"""The preferred read replica of a consumer: one in its own rack, if replica.selector.class is rack-aware.  KIP-392.

The leader selects among the replicas that have the offset: itself and the in-sync followers.  If it is in the
consumer's rack itself, or no replica is, the consumer stays with it; of several followers the one with the highest log
end wins, then the one that caught up last, then the highest id.  Kafka: RackAwareReplicaSelector.

Pure, except that it reads racks from the metadata cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kctl.config.subjects.replication import RACK_AWARE_SELECTOR
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.partition import Partition

NO_REPLICA = -1


class ReplicaView(NamedTuple):
    """One replica that has the offset."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    lag_ms: int
    """Time since it last had all records of the leader."""


def closest_replica(client_rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> int:
    """Return the broker from which a consumer in this rack should read."""
    near = [replica for replica in (leader, *followers) if replica.rack == client_rack]
    if not client_rack or not near or leader in near:
        return leader.broker_id
    return max(near, key=lambda replica: (replica.log_end_offset, -replica.lag_ms, replica.broker_id)).broker_id


class ReplicaSelector:
    """Applies replica.selector.class to partitions that this broker leads."""

    def __init__(self, metadata: MetadataCache, selector_class: str | None) -> None:
        self._metadata = metadata
        self._is_rack_aware = selector_class == RACK_AWARE_SELECTOR

    def preferred_replica(self, partition: Partition, offset: int, *, rack: str, listener: str, now_ms: int) -> int:
        """Return the broker from which a consumer should read at `offset`; NO_REPLICA for this broker."""
        if not self._is_rack_aware or not rack or not partition.is_leader:
            return NO_REPLICA
        leader = ReplicaView(partition.broker_id, self._rack(partition.broker_id), partition.log.log_end_offset, 0)
        followers = [
            ReplicaView(
                replica, self._rack(replica), follower.log_end_offset, max(now_ms - follower.last_caught_up_ms, 0)
            )
            for replica, follower in partition.followers.items()
            if replica in partition.isr
            and follower.log_start_offset <= offset <= follower.log_end_offset
            and self._is_reachable(replica, listener)
        ]
        closest = closest_replica(rack, leader, followers)
        return NO_REPLICA if closest == partition.broker_id else closest

    def _rack(self, broker_id: int) -> str | None:
        broker = self._metadata.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def _is_reachable(self, broker_id: int, listener: str) -> bool:
        broker = self._metadata.brokers.get(broker_id)
        return broker is not None and broker.endpoint(listener) is not None

"""All replica fetchers of a broker: num.replica.fetchers for each leader broker.  Kafka: ReplicaFetcherManager.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kctl.model import TopicPartition
from kctl.server.replication.follower.fetcher import FetchSettings, ReplicaFetcher
from kctl.server.replication.follower.leader_endpoint import Peers
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.throttles import ReplicationQuota
from kctl.system.environment import Clock


class ReplicaFetchers:
    """The fetchers are created and closed as roles change."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        peers: Peers,
        clock: Clock,
        settings: FetchSettings,
        quota: ReplicationQuota,
        per_leader: int,
    ) -> None:
        self._replicas = replicas
        self._peers = peers
        self._clock = clock
        self._settings = settings
        self._quota = quota
        self._per_leader = per_leader
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_shutting_down = False

    @property
    def fetchers(self) -> Mapping[tuple[int, int], ReplicaFetcher]:
        """The running fetchers by leader and number."""
        return self._fetchers

    def begin_shutdown(self) -> None:
        """Stop accepting new followers.

        A broker that moves its leaderships away would be in sync again with each new leader a moment later, and be
        removed again when it stops: two ISR writes and two request batches per partition for nothing.  Kafka's
        isShuttingDown.
        """
        self._is_shutting_down = True

    def follow(self, partition: Partition) -> None:
        """Fetch the partition, which has a new role, from its leader if it is a follower with one, else stop."""
        self.stop(partition.topic_partition)
        if self._is_shutting_down or partition.is_leader or partition.leader < 0:
            return
        key = (partition.leader, _fetcher_number(partition.topic_partition, self._per_leader))
        self._fetcher(key).add(partition)

    def _fetcher(self, key: tuple[int, int]) -> ReplicaFetcher:
        """Return the fetcher with this leader and number."""
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = ReplicaFetcher(
                key[0],
                replicas=self._replicas,
                peers=self._peers,
                clock=self._clock,
                settings=self._settings,
                quota=self._quota,
            )
        return fetcher

    def resize(self, per_leader: int) -> None:
        """Set the number of fetchers per leader, and distribute the partitions again if it is another one."""
        if per_leader == self._per_leader:
            return
        self._per_leader = per_leader
        for (leader, number), fetcher in list(self._fetchers.items()):
            for partition in fetcher.partitions:
                key = (leader, _fetcher_number(partition.topic_partition, per_leader))
                if key != (leader, number):
                    fetcher.remove(partition.topic_partition)
                    self._fetcher(key).add(partition)
        self.close_idle()

    def stop(self, topic_partition: TopicPartition) -> None:
        """Stop fetching this partition."""
        for fetcher in self._fetchers.values():
            fetcher.remove(topic_partition)

    def close_idle(self) -> None:
        """Close fetchers without partitions; called after a batch of changes."""
        for key in [key for key, fetcher in self._fetchers.items() if not len(fetcher)]:
            task = asyncio.get_running_loop().create_task(self._fetchers.pop(key).close(), name="close-fetcher")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all fetchers."""
        await asyncio.gather(*(fetcher.close() for fetcher in self._fetchers.values()), *self._closing)
        self._fetchers.clear()


def _fetcher_number(topic_partition: TopicPartition, count: int) -> int:
    return hash_of(topic_partition) % count


def hash_of(topic_partition: TopicPartition) -> int:
    """Distribute the partitions of a topic over fetchers; the same in every run."""
    return sum(topic_partition.topic.encode()) * 31 + topic_partition.partition

"""A controller's request for thousands of partitions does not stop the event loop, and keeps its order."""

from __future__ import annotations

import asyncio
from collections import Counter

from kctl.client.cluster import ClusterClient
from kctl.errors import ErrorCode
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kctl.server.cluster.control.pieces import LOGS_CREATED_PER_SLICE_MAX, LOGS_STOPPED_PER_SLICE_MAX
from kctl.testing.sim_cluster import SimCluster, SimDisk
from kctl.testing.sim_loop import SimLoop, simulate

PARTITIONS = 120
BROKERS = 2


class CountingDisk(SimDisk):
    """Counts directories that are created and renamed, by operation, topic and iteration of the event loop."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop.time)
        self._loop = loop
        self._iteration = 0
        self._is_counting = False
        self.counts: Counter[tuple[str, int]] = Counter()

    def make_directory(self, path: str) -> None:
        self._count("create")
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        if target.endswith("-delete"):
            self._count("delete")
        super().rename(source, target)

    def _count(self, operation: str) -> None:
        if not self._is_counting:
            self._is_counting = True
            self._loop.call_soon(self._next_iteration)
        self.counts[operation, self._iteration] += 1

    def _next_iteration(self) -> None:
        self._is_counting = False
        self._iteration += 1

    def per_iteration_max(self, operation: str) -> int:
        return max(count for (counted, _), count in self.counts.items() if counted == operation)

    def total(self, operation: str) -> int:
        return sum(count for (counted, _), count in self.counts.items() if counted == operation)


async def create(client: ClusterClient, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=BROKERS, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    response = await client.on_controller(lambda connection: connection.send(request, CreateTopicsResponse))
    return response.topics[0].error_code


async def delete(client: ClusterClient, name: str) -> int:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    response = await client.on_controller(lambda connection: connection.send(request, DeleteTopicsResponse, version=3))
    return response.responses[0].error_code


def test_logs_of_a_large_topic_are_created_and_deleted_in_slices() -> None:
    """By the controller itself, and by the broker that receives its requests; also when the topic is created anew."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop)
        disks = [CountingDisk(loop) for _ in range(BROKERS)]
        cluster.disks.update(enumerate(disks))
        await cluster.start(BROKERS)
        for disk in disks:
            disk.counts.clear()
        with cluster.network.on_host("client"):
            async with cluster.client() as client:
                for _ in range(2):
                    # The name is in use until all brokers have confirmed to the controller that the logs are deleted.
                    while (error := await create(client, "large")) == ErrorCode.TOPIC_ALREADY_EXISTS:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                    assert error == ErrorCode.NONE
                    assert await delete(client, "large") == ErrorCode.NONE
        await cluster.stop()
        for disk in disks:
            assert disk.total("create") == disk.total("delete") == 2 * PARTITIONS
            assert disk.per_iteration_max("create") <= LOGS_CREATED_PER_SLICE_MAX
            assert disk.per_iteration_max("delete") <= LOGS_STOPPED_PER_SLICE_MAX

    simulate(main, seed=1)

"""What replicas take on the brokers' disks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kctl.admin.outcome import Outcome
from kctl.admin.reassignment import by_topic
from kctl.client.cluster import ClusterClient
from kctl.client.transport import ConnectionLost
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@dataclass(frozen=True, slots=True)
class ReplicaSizes:
    """Bytes of each replica, and the brokers that could not tell theirs."""

    bytes: dict[tuple[int, TopicPartition], int]
    failed: tuple[Outcome, ...] = ()

    def of(self, broker_id: int, tp: TopicPartition) -> int | None:
        """Size of the replica on that broker; None when it is not there or not known."""
        return self.bytes.get((broker_id, tp))


async def replica_sizes(
    client: ClusterClient, brokers: Iterable[int], partitions: Collection[TopicPartition]
) -> ReplicaSizes:
    """Sizes of the partitions' replicas on these brokers; what one broker cannot tell does not spoil the rest."""
    topics = [
        DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
    ]

    async def ask(broker_id: int) -> dict[tuple[int, TopicPartition], int] | Outcome:
        try:
            connection = await client.broker(broker_id)
            response = await connection.send(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
        except ConnectionLost as lost:
            return Outcome(str(broker_id), ErrorCode.NETWORK_EXCEPTION, str(lost))
        except ApiError as error:
            return Outcome(str(broker_id), error.code, str(error))
        # A future replica is a copy on its way to another directory of the same broker.
        return {
            (broker_id, TopicPartition(topic.name, one.partition_index)): one.partition_size
            for result in response.results
            for topic in result.topics
            for one in topic.partitions
            if not one.is_future_key
        }

    sizes: dict[tuple[int, TopicPartition], int] = {}
    failed: list[Outcome] = []
    for answer in await client.gather([ask(broker_id) for broker_id in sorted(set(brokers))]):
        if isinstance(answer, Outcome):
            failed.append(answer)
        else:
            sizes.update(answer)
    return ReplicaSizes(sizes, tuple(failed))

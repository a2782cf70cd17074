"""The partitions to read, also while a broker starts."""

from __future__ import annotations

import pytest

from kctl.admin.topics.offsets import partitions_of
from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import run_blocking
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.transports_without_pauses import NoPauseBlockingTransport


def found(cluster: FakeCluster) -> list[TopicPartition]:
    async def main() -> list[TopicPartition]:
        async with ClusterClient(cluster.settings(), NoPauseBlockingTransport()) as client:
            return await partitions_of(client, ["orders"])

    return run_blocking(main())


def come_up(cluster: FakeCluster, after: int) -> None:
    """For so many requests the broker has the topic without its partitions."""

    def reply(request: MetadataRequest) -> MetadataResponse | None:
        if len(cluster.requested(MetadataRequest)) > after:
            return None
        response: MetadataResponse = cluster._metadata(0, request)
        for topic in response.topics:
            topic.error_code, topic.partitions = ErrorCode.LEADER_NOT_AVAILABLE, []
        return response

    cluster.intercept(MetadataRequest, reply)


def test_a_topic_with_unknown_partitions_is_looked_up_again() -> None:
    with FakeCluster() as cluster:
        cluster.create("orders", 2)
        come_up(cluster, after=2)
        assert found(cluster) == [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def test_a_topic_whose_partitions_never_become_known_is_an_error() -> None:
    with FakeCluster() as cluster:
        cluster.create("orders", 2)
        come_up(cluster, after=1_000)
        with pytest.raises(ApiError) as raised:
            found(cluster)
        assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_a_topic_that_does_not_exist_is_an_error_at_once() -> None:
    with FakeCluster() as cluster:
        with pytest.raises(ApiError) as raised:
            found(cluster)
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(cluster.requested(MetadataRequest)) == 1

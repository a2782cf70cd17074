"""DescribeTopicPartitions: pages of partitions, from cursor to cursor."""

from __future__ import annotations

import asyncio

from kctl.errors import ErrorCode
from kctl.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.server.handlers.describe_topic_partitions import PARTITIONS_PER_PAGE_MAX, DescribeTopicPartitionsHandler
from kctl.server.peers.metadata import MetadataCache
from tests.unit.handlers.world import context


def metadata(**counts: int) -> MetadataCache:
    """Topics with so many partitions, none of which has a live leader."""
    cache = MetadataCache()
    states = [
        UpdateMetadataTopicState(
            topic_name=name,
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=1,
                    leader=1,
                    leader_epoch=3,
                    isr=[1],
                    zk_version=0,
                    replicas=[1],
                )
                for index in range(count)
            ],
        )
        for name, count in counts.items()
    ]
    cache.update(UpdateMetadataRequest(controller_id=0, controller_epoch=1, topic_states=states, live_brokers=[]))
    return cache


def ask(
    cache: MetadataCache, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    return asyncio.run(DescribeTopicPartitionsHandler(cache).handle(request, context(0)))


def places(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions]


def test_pages_have_all_partitions_once_and_in_order() -> None:
    cache = metadata(b=3, a=2, c=1)
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        response = ask(cache, limit=2, cursor=cursor)
        assert len(places(response)) <= 2
        found += places(response)
        cursor = response.next_cursor
        pages += 1
    assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert pages == 3


def test_a_page_is_bounded_whatever_the_client_asks_for() -> None:
    response = ask(metadata(t=PARTITIONS_PER_PAGE_MAX + 5), limit=1 << 30)
    assert len(places(response)) == PARTITIONS_PER_PAGE_MAX
    assert response.next_cursor == Cursor(topic_name="t", partition_index=PARTITIONS_PER_PAGE_MAX)
    assert len(places(ask(metadata(t=5), limit=-1))) == 1


def test_a_topic_that_does_not_exist_is_an_error_and_each_is_described_once() -> None:
    response = ask(metadata(t=1), "x", "t", "t")
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("t", ErrorCode.NONE),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    [partition] = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        -1,
        3,
        [1],
    )
    # Java clients of 3.8 and 3.9 fail if they are null.
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


def test_a_cursor_at_a_deleted_topic_goes_on_with_the_next_one() -> None:
    assert places(ask(metadata(a=1, c=2), cursor=Cursor(topic_name="b", partition_index=7))) == [("c", 0), ("c", 1)]

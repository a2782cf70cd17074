"""A created or extended topic is in the metadata of every broker when the command ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kctl.admin.topics.topics import KNOWN_WAIT_MS, NewTopic, create_partitions, create_topics
from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import run_blocking
from kctl.protocol.apis.create_partitions import CreatePartitionsRequest
from kctl.protocol.apis.create_topics import CreateTopicsRequest
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.fake_cluster import DROP, FakeCluster
from tests.unit.client.transports_without_pauses import NoPauseBlockingTransport

BROKERS = 3


def run(cluster: FakeCluster, work: Callable[[ClusterClient], Awaitable[object]]) -> int:
    """The time of all pauses in ms."""
    transport = NoPauseBlockingTransport()

    async def main() -> None:
        async with ClusterClient(cluster.settings(), transport) as client:
            await work(client)

    run_blocking(main())
    return transport.monotonic_ms()


def requested_from(cluster: FakeCluster) -> list[int]:
    """The brokers that got requests about the topic, in order."""
    return [broker for broker, request in cluster.requested(MetadataRequest) if request.topics]


def slow_to_update(cluster: FakeCluster, broker: int, *, partitions: int, times: int) -> None:
    """One broker's metadata lacks partitions of the topic for so many requests."""

    def reply(request: MetadataRequest) -> MetadataResponse | None:
        requested = requested_from(cluster)
        if not requested or requested[-1] != broker or requested.count(broker) > times:
            return None
        response: MetadataResponse = cluster._metadata(broker, request)
        for topic in response.topics:
            del topic.partitions[partitions:]
        return response

    cluster.intercept(MetadataRequest, reply)


def test_creation_waits_for_the_last_broker_to_update_its_metadata() -> None:
    with FakeCluster(BROKERS) as cluster:
        slow_to_update(cluster, 1, partitions=0, times=3)
        assert run(cluster, lambda client: create_topics(client, [NewTopic("orders", partitions=2)])) > 0
        assert requested_from(cluster) == [0, 1, 2, 1, 1, 1]


def test_added_partitions_are_waited_for() -> None:
    with FakeCluster(BROKERS) as cluster:
        cluster.create("orders", 2)
        slow_to_update(cluster, 2, partitions=2, times=1)
        run(cluster, lambda client: create_partitions(client, "orders", 4))
        assert requested_from(cluster) == [0, 1, 2, 2]


def test_broker_with_stale_metadata_is_waited_for_a_bounded_time() -> None:
    with FakeCluster(BROKERS) as cluster:
        slow_to_update(cluster, 0, partitions=0, times=1_000)
        assert 0 < run(cluster, lambda client: create_topics(client, [NewTopic("orders")])) <= KNOWN_WAIT_MS


def test_unreachable_broker_is_not_waited_for() -> None:
    with FakeCluster(BROKERS) as cluster:
        cluster.intercept(MetadataRequest, lambda request: DROP if request.topics else None)
        assert run(cluster, lambda client: create_topics(client, [NewTopic("orders")])) == 0


def test_validation_and_refusals_do_not_wait() -> None:
    with FakeCluster(BROKERS) as cluster:
        run(cluster, lambda client: create_topics(client, [NewTopic("orders")], validate_only=True))
        cluster.create("payments", 1)
        run(cluster, lambda client: create_topics(client, [NewTopic("payments")]))
        assert requested_from(cluster) == []


def test_a_request_ends_before_the_command_so_that_its_response_arrives() -> None:
    with FakeCluster(BROKERS) as cluster:
        run(cluster, lambda client: create_topics(client, [NewTopic("orders")]))
        run(cluster, lambda client: create_partitions(client, "orders", 4))
        ((_, creation),) = cluster.requested(CreateTopicsRequest)
        ((_, extension),) = cluster.requested(CreatePartitionsRequest)
        assert 0 < creation.timeout_ms < cluster.settings().timeout_ms
        assert 0 < extension.timeout_ms < cluster.settings().timeout_ms

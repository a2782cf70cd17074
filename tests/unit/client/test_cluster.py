"""The cluster client sends requests to the right broker and retries only where a retry can help."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.connections.transport import Connection
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, OffsetAt, list_offsets
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.create_topics import CreateTopicsRequest
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kctl.protocol.apis.metadata import MetadataRequest
from tests.unit.client.calls import call
from tests.unit.client.fake_cluster import DROP, FakeCluster, no_coordinator
from tests.unit.client.transports_without_pauses import NoPauseBlockingTransport

T = TypeVar("T")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as started:
        yield started


def once(response: Any) -> Callable[[Any], Any]:
    """Responds like this the first time and as usual afterwards."""
    responses = [response]
    return lambda _: responses.pop() if responses else None


def first(respond: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Responds by this function the first time and as usual afterwards."""
    functions = [respond]
    return lambda request: functions.pop()(request) if functions else None


async def request_controller_address(client: ClusterClient) -> str:
    async def address(connection: Connection) -> str:
        return connection.address

    return await client.on_controller(address)


def test_bootstrap_tries_the_next_address(cluster: FakeCluster) -> None:
    settings = ClientSettings((("127.0.0.1", 1), ("127.0.0.1", cluster.ports[1])), timeout_ms=30_000)

    async def main() -> str | None:
        async with ClusterClient(settings, BlockingTransport()) as client:
            return (await client.metadata([])).cluster_id

    assert run_blocking(main()) == "fake-cluster"


def test_unreachable_cluster_names_every_address_tried() -> None:
    settings = ClientSettings((("127.0.0.1", 1), ("localhost", 2)), timeout_ms=30_000)

    async def main() -> None:
        async with ClusterClient(settings, AsyncioTransport()) as client:
            await client.metadata()

    with pytest.raises(ClusterUnreachable, match=r"cannot reach 127\.0\.0\.1:1: .*; localhost:2: "):
        asyncio.run(main())


def test_controller_is_found(cluster: FakeCluster) -> None:
    assert call(cluster, request_controller_address) == f"127.0.0.1:{cluster.ports[2]}"


def test_moved_controller_is_looked_up_again(cluster: FakeCluster) -> None:
    requested = []

    async def work(client: ClusterClient) -> str:
        async def create(connection: Connection) -> str:
            requested.append(connection.address)
            if len(requested) == 1:
                cluster.controller = 0
                raise ApiError(ErrorCode.NOT_CONTROLLER)
            return connection.address

        return await client.on_controller(create)

    assert call(cluster, work) == f"127.0.0.1:{cluster.ports[0]}"
    assert requested == [f"127.0.0.1:{cluster.ports[2]}", f"127.0.0.1:{cluster.ports[0]}"]


def test_change_is_not_repeated_after_a_lost_connection(cluster: FakeCluster) -> None:
    """The controller may have created the topic before the connection was lost."""
    from kctl.admin.topics.topics import NewTopic, create_topics  # noqa: PLC0415 - only here

    cluster.intercept(CreateTopicsRequest, lambda _: DROP)
    with pytest.raises(ClusterUnreachable, match="the broker closed the connection"):
        call(cluster, lambda client: create_topics(client, [NewTopic("orders")]))
    assert len(cluster.requested(CreateTopicsRequest)) == 1


def test_read_request_is_repeated_after_a_lost_connection(cluster: FakeCluster) -> None:
    cluster.intercept(MetadataRequest, once(DROP))
    metadata = call(cluster, lambda client: client.metadata([]))
    assert sorted(metadata.brokers) == [0, 1, 2]


def test_metadata_requests_never_create_topics(cluster: FakeCluster) -> None:
    call(cluster, lambda client: client.metadata(["nope"]))
    assert [request.allow_auto_topic_creation for _, request in cluster.requested(MetadataRequest)] == [False]


def test_unavailable_coordinator_is_looked_up_again(cluster: FakeCluster) -> None:
    cluster.intercept(FindCoordinatorRequest, first(no_coordinator))

    async def address(connection: Connection) -> str:
        return connection.address

    assert call(cluster, lambda client: client.on_coordinator("billing", address)) == f"127.0.0.1:{cluster.ports[2]}"
    assert len(cluster.requested(FindCoordinatorRequest)) == 2


def test_permanently_unavailable_coordinator_raises_its_error(cluster: FakeCluster) -> None:
    cluster.intercept(FindCoordinatorRequest, no_coordinator)

    async def nothing(_: Connection) -> None: ...

    with pytest.raises(ApiError) as caught:
        call(cluster, lambda client: client.on_coordinator("billing", nothing), NoPauseBlockingTransport)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_every_leader_gets_a_request_for_its_own_partitions(cluster: FakeCluster) -> None:
    partitions = cluster.create("orders", leaders=[0, 1, 2, 0])
    for index, partition in enumerate(partitions):
        partition.end = 10 + index
    tps = [TopicPartition("orders", index) for index in range(4)]
    found = call(cluster, lambda client: list_offsets(client, dict.fromkeys(tps, LATEST)))
    assert {tp.partition: outcome.offset for tp, outcome in found.items() if isinstance(outcome, OffsetAt)} == {
        0: 10,
        1: 11,
        2: 12,
        3: 13,
    }
    requested = {
        broker: [partition.partition_index for topic in request.topics for partition in topic.partitions]
        for broker, request in cluster.requested(ListOffsetsRequest)
    }
    assert requested == {0: [0, 3], 1: [1], 2: [2]}


def test_partition_with_a_moved_leader_is_requested_from_the_new_one(cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders", leaders=[0])

    def move(_: Any) -> Any:
        if partition.leader == 1:
            return None
        partition.leader = 1
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="orders", partitions=[ListOffsetsPartitionResponse(partition_index=0, error_code=6)]
                )
            ]
        )

    cluster.intercept(ListOffsetsRequest, move)
    tp = TopicPartition("orders", 0)
    found = call(cluster, lambda client: list_offsets(client, {tp: EARLIEST}))
    outcome = found[tp]
    assert isinstance(outcome, OffsetAt)
    assert outcome.offset == 0
    assert [broker for broker, _ in cluster.requested(ListOffsetsRequest)] == [0, 1]


def test_partition_without_a_leader_does_not_fail_the_others(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[-1, 1])
    tps = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("nope", 0)]
    found = call(cluster, lambda client: list_offsets(client, dict.fromkeys(tps, LATEST)), NoPauseBlockingTransport)
    codes = {str(tp): outcome.code.name if isinstance(outcome, ApiError) else "" for tp, outcome in found.items()}
    assert codes == {"nope-0": "UNKNOWN_TOPIC_OR_PARTITION", "orders-0": "LEADER_NOT_AVAILABLE", "orders-1": ""}


def test_connections_are_shared(cluster: FakeCluster) -> None:
    async def work(client: ClusterClient) -> None:
        assert await client.broker(0) is await client.any_broker()
        assert await client.broker(1) is await client.broker(1)

    call(cluster, work)


@pytest.mark.long
def test_advertised_address_that_cannot_be_reached_is_explained_and_can_be_replaced(cluster: FakeCluster) -> None:
    """On both transports; kctl.resolve leads to the broker, and names itself in the errors of a wrong address."""
    cluster.create("orders", leaders=[1])
    cluster.advertised_host = "broker-1.invalid"
    orders = TopicPartition("orders", 0)
    address = f"broker-1.invalid:{cluster.ports[1]}"
    for transport in (BlockingTransport, AsyncioTransport):
        for resolved, texts in (
            ((), [f"advertised by broker 1 as {address}", "--resolve broker-1.invalid=ADDRESS gives its address"]),
            ((("broker-1.invalid", "127.0.0.1"),), []),
            ((("broker-1.invalid", "other.invalid"),), ["reached at other.invalid, because of --resolve"]),
        ):

            async def main(
                transport: type[BlockingTransport | AsyncioTransport] = transport,
                resolved: tuple[tuple[str, str], ...] = resolved,
            ) -> object:
                settings = cluster.settings()._replace(resolved=resolved)
                async with ClusterClient(settings, transport()) as client:
                    with client.one_deadline():
                        return (await list_offsets(client, {orders: -1}))[orders]

            outcome = run_blocking(main()) if transport is BlockingTransport else asyncio.run(main())
            assert isinstance(outcome, ApiError) == bool(texts), outcome
            assert all(text in str(outcome) for text in texts), outcome

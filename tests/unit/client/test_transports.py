"""Both transports behave the same; every test runs on each of them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.client.connections.asyncio_transport import AsyncioTransport, reason_of
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.connections.transport import Connection, ConnectionLost, Transport
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.protocol.apis.api_versions import ApiVersionsRequest
from kctl.protocol.apis.describe_cluster import DescribeClusterRequest
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.property.examples import examples
from tests.rows import for_rows
from tests.unit.client.fake_cluster import DROP, FakeCluster

T = TypeVar("T")
Run = Callable[[Callable[[Transport], Coroutine[Any, Any, T]]], T]

ALL_TOPICS = MetadataRequest(topics=None)
GARBLED = FakeCluster()


@pytest.fixture(scope="module", autouse=True)
def _garbled() -> Iterator[None]:
    with GARBLED:
        yield


@pytest.fixture(params=["asyncio", "blocking"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Runs work on one of the transports."""
    if request.param == "asyncio":
        return lambda work: asyncio.run(work(AsyncioTransport()))
    return lambda work: run_blocking(work(BlockingTransport()))


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as started:
        yield started


async def connect(transport: Transport, port: int, *, timeout_ms: int = 30_000) -> Connection:
    return await transport.connect(
        "127.0.0.1", port, client_id="test", connect_timeout_ms=30_000, timeout_ms=timeout_ms
    )


def test_highest_common_version_is_used(run: Run[Any], cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.versions[3] = (0, 5)

    async def work(transport: Transport) -> MetadataResponse:
        connection = await connect(transport, cluster.ports[0])
        assert connection.versions.highest(MetadataRequest) == 5
        response = await connection.send(ALL_TOPICS, MetadataResponse)
        await connection.close()
        return response

    response = run(work)
    assert [topic.name for topic in response.topics] == ["orders"]


@pytest.mark.parametrize("newest", [0, 1, 2, 3, 4])
def test_broker_with_other_versions_of_api_versions_is_supported(
    run: Run[Any], cluster: FakeCluster, newest: int
) -> None:
    cluster.versions[18] = (0, newest)

    async def work(transport: Transport) -> None:
        connection = await connect(transport, cluster.ports[0])
        assert connection.versions.supports(MetadataRequest)
        await connection.close()

    run(work)
    names = [request.client_software_name for _, request in cluster.requested(ApiVersionsRequest)]
    assert names == ["kctl" if newest >= 3 else ""]


def test_unsupported_api_is_refused_before_it_is_sent(run: Run[Any], cluster: FakeCluster) -> None:
    del cluster.versions[60]

    async def work(transport: Transport) -> None:
        connection = await connect(transport, cluster.ports[0])
        try:
            await connection.send(DescribeClusterRequest(include_cluster_authorized_operations=False), MetadataResponse)
        finally:
            await connection.close()

    with pytest.raises(ApiError, match="the broker does not support DescribeCluster") as caught:
        run(work)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_versions_that_do_not_overlap_are_named(run: Run[Any], cluster: FakeCluster) -> None:
    cluster.versions[3] = (13, 14)

    async def work(transport: Transport) -> None:
        connection = await connect(transport, cluster.ports[0])
        try:
            connection.versions.highest(MetadataRequest)
        finally:
            await connection.close()

    with pytest.raises(ApiError, match="Metadata: the broker supports versions 13 to 14, kctl 0 to 12"):
        run(work)


def test_refused_connection_names_the_address(run: Run[Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}: connection refused"):
        run(lambda transport: connect(transport, port))


def test_broker_that_hangs_up_loses_the_connection(run: Run[Any], cluster: FakeCluster) -> None:
    cluster.intercept(MetadataRequest, lambda _: DROP)

    async def work(transport: Transport) -> bool:
        connection = await connect(transport, cluster.ports[0])
        with pytest.raises(ConnectionLost, match="the broker closed the connection"):
            await connection.send(ALL_TOPICS, MetadataResponse)
        is_open = connection.is_open
        await connection.close()
        return is_open

    assert run(work) is False


@for_rows("host, port", [("nul\0byte", 9092), ("127.0.0.1", 70_000), ("127.0.0.1", -1)])
def test_invalid_address_is_a_lost_connection(run: Run[Any], host: str, port: int) -> None:
    with pytest.raises(ConnectionLost):
        run(
            lambda transport: transport.connect(
                host, port, client_id="test", connect_timeout_ms=30_000, timeout_ms=30_000
            )
        )


def test_broker_without_api_versions_is_reported_as_too_old(run: Run[Any], cluster: FakeCluster) -> None:
    cluster.intercept(ApiVersionsRequest, lambda _: DROP)
    with pytest.raises(ConnectionLost, match=r"it is older than Kafka 0\.11, which is the minimum"):
        run(lambda transport: connect(transport, cluster.ports[0]))


@pytest.mark.long
def test_unresponsive_broker_is_disconnected_after_the_timeout(run: Run[Any], cluster: FakeCluster) -> None:
    cluster.intercept(MetadataRequest, lambda _: b"")

    async def work(transport: Transport) -> None:
        connection = await connect(transport, cluster.ports[0], timeout_ms=1_000)
        try:
            await connection.send(ALL_TOPICS, MetadataResponse)
        finally:
            await connection.close()

    with pytest.raises(ConnectionLost, match="no response to Metadata within 1000 ms"):
        run(work)


def test_closed_connection_sends_nothing(run: Run[Any], cluster: FakeCluster) -> None:
    async def work(transport: Transport) -> None:
        connection = await connect(transport, cluster.ports[0])
        await connection.close()
        await connection.send(ALL_TOPICS, MetadataResponse)

    with pytest.raises(ConnectionLost, match="connection closed"):
        run(work)


def test_other_protocols_are_recognised(run: Run[Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_respond_over_http, args=(listener,))
        thread.start()
        with pytest.raises((ConnectionLost, MalformedRequest), match="an HTTP server or proxy responds, not a broker"):
            run(lambda transport: connect(transport, listener.getsockname()[1]))
        thread.join()


def _respond_over_http(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@given(st.binary(min_size=1, max_size=60))
@examples(200)
def test_malformed_response_bytes_raise_only_the_documented_errors(data: bytes) -> None:
    async def work(transport: Transport, port: int) -> None:
        connection = await connect(transport, port)
        try:
            await connection.send(ALL_TOPICS, MetadataResponse)
        finally:
            await connection.close()

    GARBLED.intercept(MetadataRequest, lambda _: data)
    try:
        run_blocking(work(BlockingTransport(), GARBLED.ports[0]))
    except MalformedRequest:
        return  # nearly all random bytes


def test_gather_raises_the_first_error_after_all_have_ended(run: Run[Any]) -> None:
    ended = []

    async def one(number: int) -> int:
        ended.append(number)
        if number == 1:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        return number

    async def work(transport: Transport) -> None:
        assert await transport.gather([one(0), one(2)]) == [0, 2]
        await transport.gather([one(0), one(1), one(2)])

    with pytest.raises(ApiError):
        run(work)
    assert ended == [0, 2, 0, 1, 2]


def test_in_flight_requests_are_matched_by_correlation_id(cluster: FakeCluster) -> None:
    async def work() -> None:
        connection = await connect(AsyncioTransport(), cluster.ports[0])
        responses = await asyncio.gather(
            connection.send(ALL_TOPICS, MetadataResponse),
            connection.send(ListGroupsRequest(), ListGroupsResponse),
            connection.send(ALL_TOPICS, MetadataResponse),
        )
        await connection.close()
        assert [type(reply) for reply in responses] == [MetadataResponse, ListGroupsResponse, MetadataResponse]

    asyncio.run(work())


def test_the_blocking_transport_refuses_to_wait_for_an_event_loop() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="waited for an event loop"):
        run_blocking(work())


@for_rows(
    "error",
    [
        OSError(111, "Connect call failed ('127.0.0.1', 1)"),
        OSError(  # of a name with two addresses, as asyncio raises it
            "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
            "[Errno 111] Connect call failed ('127.0.0.1', 1)"
        ),
        ConnectionRefusedError(111, "Connection refused"),
    ],
)
def test_refused_connection_has_the_text_of_the_system(error: OSError) -> None:
    assert reason_of(error) == "connection refused"

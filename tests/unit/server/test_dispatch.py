"""Requests that the dispatcher serves or refuses, and their frames."""

from __future__ import annotations

import asyncio
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ErrorCode, MalformedRequest
from kctl.protocol import codec
from kctl.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from kctl.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from kctl.server.handlers.api_versions import ApiVersionsHandler
from kctl.server.network.connections.channel import Reply
from kctl.server.network.dispatch import Dispatcher, waiting_reply
from kctl.server.requests.context import Peer, RequestContext
from tests.rows import for_rows
from tests.unit.server.quota_free import quota_free_dispatcher

PEER = Peer("/127.0.0.1", "PLAINTEXT")


def dispatcher() -> Dispatcher:
    made = quota_free_dispatcher()
    made.register("api_versions", ApiVersionsHandler(made.api_versions).handle)
    made.register("metadata", metadata)
    return made


def metadata(_: MetadataRequest, __: RequestContext) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[], cluster_id="c", controller_id=0)


def frame(key: int, version: int, body: bytes) -> memoryview:
    return memoryview(encode_request_header(RequestHeader(key, version, 77, "test")) + body)


def result(made: Dispatcher, key: int, version: int, body: bytes) -> bytes:
    reply = made.handle(frame(key, version, body), PEER)
    assert isinstance(reply, list)
    data = b"".join(bytes(chunk) for chunk in reply)  # type: ignore[arg-type]
    assert struct.unpack_from(">i", data)[0] == len(data) - 4
    return data[4:]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_exactly_what_is_registered(version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a-b.c", client_software_version="1.0")
    body = b"" if version < 3 else codec.encode_bytes(request, version)
    data = result(dispatcher(), 18, version, body)
    # The response header of ApiVersions is not flexible in any version.
    assert struct.unpack_from(">i", data)[0] == 77
    response, end = codec.decode(ApiVersionsResponse, data, version, 4)
    assert end == len(data)
    assert [(a.api_key, a.min_version, a.max_version) for a in response.api_keys] == [(3, 0, 13), (18, 0, 4)]


def test_a_newer_api_versions_gets_error_35_in_version_0() -> None:
    data = result(dispatcher(), 18, 5, b"\x99 not parsed at all")
    response, _ = codec.decode(ApiVersionsResponse, data, 0, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert 18 in [a.api_key for a in response.api_keys]


def test_an_invalid_software_name_is_refused_and_the_connection_stays_open() -> None:
    request = ApiVersionsRequest(client_software_name="-bad-", client_software_version="1.0")
    data = result(dispatcher(), 18, 3, codec.encode_bytes(request, 3))
    response, _ = codec.decode(ApiVersionsResponse, data, 3, 4)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("key", "version"), [(3, 14), (3, -1), (0, 7), (9999, 0), (-1, 0)])
def test_an_api_or_version_that_is_not_served_is_malformed(key: int, version: int) -> None:
    with pytest.raises(MalformedRequest):
        dispatcher().handle(frame(key, version, b""), PEER)


def test_versions_that_are_not_served_are_not_advertised() -> None:
    made = quota_free_dispatcher()
    made.versions_of = lambda api: api.versions[:5]
    made.register("list_groups", lambda _, __: ListGroupsResponse(error_code=0, groups=[]))
    assert [(a.api_key, a.max_version) for a in made.api_versions()] == [(16, 4)]
    result(made, 16, 4, codec.encode_bytes(ListGroupsRequest(), 4))
    with pytest.raises(MalformedRequest):
        made.handle(frame(16, 5, codec.encode_bytes(ListGroupsRequest(), 5)), PEER)


@for_rows("version", range(14))
def test_flexible_versions_get_a_flexible_response_header(version: int) -> None:
    request = MetadataRequest(topics=[] if version == 0 else None)
    data = result(dispatcher(), 3, version, codec.encode_bytes(request, version))
    correlation_id, offset = decode_response_header(data, 3, version)
    response, end = codec.decode(MetadataResponse, data, version, offset)
    assert (correlation_id, end) == (77, len(data))
    assert response.cluster_id == ("c" if version >= 2 else None)


@given(st.binary(max_size=200))
def test_random_bytes_are_malformed_or_get_a_response(data: bytes) -> None:
    made = dispatcher()
    for payload in (data, b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\x00" + data, b"\x00\x12" + data):
        try:
            response = made.handle(memoryview(payload), PEER)
        except MalformedRequest:
            continue
        assert response is not None


def test_a_long_api_versions_request_gets_its_response_at_once() -> None:
    """A SASL listener serves it before authentication, and does not wait for a response."""
    request = ApiVersionsRequest(client_software_name="n" * 30_000, client_software_version="1.0")
    assert result(dispatcher(), 18, 3, codec.encode_bytes(request, 3))
    malformed = codec.encode_bytes(request, 3).replace(b"n", b"\xff")
    with pytest.raises(MalformedRequest):
        dispatcher().handle(frame(18, 3, malformed), PEER)


def test_a_long_request_of_a_controller_is_decoded_off_the_loop() -> None:
    handled_by: list[int] = []

    def update_metadata(_: UpdateMetadataRequest, __: RequestContext) -> UpdateMetadataResponse:
        handled_by.append(threading.get_ident())
        return UpdateMetadataResponse(error_code=0)

    def frame_with(partitions: int) -> memoryview:
        states = [
            UpdateMetadataPartitionState(
                partition_index=index, controller_epoch=1, leader=0, leader_epoch=0, isr=[0], zk_version=0, replicas=[0]
            )
            for index in range(partitions)
        ]
        topics = [UpdateMetadataTopicState(topic_name="t", partition_states=states)]
        request = UpdateMetadataRequest(controller_id=0, controller_epoch=1, topic_states=topics, live_brokers=[])
        return frame(6, 6, codec.encode_bytes(request, 6))

    async def main() -> None:
        made = quota_free_dispatcher()
        made.register("update_metadata", update_metadata)
        assert isinstance(made.handle(frame_with(10), PEER), list)
        long = made.handle(frame_with(5_000), PEER)
        assert isinstance(long, asyncio.Future)
        assert len(handled_by) == 1
        assert isinstance(await long, list)
        malformed = made.handle(frame_with(5_000)[:-10], PEER)
        assert isinstance(malformed, asyncio.Future)
        with pytest.raises(MalformedRequest):
            await malformed

    asyncio.run(main())
    assert handled_by == [threading.get_ident()] * 2


def waiting_metadata(made: Dispatcher, futures: list[asyncio.Future[MetadataResponse]]) -> asyncio.Future[Reply]:
    """The reply to a request whose response the test sets in `futures`."""

    def wait(_: MetadataRequest, context: RequestContext) -> asyncio.Future[MetadataResponse]:
        futures.append(waiting_reply(context))
        return futures[-1]

    made.register("metadata", wait)
    reply = made.handle(frame(3, 9, codec.encode_bytes(MetadataRequest(topics=None), 9)), PEER)
    assert isinstance(reply, asyncio.Future)
    return reply


def test_a_waiting_response_is_encoded_when_it_is_set_without_another_iteration_of_the_loop() -> None:
    async def main() -> None:
        made, futures = dispatcher(), list[asyncio.Future[MetadataResponse]]()
        at_once = made.handle(frame(3, 9, codec.encode_bytes(MetadataRequest(topics=None), 9)), PEER)
        reply = waiting_metadata(made, futures)
        assert not reply.done()
        futures[0].set_result(metadata(MetadataRequest(topics=None), RequestContext(9, 77, "test", PEER)))
        assert reply.result() == at_once

    asyncio.run(main())


def test_a_waiting_response_that_cannot_be_encoded_fails_its_request() -> None:
    async def main() -> None:
        futures: list[asyncio.Future[MetadataResponse]] = []
        reply = waiting_metadata(dispatcher(), futures)
        futures[0].set_result(MetadataResponse(brokers=[], topics=[], controller_id=1 << 40))
        assert isinstance(reply.exception(), ValueError)

    asyncio.run(main())


def test_a_closed_connection_cancels_the_wait_for_a_response() -> None:
    async def main() -> None:
        futures: list[asyncio.Future[MetadataResponse]] = []
        reply = waiting_metadata(dispatcher(), futures)
        reply.cancel()
        assert futures[0].cancelled()

    asyncio.run(main())


def test_a_malformed_request_of_a_closed_connection_is_not_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """It was decoded in a thread, which ended after the connection."""

    def handle(_: DeleteTopicsRequest, __: RequestContext) -> DeleteTopicsResponse:
        raise AssertionError("the request is malformed")

    async def main() -> None:
        made = quota_free_dispatcher()
        made.register("delete_topics", handle)
        reply = made.handle(frame(20, 2, struct.pack(">ih", 1, 32_767) + b"t" * 32_767), PEER)
        assert isinstance(reply, asyncio.Future)
        reply.cancel()
        (task,) = made._tasks
        with pytest.raises(MalformedRequest):
            await task

    asyncio.run(main())
    assert not caplog.records

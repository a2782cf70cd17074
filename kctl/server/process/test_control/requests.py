"""Handles requests in place of the dispatcher of a broker whose test controls it.

Those that are to fail are answered here; the others are passed on.  Of a request in which only one topic is to fail,
the rest is passed on, and the errors are added to the response.  Requests and responses are recorded, and responses
are delayed if the network is to be slow.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kctl.errors import ErrorCode, MalformedRequest, UnansweredRequestFailed
from kctl.limits import Subject, bound
from kctl.protocol import codec, registry
from kctl.protocol.headers import (
    RequestHeader,
    decode_request_fields,
    decode_response_header,
    encode_request_header,
)
from kctl.server.network.connections.channel import Handle, KeepsFrame, PerformedReply, Reply, ThrottledReply
from kctl.server.network.connections.outbox import Chunk
from kctl.server.network.response_frames import framed_response
from kctl.server.process.test_control.error_responses import (
    blank,
    error_response,
    merge,
    name_topics,
    topics_of,
    without_topic,
)
from kctl.server.process.test_control.failures import KIT_CLIENT_ID, Failures, is_of_client
from kctl.server.process.test_control.possible_errors import OF_FETCH_SESSIONS
from kctl.server.process.test_control.traffic import Exchange, Traffic, contents
from kctl.server.requests.context import ConnectionEnd, Peer

PARTIAL_FETCH_BYTES_MAX = bound(
    Subject.TESTS,
    "records in the response to a Fetch request in which one topic fails",
    1 << 20,
    "bytes",
    on_excess="the client gets the others with its next request",
)

_PRODUCE, _FETCH, _CREATE_TOPICS = 0, 1, 19
_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Slowness:
    """A slow network, in both directions together."""

    latency_ms: int
    """The time of each response."""
    bytes_per_second: int | None
    """The rate of the bytes of request and response; None without a limit."""
    client_id: str | None
    """The client that is slow; None for all clients."""

    def delay_s(self, size: int) -> float:
        """Return the delay of a request and its response of so many bytes together."""
        rate = self.bytes_per_second
        return self.latency_ms / 1000 + (size / rate if rate else 0)


class ControlledRequests:
    """`around` is called with the handler of the broker, and returns the one that its connections use."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.failures = Failures()
        self.traffic = Traffic()
        self.slowness: Slowness | None = None
        self.replication_factor_max: int | None = None
        """Topics that are to have more replicas get so many; None for what clients ask for."""
        self.topic_names: Mapping[bytes, str] = {}
        """The names of topics by the bytes of their ids."""
        self._now_ms = now_ms
        self._handle: Handle
        self._client_ids: dict[ConnectionEnd, str] = {}
        """The client id in the latest request of each open connection."""

    def around(self, handle: Handle) -> Handle:
        """Return a handler that uses this one."""
        self._handle = handle
        return self.handle

    def client_id_of(self, peer: Peer) -> str | None:
        """Return the client id in the latest request of a connection; None before the first."""
        return None if peer.end is None else self._client_ids.get(peer.end)

    def handle(self, frame: memoryview, peer: Peer) -> Reply | asyncio.Future[Reply]:
        """See `channel.Handle`."""
        try:
            api_key, version, correlation_id, client_id, offset = decode_request_fields(frame)
        except MalformedRequest:
            return self._handle(frame, peer)
        header = RequestHeader(api_key, version, correlation_id, client_id)
        client = client_id or ""
        self._note_client(peer, client)
        if client == KIT_CLIENT_ID:
            return self._handle(frame, peer)
        if api_key == _CREATE_TOPICS and self.replication_factor_max is not None:
            frame = self._with_fewer_replicas(header, frame, offset, self.replication_factor_max)
        exchange = self.traffic.begin(api_key, client, self._now_ms(), frame) if is_of_client(client) else None
        try:
            reply = self._failed_or_handled(header, frame, offset, peer, exchange)
        except UnansweredRequestFailed:
            if exchange is not None:
                self.traffic.answered(exchange, None)
            raise
        if exchange is not None:
            self._record(exchange, reply)
        slowness = self.slowness
        if slowness is None or slowness.client_id not in {None, client} or not is_of_client(client):
            return reply
        return _delayed(reply, api_key, partial(_delay_s, slowness, len(frame)))

    def _with_fewer_replicas(
        self, header: RequestHeader, frame: memoryview, offset: int, replication_factor_max: int
    ) -> memoryview:
        """Return a CreateTopics request in which no topic has more replicas; assignments stay as they are."""
        api = registry.api(_CREATE_TOPICS)
        if api is None or header.api_version not in api.versions:
            return frame
        request: Any = codec.decode(api.request, frame, header.api_version, offset)[0]
        for topic in request.topics:
            topic.replication_factor = min(topic.replication_factor, replication_factor_max)
        return memoryview(encode_request_header(header) + codec.encode_bytes(request, header.api_version))

    def _note_client(self, peer: Peer, client_id: str) -> None:
        end = peer.end
        if end is None or self._client_ids.get(end) == client_id:
            return
        if end not in self._client_ids:
            end.watch(self, partial(self._forget, end))
        self._client_ids[end] = client_id

    def _forget(self, end: ConnectionEnd) -> None:
        self._client_ids.pop(end, None)

    def _record(self, exchange: Exchange, reply: Reply | asyncio.Future[Reply]) -> None:
        if not isinstance(reply, asyncio.Future):
            self.traffic.answered(exchange, _chunks(reply))
            return

        def done(reply: asyncio.Future[Reply]) -> None:
            is_known = not reply.cancelled() and reply.exception() is None
            self.traffic.answered(exchange, _chunks(reply.result()) if is_known else None)

        reply.add_done_callback(done)

    def _failed_or_handled(
        self, header: RequestHeader, frame: memoryview, offset: int, peer: Peer, exchange: Exchange | None
    ) -> Reply | asyncio.Future[Reply]:
        """Return the reply of a request.  Raises UnansweredRequestFailed for a failed one without a response."""
        client_id = header.client_id or ""
        api = registry.api(header.api_key)
        if (
            not len(self.failures)
            or api is None
            or header.api_version not in api.versions
            or not self.failures.may_concern(api.key, client_id)
        ):
            return self._handle(frame, peer)
        request: Any = codec.decode(api.request, frame, header.api_version, offset)[0]
        name_topics(request, self.topic_names)
        if api.key == _FETCH and request.session_epoch > 0 and self._concerns_partitions(client_id):
            # The partitions are known to the session only; the client sends all of them with its next request.
            failed = blank(api.response)
            failed.error_code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            return framed_response(api, header, failed)
        failure = self.failures.choose(api.key, client_id, topics_of(request))
        if failure is None:
            return self._handle(frame, peer)
        failed = error_response(api, request, header.api_version, failure.code, failure.topic)
        if failed is None:
            return self._handle(frame, peer)
        self.failures.count(failure)
        if exchange is not None:
            exchange.failed_by = failure.id
        if api.name == "metadata":
            return self._overridden(api, header, failed, self._handle(frame, peer))
        rest = None if failure.topic is None else without_topic(request, failure.topic)
        if api.key == _PRODUCE and request.acks == 0:
            # As Kafka does: the client notices it by the end of its connection.
            raise UnansweredRequestFailed(f"a test has set {failure.code.name} for Produce requests")
        if rest is None:
            return framed_response(api, header, failed)
        if api.key == _FETCH:
            rest.max_bytes = min(rest.max_bytes, PARTIAL_FETCH_BYTES_MAX)
            rest.session_id, rest.session_epoch = 0, -1
        # The offsets of produced batches are written into the frame.
        part = bytearray(encode_request_header(header) + codec.encode_bytes(rest, header.api_version))
        return self._merged(api, header, failed, self._handle(memoryview(part), peer))

    def _concerns_partitions(self, client_id: str) -> bool:
        return self.failures.may_concern(_FETCH, client_id) and any(
            failure.code not in OF_FETCH_SESSIONS for failure in self.failures.of(_FETCH)
        )

    def _merged(
        self, api: registry.Api, header: RequestHeader, failed: Any, reply: Reply | asyncio.Future[Reply]
    ) -> Reply | asyncio.Future[Reply]:
        """Return the reply of the rest of a request, with the errors of the topic that has failed."""
        return _changed(reply, partial(_with_errors, api, header, failed, merge))

    def _overridden(
        self, api: registry.Api, header: RequestHeader, failed: Any, reply: Reply | asyncio.Future[Reply]
    ) -> Reply | asyncio.Future[Reply]:
        """Return the metadata, which clients need to reach any broker, with the errors of topics."""
        return _changed(reply, partial(_with_errors, api, header, failed, _replace_topics))


def _replace_topics(response: Any, failed: Any) -> None:
    names = {topic.name for topic in failed.topics}
    response.topics = [*failed.topics, *(topic for topic in response.topics if topic.name not in names)]


def _with_errors(
    api: registry.Api,
    header: RequestHeader,
    failed: Any,
    combine: Callable[[Any, Any], None],
    chunks: list[Chunk],
) -> list[Chunk]:
    frame = memoryview(contents(chunks))[_SIZE_BYTES:]
    _, position = decode_response_header(frame, api.key, header.api_version)
    response: Any = codec.decode(api.response, frame, header.api_version, position)[0]
    combine(response, failed)
    return framed_response(api, header, response)


def _changed(
    reply: Reply | asyncio.Future[Reply], change: Callable[[list[Chunk]], list[Chunk]]
) -> Reply | asyncio.Future[Reply]:
    """Return a reply with other chunks, at once or when they are known."""
    if not isinstance(reply, asyncio.Future):
        return _changed_now(reply, change)
    outer = _outer(reply)

    def done(inner: asyncio.Future[Reply]) -> None:
        if outer.done():
            return
        try:
            outer.set_result(_changed_now(inner.result(), change))
        except asyncio.CancelledError:
            outer.cancel()
        except Exception as error:
            outer.set_exception(error)

    reply.add_done_callback(done)
    return outer


def _changed_now(reply: Reply, change: Callable[[list[Chunk]], list[Chunk]]) -> Reply:
    if reply is None:
        return None
    if isinstance(reply, ThrottledReply):
        return reply._replace(chunks=None if reply.chunks is None else change(reply.chunks))
    return change(reply)


def _outer(inner: asyncio.Future[Reply]) -> asyncio.Future[Reply]:
    """Return a future that stands for another one to the connection, and cancels it."""
    outer: asyncio.Future[Reply] = KeepsFrame() if isinstance(inner, KeepsFrame) else PerformedReply()
    outer.add_done_callback(lambda outer: inner.cancel() if outer.cancelled() else None)
    return outer


def _delay_s(slowness: Slowness, request_bytes: int, chunks: list[Chunk] | None) -> float:
    return slowness.delay_s(request_bytes + sum(map(len, chunks or ())))


def _delayed(
    reply: Reply | asyncio.Future[Reply], api_key: int, delay_s: Callable[[list[Chunk] | None], float]
) -> asyncio.Future[Reply]:
    """Return a reply that is known later.  Produce requests may follow each other, as several are in flight."""
    loop = asyncio.get_running_loop()
    outer = _outer(reply) if isinstance(reply, asyncio.Future) else PerformedReply()
    if isinstance(outer, PerformedReply):
        is_performed = not isinstance(reply, asyncio.Future) or (
            isinstance(reply, PerformedReply) and reply.may_overlap
        )
        outer.may_overlap = api_key == _PRODUCE and is_performed

    def pass_on(value: Reply) -> None:
        if not outer.done():
            outer.set_result(value)

    def done(inner: asyncio.Future[Reply]) -> None:
        if outer.done():
            return
        if inner.cancelled():
            outer.cancel()
        elif (error := inner.exception()) is not None:
            outer.set_exception(error)
        else:
            loop.call_later(delay_s(_chunks(inner.result())), pass_on, inner.result())

    if isinstance(reply, asyncio.Future):
        reply.add_done_callback(done)
    else:
        loop.call_later(delay_s(_chunks(reply)), pass_on, reply)
    return outer


def _chunks(reply: Reply) -> list[Chunk] | None:
    return reply.chunks if isinstance(reply, ThrottledReply) else reply

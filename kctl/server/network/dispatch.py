"""Decodes a frame, calls its handler and encodes the response.

The table of handlers is what ApiVersions advertises: an API without a handler is unknown.  As in Kafka, an unknown API
or version, or a malformed body, closes the connection; only ApiVersions responds with an error.

Here quotas are enforced too: what a request of a client that has some uses is settled when its response is encoded
(quotas/accounts).
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter, itemgetter
from types import CoroutineType
from typing import Any

from kctl.errors import ErrorCode, MalformedRequest, UnansweredRequestFailed
from kctl.limits import HANDLED_AT_ONCE_BYTES_MAX, Subject, bound
from kctl.protocol import codec, registry
from kctl.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from kctl.protocol.apis.produce import ProduceResponse
from kctl.protocol.headers import RequestHeader, decode_request_fields
from kctl.records.compiled import walk_is_compiled
from kctl.server.loop.slices import held, pause, release_message
from kctl.server.loop.tasks import in_thread
from kctl.server.network.connections.channel import KeepsFrame, PerformedReply, Reply, ThrottledReply
from kctl.server.network.connections.outbox import Chunk
from kctl.server.network.response_frames import (
    decoded_response,
    framed_response,
    response_size,
    sized_first,
    sized_response,
)
from kctl.server.requests.context import EVERYTHING_ALLOWED, AccessControl, Peer, RequestContext
from kctl.server.requests.quotas.accounts import EXEMPT_KEYS, FETCH_KEY, PRODUCE_KEY
from kctl.server.requests.quotas.client_quotas import ClientQuotas
from kctl.server.requests.quotas.meters import LimitedClient
from kctl.server.requests.recorder import RequestRecorder, RequestTimes
from kctl.server.requests.request_log import RequestLog

COPIED_FRAME_BYTES_MAX = bound(
    Subject.LONG_WORK,
    "size of a request that is copied to be decoded in a thread",
    1 << 20,
    "bytes",
    on_excess="the receive buffer is not used again, and is freed after the request",
)


PLAIN_BYTES_MAX = bound(
    Subject.LONG_WORK,
    "size of a Produce or Fetch request that is read into flat values",
    64 << 10,
    "bytes",
    on_excess="it is decoded, and its batches are checked one by one",
)
PLAIN_REQUESTS = "KCTL_PLAIN_REQUESTS"
"""An environment variable for tests: `always` and `never` read requests into flat values."""


# A reply that is encoded at the moment at which its response is known.
#
# A future of the response, whose callback encodes it for a second future, would cost each waiting request one more
# iteration of the event loop.
#
# Owner: event loop.


class WaitingReply(PerformedReply):
    """Its handler sets the response of a request; its result is the encoded reply.

    A response that cannot be encoded sets the exception.
    """

    def __init__(self, context: RequestContext, *, may_overlap: bool) -> None:
        super().__init__()
        self.may_overlap = may_overlap
        self._context = context

    def set_result(self, response: Any) -> None:
        """Encode the response and set the reply."""
        context = self._context
        assert context.encode is not None
        try:
            reply = context.encode(context, response)
        except Exception as error:
            self.set_exception(error)
        else:
            super().set_result(reply)


def waiting_reply(context: RequestContext, *, may_overlap: bool = False) -> asyncio.Future[Any]:
    """Return the result of a handler that sets its response later; without a dispatcher, a plain future of the
    response.

    The response must not take long to encode: this happens where it is set.  See PerformedReply for `may_overlap`.
    """
    if context.encode is None:
        return asyncio.get_running_loop().create_future()
    return WaitingReply(context, may_overlap=may_overlap)


log = logging.getLogger(__name__)

API_VERSIONS_KEY = 18
"""It has two strings only, and has to be answered at once before a client is authenticated."""
_PRODUCE_AND_FETCH = frozenset({PRODUCE_KEY, FETCH_KEY})
"""They are usually long because of records, which are not decoded.  Their responses are about as long, and are not
examined, because there are so many.
"""
_OF_CONTROLLER = frozenset({4, 5, 6})
"""LeaderAndIsr, StopReplica and UpdateMetadata do not wait for long requests of clients."""

_PLAIN_BYTES_MIN = 40
"""Shorter frames are never usual."""
_NOT_PLAIN: list[Chunk] = []

Response = Any
Handler = Callable[[Any, RequestContext], "Response | Awaitable[Response | None] | None"]
"""Takes a request; returns its response, None for no response, or an awaitable of either.

A PlainReply is a response that was written already.
"""


PlainRequest = tuple[Any, ...]
"""A request as flat values; the first are its version, correlation id, client id, and the id of the broker that sent it
or -1.
"""
PlainReply = tuple["list[Chunk] | None", int]
"""The chunks of the framed response, None for a request without one; and how many error codes it has, all of them NONE.
"""
PlainHandler = Callable[
    [Any, memoryview, Peer, AccessControl, "LimitedClient | None"],
    "PlainReply | Callable[[RequestContext], Any] | None",
]
"""Takes a request, its frame and the quotas of its client, None for a client without quotas; returns the reply, or a
function that returns what Handler returns, or None, if nothing was done, for a request that Handler serves.
"""
PlainReader = Callable[[bytes, dict[bytes, str]], "PlainRequest | None"]
"""Takes a frame and the names of topics by their ids."""
_Plain = tuple[str, PlainReader, PlainHandler]
"""Name of the API, reader and handler."""


def uses_plain_requests() -> bool:
    """Return whether requests are read into flat values: where this is compiled, unless PLAIN_REQUESTS says else."""
    forced = os.environ.get(PLAIN_REQUESTS)
    return walk_is_compiled() if forced is None else forced == "always"


class Dispatcher:
    """Handlers by API key.  Owner: event loop."""

    def __init__(self, quotas: ClientQuotas, now_s: Callable[[], float]) -> None:
        """`now_s` returns the time of the event loop in seconds."""
        self.access: AccessControl = EVERYTHING_ALLOWED
        """Decides on the requests of all clients; set before the first connection is accepted."""
        self.versions_of: Callable[[registry.Api], range] = attrgetter("served")
        """Returns the versions of an API that are served; set before the first handler is registered."""
        self.advertised_of: Callable[[registry.Api], range] = attrgetter("served")
        """Returns the versions of an API that ApiVersions names, which may be fewer than are served."""
        self.ranges_for_unsupported: Callable[[list[ApiVersion]], list[ApiVersion]] = list
        """Returns which of all ranges are sent to a client whose version of ApiVersions is not served."""
        self.replaced_errors: Mapping[int, int] = {}
        """Error codes of Produce that are sent as others."""
        self.add_new_leaders: Callable[[Response, int, str], None] | None = None
        """Completes responses of Produce and Fetch that may have errors; takes their version and the listener."""
        self.topic_names: dict[bytes, str] = {}
        """The names of topics by the bytes of their ids, for requests that are read into flat values."""
        self.recorder: RequestRecorder | None = None
        """Records requests for metrics; set before the first connection is accepted."""
        self.latest_api = ""
        """The API of the request that was handled last."""
        self._request_log: RequestLog | None = None
        self._quotas = quotas
        self._now_s = now_s
        self._handlers: dict[int, tuple[registry.Api, Handler, Callable[[RequestContext, Response], Reply], bool]] = {}
        """API, handler, encoder, and whether quotas apply."""
        self._long_handlers: dict[int, Handler] = {}
        self._plain: dict[int, _Plain] = {}
        self._api_versions: list[ApiVersion] = []
        self._advertised_count = 0
        self._tasks: set[asyncio.Future[Any]] = set()
        self._long_encoding = asyncio.Lock()

    def register(self, api_name: str, handler: Handler, *, for_long: Handler | None = None) -> None:
        """Register the handler of an API.

        `for_long` handles requests that are decoded in a thread, whose records are not overwritten afterwards.
        """
        api = registry.api_named(api_name)
        api = replace(api, served=self.versions_of(api))
        if not api.served:
            return
        self._handlers[api.key] = (api, handler, partial(self._encode, api), api.key not in EXEMPT_KEYS)
        self._long_handlers[api.key] = for_long or handler

    def register_plain(self, api_name: str, read: PlainReader, handler: PlainHandler) -> None:
        """Register a handler of those requests of an API that `read` returns as flat values; the API has another one,
        too.

        It is not used where reading them is interpreted, because that takes longer than it saves.
        """
        if uses_plain_requests():
            api = registry.api_named(api_name)
            self._plain[api.key] = (api.name, read, handler)

    def set_request_log(self, request_log: RequestLog | None) -> None:
        """Start logging requests; None stops it."""
        self._request_log = request_log

    def api_versions(self) -> list[ApiVersion]:
        """Return the served APIs, by ascending key; the list is shared by all responses."""
        if self._advertised_count != len(self._handlers):
            self._advertised_count = len(self._handlers)
            self._api_versions = [
                ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
                for key, (api, *_) in sorted(self._handlers.items(), key=itemgetter(0))
                if (versions := self.advertised_of(api))
            ]
        return self._api_versions

    def handle(self, frame: memoryview, peer: Peer) -> Reply | asyncio.Future[Reply]:
        """Return the framed response, or a future of it.  Raises MalformedRequest and UnansweredRequestFailed."""
        if _PLAIN_BYTES_MIN <= len(frame) <= PLAIN_BYTES_MAX and frame[0] == 0 and self._request_log is None:
            plain = self._plain.get(frame[1])
            if plain is not None:
                plain_reply = self._served_plain(plain, frame, peer)
                if plain_reply is not _NOT_PLAIN:
                    return plain_reply
        api_key, version, correlation_id, client_id, offset = decode_request_fields(frame)
        entry = self._handlers.get(api_key)
        if entry is None:
            raise MalformedRequest(f"API key {api_key} is not served")
        api, handler, encode, has_quotas = entry
        self.latest_api = api.name
        if version not in api.served:
            if api.key == API_VERSIONS_KEY:
                return self._refuse_api_versions(api, RequestHeader(api_key, 0, correlation_id, client_id))
            raise MalformedRequest(f"{api.name} version {version} is not served")
        context = RequestContext(version, correlation_id, client_id or "", peer, self.access, api.name)
        quotas = self._quotas
        if has_quotas and quotas.has_limits:
            found = peer.quotas
            if found.client_id != context.client_id or found.version != quotas.version:
                quotas.find(found, peer.principal, context.client_id)
            client = found.client
            if client is not None:
                context.limited = client
                context.request_bytes = len(frame)
                context.busy_s = 0.0
                context.now_s = self._now_s
                context.running_since_s = self._now_s()
        recorder = self.recorder
        if recorder is not None:
            record = context.record = recorder.apis[api.name]
            record.until_timed -= 1
            if record.until_timed < 0:
                context.times = record.begin(peer.timing, len(frame))
        if self._request_log is not None:
            self._request_log.begin(context, len(frame))
        decoded: tuple[Any, int] | None
        if api.key in _PRODUCE_AND_FETCH:
            is_long = len(frame) > HANDLED_AT_ONCE_BYTES_MAX
            decoded = None if is_long else codec.decode_at_once(api.request, frame, version, offset)
        elif api.key != API_VERSIONS_KEY and codec.is_long_to_decode(api.request, len(frame)):
            decoded = None
        else:
            decoded = codec.decode(api.request, frame, version, offset)
        if decoded is None:
            kept = KeepsFrame(loop=asyncio.get_running_loop()) if len(frame) > COPIED_FRAME_BYTES_MAX else None
            received = memoryview(bytearray(frame)) if kept is None else frame
            return self._later(api, context, self._handled_off_loop(api, received, offset, context), kept)
        request: Any = decoded[0]
        context.encode = encode
        result = handler(request, context)
        if context.times is not None:
            context.times.handled_s = asyncio.get_running_loop().time()
        if recorder is not None and api.key == FETCH_KEY and request.replica_id >= 0:
            context.record = recorder.follower_fetches
        if isinstance(result, WaitingReply):
            if context.limited is not None:
                context.wait(self._now_s())
            return result
        if result is None:
            return self._encode(api, context, None)
        if not isinstance(result, api.response) and isinstance(result, Awaitable):
            return self._later(api, context, result)
        if api.key not in _PRODUCE_AND_FETCH and codec.is_long_to_encode(result):
            return self._encoded_off_loop(api, context, result)
        return self._encode(api, context, result)

    def _served_plain(self, plain: _Plain, frame: memoryview, peer: Peer) -> Reply | asyncio.Future[Reply]:
        """As `handle`, for a request that may be usual; return _NOT_PLAIN for one that is to be decoded.

        Those that are timed are among them.
        """
        api_name, read, handle = plain
        quotas, client = self._quotas, None
        began_s = self._now_s() if quotas.has_limits else 0.0
        request = read(bytes(frame), self.topic_names)
        if request is None:
            return _NOT_PLAIN
        version, correlation_id, client_id, replica_id = request[:4]
        record = None
        if self.recorder is not None:
            record = self.recorder.apis[api_name]
            if record.until_timed <= 0:
                return _NOT_PLAIN
        if quotas.has_limits:
            found = peer.quotas
            if found.client_id != client_id or found.version != quotas.version:
                quotas.find(found, peer.principal, client_id)
            if replica_id < 0:
                client = found.client
        outcome = handle(request, frame, peer, self.access, client)
        if outcome is None:
            return _NOT_PLAIN
        self.latest_api = api_name
        if record is not None:
            record.until_timed -= 1
            if replica_id >= 0 and self.recorder is not None:
                record = self.recorder.follower_fetches
        if isinstance(outcome, tuple):
            chunks, successes = outcome
            if record is not None:
                record.versions[version] += 1
                record.successes += successes
            if client is None:
                return chunks
            is_produce = frame[1] == PRODUCE_KEY
            meter = client.produce if is_produce else client.fetch
            used = 0
            if meter is not None and chunks is not None:
                used = len(frame) if is_produce else response_size(chunks)
            if chunks is not None and client.take(meter, used, began_s, self._now_s()):
                return chunks
        api, _, encode, _ = self._handlers[frame[1]]
        context = RequestContext(version, correlation_id, client_id, peer, self.access, api_name)
        if client is not None:
            context.limited, context.request_bytes = client, len(frame)
            context.busy_s, context.now_s, context.running_since_s = 0.0, self._now_s, began_s
        if isinstance(outcome, tuple):
            # Too close to a quota to be settled without an account.
            return _settled(
                api,
                context,
                decoded_response(api, context, chunks),
                chunks,
                None if chunks is None else response_size(chunks),
            )
        context.record, context.encode = record, encode
        result = outcome(context)
        if isinstance(result, WaitingReply):
            if client is not None:
                context.wait(self._now_s())
            return result
        if isinstance(result, asyncio.Future):
            return self._later(api, context, result)
        return self._encode(api, context, result)

    async def _handled_off_loop(
        self, api: registry.Api, frame: memoryview, offset: int, context: RequestContext
    ) -> Response | None:
        """Decode in a thread: a request with thousands of elements takes 10 ms, one of a controller hundreds."""
        decoded: tuple[Any, int] = await in_thread(
            partial(codec.decode, api.request, frame, context.api_version, offset)
        )
        request = decoded[0]
        if api.key not in _OF_CONTROLLER:
            # Several may have been decoded since the last iteration of the event loop.
            await pause()
        if self.recorder is not None and api.key == FETCH_KEY and request.replica_id >= 0:
            context.record = self.recorder.follower_fetches
        result = self._long_handlers[api.key](request, context)
        return await result if isinstance(result, Awaitable) else result

    def _later(
        self,
        api: registry.Api,
        context: RequestContext,
        result: Awaitable[Response | None],
        kept: KeepsFrame | None = None,
    ) -> asyncio.Future[Reply]:
        """Return a future of the response, `kept` if it is given.

        Cancelling it ends a wait; work that has started continues.
        """
        loop = asyncio.get_running_loop()
        if context.account is not None:
            context.account.paused()
            if context.account.is_timed and not isinstance(result, asyncio.Future):
                result = context.account.measured(result)
        reply: asyncio.Future[Reply] = kept or loop.create_future()
        if isinstance(result, asyncio.Future):
            wait = result
            # It has the response, which is freed in slices before the reply is complete.
            waiting = weakref.ref(wait)
            reply.add_done_callback(lambda reply: _cancel(waiting()) if reply.cancelled() else None)
        else:
            work = result if isinstance(result, CoroutineType) else _awaited(result)
            wait = loop.create_task(work, name=f"request-{api.name}")
            self._tasks.add(wait)
            wait.add_done_callback(self._tasks.discard)
        wait.add_done_callback(lambda wait: self._settle(api, context, wait, reply))
        return reply

    def _settle(
        self,
        api: registry.Api,
        context: RequestContext,
        wait: asyncio.Future[Response | None],
        reply: asyncio.Future[Reply],
    ) -> None:
        error = None if wait.cancelled() else wait.exception()
        if reply.done():
            if error is not None and not isinstance(error, UnansweredRequestFailed | MalformedRequest):
                log.error(
                    "request failed after its connection was closed, no response is sent api=%s peer=%s error=%s",
                    api.name,
                    context.peer.client_host,
                    error,
                    exc_info=error,
                )
        elif wait.cancelled():
            reply.cancel()
        elif error is not None:
            reply.set_exception(error)
        else:
            try:
                response = wait.result()
                if response is None or not codec.is_long_to_encode(response):
                    reply.set_result(self._encode(api, context, response))
                else:
                    self._encoded_off_loop(api, context, response).add_done_callback(partial(_pass_on, reply))
            except Exception as failure:
                reply.set_exception(failure)

    def _encoded_off_loop(self, api: registry.Api, context: RequestContext, response: Response) -> asyncio.Task[Reply]:
        """Encode a long response in a thread, one at a time: others wait with their responses not encoded."""
        account = context.account
        mute_ms = 0
        if account is not None:
            mute_ms = account.throttle_ms if api.key == FETCH_KEY else account.settle(api.key, 0)
            _note_throttled(context, response, mute_ms)

        encoded = self._encoded_in_thread(api, context, [response], mute_ms)
        task = asyncio.get_running_loop().create_task(encoded, name=f"encode-{api.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _encoded_in_thread(
        self, api: registry.Api, context: RequestContext, only: list[Response], mute_ms: int
    ) -> Reply:
        """See `_encoded_off_loop`.  `only` has the response, which is then freed in slices: it takes 20 ms at once."""
        with held():
            async with self._long_encoding:
                chunks, size = await in_thread(partial(sized_first, api, context, only))
        account = context.account
        if account is not None and api.key == FETCH_KEY:
            account.settle(FETCH_KEY, size)
        if context.record is not None:
            context.record.versions[context.api_version] += 1
            context.record.count_errors(only[0], context.record.errors)
        if context.times is not None:
            self._ready(context, context.times, only[0], chunks)
        await release_message(only)
        return ThrottledReply(chunks, mute_ms) if mute_ms else chunks

    def _ready(self, context: RequestContext, times: RequestTimes, response: Response | None, reply: Reply) -> None:
        """Record and log the times of a request that has its response."""
        if context.record is not None:
            context.record.ready(times, None if response is None else context.peer.timing)
        if self._request_log is not None:
            chunks = reply.chunks if isinstance(reply, ThrottledReply) else reply
            if chunks:
                times.response_bytes = sum(len(chunk) for chunk in chunks)
            self._request_log.ready(context, has_response=chunks is not None)

    def _encode(self, api: registry.Api, context: RequestContext, response: Response | None) -> Reply:
        chunks: list[Chunk] | None = None
        is_written = isinstance(response, tuple)
        if is_written and response is not None:
            chunks, context.successes = response
            size = response_size(chunks)
        elif response is not None:
            if not context.successes and api.key in _PRODUCE_AND_FETCH and self.add_new_leaders is not None:
                self.add_new_leaders(response, context.api_version, context.peer.listener)
            if self.replaced_errors and api.key == PRODUCE_KEY:
                _replace_errors(response, self.replaced_errors)
            chunks, size = sized_response(api, context, response)
        reply: Reply = chunks
        limited = context.limited
        if limited is not None:
            # Almost all requests are settled here, without a further call.
            is_settled = False
            if context.opened_account is None and chunks is not None:
                now_s, key = self._now_s(), api.key
                since_s = context.running_since_s
                if since_s is None:
                    since_s = now_s - context.busy_s
                if key == PRODUCE_KEY:
                    is_settled = limited.take(limited.produce, context.request_bytes, since_s, now_s)
                elif key == FETCH_KEY:
                    is_settled = limited.take(limited.fetch, size, since_s, now_s)
                else:
                    is_settled = limited.take(None, 0, since_s, now_s)
            if not is_settled:
                settled = decoded_response(api, context, chunks) if is_written else response
                reply = _settled(api, context, settled, chunks, None if chunks is None else size)
        record = context.record
        if record is not None:
            record.versions[context.api_version] += 1
            if response is None:
                record.successes += 1
            elif context.successes:
                record.successes += context.successes
            else:
                record.count_errors(response, record.errors)
        if context.times is not None:
            self._ready(context, context.times, response, reply)
        return reply

    def _refuse_api_versions(self, api: registry.Api, request: RequestHeader) -> Reply:
        """Return the version 0 response with all ranges, so that the client can retry with a supported version.

        KIP-511.
        """
        ranges = self.ranges_for_unsupported(self.api_versions())
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
        return framed_response(api, request, response)


def _replace_errors(response: ProduceResponse, codes: Mapping[int, int]) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            partition.error_code = codes.get(partition.error_code, partition.error_code)


def _settled(
    api: registry.Api,
    context: RequestContext,
    response: Response | None,
    chunks: list[Chunk] | None,
    size: int | None,
) -> Reply:
    """Count what the request has used, and return the reply, which is encoded again with a throttle time."""
    account = context.account
    assert account is not None
    mute_ms = account.settle(api.key, size)
    if not mute_ms:
        return chunks
    _note_throttled(context, response, mute_ms)
    return ThrottledReply(None if response is None else framed_response(api, context, response), mute_ms)


def _note_throttled(context: RequestContext, response: Response | None, mute_ms: int) -> None:
    if context.times is not None:
        context.times.throttle_ms = mute_ms
    if mute_ms and response is not None and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = mute_ms


def _pass_on(reply: asyncio.Future[Reply], encoded: asyncio.Future[Reply]) -> None:
    if reply.done():
        return
    if encoded.cancelled():
        reply.cancel()
    elif (error := encoded.exception()) is not None:
        reply.set_exception(error)
    else:
        reply.set_result(encoded.result())


def _cancel(wait: asyncio.Future[Response | None] | None) -> None:
    if wait is not None:
        wait.cancel()


async def _awaited(result: Awaitable[Response | None]) -> Response | None:
    return await result

"""The usage of one request of a client with quotas, and its throttle time.  KIP-124, KIP-219, KIP-599.

The dispatcher notes the client, the time and the size of a request when its header is decoded.  When the response is
encoded, LimitedClient.take counts what was used, for almost all requests.  An account is made for the others: those
near or beyond a quota, those that work on after a wait, and those that change topics.  The response is sent at once
with the throttle time, and no further request is taken from the connection for that time.

Request time is what the request takes on the event loop, in percent of its time: decoding, the handler and encoding.
Waiting and processing of records in a thread do not count.  In Kafka, request time is that of network and request
threads, of which a broker has many; here 100 percent is the whole event loop.

Kafka: RequestHandlerHelper, KafkaApis.handleProduceRequest, handleFetchRequest (2.8).

Owner: event loop.  Pure: the clock is passed in.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from kctl.errors import ApiError, ErrorCode
from kctl.server.requests.quotas.meters import PERCENT, BucketMeter, LimitedClient, Meter

T = TypeVar("T")

PRODUCE_KEY = 0
FETCH_KEY = 1
EXEMPT_KEYS = frozenset({4, 5, 6, 7, 27, 56})
"""LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers and AlterPartition."""


class MutationAllowance:
    """Which changes of topics one request may make.  Kafka: ControllerMutationQuota.

    A strict allowance refuses changes while the client's token bucket is overdrawn; the change that overdraws it is
    accepted.  A permissive one, for versions without the error code, accepts all changes and throttles the client.
    """

    __slots__ = ("_is_strict", "_meter", "_now_s", "_recorded_ms", "_throttle_ms")

    def __init__(self, meter: BucketMeter, now_s: Callable[[], float], *, is_strict: bool) -> None:
        self._meter = meter
        self._now_s = now_s
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._recorded_ms = 0

    def take(self, partitions: int) -> None:
        """Count partitions that are created or deleted.  Raises ApiError(THROTTLING_QUOTA_EXCEEDED)."""
        now_ms = int(self._now_s() * 1000)
        if self._is_strict:
            throttle_ms = self._meter.throttle_ms(now_ms)
            if throttle_ms:
                self._note(throttle_ms, now_ms)
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            self._meter.take(partitions, now_ms)
        else:
            self._meter.take(partitions, now_ms)
            self._note(self._meter.throttle_ms(now_ms), now_ms)

    def throttle_ms(self) -> int:
        """Return the remaining throttle time; the request may have waited since the change."""
        return max(0, self._throttle_ms - (int(self._now_s() * 1000) - self._recorded_ms))

    def _note(self, throttle_ms: int, now_ms: int) -> None:
        if throttle_ms:
            self._throttle_ms, self._recorded_ms = throttle_ms, now_ms


class RequestAccount:
    """See the module's docstring.  `now_s` returns the time of the event loop in seconds."""

    __slots__ = (
        "_busy_s",
        "_client",
        "_has_fetched",
        "_mutations",
        "_now_s",
        "_request_bytes",
        "_running_since_s",
        "_throttle_ms",
    )

    def __init__(
        self,
        client: LimitedClient,
        now_s: Callable[[], float],
        request_bytes: int,
        *,
        busy_s: float = 0.0,
        running_since_s: float | None = None,
    ) -> None:
        """Open the account of a request that has used `busy_s` until `running_since_s`; None if it waits."""
        self._client = client
        self._now_s = now_s
        self._request_bytes = request_bytes
        self._busy_s = busy_s
        self._running_since_s = running_since_s
        self._has_fetched = False
        self._mutations: MutationAllowance | None = None
        self._throttle_ms = 0

    @property
    def throttle_ms(self) -> int:
        """The throttle time of a fetch, as `throttle_fetch` has returned it."""
        return self._throttle_ms

    @property
    def is_timed(self) -> bool:
        """Whether the client has a quota of request time."""
        return self._client.request is not None

    def mutations(self, *, is_strict: bool) -> MutationAllowance | None:
        """Return the allowance for changes of topics; None without such a quota."""
        meter = self._client.mutation
        if meter is not None:
            self._mutations = MutationAllowance(meter, self._now_s, is_strict=is_strict)
        return self._mutations

    def count_mutations(self, partitions: int) -> None:
        """Count partitions of a topic that is created automatically: for the next changes, not for this request.

        Kafka: PermissiveControllerMutationQuota, whose throttle time Metadata and FindCoordinator do not use.
        """
        meter = self._client.mutation
        if meter is not None:
            meter.take(partitions, int(self._now_s() * 1000))

    def throttle_fetch(self, response_bytes: Callable[[], int]) -> int:
        """Return the throttle time of a fetch; if it is not 0, the response must be empty and its bytes do not
        count.
        """
        self._has_fetched = True
        now_s = self._now_s()
        now_ms = int(now_s * 1000)
        request_ms = self._record_time(now_s)
        meter = self._client.fetch
        fetch_ms = 0
        if meter is not None:
            size = response_bytes()
            fetch_ms = meter.record(size, now_ms)
            if fetch_ms or request_ms:
                meter.add(-size, now_ms)
        return self._throttle(fetch_ms, meter, request_ms)

    def settle(self, api_key: int, response_bytes: int | None) -> int:
        """Record what the request has used, and return the throttle time in ms.

        `response_bytes` is the size of the encoded response; None without a response.
        """
        now_s = self._now_s()
        now_ms = int(now_s * 1000)
        if api_key == FETCH_KEY:
            self._settle_fetch(now_s, response_bytes or 0)
            return self._throttle_ms
        # A produce request with acks=0 has no response, and its time does not count.
        request_ms = self._record_time(now_s) if response_bytes is not None else 0
        if api_key == PRODUCE_KEY and self._client.produce is not None:
            meter = self._client.produce
            produce_ms = meter.record(self._request_bytes, now_ms)
            return self._throttle(produce_ms, meter, request_ms) if produce_ms or request_ms else 0
        if self._mutations is not None:
            return self._throttle(self._mutations.throttle_ms(), self._client.mutation, request_ms)
        return self._throttle(0, None, request_ms) if request_ms else 0

    def _settle_fetch(self, now_s: float, response_bytes: int) -> None:
        """Count for the next request what `throttle_fetch` has not counted: it is too late to throttle this one."""
        meter = self._client.request
        if meter is not None:
            self._pass(now_s)
            meter.add(self._busy_s * PERCENT, int(now_s * 1000))
            self._busy_s = 0.0
        if not self._has_fetched and self._client.fetch is not None:
            self._client.fetch.add(response_bytes, int(now_s * 1000))

    def paused(self) -> None:
        """Note that the request waits: it uses no time until it is `measured` or settled."""
        if self._running_since_s is not None:
            self._pass(self._now_s())
            self._running_since_s = None

    def _pass(self, now_s: float) -> None:
        """Add the time since the last call to what was used."""
        if self._running_since_s is not None:
            self._busy_s += now_s - self._running_since_s
            self._running_since_s = now_s

    async def measured(self, work: Awaitable[T]) -> T:
        """Await work, and count the time of its steps on the event loop."""
        return await _measured(work.__await__(), self)

    def resumed(self) -> None:
        """Count the time again after `paused`."""
        self._running_since_s = self._now_s()

    def _record_time(self, now_s: float) -> int:
        meter = self._client.request
        if meter is None:
            return 0
        self._pass(now_s)
        used_s, self._busy_s = self._busy_s, 0.0
        return meter.record(used_s * PERCENT, int(now_s * 1000))

    def _throttle(self, throttle_ms: int, meter: Meter | None, request_ms: int) -> int:
        """Return the longer of the two throttle times, counted by the meter that it comes from."""
        if throttle_ms or request_ms:
            self._throttle_ms = max(throttle_ms, request_ms)
            source = meter if throttle_ms > request_ms else self._client.request
            assert source is not None
            source.note_throttled(self._throttle_ms)
        return self._throttle_ms


@types.coroutine
def _measured(steps: Generator[Any, Any, T], account: RequestAccount) -> Generator[Any, Any, T]:
    """Run the steps of a coroutine; values and exceptions sent by the awaiting task are passed to it unchanged."""
    send, value = steps.send, None
    while True:
        account.resumed()
        try:
            awaited = send(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            account.paused()
        try:
            value = yield awaited
            send = steps.send
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            send, value = steps.throw, error

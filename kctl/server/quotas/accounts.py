"""The usage of one request of a client with quotas, and its throttle time.  KIP-124, KIP-219, KIP-599.

The dispatcher opens an account when the header of a request is decoded and settles it when there is a response; a
request of a client without quotas has none.  The response is sent at once with the throttle time, and no further
request is taken from the connection for that time.

Request time is what the request takes on the event loop, in percent of its time: decoding, the handler, and for the
next request encoding.  Waiting and processing of records in a thread do not count.  In Kafka, request time is that of
network and request threads, of which a broker has many; here 100 percent is the whole event loop.

Kafka: RequestHandlerHelper, KafkaApis.handleProduceRequest, handleFetchRequest (2.8).

Owner: event loop.  Pure: clocks are passed in.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from kctl.environment import Clock
from kctl.errors import ApiError, ErrorCode
from kctl.server.quotas.meters import BucketMeter, LimitedClient, Meter

T = TypeVar("T")

PRODUCE_KEY = 0
FETCH_KEY = 1
EXEMPT_KEYS = frozenset({4, 5, 6, 7, 27, 56})
"""LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers and AlterPartition."""

_PERCENT = 100.0


class MutationAllowance:
    """Which changes of topics one request may make.  Kafka: ControllerMutationQuota.

    A strict allowance refuses changes while the client's token bucket is overdrawn; the change that overdraws it is
    accepted.  A permissive one, for versions without the error code, accepts all changes and throttles the client.
    """

    __slots__ = ("_clock", "_is_strict", "_meter", "_recorded_ms", "_throttle_ms")

    def __init__(self, meter: BucketMeter, clock: Clock, *, is_strict: bool) -> None:
        self._meter = meter
        self._clock = clock
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._recorded_ms = 0

    def take(self, partitions: int) -> None:
        """Counts partitions that are created or deleted.  Raises ApiError(THROTTLING_QUOTA_EXCEEDED)."""
        now_ms = self._clock.monotonic_ms()
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
        """The remaining throttle time; the request may have waited since the change."""
        return max(0, self._throttle_ms - (self._clock.monotonic_ms() - self._recorded_ms))

    def _note(self, throttle_ms: int, now_ms: int) -> None:
        if throttle_ms:
            self._throttle_ms, self._recorded_ms = throttle_ms, now_ms


class RequestAccount:
    """See the module's docstring.  `precise_s` returns a time in seconds, finer than that of the clock."""

    __slots__ = (
        "_busy_s",
        "_client",
        "_clock",
        "_is_exempt",
        "_mutations",
        "_precise_s",
        "_request_bytes",
        "_running_since_s",
        "_throttle_ms",
        "is_timed",
    )

    def __init__(self, client: LimitedClient, clock: Clock, precise_s: Callable[[], float], request_bytes: int) -> None:
        self._client = client
        self._clock = clock
        self._precise_s = precise_s
        self._request_bytes = request_bytes
        self._busy_s = 0.0
        self.is_timed = client.request is not None
        """Whether the client has a quota of request time."""
        self._running_since_s: float | None = precise_s() if self.is_timed else None
        self._is_exempt = False
        self._mutations: MutationAllowance | None = None
        self._throttle_ms = 0

    @property
    def fetch_bytes_max(self) -> float | None:
        """The largest response in bytes that the quota of fetches can ever admit; None without a quota.

        A larger response would always be throttled.  Kafka: ClientQuotaManager.getMaxValueInQuotaWindow.
        """
        meter = self._client.fetch
        return None if meter is None else meter.value_max

    def exempt(self) -> None:
        """Marks the request as one of a follower."""
        self._is_exempt = True

    def mutations(self, *, is_strict: bool) -> MutationAllowance | None:
        """The allowance for changes of topics; None without such a quota."""
        meter = self._client.mutation
        if meter is not None:
            self._mutations = MutationAllowance(meter, self._clock, is_strict=is_strict)
        return self._mutations

    def count_mutations(self, partitions: int) -> None:
        """Counts partitions of a topic that is created automatically: for the next changes, not for this request.

        Kafka: PermissiveControllerMutationQuota, whose throttle time Metadata and FindCoordinator do not use.
        """
        meter = self._client.mutation
        if meter is not None:
            meter.take(partitions, self._clock.monotonic_ms())

    def throttle_fetch(self, response_bytes: Callable[[], int]) -> int:
        """The throttle time of a fetch; if it is not 0, the response must be empty and its bytes do not count."""
        if self._is_exempt:
            return 0
        now_ms = self._clock.monotonic_ms()
        request_ms = self._record_time(now_ms)
        meter = self._client.fetch
        fetch_ms = 0
        if meter is not None:
            size = response_bytes()
            fetch_ms = meter.record(size, now_ms)
            if fetch_ms or request_ms:
                meter.add(-size, now_ms)
        return self._throttle(fetch_ms, meter, request_ms)

    def settle(self, api_key: int, *, has_response: bool) -> int:
        """Records what the request has used, and returns the throttle time in ms.  The response is encoded next."""
        if self._is_exempt:
            return 0
        if api_key == FETCH_KEY:  # See throttle_fetch.
            self._running_since_s = self._precise_s() if self.is_timed else None
            return self._throttle_ms
        now_ms = self._clock.monotonic_ms()
        # A produce request with acks=0 has no response, and its time does not count.
        request_ms = self._record_time(now_ms) if has_response else 0
        if api_key == PRODUCE_KEY and self._client.produce is not None:
            meter = self._client.produce
            produce_ms = meter.record(self._request_bytes, now_ms)
            return self._throttle(produce_ms, meter, request_ms) if produce_ms or request_ms else 0
        if self._mutations is not None:
            return self._throttle(self._mutations.throttle_ms(), self._client.mutation, request_ms)
        return self._throttle(0, None, request_ms) if request_ms else 0

    def encoded(self) -> None:
        """Counts the time since `settle` for the next request: the response has been encoded."""
        meter = self._client.request
        if meter is not None and self._running_since_s is not None and not self._is_exempt:
            meter.carried += (self._precise_s() - self._running_since_s) * _PERCENT

    def paused(self) -> None:
        """The request waits: it uses no time until it is `measured` or settled."""
        if self._running_since_s is not None:
            self._busy_s += self._precise_s() - self._running_since_s
            self._running_since_s = None

    async def measured(self, work: Awaitable[T]) -> T:
        """Awaits work, and counts the time of its steps on the event loop."""
        return await _measured(work.__await__(), self)

    def resumed(self) -> None:
        """Counts the time again after `paused`."""
        self._running_since_s = self._precise_s()

    def _record_time(self, now_ms: int) -> int:
        meter = self._client.request
        if meter is None:
            return 0
        now_s = self._precise_s()
        if self._running_since_s is not None:
            self._busy_s += now_s - self._running_since_s
        self._running_since_s = now_s
        return meter.record(self._busy_s * _PERCENT, now_ms)

    def _throttle(self, throttle_ms: int, meter: Meter | None, request_ms: int) -> int:
        """The longer of the two throttle times, counted by the meter that it comes from."""
        if throttle_ms or request_ms:
            self._throttle_ms = max(throttle_ms, request_ms)
            source = meter if throttle_ms > request_ms else self._client.request
            assert source is not None
            source.note_throttled(self._throttle_ms)
        return self._throttle_ms


@types.coroutine
def _measured(steps: Generator[Any, Any, T], account: RequestAccount) -> Generator[Any, Any, T]:
    """Runs the steps of a coroutine; values and exceptions sent by the awaiting task are passed to it unchanged."""
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

"""Records requests for metrics: their number, error codes and times.  Kafka: RequestChannel.Metrics.

Every request is counted.  Of an API that is requested rarely, every request is timed, and of a frequent one up to every
TIMED_OF_MAX-th, because six readings of the clock take longer than everything else here.  Durations and quantiles are
computed from the latest SAMPLES_MAX timed requests of an API when metrics are read.

Owner: event loop.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from kctl.metrics.definitions import SAMPLES_MAX
from kctl.protocol import registry

# When requests pass their stages, for metrics and the request log.
#
# Owner: event loop.


@dataclass(slots=True)
class RequestTimes:
    """When a request passed its stages, in seconds of the event loop's clock.

    Only recorded with metrics.port or request.log.mode.
    """

    request_bytes: int
    received_s: float
    """The latest bytes of the connection arrived."""
    started_s: float
    handled_s: float = 0.0
    """The handler returned; it may have returned an awaitable."""
    ready_s: float = 0.0
    """The response was encoded."""
    flushed_s: float = 0.0
    """The response was first passed to the socket."""
    sent_s: float = 0.0
    """The socket had taken the whole response."""
    throttle_ms: int = 0
    response_bytes: int = 0
    """Only set for the request log."""
    on_sent: Callable[[RequestTimes], None] | None = None
    """Called when the socket has taken the response."""

    @property
    def queue_ms(self) -> float:
        """The wait for the connection's turn."""
        return (self.started_s - self.received_s) * 1000

    @property
    def local_ms(self) -> float:
        """Decoding and handling, without waiting; 0 for a request that is decoded in a thread."""
        return (self.handled_s - self.started_s) * 1000 if self.handled_s else 0.0

    @property
    def remote_ms(self) -> float:
        """Waiting, work in threads, and encoding the response."""
        return (self.ready_s - (self.handled_s or self.started_s)) * 1000

    @property
    def response_queue_ms(self) -> float:
        """The wait of the response until it was first passed to the socket."""
        return (self.flushed_s - self.ready_s) * 1000

    @property
    def send_ms(self) -> float:
        """The time until the socket had taken the whole response."""
        return (self.sent_s - self.flushed_s) * 1000


class Measuring:
    """Whether connections record times."""

    __slots__ = ("_for_log", "_for_metrics", "is_on")

    def __init__(self, *, for_metrics: bool = False) -> None:
        self._for_metrics = for_metrics
        self._for_log = False
        self.is_on = for_metrics
        """True for metrics or for the request log."""

    def switch(self, *, for_metrics: bool | None = None, for_log: bool | None = None) -> None:
        """Switch the recording of times for metrics and for the request log on or off; None leaves it unchanged."""
        self._for_metrics = self._for_metrics if for_metrics is None else for_metrics
        self._for_log = self._for_log if for_log is None else for_log
        self.is_on = self._for_metrics or self._for_log


class ConnectionTiming:
    """The measurements of one connection."""

    __slots__ = ("flushing_s", "measuring", "received_s", "software", "unsent")

    def __init__(self, measuring: Measuring) -> None:
        self.measuring = measuring
        self.flushing_s = 0.0
        """When responses were first passed to the socket, of those that it has not taken."""
        self.received_s = 0.0
        """When bytes were received last."""
        self.unsent: list[RequestTimes] = []
        """The requests whose responses are not sent yet."""
        self.software = ("unknown", "unknown")
        """Name and version of the client's software (KIP-511)."""

    def sent(self, now_s: float) -> None:
        """Note that the socket has taken all responses."""
        for times in self.unsent:
            times.flushed_s = max(times.flushed_s, self.flushing_s)
            times.sent_s = now_s
            if times.on_sent is not None:
                times.on_sent(times)
        self.unsent.clear()
        self.flushing_s = 0.0


_NONE = 0
"""The error code of a success."""
TIMED_OF_MAX = 64
TIMED_EVERY_S = 0.01
"""The intended time in seconds between two timed requests of one API; the share of requests that are timed follows from
it.
"""

CountErrors = Callable[[Any, defaultdict[int, int]], None]
"""Adds the error codes in a response to their counts."""


class ApiRecord:
    """The requests of one API, or of one kind of reader for Fetch.

    The dispatcher, which counts each request, uses the attributes without further calls.  The counts of each request
    are in a list and an attribute, because adding to a value of a dictionary takes three times as long.
    """

    __slots__ = (
        "_now_s",
        "_timed_of",
        "_timed_s",
        "count_errors",
        "errors",
        "latest",
        "successes",
        "until_timed",
        "versions",
    )

    def __init__(self, api_name: str, now_s: Callable[[], float]) -> None:
        self.until_timed = 0
        """Requests before the next one that is timed.  The dispatcher counts down."""
        self.versions = [0] * registry.api_named(api_name).served.stop
        """Number of requests by version."""
        self.successes = 0
        """Error codes NONE in responses that were not searched for errors."""
        self.errors: defaultdict[int, int] = defaultdict(int)
        """Error codes in the other responses, also of single topics or partitions, by how often they occurred."""
        self.count_errors: CountErrors = self._count_first_errors
        """Adds the codes of a response to `errors`.  All responses of a record have the same type."""
        self.latest: deque[RequestTimes] = deque(maxlen=SAMPLES_MAX)
        self._now_s = now_s
        self._timed_s = float("-inf")
        self._timed_of = 1

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(self.versions)

    @property
    def error_codes(self) -> dict[int, int]:
        """All error codes in responses by how often they occurred; NONE is the number of successes."""
        counts = dict(self.errors)
        if self.successes:
            counts[_NONE] = counts.get(_NONE, 0) + self.successes
        return counts

    def begin(self, timing: ConnectionTiming | None, request_bytes: int) -> RequestTimes:
        """Begin the times of a request that is about to be decoded."""
        now_s = self._now_s()
        is_early = now_s - self._timed_s < TIMED_EVERY_S
        self._timed_of = min(self._timed_of * 2, TIMED_OF_MAX) if is_early else max(self._timed_of // 2, 1)
        self._timed_s = now_s
        self.until_timed = self._timed_of - 1
        return RequestTimes(request_bytes, now_s if timing is None else timing.received_s or now_s, now_s)

    def ready(self, times: RequestTimes, timing: ConnectionTiming | None) -> None:
        """Note that the response of a timed request is encoded.  `timing` is None if there is none to be sent."""
        now_s = self._now_s()
        times.ready_s = now_s
        times.flushed_s = now_s
        times.sent_s = now_s
        self.latest.append(times)
        if timing is not None:
            timing.unsent.append(times)

    def _count_first_errors(self, response: Any, counts: defaultdict[int, int]) -> None:
        self.count_errors = _counter_of_errors(type(response))
        self.count_errors(response, counts)


class RequestRecorder:
    """The records of all APIs, by name; fetches of followers are recorded apart."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.apis: dict[str, ApiRecord] = _Records(now_s)
        """Has a record for each API that was requested; a new one is made when it is looked up."""
        self.follower_fetches = ApiRecord("fetch", now_s)


class _Records(dict[str, ApiRecord]):
    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s

    def __missing__(self, api_name: str) -> ApiRecord:
        record = self[api_name] = ApiRecord(api_name, self._now_s)
        return record


def _counter_of_errors(response: type) -> CountErrors:
    """Count the error codes in responses of this type; of types without a code, one success.

    One function without further calls for the usual depths, because it runs for each request.
    """
    paths = _paths_of_errors(response)
    if not paths:
        return _count_success
    has_code = () in paths
    lists = [attrgetter(path[0]) for path in paths if len(path) == 1]
    nested = [(attrgetter(path[0]), attrgetter(path[1])) for path in paths if len(path) == 2]
    deeper = [path for path in paths if len(path) > 2]
    if len(nested) == 1 and not lists and not deeper:
        return _counter_of_nested(*nested[0], has_code=has_code)

    def count(message: Any, counts: defaultdict[int, int]) -> None:
        if has_code:
            counts[message.error_code] += 1
        for items_of, inner_of in nested:
            for item in items_of(message) or ():
                for inner in inner_of(item) or ():
                    counts[inner.error_code] += 1
        for items_of in lists:
            for item in items_of(message) or ():
                counts[item.error_code] += 1
        for path in deeper:
            for item in _items_at(message, path):
                counts[item.error_code] += 1

    return count


def _counter_of_nested(
    items_of: Callable[[Any], Any], inner_of: Callable[[Any], Any], *, has_code: bool
) -> CountErrors:
    """For Produce and Fetch, which are so frequent: it takes less than half of the time of the general one."""

    def count(message: Any, counts: defaultdict[int, int]) -> None:
        if has_code:
            counts[message.error_code] += 1
        for item in items_of(message) or ():
            for inner in inner_of(item) or ():
                counts[inner.error_code] += 1

    return count


def _items_at(message: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if not path:
        yield message
        return
    for item in getattr(message, path[0]) or ():
        yield from _items_at(item, path[1:])


def _count_success(_: Any, counts: defaultdict[int, int]) -> None:
    counts[_NONE] += 1


def _paths_of_errors(message: type, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the names of the nested lists that lead to a field error_code; empty for a field of the message itself."""
    found: list[tuple[str, ...]] = []
    hints = get_type_hints(message)
    for field in fields(message):
        if field.name == "error_code":
            found.append(above)
        for item in get_args(hints[field.name]):
            if isinstance(item, type) and is_dataclass(item):
                found += _paths_of_errors(item, (*above, field.name))
    return found

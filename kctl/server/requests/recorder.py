"""Records requests for metrics: their number, error codes and times.  Kafka: RequestChannel.Metrics.

Every request is counted.  The first SAMPLES_MAX requests of an API are timed, and of the later ones every TIMED_OF-th,
because six readings of the clock take longer than everything else here.  Durations and quantiles are computed from the
latest SAMPLES_MAX timed requests of an API when metrics are read.

Owner: event loop.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from kctl.server.metrics.quantiles import SAMPLES_MAX
from kctl.server.requests.context import ConnectionTiming, Peer, RequestContext, RequestTimes

FETCH_KEY = 1
TIMED_OF = 16

CountErrors = Callable[[Any, defaultdict[int, int]], None]
"""Adds the error codes in a response to their counts."""


class ApiRecord:
    """The requests of one API, or of one kind of reader for Fetch."""

    __slots__ = ("_count_errors", "_now_s", "errors", "latest", "timed", "until_timed", "versions")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.timed = 0
        """Timed requests that have begun, of either reader for Fetch."""
        self.until_timed = 0
        """Requests before the next one that is timed.  The dispatcher counts down."""
        self.versions: defaultdict[int, int] = defaultdict(int)
        """Number of requests by version."""
        self.errors: defaultdict[int, int] = defaultdict(int)
        """Error codes in responses, also of single topics or partitions, by how often they occurred."""
        self.latest: deque[RequestTimes] = deque(maxlen=SAMPLES_MAX)
        self._now_s = now_s
        self._count_errors: CountErrors | None = None

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(self.versions.values())

    def begin(self, peer: Peer, request_bytes: int) -> RequestTimes:
        """A request that is timed is about to be decoded."""
        self.timed += 1
        self.until_timed = 0 if self.timed < SAMPLES_MAX else TIMED_OF - 1
        now_s = self._now_s()
        timing = peer.timing
        return RequestTimes(request_bytes, now_s if timing is None else timing.received_s or now_s, now_s)

    def completed(self, context: RequestContext, response: Any) -> None:
        """A request has its encoded response, or needs none.  All responses of a record have the same type."""
        self.versions[context.api_version] += 1
        if response is None:
            self.errors[0] += 1
        elif self._count_errors is None:
            self._count_errors = _counter_of_errors(type(response))
            self._count_errors(response, self.errors)
        else:
            self._count_errors(response, self.errors)
        if context.times is not None:
            self._ready(context.times, None if response is None else context.peer.timing)

    def _ready(self, times: RequestTimes, timing: ConnectionTiming | None) -> None:
        """`timing` is that of the connection if there is a response to be sent."""
        now_s = self._now_s()
        times.ready_s = now_s
        times.flushed_s = now_s
        times.sent_s = now_s
        self.latest.append(times)
        if timing is not None:
            timing.unsent.append(times)


class RequestRecorder:
    """The records of all APIs, by name; fetches of followers are recorded apart."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.apis: defaultdict[str, ApiRecord] = defaultdict(lambda: ApiRecord(now_s))
        self.follower_fetches = ApiRecord(now_s)


def _counter_of_errors(response: type) -> CountErrors:
    """Counts the error codes in responses of this type; of types without a code, one success."""
    counters = [_counter_at(path) for path in _paths_of_errors(response)]
    if not counters:
        return _count_success
    if len(counters) == 1:
        return counters[0]

    def count(message: Any, counts: defaultdict[int, int]) -> None:
        for counter in counters:
            counter(message, counts)

    return count


def _count_success(_: Any, counts: defaultdict[int, int]) -> None:
    counts[0] += 1


def _paths_of_errors(message: type, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The names of the nested lists that lead to a field error_code; empty for a field of the message itself."""
    found: list[tuple[str, ...]] = []
    hints = get_type_hints(message)
    for each in fields(message):
        if each.name == "error_code":
            found.append(above)
        for item in get_args(hints[each.name]):
            if isinstance(item, type) and is_dataclass(item):
                found += _paths_of_errors(item, (*above, each.name))
    return found


def _counter_at(path: tuple[str, ...]) -> CountErrors:
    """Written out for the usual depths, because Produce and Fetch are so frequent."""
    if not path:
        return _count_code
    items_of = attrgetter(path[0])
    if len(path) == 1:
        return lambda message, counts: _count_codes(items_of(message) or (), counts)
    if len(path) == 2:
        inner_of = attrgetter(path[1])

        def count(message: Any, counts: defaultdict[int, int]) -> None:
            for item in items_of(message) or ():
                for inner in inner_of(item) or ():
                    counts[inner.error_code] += 1

        return count
    below = _counter_at(path[1:])

    def descend(message: Any, counts: defaultdict[int, int]) -> None:
        for item in items_of(message) or ():
            below(item, counts)

    return descend


def _count_code(message: Any, counts: defaultdict[int, int]) -> None:
    counts[message.error_code] += 1


def _count_codes(items: Iterable[Any], counts: defaultdict[int, int]) -> None:
    for item in items:
        counts[item.error_code] += 1

"""Records when each request passed its stages, for metrics.  Kafka: RequestChannel.Metrics.

Every request is counted.  The first SAMPLES_MAX requests of an API are timed, and of the later ones every eighth,
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
from kctl.server.requests.context import ConnectionTiming, Peer, RequestTimes

FETCH_KEY = 1
_SUCCESS = (0,)
_TIMED_OF = 8


class ApiRecord:
    """The requests of one API, or of one kind of reader for Fetch."""

    __slots__ = ("errors", "latest", "seen", "versions")

    def __init__(self) -> None:
        self.seen = 0
        """Requests that have begun."""
        self.versions: defaultdict[int, int] = defaultdict(int)
        """Number of requests by version."""
        self.errors: defaultdict[int, int] = defaultdict(int)
        """Error codes in responses, also of single topics or partitions, by how often they occurred."""
        self.latest: deque[RequestTimes] = deque(maxlen=SAMPLES_MAX)

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(self.versions.values())


class RequestRecorder:
    """The records of all APIs, by name; fetches of followers are recorded apart."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.apis: defaultdict[str, ApiRecord] = defaultdict(ApiRecord)
        self.follower_fetches = ApiRecord()
        self._now_s = now_s
        self._readers: dict[type, Errors] = {}

    def begin(self, api: str, peer: Peer, request_bytes: int) -> RequestTimes | None:
        """A request is about to be decoded; None if it is not timed."""
        record = self.apis[api]
        seen = record.seen = record.seen + 1
        if seen > SAMPLES_MAX and seen % _TIMED_OF:
            return None
        now_s = self._now_s()
        timing = peer.timing
        return RequestTimes(request_bytes, now_s if timing is None else timing.received_s or now_s, now_s)

    def count(self, api: str, version: int, response: Any, *, is_follower: bool = False) -> None:
        """A request has its response, or needs none."""
        record = self.follower_fetches if is_follower else self.apis[api]
        record.versions[version] += 1
        errors = record.errors
        if response is None:
            errors[0] += 1
            return
        kind = type(response)
        reader = self._readers.get(kind)
        if reader is None:
            reader = self._readers[kind] = _reader_of_errors(kind)
        for code in reader(response):
            errors[code] += 1

    def ready(
        self, api: str, times: RequestTimes, timing: ConnectionTiming | None, *, is_follower: bool = False
    ) -> None:
        """The response of a timed request is encoded; `timing` is that of the connection if it has to be sent."""
        now_s = self._now_s()
        times.ready_s = now_s
        times.flushed_s = now_s
        times.sent_s = now_s
        (self.follower_fetches if is_follower else self.apis[api]).latest.append(times)
        if timing is not None:
            timing.unsent.append(times)


Errors = Callable[[Any], Iterable[int]]


def _reader_of_errors(response: type) -> Errors:
    """A function that returns the error codes in responses of this type; of types without a code, one success."""
    readers = [_reader_at(path) for path in _paths_of_errors(response)]
    if not readers:
        return lambda _: _SUCCESS
    if len(readers) == 1:
        return readers[0]
    return lambda response: [code for read in readers for code in read(response)]


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


def _reader_at(path: tuple[str, ...]) -> Errors:
    """Written out for the usual depths, because Produce and Fetch are so frequent."""
    if not path:
        return lambda message: (message.error_code,)
    first = attrgetter(path[0])
    if len(path) == 1:
        return lambda message: [item.error_code for item in first(message) or ()]
    if len(path) == 2:
        second = attrgetter(path[1])
        return lambda message: [code.error_code for item in first(message) or () for code in second(item) or ()]
    inner = _reader_at(path[1:])
    return lambda message: [code for item in first(message) or () for code in inner(item)]

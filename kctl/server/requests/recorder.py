"""Records when each request passed its stages, for metrics.  Kafka: RequestChannel.Metrics.

A request takes about 1 us here: one object, five readings of the clock, and three counters.  Durations and quantiles
are computed from the latest SAMPLES_MAX requests of an API when metrics are read.

Owner: event loop.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from kctl.server.metrics.quantiles import SAMPLES_MAX
from kctl.server.requests.context import ConnectionTiming, Peer, RequestTimes

FETCH_KEY = 1


class ApiRecord:
    """The requests of one API, or of one kind of reader for Fetch."""

    __slots__ = ("errors", "latest", "versions")

    def __init__(self) -> None:
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

    def begin(self, peer: Peer, request_bytes: int) -> RequestTimes:
        """A request is about to be decoded."""
        now_s = self._now_s()
        timing = peer.timing
        return RequestTimes(request_bytes, now_s if timing is None else timing.received_s or now_s, now_s)

    def handled(self, times: RequestTimes) -> None:
        """The handler has returned, with the response or with an awaitable of it."""
        times.handled_s = self._now_s()

    def finish(
        self, api: str, version: int, timing: ConnectionTiming | None, times: RequestTimes, *, response: Any
    ) -> None:
        """The response is encoded, or there is none."""
        times.ready_s = times.flushed_s = times.sent_s = self._now_s()
        record = self.follower_fetches if times.is_follower else self.apis[api]
        record.versions[version] += 1
        record.latest.append(times)
        if response is None:
            record.errors[0] += 1
            return
        for code in _reader_of_errors(type(response))(response):
            record.errors[code] += 1
        if timing is not None:
            timing.unsent.append(times)


Errors = Callable[[Any], Iterable[int]]


@cache
def _reader_of_errors(response: type) -> Errors:
    """A function that returns the error codes in responses of this type; of types without a code, one success."""
    found = _errors_in(response)
    if not found:
        return lambda _: (0,)
    if len(found) == 1:
        return found[0]
    return lambda response: [code for each in found for code in each(response)]


def _errors_in(message: type) -> list[Errors]:
    found: list[Errors] = []
    hints = get_type_hints(message)
    for each in fields(message):
        if each.name == "error_code":
            found.append(lambda message: (message.error_code,))
        for item in get_args(hints[each.name]):
            if isinstance(item, type) and is_dataclass(item):
                found += [_in_items(each.name, inner) for inner in _errors_in(item)]
    return found


def _in_items(name: str, inner: Errors) -> Errors:
    return lambda message: [code for item in getattr(message, name) or () for code in inner(item)]

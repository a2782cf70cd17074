"""RequestMetrics: number, errors, sizes and times of requests by API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kctl.errors import ErrorCode
from kctl.metrics.definitions import (
    AnyFamily,
    Definition,
    Family,
    HistogramFamily,
    HistogramValue,
    Kind,
    label_text,
    summarize,
)
from kctl.protocol import registry
from kctl.server.metrics.sources import Sources
from kctl.server.requests.recorder import ApiRecord, RequestTimes


def _definition(name: str, kind: Kind, unit: str, doc: str, *labels: str) -> Definition:
    return Definition("kafka.network", "RequestMetrics", name, kind, unit, doc, ("request", *labels))


REQUESTS = _definition("RequestsPerSec", Kind.METER, "requests", "Requests by API and version", "version")
ERRORS = _definition(
    "ErrorsPerSec", Kind.METER, "errors", "Error codes in responses by API; NONE is the number of successes", "error"
)
HISTOGRAMS: Mapping[Definition, Callable[[RequestTimes], float]] = {
    _definition("RequestBytes", Kind.HISTOGRAM, "bytes", "Size of requests"): lambda t: t.request_bytes,
    _definition("TotalTimeMs", Kind.HISTOGRAM, "ms", "Time from the arrival of a request to its sent response"): (
        lambda t: (t.sent_s - t.received_s) * 1000
    ),
    _definition("RequestQueueTimeMs", Kind.HISTOGRAM, "ms", "Time that a request waited for its turn"): (
        lambda t: t.queue_ms
    ),
    _definition("LocalTimeMs", Kind.HISTOGRAM, "ms", "Time for decoding and handling a request, without waiting"): (
        lambda t: t.local_ms
    ),
    _definition(
        "RemoteTimeMs", Kind.HISTOGRAM, "ms", "Time for waiting, for work in threads, and for encoding the response"
    ): lambda t: t.remote_ms,
    _definition("ThrottleTimeMs", Kind.HISTOGRAM, "ms", "Time for which a connection is muted after a response"): (
        lambda t: t.throttle_ms
    ),
    _definition("ResponseQueueTimeMs", Kind.HISTOGRAM, "ms", "Time that a response waited to be sent"): (
        lambda t: t.response_queue_ms
    ),
    _definition("ResponseSendTimeMs", Kind.HISTOGRAM, "ms", "Time until the socket had taken the response"): (
        lambda t: t.send_ms
    ),
}
"""How each is computed from the times of one request."""
CONVERSIONS = _definition(
    "MessageConversionsTimeMs", Kind.HISTOGRAM, "ms", "Time for converting the records of a partition to another format"
)
DEFINITIONS = (REQUESTS, ERRORS, *HISTOGRAMS, CONVERSIONS)


class _Both:
    """The Fetch requests of consumers and followers together."""

    def __init__(self, records: tuple[ApiRecord, ApiRecord]) -> None:
        self.latest = [*records[0].latest, *records[1].latest]
        self.count = records[0].count + records[1].count


def families(sources: Sources) -> Iterator[AnyFamily]:
    """Yield the values of the APIs that were requested.  Fetch requests are listed by reader too."""
    followers = sources.recorder.follower_fetches
    records: dict[str, ApiRecord] = {}
    for name, record in list(sources.recorder.apis.items()):
        kafka_name = registry.api_named(name).kafka_name
        records["FetchConsumer" if kafka_name == "Fetch" else kafka_name] = record
    records.setdefault("FetchConsumer", sources.recorder.apis["fetch"])
    records["FetchFollower"] = followers
    counted = list(records.items())
    labels = {name: label_text(request=name) for name in ("Fetch", *records)}
    yield Family(
        REQUESTS,
        (
            (f'{labels[shown]},version="{version}"', count)
            for name, record in counted
            for shown in _shown(name)
            for version, count in _versions(shown, record, records)
            if not (shown == "Fetch" and name == "FetchFollower")
        ),
    )
    yield Family(
        ERRORS,
        (
            (f'{labels[name]},error="{ErrorCode.of(code).name}"', count)
            for name, record in counted
            for code, count in record.error_codes.items()
        ),
    )
    both = _Both((records["FetchConsumer"], followers))
    for definition, value_of in HISTOGRAMS.items():
        yield HistogramFamily(
            definition,
            _histograms(value_of, counted, both, labels),
        )
    traffic = sources.parts.replicas.traffic
    conversions = {"Produce": traffic.produce_conversion_times, "FetchConsumer": traffic.fetch_conversion_times}
    yield HistogramFamily(
        CONVERSIONS,
        (
            (label_text(request=api), summarize(conversion.latest_ms, conversion.count))
            for api, conversion in conversions.items()
        ),
    )


def _histograms(
    value_of: Callable[[RequestTimes], float],
    records: Sequence[tuple[str, ApiRecord]],
    fetches: _Both,
    labels: Mapping[str, str],
) -> Iterator[tuple[str, HistogramValue]]:
    for name, record in records:
        yield labels[name], summarize(map(value_of, record.latest), record.count)
    yield labels["Fetch"], summarize(map(value_of, fetches.latest), fetches.count)


def _shown(name: str) -> tuple[str, ...]:
    return ("Fetch", name) if name == "FetchConsumer" else (name,)


def _versions(shown: str, record: ApiRecord, records: Mapping[str, ApiRecord]) -> list[tuple[int, int]]:
    counts = record.versions
    if shown == "Fetch":
        both = records["FetchConsumer"].versions, records["FetchFollower"].versions
        counts = [consumers + followers for consumers, followers in zip(*both, strict=True)]
    return [(version, count) for version, count in enumerate(counts) if count]

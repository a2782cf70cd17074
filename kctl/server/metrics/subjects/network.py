"""Connections, queues and the idle time of the event loop, which is network processor and request handler in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kctl.limits import Subject, bound
from kctl.metrics.definitions import Definition, Family, Kind, label_text, single
from kctl.output.quantities import INT64_MAX
from kctl.server.metrics.sources import Sources

METRICS_CLIENT_SOFTWARE_MAX = bound(
    Subject.METRICS_ENDPOINT,
    "names and versions of client software that are counted apart",
    200,
    "pairs",
    on_excess="further ones are counted together as `other`",
)


IDLE = Definition(
    "kafka.network",
    "SocketServer",
    "NetworkProcessorAvgIdlePercent",
    Kind.GAUGE,
    "share",
    "Share of the last minute in which the event loop was idle, from 0 to 1",
)
PROCESSOR_IDLE = Definition(
    "kafka.network",
    "Processor",
    "IdlePercent",
    Kind.GAUGE,
    "share",
    "The same value as NetworkProcessorAvgIdlePercent, for the one network processor, 0",
    ("networkprocessor",),
)
MEMORY_USED = Definition(
    "kafka.network",
    "SocketServer",
    "MemoryPoolUsed",
    Kind.GAUGE,
    "bytes",
    "Memory of requests that are being received and handled",
)
MEMORY_AVAILABLE = Definition(
    "kafka.network",
    "SocketServer",
    "MemoryPoolAvailable",
    Kind.GAUGE,
    "bytes",
    "What queued.max.request.bytes leaves for more requests; without a limit the largest 64-bit number, as in Kafka",
)
EXPIRED = Definition(
    "kafka.network",
    "SocketServer",
    "ExpiredConnectionsKilledCount",
    Kind.GAUGE,
    "connections",
    "Connections closed since the start because their client had not authenticated again in time (KIP-368)",
)
HANDLER_IDLE = Definition(
    "kafka.server",
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent",
    Kind.GAUGE,
    "share",
    "The same value as NetworkProcessorAvgIdlePercent: one event loop does both",
)
HANDLER_IDLE_RATE = Definition(
    "kafka.server",
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent_OneMinuteRate",
    Kind.GAUGE,
    "share",
    "The same value as RequestHandlerAvgIdlePercent",
)
HANDLER_IDLE_TOTAL = Definition(
    "kafka.server",
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent",
    Kind.METER,
    "ns",
    "Time in which the event loop was idle since its start",
)
REQUEST_QUEUE = Definition(
    "kafka.network",
    "RequestChannel",
    "RequestQueueSize",
    Kind.GAUGE,
    "connections",
    "Requests in the queue",
)
RESPONSE_QUEUE = Definition(
    "kafka.network",
    "RequestChannel",
    "ResponseQueueSize",
    Kind.GAUGE,
    "connections",
    "Connections whose responses wait for the peer to read",
)
_SOCKETS = "socket-server-metrics"
CONNECTION_COUNT = Definition(
    "kafka.server", _SOCKETS, "connection-count", Kind.GAUGE, "connections", "Open connections", ("listener",)
)
CREATION_RATE = Definition(
    "kafka.server",
    _SOCKETS,
    "connection-creation-rate",
    Kind.GAUGE,
    "connections/s",
    "Connections accepted per second in the last minute",
    ("listener",),
)
CLOSE_RATE = Definition(
    "kafka.server",
    _SOCKETS,
    "connection-close-rate",
    Kind.GAUGE,
    "connections/s",
    "Connections closed per second in the last minute",
    ("listener",),
)
SOFTWARE = Definition(
    "kafka.server",
    _SOCKETS,
    "connections",
    Kind.GAUGE,
    "connections",
    "Open connections by the software of the client (KIP-511)",
    ("client_software_name", "client_software_version"),
)
DEFINITIONS = (
    IDLE,
    PROCESSOR_IDLE,
    MEMORY_USED,
    MEMORY_AVAILABLE,
    EXPIRED,
    HANDLER_IDLE,
    HANDLER_IDLE_RATE,
    HANDLER_IDLE_TOTAL,
    REQUEST_QUEUE,
    RESPONSE_QUEUE,
    CONNECTION_COUNT,
    CREATION_RATE,
    CLOSE_RATE,
    SOFTWARE,
)


def families(sources: Sources) -> Iterator[Family]:
    """Yield the state of the network."""
    now, minute, listening = sources.sample(), sources.last_minute, sources.listening()
    idle_share = minute.idle_share(now)
    for definition in (IDLE, HANDLER_IDLE, HANDLER_IDLE_RATE):
        yield single(definition, idle_share)
    yield Family(PROCESSOR_IDLE, ((label_text(networkprocessor="0"), idle_share),))
    used, limit = listening.received_bytes, listening.received_bytes_max
    yield single(MEMORY_USED, used)
    yield single(MEMORY_AVAILABLE, max(limit - used, 0) if limit > 0 else INT64_MAX)
    yield single(EXPIRED, sources.channels.expired_sessions)
    yield single(HANDLER_IDLE_TOTAL, int(sources.idle_s() * 1e9))
    yield single(REQUEST_QUEUE, listening.queued_requests)
    yield single(RESPONSE_QUEUE, listening.queued_responses)
    listeners = {name: label_text(listener=name) for name in sorted(sources.limits.admitted)}
    open_now = dict(sources.limits.by_listener)
    yield Family(CONNECTION_COUNT, ((text, open_now.get(name, 0)) for name, text in listeners.items()))
    yield Family(CREATION_RATE, ((text, minute.opened_per_second(now, name)) for name, text in listeners.items()))
    yield Family(CLOSE_RATE, ((text, minute.closed_per_second(now, name)) for name, text in listeners.items()))
    counted = Counter(timing.software for timing in listening.timings)
    shown = counted.most_common(METRICS_CLIENT_SOFTWARE_MAX)
    others = counted.total() - sum(count for _, count in shown)
    rows = [(("other", "other"), others), *shown] if others else shown
    yield Family(
        SOFTWARE,
        ((label_text(client_software_name=n, client_software_version=v), count) for (n, v), count in rows),
    )

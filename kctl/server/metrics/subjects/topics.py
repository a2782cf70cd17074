"""BrokerTopicMetrics: the traffic of clients and followers, for all topics together and for each topic."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.metrics.definitions import NO_LABELS, Definition, Family, Kind, label_text
from kctl.server.metrics.sources import Sources


def _meter(name: str, unit: str, doc: str, *labels: str) -> Definition:
    return Definition("kafka.server", "BrokerTopicMetrics", name, Kind.METER, unit, doc, labels)


def _of_topic(name: str, unit: str, doc: str) -> Definition:
    return _meter(name, unit, doc, "topic")


OF_TOPICS = {
    "messages_in": _of_topic("MessagesInPerSec", "records", "Records appended to topics by producers and coordinators"),
    "bytes_in": _of_topic("BytesInPerSec", "bytes", "Size of record batches appended by producers and coordinators"),
    "bytes_out": _of_topic("BytesOutPerSec", "bytes", "Size of record batches sent to consumers"),
    "bytes_rejected": _of_topic("BytesRejectedPerSec", "bytes", "Size of batches refused because they were too large"),
    "produce_requests": _of_topic("TotalProduceRequestsPerSec", "partitions", "Partitions in Produce requests"),
    "fetch_requests": _of_topic("TotalFetchRequestsPerSec", "partitions", "Partitions in responses to Fetch requests"),
    "failed_produce_requests": _of_topic(
        "FailedProduceRequestsPerSec", "partitions", "Partitions in Produce requests that failed unexpectedly"
    ),
    "failed_fetch_requests": _of_topic(
        "FailedFetchRequestsPerSec", "partitions", "Partitions in Fetch requests that failed unexpectedly"
    ),
    "produce_conversions": _of_topic(
        "ProduceMessageConversionsPerSec", "batches", "Batches stored in another message format than they were sent in"
    ),
    "fetch_conversions": _of_topic(
        "FetchMessageConversionsPerSec",
        "partitions",
        "Partitions sent in another message format than they are stored in",
    ),
}
"""By attribute of TopicTraffic; also with the label of a topic."""
OF_BROKER = {
    "replication_bytes_in": _meter("ReplicationBytesInPerSec", "bytes", "Size of batches copied from leaders"),
    "replication_bytes_out": _meter("ReplicationBytesOutPerSec", "bytes", "Size of batches sent to followers"),
    "reassignment_bytes_in": _meter(
        "ReassignmentBytesInPerSec", "bytes", "Size of batches copied to replicas that a reassignment adds here"
    ),
    "reassignment_bytes_out": _meter(
        "ReassignmentBytesOutPerSec", "bytes", "Size of batches sent to replicas that a reassignment adds"
    ),
    "keyless_in_compacted": _meter(
        "NoKeyCompactedTopicRecordsPerSec", "records", "Records without a key that were refused by compacted topics"
    ),
    "invalid_magic_numbers": _meter(
        "InvalidMagicNumberRecordsPerSec", "batches", "Batches refused because of their message format"
    ),
    "invalid_checksums": _meter(
        "InvalidMessageCrcRecordsPerSec", "batches", "Batches refused because they were damaged or malformed"
    ),
    "invalid_sequences": _meter(
        "InvalidOffsetOrSequenceRecordsPerSec", "batches", "Batches refused because of their sequence number"
    ),
}
"""For all topics together only."""
DEFINITIONS = (*OF_TOPICS.values(), *OF_BROKER.values())


def families(sources: Sources) -> Iterator[Family]:
    """Yield the counters of all topics; the values without a label are those of all topics together."""
    traffic = sources.parts.replicas.traffic
    total = traffic.total()
    topics = [(label_text(topic=topic), counters) for topic, counters in traffic.topics.items()]
    for attribute, definition in OF_TOPICS.items():
        # As in the rules of the JMX exporter, one family has both: a sum over it would count twice.
        rows = ((labels, getattr(counters, attribute)) for labels, counters in topics)
        yield Family(definition, _with_total(getattr(total, attribute), rows))
    for attribute, definition in OF_BROKER.items():
        yield Family(definition, ((NO_LABELS, getattr(total, attribute)),))


def _with_total(total: int, rows: Iterator[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    yield NO_LABELS, total
    yield from rows

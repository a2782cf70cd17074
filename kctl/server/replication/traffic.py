"""Counts the records and bytes that clients and followers write to and read from topics.  Kafka: BrokerTopicStats.

Owner: event loop.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kctl.server.metrics.durations import Durations


@dataclass(slots=True)
class TopicTraffic:
    """Counters since the start, of one topic or of several."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    """Bytes sent to consumers."""
    bytes_rejected: int = 0
    """Bytes of batches above max.message.bytes."""
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0
    produce_conversions: int = 0
    """Batches stored in another message format than that of the request."""
    fetch_conversions: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    reassignment_bytes_in: int = 0
    """The part of the replicated bytes that a replica added by a reassignment receives."""
    reassignment_bytes_out: int = 0
    invalid_magic_numbers: int = 0
    invalid_checksums: int = 0
    invalid_sequences: int = 0
    keyless_in_compacted: int = 0

    def add(self, other: TopicTraffic) -> None:
        """Adds the counters of another topic."""
        for name in TopicTraffic.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class BrokerTraffic:
    """The counters of all topics with a replica on this broker."""

    topics: dict[str, TopicTraffic] = field(default_factory=dict)
    others: TopicTraffic = field(default_factory=TopicTraffic)
    """Counts of requests for unknown topics, and the counts of topics that no longer have a replica here."""
    produce_conversion_times: Durations = field(default_factory=Durations)
    """Time of converting batches of a Produce request to the format in which they are stored."""
    fetch_conversion_times: Durations = field(default_factory=Durations)
    """Time of converting the batches that a Fetch request reads to an older format."""

    def of(self, topic: str) -> TopicTraffic:
        """The counters of a topic, new ones for a new topic; only for topics with a replica here."""
        return self.topics.setdefault(topic, TopicTraffic())

    def found(self, topic: str) -> TopicTraffic:
        """The counters of a topic that a client has named: `others` if it has no replica here."""
        return self.topics.get(topic, self.others)

    def drop(self, topics: Iterable[str]) -> None:
        """Removes the counters of topics without a replica here; they remain in the total."""
        for topic in topics:
            counters = self.topics.pop(topic, None)
            if counters is not None:
                self.others.add(counters)

    def total(self) -> TopicTraffic:
        """The counters of all topics together."""
        total = TopicTraffic()
        total.add(self.others)
        for traffic in self.topics.values():
            total.add(traffic)
        return total

"""Records as an application sends them, and interceptors that see each record and its result."""

from __future__ import annotations

from typing import Any, NamedTuple

from kctl.client.producing.batches import RecordMetadata
from kctl.errors import KctlError


class ProducerRecord(NamedTuple):
    """A record before serialization.  `partition` None lets the partitioner select, `timestamp_ms` None is now."""

    topic: str
    value: Any
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Is called for every record; subclasses override what they need.  ProducerInterceptor of Kafka's clients.

    `on_send` runs in the caller of `send`, and its exceptions are raised there.  `on_result` runs on the event loop of
    the producer and must not block.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send instead, before serialization."""
        return record

    def on_result(self, record: ProducerRecord, result: RecordMetadata | KctlError) -> None:
        """The record was acknowledged or has failed."""

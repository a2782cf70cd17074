"""The settings of a producer."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.client.producing.accumulator import Limits
from kctl.records.compression import Codec

ACKS_ALL = -1
IN_FLIGHT_MAX_IDEMPOTENT = 5
"""A broker keeps the sequence numbers of so many batches (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer.  `acks`: 0 no response, 1 the leader has the records, -1 all in-sync replicas do."""

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    codec_level: int | None = None
    """None for the level that Kafka's broker uses."""
    idempotent: bool = True
    linger_ms: int = 5
    batch_bytes: int = 64 << 10
    batch_records: int = 10_000
    buffered_records_max: int = 100_000
    buffered_bytes_max: int = 64 << 20
    max_block_ms: int | None = None
    """How long `send` waits while the buffer is full, and for the topic; None for as long as it takes, and for the
    client's timeout.
    """
    delivery_timeout_ms: int | None = None
    """Time from the first record of a batch until the batch fails; None: the client's timeout, which begins when the
    batch is the first one of its partition, and after which those behind it fail too.
    """
    retries: int | None = None
    """How often a batch is sent again; None for as long as the time permits."""
    record_bytes_max: int | None = None
    """max.request.size: a larger record fails; None without a bound.  `batch_bytes` must not be larger."""
    in_flight_max: int = 5
    """max.in.flight.requests.per.connection, which is 5 at most with idempotence."""
    request_bytes_max: int = 1 << 20
    """A request with several batches is not larger."""
    creates_topics: bool = False
    """Whether a topic that does not exist may be created by the brokers (auto.create.topics.enable)."""

    def limits(self, client_timeout_ms: int) -> Limits:
        """When batches are closed and sent; `client_timeout_ms` is the time of a batch without a delivery timeout."""
        return Limits(
            linger_ms=self.linger_ms,
            batch_bytes=self.batch_bytes,
            batch_records=self.batch_records,
            buffered_records_max=self.buffered_records_max,
            buffered_bytes_max=self.buffered_bytes_max,
            delivery_timeout_ms=self.delivery_timeout_ms,
            attempt_timeout_ms=client_timeout_ms,
            retries=self.retries,
            in_flight_max=min(self.in_flight_max, IN_FLIGHT_MAX_IDEMPOTENT) if self.idempotent else self.in_flight_max,
            request_bytes_max=self.request_bytes_max,
        )

"""The port to the client that produces and consumes, and the choice between the two that implement it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from kctl.admin.perf.measurement import Load, Measurement, Schedule
from kctl.client.settings import ClientSettings
from kctl.errors import UsageError
from kctl.model import TopicPartition

ClientName = Literal["auto", "librdkafka", "kctl"]


@dataclass(frozen=True, slots=True)
class ProducedRecords:
    """The values of the test records, and the settings of their producer, with Kafka's meanings."""

    values: Iterator[bytes]
    acks: int = -1
    compression: str = "none"
    linger_ms: int = 5
    batch_bytes: int = 64 << 10


@dataclass(frozen=True, slots=True)
class LoadRun:
    """One run of a client: how much it sends or receives, and where it counts that."""

    load: Load
    measured: Measurement
    report: Callable[[], None]
    """Called often; shows an interval when one is over."""

    def schedule(self) -> Schedule:
        """When to send or receive, from the start of the measurement."""
        return Schedule(self.load, self.measured.start_ns)


class LoadClient(Protocol):
    """Produces and consumes test records.  All methods block and may be interrupted by a signal."""

    @property
    def name(self) -> str:
        """Name and version, which results show."""
        ...

    def produce(self, topic: str, records: ProducedRecords, run: LoadRun) -> None:
        """Writes values by the schedule of the load, and waits for their acknowledgements.  Raises KctlError."""
        ...

    def consume(self, ranges: Mapping[TopicPartition, tuple[int, int]], run: LoadRun) -> None:
        """Reads the partitions from and to these offsets, until the load is reached.  Raises KctlError."""
        ...

    def round_trips(self, ends: Mapping[TopicPartition, int], records: ProducedRecords, run: LoadRun) -> None:
        """Writes one value at a time, and reads it at the end of its partition.  Raises KctlError."""
        ...


def choose_client(wanted: ClientName, settings: ClientSettings) -> LoadClient:
    """The client of that name; auto is librdkafka if it is installed and the listener has no TLS and SASL.

    Raises UsageError if librdkafka is required and cannot be used.
    """
    has_librdkafka = importlib.util.find_spec("confluent_kafka") is not None
    if wanted == "librdkafka" and not has_librdkafka:
        raise UsageError("librdkafka is not installed; run: pip install 'kctl-kafka[perf]'")
    if wanted == "librdkafka" and settings.security is not None:
        raise UsageError("--client librdkafka is for listeners without TLS and SASL; use --client kctl")
    if wanted == "kctl" or not has_librdkafka or settings.security is not None:
        from kctl.admin.perf.own_client import OwnClient  # noqa: PLC0415 - only one of the two is needed

        return OwnClient(settings)
    from kctl.admin.perf.librdkafka import Librdkafka  # noqa: PLC0415 - an extra

    return Librdkafka(settings)

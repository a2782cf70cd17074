"""The port to the client that produces and consumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from kctl.admin.perf.measurement import Load, Measurement, Schedule
from kctl.client.producer import ProducerSettings
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class ProducedRecords:
    """The values of the test records, and the settings of their producer."""

    values: Iterator[bytes]
    settings: ProducerSettings


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

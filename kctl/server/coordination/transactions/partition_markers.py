"""Writes transaction markers as leader of a partition: one control batch per partition, acknowledged when replicated.

The log refuses a marker of an older producer epoch (INVALID_PRODUCER_EPOCH) or of an older coordinator
(TRANSACTION_COORDINATOR_FENCED).  A marker in `__consumer_offsets` commits or aborts the producer's offset commits
there, so the group coordinator is notified.  Writing a marker twice is harmless.

Owner: event loop.  Kafka: KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from kctl.errors import ErrorCode
from kctl.model import GROUP_METADATA_TOPIC, ProducerIdAndEpoch, TopicPartition
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.server.coordination.ports import ALL_IN_SYNC, AppendOutcome, outcome_of
from kctl.server.coordination.replies import append_or_refuse
from kctl.server.coordination.transactions.events import VERSION_WITH_RAISED_EPOCHS
from kctl.server.coordination.transactions.ports import GroupOffsets, PartitionAppends
from kctl.server.loop.slices import Slices
from kctl.system.environment import Clock

_APPEND = 10
"""How many refused markers take as long as one that is appended."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of one producer's transaction, for some partitions."""

    producer: ProducerIdAndEpoch
    committed: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    version: int = 0
    """The version of the transaction; from VERSION_WITH_RAISED_EPOCHS on the epoch is above that of its records."""


class PartitionMarkers:
    """Writes markers to partitions that this broker leads."""

    def __init__(
        self,
        appends: PartitionAppends,
        groups: GroupOffsets,
        clock: Clock,
        *,
        timeout_ms: int,
        on_append: Callable[[TopicPartition, int], None] = lambda _partition, _producer_id: None,
    ) -> None:
        """`on_append` is called with the partition and the producer id before a marker is appended."""
        self._on_append = on_append
        self._appends = appends
        self._groups = groups
        self._clock = clock
        self._timeout_ms = timeout_ms

    async def write(self, markers: Iterable[Marker]) -> list[dict[TopicPartition, ErrorCode]]:
        """Write the markers; return the error of each marker and partition when all are known."""
        outcomes: list[dict[TopicPartition, ErrorCode]] = []
        waiting: list[asyncio.Future[AppendOutcome]] = []
        slices = Slices()
        for marker in markers:
            errors: dict[TopicPartition, ErrorCode] = dict.fromkeys(marker.partitions, ErrorCode.REQUEST_TIMED_OUT)
            outcomes.append(errors)
            async for partition in slices.of(marker.partitions, self._cost_of):
                outcome = self._append(marker, partition)
                if isinstance(outcome, asyncio.Future):
                    outcome.add_done_callback(partial(self._appended_later, marker, partition, errors))
                    waiting.append(outcome)
                else:
                    self._appended(marker, partition, errors, outcome)
        if waiting:
            await asyncio.wait(waiting)
        return outcomes

    def _cost_of(self, partition: TopicPartition) -> int:
        return _APPEND if self._appends.is_hosted(partition) else 1

    def _append(self, marker: Marker, partition: TopicPartition) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        if not self._appends.is_hosted(partition):
            return AppendOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if marker.version >= VERSION_WITH_RAISED_EPOCHS and self._appends.is_open(partition, marker.producer):
            # The marker of an earlier transaction: its own epoch is above that of the records (KIP-1228).
            return AppendOutcome(ErrorCode.INVALID_PRODUCER_EPOCH)

        def append() -> AppendOutcome | asyncio.Future[AppendOutcome]:
            kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
            batch = build_end_transaction_marker(
                EndTransactionMarker(kind, marker.coordinator_epoch),
                producer_id=marker.producer.producer_id,
                producer_epoch=marker.producer.epoch,
                timestamp=self._clock.now_ms(),
            )
            self._on_append(partition, marker.producer.producer_id)
            return self._appends.append(partition, batch, required_acks=ALL_IN_SYNC, timeout_ms=self._timeout_ms)

        return append_or_refuse(append, f"marker={marker.producer} partition={partition}")

    def _appended_later(
        self,
        marker: Marker,
        partition: TopicPartition,
        errors: dict[TopicPartition, ErrorCode],
        future: asyncio.Future[AppendOutcome],
    ) -> None:
        if not future.cancelled():
            self._appended(marker, partition, errors, outcome_of(future))

    def _appended(
        self,
        marker: Marker,
        partition: TopicPartition,
        errors: dict[TopicPartition, ErrorCode],
        outcome: AppendOutcome,
    ) -> None:
        errors[partition] = outcome.error
        topic, index = partition
        if topic == GROUP_METADATA_TOPIC and outcome.error is ErrorCode.NONE:
            # Callbacks of commits that the same advance of the high watermark confirmed run first.
            notify = partial(self._groups.transaction_completed, index, marker.producer.producer_id)
            asyncio.get_running_loop().call_soon(partial(notify, committed=marker.committed))

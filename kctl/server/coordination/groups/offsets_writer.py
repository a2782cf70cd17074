"""Writes the records of groups to their partition of `__consumer_offsets`.

Each call is one batch.  Commits and generations wait for offsets.commit.required.acks, and the result is returned now
or later; tombstones are not waited for, because a lost one is written again.  Commits of a producer's transaction carry
its id and epoch, so that its marker in the partition commits or aborts them.

Owner: event loop.  Kafka: GroupMetadataManager.storeGroup, storeOffsets, cleanupGroupMetadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kctl.errors import ApiError, ErrorCode
from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.server.coordination.groups.actions import (
    CommitOutcome,
    PersistGroup,
    PersistNewerGroup,
    PersistOffsets,
    PersistTombstones,
)
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.newer_records import newer_group_records
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.records import (
    group_record,
    group_record_in_pieces,
    offset_records,
    stored_bytes,
    tombstones,
)
from kctl.server.coordination.partitions import LedPartition
from kctl.server.coordination.ports import AppendOutcome, CoordinatorLog
from kctl.server.coordination.replies import Reply, append_or_refuse, refused, result_of
from kctl.server.loop.slices import sliced_batches
from kctl.system.environment import Clock
from kctl.system.steps import Steps

NO_ACKS = 0


class OffsetsWriter:
    """Writes for all groups of a broker."""

    def __init__(self, offsets_log: CoordinatorLog, config: GroupConfig, clock: Clock) -> None:
        self._log = offsets_log
        self._codec = Codec(config.offsets_topic_compression_codec)
        self._required_acks = config.offsets_commit_required_acks
        self._timeout_ms = config.offsets_commit_timeout_ms
        self._commit_version = config.offset_commit_value_version
        self._group_version = config.group_metadata_value_version
        self._clock = clock

    def group(
        self, partition: LedPartition[Any], group_id: str, action: PersistGroup
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """Write the record of the group's current generation.

        One that would be refused for its size is not encoded: for 1,000 members with 42 KB each that took 300 ms.
        """

        def batch() -> bytes:
            self._check_size(partition, action)
            return self._batch([group_record(group_id, action.snapshot, self._clock.now_ms(), self._group_version)])

        return self._append(partition, group_id, batch, required_acks=self._required_acks)

    def group_in_pieces(
        self, partition: LedPartition[Any], group_id: str, action: PersistGroup
    ) -> Steps[AppendOutcome | asyncio.Future[AppendOutcome]]:
        """As `group`, for many members: yields after each part of the record."""
        try:
            self._check_size(partition, action)
            now_ms = self._clock.now_ms()
            record = yield from group_record_in_pieces(group_id, action.snapshot, now_ms, self._group_version)
        except ApiError as error:
            return AppendOutcome(error.code)
        except Exception:
            return refused(_what(partition, group_id))
        return self._append(partition, group_id, lambda: self._batch([record]), required_acks=self._required_acks)

    def _check_size(self, partition: LedPartition[Any], action: PersistGroup) -> None:
        size_max = self._log.batch_bytes_max(partition.index)
        if self._codec is Codec.NONE and stored_bytes(action.snapshot) > size_max:
            code = ErrorCode.MESSAGE_TOO_LARGE
            raise ApiError(code, f"the members of the generation have more than {size_max} bytes")

    def offsets(
        self, partition: LedPartition[Any], group_id: str, action: PersistOffsets
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """Write commits, which may be part of a transaction."""

        def batch() -> bytes:
            records = offset_records(group_id, action.offsets, self._clock.now_ms(), self._commit_version)
            producer = action.producer
            return self._batch(records) if producer is None else self._transactional_batch(records, producer)

        return self._append(partition, group_id, batch, required_acks=self._required_acks)

    def tombstones(self, partition: LedPartition[Any], group_id: str, action: PersistTombstones) -> None:
        """Write tombstones for these commits and, if `is_group_gone`, for the group."""

        def batch() -> bytes:
            now_ms = self._clock.now_ms()
            records = tombstones(group_id, action.partitions, is_group_gone=action.is_group_gone, timestamp_ms=now_ms)
            return self._batch(records + newer_group_records(group_id, action.newer, now_ms))

        self._append(partition, group_id, batch, required_acks=NO_ACKS)

    def newer_group(
        self, partition: LedPartition[Any], group_id: str, action: PersistNewerGroup
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """Write changes of a group of one of the newer types, in one batch."""

        def batch() -> bytes:
            now_ms = self._clock.now_ms()
            records = tombstones(group_id, (), is_group_gone=action.deletes_classic, timestamp_ms=now_ms)
            records += newer_group_records(group_id, action.changes, now_ms)
            if action.classic is not None:
                records.append(group_record(group_id, action.classic, now_ms, self._group_version))
            return self._batch(records)

        return self._append(partition, group_id, batch, required_acks=self._required_acks)

    def _batch(self, records: Sequence[Record]) -> bytes:
        return build_batch(records, codec=self._codec)

    def _transactional_batch(self, records: Sequence[Record], producer: ProducerIdAndEpoch) -> bytes:
        return build_batch(
            records,
            codec=self._codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )

    def _append(
        self, partition: LedPartition[Any], group_id: str, batch: Callable[[], bytes], *, required_acks: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        def append() -> AppendOutcome | asyncio.Future[AppendOutcome]:
            try:
                made = batch()
            except ApiError as error:
                return AppendOutcome(error.code)
            return self._log.append(partition.index, made, required_acks=required_acks, timeout_ms=self._timeout_ms)

        return append_or_refuse(append, _what(partition, group_id))


def _what(partition: LedPartition[Any], group_id: str) -> str:
    return f"group={group_id!r} partition={partition.index}"


Offsets = Mapping[TopicPartition, OffsetAndMetadata]


async def commit_sliced(offsets: Offsets, commit: Callable[[Offsets], Reply[CommitOutcome]]) -> CommitOutcome:
    """Call `commit` for some offsets at a time, between which the loop serves others; return the outcome of all
    partitions.

    A commit of 10,000 partitions as one batch takes 80 ms, and its batch exceeds the usual `max.message.bytes`.  Each
    part has its own outcome, as partitions have anyway: what is committed in a transaction is decided by its marker,
    and without one a client that gets no response does not know what was committed.
    """
    if len(offsets) <= REQUEST_ELEMENTS_PER_SLICE_MAX:
        reply = commit(offsets)
        return await reply if isinstance(reply, asyncio.Future) else reply
    # The later batches are appended while the earlier ones are replicated.
    batches = sliced_batches(tuple(offsets.items()), REQUEST_ELEMENTS_PER_SLICE_MAX)
    outcomes: dict[TopicPartition, ErrorCode] = {}
    for reply in [commit(dict(batch)) async for batch in batches]:
        outcome = await result_of(reply)
        outcomes.update(outcome)
    return outcomes

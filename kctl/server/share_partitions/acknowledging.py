"""Acknowledgements of acquired records: their checks, and what becomes of the records.

All batches of a partition are checked before any is applied: if one is refused, nothing has changed.

Pure.  Kafka: KafkaApis.validateAcknowledgementBatches, SharePartition.acknowledge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from kctl.errors import ApiError, ErrorCode
from kctl.server.share_partitions.partition import ShareLimits, SharePartition
from kctl.server.share_partitions.values import DeliveryState


class AcknowledgeType(IntEnum):
    """What a member has done with records, by the numbers in the protocol."""

    GAP = 0
    """There is no record at the offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """It is still being processed (KIP-1222)."""


class Acknowledgement(NamedTuple):
    """Offsets from first to last, inclusive, and what was done with them."""

    first: int
    last: int
    type: AcknowledgeType


_TYPES = {kind.value: kind for kind in AcknowledgeType}


def acknowledgements(batches: Iterable[tuple[int, int, Sequence[int]]], *, may_renew: bool) -> list[Acknowledgement]:
    """Return the batches of a request, each of one type.

    Raises ApiError(INVALID_REQUEST) for batches that are not ascending, and for types that do not fit.
    """
    parts: list[Acknowledgement] = []
    end = -1
    for first, last, types in batches:
        if first < end or first < 0:
            raise _invalid("the batches of acknowledgements must be ascending and may not overlap")
        if first == end:
            # As Kafka, which finds that when the second one is applied.
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, f"offset {first} is acknowledged twice")
        if first > last:
            raise _invalid("the last offset of a batch of acknowledgements is before its first one")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise _invalid("a batch of acknowledgements has one type, or one for each offset")
        end = last
        ends = (last,) if len(types) == 1 else range(first, last + 1)
        begin = first
        for stop, number in zip(ends, types, strict=True):
            kind = _TYPES.get(number)
            if kind is None or (kind is AcknowledgeType.RENEW and not may_renew):
                raise _invalid(f"{number} is not a type of acknowledgements of this request")
            if parts and parts[-1].last + 1 == begin and parts[-1].type is kind:
                parts[-1] = parts[-1]._replace(last=stop)
            else:
                parts.append(Acknowledgement(begin, stop, kind))
            begin = stop + 1
    return parts


def acknowledge(
    partition: SharePartition,
    member_id: str,
    requested: Sequence[Acknowledgement],
    limits: ShareLimits,
    now_ms: int,
) -> bool:
    """Stage the acknowledgements of a member; return whether there is something to write.

    Raises ApiError: INVALID_RECORD_STATE for records that the member has not, INVALID_REQUEST for offsets that were
    never handed out.  Offsets before the start of the share-partition are done, and are passed over.
    """
    for part in requested:
        _check(partition, member_id, part)
    has_staged = False
    for part in requested:
        for span in partition.between(part.first, part.last):
            if part.type is AcknowledgeType.RENEW:
                span.deadline_ms = now_ms + limits.lock_ms
            else:
                span.becomes = _next_state(part.type, span.delivery_count, limits)
                has_staged = True
    return has_staged


def _check(partition: SharePartition, member_id: str, part: Acknowledgement) -> None:
    if part.last < partition.start_offset:
        return
    if part.last >= partition.end_offset:
        raise _invalid(f"The last offset {part.last} is past the acquired records.")
    for span in partition.overlapping(max(part.first, partition.start_offset), part.last):
        if not span.is_locked or span.member_id != member_id:
            message = f"The records from offset {part.first} to {part.last} are not acquired by member {member_id}."
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, message)


def _next_state(kind: AcknowledgeType, delivery_count: int, limits: ShareLimits) -> DeliveryState:
    if kind is AcknowledgeType.ACCEPT:
        return DeliveryState.ACKNOWLEDGED
    if kind is AcknowledgeType.RELEASE and delivery_count < limits.delivery_count_max:
        return DeliveryState.AVAILABLE
    return DeliveryState.ARCHIVED


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)

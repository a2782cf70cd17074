"""Control batches: the markers that end a transaction in a partition.  KIP-98.

A batch contains one record and is never compressed.  The key has the type, the value the epoch of the coordinator:

    key    version i16 (0), type i16 (0 ABORT, 1 COMMIT; larger numbers are used by KRaft)
    value  version i16 (0), coordinator epoch i32
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from kctl.records.build import build_batch
from kctl.records.header import NO_LEADER_EPOCH, Record

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """The outcome of a transaction; readers skip UNKNOWN markers."""

    ABORT = 0
    COMMIT = 1
    UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The content of a transaction marker."""

    type: ControlType
    coordinator_epoch: int


def build_end_transaction_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return the control batch with `marker` for one producer; `timestamp` is the current time in ms since the
    epoch.
    """
    record = Record(base_offset, timestamp, _KEY.pack(0, marker.type), _VALUE.pack(0, marker.coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def parse_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """Return the marker in a control record, None for other types and malformed values."""
    kind = control_type(record)
    if kind is ControlType.UNKNOWN or record.value is None or len(record.value) < _VALUE.size:
        return None
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        return None
    return EndTransactionMarker(kind, coordinator_epoch)


def control_type(record: Record) -> ControlType:
    """Return the type in a control record's key; newer versions of the key start with the same fields."""
    if record.key is None or len(record.key) < _KEY.size:
        return ControlType.UNKNOWN
    version, number = _KEY.unpack_from(record.key)
    if version < 0 or number not in {ControlType.ABORT, ControlType.COMMIT}:
        return ControlType.UNKNOWN
    return ControlType(number)

"""Control batches: the markers that end a transaction on a partition.  KIP-98.

One record per batch, never compressed.  Its key says what it is, its value which coordinator decided:

    key    version i16 (0), type i16 (0 ABORT, 1 COMMIT; larger numbers belong to KRaft)
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
    """How the transaction ended; UNKNOWN markers are skipped by every reader."""

    ABORT = 0
    COMMIT = 1
    UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """What a transaction marker says."""

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
    """The control batch that writes `marker` for one producer; `timestamp` is the broker's current time."""
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
    """The marker in a control record, or None for control records of other kinds or with a broken body."""
    kind = control_type(record)
    if kind is ControlType.UNKNOWN or record.value is None or len(record.value) < _VALUE.size:
        return None
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        return None
    return EndTransactionMarker(kind, coordinator_epoch)


def control_type(record: Record) -> ControlType:
    """The type in a control record's key; newer versions of the key start the same way."""
    if record.key is None or len(record.key) < _KEY.size:
        return ControlType.UNKNOWN
    version, number = _KEY.unpack_from(record.key)
    if version < 0 or number not in {ControlType.ABORT, ControlType.COMMIT}:
        return ControlType.UNKNOWN
    return ControlType(number)

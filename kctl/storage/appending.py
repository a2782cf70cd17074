"""Checks a validated append against the producer state of the log.  Does no IO and changes no state.

kctl.records.validate has already checked the batches on their own.  The rules for producers (epoch, sequence numbers)
are in kctl.storage.producer_state.  Kafka's UnifiedLog.analyzeAndValidateProducerState.
"""

from __future__ import annotations

from typing import NamedTuple

from kctl.records.header import TimestampType
from kctl.records.validate import ValidBatches
from kctl.storage.producer_replay import marker_in
from kctl.storage.producer_state import ProducerState

NO_APPEND_TIME = -1


class AppendResult(NamedTuple):
    """The result of an append.  For a duplicate, the offsets are those of the batch that was appended first.

    For an old duplicate (kctl.storage.producer_state) `base_offset` is -1, and `last_offset` an upper bound.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    is_converted: bool = False
    """Whether messages of magic 0 or 1 were stored as a batch of magic 2."""


def check_producers(
    valid: ValidBatches, producers: ProducerState, *, with_sequence: bool, log_start_offset: int
) -> AppendResult | None:
    """Return the result of the first append if `valid` is a duplicate, None if it may be appended.

    Raises ApiError as ProducerState.check and check_marker do.
    """
    for header in valid.headers:
        if header.producer_id < 0:
            continue
        if header.is_control:
            marker = marker_in(valid.buffer, header)
            if marker is not None:
                producers.check_marker(header, marker)
            continue
        batch = producers.check(header, with_sequence=with_sequence)
        if batch is not None:
            time_ms = batch.timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else NO_APPEND_TIME
            return AppendResult(batch.first_offset, batch.last_offset, time_ms, log_start_offset, duplicate=True)
    return None

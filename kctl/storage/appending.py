"""Whether a log may take the batches of a producer, and what an append is answered with.  Does no IO.

A client's batch has to follow what the log has of its producer, by epoch and sequence number; one that the log has
already is answered with the offsets that the first copy got.  Before this kctl.records.validate has looked at the
batches by themselves; kctl.storage.producer_state has the rules of a producer.  Nothing is changed here.
"""

from __future__ import annotations

from typing import NamedTuple

from kctl.records.header import TimestampType
from kctl.records.validate import ValidBatches
from kctl.storage.producer_replay import marker_in
from kctl.storage.producer_state import ProducerState

NO_APPEND_TIME = -1


class AppendResult(NamedTuple):
    """What became of an append; a duplicate carries the offsets that its first copy got."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


def check_producers(
    valid: ValidBatches, producers: ProducerState, *, with_sequence: bool, log_start_offset: int
) -> AppendResult | None:
    """The result of a batch that was appended before; raises ApiError for one that may not be appended."""
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

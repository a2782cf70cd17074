"""Updates producer state from the batches of a log, at append and at recovery."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.errors import CorruptLog
from kctl.records.batch import iterate_records
from kctl.records.compression import Buffer
from kctl.records.control import EndTransactionMarker, parse_end_transaction_marker
from kctl.records.header import BatchHeader, CorruptBatch
from kctl.storage.batch_reader import read_past_damage
from kctl.storage.files import File
from kctl.storage.producer_state import ProducerState
from kctl.storage.segment import Segment
from kctl.storage.segments import SegmentList
from kctl.storage.transaction_index import AbortedTransaction


def apply_producer_batch(state: ProducerState, segment: Segment, header: BatchHeader, buffer: Buffer) -> None:
    """Update `state` from a batch with a producer id in `segment`; add an aborted transaction to its index."""
    if not header.is_control:
        state.append(header)
        return
    marker = marker_in(buffer, header)
    if marker is None:
        state.skip_to(header.next_offset)
        return
    completed = state.append_marker(header, marker)
    if completed is not None and completed.is_aborted:
        segment.transaction_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                state.stable_offset_after(completed),
            )
        )


def replay_producers(state: ProducerState, segments: SegmentList, end_offset: int) -> None:
    """Advance `state` to `end_offset` by reading the batches from its end offset on, skipping corrupt ones."""
    for segment in segments.from_index(segments.floor_index(state.end_offset)):
        if segment.base_offset >= end_offset:
            break
        try:
            start = segment.locate(state.end_offset)
            if start is not None:
                _replay(state, segment.headers(start.position), segment.file, end_offset)
        except CorruptLog:
            # Skip batches that were already replayed.
            sound = read_past_damage(segment.file, segment.base_offset, segment.size)
            _replay(state, sound, segment.file, end_offset)
    state.skip_to(end_offset)


def replay_headers(state: ProducerState, headers: Iterator[BatchHeader], file: File, end_offset: int) -> None:
    """Advance `state` by the batches that end at `end_offset` or before it."""
    for header in headers:
        if header.next_offset > end_offset:
            return
        replay_batch(state, header, file)


def _replay(state: ProducerState, headers: Iterator[BatchHeader], file: File, end_offset: int) -> None:
    for header in headers:
        if header.base_offset >= end_offset:
            return
        replay_batch(state, header, file)


def replay_batch(state: ProducerState, header: BatchHeader, file: File) -> None:
    """Update `state` from one batch of the log; only control batches are read."""
    if header.producer_id < 0 or header.last_offset < state.end_offset:
        state.skip_to(header.next_offset)
    elif header.is_control:
        marker = marker_in(file.read_at(header.position, header.size), header, position=0)
        if marker is None:
            state.skip_to(header.next_offset)
        else:
            state.append_marker(header, marker)
    else:
        state.append(header)


def marker_in(buffer: Buffer, header: BatchHeader, position: int | None = None) -> EndTransactionMarker | None:
    """Return the transaction marker of the control batch at `position` (by default the header's); None for other
    types.
    """
    view = memoryview(buffer)[header.position if position is None else position :]
    try:
        record = next(iterate_records(view), None)
    except CorruptBatch:
        return None
    return None if record is None else parse_end_transaction_marker(record)

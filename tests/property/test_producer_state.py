"""Batches of a producer are appended once, whatever it sends again, across leaders and the wrap of sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ApiError, ErrorCode
from kctl.records.build import build_batch
from kctl.records.header import SEQUENCE_MAX, BatchHeader, Record, parse_header
from kctl.storage.state.producer_state import BATCHES_REMEMBERED, NO_OFFSET, ProducerBatch, ProducerState

PRODUCER = 7


@dataclass(frozen=True)
class Sent:
    """A batch: `distance` is that of its first sequence number from the one that is due."""

    distance: int
    count: int
    leader_changes: bool


SENT = st.builds(
    Sent,
    st.one_of(st.just(0), st.integers(-40, 3), st.integers(-(2**30), 2**30)),
    st.integers(1, 4),
    st.booleans(),
)


@given(st.sampled_from([0, 5, SEQUENCE_MAX - 9, 2**30]), st.lists(SENT, max_size=40))
def test_each_sequence_number_is_appended_once_and_in_order(first: int, sent: list[Sent]) -> None:
    state = ProducerState()
    appended: list[tuple[int, int, int]] = []  # Distance from `first`, count, leader epoch.
    due = leader_epoch = 0
    for sent_batch in sent:
        leader_epoch += sent_batch.leader_changes
        begin, end = due + sent_batch.distance, due + sent_batch.distance + sent_batch.count
        header = _header((first + begin) & SEQUENCE_MAX, sent_batch.count)
        known = [number for number, batch in enumerate(appended) if batch[:2] == (begin, sent_batch.count)]
        found = _checked(state, header)
        if isinstance(found, ApiError):
            assert found.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert begin != due
            assert not any(number >= len(appended) - BATCHES_REMEMBERED for number in known)
        elif found is None:
            assert begin == due or not appended
            header.base_offset, header.leader_epoch = state.end_offset, leader_epoch
            if not appended:
                first, due, begin = header.base_sequence, 0, 0
            state.append(header)
            appended.append((begin, sent_batch.count, leader_epoch))
            due += sent_batch.count
        elif found.first_offset == NO_OFFSET:
            present = min(start for start, _, epoch in appended if epoch == appended[-1][2])
            assert 0 <= begin < end <= present, "all of its sequence numbers were appended under earlier leaders"
            assert found.last_offset >= end - 1
        else:
            assert known[-1] >= len(appended) - BATCHES_REMEMBERED
            assert (found.first_offset, found.last_offset) == (begin, end - 1)


def _checked(state: ProducerState, header: BatchHeader) -> ProducerBatch | ApiError | None:
    try:
        return state.check(header)
    except ApiError as error:
        return error


def _header(base_sequence: int, count: int) -> BatchHeader:
    records = [Record(delta, 0, None, b"v") for delta in range(count)]
    return parse_header(build_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=base_sequence))

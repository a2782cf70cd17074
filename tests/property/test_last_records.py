"""The last records of several partitions together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.records.latest import merge_last
from kctl.model import TopicPartition
from kctl.records.header import Record

TIMESTAMPS = st.lists(st.lists(st.integers(-1, 20), max_size=12), max_size=4)


def _partitions(timestamps: list[list[int]]) -> dict[TopicPartition, list[Record]]:
    return {
        TopicPartition("orders", number): [Record(offset, timestamp) for offset, timestamp in enumerate(of_partition)]
        for number, of_partition in enumerate(timestamps)
    }


@given(TIMESTAMPS, st.integers(0, 50))
def test_records_in_the_order_of_their_timestamps_are_the_end_of_all_sorted(
    timestamps: list[list[int]], count: int
) -> None:
    partitions = _partitions([sorted(of_partition) for of_partition in timestamps])
    every = [(tp, record) for tp, records in partitions.items() for record in records]
    every.sort(key=lambda item: (item[1].timestamp, item[0], item[1].offset))
    assert merge_last(partitions, count) == every[max(0, len(every) - count) :]


@given(TIMESTAMPS, st.integers(0, 50))
def test_each_partition_gives_its_last_records_in_the_order_of_offsets(timestamps: list[list[int]], count: int) -> None:
    partitions = _partitions(timestamps)
    chosen = merge_last(partitions, count)
    assert len(chosen) == min(count, sum(map(len, timestamps)))
    for tp, records in partitions.items():
        of_partition = [record for chosen_tp, record in chosen if chosen_tp == tp]
        assert of_partition == records[len(records) - len(of_partition) :]

"""Offsets of streaming queries: their JSON, and how ranges are limited and cut."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.client.consuming.positions import Position as History
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.tables.exec.reading.histories import history_of
from kctl.tables.exec.reading.source_offsets import (
    Progress,
    cut,
    from_document,
    limited,
    parse_offsets,
    parse_times,
    progress_from_document,
    progress_to_document,
    task_offsets,
    to_document,
)
from tests.rows import for_rows

PARTITIONS = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 12))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 2**62), max_size=8)


def test_times_are_json_with_milliseconds() -> None:
    assert parse_times('{"a": {"0": 5, "1": 0}}', "x") == {TopicPartition("a", 0): 5, TopicPartition("a", 1): 0}
    for text in ("", "5", "{}", '{"a": 5}', '{"a": {"0": -1}}', '{"a": {"0": "5"}}', '{"a": {"x": 5}}'):
        with pytest.raises(UsageError, match="startingOffsetsByTimestamp takes JSON such as"):
            parse_times(text, "startingOffsetsByTimestamp")


@given(st.lists(st.integers(0, 1000), max_size=6), st.none() | st.integers(1, 50), st.none() | st.integers(1, 40))
def test_tasks_are_as_many_as_asked_for_if_there_are_offsets(
    widths: list[int], offsets_max: int | None, tasks_min: int | None
) -> None:
    limit = task_offsets(widths, offsets_max, tasks_min)
    tasks = sum(len(cut(0, width, limit)) for width in widths if width)
    assert tasks >= min(tasks_min or 0, -(-sum(widths) // (limit or max(sum(widths), 1))))
    assert limit is None or offsets_max is None or limit <= offsets_max


@given(OFFSETS)
def test_offsets_survive_a_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    assert from_document(json.loads(json.dumps(to_document(offsets)))) == offsets


HISTORIES = st.dictionaries(
    PARTITIONS, st.builds(history_of, st.integers(0, 2**62), st.integers(0, 2**31 - 1)), max_size=8
)


@given(OFFSETS, HISTORIES, st.dictionaries(st.sampled_from("ab"), st.uuids(), max_size=2))
def test_progress_survives_a_checkpoint(
    offsets: dict[TopicPartition, int], histories: dict[TopicPartition, History], topic_ids: dict[str, UUID]
) -> None:
    progress = Progress(offsets, histories, topic_ids)
    assert progress_from_document(json.loads(json.dumps(progress_to_document(progress)))) == progress
    assert progress_from_document(to_document(offsets)) == Progress(offsets), "of an earlier version"


def test_a_high_watermark_that_moves_alone_changes_no_progress() -> None:
    tp = TopicPartition("orders", 0)
    before = Progress({tp: 5}, {tp: History(7, 1)})
    for after, expected in (
        (Progress({tp: 5}, {tp: History(9, 1)}), before),
        (Progress({tp: 5}, {tp: History(9, 2)}), None),
        (Progress({tp: 6}, {tp: History(9, 1)}), None),
    ):
        assert after.since(before) == (expected or after)


def test_offsets_have_the_form_of_the_kafka_source() -> None:
    assert parse_offsets('{"orders": {"0": 5, "10": 7}}', "startingOffsets") == {
        TopicPartition("orders", 0): 5,
        TopicPartition("orders", 10): 7,
    }
    copied = '{"orders": {"0": 5}, "@histories": {"orders": {"0": [9, 1]}}}'
    assert parse_offsets(copied, "startingOffsets") == {TopicPartition("orders", 0): 5}
    assert parse_offsets("Earliest", "startingOffsets") == "earliest"


@for_rows("text", ["", "first", "{}", "[]", '{"a": 1}', '{"a": {"0": -1}}', '{"a": {"x": 1}}'])
def test_other_offsets_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError, match="startingOffsets takes earliest, latest or JSON"):
        parse_offsets(text, "startingOffsets")


@given(OFFSETS, st.dictionaries(PARTITIONS, st.integers(0, 10**6), max_size=8), st.integers(1, 10**7))
def test_a_limited_batch_progresses_everywhere_and_never_exceeds_the_end(
    start: dict[TopicPartition, int], lags: dict[TopicPartition, int], offsets_max: int
) -> None:
    latest = {tp: start.get(tp, 0) + lag for tp, lag in lags.items()}
    ends = limited(start, latest, offsets_max)
    taken = {tp: end - start.get(tp, 0) for tp, end in ends.items()}
    assert all(0 < taken[tp] <= lag if lag else taken[tp] == 0 for tp, lag in lags.items())
    assert sum(taken.values()) < offsets_max + max(len(lags), 1) or sum(taken.values()) == sum(lags.values())


@given(st.integers(0, 2**40), st.integers(0, 1000), st.none() | st.integers(1, 200))
def test_parts_of_a_range_are_adjacent_and_bounded(start: int, width: int, offsets_max: int | None) -> None:
    parts = cut(start, start + width, offsets_max)
    assert [offset for part in parts for offset in range(*part)] == list(range(start, start + width))
    assert all(0 < end - begin <= (offsets_max or width) for begin, end in parts)

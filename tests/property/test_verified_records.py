"""The ledger and the hashes of `kctl tables verify` against a model of lists and counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from kctl.tables.exec.selection.columns import schema
from kctl.tables.verification.ledger import AllowedGaps, Difference, Ledger, Span
from kctl.tables.verification.record_hash import TYPES, record_hashes

SPAN = Span(3, 0, 100, 112)
STRICT = AllowedGaps(compacted=False, aborted=False)

offsets = st.integers(SPAN.start, SPAN.end - 1)
rows_of_files = st.lists(st.tuples(st.integers(2, 4), st.integers(0, 1), st.integers(97, 115), st.integers(0, 2)))
"""Partition, incarnation, offset, contents."""


def longs(values: list[int]) -> Any:
    return np.array(values, np.int64)


def hashes(values: list[int]) -> Any:
    return np.array(values, np.uint64) + np.uint64(1)


@given(topic=st.dictionaries(offsets, st.integers(0, 2)), rows=rows_of_files, log_start=st.integers(98, 114))
def test_differences_are_those_of_a_comparison_of_lists(
    topic: dict[int, int], rows: list[tuple[int, int, int, int]], log_start: int
) -> None:
    ledger = Ledger([Span(2, 1, 0, 5), SPAN])
    ledger.add_records(1, longs(list(topic)), hashes(list(topic.values())))
    columns: list[list[int]] = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    ledger.add_rows(longs(columns[0]), longs(columns[1]), longs(columns[2]), hashes(columns[3]))
    judged = ledger.judge(1, log_start=log_start, allowed=STRICT, gaps_max=10)

    held = {offset: content for offset, content in topic.items() if offset >= log_start}
    mine = [(o, content) for p, i, o, content in rows if (p, i) == SPAN[:2] and max(100, log_start) <= o < 112]
    counts = Counter(offset for offset, _ in mine)
    contents = dict(mine)
    expected = {
        Difference.MISSING: [o for o in held if not counts[o]],
        Difference.TWICE: [o for o in counts if counts[o] > 1],
        Difference.DIFFERENT: [o for o in held if counts[o] == 1 and contents[o] != held[o]],
        Difference.UNEXPECTED: [o for o in counts if counts[o] == 1 and o not in held],
    }
    assert judged.differences == {kind: len(found) for kind, found in expected.items()}
    firsts = [(min(found), kind) for kind, found in expected.items() if found]
    assert judged.first == min(firsts, default=None)
    assert (judged.topic_records, judged.table_records) == (len(held), len(mine))
    if not firsts:
        assert judged.topic_hash == judged.table_hash


@given(
    topic=st.sets(offsets),
    rows=st.sets(offsets),
    aborted=st.sets(offsets),
    allowed=st.builds(AllowedGaps, compacted=st.booleans(), aborted=st.booleans()),
)
def test_what_the_topic_lost_is_a_gap_or_a_difference(
    topic: set[int], rows: set[int], aborted: set[int], allowed: AllowedGaps
) -> None:
    ledger = Ledger([SPAN])
    ledger.add_records(0, longs(sorted(topic)), hashes([0] * len(topic)))
    for offset in aborted:
        ledger.add_aborted(0, offset, offset)
    count = len(rows)
    ledger.add_rows(longs([3] * count), longs([0] * count), longs(sorted(rows)), hashes([0] * count))
    judged = ledger.judge(0, log_start=0, allowed=allowed, gaps_max=100)
    lost = rows - topic
    gap_offsets = {o for o in lost if (allowed.aborted if o in aborted else allowed.compacted)}
    assert {o for gap in judged.gaps for o in range(gap.start, gap.end)} == gap_offsets
    assert judged.uncompared == len(gap_offsets)
    assert judged.differences[Difference.UNEXPECTED] == len(lost - gap_offsets)
    assert judged.differences[Difference.MISSING] == len(topic - rows)


headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.sampled_from("ab"), "value": st.sampled_from([None, b"", b"a"])}),
    min_size=1,
    max_size=3,
)
records = st.fixed_dictionaries(
    {
        "key": st.sampled_from([None, b"", b"a", b"ab"]),
        "value": st.sampled_from([None, b"", b"a", b"ba"]),
        "topic": st.just("t"),
        "partition": st.just(0),
        "offset": st.just(0),
        "timestamp": st.integers(-1, 1),
        "timestampType": st.integers(0, 1),
        "headers": headers,
    }
)


@given(rows=st.lists(records, min_size=1, max_size=12), cut=st.integers(0, 11))
def test_hashes_are_equal_for_equal_records_only(rows: list[dict[str, Any]], cut: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=schema(include_headers=True))
    found = record_hashes(batch, TYPES).tolist()
    for i, row in enumerate(rows):
        for j, other in enumerate(rows):
            assert (found[i] == found[j]) == (row == other)
    # Neither the place in a batch nor the types of other writers matter.
    assert record_hashes(batch.slice(cut), TYPES).tolist() == found[cut:]
    large = batch.set_column(1, "value", batch.column("value").cast(pa.large_binary()))
    assert record_hashes(large, TYPES).tolist() == found


def test_the_first_gaps_are_listed() -> None:
    ledger = Ledger([SPAN])
    rows = longs([101, 102, 105, 109])
    ledger.add_rows(longs([3] * 4), longs([0] * 4), rows, hashes([0] * 4))
    judged = ledger.judge(0, log_start=0, allowed=AllowedGaps(compacted=True, aborted=False), gaps_max=2)
    assert [(gap.start, gap.end) for gap in judged.gaps] == [(101, 103), (105, 106)]
    assert judged.uncompared == 4

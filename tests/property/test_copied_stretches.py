"""The places of records in a copy, compared with the list of what was copied."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.copy.kept_progress import ProgressMark, parse_mark, parse_offset_map
from kctl.admin.copy.stretches import STRETCHES_MAX, OffsetMap, Stretch, flattened, parse_stretches, thinned


@st.composite
def copies(draw: st.DrawFn) -> tuple[dict[int, int], OffsetMap, int]:
    """Target offsets by source offset, the map that a copy of them makes, and the end of the source."""
    source = draw(st.integers(0, 1_000))
    target = draw(st.integers(0, 1_000))
    places: dict[int, int] = {}
    offset_map = OffsetMap()
    offset_map.begin(source, target)
    for records, gap, marker in draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(0, 2)))):
        batches = draw(st.lists(st.integers(1, records), max_size=3))
        sent = list(range(source, source + records))
        for offset in sent:
            offset_map.sent(offset)
        places.update((offset, target + index) for index, offset in enumerate(sent))
        left = records
        for batch in [*batches, records]:
            size = min(batch, left)
            if size:
                offset_map.delivered(target + records - left, size)
            left -= size
        source, target = source + records + gap, target + records + marker
    return places, offset_map, source


@given(copies(), st.data())
def test_a_pair_separates_the_same_records_on_both_sides(
    copy: tuple[dict[int, int], OffsetMap, int], data: st.DataObject
) -> None:
    places, offset_map, end = copy
    if data.draw(st.booleans()):
        offset_map = OffsetMap(thinned(list(offset_map.stretches)))
    offset = data.draw(st.integers(0, end))
    pair = offset_map.pair_before(offset)
    if pair is None:
        assert all(offset < place for place in places)
        return
    assert pair.source <= offset
    assert all((source < pair.source) == (target < pair.target) for source, target in places.items())
    after = offset_map.target_after(offset)
    following = min((source for source in places if source >= offset), default=None)
    if following is not None and after is not None:
        assert places[following] <= after
    if offset in places and pair.source == offset:
        assert pair.target == places[offset]


@given(copies())
def test_a_map_in_the_other_direction_has_the_same_places(copy: tuple[dict[int, int], OffsetMap, int]) -> None:
    places, offset_map, _ = copy
    inverted = offset_map.inverted()
    for source, target in places.items():
        pair = inverted.pair_before(target)
        assert pair is not None
        assert all((place < pair.source) == (origin < pair.target) for origin, place in places.items())
        assert pair != (target, source) or places[source] == target


@given(copies(), st.text(max_size=20))
def test_progress_keeps_the_stretches_within_what_a_commit_may_have(
    copy: tuple[dict[int, int], OffsetMap, int], phase: str
) -> None:
    _, offset_map, _ = copy
    kept = offset_map.stretches
    text = ProgressMark(source="a" * 22, target="b" * 22, phase="cut over", time_ms=1_796_000_000_000).text(kept)
    assert len(text) <= 4_096
    assert parse_offset_map(text).stretches == kept
    mark = parse_mark(text)
    assert mark is not None
    assert mark.phase == "cut over"
    assert parse_offset_map(phase).stretches == ()


def test_the_newest_and_the_first_of_many_stretches_are_kept() -> None:
    large = 1 << 52
    many = [Stretch(large + 10 * number, large + 11 * number, 3) for number in range(100_000)]
    kept = thinned(many)
    assert len(kept) <= STRETCHES_MAX
    assert kept[0] == many[0]
    assert kept[-12:] == many[-12:]
    end = many[-1].source
    for older, newer in itertools.pairwise(kept[1:-12]):
        assert end - older.source <= 2 * (end - newer.source) + 20
    assert len(ProgressMark(source="a" * 22, target="b" * 22, phase="cut over").text(kept)) <= 4_096


def test_stretches_that_are_out_of_order_or_no_numbers_are_not_read() -> None:
    for numbers in ([1, 2], [5, 5, 3, 6, 9, 1], [5, 5, 3, 9, 6, 1], [1, 2, True], [-1, 0, 0], "1", None, [0] * 3_000):
        assert parse_stretches(numbers) == []
    assert flattened(parse_stretches([1, 2, 3, 4, 5, 6])) == [1, 2, 3, 4, 5, 6]

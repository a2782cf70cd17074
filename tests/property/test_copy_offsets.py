"""Offsets translated while copying, compared with a search in the list of copied records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.copy.copying import Pacer
from kctl.admin.copy.groups import OffsetTranslation

OFFSETS = st.integers(0, 60)


@given(st.sets(OFFSETS), st.sets(OFFSETS), st.integers(0, 20), st.integers(0, 1000), st.data())
def test_an_offset_is_translated_to_the_first_copied_record_at_or_after_it(
    copied: set[int], watched: set[int], begin: int, base: int, data: st.DataObject
) -> None:
    records = sorted(offset for offset in copied if offset >= begin)
    end = data.draw(st.integers(max([begin, *(offset + 1 for offset in records)]), 80))
    translation = OffsetTranslation(watched, begin)
    stored: dict[int, int] = {}
    target = base
    waiting: list[int] = []
    for offset in records:
        translation.sent(offset)
        waiting.append(offset)
        if data.draw(st.booleans()):
            target += data.draw(st.integers(0, 2))  # records of other producers
            translation.delivered(target, len(waiting))
            stored.update((one, target + index) for index, one in enumerate(waiting))
            target += len(waiting)
            waiting = []
    translation.delivered(target, len(waiting))
    stored.update((one, target + index) for index, one in enumerate(waiting))
    target += len(waiting)
    translation.reached(end, target)
    expected = {
        offset: next((stored[record] for record in records if record >= offset), target)
        for offset in watched
        if begin <= offset <= end
    }
    assert translation.translated == expected


@given(st.lists(st.integers(0, 10_000), min_size=1), st.integers(1, 100_000))
def test_a_rate_is_kept(sizes: list[int], bytes_per_s: int) -> None:
    pacer = Pacer(bytes_per_s, 0)
    now_ms = 0
    for size in sizes:
        now_ms += pacer.delay_ms(size, now_ms)
    assert abs(now_ms - sum(sizes) * 1000 / bytes_per_s) <= 1


def test_unused_time_is_not_saved_up() -> None:
    pacer = Pacer(1_000, 0)
    assert pacer.delay_ms(500, 60_000) == 500

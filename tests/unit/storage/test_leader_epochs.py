"""KIP-101 and KIP-279: the start and end offsets of epochs."""

from __future__ import annotations

from kctl.storage.state.leader_epochs import EpochEntry, LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(*entry) for entry in entries)


def test_an_epoch_starts_once() -> None:
    cache = epochs((1, 10))
    assert not cache.assign(1, 10)
    assert not cache.assign(1, 15)
    assert cache.assign(2, 15)
    assert cache.entries == ((1, 10), (2, 15))


def test_a_new_entry_drops_what_it_contradicts() -> None:
    assert epochs((1, 10), (2, 20), (3, 30), (4, 20)).entries == ((1, 10), (4, 20))
    assert epochs((1, 10), (5, 20), (3, 30)).entries == ((1, 10), (3, 30))
    assert epochs((1, 10), (1, 5)).entries == ((1, 5),)


def test_an_epoch_ends_where_the_next_starts() -> None:
    cache = epochs((1, 10), (3, 30), (4, 40))
    requested = {epoch: cache.end_offset_for(epoch, log_end_offset=50) for epoch in (-1, 0, 1, 2, 3, 4, 5)}
    assert requested == {
        -1: (-1, -1),
        0: (0, 10),
        1: (1, 30),
        2: (1, 30),
        3: (3, 40),
        4: (4, 50),
        5: (-1, -1),
    }
    assert epochs().end_offset_for(0, log_end_offset=5) == (-1, -1)


def test_the_epoch_of_an_offset_is_found() -> None:
    cache = epochs((1, 10), (3, 30))
    assert [cache.epoch_for(offset) for offset in (9, 10, 29, 30, 99)] == [-1, 1, 1, 3, 3]


def test_a_cut_end_takes_epochs_that_start_there_or_later() -> None:
    cache = epochs((1, 10), (2, 20), (3, 30))
    assert cache.truncate_from_end(20)
    assert cache.entries == ((1, 10),)
    assert not cache.truncate_from_end(20)


def test_a_cut_start_moves_the_epoch_that_spans_it() -> None:
    cache = epochs((1, 10), (2, 20), (3, 30))
    assert cache.truncate_from_start(25)
    assert cache.entries == ((2, 25), (3, 30))
    assert not cache.truncate_from_start(25)
    assert not cache.truncate_from_start(5)
    assert cache.truncate_from_start(99)
    assert list(cache.entries) == [(3, 99)]


def test_clearing_epochs_reports_a_change_only_once() -> None:
    cache = epochs((1, 10))
    assert cache.clear()
    assert not cache.clear()
    assert cache.latest_epoch == -1

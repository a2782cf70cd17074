"""Fetch sessions: an incremental reader gets the same as a full one for any history (KIP-227)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.server.replication.fetching.fetch_session import EVICTION_MS, FetchPosition, FetchSessionCache
from kctl.storage.log.watchers import Watchers


@dataclass
class PartitionState:
    error_code: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    preferred_read_replica: int = -1
    records: bytes = b""


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def position(number: int, offset: int = 0) -> FetchPosition:
    return FetchPosition(tp(number), offset, 1 << 20)


ROUNDS = st.lists(
    st.dictionaries(
        st.integers(0, 4),
        st.builds(
            PartitionState,
            error_code=st.sampled_from([0, 0, 0, 6]),
            high_watermark=st.integers(0, 3),
            log_start_offset=st.integers(0, 2),
            records=st.sampled_from([b"", b"", b"x"]),
        ),
        min_size=5,
        max_size=5,
    ),
    min_size=1,
    max_size=12,
)


@given(ROUNDS)
def test_incremental_fetches_return_the_same_as_full_fetches(rounds: list[dict[int, PartitionState]]) -> None:
    cache = FetchSessionCache(10)
    session = cache.create(7, [position(n) for n in range(5)], is_follower=False, now_ms=0)
    assert session is not None
    known: dict[TopicPartition, tuple[int, int, int]] = {}
    for responses in rounds:
        by_partition = {p: responses[p.partition] for p in session.positions}
        reported = session.changes(by_partition, {p: len(a.records) for p, a in by_partition.items()})
        for p in reported:
            a = by_partition[p]
            known[p] = (a.error_code, a.high_watermark, a.log_start_offset)
        for p, a in by_partition.items():
            if a.records or a.error_code:
                assert p in reported
            if p in known and known[p][0] == 0:
                assert known[p] == (a.error_code, a.high_watermark, a.log_start_offset)
    assert known.keys() == {tp(n) for n in range(5)}


def test_the_least_recently_served_partition_comes_first() -> None:
    session = FetchSessionCache(1).create(1, [position(n) for n in range(3)], is_follower=False, now_ms=0)
    assert session is not None
    session.changes({tp(0): PartitionState(records=b"x"), tp(1): PartitionState(), tp(2): PartitionState()}, {tp(0): 1})
    assert list(session.positions) == [tp(1), tp(2), tp(0)]


def test_an_unexpected_session_epoch_changes_nothing() -> None:
    cache = FetchSessionCache(1)
    cache.create(1, [position(0)], is_follower=False, now_ms=0)
    with pytest.raises(ApiError) as refused:
        cache.resume(1, 2, 0)
    assert refused.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.resume(1, 1, 0).epoch == 2


def test_session_epochs_wrap_to_one() -> None:
    cache = FetchSessionCache(1)
    session = cache.create(1, [position(0)], is_follower=False, now_ms=0)
    assert session is not None
    session.epoch = (1 << 31) - 1
    assert cache.resume(1, (1 << 31) - 1, 0).epoch == 1


def test_an_unknown_session_id_is_an_error() -> None:
    with pytest.raises(ApiError) as refused:
        FetchSessionCache(1).resume(5, 1, 0)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_session_cache_creates_no_session_until_one_is_stale() -> None:
    cache = FetchSessionCache(1)
    assert cache.create(1, [position(0)], is_follower=False, now_ms=0)
    assert cache.create(2, [position(0)], is_follower=False, now_ms=EVICTION_MS) is None
    assert cache.create(3, [position(0)], is_follower=False, now_ms=EVICTION_MS + 1)
    assert len(cache) == 1


def test_a_follower_session_evicts_a_consumer_session() -> None:
    cache = FetchSessionCache(1)
    cache.create(1, [position(0)], is_follower=False, now_ms=0)
    assert cache.create(2, [position(0)], is_follower=True, now_ms=0)
    assert cache.create(3, [position(0)], is_follower=False, now_ms=0) is None


def test_forgotten_partitions_are_removed_and_changed_ones_are_updated() -> None:
    session = FetchSessionCache(1).create(1, [position(0), position(1)], is_follower=False, now_ms=0)
    assert session is not None
    session.update([position(1, offset=9), position(2, offset=4)], [tp(0)])
    assert {p: s.fetch_offset for p, s in session.positions.items()} == {tp(1): 9, tp(2): 4}


class Watched:
    """A partition whose watchers the test notifies."""

    def __init__(self) -> None:
        self.watchers = Watchers()


def test_a_closed_session_keeps_none_of_its_partitions() -> None:
    """A partition may notify it until another session watches the partition."""
    cache, partition = FetchSessionCache(1), Watched()
    session = cache.create(1, [position(0)], is_follower=False, now_ms=0)
    assert session is not None
    session.rest(session.positions[tp(0)], partition, None)
    watcher = session.positions[tp(0)]
    cache.close(1)
    watcher.moved()
    watcher.high_watermark_moved()
    assert not watcher.is_watching
    assert (session.active_count, session.take_moved(), session.woken) == (0, [], {})


@pytest.mark.parametrize(("is_follower", "wakes"), [(True, False), (False, True)])
def test_a_new_high_watermark_wakes_the_fetch_of_a_consumer_only(*, is_follower: bool, wakes: bool) -> None:
    """A follower gets it with the next records (KAFKA-9952), so its position is active again, but not checked now."""
    session = FetchSessionCache(1).create(1, [position(0)], is_follower=is_follower, now_ms=0)
    assert session is not None
    first = session.positions[tp(0)]
    session.rest(first, Watched(), None)
    assert session.active() == []
    first.high_watermark_moved()
    assert session.active() == [first]
    assert bool(session.woken) is wakes


def test_a_position_is_notified_once_until_it_is_examined() -> None:
    """Clients that do not come back cost nothing for each append."""
    partition = Watched()
    session = FetchSessionCache(1).create(1, [position(0)], is_follower=False, now_ms=0)
    assert session is not None
    first = session.positions[tp(0)]
    session.rest(first, partition, None)
    assert len(partition.watchers.watching) == 1
    partition.watchers.moved()
    assert (len(partition.watchers.watching), session.active(), session.take_moved()) == (0, [first], [first])
    first.watch(partition)
    first.watch(partition)
    assert len(partition.watchers.watching) == 1
    partition.watchers.high_watermark_moved()
    assert (len(partition.watchers.watching), session.take_moved()) == (0, [first])


def test_a_high_watermark_does_not_end_the_notifications_of_a_follower() -> None:
    partition = Watched()
    session = FetchSessionCache(1).create(1, [position(0)], is_follower=True, now_ms=0)
    assert session is not None
    session.rest(session.positions[tp(0)], partition, None)
    partition.watchers.high_watermark_moved()
    assert (len(partition.watchers.watching), session.take_moved()) == (1, [])
    partition.watchers.moved()
    assert (len(partition.watchers.watching), session.take_moved()) == (0, [session.positions[tp(0)]])

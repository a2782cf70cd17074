"""Offset, time and transaction index: look-ups, limits, truncation, and invalid files."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import CorruptLog
from kctl.storage.segments.index_file import OffsetIndex, TimeIndex
from kctl.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from kctl.testing.sim_files import SimFiles


def disk() -> SimFiles:
    files = SimFiles()
    files.make_directory("/data")
    return files


def offset_index(files: SimFiles, size_max: int = 1000) -> OffsetIndex:
    index = OffsetIndex(files, "/data/index", base_offset=100, size_max=size_max)
    index.create(preallocate=True)
    return index


def time_index(files: SimFiles, size_max: int = 1000) -> TimeIndex:
    index = TimeIndex(files, "/data/timeindex", base_offset=100, size_max=size_max)
    index.create(preallocate=True)
    return index


@given(st.sets(st.integers(0, 5000), max_size=60), st.integers(0, 5000))
def test_a_look_up_gives_the_greatest_entry_at_or_below(offsets: set[int], target: int) -> None:
    index = offset_index(disk())
    for number, offset in enumerate(sorted(offsets), 1):
        index.append(100 + offset, number * 50)
    expected = 50 * sum(1 for offset in offsets if offset <= target)
    assert index.lookup(100 + target) == expected
    index.file.trim()
    index.load(1 << 30)
    assert index.lookup(100 + target) == expected


@given(st.sets(st.integers(0, 5000), max_size=60), st.integers(0, 5000))
def test_a_time_look_up_gives_the_greatest_entry_at_or_below(times: set[int], target: int) -> None:
    index = time_index(disk())
    for number, time in enumerate(sorted(times), 1):
        index.append(time, 100 + number)
    expected = 100 + sum(1 for time in times if time <= target)
    assert index.lookup(target) == expected
    last = index.last()
    index.file.trim()
    index.unload()
    assert index.last() == last
    index.load()
    assert (index.lookup(target), index.last()) == (expected, last)


def test_entries_have_kafka_s_bytes() -> None:
    files = disk()
    index, times = offset_index(files), time_index(files)
    index.append(107, 4242)
    times.append(1_600_000_000_000, 107)
    index.file.trim()
    times.file.trim()
    assert files.read("/data/index") == struct.pack(">ii", 7, 4242)
    assert files.read("/data/timeindex") == struct.pack(">qi", 1_600_000_000_000, 7)


def test_files_have_their_full_size_in_whole_entries_until_trimmed() -> None:
    files = disk()
    index, times = offset_index(files, 1003), time_index(files, 1003)
    assert (files.size("/data/index"), files.size("/data/timeindex")) == (1000, 996)
    index.file.trim()
    times.file.trim()
    assert (files.size("/data/index"), files.size("/data/timeindex")) == (0, 0)


def test_time_only_moves_forward() -> None:
    index = time_index(disk())
    for time in (10, 10, 9, 11, -1):
        index.append(time, 100 + time)
    assert len(index) == 2


def test_the_last_place_in_the_time_index_is_for_the_closing_entry() -> None:
    index = time_index(disk(), size_max=36)
    for time in range(1, 6):
        index.append(time, 100 + time)
    assert (len(index), index.is_full, index.last()) == (2, True, (2, 102))
    index.append(9, 109, closing=True)
    assert (len(index), index.last()) == (3, (9, 109))


def test_a_cut_drops_entries_in_memory_and_on_disk() -> None:
    files = disk()
    index, times = offset_index(files), time_index(files)
    for number in range(10):
        index.append(100 + number, number * 10 + 1)
        times.append(1000 + number, 100 + number)
    index.truncate_to(105)
    times.truncate_to(105)
    assert (index.lookup(999), times.last()) == (41, (1004, 104))
    assert (files.size("/data/index"), files.size("/data/timeindex")) == (5 * 8, 5 * 12)
    index.append(200, 500)
    index.file.trim()
    index.load(1000)
    assert (index.lookup(199), index.lookup(200)) == (41, 500)


@pytest.mark.parametrize(
    "data",
    [b"\1", struct.pack(">iiii", 9, 10, 5, 20), struct.pack(">ii", -1, 5), struct.pack(">ii", 1, 1000)],
    ids=["odd size", "offsets fall", "negative offset", "position behind the log"],
)
def test_an_impossible_offset_index_is_refused(data: bytes) -> None:
    files = disk()
    index = OffsetIndex(files, "/data/index", base_offset=0, size_max=1000)
    files.write_atomically("/data/index", data)
    with pytest.raises(CorruptLog, match="/data/index"):
        index.load(log_size=1000)


@pytest.mark.parametrize("data", [b"\1", struct.pack(">qiqi", 9, 10, 5, 20), struct.pack(">qiqi", 5, 20, 9, 10)])
def test_an_impossible_time_index_is_refused(data: bytes) -> None:
    files = disk()
    index = TimeIndex(files, "/data/timeindex", base_offset=0, size_max=1000)
    files.write_atomically("/data/timeindex", data)
    with pytest.raises(CorruptLog, match="/data/timeindex"):
        index.load()


def test_aborted_transactions_are_kept_and_cut() -> None:
    files = disk()
    index = TransactionIndex(files, "/data/txnindex", exists=False)
    assert not index.exists
    assert not files.exists("/data/txnindex")
    entries = [AbortedTransaction(7, 10 * n, 10 * n + 5, 10 * n + 3) for n in range(4)]
    for entry in entries:
        index.append(entry)
    again = TransactionIndex(files, "/data/txnindex", exists=True)
    assert again.entries() == entries
    again.truncate_to(25)
    assert TransactionIndex(files, "/data/txnindex", exists=True).entries() == entries[:2]
    again.truncate_to(0)
    assert not files.exists("/data/txnindex")


@pytest.mark.parametrize("data", [b"\0" * 33, b"\0\1" + b"\0" * 32])
def test_an_impossible_transaction_index_is_refused(data: bytes) -> None:
    files = disk()
    files.write_atomically("/data/txnindex", data)
    with pytest.raises(CorruptLog, match="/data/txnindex"):
        TransactionIndex(files, "/data/txnindex", exists=True).entries()

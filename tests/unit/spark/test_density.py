"""Ranges are cut where the shares of bytes are equal, not the shares of offsets."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.settings import ClientSettings
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.tables.plans.cluster_view import take_samples
from kctl.tables.plans.density import Sample, cut_by_size, sample_offsets
from tests.unit.spark.fake_broker import ORDERS, FakeBroker


def log_with_gap(end: int, *, gap: range, batch_bytes: int = 100) -> list[Sample]:
    """Samples of a log with batches of ten offsets, except in the gap."""
    samples = []
    for offset in sample_offsets(0, end, files=4):
        base = gap.stop if offset in gap else offset - offset % 10
        samples.append(Sample(offset, base, base + 10, batch_bytes))
    return samples


def test_a_compacted_log_is_cut_where_its_records_are() -> None:
    """All remaining records are in the last fifth; equal shares of the offsets would leave three of four
    files empty.
    """
    borders = cut_by_size(0, 1000, log_with_gap(1000, gap=range(800)), 4)
    assert borders[0] == 0
    assert borders[-1] == 1000
    assert all(border >= 800 for border in borders[1:])
    widths = [end - max(start, 800) for start, end in pairwise(borders)]
    assert max(widths) <= 2 * min(widths)


def test_offsets_of_large_records_go_into_more_files() -> None:
    """The second half has nine times the bytes of the first."""
    samples = [Sample(0, 0, 10, 100), Sample(500, 500, 510, 900)]
    assert cut_by_size(0, 1000, samples, 2) == [0, 722, 1000]


@pytest.mark.parametrize("samples", [[], [Sample(0, 1000, 1010, 5)], [Sample(5000, 5000, 5010, 5)]])
def test_without_usable_samples_all_offsets_count_alike(samples: list[Sample]) -> None:
    assert cut_by_size(0, 1000, samples, 4) == [0, 250, 500, 750, 1000]


@pytest.mark.parametrize("count", [1, 2, 5, 10])
def test_every_file_gets_at_least_one_offset(count: int) -> None:
    """Even where nearly all bytes are in a single batch."""
    for dense in (0, 5, 9):
        samples = [Sample(offset, offset, offset + 1, 10**9 if offset == dense else 1) for offset in range(10)]
        borders = cut_by_size(0, 10, samples, count)
        assert (borders[0], borders[-1], len(borders)) == (0, 10, count + 1)
        assert all(start < end for start, end in pairwise(borders))


def test_samples_are_few_and_inside_the_range() -> None:
    assert sample_offsets(7, 10, files=4) == [7, 8, 9]
    offsets = sample_offsets(100, 10**9, files=10**6)
    assert len(offsets) == 128
    assert offsets[0] == 100
    assert offsets[-1] < 10**9


def test_samples_show_which_batches_follow_an_offset() -> None:
    def batch(base: int) -> bytes:
        return build_batch([Record(0, 0, None, b"x" * 50)] * 10, base_offset=base)

    broker = FakeBroker(batch(0), batch(10), batch(500))
    client = ClusterClient(ClientSettings((("fake", 9092),), timeout_ms=1000), broker)
    work = take_samples(client, {ORDERS: [0, 15, 20]})
    with pytest.raises(StopIteration) as done:
        work.send(None)
    size = len(batch(0))
    assert done.value.value == {
        ORDERS: (Sample(0, 0, 10, size), Sample(15, 10, 20, size), Sample(20, 500, 510, size)),
    }

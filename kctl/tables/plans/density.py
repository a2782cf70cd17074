"""Cuts offset ranges into parts of equal size in bytes, based on samples of the log.  Pure.

Compaction and changing record sizes make the number of bytes per offset vary.  Brokers do not return positions in
bytes, but a fetch from any offset returns the next batches, whose offsets and sizes give the density of the log there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

SAMPLES_PER_FILE = 8
SAMPLES_MAX = 128
"""Per partition; each costs a small fetch."""


class Sample(NamedTuple):
    """The first batches at or after an offset."""

    offset: int
    """The fetch offset."""
    base_offset: int
    next_offset: int
    """The offset after the last batch."""
    size_bytes: int


def sample_offsets(start: int, end: int, files: int) -> list[int]:
    """Return the offsets of the samples for cutting a range into a number of files."""
    count = min(files * SAMPLES_PER_FILE, SAMPLES_MAX, end - start)
    return [start + (end - start) * index // count for index in range(count)]


def cut_by_size(start: int, end: int, samples: Sequence[Sample], count: int) -> list[int]:
    """`count` + 1 ascending borders from start to end, with about the same number of bytes between neighbours.

    Every file gets at least one offset; `count` is at most end - start.  Without usable samples all offsets
    have equal weight.
    """
    offsets, weights = _cumulated(start, end, samples)
    borders = [start]
    for index in range(1, count):
        border = _offset_at(offsets, weights, weights[-1] * index / count)
        borders.append(min(max(border, borders[-1] + 1), end - (count - index)))
    return [*borders, end]


def _cumulated(start: int, end: int, samples: Sequence[Sample]) -> tuple[list[int], list[float]]:
    """Return the offsets with the estimated bytes of [start, offset).

    Up to the next sample the log is assumed to have the density of this sample.  Offsets between a fetch offset and
    its first batch have no records.
    """
    offsets, weights = [start], [0.0]

    def extend(offset: int, per_offset: float) -> None:
        if offset > offsets[-1]:
            weights.append(weights[-1] + (offset - offsets[-1]) * per_offset)
            offsets.append(offset)

    inside = [sample for sample in samples if start <= sample.offset < end]
    limits = [*(sample.offset for sample in inside), end][1:]
    for sample, limit in zip(inside, limits, strict=True):
        extend(min(max(sample.base_offset, sample.offset), limit), 0.0)
        extend(limit, sample.size_bytes / max(sample.next_offset - sample.base_offset, 1))
    if offsets[-1] < end or weights[-1] <= 0:
        return [start, end], [0.0, float(end - start)]
    return offsets, weights


def _offset_at(offsets: list[int], weights: list[float], weight: float) -> int:
    index = min(bisect_right(weights, weight), len(weights) - 1)
    share = (weight - weights[index - 1]) / (weights[index] - weights[index - 1])
    return offsets[index - 1] + round((offsets[index] - offsets[index - 1]) * share)

"""Counts the records of a topic, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kctl.limits import PROFILE_KEY_BYTES_MAX, Subject, bound
from kctl.records.compression import Codec
from kctl.records.header import CODEC_MASK, HEADER_SIZE
from kctl.tables.exec.decoding.decode import RecordPositions, binary_column, positions_in_time
from kctl.tables.exec.reading.chunk import Bytes, Chunk, Longs
from kctl.tables.exec.reading.fetch import OffsetRange
from kctl.tables.exec.reading.locate import Fields, Slots, locate
from kctl.tables.profiling.fields import SLICES, ValueSample
from kctl.tables.profiling.histogram import Histogram, spread_of
from kctl.tables.profiling.key_counts import DistinctKeys, FrequentKeys
from kctl.tables.profiling.rows import (
    CodecProfile,
    KeyProfile,
    KindCount,
    PartitionProfile,
    SchemaIdCount,
    SliceProfile,
    TopicProfile,
    TopKey,
    ValueProfile,
    key_text,
)
from kctl.tables.profiling.time_counts import TimeCounts
from kctl.tables.verification.record_hash import binary_hashes

PROFILE_DISTINCT_KEYS_MAX = bound(
    Subject.EXPORTS,
    "keys that `kctl tables profile` keeps to count distinct keys, with 32 bytes each",
    1 << 16,
    "keys",
    on_excess="the number of distinct keys is an estimate with a standard error of 0.4 %",
)
PROFILE_FREQUENT_KEYS_MAX = bound(
    Subject.EXPORTS,
    "candidates for the most frequent keys in a profile",
    4_096,
    "keys",
    on_excess="counts of frequent keys are lower bounds, whose error is shown",
)
PROFILE_TIME_BUCKETS_MAX = bound(
    Subject.EXPORTS,
    "buckets of a profile's records by time",
    2_048,
    "buckets",
    on_excess="the width of the buckets is doubled",
)
PROFILE_SAMPLED_VALUES_MAX = bound(
    Subject.EXPORTS,
    "values that a profile examines, or two of each partition if that is more",
    10_000,
    "values",
    on_excess="the others are not in the sample",
)
PROFILE_SCHEMA_IDS_MAX = bound(
    Subject.EXPORTS,
    "ids of a schema registry in a profile",
    1_000,
    "ids",
    on_excess="further ids are counted together",
)


NO_TIMESTAMP = -1
SCHEMA_ID_BYTES = 5
"""A zero byte and the id in the header of a registry's serializer."""
TOP_KEYS = 20
_TIME_MIN, _TIME_MAX = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class PartitionTally:
    """The counts of one partition, whose records are added in the order of offsets."""

    def __init__(self, range_: OffsetRange, number: int, partitions: int) -> None:
        """Prepare the profile of range `number` of `partitions`: each takes its samples at different shares of its
        offsets.
        """
        self.range = range_
        self.records = self.log_bytes = self.key_bytes = self.value_bytes = 0
        self.null_keys = self.null_values = self.out_of_order = self.lateness_ms_max = self.gone = 0
        self.min_timestamp, self.max_timestamp = _TIME_MIN, _TIME_MAX
        self._width = range_.end - range_.start
        sampled = max(1, PROFILE_SAMPLED_VALUES_MAX // partitions)
        self._stride = max(1, -(-self._width // sampled))
        self._phase = self._stride * number // partitions
        self._mark = -1

    def slices(self, offsets: Longs) -> Longs:
        """Return the slice of each offset."""
        # The product of an offset and SLICES may overflow; offsets count from the start of the range.
        return (offsets - self.range.start) // -(-self._width // SLICES)

    def sampled(self, offsets: Longs) -> Longs:
        """Return the indices of the records that belong to the sample of values."""
        marks = (offsets - self.range.start + self._phase) // self._stride
        is_first = marks != np.concatenate(([self._mark], marks[:-1]))
        self._mark = int(marks[-1])
        return np.flatnonzero(is_first)

    def lateness(self, timestamps: Longs) -> Longs:
        """For records that are out of order, the time since the latest record before them."""
        if not len(timestamps):
            return timestamps
        latest = np.maximum.accumulate(np.concatenate(([self.max_timestamp], timestamps)))[:-1]
        late = timestamps < latest
        self.min_timestamp = min(self.min_timestamp, int(timestamps.min()))
        self.max_timestamp = max(self.max_timestamp, int(timestamps.max()))
        return latest[late] - timestamps[late]

    def row(self, records: int) -> PartitionProfile:
        """Return the partition in a topic with this number of records."""
        range_ = self.range
        return PartitionProfile(
            *range_.tp,
            range_.start,
            range_.end,
            self.records,
            round(self.records / records, 6) if records else 0.0,
            self.log_bytes,
            self.key_bytes,
            self.value_bytes,
            self.null_keys,
            self.null_values,
            self.out_of_order,
            self.lateness_ms_max,
            *_times(self.min_timestamp, self.max_timestamp),
            self.gone,
        )


class Profiler:
    """The counts of a topic."""

    def __init__(self) -> None:
        self.partitions: list[PartitionTally] = []
        self._key_sizes = Histogram()
        self._value_sizes = Histogram()
        self._lateness = Histogram()
        self._distinct = DistinctKeys(PROFILE_DISTINCT_KEYS_MAX)
        self._frequent = FrequentKeys(PROFILE_FREQUENT_KEYS_MAX)
        self._times = TimeCounts(PROFILE_TIME_BUCKETS_MAX)
        self._with_headers = self._append_time = self._without_timestamp = 0
        self._codecs: dict[int, list[int]] = {}
        self._slice_records = np.zeros(SLICES, np.int64)
        self._slice_starts = np.full(SLICES, _TIME_MIN, np.int64)
        self._slice_ends = np.full(SLICES, _TIME_MAX, np.int64)
        self._sample = ValueSample()
        self._schema_ids: dict[int, NDArray[np.int64]] = {}
        self._other_schema_ids = 0

    def add(self, tally: PartitionTally, chunk: Chunk) -> None:
        """Count the records of a chunk whose offsets are in the range of the partition.  Raises CorruptRecords."""
        self._count_batches(tally, chunk)
        fields = locate(chunk)
        positions = positions_in_time(chunk, fields)
        if not len(positions.offsets):
            return
        first, last = np.searchsorted(positions.offsets, (tally.range.start, tally.range.end)).tolist()
        fields = _clipped(fields, first, last)
        positions = RecordPositions(
            positions.offsets[first:last], positions.timestamps_ms[first:last], positions.types[first:last]
        )
        if first == last:
            return
        tally.records += last - first
        slices = tally.slices(positions.offsets)
        self._slice_records += np.bincount(slices, minlength=SLICES)
        self._with_headers += int((chunk.buffer[fields.headers] != 0).sum())
        self._append_time += int(positions.types.sum())
        self._count_times(tally, positions.timestamps_ms, slices)
        self._count_keys(tally, chunk.buffer, fields.keys)
        self._count_values(tally, chunk.buffer, fields.values, positions.offsets, slices)

    def profile(self, topic: str, isolation: str) -> TopicProfile:
        """Return the counts as rows."""
        tallies = self.partitions
        records = sum(tally.records for tally in tallies)
        return TopicProfile(
            topic,
            isolation,
            records,
            sum(tally.log_bytes for tally in tallies),
            sum(tally.null_keys for tally in tallies),
            sum(tally.null_values for tally in tallies),
            self._with_headers,
            self._append_time,
            self._without_timestamp,
            self._lateness.count,
            [tally.row(records) for tally in tallies],
            spread_of(self._key_sizes),
            spread_of(self._value_sizes),
            spread_of(self._lateness),
            self._key_profile(),
            [CodecProfile(Codec(codec).name.lower(), *counts) for codec, counts in sorted(self._codecs.items())],
            self._times.width_ms,
            self._times.buckets(),
            list(self._slice_rows()),
            ValueProfile(
                self._sample.kinds.total(),
                [KindCount(*pair) for pair in self._sample.kinds.most_common()],
                [
                    SchemaIdCount(id_, int(counts.sum()), counts.tolist())
                    for id_, counts in sorted(self._schema_ids.items())
                ],
                self._other_schema_ids,
                self._sample.fields(),
                self._sample.has_more_fields,
            ),
        )

    def _count_batches(self, tally: PartitionTally, chunk: Chunk) -> None:
        sizes = (chunk.ends - chunk.starts).tolist()
        for batch, size in zip(chunk.batches, sizes, strict=True):
            tally.log_bytes += batch.size
            counts = self._codecs.setdefault(batch.attributes & CODEC_MASK, [0, 0, 0])
            counts[0] += 1
            counts[1] += batch.size
            counts[2] += HEADER_SIZE + size

    def _count_times(self, tally: PartitionTally, timestamps: Longs, slices: Longs) -> None:
        known = timestamps != NO_TIMESTAMP
        if not known.all():
            self._without_timestamp += int((~known).sum())
            timestamps, slices = timestamps[known], slices[known]
        late = tally.lateness(timestamps)
        tally.out_of_order += len(late)
        tally.lateness_ms_max = max(tally.lateness_ms_max, int(late.max(initial=0)))
        self._lateness.add(late)
        self._times.add(timestamps)
        np.minimum.at(self._slice_starts, slices, timestamps)
        np.maximum.at(self._slice_ends, slices, timestamps)

    def _count_keys(self, tally: PartitionTally, buffer: Bytes, keys: Slots) -> None:
        lengths = keys.lengths[keys.lengths >= 0]
        tally.null_keys += len(keys.lengths) - len(lengths)
        tally.key_bytes += int(lengths.sum())
        self._key_sizes.add(lengths)
        if not len(lengths):
            return
        counted = pc.value_counts(binary_column(buffer, keys).drop_null())
        distinct, counts = counted.field("values"), counted.field("counts").to_numpy()
        hashes = binary_hashes(distinct)
        self._distinct.add(hashes, counts, tally.range.tp.partition)
        self._frequent.add(hashes, counts, lambda index: _cut(distinct[index]))

    def _count_values(self, tally: PartitionTally, buffer: Bytes, values: Slots, offsets: Longs, slices: Longs) -> None:
        present = values.lengths >= 0
        lengths = values.lengths[present]
        tally.null_values += len(offsets) - len(lengths)
        tally.value_bytes += int(lengths.sum())
        self._value_sizes.add(lengths)
        self._count_schema_ids(buffer, values, slices)
        for index in tally.sampled(offsets).tolist():
            if present[index]:
                start = int(values.starts[index])
                value = buffer[start : start + int(values.lengths[index])].tobytes()
                self._sample.add(value, int(slices[index]))

    def _count_schema_ids(self, buffer: Bytes, values: Slots, slices: Longs) -> None:
        long_enough = values.lengths >= SCHEMA_ID_BYTES
        starts = values.starts[long_enough]
        is_marked = buffer[starts] == 0
        if not is_marked.any():
            return
        starts = starts[is_marked]
        ids = sum(buffer[starts + 1 + byte].astype(np.int64) << (24 - 8 * byte) for byte in range(4))
        pairs, counts = np.unique(ids * SLICES + slices[long_enough][is_marked], return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            id_, slice_ = divmod(pair, SLICES)
            if id_ not in self._schema_ids and len(self._schema_ids) >= PROFILE_SCHEMA_IDS_MAX:
                self._other_schema_ids += count
            else:
                self._schema_ids.setdefault(id_, np.zeros(SLICES, np.int64))[slice_] += count

    def _key_profile(self) -> KeyProfile:
        per_key = Histogram()
        per_key.add(self._distinct.counts)
        records = self._key_sizes.count
        top = [
            TopKey(key_text(key), count, round(count / records, 6))
            for key, count in self._frequent.top(TOP_KEYS)
            if count > 0
        ]
        distinct = self._distinct.estimate
        return KeyProfile(
            distinct,
            round(self._distinct.error, 6),
            round(distinct * self._distinct.spread_share),
            spread_of(per_key),
            self._frequent.error,
            top,
        )

    def _slice_rows(self) -> Iterator[SliceProfile]:
        rows = zip(self._slice_records.tolist(), self._slice_starts.tolist(), self._slice_ends.tolist(), strict=True)
        for number, (records, start, end) in enumerate(rows):
            yield SliceProfile(number, records, *_times(start, end), self._sample.objects[number])


def _clipped(fields: Fields, first: int, last: int) -> Fields:
    """Return the records with these indices."""
    return Fields(
        fields.timestamp_deltas[first:last],
        fields.offset_deltas[first:last],
        Slots(fields.keys.starts[first:last], fields.keys.lengths[first:last]),
        Slots(fields.values.starts[first:last], fields.values.lengths[first:last]),
        fields.headers[first:last],
        fields.ends[first:last],
    )


def _cut(key: pa.Scalar) -> bytes:
    whole: bytes = key.as_py()
    return whole[:PROFILE_KEY_BYTES_MAX]


def _times(start: int, end: int) -> tuple[int | None, int | None]:
    return (None, None) if end < start else (start, end)

"""`kctl tables profile`: counts against those of a loop over the records, with batches in memory."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Self
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.model import TopicPartition
from kctl.records.batch import iterate_batches
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.tables.exec.outcome import Unreadable
from kctl.tables.exec.reading.fetch import Fetched, OffsetRange
from kctl.tables.profiling import fields, profiler
from kctl.tables.profiling.histogram import BARS_MAX, Histogram
from kctl.tables.profiling.key_counts import DistinctKeys, FrequentKeys
from kctl.tables.profiling.profiler import PartitionTally, Profiler
from kctl.tables.profiling.request import fill
from kctl.tables.profiling.rows import TopicProfile
from kctl.tables.profiling.time_counts import TimeCounts, bars


class Loaded:
    """A reader of the records of one partition in memory."""

    lost = 0
    on_unreadable: Callable[[Unreadable], None] | None = None

    def __init__(self, records: Sequence[Record], range_: OffsetRange, per_batch: int, codec: Codec) -> None:
        self.position = range_.end
        self._data = memoryview(
            b"".join(
                build_batch(records[at : at + per_batch], base_offset=records[at].offset, codec=codec)
                for at in range(0, len(records), per_batch)
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def responses(self) -> Iterator[Fetched]:
        yield Fetched(self._data, list(iterate_batches(self._data)), len(self._data))


def profile_of(
    *partitions: Sequence[Record],
    start: int = 0,
    end: int | None = None,
    per_batch: int = 7,
    codec: Codec = Codec.NONE,
) -> TopicProfile:
    ranges = [
        OffsetRange(
            TopicPartition("orders", number),
            UUID(int=1),
            start,
            len(records) if end is None else end,
            IsolationLevel.READ_COMMITTED,
        )
        for number, records in enumerate(partitions)
    ]
    found = Profiler()
    fill(
        found,
        ranges,
        lambda range_: Loaded(partitions[range_.tp.partition], range_, per_batch, codec),
        lambda done, total: None,
    )
    return found.profile("orders", "read_committed")


def record(offset: int, value: bytes | None = b"{}", *, key: bytes | None = None, timestamp: int = 0) -> Record:
    return Record(offset, timestamp, key, value)


binaries = st.none() | st.binary(max_size=80) | st.sampled_from([b"a", b"b", b"c", b"{}", b"\0\0\0\0\7x"])
contents = st.lists(
    st.tuples(binaries, binaries, st.integers(-1, 2_000) | st.integers(10**12, 10**12 + 10**7)), max_size=60
)


@settings(deadline=None)
@given(st.lists(contents, min_size=1, max_size=3), st.sampled_from(list(Codec)), st.integers(0, 20))
def test_a_profile_counts_what_a_loop_over_the_records_counts(
    drawn: list[list[tuple[bytes | None, bytes | None, int]]], codec: Codec, start: int
) -> None:
    partitions = [
        [record(offset, value, key=key, timestamp=time) for offset, (key, value, time) in enumerate(profile)]
        for profile in drawn
    ]
    start = min(start, *(len(partition) for partition in partitions))
    found = profile_of(*partitions, start=start, codec=codec)
    chosen = [partition[start:] for partition in partitions]
    records = [record for records_of_one in chosen for record in records_of_one]
    assert found.records == len(records)
    assert (found.null_keys, found.null_values) == (
        sum(record.key is None for record in records),
        sum(record.value is None for record in records),
    )
    late = []
    for records_of_one, row in zip(chosen, found.partitions, strict=True):
        assert row.records == len(records_of_one)
        assert row.value_bytes == sum(len(each.value or b"") for each in records_of_one)
        assert row.key_bytes == sum(len(each.key or b"") for each in records_of_one)
        times = [each.timestamp for each in records_of_one if each.timestamp != -1]
        assert (row.min_timestamp, row.max_timestamp) == ((min(times), max(times)) if times else (None, None))
        behind = [max(times[:at], default=time) - time for at, time in enumerate(times)]
        late += [lateness_ms for lateness_ms in behind if lateness_ms > 0]
        assert row.lateness_ms_max == max([0, *behind])
    assert (found.out_of_order, found.lateness_ms.max or 0) == (len(late), max(late, default=0))
    assert found.without_timestamp == sum(record.timestamp == -1 for record in records)
    assert sum(time_.records for time_ in found.times) == len(records) - found.without_timestamp
    keys = Counter(record.key for record in records if record.key is not None)
    assert (found.keys.distinct, found.keys.distinct_error, found.keys.frequency_error) == (len(keys), 0, 0)
    assert [one.records for one in found.keys.top] == sorted(keys.values(), reverse=True)[: profiler.TOP_KEYS]
    sizes = [len(record.value) for record in records if record.value is not None]
    assert (found.value_sizes.counted, found.value_sizes.max) == (len(sizes), max(sizes, default=None))
    assert sum(bar.counted for bar in found.value_sizes.bars) == len(sizes)
    ids = Counter(
        struct.unpack(">xI", record.value[:5])[0]
        for record in records
        if record.value and record.value[:1] == b"\0" and len(record.value) >= 5
    )
    assert {id_.schema_id: id_.values for id_ in found.values.schema_ids} == ids
    assert sum(slice_.records for slice_ in found.slices) == len(records)
    spread = Counter(
        key for drawn_records in chosen for key in {each.key for each in drawn_records if each.key is not None}
    )
    assert found.keys.in_several_partitions == sum(count > 1 for count in spread.values())
    json.dumps(found)


@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 300), min_size=1))
def test_percentiles_are_at_most_a_thirty_second_too_high(numbers: list[int]) -> None:
    histogram = Histogram()
    histogram.add(np.array(numbers, np.int64))
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        rank = max(1, -int(-share * len(numbers) // 1))
        true = sorted(numbers)[rank - 1]
        assert true <= histogram.percentile(share) <= true + true // 32
    assert (histogram.min, histogram.max, histogram.total) == (min(numbers), max(numbers), sum(numbers))
    shown = histogram.bars()
    assert len(shown) <= BARS_MAX
    assert [bar.counted for bar in shown] == [sum(bar.low <= number <= bar.high for number in numbers) for bar in shown]
    assert sum(bar.counted for bar in shown) == len(numbers)


def test_distinct_keys_are_estimated_in_bounded_memory() -> None:
    random = np.random.default_rng(7)
    hashes = random.integers(0, 2**64, 200_000, dtype=np.uint64, endpoint=False)
    keys = DistinctKeys(4_096)
    for number in range(20):
        keys.add(hashes[number * 10_000 : (number + 1) * 10_000], np.full(10_000, 2), partition=0)
        keys.add(hashes[:10_000], np.ones(10_000, np.int64), partition=number % 2)
    assert not keys.is_exact
    assert len(keys.counts) == 4_096
    assert abs(keys.estimate / 200_000 - 1) < 4 * keys.error
    # The kept keys are a sample with exact counts: a twentieth of the keys has 22 records, the others have two.
    assert set(keys.counts.tolist()) == {2, 22}
    assert abs((keys.counts == 22).mean() - 0.05) < 0.02
    assert abs(keys.spread_share - 0.05) < 0.02


def test_counts_of_frequent_keys_are_lower_bounds_with_the_stated_error() -> None:
    random = np.random.default_rng(8)
    keys = FrequentKeys(100)
    true: Counter[int] = Counter()
    for _ in range(50):
        some = np.concatenate((random.integers(1_000, 2**60, 5_000), random.zipf(1.3, 2_000) % 1_000))
        distinct, counts = np.unique(some, return_counts=True)
        true.update(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
        keys.add(distinct.astype(np.uint64), counts, lambda index, of=distinct: b"%d" % of[index])  # type: ignore[misc]
    assert 0 < keys.error <= true.total() / 100
    found = {int(row.key): row.records for row in keys.top(100)}
    assert all(true[key] - keys.error <= count <= true[key] for key, count in found.items())
    assert {key for key, count in true.items() if count > keys.error} <= found.keys()


def test_a_few_wrong_timestamps_do_not_cost_the_resolution_of_the_others() -> None:
    counts = TimeCounts(2_048)
    for hour in range(24):
        counts.add(1_793_491_200_000 + np.arange(hour * 3_600_000, (hour + 1) * 3_600_000, 5_000))
    counts.add(np.array([-(2**62) // 1000, 0, 5, 2**62 // 1000], np.int64))
    assert sum(bucket.records for bucket in counts.buckets()) == 24 * 720 + 4
    assert counts.width_ms <= 64_000
    shown, width_ms, outside = bars(counts.buckets(), counts.width_ms, 90)
    assert outside == 4
    assert 24 * 3_600_000 / 90 <= width_ms <= 24 * 3_600_000 / 40
    assert sum(bar.records for bar in shown) == 24 * 720


def test_fields_that_appear_end_or_change_their_type_are_named() -> None:
    def value(offset: int) -> bytes:
        found: dict[str, object] = {"id": offset, "amount": offset / 7 if offset < 1_000 else str(offset)}
        if offset >= 1_500:
            found["currency"] = {"code": "EUR"}
        if offset < 500:
            found["legacy"] = None
        if offset % 400 == 7:
            found["rare"] = [1, "x", 2**70]
        return json.dumps(found).encode()

    found = profile_of([record(offset, value(offset)) for offset in range(2_000)], per_batch=100)
    by_name = {field.field: field for field in found.values.fields}
    assert {name: field.changes for name, field in by_name.items() if field.changes} == {
        "amount": ["number becomes string in slice 10"],
        "currency": ["new since slice 15"],
        "currency.code": ["new since slice 15"],
        "legacy": ["gone after slice 4"],
    }
    assert by_name["rare[]"].kinds == {"integer": 5, "string": 5, "integer beyond 64 bits": 5}
    assert by_name["rare[]"].values == by_name["rare"].values == 5
    assert by_name["legacy"].shares_by_slice == [1.0] * 5 + [0.0] * 15
    assert found.values.kinds == [("JSON object", 2_000)]


def test_what_is_no_json_object_is_named_by_its_kind() -> None:
    values = [b"", b"\0\0\0\0\1x", b"[1]", b"17", b"text", b"\xff\xfe", b'{"a":' * 5_000, None, b"0" * 5_000, b"\0"]
    found = profile_of([record(offset, value) for offset, value in enumerate(values)])
    assert dict(found.values.kinds) == {
        "empty": 1,
        "schema registry": 1,
        "other JSON": 2,
        "text": 4,
        "binary": 1,
    }


def test_the_sample_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "PROFILE_SAMPLED_VALUES_MAX", 50)
    monkeypatch.setattr(fields, "PROFILE_FIELDS_MAX", 30)
    partitions = [[record(offset, b'{"field %d": 1}' % offset) for offset in range(1_000)] for _ in range(4)]
    found = profile_of(*partitions, per_batch=64)
    assert 50 - 4 <= found.values.sampled <= 50 + 4
    assert (len(found.values.fields), found.values.has_more_fields) == (30, True)
    assert sum(slice_.sampled_objects > 0 for slice_ in found.slices) >= 18


def test_a_gap_of_compaction_costs_at_most_its_share_of_the_sample() -> None:
    tally = PartitionTally(
        OffsetRange(TopicPartition("orders", 0), UUID(int=1), 0, 10**15, IsolationLevel.READ_COMMITTED), 0, 1
    )
    assert len(tally.sampled(np.array([0, 1, 10**14, 10**14 + 1, 10**15 - 1]))) == 3
    assert tally.slices(np.array([0, 10**15 - 1])).tolist() == [0, fields.SLICES - 1]


def test_a_topic_without_records_has_a_profile() -> None:
    found = profile_of([], [])
    assert (found.records, found.keys.distinct, found.values.fields) == (0, 0, [])


def test_records_of_a_batch_before_and_after_the_range_are_not_counted() -> None:
    records = [record(offset, b"%d" % offset, key=b"%d" % offset) for offset in range(10)]
    found = profile_of(records, start=3, end=5, per_batch=10)
    assert found.records == 2
    assert {row.key for row in found.keys.top} == {"3", "4"}
    assert found.partitions[0].value_bytes == 2

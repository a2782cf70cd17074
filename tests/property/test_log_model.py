"""The log against a plain list: random histories of appends, rolls, cuts, retention, crashes and reopenings.

The list holds (offset, timestamp, value).  After every step the log reads like the list, from any offset, and finds the
same first record for any timestamp; the same history under other segment sizes, index intervals and codecs gives equal
records, because each run draws them anew.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kctl.records.batch import iterate_batches
from kctl.records.compression import Codec
from kctl.storage.config import LogConfig
from kctl.storage.log.log import Log
from tests.property.examples import share_of
from tests.unit.storage.log_builder import NOW_MS, LogOnDisk, read_records, unload_indexes, value_batch


@dataclass
class Model:
    """The expected contents of the log."""

    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    batches: list[tuple[int, int]] = field(default_factory=list)
    """(base offset, end offset) of each append: a cut takes whole batches."""
    start: int = 0
    end: int = 0

    def cut(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch[1] <= offset]
        last = self.batches[-1][1] if self.batches else 0
        self.records = [record for record in self.records if record[0] < min(last, offset)]

    def visible(self, offset: int) -> list[tuple[int, int, bytes]]:
        return [record for record in self.records if record[0] >= max(offset, self.start)]


class LogMachine(RuleBasedStateMachine):
    """One log and its model."""

    @initialize(
        segment_bytes=st.sampled_from([800, 2000, 5000, 1 << 20]),
        index_interval_bytes=st.sampled_from([0, 100, 1000, 4096]),
        codec=st.sampled_from(list(Codec)),
        compression_type=st.sampled_from(["producer", "uncompressed", "zstd"]),
        seed=st.integers(0, 1 << 20),
    )
    def create(
        self, segment_bytes: int, index_interval_bytes: int, codec: Codec, compression_type: str, seed: int
    ) -> None:
        config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            segment_index_bytes=1200,
            compression_type=compression_type,
            retention_ms=10_000,
            file_delete_delay_ms=0,
        )
        self.machine = LogOnDisk(config)
        self.codec = codec
        self.random = random.Random(seed)
        self.model = Model()
        self.synced_end = 0

    @property
    def log(self) -> Log:
        return self.machine.log

    @rule(count=st.integers(1, 5), size=st.integers(0, 120), step_ms=st.integers(-500, 3000))
    def append(self, count: int, size: int, step_ms: int) -> None:
        self.machine.now_ms += max(step_ms, 0)
        timestamp = self.machine.now_ms + min(step_ms, 0)
        values = [self.random.randbytes(size) for _ in range(count)]
        result = self.machine.append(*values, timestamp=timestamp, codec=self.codec, leader_epoch=self.epoch())
        assert (result.base_offset, result.last_offset) == (self.model.end, self.model.end + count - 1)
        self.note(timestamp, values)

    @rule(gap=st.integers(0, 3), count=st.integers(1, 3))
    def replicate(self, gap: int, count: int) -> None:
        """A follower may get batches with a gap before them, which compaction left."""
        values = [self.random.randbytes(10) for _ in range(count)]
        base = self.model.end + gap
        data = value_batch(*values, base_offset=base, leader_epoch=self.epoch(), timestamp=self.machine.now_ms)
        self.log.append_as_follower(bytearray(data))
        self.model.end = base
        self.note(self.machine.now_ms, values)

    def epoch(self) -> int:
        return max(self.log.leader_epochs.latest_epoch, 0) + int(self.random.randrange(0, 10) == 0)

    def note(self, timestamp: int, values: list[bytes]) -> None:
        base = self.model.end
        self.model.records += ((base + index, timestamp, value) for index, value in enumerate(values))
        self.model.end = base + len(values)
        self.model.batches.append((base, self.model.end))

    @rule()
    def roll(self) -> None:
        self.log.roll(self.machine.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.model.end
        self.synced_end = self.model.end

    @rule(where=st.floats(0, 1))
    def truncate(self, where: float) -> None:
        """Followers cut where an epoch ends, which is where a batch ends."""
        ends = [0, *(end for _, end in self.model.batches)]
        offset = max(ends[int(where * (len(ends) - 1))], self.model.start)
        self.log.truncate_to(offset)
        self.model.cut(offset)
        self.model.end = min(self.model.end, offset)
        self.synced_end = min(self.synced_end, offset)

    @rule(ahead=st.integers(0, 10))
    def start_over(self, ahead: int) -> None:
        if self.random.randrange(0, 4):
            return  # Often enough.
        offset = self.model.end + ahead
        self.log.truncate_fully_and_start_at(offset)
        self.model = Model(start=offset, end=offset)
        self.synced_end = offset

    @rule(where=st.floats(0, 1))
    def delete_records(self, where: float) -> None:
        offset = self.model.start + int(where * (self.model.end - self.model.start))
        self.log.increment_log_start_offset(offset)
        self.model.start = max(self.model.start, offset)

    @rule(later_ms=st.integers(0, 20_000), where=st.floats(0, 1))
    def retain(self, later_ms: int, where: float) -> None:
        self.machine.now_ms += later_ms
        high_watermark = int(where * self.model.end)
        self.log.delete_old_segments(self.machine.now_ms, high_watermark)
        new_start = self.log.log_start_offset
        assert new_start <= max(self.model.start, high_watermark)
        assert all(
            timestamp <= self.machine.now_ms - 10_000
            for offset, timestamp, _ in self.model.visible(0)
            if offset < new_start
        )
        self.model.start = new_start
        self.synced_end = max(self.synced_end, min(new_start, self.model.end))

    @rule()
    def close_and_reopen(self) -> None:
        self.machine.close_and_reopen()
        self.synced_end = self.model.end

    @rule()
    def kill_and_reopen(self) -> None:
        self.machine.crash_and_reopen()

    @rule(seed=st.integers(0, 1 << 20))
    def lose_power_and_reopen(self, seed: int) -> None:
        """Flushed data survives; of the rest the disk keeps any part, unchanged."""
        log = self.machine.crash_and_reopen(seed=seed)
        assert self.model.start == log.log_start_offset
        assert self.synced_end <= log.log_end_offset <= max(self.model.end, self.model.start)
        survivors = {record.offset for record in read_records(log, log.log_start_offset)}
        assert survivors >= {offset for offset, _, _ in self.model.visible(0) if offset < self.synced_end}
        self.model.records = [record for record in self.model.records if record[0] in survivors]
        # Where records are lost there is no batch to cut at, either.
        self.model.batches = [batch for batch in self.model.batches if batch[1] - 1 in survivors]
        self.model.end = self.synced_end = log.log_end_offset
        self.synced_end = min(self.synced_end, log.recovery_point)

    @rule()
    def forget_indexes(self) -> None:
        unload_indexes(self.log)

    @rule(kind=st.sampled_from([".index", ".timeindex"]), how=st.sampled_from(["remove", "odd size", "garbage"]))
    def damage_an_index(self, kind: str, how: str) -> None:
        """A damaged index of a closed segment is repaired when it is used."""
        unload_indexes(self.log)
        closed = self.log.segments[:-1]
        if not closed:
            return
        path = self.random.choice(closed).path(kind)
        if how == "remove":
            self.machine.files.remove(path)
        elif how == "odd size":
            self.machine.files.write_atomically(path, b"\1" * 13)
        elif kind == ".index":
            self.machine.files.write_atomically(path, (5).to_bytes(4, "big") + (7).to_bytes(4, "big"))

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.model.start, self.model.end)
        assert self.log.recovery_point <= self.log.log_end_offset
        assert self.log.size_bytes == sum(segment.size for segment in self.log.segments)

    @invariant()
    def reads_like_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        span = self.model.end - self.model.start
        for offset in {self.model.start, self.model.start + self.random.randrange(0, span + 1)}:
            max_bytes = self.random.choice([1, 200, 1 << 20])
            read = [
                (found.offset, found.timestamp, found.value)
                for found in read_records(self.log, offset, max_bytes=max_bytes)
            ]
            assert read == self.model.visible(offset)

    @invariant()
    def bounds_hide_what_lies_behind_them(self) -> None:
        if not hasattr(self, "model") or self.model.end == self.model.start:
            return
        bound = self.random.randrange(self.model.start, self.model.end + 1)
        data = self.log.read(self.model.start, 1 << 20, max_offset=bound).read()
        for header in iterate_batches(data):
            assert header.base_offset < bound

    @invariant()
    def timestamps_are_found_where_the_model_has_them(self) -> None:
        if not hasattr(self, "model"):
            return
        visible = self.model.visible(0)
        target = self.random.choice([NOW_MS, self.machine.now_ms, *(record[1] + 1 for record in visible[-2:])])
        expected = next(((at, offset) for offset, at, _ in visible if at >= target), None)
        found = self.log.offset_for_timestamp(target, max_offset=self.model.end)
        assert (None if found is None else (found.timestamp, found.offset)) == expected


TestLogAgainstAList = LogMachine.TestCase
TestLogAgainstAList.settings = settings(
    max_examples=share_of(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)

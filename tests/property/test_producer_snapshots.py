"""Snapshots of producers, written by threads, against a list of batches.

Flush plans, and what is read before a truncation, run and end at any time between appends, rolls, truncations,
retention, crashes and stops.  A log that is opened again has the producers of its batches, whichever snapshots were
written by then.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kctl.storage.config import LogConfig
from kctl.storage.log.flushing import FlushPlan
from kctl.storage.log.log import Log
from kctl.storage.names import SNAPSHOT_SUFFIX, parse_offset_file_name
from kctl.storage.state.producer_snapshots import ProducerReload
from tests.property.examples import share_of
from tests.unit.storage.log_builder import LogOnDisk

PRODUCERS = 4


@dataclass
class Plan:
    """A flush of a log, in its thread."""

    log: Log
    plan: FlushPlan
    has_run: bool = False


class SnapshotMachine(RuleBasedStateMachine):
    """One log, the batches in it, and the flushes under way."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = LogOnDisk(LogConfig(segment_bytes=300, retention_bytes=900, file_delete_delay_ms=0))
        self.batches: list[tuple[int, int] | None] = []
        """(producer, sequence number) of each batch, whose offset is its index; None if a power failure took it."""
        self.plans: list[Plan] = []
        self.reload: ProducerReload | None = None
        """What a thread reads for a truncation."""

    @property
    def log(self) -> Log:
        return self.machine.log

    @rule(producer=st.integers(1, PRODUCERS))
    def append(self, producer: int) -> None:
        sequence = self.last_batches().get(producer, (-1, -1))[0] + 1
        self.machine.append(producer_id=producer, sequence=sequence)
        self.batches.append((producer, sequence))

    def last_batches(self) -> dict[int, tuple[int, int]]:
        """(sequence number, offset) of the last batch of each producer."""
        return {batch[0]: (batch[1], offset) for offset, batch in enumerate(self.batches) if batch is not None}

    @rule()
    def roll(self) -> None:
        self.log.roll(self.machine.now_ms)

    @rule(closed_segments_only=st.booleans())
    def plan(self, closed_segments_only: bool) -> None:
        self.plans.append(Plan(self.log, self.log.plan_flush(closed_segments_only=closed_segments_only)))

    @precondition(lambda self: any(not plan.has_run for plan in self.plans))
    @rule(data=st.data())
    def run(self, data: st.DataObject) -> None:
        plan = data.draw(st.sampled_from([plan for plan in self.plans if not plan.has_run]))
        plan.plan.run()
        plan.has_run = True

    @precondition(lambda self: any(plan.has_run for plan in self.plans))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        plan = data.draw(st.sampled_from([plan for plan in self.plans if plan.has_run]))
        self.plans.remove(plan)
        plan.log.flushed(plan.plan)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, len(self.batches)))
        self.log.truncate_to(offset)
        del self.batches[self.log.log_end_offset :]

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def plan_truncation(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, len(self.batches)))
        self.reload = self.log.plan_truncation(offset)

    @precondition(lambda self: self.reload is not None)
    @rule()
    def run_reload(self) -> None:
        assert self.reload is not None
        self.reload.run()

    @precondition(lambda self: self.reload is not None)
    @rule()
    def truncate_with_reload(self) -> None:
        assert self.reload is not None
        if self.reload.offset >= self.log.log_start_offset:
            was_usable = self.reload.state is not None and self.reload.truncations == self.log.truncations
            state = self.reload.state
            self.log.truncate_to(self.reload.offset, self.reload)
            assert (self.log.producer_state is state) == was_usable
            del self.batches[self.log.log_end_offset :]
        self.reload.release()
        self.reload = None

    @rule()
    def apply_retention(self) -> None:
        self.log.delete_old_segments(self.machine.now_ms, self.log.log_end_offset)

    @rule(seed=st.none() | st.integers(0, 1 << 20))
    def crash(self, seed: int | None) -> None:
        self.plans.clear()
        self.reload = None
        self.machine.crash_and_reopen(seed=seed)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        left = {record.offset for record in self.machine.records()}
        if seed is None:
            assert left == {at for at, batch in enumerate(self.batches) if at >= start and batch is not None}
        self.batches = [
            batch if offset < start or offset in left else None for offset, batch in enumerate(self.batches)
        ]
        del self.batches[end:]

    @rule()
    def stop_and_start(self) -> None:
        for plan in self.plans:
            if not plan.has_run:
                plan.plan.run()
            plan.log.flushed(plan.plan)
        self.plans.clear()
        self.reload = None
        self.machine.close_and_reopen()
        assert self.log.log_end_offset == len(self.batches)

    @invariant()
    def producers_are_those_of_the_batches(self) -> None:
        found = {
            entry.producer_id: (entry.last_sequence, entry.last_offset)
            for entry in self.log.producer_state.producers.values()
        }
        # Producers whose batches were deleted may be known from a snapshot.
        start = self.log.log_start_offset
        assert found == {key: last for key, last in self.last_batches().items() if key in found or last[1] >= start}

    @invariant()
    def no_snapshot_is_beyond_the_log(self) -> None:
        names = [parse_offset_file_name(name) for name in self.machine.file_names()]
        offsets = [name[0] for name in names if name is not None and name[1:] == (SNAPSHOT_SUFFIX, "")]
        assert max(offsets, default=0) <= self.log.log_end_offset


TestSnapshots = SnapshotMachine.TestCase
TestSnapshots.settings = settings(
    max_examples=share_of(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)

"""The rules of an export that repeats itself: when the next round starts, and what is counted.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kctl.tables.plans.plan import Plan

RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000


class TopicCounts(NamedTuple):
    """The counts of a topic's export since the start of the process."""

    records: int = 0
    bytes_in: int = 0
    lost: int = 0
    bad: int = 0

    def plus(self, other: TopicCounts) -> TopicCounts:
        """Return the sums."""
        return TopicCounts(*(own + more for own, more in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowState:
    """The state of an export that repeats itself; times are of a monotonic clock."""

    every_ms: int
    """Time between the starts of two rounds."""
    rounds: int = 0
    """Rounds that succeeded, also those without new records."""
    failed_rounds: int = 0
    failures: int = 0
    """Rounds that failed since the last one that succeeded."""
    started_ms: int = 0
    """Start of the last round."""
    due_ms: int = 0
    """Start of the next round."""
    committed_ms: int | None = None
    """Time of the last commit of this process."""
    topics: Mapping[str, TopicCounts] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    """Offsets by topic that the last round planned and did not commit."""
    maintained_ms: int | None = None
    """Time of the last maintenance; before the first one, of the first round."""
    problem: str = ""
    """Why the last round failed; empty if it succeeded."""


def is_maintenance_due(state: FollowState, every_ms: int, now_ms: int) -> bool:
    """Return whether tables are maintained after this round; `every_ms` is the time between two maintenances."""
    return not state.problem and state.maintained_ms is not None and now_ms - state.maintained_ms >= every_ms


def maintained(state: FollowState, now_ms: int) -> FollowState:
    """Return the state after a maintenance, also one that failed."""
    return replace(state, maintained_ms=now_ms)


def started(state: FollowState, now_ms: int) -> FollowState:
    """Return the state after the start of a round."""
    first_ms = now_ms if state.maintained_ms is None else state.maintained_ms
    return replace(state, started_ms=now_ms, maintained_ms=first_ms)


def planned(state: FollowState, plan: Plan) -> FollowState:
    """Return the state when a batch is about to be exported."""
    lag = Counter[str]()
    for range_ in plan.ranges:
        lag[range_.tp.topic] += range_.end - range_.start
    return replace(state, lag=dict(state.lag) | lag)


def succeeded(
    state: FollowState,
    exported: Mapping[str, TopicCounts],
    now_ms: int,
    *,
    commits: int,
    incomplete: Collection[str] = (),
) -> FollowState:
    """Return the state after the end of a round with `commits` commits.  The next one starts at its time, or at once if
    that has passed.

    `incomplete` are topics of which partitions could not be exported: their lag stays.
    """
    topics = dict(state.topics)
    for topic, counts in exported.items():
        topics[topic] = topics.get(topic, TopicCounts()).plus(counts)
    return replace(
        state,
        rounds=state.rounds + 1,
        failures=0,
        due_ms=max(state.started_ms + state.every_ms, now_ms),
        committed_ms=now_ms if commits else state.committed_ms,
        topics=topics,
        lag={topic: state.lag.get(topic, 0) if topic in incomplete else 0 for topic in {*state.lag, *topics}},
        problem="",
    )


def failed(state: FollowState, problem: str, now_ms: int) -> FollowState:
    """Return the state after a failed round.  The time until the next one doubles with each failure."""
    wait_ms = min(RETRY_MS_MIN << min(state.failures, 16), RETRY_MS_MAX)
    return replace(
        state,
        failed_rounds=state.failed_rounds + 1,
        failures=state.failures + 1,
        due_ms=now_ms + wait_ms,
        problem=problem,
    )

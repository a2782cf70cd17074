"""Verdicts of groups from the samples of `kctl top`, by the rules of `kctl groups lag`.  Pure.

A verdict needs earlier observations of a partition: they are kept for the window of the rules, thinned out, so that
memory does not grow with the time that the screen is shown.
"""

from __future__ import annotations

from collections import deque

from kctl.admin.cluster_sample import ClusterSample
from kctl.admin.lag_facts import NO_LIMITS, NOTHING_FETCHED, WINDOW_MS, Facts, LogRange, Look
from kctl.admin.lag_rules import Verdict, judge
from kctl.model import TopicPartition

LOOK_EVERY_MS = WINDOW_MS // 20
"""Closer observations of the same partition replace each other."""


class GroupVerdicts:
    """Call `observe` with each sample; `of` judges the groups of the latest one."""

    def __init__(self) -> None:
        self._looks: dict[tuple[str, TopicPartition], deque[Look]] = {}
        self._verdicts: dict[str, Verdict] = {}

    @property
    def look_count(self) -> int:
        """The number of observations that are kept."""
        return sum(map(len, self._looks.values()))

    def observe(self, sample: ClusterSample) -> None:
        """Judges the groups of a sample, and keeps what later verdicts need."""
        now_ms = sample.at_ms
        looks, self._looks = self._looks, {}
        self._verdicts = {}
        for name, group in sample.groups.items():
            worst: Verdict | None = None
            for tp in group.committed.keys() | group.assigned:
                committed = group.committed.get(tp)
                end, start = sample.ends.get(tp), sample.starts.get(tp)
                if end is None or start is None:
                    continue
                earlier = looks.get((name, tp), deque())
                # The first is the one at the beginning of the window.
                while len(earlier) > 1 and earlier[1].time_ms <= now_ms - WINDOW_MS:
                    earlier.popleft()
                facts = Facts(
                    now_ms=now_ms,
                    log=LogRange(start, end, end),
                    committed=committed,
                    unread=NOTHING_FETCHED
                    if committed is None
                    else sample.unread.get((tp, committed), NOTHING_FETCHED),
                    is_assigned=tp in group.assigned,
                    commits=sample.commits.get((name, tp), ()),
                    commits_since_ms=sample.commits_since_ms.get(name),
                    looks=tuple(earlier),
                    retention=sample.retentions.get(tp.topic, NO_LIMITS),
                    size_bytes=sample.sizes.get((sample.metadata.leader_of(tp)[0], tp)),
                )
                verdict = judge(facts).verdict
                worst = verdict if worst is None else max(worst, verdict)
                if not earlier or now_ms - earlier[-1].time_ms >= LOOK_EVERY_MS:
                    earlier.append(Look(now_ms, committed, start, end))
                self._looks[name, tp] = earlier
            if worst is not None:
                self._verdicts[name] = worst

    def of(self, group: str) -> str | None:
        """The most severe verdict of the group's partitions; None if none is known."""
        verdict = self._verdicts.get(group)
        return None if verdict is None else verdict.name

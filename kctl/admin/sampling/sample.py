"""One sample of a cluster, what brokers report in metrics, and the verdicts of groups.  Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kctl.admin.cluster.clients import SOFTWARE_NAMES, Software, client_metrics
from kctl.admin.placement.reassignment import Ongoing
from kctl.client.metadata import ClusterMetadata
from kctl.lag.facts import NO_LIMITS, NOTHING_FETCHED, WINDOW_MS, Facts, LogRange, Look, Position, Retention, Unread
from kctl.lag.rules import Verdict, judge
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.cluster.metrics import Sample


# Reads what `kctl top` shows of a broker from its metrics, under the names of any dialect. Pure.


_BYTES_IN = "bytes_in"
_BYTES_OUT = "bytes_out"
_COUNTERS = {
    f"kafka_server_brokertopicmetrics_{name}{suffix}": counter
    for name, counter in (("bytesin", _BYTES_IN), ("bytesout", _BYTES_OUT))
    for suffix in ("_total", "persec", "persec_total")
}
_REQUESTS = frozenset(
    f"kafka_network_requestmetrics_requests{suffix}" for suffix in ("_total", "persec", "persec_total")
)
_TIMES = "kafka_network_requestmetrics_totaltimems"
_IDLE = "kafka_network_socketserver_networkprocessoravgidlepercent"
_LOOP = "kctl_event_loop_busy_seconds_bucket"
_IDENTITY = "kafka_server_app_info_info"
NAMES = (*_COUNTERS, *_REQUESTS, _TIMES, _IDLE, _LOOP, _IDENTITY, *SOFTWARE_NAMES)
"""The metrics that are read; others are not parsed."""
_QUANTILE = "0.99"
_BOTH_READERS = "Fetch"
"""The label under which the fetches of consumers and followers are counted together."""


@dataclass(frozen=True, slots=True)
class BrokerReading:
    """Counters and gauges of one scrape; None for what the endpoint does not have."""

    broker_id: int | None = None
    """The id in the metrics, with which a wrong endpoint is recognised."""
    bytes_in: float | None = None
    bytes_out: float | None = None
    requests: float | None = None
    produce_p99_ms: float | None = None
    fetch_p99_ms: float | None = None
    idle_share: float | None = None
    loop_buckets: Mapping[float, float] = field(default_factory=dict)
    """Cumulative iterations of the event loop by upper bound in seconds."""
    connections: Mapping[Software, int] = field(default_factory=dict)
    """Open connections by the software of the client."""


def reading_of(samples: Iterable[Sample]) -> BrokerReading:
    """Return the reading in the samples of one scrape."""
    samples = list(samples)
    counters: dict[str, float] = {}
    times: dict[str, float] = {}
    loop: dict[float, float] = {}
    requests: float | None = None
    idle: float | None = None
    broker_id: int | None = None
    for name, labels, value in samples:
        if not math.isfinite(value):
            continue  # Exporters write NaN for a quantile of no observations.
        if name in _COUNTERS and not labels.get("topic"):
            counters[_COUNTERS[name]] = value
        elif name in _REQUESTS and labels.get("request") != _BOTH_READERS:
            requests = (requests or 0) + value
        elif name == _TIMES and labels.get("quantile") == _QUANTILE:
            times[labels.get("request", "")] = value
        elif name == _LOOP and _is_number(labels.get("le", "")):
            loop[float(labels["le"])] = value
        elif name == _IDLE:
            idle = value
        elif name == _IDENTITY and labels.get("id", "").isdecimal():
            broker_id = int(labels["id"])
    return BrokerReading(
        broker_id=broker_id,
        bytes_in=counters.get(_BYTES_IN),
        bytes_out=counters.get(_BYTES_OUT),
        requests=requests,
        produce_p99_ms=times.get("Produce"),
        fetch_p99_ms=times.get("FetchConsumer"),
        idle_share=idle,
        loop_buckets=loop,
        connections=client_metrics(samples).connections,
    )


def rate(old: float | None, new: float | None, elapsed_ms: int) -> float | None:
    """Return the events per second between two values of a counter; None if one is unknown or the counter began
    again.
    """
    if old is None or new is None or elapsed_ms <= 0 or new < old:
        return None
    return (new - old) * 1000 / elapsed_ms


def loop_lag_p99_ms(old: BrokerReading, new: BrokerReading) -> float | None:
    """Return the upper bound of 99 % of the iterations of the event loop between two scrapes; None if there were none.

    If more than 1 % of them were above the largest bound, it is that bound.
    """
    counts = {bound: count - old.loop_buckets.get(bound, 0) for bound, count in sorted(new.loop_buckets.items())}
    total = max(counts.values(), default=0)
    if total <= 0 or min(counts.values()) < 0:
        return None
    bound = next(bound for bound, count in counts.items() if count >= total * 0.99)
    return 1000 * (bound if math.isfinite(bound) else max(filter(math.isfinite, counts), default=0.0))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# One sample of a cluster, the input of `activity`. Pure.


@dataclass(frozen=True, slots=True)
class GroupReading:
    """A group at one time."""

    state: str
    members: int
    committed: Mapping[TopicPartition, int]
    owners: Mapping[TopicPartition, tuple[str, str]] = field(default_factory=dict)
    """Client id and host of the member that reads each assigned partition."""
    has_left: bool = False
    """Whether it has had members, and has none now."""
    has_history: bool = True
    """Whether its commits are in __consumer_offsets."""

    @property
    def assigned(self) -> AbstractSet[TopicPartition]:
        """The partitions that its members read."""
        return self.owners.keys()


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The state of a cluster at one time.  What could not be read is missing, and named in `problems`."""

    at_ms: int
    """Time of the sample by the monotonic clock."""
    metadata: ClusterMetadata
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The first offsets of the partitions in which a group had committed, or that its members read, in the sample
    before."""
    sizes: Mapping[tuple[int, TopicPartition], int] = field(default_factory=dict)
    """Bytes of each replica, by broker and partition."""
    offline_directories: Mapping[int, int] = field(default_factory=dict)
    """Number of failed log directories by broker, of brokers that have described theirs."""
    usable_bytes: Mapping[int, int] = field(default_factory=dict)
    """Free space of the brokers that report it for all their log directories in use."""
    ongoing: Mapping[TopicPartition, Ongoing] = field(default_factory=dict)
    groups: Mapping[str, GroupReading] = field(default_factory=dict)
    retentions: Mapping[str, Retention] = field(default_factory=dict)
    """The limits of topics that groups have not read to the end."""
    unread: Mapping[tuple[TopicPartition, int], Unread] = field(default_factory=dict)
    """The unread records after each committed offset; timestamps are converted to the monotonic clock."""
    commits: Mapping[tuple[str, TopicPartition], tuple[Position, ...]] = field(default_factory=dict)
    """The latest commits of groups that had unread records in the sample before, by the monotonic clock."""
    commits_since_ms: Mapping[str, int] = field(default_factory=dict)
    """`commits` has all commits of the group since this time, by the monotonic clock."""
    readings: Mapping[int, BrokerReading] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    frozen: str | None = None
    """That the metadata quorum has no leader, and since when; then the brokers of `metadata` are those that respond."""
    is_controller_unseen: bool = False
    """Whether the user may not see which controller is active."""


# Verdicts of groups from the samples of `kctl top`, by the rules of `kctl groups lag`. Pure.
#
# A verdict needs earlier observations of a partition: they are kept for the window of the rules, thinned out, so that
# memory does not grow with the time that the screen is shown.


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
        """Judge the groups of a sample, and keep what later verdicts need."""
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
                    has_left=group.has_left,
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
        """Return the most severe verdict of the group's partitions; None if none is known."""
        verdict = self._verdicts.get(group)
        return None if verdict is None else verdict.name

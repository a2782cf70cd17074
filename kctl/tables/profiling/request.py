"""`profile_topic`: reads a topic, or a range of it, once.  Imports pyarrow when it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.settings import ClientSettings
from kctl.model import TopicPartition
from kctl.tables.exec.outcome import CorruptRecords
from kctl.tables.exec.reading.chunk import Memories, chunks
from kctl.tables.exec.reading.fetch import OffsetRange, RangeReader, TopicLeaders
from kctl.tables.exec.targets.target import require_arrow
from kctl.tables.exec.task import OpenReader
from kctl.tables.plans.cluster_view import ISOLATION_LEVELS, TopicSelection, view_cluster
from kctl.tables.plans.plan import ClusterView, PartitionView, Positions
from kctl.tables.profiling.profiler import PartitionTally, Profiler
from kctl.tables.profiling.rows import TopicProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """Options of a profile."""

    selection: TopicSelection
    """One topic."""
    client: ClientSettings


def profile_topic(request: ProfileRequest, on_progress: Callable[[int, int], None]) -> TopicProfile:
    """Return the profile of the selected offsets.  `on_progress` is called with numbers of offsets: done, and all.

    Raises UsageError, PackageMissing, CorruptRecords, DataLoss, ApiError and ClusterUnreachable.
    """
    require_arrow()

    client = ClusterClient(request.client, BlockingTransport())
    try:
        view = run_blocking(view_cluster(client, request.selection, Positions()))
        return read_profile(client, view, request.selection, on_progress)
    finally:
        run_blocking(client.close())


# Reads the records of a profile, partition by partition.


def read_profile(
    client: ClusterClient, view: ClusterView, selection: TopicSelection, on_progress: Callable[[int, int], None]
) -> TopicProfile:
    """Return the profile of the only topic of the selection; records that are deleted meanwhile are counted as gone."""
    (topic,) = selection.topics
    level = ISOLATION_LEVELS[selection.isolation]
    ranges = [
        OffsetRange(
            TopicPartition(topic, number), view.topics[topic].topic_id, *_span(partition), level, partition.history
        )
        for number, partition in sorted(view.topics[topic].partitions.items())
    ]
    profiler = Profiler()
    leaders = TopicLeaders(client)
    open_reader = lambda range_: RangeReader(client, range_, may_skip=True, leaders=leaders)  # noqa: E731
    fill(profiler, ranges, open_reader, on_progress)
    return profiler.profile(topic, selection.isolation.value)


def fill(
    profiler: Profiler,
    ranges: list[OffsetRange],
    open_reader: OpenReader,
    on_progress: Callable[[int, int], None],
) -> None:
    """Add the records of the ranges.  Raises CorruptRecords, DataLoss, ApiError and ClusterUnreachable."""
    total = sum(range_.end - range_.start for range_ in ranges)
    done = 0
    memories = Memories()
    for number, range_ in enumerate(ranges):
        tally = PartitionTally(range_, number, len(ranges))
        profiler.partitions.append(tally)
        if range_.start == range_.end:
            continue
        with open_reader(range_) as reader:
            for fetched in reader.responses():
                try:
                    for chunk in chunks(fetched.data, fetched.batches, memories=memories):
                        profiler.add(tally, chunk)
                except CorruptRecords as error:
                    raise CorruptRecords(f"{range_.tp}: {error}") from error
                on_progress(done + reader.position - range_.start, total)
            tally.gone = reader.lost
        done += range_.end - range_.start


def _span(partition: PartitionView) -> tuple[int, int]:
    """Return the offsets [start, end), as an export without a position would read them."""
    start = min(max(partition.start, partition.log_start), partition.end)
    return start, max(start, min(partition.until, partition.end))

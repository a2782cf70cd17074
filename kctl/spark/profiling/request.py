"""`profile_topic`: reads a topic, or a range of it, once.  Imports pyarrow when it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kctl.client.blocking_transport import BlockingTransport, run_blocking
from kctl.client.cluster import ClusterClient
from kctl.client.settings import ClientSettings
from kctl.spark.cluster_view import TopicSelection, view_cluster
from kctl.spark.exec.target import require_arrow
from kctl.spark.plan import Positions
from kctl.spark.profiling.rows import TopicProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """Options of a profile."""

    selection: TopicSelection
    """One topic."""
    client: ClientSettings


def profile_topic(request: ProfileRequest, on_progress: Callable[[int, int], None]) -> TopicProfile:
    """The profile of the selected offsets.  `on_progress` is called with numbers of offsets: done, and all.

    Raises UsageError, PackageMissing, CorruptRecords, DataLoss, ApiError and ClusterUnreachable.
    """
    require_arrow()
    from kctl.spark.profiling.reading import read_profile  # noqa: PLC0415 - imports pyarrow

    client = ClusterClient(request.client, BlockingTransport())
    try:
        view = run_blocking(view_cluster(client, request.selection, Positions()))
        return read_profile(client, view, request.selection, on_progress)
    finally:
        run_blocking(client.close())

"""What an export reads from the cluster before its tasks start, over blocking sockets."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kctl.admin.topics.topics import list_topics
from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.consuming.list_offsets import EARLIEST, list_offsets
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.tables.exec.schema.column_types import Columns
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.plans.cluster_view import ISOLATION_LEVELS, take_samples, view_cluster
from kctl.tables.plans.density import Sample
from kctl.tables.plans.plan import ClusterView, Plan, Positions
from kctl.tables.plans.request import ExportRequest
from kctl.tables.plans.value_sample import RecordSample, take_records

MANY_PARTITIONS = 200
Samples = Mapping[TopicPartition, tuple[Sample, ...]]


def topic_names(settings: ClientSettings) -> list[str]:
    """Return the names of all topics but internal ones.  Raises ClusterUnreachable."""

    async def send_to() -> list[str]:
        async with ClusterClient(settings, BlockingTransport()) as client:
            return [topic.name for topic in await list_topics(client) if not topic.is_internal]

    return run_blocking(send_to())


def look_at_cluster(request: ExportRequest, positions: Positions) -> ClusterView:
    """Query the cluster over blocking sockets, and compare it with the positions of the export."""

    async def send_to() -> ClusterView:
        async with ClusterClient(request.client, BlockingTransport()) as client:
            return await view_cluster(client, request.selection, positions)

    return run_blocking(send_to())


def log_starts(request: ExportRequest, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the first offsets of the partitions that have a leader.  Raises ClusterUnreachable."""

    async def send_to() -> dict[TopicPartition, int]:
        async with ClusterClient(request.client, BlockingTransport()) as client:
            found = await list_offsets(client, dict.fromkeys(tps, EARLIEST))
            return {
                tp: listed_offset.offset
                for tp, listed_offset in found.items()
                if not isinstance(listed_offset, ApiError)
            }

    return run_blocking(send_to())


def sample_logs(request: ExportRequest, selection: Mapping[TopicPartition, list[int]]) -> Samples:
    """Take samples at the given offsets over blocking sockets."""

    async def send_to() -> Samples:
        async with ClusterClient(request.client, BlockingTransport()) as client:
            return await take_samples(client, selection)

    return run_blocking(send_to())


def take_record_sample(request: ExportRequest, plan: Plan) -> RecordSample:
    """Take records of the ranges of a plan over blocking sockets."""

    async def send_to() -> RecordSample:
        async with ClusterClient(request.client, BlockingTransport()) as client:
            return await take_records(client, plan.ranges, ISOLATION_LEVELS[plan.options.isolation])

    return run_blocking(send_to())


def check_sample(sample: RecordSample, columns: Mapping[str, Columns]) -> None:
    """Raise BadRecords if a record cannot be decoded."""
    for tp, records in sample.items():
        if not records or not columns[tp.topic].are_typed:
            continue
        from kctl.tables.exec.task import check_records  # noqa: PLC0415 - imports pyarrow, which binary exports do without

        check_records(tp, records, columns[tp.topic])


def partition_warning(sample: RecordSample, topic: str, columns: Columns, by: Partitioning) -> str:
    """Return a warning about so many partitions in a sample that each run will write as many small files; or nothing.

    The sample has decoded records, which exports that decode nothing do not take.
    """
    from kctl.tables.exec.task import partitions_of  # noqa: PLC0415 - imports pyarrow, which binary exports do without

    records = [record for tp, of_tp in sample.items() if tp.topic == topic for record in of_tp]
    count = len(partitions_of(records, columns, by)) if records and by.terms else 0
    if count < MANY_PARTITIONS:
        return ""
    return (
        f"topic {topic}: --partition-by {by.by} has {count:,} partitions in a sample of "
        f"{counted(len(records), 'record')}, and each run writes a file for each partition of its records: "
        "bucket(N,FIELD), truncate(N,FIELD) or a longer time has fewer"
    )


def sampled(sample: RecordSample, topic: str, name: str) -> list[bytes]:
    """Return the keys or values of a topic in the sample."""
    found = [getattr(record, name) for tp, records in sample.items() if tp.topic == topic for record in records]
    return [value for value in found if value is not None]

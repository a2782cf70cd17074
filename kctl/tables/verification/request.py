"""`verify_export`: compares an export with its topic.  Imports pyarrow when it is called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.consuming.positions import Divergence
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, UsageError
from kctl.model import TopicPartition
from kctl.tables.commits.existing import ExistingExport, ExportedTopic
from kctl.tables.exec.schema.column_types import UNDECODED
from kctl.tables.exec.selection.row_selection import RowSelection
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.target import open_files, require_arrow
from kctl.tables.formats.kinds import TableKind
from kctl.tables.plans.live_topic import LiveTopic, divergences_of, is_compacted, live_topics, log_start
from kctl.tables.plans.plan import Isolation, TopicPosition
from kctl.tables.verification.rows import VerifiedRange

if TYPE_CHECKING:
    from kctl.tables.exec.task import OpenReader
    from kctl.tables.verification.data_files import DataFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """Options of a comparison."""

    topic: str
    target: str
    client: ClientSettings
    partitions: Collection[int] | None = None
    from_start: bool = False
    """Tables: whether the first offset of the topic was exported."""
    isolation: Isolation | None = None
    """None: that of the export."""
    catalog: str | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class LiveSource:
    """The topic of a comparison in a cluster."""

    live: LiveTopic
    is_compacted: bool | None
    open_reader: OpenReader
    log_start: Callable[[TopicPartition], int]
    diverged: Mapping[TopicPartition, Divergence] = field(default_factory=dict)
    """Where the log differs from the one that was exported."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a comparison."""

    ranges: list[VerifiedRange] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Files of the export that do not exist."""
    warnings: list[str] = field(default_factory=list)
    filtered: int = 0
    """Records of the topic for which --where of the export is not true."""

    @property
    def is_equal(self) -> bool:
        """Whether no difference was found."""
        return not self.missing and all(range_.difference is None for range_ in self.ranges)


def verify_export(
    request: VerifyRequest,
    on_progress: Callable[[int], None],
    *,
    files: Files | None = None,
    source: LiveSource | None = None,
) -> Verification:
    """Compare the topic with the export in a target, which is not changed.

    Raises UsageError, PackageMissing, BrokenExportFolder, TableFailed, UnreadableFile, CorruptRecords, DataLoss,
    ApiError and ClusterUnreachable.
    """
    require_arrow()
    files = files or open_files(request.target)
    existing = ExistingExport(files, catalog=request.catalog, namespace=request.namespace)
    if request.from_start and existing.options.kind is TableKind.PARQUET:
        raise UsageError("--from-start is an option for Iceberg and Delta tables: a folder records where it starts")
    if source is not None:
        return _compare_export(request, files, existing, existing.topic(request.topic), source, on_progress)
    exported = existing.topic(request.topic)
    return _with_cluster(
        request,
        exported.position,
        lambda found: _compare_export(request, files, existing, exported, found, on_progress),
    )


def _compare_export(
    request: VerifyRequest,
    files: Files,
    existing: ExistingExport,
    exported: ExportedTopic,
    source: LiveSource,
    on_progress: Callable[[int], None],
) -> Verification:
    """Compare the records, or the state by key, whichever the export has."""
    if existing.options.upsert is None:
        return _compare(request, files, exported, source, on_progress, existing.options.rows)
    from kctl.tables.verification.state import StateSource, verify_state  # noqa: PLC0415 - imports pyarrow

    for name, is_given in (("--partitions", request.partitions is not None), ("--from-start", request.from_start)):
        if is_given:
            raise UsageError(f"{name}: the table has the current state by key, which is compared as a whole")
    if not source.live.is_topic_of(exported.position):
        raise UsageError(
            f"topic {request.topic} was deleted and created again since the last export, so that its state cannot be "
            "compared; export it first"
        )
    missing = [path for path, _ in exported.missing]
    ranges = verify_state(
        files,
        exported,
        existing.options.upsert,
        existing.options.headers,
        StateSource(
            settings=request.client,
            logs=dict(source.live.logs),
            open_reader=source.open_reader,
            on_progress=on_progress,
        ),
        existing.options.layout,
    )
    return Verification(
        ranges,
        missing,
        [f"{path}, a file of the export, does not exist" for path in missing],
    )


def _with_cluster(
    request: VerifyRequest, position: TopicPosition, work: Callable[[LiveSource], Verification]
) -> Verification:
    """Perform the work with connections to the cluster."""
    from kctl.tables.exec.reading.fetch import RangeReader, TopicLeaders  # noqa: PLC0415 - only this reads records

    client = ClusterClient(request.client, BlockingTransport())
    try:
        live = run_blocking(live_topics(client, [request.topic]))[request.topic]
        if isinstance(live, ApiError):
            raise live
        divergences = run_blocking(divergences_of(client, {request.topic: live}, {request.topic: position}))
        leaders = TopicLeaders(client)
        return work(
            LiveSource(
                live,
                run_blocking(is_compacted(client, request.topic)),
                lambda range_: RangeReader(client, range_, may_skip=False, leaders=leaders),
                lambda tp: run_blocking(log_start(client, tp)),
                {tp: divergence for tp, divergence in divergences.items() if not isinstance(divergence, ApiError)},
            )
        )
    finally:
        run_blocking(client.close())


def _compare(
    request: VerifyRequest,
    files: Files,
    exported: ExportedTopic,
    source: LiveSource,
    on_progress: Callable[[int], None],
    rows: RowSelection,
) -> Verification:
    from kctl.tables.exec.decoding.batch_decoder import BatchDecoder  # noqa: PLC0415 - imports pyarrow
    from kctl.tables.exec.decoding.rows import RowFilter  # noqa: PLC0415 - same
    from kctl.tables.verification.data_files import DataFiles  # noqa: PLC0415 - same
    from kctl.tables.verification.ledger import AllowedGaps  # noqa: PLC0415 - same
    from kctl.tables.verification.verifier import (  # noqa: PLC0415 - same
        Topic,
        Verifier,
        claims_of,
    )

    if absent := sorted(set(request.partitions or ()) - set(exported.position.partitions)):
        raise UsageError(f"the export has no partition {absent[0]} of {request.topic}")
    is_table = exported.kind is not TableKind.PARQUET
    paths = (*exported.paths, *exported.dead_letters)
    data = DataFiles(files, paths, request.topic, is_table=is_table, compares_decoded=not rows.select)
    isolation = request.isolation or exported.isolation or Isolation.READ_COMMITTED
    incarnations = {partition: at.incarnation for partition, at in exported.position.partitions.items()}
    firsts = exported.starts
    if firsts is None:
        firsts = {partition: extents[0].first for partition, extents in data.extents(incarnations).items()}
    claims = claims_of(exported, source.live, firsts, isolation, request.partitions, from_start=request.from_start)
    allowed = AllowedGaps(
        compacted=source.is_compacted is not False,
        aborted=request.isolation is None and exported.isolation is None,
    )
    columns = exported.columns or data.decoded or UNDECODED
    row_filter = RowFilter(rows.where, columns) if rows.where else None
    if not columns.are_typed:
        data.leave_out_decoded()
    decoder = BatchDecoder(columns) if data.variants or data.decoded_names else None
    topic = Topic(
        request.topic,
        source.live,
        isolation,
        allowed,
        source.open_reader,
        row_filter,
        decoder,
        data.offsets_in(exported.dead_letters, incarnations) if decoder else {},
        source.log_start,
    )
    verifier = Verifier(topic, claims, data, is_table=is_table, on_progress=on_progress)
    tallies = verifier.run()
    missing = sorted({*data.missing, *(path for path, _ in exported.missing)})
    return Verification(
        [row for tally in tallies for row in tally.rows(request.topic) if _is_selected(row.partition, request)],
        missing,
        _warnings(exported, data, missing, source),
        verifier.filtered,
    )


def _is_selected(partition: int, request: VerifyRequest) -> bool:
    return request.partitions is None or partition in request.partitions


def _warnings(exported: ExportedTopic, data: DataFiles, missing: Collection[str], source: LiveSource) -> list[str]:
    warnings = [f"{path}, a file of the export, does not exist" for path in missing]
    warnings += [f"no commit names {path}, but readers of the folder read it" for path in exported.unknown]
    for name in ("key", "value", "timestamp", "timestampType"):
        if name not in data.columns:
            warnings.append(f"the column {name} was not compared: not all files have it as it is in a record")
    if data.has_headers and "headers" not in data.columns:
        warnings.append("the column headers was not compared: not all files have it")
    for range_ in exported.position.replaced:
        warnings.append(
            f"{TopicPartition(exported.topic, range_.partition)}: the rows of offsets {range_.start} to "
            f"{range_.end - 1} in incarnation {range_.incarnation} are of records that the topic lost after their "
            f"export (leader epoch {range_.leader_epoch})"
        )
    for tp, found in source.diverged.items():
        start = f"offset {found.end_offset}" if found.end_offset is not None else "an unknown offset"
        warnings.append(
            f"{tp}: the log was truncated at {start} after the export, for example by an unclean leader election; the "
            "next export says what can be done"
        )
    if source.is_compacted is None:
        warnings.append("the cleanup.policy is unknown: rows that the topic does not have are counted as not compared")
    return warnings

"""`kctl tables status`: a folder's or table's positions against a broker in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import run_blocking
from kctl.client.settings import ClientSettings
from kctl.errors import ErrorCode
from kctl.records.build import build_batch
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record
from kctl.tables.commits.commit_log import CommitLog
from kctl.tables.commits.existing import ExistingExport, ExportState, TopicState
from kctl.tables.exec.outcome import OTHER_COLUMNS, TOPIC_MISFITS_MAX, Misfit
from kctl.tables.exec.schema.column_types import Format
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exports.status import PartitionStatus, State, export_status
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from kctl.tables.plans.plan import Position, TopicPosition
from tests.unit.spark.fake_broker import FakeBroker
from tests.unit.spark.scene import Cluster, StoppedClock, exporter, filled, run

NOW_MS = 1_000_000


def batch(base: int, timestamp_ms: int = NOW_MS) -> bytes:
    return build_batch([Record(0, timestamp_ms, None, b"v")] * 10, base_offset=base)


def state(offset: int | None) -> ExportState:
    partitions = {} if offset is None else {0: Position(offset, 0)}
    position = TopicPosition(UUID(int=1), "c", 0, partitions)
    return ExportState(kind=TableKind.PARQUET, topics={"orders": TopicState(position, 4, 77)}, pending=None)


def status(broker: FakeBroker, export: ExportState) -> PartitionStatus:
    client = ClusterClient(ClientSettings((("fake", 9092),), timeout_ms=1000), broker)
    (row,) = run_blocking(export_status(client, export, NOW_MS))
    return row


def test_lag_in_records_and_time() -> None:
    broker = FakeBroker(batch(0, 400_000), batch(10, 700_000))
    row = status(broker, state(10))
    assert (row.state, row.exported_offset, row.end_offset, row.lag, row.time_lag_ms) == (
        State.BEHIND,
        10,
        20,
        10,
        300_000,
    )
    assert (row.batch, row.committed_ms, row.lost, row.error) == (4, 77, 0, None)
    assert status(broker, state(20))[2:7] == (State.CURRENT, 20, 20, 0, 0)


def test_markers_are_no_lag() -> None:
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp=0, base_offset=10
    )
    assert status(FakeBroker(batch(0), marker), state(10))[2:7] == (State.CURRENT, 10, 11, 0, 0)


def expire(broker: FakeBroker) -> None:
    broker.log_start = 20


def recreate(broker: FakeBroker) -> None:
    broker.topic_id = UUID(int=2)


def delete(broker: FakeBroker) -> None:
    broker.exists = False


def nothing(broker: FakeBroker) -> None: ...


@pytest.mark.parametrize(
    ("change", "offset", "expected", "lag", "lost"),
    [
        (expire, 10, State.LOSING, 10, 10),
        (recreate, 10, State.RECREATED, None, None),
        (delete, 10, State.GONE, None, None),
        (nothing, 31, State.TRUNCATED, 0, 0),
        (nothing, None, State.NEW, 30, 0),
    ],
)
def test_state_compares_export_and_topic(
    change: Callable[[FakeBroker], None], offset: int | None, expected: State, lag: int | None, lost: int | None
) -> None:
    broker = FakeBroker(batch(0), batch(10), batch(20))
    change(broker)
    export = state(offset)
    client = ClusterClient(ClientSettings((("fake", 9092),), timeout_ms=1000), broker)
    found = run_blocking(export_status(client, export, NOW_MS))
    assert [(row.state, row.lag, row.lost) for row in found] == [(expected, lag, lost)]


def test_an_error_of_the_topic_is_an_error_of_its_rows() -> None:
    broker = FakeBroker(batch(0))
    broker.topic_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    row = status(broker, state(10))
    assert row.error
    assert row.error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "options",
    [
        TableOptions(),
        *(
            TableOptions(kind=TableKind(kind), is_shared=is_shared)
            for kind in ("iceberg", "delta")
            for is_shared in (False, True)
        ),
    ],
    ids=lambda options: options.mark,
)
@pytest.mark.long
def test_a_target_describes_itself(tmp_path: Path, options: TableOptions) -> None:
    run(filled(), tmp_path, table=options)
    (tmp_path / "README").write_text("not a table")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "one").write_text("not a table")
    found = ExistingExport(DiskFiles(tmp_path)).state()
    assert found.kind is options.kind
    topic = found.topics["orders"]
    assert (topic.batch, topic.position.partitions) == (0, {0: Position(12, 0), 1: Position(7, 0)})
    assert topic.committed_ms is not None
    assert topic.committed_ms >= StoppedClock().now_ms()


@pytest.mark.parametrize("kind", TableKind)
def test_values_without_their_column_are_known_for_all_batches(tmp_path: Path, kind: TableKind) -> None:
    """Also after a batch without any; at most so many columns of a topic are named."""
    cluster = Cluster()
    is_dirty = {3, *range(7, 20)}  # not in a sample
    cluster.value = lambda partition, offset: json.dumps(
        {"id": "?", f"only-{partition}-{offset}": 1} if offset in is_dirty else {"id": offset}
    ).encode()
    decoding = DecodingOptions(value=FieldOptions(name="value", format=Format.JSON))
    for count in (4, 16, 5):
        cluster.append(0, count)
        cluster.append(1, count)
        run(cluster, tmp_path, table=TableOptions(kind=kind), decoding=decoding)
    topic = ExistingExport(DiskFiles(tmp_path)).state().topics["orders"]
    misfits = topic.misfits
    assert sum(misfit.values for misfit in misfits) == 2 * 2 * len(is_dirty)
    assert len(misfits) == TOPIC_MISFITS_MAX + 1
    assert misfits[0] == Misfit("orders", "value.id", "int64", 2 * len(is_dirty), 0, 3)
    assert misfits[-1].column == OTHER_COLUMNS
    export = ExportState(kind=kind, topics={"orders": topic}, pending=None)
    client = ClusterClient(ClientSettings((("fake", 9092),), timeout_ms=1000), FakeBroker(batch(0)))
    rows = run_blocking(export_status(client, export, NOW_MS))
    assert [misfit for row in rows for misfit in row.misfits] == sorted(misfits, key=lambda misfit: misfit.partition)


def test_a_planned_batch_is_pending(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    cluster.append(0, 9)
    plan, _, _ = exporter(cluster, tmp_path).plan()
    assert plan
    CommitLog(DiskFiles(tmp_path)).write_plan(plan)
    found = ExistingExport(DiskFiles(tmp_path)).state()
    assert found.pending
    assert [(range_.tp.partition, range_.start, range_.end) for range_ in found.pending.ranges] == [(0, 12, 21)]

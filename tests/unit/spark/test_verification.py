"""`kctl tables verify` with injected faults: exports of a cluster in memory, real files, no sockets."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.io.pyarrow import parquet_file_to_data_file

from kctl.client.settings import ClientSettings
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.records.batch import iterate_batches
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.reading.fetch import Fetched, OffsetRange
from kctl.tables.exec.schema.column_types import Format
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.formats import iceberg
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from kctl.tables.plans.live_topic import LiveLog, LiveTopic
from kctl.tables.plans.plan import Isolation
from kctl.tables.verification import verifier
from kctl.tables.verification.request import LiveSource, Verification, VerifyRequest, verify_export
from kctl.tables.verification.rows import VerifiedRange
from tests.unit.spark.crashing_files import Crash, CrashingFiles
from tests.unit.spark.scene import Beginning, Cluster, ClusterReader, filled, run
from tests.unit.spark.test_typed_exports import LENIENT, with_bad_records

PATH_INDEX = 1
"""Of the path in pyiceberg's DataFile, which is a record."""
KINDS = [TableKind.PARQUET, TableKind.ICEBERG, TableKind.DELTA]


class Topic:
    """The topic of a Cluster, for the verifier; offsets may be removed, or become those of aborted batches."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.removed: set[tuple[int, int]] = set()
        """(partition, base offset) of batches that compaction has removed."""
        self.aborted: set[tuple[int, int]] = set()
        self.is_compacted: bool | None = False
        self.expires_at_read: dict[int, int] = {}
        """Partition -> the log start from the first read on."""

    def source(self) -> LiveSource:
        logs = {
            p: LiveLog(start, end, end)
            for p, (start, end) in enumerate(zip(self.cluster.log_starts, self.cluster.ends, strict=True))
        }
        live = LiveTopic(self.cluster.topic_id, "cluster-a", logs)
        return LiveSource(live, self.is_compacted, lambda range_: _Reader(self, range_), self._log_start)

    def _log_start(self, tp: TopicPartition) -> int:
        return self.cluster.log_starts[tp.partition]


class _Reader(ClusterReader):
    def __init__(self, topic: Topic, range_: OffsetRange) -> None:
        super().__init__(topic.cluster, range_)
        self._topic = topic
        self._partition = range_.tp.partition
        self._start = range_.start

    def responses(self) -> Iterator[Fetched]:
        self._cluster.log_starts[self._partition] = self._topic.expires_at_read.get(
            self._partition, self._cluster.log_starts[self._partition]
        )
        if self._start < self._cluster.log_starts[self._partition]:
            raise DataLoss("the log starts later")
        for fetched in super().responses():
            batches = list(iterate_batches(fetched.data))
            hidden = self._topic.removed | self._topic.aborted
            yield Fetched(
                fetched.data,
                [batch for batch in batches if (self._partition, batch.base_offset) not in hidden],
                fetched.size,
                [batch for batch in batches if (self._partition, batch.base_offset) in self._topic.aborted],
            )


def verify(topic: Topic | Cluster, folder: Path, **options: object) -> Verification:
    topic = topic if isinstance(topic, Topic) else Topic(topic)
    request = VerifyRequest(topic="orders", target=str(folder), client=ClientSettings((("127.0.0.1", 1),)), **options)  # type: ignore[arg-type]
    return verify_export(request, lambda done: None, source=topic.source())


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("orders/**/[!._]*+*.parquet"))


def rewrite(path: Path, table: pa.Table) -> None:
    """Replaces the rows of a data file."""
    metadata = pq.read_schema(path).metadata
    pq.write_table(table.replace_schema_metadata(metadata), path)


def only_different(found: Verification) -> VerifiedRange:
    (row,) = [range_ for range_ in found.ranges if range_.status == "different"]
    return row


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> TableKind:
    found: TableKind = request.param
    return found


def exported(cluster: Cluster, folder: Path, kind: TableKind = TableKind.PARQUET) -> Cluster:
    run(cluster, folder, table=TableOptions(kind=kind))
    return cluster


def test_an_untouched_export_is_equal(tmp_path: Path, kind: TableKind) -> None:
    cluster = exported(filled(), tmp_path, kind)
    cluster.append(0, 9)
    exported(cluster, tmp_path, kind)
    cluster.append(1, 4)  # not exported yet
    found = verify(cluster, tmp_path)
    assert found.is_equal
    assert not found.warnings
    assert [(row.partition, row.start, row.end, row.status) for row in found.ranges] == [
        (0, 0, 21, "equal"),
        (1, 0, 7, "equal"),
    ]
    assert [(row.topic_records, row.table_records) for row in found.ranges] == [(21, 21), (7, 7)]
    assert all(row.topic_hash == row.table_hash for row in found.ranges)


def test_files_that_spark_has_added_to_an_iceberg_table_are_compared(tmp_path: Path) -> None:
    """Spark names files `file:/folder/name`, while exports and pyiceberg write `file:///folder/name`."""
    cluster = exported(filled(), tmp_path, TableKind.ICEBERG)
    with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
        table = catalog.load_table(("kafka", "orders"))
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
            for task in table.scan().plan_files():
                path = task.file.file_path
                overwrite.delete_data_file(task.file)
                added = parquet_file_to_data_file(table.io, transaction.table_metadata, path)
                added[PATH_INDEX] = path.replace("file:///", "file:/")
                overwrite.append_data_file(added)
    assert verify(cluster, tmp_path).is_equal
    assert ExistingExport(DiskFiles(tmp_path)).state().losses == {}
    cluster.append(0, 9)
    exported(cluster, tmp_path, TableKind.ICEBERG)
    assert verify(cluster, tmp_path).is_equal
    removed = next((tmp_path / "orders" / "data").rglob("*.parquet"))
    removed.unlink()
    assert "is gone" in ExistingExport(DiskFiles(tmp_path)).state().losses["orders"]
    assert not verify(cluster, tmp_path).is_equal


def test_keys_and_values_that_are_texts_are_compared(tmp_path: Path) -> None:
    cluster = filled()
    cluster.value = lambda partition, offset: None if offset % 5 == 0 else f"\u00e9-{partition}-{offset}".encode()
    texts = DecodingOptions(
        key=FieldOptions(name="key", format=Format.STRING), value=FieldOptions(name="value", format=Format.STRING)
    )
    run(cluster, tmp_path, decoding=texts)
    found = verify(cluster, tmp_path)
    assert (found.is_equal, found.warnings) == (True, [])
    path = data_files(tmp_path)[0]
    table = pq.read_table(path)
    index = table.schema.get_field_index("value")
    values = table["value"].to_pylist()
    values[3] = "e-0-3"
    rewrite(path, table.set_column(index, table.schema.field(index), pa.array(values, pa.string())))
    row = only_different(verify(cluster, tmp_path))
    assert (row.offset, row.difference) == (3, "different")


@pytest.mark.long
def test_records_that_could_not_be_decoded_are_compared_too(tmp_path: Path, kind: TableKind) -> None:
    cluster = filled()
    cluster.value = with_bad_records
    for count in (0, 9, 12):
        cluster.append(0, count)
        run(cluster, tmp_path, table=TableOptions(kind=kind), decoding=LENIENT)
    found = verify(cluster, tmp_path)
    assert found.is_equal
    assert not found.warnings
    max((tmp_path / "_dead_letters").rglob("*.parquet")).unlink()
    assert not verify(cluster, tmp_path).is_equal


PRICES: list[Any] = [10, None, 20, 10.5, 30, -0.25, "free", "n/a"]


def with_changing_types(partition: int, offset: int) -> bytes:
    """Also fields that have a column in later files only."""
    more = {"tags": [{"n": offset}], "big": 2**70} if offset >= 3 else {"later": {"a": offset}}
    return json.dumps({"id": offset, "order": {"price": PRICES[offset % 8]}, **more}).encode()


def test_decoded_values_are_compared_whichever_columns_have_them(tmp_path: Path, kind: TableKind) -> None:
    cluster = Cluster(1)
    cluster.value = with_changing_types
    for count in (3, 3, 2):
        cluster.append(0, count)
        run(cluster, tmp_path, table=TableOptions(kind=kind), decoding=LENIENT)
    found = verify(cluster, tmp_path)
    assert (found.is_equal, found.warnings) == (True, [])
    for offset, value in (
        (1, b'{"id": 1, "order": {"price": 0}, "later": {"a": 1}}'),
        (4, b'{"id": 4, "order": {"price": 30}, "tags": [{"n": 5}], "big": 1180591620717411303424}'),
        (5, b'{"id": 5, "order": {"price": -0.25}, "tags": [{"n": 5}], "big": 1180591620717411303425}'),
        (6, b'{"id": 6, "order": {"price": null}, "tags": [{"n": 6}], "big": 1180591620717411303424}'),
    ):
        changed = {offset: value}
        cluster.value = lambda p, o, changed=changed: changed.get(o) or with_changing_types(p, o)  # type: ignore[misc]
        row = only_different(verify(cluster, tmp_path))
        assert (row.offset, row.difference) == (offset, "different")


def test_bytes_beside_decoded_values_are_compared(tmp_path: Path, kind: TableKind) -> None:
    """White space, the order of members and numbers with the same value are no difference of columns."""
    cluster = Cluster(1)
    cluster.value = with_changing_types
    for count in (3, 5):
        cluster.append(0, count)
        run(cluster, tmp_path, table=TableOptions(kind=kind, keeps_raw=True), decoding=LENIENT)
    found = verify(cluster, tmp_path)
    assert (found.is_equal, found.warnings) == (True, [])
    other = with_changing_types(0, 2).replace(b": ", b":")
    cluster.value = lambda p, offset: other if offset == 2 else with_changing_types(p, offset)
    row = only_different(verify(cluster, tmp_path))
    assert (row.offset, row.difference, row.different) == (2, "different", 1)


def test_hashes_equal_those_of_earlier_versions(tmp_path: Path) -> None:
    """Hashes of two runs, machines and versions can be compared."""
    found = verify(exported(filled(), tmp_path), tmp_path)
    assert [row.topic_hash for row in found.ranges] == ["ffb9b86001727aaa", "bd5bf5989104ba5d"]


def test_a_removed_file_is_named_with_its_records(tmp_path: Path, kind: TableKind) -> None:
    cluster = exported(filled(), tmp_path, kind)
    gone = data_files(tmp_path)[-1]
    assert set(pq.read_table(gone, columns=["partition"])["partition"].to_pylist()) == {1}
    gone.unlink()
    found = verify(cluster, tmp_path, from_start=kind is not TableKind.PARQUET)
    assert found.missing == [gone.relative_to(tmp_path).as_posix()]
    row = only_different(found)
    assert (row.partition, row.offset, row.difference, row.missing) == (1, 0, "missing", 7)
    assert (row.topic_records, row.table_records) == (7, 0)


@pytest.mark.long
@pytest.mark.parametrize("column", ["key", "value", "timestamp", "timestampType"])
def test_an_altered_record_is_named(tmp_path: Path, kind: TableKind, column: str) -> None:
    cluster = exported(filled(), tmp_path, kind)
    path = data_files(tmp_path)[0]
    table = pq.read_table(path)
    values = table[column].to_pylist()
    other = {"key": None, "value": b"other", "timestamp": values[4], "timestampType": 1}[column]
    index = table.schema.get_field_index(column)
    values[3] = other
    rewrite(path, table.set_column(index, table.schema.field(index), pa.array(values, table.schema.field(index).type)))
    found = verify(cluster, tmp_path)
    row = only_different(found)
    assert (row.partition, row.offset, row.difference) == (0, 3, "different")
    assert (row.missing, row.twice, row.different, row.unexpected) == (0, 0, 1, 0)
    assert row.topic_records == row.table_records
    assert row.topic_hash != row.table_hash


def test_doubled_and_exchanged_records_are_found(tmp_path: Path, kind: TableKind) -> None:
    cluster = exported(filled(), tmp_path, kind)
    path = data_files(tmp_path)[0]
    table = pq.read_table(path)
    # The number of rows stays the same: the record at offset 5 takes the place of the one at offset 2.
    rewrite(path, table.take([0, 1, 5, 3, 4, 5, *range(6, len(table))]))
    row = only_different(verify(cluster, tmp_path))
    assert (row.offset, row.difference, row.missing, row.twice) == (2, "missing", 1, 1)
    assert row.topic_records == row.table_records == 12


def test_the_order_of_rows_does_not_matter(tmp_path: Path, kind: TableKind) -> None:
    cluster = exported(filled(), tmp_path, kind)
    for path in data_files(tmp_path):
        table = pq.read_table(path)
        rewrite(path, table.take(list(reversed(range(len(table))))))
    assert verify(cluster, tmp_path).is_equal


def test_a_copied_file_doubles_its_records(tmp_path: Path) -> None:
    cluster = exported(filled(), tmp_path)
    path = data_files(tmp_path)[0]
    copy = path.with_name(f"copy+{path.name}")
    shutil.copy(path, copy)
    found = verify(cluster, tmp_path)
    row = only_different(found)
    assert (row.partition, row.offset, row.difference) == (0, 0, "twice")
    assert row.twice == pq.read_metadata(path).num_rows
    assert copy.name in found.warnings[0]


def test_rows_that_were_never_exported_are_unexpected(tmp_path: Path) -> None:
    cluster = exported(filled(), tmp_path)
    path = data_files(tmp_path)[0]
    table = pq.read_table(path)
    more = table.slice(0, 2)
    for name, values in (("partition", [0, 9]), ("offset", [50, 4])):
        index = table.schema.get_field_index(name)
        more = more.set_column(index, table.schema.field(index), pa.array(values, table.schema.field(index).type))
    rewrite(path, pa.concat_tables([table, more]))
    rows = [row for row in verify(cluster, tmp_path).ranges if row.status == "different"]
    assert [(row.partition, row.offset, row.difference, row.unexpected) for row in rows] == [
        (0, 50, "unexpected", 1),
        (9, 4, "unexpected", 1),
    ]


@pytest.mark.long
@pytest.mark.parametrize("round_offsets", [1, 3, 7, 100])
def test_rounds_do_not_change_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_offsets: int) -> None:
    cluster = filled()
    cluster.append(0, 30)
    cluster.bytes_per_offset = 4 << 20
    exported(cluster, tmp_path)
    assert len(data_files(tmp_path)) > 2
    whole = verify(cluster, tmp_path).ranges
    monkeypatch.setattr(verifier, "VERIFIED_OFFSETS_PER_ROUND_MAX", round_offsets)
    assert verify(cluster, tmp_path).ranges == whole
    gone = data_files(tmp_path)[1]
    offsets = pq.read_table(gone)["offset"].to_pylist()
    gone.unlink()
    row = only_different(verify(cluster, tmp_path))
    assert (row.partition, row.offset, row.difference, row.missing) == (0, offsets[0], "missing", len(offsets))


def test_deleted_and_truncated_records_are_not_compared(tmp_path: Path, kind: TableKind) -> None:
    cluster = exported(filled(), tmp_path, kind)
    cluster.log_starts[0] = 5
    cluster.ends[1] = 4
    found = verify(cluster, tmp_path)
    assert found.is_equal
    assert [(row.partition, row.start, row.end, row.status, row.reason) for row in found.ranges] == [
        (0, 0, 5, "not compared", "deleted from the topic"),
        (0, 5, 12, "equal", None),
        (1, 0, 4, "equal", None),
        (1, 4, 7, "not compared", "beyond the end of the topic"),
    ]


def test_records_that_are_deleted_meanwhile_are_not_compared(tmp_path: Path) -> None:
    topic = Topic(exported(filled(), tmp_path))
    topic.expires_at_read[0] = 8
    found = verify(topic, tmp_path)
    assert found.is_equal
    assert [(row.start, row.end, row.status) for row in found.ranges if row.partition == 0] == [
        (0, 8, "not compared"),
        (8, 12, "equal"),
    ]


def test_a_topic_that_was_created_again_is_not_compared(tmp_path: Path) -> None:
    cluster = exported(filled(), tmp_path)
    cluster.topic_id = UUID(int=2)
    found = verify(cluster, tmp_path)
    assert {(row.status, row.reason) for row in found.ranges} == {("not compared", "the topic was created again")}


def test_compacted_records_are_listed(tmp_path: Path, kind: TableKind) -> None:
    topic = Topic(exported(filled(), tmp_path, kind))
    topic.removed = {(0, 5)}
    row = only_different(verify(topic, tmp_path))
    assert (row.offset, row.difference, row.unexpected) == (5, "unexpected", 5)
    for topic.is_compacted in (True, None):
        found = verify(topic, tmp_path)
        assert found.is_equal
        assert (found.ranges[0].topic_records, found.ranges[0].not_compared) == (7, 5)
        assert found.ranges[0].topic_hash == found.ranges[0].table_hash
        assert [tuple(gap) for gap in found.ranges[0].gaps] == [(5, 10, "removed by compaction")]
        assert len(found.warnings) == (topic.is_compacted is None)


def test_rows_of_aborted_transactions_are_unexpected_in_read_committed_exports(tmp_path: Path, kind: TableKind) -> None:
    """Such rows are wrong in a folder that was exported with read_committed; tables do not record the isolation."""
    topic = Topic(exported(filled(), tmp_path, kind))
    topic.aborted = {(1, 0)}
    found = verify(topic, tmp_path)
    if kind is TableKind.PARQUET:
        assert (only_different(found).difference, only_different(found).unexpected) == ("unexpected", 5)
    else:
        assert found.is_equal
        assert [tuple(gap) for gap in found.ranges[1].gaps] == [(0, 5, "transaction aborted")]
        strict = only_different(verify(topic, tmp_path, isolation=Isolation.READ_COMMITTED))
        assert (strict.partition, strict.difference) == (1, "unexpected")


def test_where_a_table_begins_is_not_guessed(tmp_path: Path) -> None:
    cluster = exported(filled(), tmp_path, TableKind.DELTA)
    path = data_files(tmp_path)[0]
    rewrite(path, pq.read_table(path).slice(4))
    found = verify(cluster, tmp_path)
    assert found.is_equal
    assert [(row.start, row.end, row.reason) for row in found.ranges if row.status == "not compared"] == [
        (0, 4, "before the first row; see --from-start")
    ]
    row = only_different(verify(cluster, tmp_path, from_start=True))
    assert (row.offset, row.difference, row.missing) == (0, "missing", 4)


def test_a_table_that_other_programs_have_changed(tmp_path: Path) -> None:
    """Compacting it changes no record; deleting rows does."""
    cluster = exported(filled(), tmp_path, TableKind.DELTA)
    cluster.append(0, 9)
    exported(cluster, tmp_path, TableKind.DELTA)
    table = DeltaTable(tmp_path / "orders")
    files = set(table.file_uris())
    table.optimize.compact()
    assert set(table.file_uris()).isdisjoint(files)
    assert verify(cluster, tmp_path).is_equal
    table.delete("partition = 0 and offset = 3")
    row = only_different(verify(cluster, tmp_path))
    assert (row.partition, row.offset, row.difference, row.missing) == (0, 3, "missing", 1)


def test_rows_deleted_from_an_iceberg_table_are_missing(tmp_path: Path) -> None:
    cluster = exported(filled(), tmp_path, TableKind.ICEBERG)
    with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
        catalog.load_table(("kafka", "orders")).delete("offset = 3")
    rows = [row for row in verify(cluster, tmp_path).ranges if row.status == "different"]
    assert [(row.partition, row.offset, row.difference) for row in rows] == [(0, 3, "missing"), (1, 3, "missing")]


@pytest.mark.long
def test_an_export_that_crashed_at_any_step_is_equal_up_to_its_last_commit(tmp_path: Path) -> None:
    ends = set()

    def begin(folder: Path) -> Cluster:
        cluster = exported(filled(), folder)
        cluster.append(0, 9)
        return cluster

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    for step in itertools.count(1):
        cluster = beginning.restored()
        with contextlib.suppress(Crash):
            run(cluster, folder, files=CrashingFiles(folder, step))
            break
        found = verify(cluster, folder)
        assert found.is_equal, step
        ends.add(found.ranges[0].end)
    assert ends == {12, 21}


def test_only_selected_partitions_are_compared(tmp_path: Path) -> None:
    cluster = exported(filled(), tmp_path)
    data_files(tmp_path)[0].unlink()
    assert [row.partition for row in verify(cluster, tmp_path, partitions=[1]).ranges] == [1]
    with pytest.raises(UsageError, match="no partition 7"):
        verify(cluster, tmp_path, partitions=[1, 7])


def test_targets_and_topics_without_an_export_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no export"):
        verify(filled(), tmp_path)
    cluster = exported(filled(), tmp_path)
    with pytest.raises(UsageError, match="--from-start"):
        verify(cluster, tmp_path, from_start=True)
    request = VerifyRequest(topic="other", target=str(tmp_path), client=ClientSettings((("127.0.0.1", 1),)))
    with pytest.raises(UsageError, match="contains no export of topic other"):
        verify_export(request, lambda done: None, source=Topic(cluster).source())


def test_headers_are_compared(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path, include_headers=True)
    assert verify(cluster, tmp_path).is_equal
    path = data_files(tmp_path)[0]
    table = pq.read_table(path)
    headers: list[list[dict[str, str | None]] | None] = [None] * len(table)
    headers[2] = [{"key": "a", "value": None}]
    index = table.schema.get_field_index("headers")
    rewrite(path, table.set_column(index, table.schema.field(index), pa.array(headers, table.schema.field(index).type)))
    row = only_different(verify(cluster, tmp_path))
    assert (row.offset, row.difference) == (2, "different")

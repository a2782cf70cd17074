"""Exports of the current state by key: equal to the state of the topic after any crash, competitor or re-creation."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from kctl.client.registry.avro import AvroCodec
from kctl.client.registry.schema import Schema
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, KctlError, UsageError
from kctl.tables.compaction.bins import NotCompactable
from kctl.tables.compaction.table_files import CompactRequest, compact_export
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.schema.column_types import NO_ID, ChangeFormat, Format
from kctl.tables.exec.selection.row_selection import HeaderForm
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exec.targets.target import open_files
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from kctl.tables.plans.live_topic import LiveLog, LiveTopic
from kctl.tables.plans.plan import OnDataLoss
from kctl.tables.verification.request import LiveSource, Verification, VerifyRequest, verify_export
from tests.peers import s3_server
from tests.unit.spark.changing_topic import (
    DEBEZIUM,
    PLAIN,
    CompactedTopic,
    DebeziumTopic,
    read_rows,
    read_state,
    table_of,
    whole_value,
)
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import SILENT, Beginning, Cluster, ClusterReader, StoppedClock, exporter, run
from tests.unit.spark.stepped_port import SteppedPort, crashing
from tests.unit.spark.test_tables import stepped_commits

FILE_BYTES = 1_500
"""So small that there are several buckets."""
KINDS = pytest.mark.parametrize("table", [table_of(kind) for kind in TableKind], ids=lambda table: table.kind)


def upsert(cluster: Cluster, folder: Path, table: TableOptions, **more: Any) -> Any:
    more.setdefault("decoding", PLAIN)
    return run(cluster, folder, table=table, target_file_bytes=FILE_BYTES, **more)


@pytest.mark.long
@KINDS
def test_each_batch_leads_to_the_state_of_the_topic(tmp_path: Path, table: TableOptions) -> None:
    topic = CompactedTopic(seed=1)
    for count in (7, 20, 1, 45, 0, 3):
        topic.append(0, count)
        topic.append(1, count // 2)
        upsert(topic, tmp_path, table)
        assert read_state(tmp_path, table) == topic.state()
    assert upsert(topic, tmp_path, table).batches == []
    assert not list((tmp_path / "_kctl").rglob("*.parquet"))
    assert not list(tmp_path.rglob(".*.tmp"))


@pytest.mark.long
@KINDS
@pytest.mark.parametrize("has_schema", [True, False], ids=["schema", "no schema"])
def test_changes_of_debezium_lead_to_the_rows_of_the_database(
    tmp_path: Path, table: TableOptions, has_schema: bool
) -> None:
    table = table_of(table.kind, ChangeFormat.DEBEZIUM)
    for seed in range(3):
        folder = tmp_path / str(seed)
        topic = DebeziumTopic(seed, has_schema=has_schema)
        for count in (6, 30, 2, 40):
            topic.append(0, count)
            upsert(topic, folder, table, decoding=DEBEZIUM)
            found = read_state(folder, table, lambda row: row["key"]["id"])
            assert found == {id_: _typed(row, has_schema=has_schema) for id_, row in topic.state().items()}


def _typed(row: dict[str, Any], *, has_schema: bool) -> dict[str, Any]:
    """A row with the types of its columns."""
    if not has_schema:
        return row | {"price": float(row["price"])}
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row["at"])
    return row | {"since": date(1970, 1, 1) + timedelta(days=row["since"]), "at": at}


@KINDS
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(3, 10))])
@pytest.mark.long
def test_a_crash_at_any_step_leads_to_the_state_of_the_topic(tmp_path: Path, table: TableOptions, seed: int) -> None:
    """More records arrive before the recovery; each seed crashes at every tenth step."""

    def begin(folder: Path) -> Cluster:
        topic = CompactedTopic(seed)
        for partition, count in enumerate((20, 9)):
            topic.append(partition, count)
        if seed:
            upsert(topic, folder, table)
            topic.append(0, 6 + seed)
        return topic

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    has_ended = False
    for step in itertools.count(1 + seed, 10):
        topic = beginning.restored()
        assert isinstance(topic, CompactedTopic)
        files = crashing(DiskFiles(folder), step)
        try:
            with stepped_commits(files):
                exporter(topic, folder, files=files, table=table, decoding=PLAIN, target_file_bytes=FILE_BYTES).run(
                    SILENT
                )
        except Crash:
            pass
        else:
            has_ended = True
        topic.append(1, 4)
        upsert(topic, folder, table)
        assert read_state(folder, table) == topic.state()
        assert not list((folder / "_kctl").rglob("*.parquet"))
        if has_ended:
            break
    assert step > 12


@KINDS
@pytest.mark.parametrize("has_batch", [True, False])
@pytest.mark.long
def test_of_two_exporters_at_once_one_publishes(tmp_path: Path, table: TableOptions, has_batch: bool) -> None:
    """The second exporter runs completely while the first is at its n-th step, without a lock, for every third n."""

    def begin(folder: Path) -> Cluster:
        topic = CompactedTopic(seed=3)
        topic.append(0, 20)
        if has_batch:
            upsert(topic, folder, table)
            topic.append(0, 8)
        return topic

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    for step in itertools.count(1, 3):
        topic = beginning.restored()
        assert isinstance(topic, CompactedTopic)
        second_has_run = False

        def at_step(number: int, topic: CompactedTopic = topic, at: int = step) -> None:
            nonlocal second_has_run
            if number == at:
                second_has_run = True
                topic.append(1, 5)
                unlocked = SteppedPort(DiskFiles(folder), lambda number: None)
                exporter(topic, folder, files=unlocked, table=table, decoding=PLAIN, target_file_bytes=FILE_BYTES).run(
                    SILENT
                )

        files = SteppedPort(DiskFiles(folder), at_step)
        with contextlib.suppress(KctlError), stepped_commits(files):
            exporter(topic, folder, files=files, table=table, decoding=PLAIN, target_file_bytes=FILE_BYTES).run(SILENT)
        if not second_has_run:
            break
        upsert(topic, folder, table)
        assert read_state(folder, table) == topic.state()
    assert step > 12


@KINDS
def test_a_topic_that_was_created_again_replaces_all_rows(tmp_path: Path, table: TableOptions) -> None:
    topic = CompactedTopic(seed=4)
    topic.append(0, 30)
    upsert(topic, tmp_path, table)
    topic.topic_id = UUID(int=2)
    topic.ends = [4, 2]
    with pytest.raises(DataLoss, match="deleted and created again"):
        upsert(topic, tmp_path, table)
    report = upsert(topic, tmp_path, table, on_data_loss=OnDataLoss.WARN)
    assert "topic orders was created again: the rows of the former topic are removed" in report.warnings
    assert read_state(tmp_path, table) == topic.state()
    topic.append(1, 9)
    upsert(topic, tmp_path, table)
    assert read_state(tmp_path, table) == topic.state()


@KINDS
def test_the_key_is_some_fields_of_the_value(tmp_path: Path, table: TableOptions) -> None:
    table = table_of(table.kind, keys=("place.shelf", "id"))
    topic = Cluster(1)
    topic.value = lambda _, offset: json.dumps(
        {"id": offset % 3, "place": {"shelf": f"s{offset % 2}"}, "n": offset}
    ).encode()
    topic.append(0, 13)
    upsert(topic, tmp_path, table)
    rows = {(row["value"]["place"]["shelf"], row["value"]["id"]): row["offset"] for row in read_rows(tmp_path, table)}
    assert rows == {(f"s{offset % 2}", offset % 3): offset for offset in range(13)}


@KINDS
@pytest.mark.long
def test_the_row_with_the_highest_value_is_current(tmp_path: Path, table: TableOptions) -> None:
    table = table_of(table.kind, keys=("id",), order_by="version")
    versions = [5, 1, 9, 2, 9, 3, 10, 4]
    topic = Cluster(1)
    topic.value = lambda _, offset: json.dumps({"id": offset % 2, "version": versions[offset % 8]}).encode()
    for count in (3, 2, 3):
        topic.append(0, count)
        upsert(topic, tmp_path, table)
    found = {row["value"]["id"]: (row["value"]["version"], row["offset"]) for row in read_rows(tmp_path, table)}
    assert found == {0: (10, 6), 1: (4, 7)}


@KINDS
def test_records_without_a_key_and_values_that_are_no_changes_are_dead_letters(
    tmp_path: Path, table: TableOptions
) -> None:
    table = table_of(table.kind, ChangeFormat.DEBEZIUM, keys=("id",))
    values = [
        {"op": "c", "before": None, "after": {"id": 1}},
        {"op": "c", "before": None, "after": {"name": "no id"}},
        {"before": None, "after": {"id": 2}},
        {"op": "x", "before": None, "after": {"id": 2}},
        {"op": "u", "before": None, "after": None},
    ]
    topic = Cluster(1)
    topic.key = lambda _, offset: None
    topic.value = lambda _, offset: json.dumps(values[offset % 5]).encode()
    topic.append(0, 5)
    report = upsert(topic, tmp_path, table, decoding=DEBEZIUM)
    assert [row["value"]["id"] for row in read_rows(tmp_path, table)] == [1]
    (batch,) = report.batches
    reasons = {reason for outcome in batch.outcomes.values() for reason in outcome.reasons}
    assert reasons == {
        "key: value.id is missing or null",
        "value: it has no op",
        "value: op is 'x', not c, r, u, d, t or m",
        "value: op is u, and after is not an object",
    }
    letters = list((tmp_path / "_dead_letters").rglob("*.parquet"))
    assert len(letters) == 1
    assert letters[0].relative_to(tmp_path / "_dead_letters").parts[0] == "orders"


def test_a_key_that_values_lack_and_changes_of_debezium_as_rows_are_refused(tmp_path: Path) -> None:
    topic = CompactedTopic(seed=5)
    topic.append(0, 9)
    cases = [
        (
            table_of(TableKind.PARQUET, keys=("ident",)),
            topic,
            "--key-fields ident: the value has no field ident: it has",
        ),
        (table_of(TableKind.PARQUET, keys=("place",)), topic, "value.place is a list, which cannot be a key"),
        (table_of(TableKind.PARQUET, order_by="ident"), topic, "--order-by ident: the value has no field ident"),
        (table_of(TableKind.PARQUET), DebeziumTopic(1), "are changes of Debezium, not rows: give --change-format"),
    ]
    for table, cluster, message in cases:
        cluster.append(0, 9)
        with pytest.raises(UsageError, match=message):
            upsert(cluster, tmp_path / "lake", table)
    assert not (tmp_path / "lake").exists()


@KINDS
def test_files_that_another_program_has_merged_become_buckets_again(tmp_path: Path, table: TableOptions) -> None:
    if table.kind is not TableKind.DELTA:
        return  # pyiceberg merges no files, and a folder of Parquet files is not changed by other programs
    from deltalake import DeltaTable  # noqa: PLC0415

    topic = CompactedTopic(seed=6)
    topic.append(0, 40)
    upsert(topic, tmp_path, table)
    DeltaTable(tmp_path / "orders").optimize.compact()
    topic.append(0, 5)
    upsert(topic, tmp_path, table)
    assert read_state(tmp_path, table) == topic.state()
    topic.append(1, 5)
    upsert(topic, tmp_path, table)
    assert read_state(tmp_path, table) == topic.state()


@KINDS
def test_verification_finds_each_difference_to_the_topic(tmp_path: Path, table: TableOptions) -> None:
    topic = CompactedTopic(seed=7)
    topic.append(0, 40)
    topic.append(1, 25)
    upsert(topic, tmp_path, table)
    rows = sum(1 for id_ in topic.state() if id_ % 2 == 0), sum(1 for id_ in topic.state() if id_ % 2)
    verified = verified_state(topic, tmp_path)
    assert verified.is_equal
    assert [(row.topic_records, row.table_records) for row in verified.ranges] == [(n, n) for n in rows]
    # Another history: the value of one row differs, one row is deleted, and one that the table lacks is there.
    at = {row["key"]: (row["partition"], row["offset"]) for row in read_rows(tmp_path, table)}
    changed, deleted = at.popitem()[1], at.popitem()[1]
    original = topic.value_at

    def other(partition: int, offset: int) -> bytes | None:
        if (partition, offset) == deleted:
            return None
        found = original(partition, offset)
        return b'{"id": 1, "name": "other"}' if (partition, offset) == changed else found

    topic.value = other
    found = verified_state(topic, tmp_path)
    assert not found.is_equal
    assert sum(row.different or 0 for row in found.ranges) == 1
    assert sum(row.unexpected or 0 for row in found.ranges) == 1
    assert sum(row.missing or 0 for row in found.ranges) == 0
    # Records that the topic no longer has are not compared.
    topic.value = topic.value_at
    topic.log_starts = [20, 25]
    found = verified_state(topic, tmp_path)
    assert found.is_equal
    assert sum(row.not_compared or 0 for row in found.ranges) == len(
        [offset for partition, offset in at_all(tmp_path, table) if offset < topic.log_starts[partition]]
    )


def test_rows_with_one_field_and_keys_with_one_field_are_verified(tmp_path: Path) -> None:
    """As many columns as keys and values that are not decoded have."""
    table = table_of(TableKind.PARQUET)
    topic = Cluster(1)
    topic.key = lambda _, offset: b'{"id": %d}' % (offset % 3)
    topic.value = lambda _, offset: b'{"n": %d}' % offset
    topic.append(0, 8)
    key, value = (FieldOptions(name=name, format=Format.JSON) for name in ("key", "value"))
    upsert(topic, tmp_path, table, decoding=DecodingOptions(key=key, value=value))
    verified = verified_state(topic, tmp_path)
    assert [(row.status, row.table_records) for row in verified.ranges] == [("equal", 3)]


@KINDS
@pytest.mark.long
def test_rows_get_the_columns_of_later_batches(tmp_path: Path, table: TableOptions) -> None:
    """Those without a change too, and in one commit with the changes."""
    topic = Cluster(1)
    topic.key = lambda _, offset: b"%d" % offset
    # A batch has a sample of three records.
    topic.value = lambda _, offset: json.dumps({"n": offset, **({"late": f"x{offset}"} if offset > 2 else {})}).encode()
    for count, columns in ((40, 0), (3, 43 - 3)):
        topic.append(0, count)
        upsert(topic, tmp_path, table)
        found = [row["value"].get("late") for row in read_rows(tmp_path, table)]
        assert len([value for value in found if value]) == columns
        assert verified_state(topic, tmp_path).is_equal
    rows = {row["offset"]: row for row in read_rows(tmp_path, table)}
    assert [rows[offset]["value"]["late"] for offset in range(3, 43)] == [f"x{offset}" for offset in range(3, 43)]
    assert {row["value_rest"] for row in rows.values()} == {None}


def at_all(folder: Path, table: TableOptions) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in read_rows(folder, table)]


def verified_state(topic: Cluster, folder: Path) -> Verification:
    request = VerifyRequest(
        topic="orders", target=str(folder), client=ClientSettings((("127.0.0.1", 1),)), isolation=None
    )
    logs: dict[int, LiveLog | ApiError] = {
        partition: LiveLog(start, end, end)
        for partition, (start, end) in enumerate(zip(topic.log_starts, topic.ends, strict=True))
    }
    source = LiveSource(
        LiveTopic(topic.topic_id, "cluster-a", logs), True, lambda range_: ClusterReader(topic, range_), lambda tp: 0
    )
    return verify_export(request, lambda done: None, files=DiskFiles(folder), source=source)


@KINDS
def test_compaction_is_refused(tmp_path: Path, table: TableOptions) -> None:
    topic = CompactedTopic(seed=8)
    topic.append(0, 10)
    upsert(topic, tmp_path, table)
    with pytest.raises(NotCompactable, match="current state by key"):
        compact_export(CompactRequest(target_bytes=1 << 20), DiskFiles(tmp_path), StoppedClock())


def test_values_of_avro_are_rows_with_the_types_of_debezium(tmp_path: Path) -> None:
    table = table_of(TableKind.DELTA, ChangeFormat.DEBEZIUM, keys=("id",))
    codec = AvroCodec(Schema(NO_ID, "AVRO", AVRO_ENVELOPE))
    rows: list[dict[str, Any]] = [
        {"id": 1, "price": Decimal("12.50"), "day": 20_000, "at": 1_000_001, "zoned": "2026-11-29T15:00:00+01:00"},
        {"id": 2, "price": None, "day": 0, "at": 0, "zoned": "2026-11-29T15:00:00Z"},
    ]
    values = [
        codec.encode_datum({"before": None, "after": rows[0], "op": "r"}),
        codec.encode_datum({"before": None, "after": rows[1], "op": "c"}),
        codec.encode_datum({"before": rows[1], "after": None, "op": "d"}),
        codec.encode_datum({"before": None, "after": rows[0] | {"zoned": "noon"}, "op": "u"}),
        b"\xff",
    ]
    topic = Cluster(1)
    topic.value = lambda _, offset: values[offset]
    decoding = DecodingOptions(
        value=FieldOptions(
            name="value", format=Format.AVRO, schema="x", text=AVRO_ENVELOPE, changes=ChangeFormat.DEBEZIUM
        ),
        keeps_bad=True,
    )
    topic.append(0, 5)
    report = upsert(topic, tmp_path, table, decoding=decoding)
    (row,) = read_rows(tmp_path, table)
    assert row["value"] == {
        "id": 1,
        "price": Decimal("12.50"),
        "day": date(2024, 10, 4),
        "at": datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC),
        "zoned": datetime(2026, 11, 29, 14, tzinfo=UTC),
    }
    (batch,) = report.batches
    assert sum(part.bad for outcome in batch.outcomes.values() for part in outcome.parts) == 2


_AVRO_ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {
            "name": "price",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "logicalType": "decimal",
                    "precision": 8,
                    "scale": 2,
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                },
            ],
        },
        {"name": "day", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}},
        {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
        {"name": "zoned", "type": {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}},
    ],
}
AVRO_ENVELOPE = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", _AVRO_ROW]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
)


@pytest.mark.server
def test_an_object_store_has_tables_and_no_folders_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_url: str
) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415

    s3_server.set_variables(monkeypatch, s3_url)
    url = f"s3://{s3_server.BUCKET}/{tmp_path.name}/lake"
    topic = CompactedTopic(seed=11)
    for count in (20, 9):
        topic.append(0, count)
        upsert(topic, tmp_path, table_of(TableKind.DELTA), files=open_files(url))
        rows = DeltaTable(f"{url}/orders", storage_options={"allow_http": "true"}).to_pyarrow_table().to_pylist()
        assert {int(row["key"]): whole_value(row) for row in rows} == topic.state()
        assert len(rows) == len(topic.state())
    assert not [name for name in open_files(url).sizes("_kctl") if name.endswith(".parquet")]
    with pytest.raises(UsageError, match="use --table delta or iceberg for an object store"):
        upsert(topic, tmp_path, table_of(TableKind.PARQUET), files=open_files(f"{url}-folder"))


def test_keys_in_several_partitions_are_counted(tmp_path: Path) -> None:
    """As after partitions were added; the record of the later batch counts."""
    topic = Cluster(2)
    topic.key = lambda _, offset: b"%d" % offset
    topic.append(0, 5)
    table = table_of(TableKind.PARQUET)
    assert upsert(topic, tmp_path, table).warnings == []
    topic.append(1, 3)
    (warning,) = upsert(topic, tmp_path, table).warnings
    assert "topic orders: 3 keys are in several partitions" in warning
    assert {row["key"]: row["partition"] for row in read_rows(tmp_path, table)} == {
        str(offset): int(offset < 3) for offset in range(5)
    }


@KINDS
@pytest.mark.long
def test_headers_of_the_last_record_are_in_its_row(tmp_path: Path, table: TableOptions) -> None:
    table = replace(table, headers=HeaderForm("map"))
    topic = CompactedTopic(seed=10)
    topic.headers = lambda offset: (("at", b"%d" % offset),)
    for count in (12, 9):
        topic.append(0, count)
        upsert(topic, tmp_path, table, include_headers=True)
    rows = read_rows(tmp_path, table)
    assert {row["key"] for row in rows} == {str(id_) for id_ in topic.state()}
    assert all(dict(row["headers"]) == {"at": b"%d" % row["offset"]} for row in rows)


@KINDS
def test_duckdb_reads_each_key_once(tmp_path: Path, table: TableOptions) -> None:
    topic = CompactedTopic(seed=9)
    for count in (30, 30):
        topic.append(0, count)
        upsert(topic, tmp_path, table)
    with duckdb.connect() as connection:
        connection.register("state", pa.Table.from_pylist(read_rows(tmp_path, table)))
        is_folder = table.kind is TableKind.PARQUET
        name = f"read_parquet('{tmp_path}/orders/*.parquet', union_by_name=true)" if is_folder else "state"
        found = connection.sql(f"select key, value.name from {name}").fetchall()
    assert dict(found) == {str(id_): row["name"] for id_, row in topic.state().items()}
    assert len(found) == len(topic.state()) > 0

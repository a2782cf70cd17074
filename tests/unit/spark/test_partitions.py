"""Exports into folders with partitions, read by DuckDB and pyarrow; partitions by a field of decoded values."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from obstore.store import MemoryStore
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import DateType, LongType, PrimitiveType, StringType, TimestamptzType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from kctl.errors import KctlError, UsageError
from kctl.tables.compaction.table_files import CompactRequest, compact_export
from kctl.tables.exec.outcome import BadRecords, DataLoss
from kctl.tables.exec.schema.column_types import Format
from kctl.tables.exec.selection.columns import CALENDAR_US
from kctl.tables.exec.selection.partitioning import NULL_NAME, Partitioning, escaped
from kctl.tables.exec.targets import outputs
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exec.targets.object_files import ObjectFiles
from kctl.tables.exec.targets.outputs import by_partition, utc_offsets_us
from kctl.tables.exports import cluster_reads
from kctl.tables.formats import iceberg
from kctl.tables.formats.iceberg_fields import partition_fields, partition_value
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from tests.unit.spark.crashing_files import Crash, CrashingFiles, UnlockedFiles
from tests.unit.spark.scene import SILENT, Beginning, Cluster, StoppedClock, exporter, filled, run

DATE = TableOptions(partition_by=Partitioning("date"))
BEGIN, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
ZONES = ["Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia"]
COUNTRIES = ["DE", "A/B: 100%", None, "", "x=y", "ä b", ".."]
JSON = DecodingOptions(value=FieldOptions(name="value", format=Format.JSON))


def by_field(kind: TableKind = TableKind.PARQUET, field: str = "country") -> TableOptions:
    return TableOptions(kind=kind, partition_by=Partitioning(field))


def daily() -> Cluster:
    """12 and 7 records, five hours apart: three dates."""
    cluster = filled()
    cluster.hours_per_offset = 5
    return cluster


def international(countries: list[str | None] = COUNTRIES) -> Cluster:
    """Records with a country; the first ones are the sample from which columns are inferred."""

    def value(partition: int, offset: int) -> bytes:
        country = countries[offset % len(countries)]
        return json.dumps({"id": offset, "country": country, "is_new": offset % 2 == 0}).encode()

    cluster = filled()
    cluster.value = value
    return cluster


def offsets(folder: Path, pattern: str = "orders/**/*.parquet") -> list[tuple[int, int]]:
    """(partition, offset) of all rows in the folder, as any reader that lists it finds them."""
    found = [pq.read_table(path, partitioning=None, columns=["partition", "offset"]) for path in folder.glob(pattern)]
    return sorted((row["partition"], row["offset"]) for table in found for row in table.to_pylist())


def everything(cluster: Cluster) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, end in enumerate(cluster.ends) for offset in range(end)]


def assert_settled(cluster: Cluster, folder: Path, table: TableOptions) -> None:
    """Checks that the folder has every record once, that all files are committed, and that nothing is left over."""
    assert offsets(folder) == everything(cluster)
    assert not list(folder.rglob(".*.tmp"))
    assert run(cluster, folder, table=table).batches == []


def test_partitions_by_hour_are_directories_of_date_and_hour(tmp_path: Path) -> None:
    run(daily(), tmp_path, table=TableOptions(partition_by=Partitioning("hour")))
    names = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")}
    assert "orders/date=2026-11-01/hour=05" in names
    assert len(names) == 12


def test_duckdb_and_pyarrow_find_the_partitions(tmp_path: Path) -> None:
    import duckdb  # noqa: PLC0415

    run(daily(), tmp_path, table=DATE)
    with duckdb.connect() as connection:
        found = connection.sql(
            f"select date, count(*) from read_parquet('{tmp_path}/orders/**/*.parquet', hive_partitioning = true) "
            "group by 1 order by 1"
        ).fetchall()
    assert [(str(date), count) for date, count in found] == [("2026-11-01", 10), ("2026-11-02", 7), ("2026-11-03", 2)]
    dataset = ds.dataset(tmp_path / "orders", partitioning="hive")
    assert dataset.count_rows(filter=ds.field("date") == "2026-11-02") == 7


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@given(
    st.lists(st.integers(-(10**15), 10**16), min_size=1).map(
        lambda numbers: [BEGIN + n * MICROSECOND for n in numbers]
    ),
    st.sampled_from(ZONES),
)
@example([utc("2040-07-01"), utc("2023-03-26T00:59"), utc("2023-03-26T01:00")], "Europe/Berlin")
@example([utc(f"2023-09-30T15:{minute}") for minute in (29, 30, 31)], "Australia/Lord_Howe")
@example([utc("2011-12-30T09:59"), utc("2011-12-30T10:00")], "Pacific/Apia")
def test_offsets_of_a_time_zone_are_those_of_its_rules(times: list[datetime], name: str) -> None:
    zone = ZoneInfo(name)
    found = utc_offsets_us(np.array([(time - BEGIN) // MICROSECOND for time in times]), zone)
    assert [offset * MICROSECOND for offset in found.tolist()] == [time.astimezone(zone).utcoffset() for time in times]


def test_times_at_the_ends_of_the_calendar_have_an_offset() -> None:
    ends = np.array([CALENDAR_US.start, CALENDAR_US.stop - 1])
    assert all(len(utc_offsets_us(ends, ZoneInfo(name))) == 2 for name in ZONES)


def test_days_begin_in_the_time_zone(tmp_path: Path) -> None:
    """In Sydney, 11 hours ahead, the day begins at 13:00 UTC: between the records of 10:00 and 15:00."""
    run(daily(), tmp_path, table=TableOptions(partition_by=Partitioning("date", "Australia/Sydney")))
    assert offsets(tmp_path, "orders/date=2026-11-01/*.parquet") == [(p, o) for p in (0, 1) for o in range(3)]


@pytest.mark.parametrize(("keeps_contents", "has_batch"), [(True, True), (False, False)], ids=["process", "power"])
@pytest.mark.long
def test_a_crash_at_any_step_is_recovered_from(tmp_path: Path, keeps_contents: bool, has_batch: bool) -> None:

    def begin(folder: Path) -> Cluster:
        cluster = daily()
        if has_batch:
            run(cluster, folder, table=DATE)
            cluster.append(0, 6)
        return cluster

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    for step in itertools.count(1):
        cluster = beginning.restored()
        files = CrashingFiles(folder, step)
        if has_batch:
            files.keep_all()
        with contextlib.suppress(Crash):
            exporter(cluster, folder, files=files, table=DATE).run(SILENT)
        if files.steps < step:
            break
        if not keeps_contents and folder.exists():
            files.lose_unsynced()
        cluster.append(1, 3)
        run(cluster, folder, table=DATE)
        assert_settled(cluster, folder, DATE)
    assert step > 20


@pytest.mark.long
def test_of_two_exporters_without_a_lock_each_record_is_published_once(tmp_path: Path) -> None:
    """The second exporter runs completely while the first is at its n-th step, for every n."""
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        cluster = daily()
        second = partial(exporter(cluster, folder, files=UnlockedFiles(folder), table=DATE).run, SILENT)
        files = UnlockedFiles(folder, partial(_at, step, second))
        with contextlib.suppress(KctlError, OSError):  # one of the two may fail with LostRace
            exporter(cluster, folder, files=files, table=DATE).run(SILENT)
        if files.steps < step:
            break
        run(cluster, folder, table=DATE)
        assert_settled(cluster, folder, DATE)
    assert step > 20


def _at(step: int, work: Callable[[], object], number: int) -> None:
    if number == step:
        work()


@pytest.mark.long
def test_records_that_are_removed_between_two_attempts_leave_no_unknown_file(tmp_path: Path) -> None:
    """Compaction removes all records of the last day after a first attempt has published files, or listed them."""
    removed = 0
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        cluster = daily()
        files = CrashingFiles(folder, step)
        with contextlib.suppress(Crash):
            exporter(cluster, folder, files=files, table=DATE).run(SILENT)
        if files.steps < step:
            break
        cluster.removed = {(0, 10)}
        run(cluster, folder, table=DATE)
        found = offsets(folder)
        assert found in (
            everything(cluster),
            [position for position in everything(cluster) if position not in {(0, 10), (0, 11)}],
        )
        removed += len(found) == 17
        assert run(cluster, folder, table=DATE).batches == []
    assert 5 < removed < step - 5


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_names_of_partitions_can_be_decoded(text: str) -> None:
    name = escaped(text)
    assert not {"/", "=", "\0"} & set(name)
    assert unquote(name, errors="strict") == (text or NULL_NAME)


def test_values_are_escaped_as_spark_escapes_them() -> None:
    assert escaped("A/B: 100%") == "A%2FB%3A 100%25"
    assert escaped("ä {x} [y] ^\"'?*#=\\") == "ä %7Bx} %5By%5D %5E%22%27%3F%2A%23%3D%5C"
    assert escaped(None) == escaped("") == "__HIVE_DEFAULT_PARTITION__"


def test_a_field_of_the_values_is_the_partition(tmp_path: Path) -> None:
    import duckdb  # noqa: PLC0415

    cluster = international()
    run(cluster, tmp_path, table=by_field(), decoding=JSON)
    assert offsets(tmp_path) == everything(cluster)
    with duckdb.connect() as connection:
        source = f"read_parquet('{tmp_path}/orders/**/*.parquet', hive_partitioning = true)"
        found = connection.sql(f"select country, value.country, count(*) from {source} group by all").fetchall()
    assert sorted(found, key=str) == sorted(
        ((country or None, country, (12 - index + 6) // 7 + 1) for index, country in enumerate(COUNTRIES)), key=str
    )
    partitioning = ds.partitioning(flavor="hive")
    dataset = ds.dataset(tmp_path / "orders", partitioning=partitioning)
    assert dataset.count_rows(filter=ds.field("country") == "A/B: 100%") == 3


def test_object_stores_have_the_same_names(tmp_path: Path) -> None:
    cluster = international()
    files = ObjectFiles("s3://bucket/lake", store=MemoryStore())
    run(cluster, tmp_path, files=files, table=by_field(), decoding=JSON)
    run(cluster, tmp_path / "disk", table=by_field(), decoding=JSON)
    assert files.names("orders") == sorted(path.name for path in (tmp_path / "disk" / "orders").iterdir())
    assert run(cluster, tmp_path, files=files, table=by_field(), decoding=JSON).batches == []


@pytest.mark.long
@pytest.mark.parametrize("field", ["country", "value.id", "is_new"])
def test_tables_have_partitions_by_a_field(tmp_path: Path, field: str) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415

    cluster = international()
    for kind in (TableKind.DELTA, TableKind.ICEBERG):
        for _ in range(2):
            run(cluster, tmp_path / kind, table=by_field(kind, field), decoding=JSON)
            cluster.append(0, 3)
    found = DeltaTable(tmp_path / "delta" / "orders").to_pyarrow_table().to_pylist()
    name = field.removeprefix("value.")
    assert len(found) == 22
    assert {row[name] or None for row in found} == {row["value"][name] or None for row in found}
    with contextlib.closing(iceberg.default_catalog(tmp_path / "iceberg")) as catalog:
        table = catalog.load_table(("kafka", "orders"))
        assert [field.name for field in table.spec().fields] == [name]
        assert table.scan().to_arrow().num_rows == 28
        value = {"country": "'DE'", "id": "3", "is_new": "true"}[name]
        scan = table.scan(f"value.{name} = {value}")
        assert scan.to_arrow().num_rows == {"country": 4, "id": 2, "is_new": 15}[name]
        assert len(list(scan.plan_files())) < len(list((tmp_path / "iceberg").rglob("data/*/*.parquet")))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
WHOLE = st.integers(-(2**63) + 2, 2**63 - 1)
"""Of smaller ones, what they are truncated to may be no number of 64 bits."""
DAYS = st.dates(datetime(1, 1, 1, tzinfo=UTC).date())
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - of hypothesis


@given(
    st.one_of(
        st.tuples(st.sampled_from(["bucket(7,x)", "truncate(3,x)", "x"]), st.just(StringType()), TEXTS),
        st.tuples(st.sampled_from(["bucket(7,x)", "truncate(3,x)", "x"]), st.just(LongType()), WHOLE),
        st.tuples(st.sampled_from(["year(x)", "month(x)", "day(x)", "bucket(5,x)"]), st.just(DateType()), DAYS),
        st.tuples(st.sampled_from(["year(x)", "month(x)", "day(x)", "hour(x)"]), st.just(TimestamptzType()), TIMES),
    )
)
@example(("bucket(7,x)", StringType(), "iceberg"))
@example(("truncate(3,x)", LongType(), -1))
@example(("hour(x)", TimestamptzType(), datetime(1969, 12, 31, 23, 59, tzinfo=UTC)))
def test_transforms_are_those_of_iceberg(case: tuple[str, PrimitiveType, Any]) -> None:
    """Of pyiceberg, which has another implementation of each."""
    text, type_, value = case
    by = Partitioning(text)
    batch = pa.record_batch({"value": pa.array([{"x": value}, {"x": None}], pa.struct([("x", _arrow_type(type_))]))})
    (known, part), (unknown, _) = by_partition(batch, by)
    assert part.num_rows == 1
    assert unknown == (None,)
    ((_, transform, _),) = partition_fields(by, pa.schema([]))
    counted = value if isinstance(value, str | int) else _units_of(value)
    assert partition_value(by.terms[0], type_, known[0]) == transform.transform(type_)(counted)


def _arrow_type(type_: PrimitiveType) -> pa.DataType:
    return pa.timestamp("us", "UTC") if type_ == TimestamptzType() else schema_to_pyarrow(type_)


def _units_of(value: Any) -> int:
    """Days of a date, microseconds of a time."""
    return datetime_to_micros(value) if isinstance(value, datetime) else date_to_days(value)


SEVERAL = "day(timestamp),bucket(4,id),truncate(2,country)"


@pytest.mark.long
def test_tables_have_several_partitions(tmp_path: Path) -> None:
    """Late records go into the partitions of their time, and a compaction keeps the partitions."""
    import duckdb  # noqa: PLC0415
    from deltalake import DeltaTable  # noqa: PLC0415

    cluster = international(["DE", "A/B", None])
    cluster.hours_per_offset = 5
    for kind in TableKind:
        table = by_field(kind, SEVERAL)
        run(cluster, tmp_path / kind, table=table, decoding=JSON)
    cluster.append(0, 3)
    cluster.hours_per_offset = 0  # in 1970
    for kind in TableKind:
        run(cluster, tmp_path / kind, table=by_field(kind, SEVERAL), decoding=JSON)
    rows = {}
    with duckdb.connect() as connection:
        source = f"read_parquet('{tmp_path}/parquet/orders/**/*.parquet', hive_partitioning = true)"
        columns = 'timestamp_day::varchar, id_bucket::varchar, country_trunc, "partition", "offset"'
        rows["parquet"] = connection.sql(f"select {columns} from {source}").fetchall()
    names = ["timestamp_day", "id_bucket", "country_trunc", "partition", "offset"]
    delta = DeltaTable(tmp_path / "delta" / "orders").to_pyarrow_table().select(names).to_pylist()
    rows["delta"] = [(str(row["timestamp_day"]), str(row["id_bucket"]), *list(row.values())[2:]) for row in delta]
    assert sorted(rows["parquet"], key=str) == sorted(rows["delta"], key=str)
    assert sorted(row[3:] for row in rows["delta"]) == everything(cluster)
    assert {row[0] for row in rows["delta"]} == {"2026-11-01", "2026-11-02", "2026-11-03", "1970-01-01"}
    assert {row[2] for row in rows["delta"]} == {"DE", "A/", None}
    compact_export(CompactRequest(target_bytes=1 << 20), DiskFiles(tmp_path / "iceberg"), StoppedClock())
    with contextlib.closing(iceberg.default_catalog(tmp_path / "iceberg")) as catalog:
        loaded = catalog.load_table(("kafka", "orders"))
        fields = [str(field.transform) for field in loaded.spec().fields]
        assert fields == ["day", "bucket[4]", "truncate[2]"]
        everywhere = {task.file.file_path: task.file.partition for task in loaded.scan().plan_files()}
        assert loaded.scan().to_arrow().num_rows == 22
        for condition, count in (
            ("value.id = 3", 2),
            ("value.country = 'A/B'", 7),
            ("timestamp < '1970-01-02T00:00:00+00:00'", 3),
        ):
            scan = loaded.scan(condition)
            assert scan.to_arrow().num_rows == count
            assert 0 < len(list(scan.plan_files())) < len(everywhere)
        for path, partition in everywhere.items():
            for row in pq.read_table(path.removeprefix("file://"), partitioning=None).to_pylist():
                sources = (_units_of(row["timestamp"]), row["value"]["id"], row["value"]["country"])
                expected = [
                    field.transform.transform(loaded.schema().find_type(field.source_id))(source)
                    for field, source in zip(loaded.spec().fields, sources, strict=True)
                ]
                assert [partition[place] for place in range(3)] == expected


def test_a_partition_for_almost_every_record_is_warned_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_reads, "MANY_PARTITIONS", 3)
    cluster = international()
    for count in (0, 6):
        cluster.append(0, count)
        report = run(cluster, tmp_path / "ids", table=by_field(field="id"), decoding=JSON)
        expected = ["topic orders: --partition-by id has 3 partitions in a sample of 6 records, and each run writes"]
        assert [warning[: len(expected[0])] for warning in report.warnings] == ([] if count else expected)
    assert not run(cluster, tmp_path / "new", table=by_field(field="bucket(2,id)"), decoding=JSON).warnings


@pytest.mark.parametrize("table", [by_field(), by_field(TableKind.DELTA)], ids=["parquet", "delta"])
@pytest.mark.parametrize(
    ("countries", "partitions_max", "reason"),
    [
        (["DE", "x" * 250, "FR"], 10, "country: the text is too long for the name of a partition"),
        (["DE", "FR", "ES"], 2, "country: more than 2 partitions in one file of the plan"),
    ],
)
@pytest.mark.long
def test_records_without_a_possible_partition_fail_or_become_dead_letters(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: TableOptions,
    countries: list[str | None],
    partitions_max: int,
    reason: str,
) -> None:
    monkeypatch.setattr(outputs, "EXPORT_PARTITIONS_PER_TASK_MAX", partitions_max)
    cluster = international(countries)
    with pytest.raises(BadRecords, match=f"the record at offset . cannot be exported: {reason}"):
        run(cluster, tmp_path, table=table, decoding=JSON)
    keeps = DecodingOptions(value=JSON.value, keeps_bad=True)
    report = run(cluster, tmp_path, table=table, decoding=keeps)
    (batch,) = report.batches
    assert sum(part.bad for outcome in batch.outcomes.values() for part in outcome.parts) == 6
    assert {text for outcome in batch.outcomes.values() for text in outcome.reasons} == {reason}
    letters = offsets(tmp_path, "_dead_letters/**/*.parquet")
    assert sorted(letters + offsets(tmp_path, "orders/**/*.parquet")) == everything(cluster)


def test_commits_of_undecoded_exports_name_their_dead_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "EXPORT_PARTITIONS_PER_TASK_MAX", 2)
    cluster = filled()
    cluster.hours_per_offset = 1
    by_hour = TableOptions(partition_by=Partitioning("hour"))
    for _ in range(2):
        run(cluster, tmp_path, table=by_hour, decoding=DecodingOptions(keeps_bad=True))
        cluster.append(0, 1)
    first = min((tmp_path / "_dead_letters").rglob("*.parquet"))
    first.unlink()
    with pytest.raises(DataLoss, match=rf"{re.escape(first.name)}, which batch 0 wrote, is gone"):
        run(cluster, tmp_path, table=by_hour, decoding=DecodingOptions(keeps_bad=True))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("price", "the decoded values of topic orders have no such field"),
        ("id.x", "have no such field"),
        ("tags", "tags is a list, and must be boolean, date, int32, int64, string"),
        ("day(timestamp),bucket(4,price)", "have no such field"),
        ("day(when)", r"when is string, and must be date, timestamp; truncate\(10,FIELD\) is the day of a text"),
        ("truncate(2,tags)", "tags is a list, and must be int32, int64, string"),
    ],
)
def test_fields_that_cannot_be_partitions_are_refused_before_anything_is_written(
    tmp_path: Path, field: str, message: str
) -> None:
    cluster = filled()
    cluster.value = lambda partition, offset: b'{"id": 1, "tags": ["a"], "when": "2026-11-01"}'
    with pytest.raises(UsageError, match=message):
        run(cluster, tmp_path / "new", table=by_field(field=field), decoding=JSON)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "by",
    [
        ("offset",),
        ("value.Topic",),
        ("a..b",),
        ("none", "Europe/Berlin"),
        ("date", "Nowhere"),
        ("day(timestamp)", "Europe/Berlin"),
        *((by,) for by in ("", "a,", "a,,b", "day(", "day(a)b", "day(a,b)", "day(1,a)", "bucket(a)", "bucket(0,a)")),
        *((by,) for by in ("bucket(9999999999,a)", "log(a)", "truncate(4,timestamp)", "timestamp", "a,x.A", "date,a")),
        ("a,b,c,d,e,f",),
    ],
)
def test_invalid_partitions_are_refused(by: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        Partitioning(*by)


def test_iceberg_has_no_time_zone() -> None:
    with pytest.raises(UsageError, match="are in UTC"):
        TableOptions(kind=TableKind.ICEBERG, partition_by=Partitioning("date", "Europe/Berlin"))


@pytest.mark.parametrize("before", [TableOptions(), DATE, by_field()])
@pytest.mark.parametrize(
    "after", [TableOptions(), DATE, by_field(), TableOptions(partition_by=Partitioning("date", "Europe/Berlin"))]
)
def test_a_folder_keeps_its_partitions(tmp_path: Path, before: TableOptions, after: TableOptions) -> None:
    cluster = international()
    run(cluster, tmp_path, table=before, decoding=JSON)
    if before == after:
        run(cluster, tmp_path, table=after, decoding=JSON)
        return
    with pytest.raises(UsageError, match="use the same options or another --to"):
        run(cluster, tmp_path, table=after, decoding=JSON)


def test_a_missing_file_of_a_partition_is_named(tmp_path: Path) -> None:
    cluster = daily()
    run(cluster, tmp_path, table=DATE)
    path = next((tmp_path / "orders" / "date=2026-11-02").iterdir())
    path.unlink()
    with pytest.raises(KctlError, match=f"orders/date=2026-11-02/{path.name.replace('+', '.')}, which batch 0 wrote"):
        run(cluster, tmp_path, table=DATE)


def test_the_lists_name_the_files(tmp_path: Path) -> None:
    run(daily(), tmp_path, table=DATE)
    lists = [json.loads(path.read_text()) for path in (tmp_path / "_kctl" / "lists" / "orders").iterdir()]
    named = {file["path"] for list_ in lists for file in list_["files"]}
    assert all(DiskFiles(tmp_path).size(path) for path in named)
    commit = json.loads((tmp_path / "_kctl" / "commits" / "000000000000.json").read_text())
    assert {path for file in commit["files"] for path in file["paths"]} == named

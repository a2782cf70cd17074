"""Logical types of Avro and times of Protobuf are columns of their kind, numbers or texts, and never another value."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kctl.tables.exec.schema.column_types import Format
from kctl.tables.exec.schema.logical_types import columns_of_kind
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from tests.integration.spark.test_tables import read
from tests.unit.spark.scene import Cluster, run
from tests.unit.spark.test_verification import verify


def logical(under: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": under, "logicalType": kind, **more}


FIELDS = {
    "day": logical("int", "date"),
    "time_ms": logical("int", "time-millis"),
    "time_us": logical("long", "time-micros"),
    "at_ms": logical("long", "timestamp-millis"),
    "at_us": logical("long", "timestamp-micros"),
    "at_ns": logical("long", "timestamp-nanos"),
    "local_ms": logical("long", "local-timestamp-millis"),
    "local_us": logical("long", "local-timestamp-micros"),
    "local_ns": logical("long", "local-timestamp-nanos"),
    "uuid": logical("string", "uuid"),
    "uuid_bytes": logical("fixed", "uuid", name="U", size=16),
    "duration": logical("fixed", "duration", name="D", size=12),
    "price": logical("bytes", "decimal", precision=9, scale=2),
    "price_fixed": logical("fixed", "decimal", name="P", size=5, precision=9, scale=2),
    "unknown": logical("long", "fiscal-quarter"),
    "times": {"type": "array", "items": logical("long", "time-micros")},
    "either": ["null", logical("long", "local-timestamp-micros")],
}
SCHEMA = {
    "type": "record",
    "name": "All",
    "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
}
PLAIN = json.loads(json.dumps(SCHEMA).replace("logicalType", "was"))
"""The same types without logical ones: what is written is what is meant."""
ID = UUID("6f1d2c3b-4a59-4687-b7a6-958473625140")
DAY_US = 86_400_000_000
NS = 1_793_491_200_123_456_789
US = 1_793_491_200_123_456
GOOD = {
    "day": 20_000,
    "time_ms": 86_399_999,
    "time_us": DAY_US - 1,
    "at_ms": US // 1000,
    "at_us": US,
    "at_ns": NS,
    "local_ms": US // 1000,
    "local_us": US,
    "local_ns": NS,
    "uuid": str(ID),
    "uuid_bytes": ID.bytes,
    "duration": bytes([14, 0, 0, 0, 3, 0, 0, 0]) + (3_600_004).to_bytes(4, "little"),
    "price": (-12345).to_bytes(2, "big", signed=True),
    "price_fixed": (12345).to_bytes(5, "big", signed=True),
    "unknown": 7,
    "times": [0, 1],
    "either": None,
}
EARLY = GOOD | {"at_ns": -1, "local_us": -1, "either": -62_135_596_800_000_000, "time_ms": 0, "time_us": 0}
BAD = GOOD | {"time_us": DAY_US}
"""No time of a day."""
VALUES = (GOOD, EARLY, BAD)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)


def encoded(partition: int, offset: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PLAIN, VALUES[offset] if offset < len(VALUES) else GOOD)
    return out.getvalue()


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def of_day(micros: int) -> time:
    return at(micros).time()


def expected(value: dict[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    """The row, from the numbers and the table of docs/tables/decoding.md."""
    has_time = "time" in columns
    return {
        "day": date(1970, 1, 1) + timedelta(days=value["day"]),
        "time_ms": of_day(value["time_ms"] * 1000) if has_time else value["time_ms"],
        "time_us": of_day(value["time_us"]) if has_time else value["time_us"],
        "at_ms": at(value["at_ms"] * 1000).replace(tzinfo=UTC),
        "at_us": at(value["at_us"]).replace(tzinfo=UTC),
        "at_ns": value["at_ns"],
        "local_ms": at(value["local_ms"] * 1000),
        "local_us": at(value["local_us"]),
        "local_ns": value["local_ns"],
        "uuid": str(ID),
        "uuid_bytes": str(ID),
        "duration": "P14M3DT3600.004S",
        "price": Decimal("-123.45"),
        "price_fixed": Decimal("123.45"),
        "unknown": 7,
        "times": [of_day(item) for item in value["times"]] if has_time else value["times"],
        "either": None if value["either"] is None else at(value["either"]),
    }


@pytest.mark.parametrize("kind", TableKind)
@pytest.mark.parametrize("has_all", [False, True], ids=["portable", "all"])
def test_logical_types_have_the_columns_of_their_table(tmp_path: Path, kind: TableKind, has_all: bool) -> None:
    columns = columns_of_kind(kind.value, has_all=has_all)
    decoding = DecodingOptions(
        value=FieldOptions(name="value", format=Format.AVRO, schema="all.avsc", text=json.dumps(SCHEMA)),
        keeps_bad=True,
        logical_columns=columns,
    )
    cluster = Cluster(1)
    cluster.value = encoded
    cluster.append(0, 3)
    report = run(cluster, tmp_path, table=TableOptions(kind=kind), decoding=decoding)
    outcomes = [outcome for batch in report.batches for outcome in batch.outcomes.values()]
    good = [GOOD, EARLY] if "time" in columns else list(VALUES)
    assert sum(part.bad for outcome in outcomes for part in outcome.parts) == 3 - len(good)
    table = parquet(tmp_path) if kind is TableKind.PARQUET else read(tmp_path, "orders", kind.value)
    table = table.sort_by("offset")
    values = table.column("value").combine_chunks()
    nanos = values.field("at_ns")
    assert nanos.type == (pa.timestamp("ns", tz="UTC") if "timestamp_ns" in columns else pa.int64())
    assert nanos.cast(pa.int64()).to_pylist() == [value["at_ns"] for value in good]
    rest = pa.table({name: values.field(name) for name in FIELDS if name != "at_ns"})
    for row, value in zip(rest.to_pylist(), good, strict=True):
        assert row == {name: cell for name, cell in expected(value, columns).items() if name != "at_ns"}
    found = verify(cluster, tmp_path)
    assert found.is_equal
    assert not found.warnings
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        paths = [str(path) for path in sorted((tmp_path / "orders").rglob("*.parquet"))]
        (row,) = connection.execute(
            "select value.local_us, value.at_us, value.duration, value.at_ns::varchar, value.time_us::varchar"
            ' from read_parquet(?) where "offset" = 0',
            [paths],
        ).fetchall()
    assert (row[0], row[2]) == (at(US), "P14M3DT3600.004S")
    assert row[3].startswith("2026-11-01 00:00:00.123456789" if "timestamp_ns" in columns else str(NS))
    assert row[4] == ("23:59:59.999999" if "time" in columns else str(DAY_US - 1))


def parquet(folder: Path) -> pa.Table:
    return ds.dataset([str(path) for path in (folder / "orders").glob("*.parquet")]).to_table()


@pytest.mark.parametrize("kind", TableKind)
def test_a_table_gets_columns_of_logical_types_later(tmp_path: Path, kind: TableKind) -> None:
    """Also a Delta table, which then needs another version of its protocol."""
    cluster = Cluster(1)
    few = {"type": "record", "name": "All", "fields": [{"name": "id", "type": "long"}]}
    more = {**few, "fields": [*few["fields"], {"name": "local", "type": logical("long", "local-timestamp-micros")}]}
    for schema, values in ((few, {"id": 0}), (more, {"id": 1, "local": US})):
        out = io.BytesIO()
        written = json.loads(json.dumps(schema).replace("logicalType", "was"))
        fastavro.schemaless_writer(out, written, values)
        data = out.getvalue()
        cluster.value = lambda partition, offset, data=data: data  # type: ignore[misc]
        cluster.append(0, 1)
        value = FieldOptions(name="value", format=Format.AVRO, schema="all.avsc", text=json.dumps(schema))
        columns = columns_of_kind(kind.value, has_all=False)
        decoding = DecodingOptions(value=value, keeps_bad=True, logical_columns=columns)
        run(cluster, tmp_path, table=TableOptions(kind=kind), decoding=decoding)
    if kind is not TableKind.PARQUET:
        rows = read(tmp_path, "orders", kind.value).sort_by("offset").column("value").to_pylist()
        assert rows == [{"id": 0, "local": None}, {"id": 1, "local": at(US)}]

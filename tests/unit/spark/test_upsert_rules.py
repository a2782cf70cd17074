"""Last changes of keys, buckets and groups against a dict, for random changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.tables.exec.decoding.changed_rows import key_ids, with_key_ids
from kctl.tables.exec.schema.changes import Change, ChangeKind, NotAChange, change_of, payload_of
from kctl.tables.exec.schema.column_types import Columns, Struct
from kctl.tables.exec.schema.connect_types import as_json, column_of, converted
from kctl.tables.exec.selection.columns import changes_schema
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.upserts.buckets import ALL_KEYS, Bucket, assign, bucket_of_name, key_hashes, overlapping, select
from kctl.tables.upserts.changes import ORIGIN, RECORD, after_truncates, last_changes, truncates_of
from kctl.tables.upserts.gathering import gather
from kctl.tables.upserts.rows import apply
from kctl.tables.upserts.state import BrokenState, StateRequest, write_state
from tests.rows import for_rows

STATE = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("value", pa.struct([pa.field("version", pa.int64())])),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
CHANGES = pa.schema([*changes_schema(STATE), pa.field(ORIGIN, pa.int8())])
KEYS = ["", "a", "b", "aa", "ab", "ü", "x" * 300]


def table(records: list[tuple[str, str, int | None]], start: int = 0) -> pa.Table:
    """Changes of (key, kind, version) with offsets from `start` on, in partition 0."""
    rows = [
        {
            "key": key,
            "value": {"version": version} if kind == ChangeKind.UPSERT else None,
            "partition": 0,
            "offset": start + place,
            "timestamp": place,
            "change": kind,
            "key_id": None if kind == ChangeKind.TRUNCATE else key.encode(),
            ORIGIN: RECORD,
        }
        for place, (key, kind, version) in enumerate(records)
    ]
    return pa.Table.from_pylist(rows, schema=CHANGES)


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(["upsert", "upsert", "delete", "truncate"]),
        st.none() | st.integers(0, 5),
    ),
    max_size=40,
)


@given(RECORDS, RECORDS)
def test_batches_of_changes_lead_to_the_rows_of_a_dict(
    first: list[tuple[str, str, int | None]], second: list[tuple[str, str, int | None]]
) -> None:
    model: dict[str, int] = {}
    rows: pa.Table | None = None
    for number, records in enumerate((first, second)):
        for place, (key, kind, _) in enumerate(records):
            if kind == "truncate":
                model.clear()
            elif kind == "delete":
                model.pop(key, None)
            else:
                model[key] = number * 100 + place
        changes = table(records, number * 100)
        truncates = truncates_of(changes)
        last = last_changes(after_truncates(changes, truncates))
        rows = apply(None if truncates else rows, last, STATE, UpsertOptions()).rows
    assert rows is not None
    found = list(zip(rows.column("key").to_pylist(), rows.column("offset").to_pylist(), strict=True))
    assert dict(found) == model
    assert len(found) == len(model)


@given(RECORDS, st.integers(1, 39))
def test_with_an_order_the_batches_do_not_matter(records: list[tuple[str, str, int | None]], cut: int) -> None:
    changes = [record for record in records if record[1] != "truncate"]
    options = UpsertOptions(order_by="version")
    model: dict[str, tuple[int, int]] = {}
    for offset, (key, kind, version) in enumerate(changes):
        rank = (-1 if version is None else version, offset)
        if kind == "delete":
            model.pop(key, None)
        else:
            model[key] = max(model.get(key, rank), rank)
    expected = {key: offset for key, (_, offset) in model.items()}
    rows: pa.Table | None = None
    for start, part in ((0, changes[:cut]), (cut, changes[cut:])):
        rows = apply(rows, last_changes(table(part, start), options.order_path), STATE, options).rows
    assert rows is not None
    assert dict(_places(rows)) == expected
    reduced = last_changes(table(changes[:cut]), options.order_path)
    both = pa.concat_tables([reduced, table(changes[cut:], cut)]).combine_chunks()
    whole = apply(None, last_changes(both, options.order_path), STATE, options).rows
    assert dict(_places(whole)) == expected


def _places(rows: pa.Table) -> list[tuple[str, int]]:
    return list(zip(rows.column("key").to_pylist(), rows.column("offset").to_pylist(), strict=True))


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.integers(0, 2**32))
def test_each_key_is_in_one_bucket_however_buckets_are_divided(keys: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    hashes = key_hashes(pa.array(keys, pa.binary()))
    assert key_hashes(pa.array([b"?", *keys], pa.binary()).slice(1)).tolist() == hashes.tolist()
    buckets = [ALL_KEYS]
    for _ in range(chance.randrange(12)):
        divided = chance.choice(buckets)
        buckets.remove(divided)
        buckets += divided.halves()
    assert overlapping(buckets) is None
    kept = [bucket for bucket in buckets if chance.random() < 0.7]
    assigned = assign(hashes, kept)
    assert sorted(np.concatenate(list(assigned.values())).tolist()) == list(range(len(keys)))
    for bucket, rows in assigned.items():
        assert select(bucket, hashes[rows]).all()
    assert overlapping(list({*kept, *assigned})) is None
    if len(buckets) > 1:
        assert overlapping([*buckets, ALL_KEYS]) is not None


def test_hashes_of_keys_never_change() -> None:
    """Files of earlier versions have their rows by these; a new key must not be looked for in another file."""
    keys = pa.array([b"", b"1", b"customer-17", bytes(range(256))], pa.binary())
    assert [f"{number:016x}" for number in key_hashes(keys).tolist()] == HASHES
    assert bucket_of_name("orders/orders+bucket-03-00005+p1f0a52d1.parquet") == Bucket(3, 5)
    assert bucket_of_name("orders/orders+bucket-20-fffff.parquet") == Bucket(20, 0xFFFFF)
    assert bucket_of_name("orders/orders+0+00000000000000000000-00000000000000000010.parquet") is None


HASHES = ["e220a8397b1dcdaf", "2e1dd7b6ee3368bf", "607ea72d58c50cd2", "07ec1901a890ec57"]


@given(st.lists(RECORDS, max_size=4))
def test_changes_beyond_the_memory_are_gathered_in_groups(batches: list[list[tuple[str, str, int | None]]]) -> None:
    parts = [table([record for record in part if record[1] != "truncate"], n * 100) for n, part in enumerate(batches)]
    total = sum(part.num_rows for part in parts)

    def given_parts() -> Iterator[pa.Table]:
        yield from parts

    whole = last_changes(pa.concat_tables([CHANGES.empty_table(), *parts]).combine_chunks())
    groups = list(gather(given_parts(), total, (), bytes_max=500))
    assert len({group.bucket for group in groups}) == len(groups)
    found = sorted(place for group in groups for place in _places(group.changes))
    assert found == sorted(_places(whole))
    for group in groups:
        ids = group.changes.column("key_id").combine_chunks()
        assert select(group.bucket, key_hashes(ids)).all()


@pytest.mark.long
@for_rows("seed", range(8))
def test_files_have_the_rows_of_a_dict_in_whatever_groups_and_buckets(tmp_path: Path, seed: int) -> None:
    """Batches that do not fit into memory divide buckets, and files of other programs have rows of any key."""
    chance = random.Random(seed)
    files = DiskFiles(tmp_path / str(seed))
    model: dict[str, int] = {}
    current: list[str] = []
    for batch in range(6):
        records: list[tuple[str, str, int | None]] = [
            (f"k{chance.randrange(60)}", chance.choice(("upsert", "upsert", "delete")), None)
            for _ in range(chance.choice((3, 40, 200)))
        ]
        path = f"changes/{batch}.parquet"
        scratch = files.scratch(path)
        pq.write_table(table(records, batch * 1000).drop_columns([ORIGIN]), scratch)
        files.publish(scratch, path)
        for place, (key, kind, _) in enumerate(records):
            if kind == "upsert":
                model[key] = batch * 1000 + place
            else:
                model.pop(key, None)
        if current and chance.random() < 0.3:
            current = [_merged(files, current, batch)]
        new = write_state(
            files,
            StateRequest(
                changes=[path],
                current=current,
                is_cleared=False,
                place=lambda name, batch=batch: f"{batch}/rows{name}.parquet",  # type: ignore[misc]
                schema=STATE,
                columns=Columns(),
                options=UpsertOptions(),
                compression="zstd",
                bucket_bytes_max=chance.choice((100, 1_000, 100_000)),
                changes_bytes_max=chance.choice((1_000, 10_000, 1_000_000)),
            ),
        )
        assert set(new.removed) <= set(current)
        current = [name for name in current if name not in new.removed] + [file.path for file in new.files]
        rows = [
            row for name in current for row in pq.read_table(f"{files.location}/{name}", partitioning=None).to_pylist()
        ]
        assert {row["key"]: row["offset"] for row in rows} == model
        assert len(rows) == len(model)
        assert sum(file.records for file in new.files) <= len(rows)
        assert not list((tmp_path / str(seed)).rglob(".*.tmp"))


def _merged(files: DiskFiles, paths: list[str], batch: int) -> str:
    """One file with the rows of all, as another program writes it."""
    rows = pa.concat_tables([pq.read_table(f"{files.location}/{path}", partitioning=None) for path in paths])
    path = f"{batch}/part-0.parquet"
    scratch = files.scratch(path)
    pq.write_table(rows, scratch)
    files.publish(scratch, path)
    return path


def test_files_with_the_same_keys_are_refused(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    request = StateRequest(
        changes=[],
        current=["a+bucket-00-00000.parquet", "b+bucket-01-00001.parquet"],
        is_cleared=False,
        place=lambda name: "new",
        schema=STATE,
        columns=Columns(),
        options=UpsertOptions(),
        compression="zstd",
    )
    with pytest.raises(BrokenState, match="have the same keys"):
        write_state(files, request)


@for_rows(
    "value, kind, row",
    [
        (None, "delete", None),
        ({"op": "c", "before": None, "after": {"id": 1}}, "upsert", {"id": 1}),
        ({"op": "r", "after": {"id": 1}}, "upsert", {"id": 1}),
        ({"op": "u", "before": {"id": 1}, "after": {"id": 2}}, "upsert", {"id": 2}),
        ({"op": "d", "before": {"id": 1}, "after": None}, "delete", {"id": 1}),
        ({"op": "d", "before": None, "after": None}, "delete", None),
        ({"op": "t"}, "truncate", None),
        ({"op": "m", "message": {}}, "nothing", None),
        ({"id": 1, "__deleted": "false", "__op": "u"}, "upsert", {"id": 1, "__op": "u"}),
        ({"id": 1, "__deleted": "true"}, "delete", {"id": 1}),
        ({"id": 1, "__deleted": True}, "delete", {"id": 1}),
        ({"id": 1, "op": "x", "__deleted": "false"}, "upsert", {"id": 1, "op": "x"}),
    ],
)
def test_values_of_debezium_are_changes(value: Any, kind: str, row: Any) -> None:
    assert change_of(value) == Change(ChangeKind(kind), row)
    assert payload_of({"schema": {}, "payload": value}) == (value, {})


@for_rows(
    "value",
    [
        1,
        "text",
        {"id": 1},
        {"op": "c"},
        {"before": None, "after": {"id": 1}},
        {"op": "c", "before": None, "after": None},
        {"op": "u", "after": '{"id": 1}'},
        {"op": "delete", "before": {}, "after": None},
        {"op": ["c"], "before": {}, "after": {}},
    ],
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(NotAChange):
        change_of(value)


def test_keys_are_equal_bytes_for_equal_keys() -> None:
    def ids(options: UpsertOptions, **columns: pa.Array) -> list[bytes | None]:
        found: list[bytes | None] = key_ids(pa.table(columns), options)[0].to_pylist()
        return found

    narrow, wide = pa.array([1, None], pa.int32()), pa.array([1, None], pa.int64())
    assert ids(UpsertOptions(), key=narrow) == ids(UpsertOptions(), key=wide) == [b"1", None]
    struct = pa.array([{"a": 1}, {"a": None}, None], pa.struct([("a", pa.int64())]))
    further = pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int64()), ("b", pa.string())]))
    assert ids(UpsertOptions(), key=struct) == [ids(UpsertOptions(), key=further)[0], None, None]
    pairs = pa.array([{"x": "1:2", "y": "3"}, {"x": "1", "y": "2:3"}, {"x": "1", "y": None}])
    first, second, missing = ids(UpsertOptions(keys=("x", "y")), value=pairs)
    assert None not in {first, second}
    assert first != second
    assert missing is None
    rest = pa.array([None, '{"b": 2}', None])
    assert ids(UpsertOptions(), key=struct, key_rest=rest) == [ids(UpsertOptions(), key=struct)[0], None, None]


def test_a_tombstone_finds_its_row_by_the_fields_of_the_key() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([{"id": 7}, {"id": 8}], pa.struct([("id", pa.int32())])),
            "value": pa.array([None, {"id": 9}], pa.struct([("id", pa.int64())])),
            "offset": pa.array([0, 1]),
            "change": pa.array(["delete", "upsert"]),
        }
    )
    keyed, refused = with_key_ids(batch, UpsertOptions(keys=("id",)))
    assert keyed.column("key_id").to_pylist() == [b"7", b"9"]
    assert refused == []


def test_types_of_debezium_are_columns_of_their_own() -> None:
    def field(name: str, kind: str, type_name: str = "", **more: Any) -> dict[str, Any]:
        return {"field": name, "type": kind, **({"name": type_name} if type_name else {}), **more}

    schema = {
        "type": "struct",
        "fields": [
            field("d", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "3"}),
            field("day", "int32", "io.debezium.time.Date"),
            field("ms", "int64", "io.debezium.time.Timestamp"),
            field("us", "int64", "io.debezium.time.MicroTimestamp"),
            field("ns", "int64", "io.debezium.time.NanoTimestamp"),
            field("zoned", "string", "io.debezium.time.ZonedTimestamp"),
            field("any", "struct", "io.debezium.data.VariableScaleDecimal", fields=[]),
            field("raw", "bytes"),
            field("list", "array", items={"type": "int16"}),
        ],
    }
    type_ = column_of(schema)
    assert isinstance(type_, Struct)
    assert dict(type_.fields) | {"list": ""} == {
        "d": "decimal(38,3)",
        "day": "date",
        "ms": "timestamp",
        "us": "timestamp",
        "ns": "int64",
        "zoned": "timestamp",
        "any": "string",
        "raw": "binary",
        "list": "",
    }
    row = {
        "d": "/2o=",  # -150 in two's complement
        "day": 20_000,
        "ms": 1_000,
        "us": 1_000_001,
        "ns": 5,
        "zoned": "2026-11-29T15:00:00+01:00",
        "any": {"scale": 2, "value": "AQ=="},
        "raw": "AAE=",
        "list": [1],
    }
    assert as_json(converted(row, schema)) == {
        "d": -0.150,
        "day": "2024-10-04",
        "ms": "1970-01-01T00:00:01+00:00",
        "us": "1970-01-01T00:00:01.000001+00:00",
        "ns": 5,
        "zoned": "2026-11-29T14:00:00+00:00",
        "any": "0.01",
        "raw": "AAE=",
        "list": [1],
    }
    wrong = {"d": "?", "day": 10**9, "zoned": "2026-11-29T15:00:00", "any": {"scale": 10**9, "value": "AQ=="}}
    assert converted(wrong, schema) == wrong

"""Topics whose records change rows, by a seed, and the state that they result in, computed record by record."""

from __future__ import annotations

import base64
import contextlib
import json
import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from kctl.tables.exec.schema.column_types import ChangeFormat, Format
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.formats import iceberg
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from tests.unit.spark.scene import Cluster

KEYS = 15
"""Of each partition."""
State = dict[int, dict[str, Any]]
"""The row of each id."""

PLAIN = DecodingOptions(
    key=FieldOptions(name="key", format=Format.STRING),
    value=FieldOptions(name="value", format=Format.JSON),
    keeps_bad=True,
)
DEBEZIUM = DecodingOptions(
    key=FieldOptions(name="key", format=Format.JSON, changes=ChangeFormat.DEBEZIUM),
    value=FieldOptions(name="value", format=Format.JSON, changes=ChangeFormat.DEBEZIUM),
    keeps_bad=True,
)


def table_of(kind: TableKind, changes: ChangeFormat = ChangeFormat.NONE, **more: Any) -> TableOptions:
    """Options of a table with the current state."""
    return TableOptions(kind=kind, upsert=UpsertOptions(changes=changes, **more))


class CompactedTopic(Cluster):
    """Records with an id as key, and a row or nothing as value: any third record deletes a row."""

    def __init__(self, seed: int, partitions: int = 2) -> None:
        super().__init__(partitions)
        self.seed = seed
        self.key = self.key_at
        self.value = self.value_at

    def id_at(self, partition: int, offset: int) -> int:
        """The id of a record, which is in one partition."""
        chance = random.Random(f"{self.seed} {self.topic_id} {partition} {offset}")
        return chance.randrange(KEYS) * len(self.ends) + partition

    def key_at(self, partition: int, offset: int) -> bytes | None:
        return b"%d" % self.id_at(partition, offset)

    def value_at(self, partition: int, offset: int) -> bytes | None:
        if offset % 3 == 2:
            return None
        row = {"id": self.id_at(partition, offset), "place": [partition, offset], "name": f"n{offset}"}
        return json.dumps(row | ({"late": offset} if offset > 30 else {})).encode()

    def state(self) -> State:
        rows: State = {}
        for partition, end in enumerate(self.ends):
            for offset in range(self.log_starts[partition], end):
                id_, value = self.id_at(partition, offset), self.value_at(partition, offset)
                rows.pop(id_, None)
                if value is not None:
                    rows[id_] = json.loads(value)
        return rows


class DebeziumTopic(CompactedTopic):
    """Changes of a table: creations, updates, deletes with tombstones, snapshots, messages, and truncates."""

    def __init__(self, seed: int, partitions: int = 1, *, has_schema: bool = False) -> None:
        super().__init__(seed, partitions)
        self.has_schema = has_schema
        self.truncates = True

    def key_at(self, partition: int, offset: int) -> bytes | None:
        kind = self.kind_at(partition, offset)
        if kind in {"t", "m"}:
            return None
        key = {"id": self.id_at(partition, offset)}
        schema = {"type": "struct", "optional": False, "fields": [{"field": "id", "type": "int32"}]}
        return json.dumps({"schema": schema, "payload": key} if self.has_schema else key).encode()

    def id_at(self, partition: int, offset: int) -> int:
        # A tombstone has the key of the delete before it.
        at = offset - 1 if self.kind_at(partition, offset) == "tombstone" else offset
        return super().id_at(partition, at)

    def kind_at(self, partition: int, offset: int) -> str:
        chance = random.Random(f"kind {self.seed} {self.topic_id} {partition} {offset}")
        if offset and self._drawn(partition, offset - 1) == "d":
            return "tombstone"
        return self._drawn(partition, offset) if chance else ""

    def _drawn(self, partition: int, offset: int) -> str:
        chance = random.Random(f"kind {self.seed} {self.topic_id} {partition} {offset}")
        (kind,) = chance.choices("crudmt", (8, 4, 8, 5, 1, 1 if self.truncates else 0))
        return kind

    def row(self, partition: int, offset: int) -> dict[str, Any]:
        """The row after a change, with the types of a database."""
        return {
            "id": self.id_at(partition, offset),
            "price": Decimal(offset * 7 - 50) / 100,
            "since": offset,
            "at": offset * 1_000_001,
        }

    def value_at(self, partition: int, offset: int) -> bytes | None:
        kind = self.kind_at(partition, offset)
        if kind == "tombstone":
            return None
        row = self.row(partition, offset)
        unscaled = int(row["price"] * 100)
        data = base64.b64encode(unscaled.to_bytes(3, signed=True)).decode()
        written = row | {"price": data if self.has_schema else float(row["price"])}
        payload = {
            "before": {"id": row["id"]} if kind == "d" else None,
            "after": written if kind in {"c", "r", "u"} else None,
            "source": {"connector": "postgresql", "table": "customers"},
            "op": kind,
            "ts_ms": offset,
        }
        return json.dumps({"schema": SCHEMA, "payload": payload} if self.has_schema else payload).encode()

    def state(self) -> State:
        rows: State = {}
        for partition, end in enumerate(self.ends):
            for offset in range(self.log_starts[partition], end):
                kind, id_ = self.kind_at(partition, offset), self.id_at(partition, offset)
                if kind == "t":
                    rows.clear()
                elif kind in {"d", "tombstone"}:
                    rows.pop(id_, None)
                elif kind != "m":
                    rows[id_] = self.row(partition, offset)
        return rows


_ROW_FIELDS = [
    {"field": "id", "type": "int32", "optional": False},
    {
        "field": "price",
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "8"},
    },
    {"field": "since", "type": "int32", "name": "io.debezium.time.Date", "version": 1},
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
]
SCHEMA = {
    "type": "struct",
    "name": "shop.customers.Envelope",
    "fields": [
        {"field": "before", "type": "struct", "optional": True, "fields": _ROW_FIELDS},
        {"field": "after", "type": "struct", "optional": True, "fields": _ROW_FIELDS},
        {"field": "op", "type": "string"},
    ],
}


def read_rows(folder: Path, table: TableOptions, topic: str = "orders") -> list[dict[str, Any]]:
    """The rows of a table as the library of its kind reads them."""
    if table.kind is TableKind.PARQUET:
        paths = sorted(folder.glob(f"{topic}/[!._]*.parquet"))
        return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
    if table.kind is TableKind.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415 - as the exporter

        rows: list[dict[str, Any]] = DeltaTable(folder / topic).to_pyarrow_table().to_pylist()
        return rows
    with contextlib.closing(iceberg.default_catalog(folder)) as catalog:
        found: list[dict[str, Any]] = catalog.load_table(("kafka", topic)).scan().to_arrow().to_pylist()
        return found


def read_state(
    folder: Path, table: TableOptions, id_of: Callable[[Mapping[str, Any]], int] = lambda row: int(row["key"])
) -> State:
    """The rows by id; fails if a key is there twice."""
    rows = read_rows(folder, table)
    state = {id_of(row): whole_value(row) for row in rows}
    assert len(state) == len(rows), "a key is there twice"
    return state


def whole_value(row: Mapping[str, Any]) -> dict[str, Any]:
    """The value of a row with what has no columns, and without nulls."""
    value = {**(row["value"] or {}), **json.loads(row.get("value_rest") or "{}")}
    return {name: member for name, member in value.items() if member is not None}

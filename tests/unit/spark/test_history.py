"""--history: the versions of rows equal those that are computed from the topic record by record."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow.parquet as pq
import pytest

from kctl.errors import UsageError
from kctl.tables.compaction.bins import NotCompactable
from kctl.tables.compaction.table_files import CompactRequest, compact_export
from kctl.tables.exec.schema.column_types import ChangeFormat
from kctl.tables.exec.selection.column_layout import ColumnLayout
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.plan import OnDataLoss
from kctl.tables.upserts import gathering, state
from tests.unit.spark.changing_topic import (
    DEBEZIUM,
    PLAIN,
    CompactedTopic,
    DebeziumTopic,
    read_rows,
    table_of,
    whole_value,
)
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import SILENT, Beginning, Cluster, StoppedClock, exporter
from tests.unit.spark.stepped_port import crashing
from tests.unit.spark.test_current_state import FILE_BYTES, upsert, verified_state
from tests.unit.spark.test_tables import stepped_commits

KINDS = pytest.mark.parametrize(
    "table", [table_of(kind, history=True) for kind in TableKind], ids=lambda table: table.kind
)


def seeds(count: int) -> list[Any]:
    """The first seed, and others that only the matrix runs."""
    return [0, *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(1, count))]


Version = tuple[int, dict[str, Any], datetime, datetime | None, bool]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LateTopic(CompactedTopic):
    """Records whose timestamps are not in order."""

    def timestamp_ms(self, offset: int) -> int:
        return offset * 10 + random.Random(f"{self.seed} {offset}").choice((0, 0, 25, -40)) + 1000


def at(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def versions_of(
    topic: CompactedTopic, row_of: Callable[[int, int], dict[str, Any] | None], kind_of: Callable[[int, int], str]
) -> list[Version]:
    """The versions that the records of a topic result in; a key is in one partition."""
    found: list[Version] = []
    current: dict[int, tuple[dict[str, Any], int]] = {}

    def end_of(id_: int, time: int) -> None:
        if id_ in current:
            row, begin = current.pop(id_)
            found.append((id_, row, at(begin), at(max(begin, time)), False))

    for partition, end in enumerate(topic.ends):
        for offset in range(end):
            kind, time = kind_of(partition, offset), topic.timestamp_ms(offset)
            if kind == "m":
                continue
            for id_ in list(current) if kind == "t" else [topic.id_at(partition, offset)]:
                end_of(id_, time)
            row = row_of(partition, offset)
            if row is not None:
                current[topic.id_at(partition, offset)] = (row, time)
    found += [(id_, row, at(begin), None, True) for id_, (row, begin) in current.items()]
    return sorted(found, key=_place)


def _place(version: Version) -> tuple[int, str]:
    return version[0], f"{version[2]} {version[3]} {version[1]}"


def plain_versions(topic: CompactedTopic) -> list[Version]:
    def row_of(partition: int, offset: int) -> dict[str, Any] | None:
        value = topic.value_at(partition, offset)
        return None if value is None else json.loads(value)

    return versions_of(topic, row_of, lambda partition, offset: "")


def read_versions(
    folder: Path, table: TableOptions, id_of: Callable[[dict[str, Any]], int] = lambda row: int(row["key"])
) -> list[Version]:
    rows = read_rows(folder, table)
    assert all(row["valid_from"] == row["timestamp"] for row in rows)
    found = [(id_of(row), whole_value(row), row["valid_from"], row["valid_to"], row["is_current"]) for row in rows]
    return sorted(found, key=_place)


@KINDS
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.long
def test_each_batch_leads_to_the_versions_of_the_topic(tmp_path: Path, table: TableOptions, seed: int) -> None:
    topic = LateTopic(seed)
    for count in (7, 1, 45, 0, 3):
        topic.append(0, count)
        topic.append(1, count // 2)
        upsert(topic, tmp_path, table)
        assert read_versions(tmp_path, table) == plain_versions(topic)
    current = {row[0]: row[1] for row in read_versions(tmp_path, table) if row[4]}
    assert current == topic.state()
    assert upsert(topic, tmp_path, table).batches == []
    assert verified_state(topic, tmp_path).is_equal
    assert not list(tmp_path.rglob(".*.tmp"))


@KINDS
@pytest.mark.long
def test_changes_that_are_divided_and_reduced_lead_to_the_same_versions(
    tmp_path: Path, table: TableOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some thousand bytes are as much as memory has room for."""
    topic = LateTopic(5)
    gather = gathering.gather
    monkeypatch.setattr(state, "BATCH_ROWS", 7)
    monkeypatch.setattr(
        state,
        "gather",
        lambda parts, total, order, **more: gather(parts, total, order, **(more | {"bytes_max": 4_000})),
    )
    for count in (60, 40):
        topic.append(0, count)
        topic.append(1, count)
        upsert(topic, tmp_path, table)
        assert read_versions(tmp_path, table) == plain_versions(topic)


@KINDS
@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.long
def test_changes_of_debezium_lead_to_the_versions_of_the_database(
    tmp_path: Path, table: TableOptions, seed: int
) -> None:
    table = table_of(table.kind, ChangeFormat.DEBEZIUM, history=True)
    topic = DebeziumTopic(seed)

    def row_of(partition: int, offset: int) -> dict[str, Any] | None:
        row = topic.row(partition, offset)
        return row | {"price": float(row["price"])} if topic.kind_at(partition, offset) in {"c", "r", "u"} else None

    for count in (6, 30, 2, 40):
        topic.append(0, count)
        upsert(topic, tmp_path, table, decoding=DEBEZIUM)
        found = read_versions(tmp_path, table, lambda row: row["key"]["id"])
        assert found == versions_of(topic, row_of, topic.kind_at)


@KINDS
@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.long
def test_a_crash_at_any_step_leads_to_the_versions_of_the_topic(tmp_path: Path, table: TableOptions, seed: int) -> None:
    """More records arrive before the recovery; each seed crashes at every twentieth step."""

    def begin(folder: Path) -> Cluster:
        topic = LateTopic(seed)
        for partition, count in enumerate((20, 9)):
            topic.append(partition, count)
        upsert(topic, folder, table)
        topic.append(0, 6 + seed)
        return topic

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    has_ended = False
    for step in itertools.count(1 + 2 * seed, 20):
        topic = beginning.restored()
        assert isinstance(topic, LateTopic)
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
        assert read_versions(folder, table) == plain_versions(topic)
        if has_ended:
            break


@KINDS
@pytest.mark.long
def test_rows_of_a_topic_that_was_created_again_end_with_its_first_record(tmp_path: Path, table: TableOptions) -> None:
    topic = CompactedTopic(seed=4)
    topic.append(0, 30)
    upsert(topic, tmp_path, table)
    before = plain_versions(topic)
    topic.topic_id = UUID(int=2)
    topic.ends = [4, 2]
    upsert(topic, tmp_path, table, on_data_loss=OnDataLoss.WARN)
    ended = [(id_, row, begin, end or begin, False) for id_, row, begin, end, _ in before]
    assert read_versions(tmp_path, table) == sorted(ended + plain_versions(topic), key=_place)
    topic.append(1, 9)
    upsert(topic, tmp_path, table)
    assert read_versions(tmp_path, table) == sorted(ended + plain_versions(topic), key=_place)


def test_versions_may_be_flat_and_readers_of_current_rows_skip_the_others(tmp_path: Path) -> None:
    table = TableOptions(upsert=UpsertOptions(history=True), layout=ColumnLayout("{path}", (("valid_from", "since"),)))
    topic = CompactedTopic(seed=6)
    for count in (40, 30):
        topic.append(0, count)
        upsert(topic, tmp_path, table)
    with duckdb.connect() as connection:
        found = connection.sql(
            f"select id, name from read_parquet('{tmp_path}/orders/*.parquet', union_by_name = true) where is_current"
        ).fetchall()
    assert dict(found) == {id_: row["name"] for id_, row in topic.state().items()}
    for path in tmp_path.glob("orders/*.parquet"):
        flags = pq.read_table(path, columns=["is_current"], partitioning=None).column(0).to_pylist()
        assert set(flags) == {"+closed-" not in path.name}


def test_files_that_deltalake_has_merged_are_divided_again(tmp_path: Path) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415 - an optional package

    table = table_of(TableKind.DELTA, history=True)
    topic = LateTopic(seed=6)
    for count in (40, 15):
        topic.append(0, count)
        upsert(topic, tmp_path, table)
    DeltaTable(tmp_path / "orders").optimize.compact()
    topic.append(0, 5)
    upsert(topic, tmp_path, table)
    assert read_versions(tmp_path, table) == plain_versions(topic)


@pytest.mark.parametrize("kind", TableKind)
@pytest.mark.long
def test_files_with_earlier_versions_are_merged_and_get_later_columns(tmp_path: Path, kind: TableKind) -> None:
    table = table_of(kind, history=True)
    topic = LateTopic(seed=8)
    for count in (12, 25, 9):
        topic.append(0, count)
        upsert(topic, tmp_path, table)
    (found,) = compact_export(CompactRequest(target_bytes=1 << 20), DiskFiles(tmp_path), StoppedClock())
    assert (found.files_before, found.files_after) == (3, 1)
    assert read_versions(tmp_path, table) == plain_versions(topic)
    assert sum(row["value"]["late"] is not None for row in read_rows(tmp_path, table) if not row["is_current"]) > 0
    topic.append(0, 20)
    topic.append(1, 20)
    upsert(topic, tmp_path, table)
    assert read_versions(tmp_path, table) == plain_versions(topic)
    assert verified_state(topic, tmp_path).is_equal


@pytest.mark.long
def test_a_crash_at_any_step_of_the_merge_in_a_folder_loses_no_version(tmp_path: Path) -> None:
    """Of both crashes of an export and of the merge, the next run makes the versions of the topic."""
    table = table_of(TableKind.PARQUET, history=True)

    def begin(folder: Path) -> Cluster:
        topic = LateTopic(seed=3)
        for count in (12, 9):
            topic.append(0, count)
            upsert(topic, folder, table)
        topic.append(0, 5)
        files = crashing(DiskFiles(folder), 75)  # the files of a commit wait for their names
        with contextlib.suppress(Crash), stepped_commits(files):
            exporter(topic, folder, files=files, table=table, decoding=PLAIN, target_file_bytes=FILE_BYTES).run(SILENT)
        return topic

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    for step in itertools.count(1, 2):
        topic = beginning.restored()
        assert isinstance(topic, LateTopic)
        files = crashing(DiskFiles(folder), step)
        request = CompactRequest(target_bytes=1 << 20)
        has_ended = False
        try:
            compact_export(request, files, StoppedClock())
            has_ended = True
        except (Crash, NotCompactable):
            pass
        topic.append(1, 3)
        upsert(topic, folder, table)
        assert read_versions(folder, table) == plain_versions(topic)
        compact_export(request, DiskFiles(folder), StoppedClock())
        assert read_versions(folder, table) == plain_versions(topic)
        assert len(list(folder.glob("orders/*+closed-*"))) == 1
        if has_ended:
            break
    assert step > 9


def test_an_order_and_a_topic_without_state_are_refused() -> None:
    with pytest.raises(UsageError, match="--history and --order-by exclude each other"):
        UpsertOptions(order_by="version", history=True)
    table = table_of(TableKind.ICEBERG, history=True)
    assert TableOptions.of_mark(table.mark, catalog=None, namespace="") == table

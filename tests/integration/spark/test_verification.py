"""`kctl tables verify` and `status` against kctl's broker and Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kctl.cli import main
from tests.integration.spark.peer import Topic, export

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[[str, int], Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)


@pytest.fixture
def tables(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """Runs a verb of `kctl tables`; returns the exit status and the rows."""

    def run(topic: Topic, *words: str) -> tuple[int, list[dict[str, Any]]]:
        status = main(["tables", *words, "--bootstrap-server", topic.bootstrap, "--format", "json", "--timeout", "60s"])
        return status, json.loads(capsys.readouterr().out)

    return run


Tables = Callable[..., tuple[int, list[dict[str, Any]]]]


@LOCAL
@pytest.mark.parametrize(("bootstrap", "kind"), [("kctl", "parquet"), ("apache", "delta")], indirect=["bootstrap"])
def test_an_export_with_transactions_is_compared_with_its_topic(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, tables: Tables, kind: str
) -> None:
    topic = make_topic(bootstrap, 2)
    entries = [{"value": b"%d" % n * 30, "key": b"k", "partition": n % 2, "headers": [("h", b"x")]} for n in range(400)]
    topic.produce(entries, codec="lz4")
    topic.produce_aborted(entries[:10], f"{topic.name}-aborted")
    topic.produce(entries[:100], transactional_id=f"{topic.name}-committed")
    export(topic, tmp_path, "--table", kind, "--include-headers")
    verify = ("verify", topic.name, str(tmp_path))
    status, rows = tables(topic, *verify)
    assert (status, [(row["status"], row["topic_records"]) for row in rows]) == (0, [("equal", 250)] * 2)
    assert all(row["topic_hash"] == row["table_hash"] for row in rows)
    status, rows = tables(topic, "status", str(tmp_path), "--check")
    assert (status, [(row["state"], row["lag"]) for row in rows]) == (0, [("current", 0)] * 2)

    topic.produce(entries[:4])
    status, rows = tables(topic, "status", str(tmp_path), "--check")
    assert (status, [(row["state"], row["lag"]) for row in rows]) == (3, [("behind", 2)] * 2)
    assert all(row["time_lag_ms"] is not None for row in rows)
    assert tables(topic, "status", str(tmp_path), "--lag", ">2", "--check") == (0, [])

    path = next(path for path in tmp_path.rglob("[!._]*.parquet") if "_delta_log" not in path.parts)
    table = pq.read_table(path, partitioning=None)
    values = table["value"].to_pylist()
    values[7] = b"other"
    index = table.schema.get_field_index("value")
    pq.write_table(table.set_column(index, table.schema.field(index), pa.array(values, pa.binary())), path)
    partition, offset = table["partition"][7].as_py(), table["offset"][7].as_py()
    status, rows = tables(topic, *verify)
    found = [row for row in rows if row["status"] == "different"]
    assert status == 3
    assert [(row["partition"], row["offset"], row["difference"]) for row in found] == [(partition, offset, "different")]
    topic.delete_records(partition, offset + 1)
    status, rows = tables(topic, *verify)
    assert status == 0
    assert [row["reason"] for row in rows if row["status"] == "not compared"] == ["deleted from the topic"]

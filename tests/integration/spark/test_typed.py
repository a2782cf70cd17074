"""`kctl export --value`: values written by other projects' serializers become columns, also after a kill."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.integration.spark.peer import RUN_TIMEOUT_S, Topic, export, export_command, run_engine, run_export
from tests.integration.spark.test_tables import read
from tests.peers.probe import wait_until
from tests.peers.schema_registry import SchemaRegistry, schema_registry

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[[str, int], Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)
ID, WHO = {"name": "id", "type": "long"}, {"name": "who", "type": "string"}
PRICE = {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]}
FIRST = {"type": "record", "name": "Order", "fields": [ID, WHO]}
SECOND = {"type": "record", "name": "Order", "fields": [ID, PRICE, WHO]}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def serialized(registry: SchemaRegistry, topic: Topic, schema: dict[str, Any], values: list[Any]) -> Iterator[bytes]:
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(schema))
    context = SerializationContext(topic.name, MessageField.VALUE)
    for value in values:
        data = serializer(value, context)
        assert isinstance(data, bytes)
        yield data


def price_of(value: dict[str, Any]) -> float | None:
    price = value.get("price")
    return None if price is None else float(price)


@LOCAL
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_versions_of_an_avro_schema_are_one_table(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, registry: SchemaRegistry, kind: str
) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    options = ("--table", kind, "--value", "avro", "--schema-registry", registry.url)
    first: list[dict[str, Any]] = [{"id": n, "who": f"w{n}"} for n in range(3)]
    topic.produce({"value": value} for value in serialized(registry, topic, FIRST, first))
    export(topic, tmp_path, *options)
    second: list[dict[str, Any]] = [
        {"id": n, "who": f"w{n}", "price": None if n == 4 else Decimal(n) / 4} for n in range(3, 6)
    ]
    topic.produce({"value": value} for value in serialized(registry, topic, SECOND, second))
    topic.produce([{"value": b"\0\0\0\1\0x"}, {"value": None}])
    status, document, output = run_export(topic, tmp_path, *options, "--on-bad-record", "fail")
    assert (status, document["error"]["code"]) == (3, "BAD_RECORDS")
    assert "schema 256 is not one of its subject; --on-bad-record=dead-letter" in output
    document = export(topic, tmp_path, *options)
    assert (document["records"], document["bad"]) == (4, 1)
    assert document["bad_reasons"] == {"value: schema 256 is not one of its subject": 1}
    columns = [(row["name"], row["type"]) for row in document["columns"]]
    assert columns == [("value.id", "int64"), ("value.who", "string"), ("value.price", "decimal(9,2)")]
    with duckdb.connect() as connection:
        connection.register("exported", read(tmp_path, topic.name, kind))
        query = 'select "offset", value.id, value.who, value.price::double from exported order by 1'
        rows = connection.sql(query).fetchall()
    expected = [(order["id"], order["id"], order["who"], price_of(order)) for order in [*first, *second]]
    assert rows == [*expected, (7, None, None, None)]


def test_a_killed_run_with_decoded_values_is_completed_by_the_other_engine(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(kctl_bootstrap, 3)
    values = [b"bad" if n % 100 == 99 else json.dumps({"n": n, "tags": ["x"] * (n % 3)}).encode() for n in range(9_000)]
    topic.produce({"value": value, "partition": n % 3} for n, value in enumerate(values))
    options = ("--value", "json", "--target-file-size", "32k")
    with subprocess.Popen(export_command(topic, tmp_path, *options), stdout=subprocess.PIPE) as driver:
        started = lambda: any(tmp_path.glob("*/*.parquet")) or driver.poll() is not None  # noqa: E731
        wait_until(started, what="the first file", timeout_s=RUN_TIMEOUT_S, interval_s=0.005)
        driver.kill()
    topic.engine = "local"
    export(topic, tmp_path, *options)
    exported, letters = tmp_path / topic.name / "*.parquet", tmp_path / "_dead_letters" / topic.name / "*.parquet"
    with duckdb.connect() as connection:
        good = connection.execute('select "partition", "offset", value.n from read_parquet(?)', [str(exported)])
        found = sorted(good.fetchall())
        bad = connection.execute('select "partition", "offset", value, reason from read_parquet(?)', [str(letters)])
        refused = sorted(bad.fetchall())
    assert found == sorted((row[0], row[1], json.loads(row[3] or b"")["n"]) for row in topic.rows if row[3] != b"bad")
    assert refused == sorted(
        (row[0], row[1], b"bad", "value: it is not JSON") for row in topic.rows if row[3] == b"bad"
    )


@LOCAL
@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_values_of_another_type_are_counted_by_column(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, kind: str
) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    options = ("--value", "json", "--table", kind)
    topic.produce([{"value": b'{"id": 1, "price": 2}'}])
    assert export(topic, tmp_path, *options)["misfits"] == []
    dirty = [b'{"id": 2, "price": "?"}', b'{"id": 3, "price": 4}', b'{"id": 4, "price": [5]}', b"bad"]
    topic.produce({"value": value} for value in dirty)
    status, document, output = run_export(topic, tmp_path, *options, "--max-misfits", "1")
    assert (status, document["error"]["code"]) == (3, "TOO_MANY_MISFITS")
    assert f"2 values of value.price are not int64, and in value_rest: the first is in {topic.name}-0 at offset 1" in (
        output
    )
    status, document, output = run_export(topic, tmp_path, *options, "--max-misfits", "2")
    assert (status, document["records"], document["bad"]) == (0, 3, 1)
    assert document["misfits"] == [
        {
            "topic": topic.name,
            "column": "value.price",
            "type": "int64",
            "values": 2,
            "partition": 0,
            "offset": 1,
        }
    ]
    assert "2 values of value.price are not int64" in output
    assert ", 1 record in _dead_letters, " in output
    words = ("tables", "status", str(tmp_path), "--bootstrap-server", kctl_bootstrap, "--format", "json")
    status, printed, output = run_engine("local", *words)
    (row,) = json.loads(printed)
    assert (status, row["misfits"], row["misfit_columns"]) == (0, 2, document["misfits"])
    assert "2 values of value.price are not int64" in output


@LOCAL
def test_what_can_be_known_is_reported_before_anything_is_written(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    topic.produce([{"value": b'{"id": 1, "who": null}'}])
    recursive = tmp_path / "recursive.avsc"
    fields = [{"name": "next", "type": ["null", "Node"]}]
    recursive.write_text(json.dumps({"type": "record", "name": "Node", "fields": fields}))
    folder = tmp_path / "new"
    url = ("--schema-registry", registry.url)
    for options, status, complaint in (
        (("--value", "avro"), 2, "no schema registry: use --schema-registry URL"),
        (("--value", "avro", *url), 1, f"no subject {topic.name}-value"),
        (("--value", "avro", "--schema-registry", "http://127.0.0.1:1"), 1, "cannot be used"),
        (("--value", "json", *url), 2, "--schema-registry requires"),
        (("--value", "avro", "--value-schema", "missing.avsc"), 2, "missing.avsc: No such file"),
        (("--value", "string", "--value-schema", str(recursive)), 2, "is an option of --value json, avro and protobuf"),
        (("--on-bad-record", "dead-letter"), 2, "--on-bad-record is an option of"),
        (("--key", "json", "--value", "json", "--value-schema", str(recursive)), 2, "not a JSON Schema of objects"),
    ):
        found, _, output = run_export(topic, folder, *options)
        assert (found, output.count("\n")) == (status, 1), output
        assert complaint in output
        assert not folder.exists()
    _, document, output = run_export(topic, folder, "--value", "json", "--dry-run")
    assert [(row["name"], row["type"]) for row in document["columns"]] == [
        ("value.id", "int64"),
        ("value_rest", "string"),
    ]
    assert f"column of {topic.name}: value.id int64\n" in output
    assert not folder.exists()

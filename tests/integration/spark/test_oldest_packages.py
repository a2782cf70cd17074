"""Exports with the oldest versions of the packages that the distribution allows; read with the newest ones.

The other tests have the newest versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.source_context_pb2 import SourceContext

from tests.integration.spark import test_tables
from tests.integration.spark.peer import Topic, export_words
from tests.peers import s3_server
from tests.peers.oldest_packages import run_kctl
from tests.peers.schema_registry import SchemaRegistry, schema_registry

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(900)]

MakeTopic = Callable[[str, int], Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)
KINDS = pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
FIELDS = {"id": {"type": "integer"}, "who": {"type": "string"}}
RECORD = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def kctl(*words: str) -> Any:
    """What a command with the old packages prints as JSON."""
    done = run_kctl(*words, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def export(topic: Topic, target: str, *options: str) -> dict[str, Any]:
    document: dict[str, Any] = kctl(*export_words(topic, target, *options))
    return document


def read(folder: Path, topic: Topic, kind: str) -> pa.Table:
    if kind != "parquet":
        return test_tables.read(folder, topic.name, kind)
    paths = sorted((folder / topic.name).rglob("*.parquet"))
    return pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths], promote_options="default")


def assert_equal(topic: Topic, folder: Path) -> None:
    ranges = kctl("tables", "verify", topic.name, str(folder), "--bootstrap-server", topic.bootstrap)
    assert {row["status"] for row in ranges} == {"equal"}
    assert sum(row["table_records"] for row in ranges) == len(topic.rows)


@LOCAL
@KINDS
@pytest.mark.parametrize("format_", ["json", "avro", "protobuf"])
def test_records_of_a_registry(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, registry: SchemaRegistry, kind: str, format_: str
) -> None:
    """Batches that append, which deltalake before 1.6 committed without their offsets."""
    topic = make_topic(kctl_bootstrap, 2)
    client = SchemaRegistryClient({"url": registry.url})
    serializers: dict[str, Callable[..., Any]] = {
        "json": JSONSerializer(json.dumps({"type": "object", "title": "Order", "properties": FIELDS}), client),
        "avro": AvroSerializer(client, json.dumps(RECORD)),
        "protobuf": ProtobufSerializer(SourceContext, client, {"use.deprecated.format": False}),
    }
    context = SerializationContext(topic.name, MessageField.VALUE)
    is_protobuf = format_ == "protobuf"
    values: list[Any] = [
        SourceContext(file_name=f"w{n}") if is_protobuf else {"id": n, "who": f"w{n}"} for n in range(30)
    ]
    options = ("--table", kind, "--value", format_, "--value-schema", "registry", "--schema-registry", registry.url)
    for start in (0, 10, 20):
        encoded = [serializers[format_](value, context) for value in values[start : start + 10]]
        topic.produce({"value": value, "partition": n % 2} for n, value in enumerate(encoded))
        assert export(topic, str(tmp_path), *options)["records"] == 10
        assert export(topic, str(tmp_path), *options)["records"] == 0
    assert_equal(topic, tmp_path)
    kctl("tables", "compact", str(tmp_path), "--yes")
    assert_equal(topic, tmp_path)
    with duckdb.connect() as connection:
        connection.register("exported", read(tmp_path, topic, kind))
        column = "value.file_name" if is_protobuf else "value.who"
        found = sorted(connection.sql(f"select {column} from exported").fetchall())
    assert found == sorted((f"w{n}",) for n in range(30))


@LOCAL
@KINDS
@pytest.mark.parametrize(
    "options",
    [("--partition-by", "date"), ("--value", "json", "--partition-by", "value.kind"), ("--mode", "upsert")],
    ids=["dates", "fields", "upsert"],
)
def test_partitions_and_states(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, kind: str, options: tuple[str, ...]
) -> None:
    topic = make_topic(kctl_bootstrap, 2)
    for count in (40, 20):
        topic.produce(
            {"key": b"%d" % n, "value": json.dumps({"kind": n % 3, "n": n}).encode(), "partition": n % 2}
            for n in range(count)
        )
        assert export(topic, str(tmp_path), "--table", kind, *options)["records"] == count
    if "upsert" in options:
        assert read(tmp_path, topic, kind).num_rows == 40
    else:
        assert_equal(topic, tmp_path)


@LOCAL
def test_an_object_store(kctl_bootstrap: str, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = make_topic(kctl_bootstrap, 2)
    with s3_server.s3_server() as url:
        s3_server.set_variables(monkeypatch, url)
        for kind in ("parquet", "delta"):
            target = f"s3://{s3_server.BUCKET}/{kind}"
            topic.produce({"value": b"%d" % n, "partition": n % 2} for n in range(10))
            assert export(topic, target, "--table", kind)["records"] == len(topic.rows)
            topic.produce({"value": b"%d" % n, "partition": n % 2} for n in range(10))
            assert export(topic, target, "--table", kind)["records"] == 10
            ranges = kctl("tables", "verify", topic.name, target, "--bootstrap-server", topic.bootstrap)
            assert sum(row["table_records"] for row in ranges) == len(topic.rows)

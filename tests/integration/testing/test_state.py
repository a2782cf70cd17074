"""Filling a broker, reading from it, and snapshots of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kctl.admin import AdminClient, AdminConfig, NewTopic
from kctl.client.registry import AvroSerializer, SchemaRegistry
from kctl.errors import ApiError, KctlError
from kctl.testing import KafkaBroker, SeedError
from kctl.testing.brokers.seed import parse_jsonl, parse_seed
from tests.integration.test_pytest_plugin import run_pytest
from tests.integration.testing.applications import TIMEOUT_S
from tests.rows import for_rows

DOCUMENT = """
topics:
  orders: {partitions: 2, configs: {cleanup.policy: compact}}
acls:
- {resource_type: Topic, resource_name: orders, principal: "User:alice", operation: Read, permission: Allow}
users:
- {name: alice, password: secret}
groups:
  billing: {orders: {0: 1}}
records:
  orders:
  - {key: a, value: {id: 1, names: [x, null]}, partition: 0, timestamp_ms: 1700000000000, headers: {source: web}}
  - {key: a, value: null, partition: 0}
  - {key: b, value: plain text, partition: 1}
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    properties = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
    with KafkaBroker(properties) as broker:
        yield broker


@pytest.fixture
def admin(broker: KafkaBroker) -> Iterator[AdminClient]:
    with AdminClient(AdminConfig(bootstrap_servers=broker.bootstrap_servers)) as admin:
        yield admin
        names = [topic.name for topic in admin.list_topics()]
        admin.delete_topics(names)
        admin.delete_groups([group.group_id for group in admin.list_groups()])
        admin.delete_acls(admin.list_acls())


def test_a_document_creates_all_that_it_names(broker: KafkaBroker, admin: AdminClient) -> None:
    broker.seed(DOCUMENT)
    first, tombstone, text = broker.records("orders")
    assert (first.key, json.loads(first.value), first.timestamp_ms) == (b"a", {"id": 1, "names": ["x", None]}, 1.7e12)
    assert first.headers == (("source", b"web"),)
    assert (tombstone.value, text.partition, text.value) == (None, 1, b"plain text")
    assert [acl.entry.principal for acl in admin.list_acls()] == ["User:alice"]
    assert list(admin.describe_users()) == ["alice"]
    (committed,) = admin.group_offsets(["billing"]).require()["billing"].values()
    assert committed.offset == 1
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"})
    consumer.assign([TopicPartition("orders", 0)])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.offset() == 1
    consumer.close()


def test_nothing_of_a_document_is_left_if_a_part_fails(broker: KafkaBroker, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("present")]).require()
    documents: list[dict[str, Any]] = [
        {"topics": {"new": {}, "present": {}}},
        {"topics": {"new": {}}, "acls": [ACL], "users": [{"name": "bob", "password": "x"}], "records": {"!": [{}]}},
        {"topics": {"new": {}}, "groups": {"readers": {"absent": {0: 1}}}, "acls": [ACL]},
    ]
    for document in documents:
        with pytest.raises(KctlError):
            broker.seed(document)
        assert [topic.name for topic in admin.list_topics()] == ["present"]
        assert (admin.list_acls(), admin.list_groups()) == ([], [])
        assert "bob" not in admin.describe_users()


ACL = {
    "resource_type": "Topic",
    "resource_name": "new",
    "principal": "User:bob",
    "operation": "Read",
    "permission": "Allow",
}


@for_rows(
    "text, problem",
    [
        ("topics:\n  a: {partition: 1}", "line 2: topic a has no field 'partition'; it has partitions, "),
        ("topics:\n  a: {}\n  b: {partitions: x}", "line 3: partitions of topic b must be a whole number from 1"),
        ("topics:\n  a: {}\n  a: {}", "line 3: a is given twice in topics"),
        ("topcs: {}", "line 1: the document has no field 'topcs'; it has topics, acls, users, groups, records"),
        ("records:\n  a:\n  - {value: 1}\n  - {values: 1}", "line 4: record 2 of a has no field 'values'"),
        ("topics: {a: {}}\nrecords:\n  a:\n  - {partition: 1}", "line 4: partition of record 1 of a: a has 1"),
        ("records:\n  a:\n  - {value: 2020-01-01}", "line 3: value of record 1 of a cannot be written as JSON"),
        ("acls:\n- {resource_type: Topic}", "line 2: ACL: has no resource_name"),
        ("users:\n- {name: a}", "line 2: a user has no password"),
        ("users:\n- {name: a, password: b, mechanism: PLAIN}", "line 2: mechanism of a user: SCRAM-SHA-256 or"),
        ("groups:\n  g:\n    t: {x: 1}", "line 3: 'x' of topic t of group g is no partition"),
        ("a: [", "line 2"),
        ("- a\n", "line 1: the document must be a mapping"),
    ],
)
def test_a_wrong_document_names_line_and_field(text: str, problem: str) -> None:
    with pytest.raises(SeedError) as refusal:
        parse_seed(text, "seed.yaml")
    assert f"seed.yaml, {problem}" in str(refusal.value)


def test_aliases_do_not_multiply_a_small_document() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(SeedError, match="more than 1000000 values"):
        parse_seed("records:\n  t:\n  - value: {" + ",\n    ".join(lines) + "}\n", "seed.yaml")


def test_a_broker_is_filled_with_the_output_of_consume(broker: KafkaBroker, admin: AdminClient, tmp_path: Path) -> None:
    lines = [
        {"topic": "copied", "partition": 1, "offset": 7, "key": "k", "value": "v", "headers": []},
        {"topic": "copied", "partition": 0, "offset": 3, "key": None, "value": "/w==", "value_encoding": "base64"},
    ]
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    broker.seed(path)
    assert [(record.partition, record.key, record.value) for record in broker.records("copied")] == [
        (0, None, b"\xff"),
        (1, b"k", b"v"),
    ]
    with pytest.raises(SeedError, match=r"records\.jsonl, line 2: "):
        parse_jsonl(b'{"topic": "t", "value": "v"}\n{"value": 1', "records.jsonl")


def test_records_are_compared_and_the_difference_is_named(broker: KafkaBroker, admin: AdminClient) -> None:
    broker.seed(
        {"topics": {"compared": {}}, "records": {"compared": [{"key": "a", "value": {"n": n}} for n in (1, 2)]}}
    )
    broker.assert_records("compared", [{"n": 1}, {"n": 2}], value="json")
    broker.assert_records("compared", [(b"a", '{"n": 1}'), (b"a", '{"n": 2}')], value="text")
    differences: list[tuple[list[Any], str]] = [
        ([{"n": 2}, {"n": 1}], "record 0 is {'n': 1}, not {'n': 2}"),
        ([{"n": 1}], "{'n': 2} was not expected"),
        ([{"n": 1}, {"n": 2}, {"n": 3}], "{'n': 3} is missing"),
    ]
    for expected, problem in differences:
        with pytest.raises(AssertionError) as difference:
            broker.assert_records("compared", expected, value="json", timeout_s=0.1)
        assert problem in str(difference.value)
    with pytest.raises(ValueError, match="value must be one of bytes, text, json, avro"):
        broker.records("compared", value="xml")
    with pytest.raises(ValueError, match="avro needs a registry: start the broker with schema_registry=True"):
        broker.records("compared", value="avro")
    with pytest.raises(ApiError):
        broker.records("absent")


def test_a_test_waits_until_a_group_has_read_everything(broker: KafkaBroker, admin: AdminClient) -> None:
    broker.seed({"topics": {"read": {}}, "records": {"read": [{"value": "1"}]}, "groups": {"slow": {"read": {0: 0}}}})
    with pytest.raises(TimeoutError, match="group slow in 0 s: 1 record of read-0"):
        broker.wait_until_consumed("slow", timeout_s=0)
    with pytest.raises(TimeoutError, match="it has not committed anything"):
        broker.wait_until_consumed("unknown", timeout_s=0)
    admin.alter_group_offsets("slow", dict.fromkeys(admin.group_offsets(["slow"]).require()["slow"], 1)).require()
    broker.wait_until_consumed("slow")


def test_a_running_broker_is_restored_as_often_as_needed(broker: KafkaBroker, admin: AdminClient) -> None:
    broker.seed({"topics": {"kept": {"configs": {"segment.bytes": "1000"}}}})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def produce(value: bytes) -> None:
        producer.produce("kept", value * 400)
        assert producer.flush(TIMEOUT_S) == 0

    for value in (b"1", b"2", b"3", b"4"):
        produce(value)
    assert len(list((broker.data_dir / "logs" / "kept-0").glob("*.log"))) > 1
    address = broker.bootstrap_servers
    snapshot = broker.snapshot()
    for value in (b"5", b"6"):
        produce(value)
        admin.create_topics([NewTopic("later")])
        broker.restore(snapshot)
        assert broker.bootstrap_servers == address
        broker.assert_records("kept", [value * 400 for value in (b"1", b"2", b"3", b"4")])
        assert [topic.name for topic in admin.list_topics()] == ["kept"]
    # A broker that was restored runs in another way, and can be copied and restored again.
    later = broker.snapshot()
    produce(b"7")
    broker.restore(later)
    assert broker.bootstrap_servers == address
    broker.assert_records("kept", [value * 400 for value in (b"1", b"2", b"3", b"4")])
    broker.pause()
    broker.snapshot().discard()
    broker.resume()
    later.discard()
    snapshot.discard()


@pytest.mark.long
def test_values_with_a_schema_are_read_on_brokers_of_a_pool(tmp_path: Path) -> None:
    schema = """{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}"""
    with KafkaBroker.pool(1, schema_registry=True) as pool, pool.broker() as broker:
        url = broker.schema_registry_url
        assert url is not None
        serializer = AvroSerializer[dict[str, int]](SchemaRegistry(url), schema)
        broker.seed({"topics": {"orders": {}}})
        snapshot = broker.snapshot()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in (1, 2):
            producer.produce("orders", serializer.serialize("orders", {"id": number}))
        producer.produce("orders", None)
        assert producer.flush(TIMEOUT_S) == 0
        broker.assert_records("orders", [{"id": 1}, {"id": 2}, None], value="avro")
        with pytest.raises(
            ValueError, match="the value of orders-0 at offset 0 is no protobuf: schema 1 is of type AVRO"
        ):
            broker.records("orders", value="protobuf")
        broker.restore(snapshot)
        assert broker.schema_registry_url == url
        assert broker.records("orders") == []
        assert SchemaRegistry(url).subjects() == []
        snapshot.discard()


def test_a_broker_with_data_elsewhere_has_no_snapshots(tmp_path: Path) -> None:
    broker = KafkaBroker({"log.dirs": str(tmp_path / "logs")}, data_dir=tmp_path / "data")
    with pytest.raises(ValueError, match=r"log\.dirs has data outside"):
        broker.snapshot()


def test_the_report_of_a_failed_test_has_topics_groups_and_log(tmp_path: Path) -> None:
    finished = run_pytest(
        tmp_path,
        """
def test_with_the_fixture(kafka_broker):
    kafka_broker.seed({"topics": {"b": {}}, "records": {"b": [{"value": "1"}]}, "groups": {"readers": {"b": {0: 0}}}})
    assert kafka_broker.records("b") == []

def test_passes(kafka_broker):
    pass
""",
    )
    assert finished.returncode == 1
    assert "1 failed, 1 passed" in finished.stdout
    assert "b-0: end offset 1" in finished.stdout
    assert "group readers: b-0 0" in finished.stdout
    assert finished.stdout.count("topics and groups") == 1
    assert " INFO kctl.server." in finished.stdout.partition("log of this test")[2]

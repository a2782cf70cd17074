"""Our codecs against Apache Kafka's own generated classes, for every version of every message.

What we encode, Kafka decodes to the same values, and encodes to the same bytes again.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kctl.protocol.codec import encode_bytes
from kctl.protocol.message import Field, definition_of
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, run_java_tool
from tests.property.protocol_messages import MESSAGES, random_message

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("KafkaCodec.java")
SEED = 28
MESSAGES_PER_VERSION = 6

MISSING = {
    OLDEST_JUDGE: {
        *("DescribeTransactionsRequest", "DescribeTransactionsResponse"),
        *("ListTransactionsRequest", "ListTransactionsResponse"),
        *("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    },
    LAST_WITH_ZOOKEEPER: set(),
}
"""What that Kafka does not know, or not in all of our versions."""


RENAMED: dict[str, dict[str, str]] = {
    "AddPartitionsToTxnRequest": {
        "v3and_below_transactional_id": "transactional_id",
        "v3and_below_producer_id": "producer_id",
        "v3and_below_producer_epoch": "producer_epoch",
    },
    "AddPartitionsToTxnResponse": {"partition_error_code": "error_code"},
    "AlterPartitionRequest": {"current_isr_version": "partition_epoch", "name": "topic_name"},
    "AlterPartitionResponse": {"current_isr_version": "partition_epoch", "name": "topic_name"},
    "DescribeLogDirsRequest": {"partition_index": "partitions"},
    "ElectLeadersRequest": {"partition_id": "partitions"},
    "FetchResponse": {"partition": "partition_index", "record_set": "records"},
    "LeaderAndIsrRequest": {"zk_version": "partition_epoch"},
    "OffsetCommitRequest": {"generation_id_or_member_epoch": "generation_id"},
    "UpdateMetadataRequest": {"v0host": "v0_host", "v0port": "v0_port"},
}
"""Fields that one of the two Kafkas calls otherwise; else all names are the same in snake case."""


def kafka_class(cls: type, kafka: str) -> str:
    """Where Kafka keeps its class for that message."""
    name = cls.__name__
    if cls.__module__.startswith("kctl.records"):
        if kafka == OLDEST_JUDGE:
            return f"kafka.internals.generated.{name}"
        part = "transaction" if name.startswith("Transaction") else "group"
        return f"org.apache.kafka.coordinator.{part}.generated.{name}"
    if kafka == OLDEST_JUDGE:
        name = name.replace("AlterPartitionRequest", "AlterIsrRequest").replace(
            "AlterPartitionResponse", "AlterIsrResponse"
        )
    return f"org.apache.kafka.common.message.{name}{'Data' if definition_of(cls).key is not None else ''}"


def leaves(message: Any, version: int) -> list[tuple[str, Any]]:
    """(field, value) in order, as Kafka writes JSON: records empty, no tagged fields that have their default."""
    found = []
    for field in definition_of(type(message)).fields:
        value = getattr(message, field.name)
        if version in field.versions and (field.tag is None or value != field.default):
            found += _leaves(field, value, version)
    return found


def _leaves(field: Field, value: Any, version: int) -> list[tuple[str, Any]]:
    match value:
        case list():
            return [leaf for item in value for leaf in _leaves(field, item, version)]
        case UUID():
            return [(field.name, base64.urlsafe_b64encode(value.bytes).decode().rstrip("="))]
        case bytes():
            return [(field.name, "" if field.kind == "records" else base64.b64encode(value).decode())]
        case None | bool() | int() | float() | str():
            return [(field.name, value)]
    return leaves(value, version)


def json_leaves(renamed: dict[str, str], name: str, value: Any) -> list[tuple[str, Any]]:
    """(field, value) of a JSON document in its order; names in our spelling."""
    if isinstance(value, dict):
        return [leaf for inner, item in value.items() for leaf in json_leaves(renamed, inner, item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in json_leaves(renamed, name, item)]
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return [(renamed.get(snake, snake), value)]


@pytest.mark.parametrize("kafka", [OLDEST_JUDGE, LAST_WITH_ZOOKEEPER])
def test_kafkas_own_classes_read_and_write_the_same(kafka: str) -> None:
    random = Random(SEED)
    asked = [
        (cls, version, random_message(cls, version, random))
        for cls, version in MESSAGES
        for _ in range(MESSAGES_PER_VERSION)
    ]
    lines = [
        f"{kafka_class(cls, kafka)} {version} {encode_bytes(message, version).hex()}" for cls, version, message in asked
    ]
    answered = run_java_tool(kafka, str(PROGRAM), [], stdin="\n".join(lines), timeout_s=300)
    assert answered.returncode == 0, answered.stderr
    answers = answered.stdout.splitlines()
    assert len(answers) == len(asked)
    missing = set()
    for (cls, version, message), answer in zip(asked, answers, strict=True):
        if answer.startswith("? no such"):
            missing.add(cls.__name__)
            continue
        again, _, document = answer.partition("\t")
        assert again == encode_bytes(message, version).hex(), (cls, version, message)
        if document:
            read = json_leaves(RENAMED.get(cls.__name__, {}), "", json.loads(document))
            assert read == leaves(message, version), (cls, version)
    assert missing == MISSING[kafka]

"""Our codecs against Apache Kafka's own generated classes, for every version of every message.

What we encode, Kafka decodes to the same values, and encodes to the same bytes again.  Records that only newer brokers
write are held against Kafka 4; what the other two do not answer about Kafka 4's groups is held against bytes of Kafka 4
in tests/golden.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from kctl.protocol.codec import encode_bytes
from kctl.protocol.definition import definition_of
from kctl.records.internal import metadata_records, newer_group_records
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, TOOLS_FOR_NEWEST, run_java_tool, why_not
from tests.property.protocol_json import json_leaves, leaves
from tests.property.protocol_messages import KAFKA_4_RECORDS, MESSAGES, random_message

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("KafkaCodec.java")
SEED = 28
MESSAGES_PER_VERSION = 6

SINCE_KAFKA_4_1 = {
    f"{name}{kind}"
    for name in (
        *("AlterPartitionReassignments", "DescribeCluster"),
        *("ShareGroupDescribe", "StreamsGroupDescribe", "StreamsGroupHeartbeat"),
        *("DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets"),
    )
    for kind in ("Request", "Response")
}
HAND_WRITTEN = {"StickyUserData", "CooperativeStickyUserData"}
"""Kafka's assignors have no generated classes for it."""
GROUPS_OF_KAFKA_4 = {
    f"{name}{kind}"
    for name in (
        *("ConsumerGroupDescribe", "ConsumerGroupHeartbeat"),
        *("ShareAcknowledge", "ShareFetch", "ShareGroupHeartbeat"),
    )
    for kind in ("Request", "Response")
}
SHARE_STATE_REQUESTS = {
    f"{name}ShareGroupState{rest}{kind}"
    for name, rest in (("Initialize", ""), ("Read", ""), ("Write", ""), ("Delete", ""), ("Read", "Summary"))
    for kind in ("Request", "Response")
}
TELEMETRY = {
    f"{name}{kind}" for name in ("GetTelemetrySubscriptions", "PushTelemetry") for kind in ("Request", "Response")
}
SINCE_KAFKA_4 = {
    "Produce": 12,
    "Fetch": 18,
    "ListOffsets": 10,
    "Metadata": 13,
    "EndTxn": 5,
    "WriteTxnMarkers": 2,
    "TxnOffsetCommit": 5,
    "DescribeLogDirs": 5,
    "UpdateFeatures": 2,
    "ListTransactions": 2,
}
"""The first version of each API that the last Kafka with ZooKeeper lacks."""
NEWER_VERSIONS = {f"{name}{kind}": since for name, since in SINCE_KAFKA_4.items() for kind in ("Request", "Response")}
MISSING = {
    OLDEST_JUDGE: {
        *NEWER_VERSIONS,
        *(
            f"{name}{kind}"
            for name in ("JoinGroup", "LeaveGroup", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn")
            for kind in ("Request", "Response")
        ),
        *TELEMETRY,
        *("DescribeTransactionsRequest", "DescribeTransactionsResponse"),
        *("ListTransactionsRequest", "ListTransactionsResponse"),
        *(
            f"{name}{kind}"
            for name in (
                "ApiVersions",
                "DescribeGroups",
                "DescribeLogDirs",
                "DescribeQuorum",
                "FindCoordinator",
                "ListGroups",
                "ListOffsets",
                "Metadata",
                "OffsetCommit",
                "OffsetFetch",
                "UpdateFeatures",
            )
            for kind in ("Request", "Response")
        ),
        *GROUPS_OF_KAFKA_4,
        *SHARE_STATE_REQUESTS,
        *("DescribeTopicPartitionsRequest", "DescribeTopicPartitionsResponse"),
        *SINCE_KAFKA_4_1,
        *("ListConfigResourcesRequest", "ListConfigResourcesResponse"),
        *("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
        *("OffsetCommitValue", "GroupMetadataValue", "TransactionLogValue"),
        *HAND_WRITTEN,
    },
    LAST_WITH_ZOOKEEPER: {
        *NEWER_VERSIONS,
        *GROUPS_OF_KAFKA_4,
        *("ReadShareGroupStateSummaryRequest", "WriteShareGroupStateRequest", "WriteShareGroupStateResponse"),
        *("ListConfigResourcesRequest", "ListConfigResourcesResponse"),
        *("DescribeGroupsRequest", "DescribeGroupsResponse"),
        *(f"Offset{name}{kind}" for name in ("Commit", "Fetch") for kind in ("Request", "Response")),
        *SINCE_KAFKA_4_1,
        *HAND_WRITTEN,
    },
    # Kafka has a class for each of its kinds of keys; the record came with 4.4.
    TOOLS_FOR_NEWEST: {"ConsumerGroupKey", "ConsumerGroupMemberKey", "UnregisterControllerRecord"},
}
"""What that version of Kafka does not support, or not in all of our versions."""

DRAFTS = {LAST_WITH_ZOOKEEPER: {"ReadShareGroupStateSummaryResponse"}}
"""Messages whose versions had other fields in that version of Kafka, which did not enable them."""
UNKNOWN_FIELDS = {
    OLDEST_JUDGE: {},
    LAST_WITH_ZOOKEEPER: {
        "OffsetCommitValue": {"topic_id"},
        "TransactionLogValue": {
            *("previous_producer_id", "next_producer_id", "next_producer_epoch", "client_transaction_version"),
        },
    },
    TOOLS_FOR_NEWEST: {},
}
"""Tagged fields that came later: that Kafka carries their bytes along without a name."""


SHARE_STATE = {cls for kind in newer_group_records.SHARE_GROUP_STATE_KINDS.values() for cls in kind}
PACKAGES: dict[str, set[type]] = {
    "coordinator.share.generated": SHARE_STATE,
    "common.metadata": set(metadata_records.CLUSTER_METADATA_TYPES.values()),
    "common.message": {cls for _, cls in metadata_records.TYPES.values()},
    "server.log.remote.metadata.storage.generated": set(metadata_records.REMOTE_LOG_METADATA_TYPES.values()),
    "coordinator.group.generated": set(KAFKA_4_RECORDS),
}
"""Where Kafka 4 keeps these records; the last one has the others."""


def kafka_class(cls: type, kafka: str) -> str:
    """Where Kafka keeps its class for that message."""
    name = cls.__name__
    if kafka == TOOLS_FOR_NEWEST and cls in KAFKA_4_RECORDS:
        package = next(package for package, classes in PACKAGES.items() if cls in classes)
        return f"org.apache.kafka.{package}.{name}"
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


def is_newer(cls: type, version: int) -> bool:
    """Whether the last Kafka with ZooKeeper lacks this version of a request or response."""
    return version >= NEWER_VERSIONS.get(cls.__name__, version + 1)


@pytest.mark.parametrize("kafka", [OLDEST_JUDGE, LAST_WITH_ZOOKEEPER, TOOLS_FOR_NEWEST])
def test_kafkas_java_classes_read_and_write_the_same_bytes(kafka: str) -> None:
    if reason := why_not():
        pytest.skip(reason)
    random = Random(SEED)
    requested = [
        (cls, version, random_message(cls, version, random))
        for cls, version in MESSAGES
        if (
            cls in KAFKA_4_RECORDS or is_newer(cls, version)
            if kafka == TOOLS_FOR_NEWEST
            else cls not in KAFKA_4_RECORDS
        )
        if cls.__name__ not in DRAFTS.get(kafka, ())
        for _ in range(MESSAGES_PER_VERSION)
    ]
    lines = [
        f"{kafka_class(cls, kafka)} {version} {encode_bytes(message, version).hex()}"
        for cls, version, message in requested
    ]
    completed = run_java_tool(kafka, str(PROGRAM), [], stdin="\n".join(lines), timeout_s=300)
    assert completed.returncode == 0, completed.stderr
    responses = completed.stdout.splitlines()
    assert len(responses) == len(requested)
    missing = set()
    for (cls, version, message), response in zip(requested, responses, strict=True):
        if response.startswith("? no such"):
            missing.add(cls.__name__)
            continue
        again, _, document = response.partition("\t")
        assert again == encode_bytes(message, version).hex(), (cls, version, message)
        if document:
            unknown = UNKNOWN_FIELDS[kafka].get(cls.__name__, set())
            known = [leaf for leaf in leaves(message, version) if leaf[0] not in unknown]
            assert json_leaves(cls, json.loads(document)) == known, (cls, version)
    assert missing == MISSING[kafka]

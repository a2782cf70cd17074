"""kctl consume --formatter; tests/integration compares the texts with those of Kafka's tools."""

from __future__ import annotations

from kctl.commands.frame.exit_status import ExitStatus
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.topics import (
    GroupMetadataValue,
    OffsetCommitValue,
    PartitionsSchema,
    TransactionLogValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
    encode_transaction_key,
    encode_transaction_value,
)
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

OFFSET = OffsetCommitValue(offset=3, leader_epoch=1, metadata="m\u001f", commit_timestamp=5)
GROUP = GroupMetadataValue(
    protocol_type="consumer", generation=2, protocol=None, leader=None, current_state_timestamp=9, members=[]
)
TRANSACTION = TransactionLogValue(
    producer_id=4,
    producer_epoch=1,
    transaction_timeout_ms=60,
    transaction_status=1,
    transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[1, 0])],
    transaction_last_update_timestamp_ms=8,
    transaction_start_timestamp_ms=7,
)


def with_records(cluster: FakeCluster, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    (partition,) = cluster.create(topic, leaders=1)
    partition.append(build_batch([Record(0, 1_000, key, value) for key, value in records]))


def offsets(cluster: FakeCluster) -> None:
    """Two commits, a tombstone, a group, a record of an unknown kind, and one without a key."""
    key = encode_offset_commit_key("g", "orders", 0)
    old = OffsetCommitValue(offset=2, leader_epoch=-1, metadata="", commit_timestamp=1, expire_timestamp=6)
    with_records(
        cluster,
        "__consumer_offsets",
        (key, encode_offset_commit_value(OFFSET)),
        (key, encode_offset_commit_value(old)),
        (key, None),
        (encode_group_metadata_key("g"), encode_group_metadata_value(GROUP)),
        (b"\x00\x63future", b"x"),
        (None, b"x"),
    )


def test_offsets_as_lines_of_json(kctl: Kctl, cluster: FakeCluster) -> None:
    offsets(cluster)
    first, *_, last = kctl("consume __consumer_offsets --formatter offsets --format json").document
    assert first["key"] == {"type": "offset_commit", "group": "g", "topic": "orders", "partition": 0}
    assert (first["offset"], first["value"]["offset"], last["offset"], last["value"]) == (0, 3, 2, None)
    ran = kctl("consume __consumer_offsets --formatter group-metadata --header --format plain")
    assert (ran.document["key"], ran.document["value"]["generation"]) == ({"type": "group_metadata", "group": "g"}, 2)
    assert len(kctl("consume __consumer_offsets --formatter offsets -n 2").out.splitlines()) == 2


def test_offsets_formatter_prints_kafkas_format(kctl: Kctl, cluster: FakeCluster) -> None:
    offsets(cluster)
    reported = "OffsetAndMetadata(offset={}, leaderEpoch={}, metadata={}, commitTimestamp={}, expireTimestamp={})"
    assert kctl("consume __consumer_offsets --formatter offsets --compat kafka-2.8").out == (
        "[g,orders,0]::"
        + reported.format(3, "Optional[1]", OFFSET.metadata, 5, "None")
        + "\n"
        + f"[g,orders,0]::{reported.format(2, 'Optional.empty', '', 1, 'Some(6)')}\n"
        + "[g,orders,0]::NULL\n"
    )
    key = '{"key":{"type":1,"data":{"group":"g","topic":"orders","partition":0}},"value":'
    ran = kctl("consume __consumer_offsets --formatter offsets --compat kafka-4")
    assert kctl("consume __consumer_offsets --formatter offsets --compat kafka-3").out == ran.out.replace(
        '"type":1', '"version":1'
    )
    assert ran.out == (
        key
        + '{"version":3,"data":{"offset":3,"leaderEpoch":1,"metadata":"m\\u001F","commitTimestamp":5}}}'
        + key
        + '{"version":1,"data":{"offset":2,"metadata":"","commitTimestamp":1,"expireTimestamp":6}}}'
        + key
        + "null}"
    )
    assert kctl("consume __consumer_offsets --formatter group-metadata --compat kafka-2.8").out == (
        "g::GroupMetadata(groupId=g, generation=2, protocolType=Some(consumer), currentState=Empty, "
        "members=HashMap())\n"
    )


def test_transactions_formatter_skips_invalid_values(kctl: Kctl, cluster: FakeCluster) -> None:
    with_records(
        cluster,
        "__transaction_state",
        (encode_transaction_key("tx"), encode_transaction_value(TRANSACTION)),
        (encode_transaction_key("tx"), b"\x00\x00short"),
        (encode_transaction_key("tx"), None),
    )
    ran = kctl("consume __transaction_state --formatter transactions")
    assert [line.count("Ongoing") for line in ran.out.splitlines()] == [1, 0]
    assert "__transaction_state-0: the record at offset 1 does not decode" in ran.err
    assert kctl("consume __transaction_state --formatter transactions --compat kafka-2.8").out == (
        "tx::TransactionMetadata(transactionalId=tx, producerId=4, producerEpoch=1, txnTimeoutMs=60, state=Ongoing, "
        "pendingState=None, topicPartitions=HashSet(orders-0, orders-1), txnStartTimestamp=7, "
        "txnLastUpdateTimestamp=8)\ntx::NULL\n"
    )


def test_transactions_formatter_prints_json_for_kafka_4(kctl: Kctl, cluster: FakeCluster) -> None:
    """Bytes and text have string classes of their own there."""
    plain = "0001000000000000000400010000003c0102076f7264657273030000000100000000000000000000000008000000000000000700"
    full = (
        "0001000000000000000400010000003c0102076f7264657273030000000100000000000000000000000008000000000000000704"
        "00080000000000000005010800000000000000060202000203020009"
    )
    key = encode_transaction_key("tx")
    with_records(cluster, "__transaction_state", (key, bytes.fromhex(plain)), (key, bytes.fromhex(full)))
    front = '{"key":{"type":0,"data":{"transactionalId":"tx"}},"value":{"version":1,"data":{"producerId":4,'
    back = (
        '"transactionTimeoutMs":60,"transactionStatus":1,"transactionPartitions":[{"topic":"orders","partitionIds":[1,0]}],'
        '"transactionLastUpdateTimestampMs":8,"transactionStartTimestampMs":7'
    )
    ids, epochs = '"previousProducerId":5,"nextProducerId":6,', '"producerEpoch":1,"nextProducerEpoch":9,'
    ran = kctl("consume __transaction_state --formatter transactions --compat kafka-4")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == (
        f'{front}"producerEpoch":1,{back}}}}}}}{front}{ids}{epochs}{back},"clientTransactionVersion":2}}}}}}'
    )
    assert kctl("consume __transaction_state --formatter transactions").out.count("Ongoing") == 2


def test_compat_needs_a_formatter(kctl: Kctl) -> None:
    assert kctl("consume orders --compat kafka-4").status == ExitStatus.USAGE

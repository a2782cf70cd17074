"""Transactions of confluent-kafka (librdkafka): commit, abort, isolation and fencing."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.integration.clients.confluent import Confluent
from tests.integration.transactions.writing import (
    TIMEOUT_S,
    is_fenced,
    offset_of,
    producer,
    read,
    reader_of,
    transact,
    write,
)
from tests.peers.markers import wait_for_markers
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

FIRST = [b"first-%02d" % number for number in range(20)]
SECOND = [b"second-%02d" % number for number in range(20)]


def test_records_are_visible_after_the_commit(bootstrap: str, topic: str) -> None:
    made = producer(bootstrap, topic)
    made.begin_transaction()
    write(made, topic, FIRST)
    assert read(bootstrap, topic) == []
    assert read(bootstrap, topic, committed=False) == FIRST
    made.commit_transaction(TIMEOUT_S)
    wait_for_markers(bootstrap, topic)
    assert read(bootstrap, topic) == FIRST


def test_aborted_records_are_visible_to_read_uncommitted_only(bootstrap: str, topic: str) -> None:
    made = producer(bootstrap, topic)
    made.begin_transaction()
    write(made, topic, FIRST)
    made.abort_transaction(TIMEOUT_S)
    transact(made, topic, SECOND)
    wait_for_markers(bootstrap, topic)
    assert read(bootstrap, topic) == SECOND
    assert read(bootstrap, topic, committed=False) == FIRST + SECOND


def test_open_transaction_holds_back_read_committed_consumers(bootstrap: str, topic: str) -> None:
    waiting = producer(bootstrap, f"{topic}-waiting")
    waiting.begin_transaction()
    write(waiting, topic, FIRST)
    transact(producer(bootstrap, f"{topic}-quick"), topic, SECOND)
    assert read(bootstrap, topic) == []
    waiting.commit_transaction(TIMEOUT_S)
    wait_for_markers(bootstrap, topic)
    assert read(bootstrap, topic) == FIRST + SECOND


def test_many_transactions_are_committed_in_a_row(bootstrap: str, topic: str) -> None:
    made = producer(bootstrap, topic)
    kept = []
    for number in range(30):
        values = [b"%02d-%d" % (number, index) for index in range(5)]
        made.begin_transaction()
        write(made, topic, values)
        if number % 3:
            made.commit_transaction(TIMEOUT_S)
            kept += values
        else:
            made.abort_transaction(TIMEOUT_S)
    wait_for_markers(bootstrap, topic)
    assert read(bootstrap, topic) == kept


def test_offsets_are_committed_with_the_records_or_not_at_all(bootstrap: str, topic: str) -> None:
    group, source = f"group-of-{topic}", f"source-of-{topic}"
    Confluent(bootstrap).create_topic(source, 1)
    Confluent(bootstrap).produce(source, [(b"k", value) for value in FIRST])
    consumer = reader_of(bootstrap, group, source, len(FIRST))
    made = producer(bootstrap, topic)

    made.begin_transaction()
    write(made, topic, FIRST)
    made.send_offsets_to_transaction([TopicPartition(source, 0, 7)], consumer.consumer_group_metadata(), TIMEOUT_S)
    made.abort_transaction(TIMEOUT_S)
    assert offset_of(bootstrap, group, source) < 0

    made.begin_transaction()
    write(made, topic, SECOND)
    positions = consumer.position(consumer.assignment())
    made.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
    with pytest.raises(KafkaException) as undecided:
        offset_of(bootstrap, group, source, timeout_s=1)
    assert undecided.value.args[0].code() == KafkaError._TIMED_OUT, "readers of offsets wait for the decision (KIP-447)"
    made.commit_transaction(TIMEOUT_S)
    assert offset_of(bootstrap, group, source) == len(FIRST)
    wait_for_markers(bootstrap, topic)
    assert read(bootstrap, topic) == SECOND
    consumer.close()


def test_member_that_left_its_group_cannot_commit_offsets(bootstrap: str, topic: str) -> None:
    group = f"group-of-{topic}"
    Confluent(bootstrap).produce(topic, [(b"k", value) for value in FIRST])
    consumer = reader_of(bootstrap, group, topic, len(FIRST))
    membership = consumer.consumer_group_metadata()
    consumer.close()
    made = producer(bootstrap, topic)
    made.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        made.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], membership, TIMEOUT_S)
    assert refused.value.args[0].code() in {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}
    made.abort_transaction(TIMEOUT_S)
    assert offset_of(bootstrap, group, topic) < 0


def test_new_instance_fences_the_old_one_and_aborts_its_transaction(bootstrap: str, topic: str) -> None:
    old = producer(bootstrap, topic)
    old.begin_transaction()
    write(old, topic, FIRST)
    new = producer(bootstrap, topic)
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(TIMEOUT_S)
    assert is_fenced(fenced.value)
    transact(new, topic, SECOND)
    wait_for_markers(bootstrap, topic)
    assert read(bootstrap, topic) == SECOND


def test_fenced_instance_cannot_begin_a_transaction(bootstrap: str, topic: str) -> None:
    old = producer(bootstrap, topic)
    transact(old, topic, FIRST)
    new = producer(bootstrap, topic)
    old.begin_transaction()
    old.produce(topic, b"of a zombie")
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(TIMEOUT_S)
    assert is_fenced(fenced.value)
    transact(new, topic, SECOND)
    assert read(bootstrap, topic, committed=False) == FIRST + SECOND


def test_timed_out_transaction_is_aborted_and_its_producer_fenced(bootstrap: str, topic: str) -> None:
    slow = producer(bootstrap, topic, timeout_ms=5_000)  # Until then, its records must be in the log.
    slow.begin_transaction()
    write(slow, topic, FIRST)
    other = producer(bootstrap, f"{topic}-other")
    transact(other, topic, SECOND)
    wait_until(
        lambda: read(bootstrap, topic) == SECOND,
        what="readers that the open transaction no longer holds up",
        timeout_s=TIMEOUT_S,
    )
    with pytest.raises(KafkaException) as fenced:
        slow.commit_transaction(TIMEOUT_S)
    assert is_fenced(fenced.value)
    assert read(bootstrap, topic) == SECOND


@pytest.mark.parametrize("timeout_ms", [900_001, 2_000_000])
def test_timeout_above_the_brokers_maximum_is_refused(bootstrap: str, name: str, timeout_ms: int) -> None:
    with pytest.raises(KafkaException) as refused:
        producer(bootstrap, name, timeout_ms=timeout_ms)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT

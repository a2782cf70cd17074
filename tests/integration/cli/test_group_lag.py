"""`kctl groups lag` against kctl's and Apache Kafka's brokers."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from tests.integration.cli.conftest import Kctl
from tests.peers import probe

TIMEOUT_S = 60


def produce(bootstrap: str, topic: str, partition: int, times_ms: list[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for time_ms in times_ms:
        producer.produce(topic, b"value", partition=partition, timestamp=time_ms)
    assert producer.flush(TIMEOUT_S) == 0


def commit(bootstrap: str, group: str, *positions: Position) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=list(positions), asynchronous=False)
    finally:
        consumer.close()


def lag_of(kctl: Kctl, group: str, *more: str) -> list[dict[str, Any]]:
    ran = kctl(" ".join((f"groups lag {group} --by partition --sort name --format json", *more)))
    rows: list[dict[str, Any]] = ran.document
    assert {row["error"] for row in rows} <= {None}, ran
    return rows


def test_time_lag_is_the_age_of_the_record_at_the_commit(kctl: Kctl, bootstrap: str, topic: str) -> None:
    start_ms = round(time.time() * 1000) - 600_000
    produce(bootstrap, topic, 0, [start_ms + 1000 * number for number in range(10)])
    commit(bootstrap, topic, Position(topic, 0, 4), Position(topic, 1, 0))
    before_ms = time.time() * 1000
    behind, empty = lag_of(kctl, topic)
    after_ms = time.time() * 1000
    assert (behind["current_offset"], behind["log_end_offset"], behind["lag"]) == (4, 10, 6)
    assert before_ms - 1 <= behind["time_lag_ms"] + start_ms + 4000 <= after_ms + 1
    assert 0 <= behind["commit_age_ms"] <= TIMEOUT_S * 1000
    assert behind["produced_per_s"] == 0
    assert (empty["lag"], empty["time_lag_ms"], empty["verdict"]) == (0, 0, "OK")


def test_rates_are_read_from_the_history_of_commits(kctl: Kctl, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 0, [round(time.time() * 1000)] * 100)
    for offset in (0, 30, 60, 20):
        commit(bootstrap, topic, Position(topic, 0, offset))
    probe.wait_until(
        lambda: lag_of(kctl, topic)[0]["consumed_per_s"] is not None, what="a second of history", timeout_s=TIMEOUT_S
    )
    (row,) = lag_of(kctl, topic)
    assert row["consumed_per_s"] > 0
    assert row["produced_per_s"] > 0
    assert row["verdict"] == "REWOUND"


def test_markers_and_aborted_records_are_not_left_to_read(kctl: Kctl, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for count, commits in ((3, True), (5, False)):
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, b"value", partition=0)
        producer.flush(TIMEOUT_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(TIMEOUT_S)
    # Three records, a marker, five aborted records, and a marker: what librdkafka commits is the end of the records.
    commit(bootstrap, topic, Position(topic, 0, 3), Position(topic, 1, 0))
    (row, _) = lag_of(kctl, topic)
    assert (row["current_offset"], row["log_end_offset"]) == (3, 10)
    assert (row["lag"], row["time_lag_ms"], row["verdict"]) == (0, 0, "OK")

    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    producer.flush(TIMEOUT_S)
    (row, _) = lag_of(kctl, topic)
    assert (row["lag"], row["log_end_offset"]) == (1, 11)
    (row, _) = lag_of(kctl, topic, "--isolation-level read_committed")
    assert (row["lag"], row["log_end_offset"]) == (0, 10)
    producer.abort_transaction(TIMEOUT_S)


def test_deleted_records_and_offsets_beyond_the_end_are_losses(kctl: Kctl, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 0, [-1] * 10)
    commit(bootstrap, topic, Position(topic, 0, 4), Position(topic, 1, 7))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([Position(topic, 0, 6)]).values():
        deleted.result(TIMEOUT_S)
    deleted_row, beyond = lag_of(kctl, topic)
    assert (deleted_row["lag"], deleted_row["lost"], deleted_row["verdict"]) == (4, 2, "LOSING")
    assert (beyond["lag"], beyond["verdict"]) == (None, "LOSING")
    assert kctl(f"groups lag {topic} --check").status == 3

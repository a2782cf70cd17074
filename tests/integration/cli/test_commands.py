"""Every command has the same result on kctl's broker and on Apache Kafka's."""

from __future__ import annotations

import hashlib

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaProducer

from tests.integration.cli.conftest import Kctl
from tests.integration.cli.group_readers import TIMEOUT_S
from tests.peers import probe
from tests.peers.markers import wait_for_markers


def test_topics_are_created_described_altered_and_deleted(kctl: Kctl) -> None:
    created = kctl("topics create birth --partitions 2 --set retention.ms=1000 --format json")
    assert (created.status, created.document[0]["status"]) == (0, "created")
    again = kctl("topics create birth")
    assert (again.status, again.rows[0][4]) == (1, "TOPIC_ALREADY_EXISTS")
    assert kctl("topics create birth --if-not-exists").status == 0
    assert "birth" in [row[0] for row in kctl("topics list").rows]

    (item,) = kctl("topics describe birth --format json").document
    assert (item["partition_count"], item["replication_factor"]) == (2, 1)
    assert item["configs"]["retention.ms"] == "1000"
    assert [partition["leader"] for partition in item["partitions"]] == [0, 0]

    assert kctl("topics alter birth --partitions 4 --dry-run").status == 0
    altered = kctl("topics alter birth --partitions 4 --set cleanup.policy=compact --delete-config retention.ms")
    assert [row[3] for row in altered.rows] == ["properties altered", "partitions added"]
    (item,) = kctl("topics describe birth --format json").document
    assert (item["partition_count"], "retention.ms" in item["configs"]) == (4, False)
    assert item["configs"]["cleanup.policy"] == "compact"

    assert kctl("topics delete birth").status == 5
    assert kctl("topics delete birth --yes").rows[0][3] == "deleted"
    assert kctl("topics delete birth --yes").rows[0][4] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert kctl("topics describe birth").status == 1


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("topics create bad,name", "INVALID_TOPIC_EXCEPTION"),
        ("topics create refused --replication-factor 7", "INVALID_REPLICATION_FACTOR"),
        ("topics create refused --set no.such.property=1", "INVALID_CONFIG"),
        ("topics create refused --set retention.ms=soon", "INVALID_CONFIG"),
        ("topics create refused --replica-assignment 0:0", "INVALID_REPLICA_ASSIGNMENT"),
        ("topics alter no-such-topic --partitions 3", "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_refusals_have_kafkas_error_names(kctl: Kctl, line: str, error: str) -> None:
    ran = kctl(f"{line} --format json")
    assert (ran.status, ran.document[0]["error"]) == (1, error)
    assert ran.document[0]["message"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produced_records_are_consumed(kctl: Kctl, topic: str, codec: str) -> None:
    lines = [f"key-{number}:{hashlib.sha256(b'%d' % number).hexdigest()}" for number in range(2_000)]
    produced = kctl(
        f"produce {topic} --key-separator : --compression-codec {codec} --format jsonl", stdin="\n".join(lines).encode()
    )
    assert produced.status == 0
    assert len(produced.out.splitlines()) == 2_000
    consumed = [f"{row[3]}:{row[4]}" for row in kctl(f"consume {topic}").rows]
    assert sorted(consumed) == sorted(lines)


def test_keys_are_partitioned_as_by_other_clients(kctl: Kctl, topic: str, bootstrap: str) -> None:
    keys = [f"customer-{number}" for number in range(100)]
    kctl(f"produce {topic} --key-separator :", stdin="".join(f"{key}:x\n" for key in keys).encode())
    ours = {row[3]: int(row[0]) for row in kctl(f"consume {topic}").rows}
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = {key: producer.send(topic, key=key.encode(), value=b"y") for key in keys}
        theirs = {key: future.get(TIMEOUT_S).partition for key, future in sent.items()}
    assert ours == theirs


def test_records_survive_a_copy(kctl: Kctl, topic: str, bootstrap: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, key=b"tombstone", value=None, partition=0, timestamp_ms=1_700_000_000_000)
        producer.send(topic, key=None, value=b"", partition=1, timestamp_ms=1_700_000_000_001)
        headers = [("h", b"\xfe"), ("h", b"")]
        producer.send(topic, key=b"\xff", value=bytes(range(256)), headers=headers, partition=2, timestamp_ms=5)
    assert kctl(f"topics create {topic}-copy --partitions 3 --set retention.ms=-1").status == 0
    lines = kctl(f"consume {topic} --format jsonl").out
    assert kctl(f"produce {topic}-copy --input jsonl", stdin=lines.encode()).status == 0
    copied = _records(bootstrap, f"{topic}-copy")
    assert len(copied) == 3
    assert copied == _records(bootstrap, topic)


def _records(bootstrap: str, topic: str) -> list[tuple[object, ...]]:
    """All records as librdkafka reads them, in the order of their partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[1] for number in range(3)]
    consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
    records: list[tuple[object, ...]] = []
    while len(records) < sum(ends):
        one = consumer.poll(TIMEOUT_S)
        assert one is not None, f"{len(records)} of {sum(ends)} records"
        assert one.error() is None, one.error()
        records.append((one.partition(), one.offset(), one.timestamp(), one.key(), one.value(), one.headers()))
    consumer.close()
    return sorted(records, key=lambda record: record[:2])


def test_offsets_are_selected_by_time(kctl: Kctl, topic: str) -> None:
    lines = "".join(
        f'{{"value":"v{n}","partition":1,"timestamp_ms":{1_700_000_000_000 + n * 1_000}}}\n' for n in range(10)
    )
    kctl(f"produce {topic} --input jsonl", stdin=lines.encode())
    ran = kctl(f"consume {topic} --from @2023-11-14T22:13:23Z --until @2023-11-14T22:13:25.5Z")
    assert [row[4] for row in ran.rows] == ["v3", "v4", "v5"]
    (row,) = kctl(f"topics offsets {topic} --partition 1 --time @1700000007 --format json").document
    assert (row["offset"], row["timestamp_ms"]) == (7, 1_700_000_007_000)
    assert [row[2] for row in kctl(f"topics offsets {topic}").rows] == ["0", "10", "0"]


def test_groups_are_listed_described_reset_and_deleted(kctl: Kctl, topic: str, bootstrap: str) -> None:
    group = f"{topic}-group"
    kctl(f"produce {topic} --partition 0", stdin=b"a\nb\nc\n")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    seen: list[bytes | None] = []

    def has_read_all() -> bool:
        one = consumer.poll(0.1)
        if one is not None:
            assert one.error() is None, one.error()
            seen.append(one.value())
        return len(seen) == 3

    probe.wait_until(has_read_all, what="three records", timeout_s=TIMEOUT_S)
    consumer.commit(asynchronous=False)
    kctl(f"produce {topic} --partition 0", stdin=b"d\n")

    assert [group, "Stable", "consumer"] in [row[:3] for row in kctl("groups list").rows]
    rows = {row[2]: row for row in kctl(f"groups describe {group}").rows}
    assert rows["0"][3:6] == ["3", "4", "1"]
    assert rows["0"][6].startswith("reader")
    (members,) = kctl(f"groups describe {group} --show members").rows
    assert members[5:7] == ["3", f"{topic}(0,1,2)"]
    assert kctl(f"groups delete {group} --yes").rows[0][2] == "NON_EMPTY_GROUP"
    consumer.close()

    (described,) = kctl(f"groups describe {group} --format json").document
    assert (described["state"], described["members"], described["total_lag"]) == ("Empty", [], 1)
    assert kctl(f"groups delete {group} --yes").rows == [[group, "deleted", "-", "-"]]
    assert kctl(f"groups describe {group}").rows[0][-2] == "GROUP_ID_NOT_FOUND"


def test_cluster_describe_shows_controller_and_brokers(kctl: Kctl, bootstrap: str) -> None:
    document = kctl("cluster describe --format json").document
    (broker,) = document["brokers"]
    assert (document["controller"], broker["broker"], f"{broker['host']}:{broker['port']}") == (0, 0, bootstrap)
    assert document["cluster_id"]


def test_read_committed_hides_aborted_records(kctl: Kctl, topic: str, bootstrap: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for value, ends_well in ((b"kept", True), (b"dropped", False), (b"kept too", True)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0)
            producer.flush()
            (producer.commit_transaction if ends_well else producer.abort_transaction)()
    wait_for_markers(bootstrap, topic)
    assert [row[4] for row in kctl(f"consume {topic}").rows] == ["kept", "kept too"]
    uncommitted = kctl(f"consume {topic} --isolation-level read_uncommitted").rows
    assert [row[4] for row in uncommitted] == ["kept", "dropped", "kept too"]


def test_the_last_records_are_those_of_all_partitions_without_gaps(kctl: Kctl, topic: str, bootstrap: str) -> None:
    assert kctl(f"consume {topic} --last 3").rows == []
    lines = "".join(
        f'{{"value":"v{n}","partition":{n % 3},"timestamp_ms":{1_700_000_000_000 + n * 1_000}}}\n' for n in range(30)
    )
    kctl(f"produce {topic} --input jsonl", stdin=lines.encode())
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(200):  # More than the first window reads.
            producer.send(topic, b"dropped", partition=0)
        producer.flush()
        producer.abort_transaction()
    wait_for_markers(bootstrap, topic)
    rows = [
        ("", ["v26", "v27", "v28", "v29"]),
        ("--partition 0", ["v18", "v21", "v24", "v27"]),
        ("--partition 0,1", ["v24", "v25", "v27", "v28"]),
        ("--partition 1 --until 4", ["v1", "v4", "v7", "v10"]),
        ("--partition 1 --from 8", ["v25", "v28"]),
        ("--grep ^v1[0-9]?$", ["v16", "v17", "v18", "v19"]),
        ("--isolation-level read_uncommitted", ["dropped"] * 4),
        ("--follow --partition 9", None),
        ("--group readers", None),
    ]
    for options, values in rows:
        ran = kctl(f"consume {topic} --last 4 {options}")
        shown = [row[4] for row in ran.rows] if ran.status == 0 else None
        assert shown == values, (options, ran)
    every = [row[4] for row in kctl(f"consume {topic} --last 1000").rows]
    assert every == [f"v{n}" for n in range(30)]

"""A broker with damaged internal topics loads and serves all valid records."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.header import LOG_OVERHEAD, BatchHeader
from tests.integration.clients.confluent import Confluent
from tests.peers import probe
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import KctlBroker, kctl_broker

GROUPS = 30
IDS = 4
LENGTH, MAGIC, CRC = 8, 16, 17
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.cleaner.backoff.ms": "100",
}


def test_broker_serves_all_but_the_damaged_records_of_its_internal_topics(tmp_path: Path) -> None:
    with kctl_broker(tmp_path / "data", properties=PROPERTIES) as broker:
        Confluent(broker.bootstrap).create_topic("orders", 1)
        commit(broker, *range(GROUPS))
        for number in range(IDS):
            in_transaction(broker, f"id-{number}")
        broker.stop()
        offsets, states = Segment(broker, "__consumer_offsets-0"), Segment(broker, "__transaction_state-0")
        lost_groups = {
            offsets.damage(3, LENGTH, bytes(4)),
            offsets.damage(8, LENGTH, b"\xff" * 4),
            offsets.damage(13, LENGTH, b"\x7f\xff\xff\xff"),
            offsets.damage(18, LENGTH, (offsets.headers[18].size - LOG_OVERHEAD + 33).to_bytes(4, "big")),
            offsets.damage(21, MAGIC, b"\x63"),
            offsets.damage(24, CRC, b"\x00\x00\x00\x00"),
            offsets.damage(GROUPS - 1, LENGTH, bytes(4)),
        }
        states.damage(states.last_of("id-1"), LENGTH, bytes(4))
        states.damage(states.last_of("id-2"), CRC, b"\x00\x00\x00\x00")
        written = len(broker.log_text)
        broker.start()

        assert committed(broker) == {number: number + 1 for number in range(GROUPS) if number not in lost_groups}
        for number in (1, 2, 3):
            in_transaction(broker, f"id-{number}")
        commit(broker, GROUPS)
        log = broker.log_text[written:]
        for number in sorted(lost_groups):
            (line,) = [
                line
                for line in log.splitlines()
                if f"skipping records that cannot be read topic=__consumer_offsets partition=0 offset={number} " in line
            ]
            assert " keys=b'\\x00\\x01\\x00" in line
            assert f"g{number:02}" in line
        assert log.count("skipping records that cannot be read topic=__transaction_state partition=0 offset=") == 2
        damaged = [line for line in log.splitlines() if "log is corrupt near its end" in line]
        assert sum("/__consumer_offsets-0 " in line for line in damaged) == 1
        cleaner_output = "cannot compact log, trying again after a restart log=__consumer_offsets-0"
        probe.wait_until(lambda: cleaner_output in broker.log_text, what="the cleaner to find the damage", timeout_s=60)

        consumed = run_kctl(
            "consume", "__consumer_offsets", "--formatter", "offsets", "--bootstrap-server", broker.bootstrap
        )
        assert consumed.stdout.count("orders") == 3
        assert "__consumer_offsets-0 at offset 3" in consumed.stderr
        assert "Traceback" not in consumed.stderr
        dumped = run_kctl("dump-log", "--verify-only", str(offsets.path))
        assert dumped.returncode == 1
        assert len([line for line in dumped.stdout.splitlines() if "CORRUPT" in line]) >= len(lost_groups)

        broker.restart()
        assert set(committed(broker)) == set(range(GROUPS)) - lost_groups
        assert "Traceback" not in broker.log_text
        assert broker.log_text.count(cleaner_output) <= 2


class Segment:
    """The first segment of a partition."""

    def __init__(self, broker: KctlBroker, partition: str) -> None:
        self.path = broker.logs_dir / partition / "00000000000000000000.log"
        self.data = self.path.read_bytes()
        self.headers: list[BatchHeader] = list(iterate_batches(self.data))

    def damage(self, index: int, place: int, what: bytes) -> int:
        """Returns the index of the partition."""
        with self.path.open("r+b") as file:
            file.seek(self.headers[index].position + place)
            file.write(what)
        return index

    def last_of(self, key: str) -> int:
        """The last batch with a record whose key contains this."""
        return max(
            index
            for index, header in enumerate(self.headers)
            for record in iterate_records(self.data, header)
            if key.encode() in (record.key or b"")
        )


def commit(broker: KctlBroker, *numbers: int) -> None:
    """Each of these groups commits its number and one."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        request = ConsumerGroupTopicPartitions(f"g{number:02}", [TopicPartition("orders", 0, number + 1)])
        admin.alter_consumer_group_offsets([request])[request.group_id].result(timeout=60)


def _offsets(admin: AdminClient, group: str) -> list[TopicPartition]:
    """Repeats the request while the coordinator loads its groups, which librdkafka does not do."""
    found: list[list[TopicPartition]] = []

    def is_loaded() -> bool:
        request = ConsumerGroupTopicPartitions(group, [TopicPartition("orders", 0)])
        try:
            response = admin.list_consumer_group_offsets([request])[group].result(timeout=60)
            found.append(list(response.topic_partitions or ()))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
        return bool(found)

    probe.wait_until(is_loaded, what=f"the offsets of {group}", timeout_s=60)
    return found[0]


def committed(broker: KctlBroker) -> dict[int, int]:
    """The committed offsets of the first GROUPS groups."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found: dict[int, int] = {}
    for number in range(GROUPS):
        (partition,) = _offsets(admin, f"g{number:02}")
        if partition.offset >= 0:
            found[number] = partition.offset
    return found


def in_transaction(broker: KctlBroker, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"value")
    producer.commit_transaction(30)

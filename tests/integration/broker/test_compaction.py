"""A broker compacts its logs while it serves: committed offsets in a thread, larger logs in a process of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kctl.system.operating_system import is_process_alive
from tests.integration.clients.confluent import Confluent
from tests.peers import probe
from tests.peers.kctl_broker import KctlBroker, kctl_broker

ROUNDS = 400
PARTITIONS = 8
CLEANS_QUICKLY = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "20000",
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "0",
}


def test_committed_offsets_are_compacted_and_survive_a_kill(tmp_path: Path) -> None:
    with kctl_broker(tmp_path / "data", properties=CLEANS_QUICKLY) as broker:
        Confluent(broker.bootstrap).create_topic("orders", PARTITIONS)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing", "enable.auto.commit": False})
        expected = {}
        for number in range(ROUNDS):
            expected = {partition: number * 10 + partition for partition in range(PARTITIONS)}
            offsets = [TopicPartition("orders", partition, offset) for partition, offset in expected.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
        assert ROUNDS * PARTITIONS * 60 > 150_000, "far more was written than the bound below"
        _wait_until_small(broker)
        assert _committed(consumer) == expected
        consumer.close()
        broker.kill9()
        broker.restart()
        again = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        assert _committed(again) == expected
        again.close()
        assert "Traceback" not in broker.log_text


LARGE = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "4000000"}
"""With this rate a cleaning takes several seconds."""
KEYS = 500
RECORDS = 14_000
"""Of 1 kB: the active segment of up to 3 MB is not cleaned, and the others have more than PROCESS_BYTES_MIN."""


def test_a_large_log_survives_the_end_of_its_cleaner_and_of_the_broker(tmp_path: Path) -> None:
    """Kills the process of the cleaner while it writes, then the broker; the log is complete after each."""
    with kctl_broker(tmp_path / "data", properties=LARGE) as broker:
        settings = {"cleanup.policy": "compact", "segment.bytes": "3000000", "min.cleanable.dirty.ratio": "1"}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("table", 1, 1, config=settings)])["table"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce("table", b"%d" % number + bytes(1000), b"key-%d" % (number % KEYS))
        assert producer.flush(60) == 0
        entry = ConfigEntry("min.cleanable.dirty.ratio", "0", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "table", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)

        folder = broker.logs_dir / "table-0"
        probe.wait_until(lambda: any(folder.glob("*.log.cleaned")), what="a draft of the cleaner", timeout_s=120)
        (first,) = _children(broker.pid)
        assert os.getpriority(os.PRIO_PROCESS, first) > 0
        os.kill(first, signal.SIGKILL)
        ended = "log cleaning aborted, trying again log=table-0"
        probe.wait_until(lambda: ended in broker.log_text, what="the end of the cleaner", timeout_s=60)
        assert _values(broker) == RECORDS

        probe.wait_until(lambda: any(folder.glob("*.log.cleaned")), what="another draft", timeout_s=120)
        (second,) = _children(broker.pid)
        assert second != first
        broker.kill9()
        probe.wait_until(lambda: not is_process_alive(second), what="the end of the second cleaner", timeout_s=60)
        broker.restart()
        probe.wait_until(lambda: "cleaned log=table-0" in broker.log_text, what="a clean log", timeout_s=120)
        assert _values(broker) < RECORDS
        assert "Traceback" not in broker.log_text
        pids = _children(broker.pid)
    assert not any(map(is_process_alive, pids)), "a clean stop ends the processes too"


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _values(broker: KctlBroker) -> int:
    """Returns the number of records after checking that the last value of each key is there."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("table", 0, 0)])
    count, latest = 0, dict[bytes, int]()
    while (message := consumer.poll(60)) is not None and message.error() is None:
        count += 1
        latest[message.key() or b""] = int((message.value() or b"").rstrip(b"\0"))
    consumer.close()
    assert latest == {b"key-%d" % key: RECORDS - KEYS + key for key in range(KEYS)}
    return count


def _committed(consumer: Consumer) -> dict[int, int]:
    found = consumer.committed([TopicPartition("orders", partition) for partition in range(PARTITIONS)], timeout=60)
    return {offset.partition: offset.offset for offset in found}


def _wait_until_small(broker: KctlBroker) -> None:
    folder = broker.logs_dir / "__consumer_offsets-0"

    def is_small() -> bool:
        # While the cleaner replaces a segment, there may be no file of that name.
        if "cleaned log=__consumer_offsets-0" not in broker.log_text:
            return False
        try:
            return 0 < sum(path.stat().st_size for path in folder.glob("*.log")) < 60_000
        except FileNotFoundError:
            return False  # Files are created and deleted meanwhile.

    probe.wait_until(is_small, what="the offsets to be compacted", timeout_s=120)

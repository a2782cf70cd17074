"""A broker compacts its committed offsets: they shrink while it serves and survive a restart."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

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

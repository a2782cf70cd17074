"""The producer and a group of kctl.client ride out a single broker that is killed, and one that does not respond."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.kctl_clients import KctlMember, KctlProducer
from tests.faults.workload import Group, read_all
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import wait_until

TOPIC = "orders"
PARTITIONS = 3
TIMEOUT_S = 120


def test_no_record_is_lost_doubled_or_skipped_when_the_only_broker_is_away(tmp_path: Path) -> None:
    with kctl_broker(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)
        producer = KctlProducer(broker.bootstrap, TOPIC, PARTITIONS, rate=300, request_timeout_ms=1_000)
        group = Group(PARTITIONS)
        members = [KctlMember(broker.bootstrap, TOPIC, group, number) for number in range(2)]
        clients = [producer, *members]

        def wait(claim: Callable[[], bool], what: str) -> None:
            def holds() -> bool:
                assert [complaint for client in clients for complaint in client.complaints] == []
                return claim()

            wait_until(holds, what=what, timeout_s=TIMEOUT_S)

        def wait_for_progress() -> None:
            goals = [count + 20 for count in producer.acknowledged.counts()]
            wait(lambda: all(map(int.__ge__, producer.acknowledged.counts(), goals)), f"{goals} are acknowledged")
            wait(lambda: all(group.next_offsets[number] >= goals[number] for number in range(PARTITIONS)), "read")

        for client in clients:
            client.start()
        try:
            wait_for_progress()
            broker.kill9()
            wait(lambda: producer.metrics()["buffered_records"] > 200, "records that wait for the broker")
            broker.start()
            wait_for_progress()
            retried = producer.metrics()["batches_retried_total"]
            broker.halt()
            try:
                wait(lambda: producer.metrics()["batches_retried_total"] > retried, "a request without a response")
            finally:
                broker.resume()
            wait_for_progress()
            producer.end()
            history = read_all(broker.bootstrap, TOPIC, PARTITIONS)
            for number, sent in enumerate(producer.sent):
                values = [value for (partition, _), value in sorted(history.items()) if partition == number]
                assert values == [b"kctl %d" % index for index in range(sent)], "each once and in order"
            ends = dict(enumerate(producer.sent))
            wait(lambda: group.next_offsets == ends, "all records are read")
        finally:
            for client in clients:
                client.is_over.set()
            for member in members:
                member.end()
            producer.close()
        assert [complaint for client in clients for complaint in client.complaints] == []

"""Rolling restarts of three of kctl's brokers, while a Java and a librdkafka producer write."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.integration.cli.conftest import Kctl, ThreeBrokers
from tests.peers import apache_kafka, probe
from tests.peers.forked_kctl import run_kctl
from tests.peers.ran import Ran
from tests.peers.three_brokers import kctl_cluster

pytestmark = pytest.mark.timeout(600)

TIMEOUT_S = 120
PARTITIONS = 4
RECORDS_PER_S = 100
SOME = 100
"""Records that are written before and after the restarts."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    """Three brokers whose leaders stay where elections put them."""
    folder = tmp_path_factory.mktemp("cluster")
    with kctl_cluster(folder, {"min.insync.replicas": "2"}) as bootstrap:
        yield ThreeBrokers("kctl", bootstrap, folder)


@pytest.fixture
def operate(cluster: ThreeBrokers) -> Kctl:
    """`kctl` with the words of a line as a shell divides them."""

    def run(line: str) -> Ran:
        environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": cluster.bootstrap}
        done = run_kctl(*shlex.split(line), environment=environment, timeout_s=3 * TIMEOUT_S)
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


class Librdkafka:
    """An idempotent producer that writes 0, 1, 2 ... until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Waits for the acknowledgements of everything that was written."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(1 / RECORDS_PER_S):
            self._producer.produce(self._topic, str(number), partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
        if self._producer.flush(TIMEOUT_S):
            self.failures.append("not everything was acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        value = message.value()
        assert value is not None
        self.acknowledged.append(int(value))


class Java:
    """Kafka's VerifiableProducer, idempotent, which also writes 0, 1, 2 ..."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        config = folder / "producer.properties"
        config.write_text("enable.idempotence=true\nretries=2147483647\nmax.in.flight.requests.per.connection=5\n")
        options = ["--bootstrap-server", bootstrap, "--topic", topic, "--acks", "-1"]
        options += ["--throughput", str(RECORDS_PER_S), "--producer.config", str(config)]
        command = apache_kafka.java_command(
            apache_kafka.LAST_WITH_ZOOKEEPER, "org.apache.kafka.tools.VerifiableProducer", options, log_level="WARN"
        )
        self._output, self._log = folder / "producer.jsonl", folder / "producer.log"
        with self._output.open("wb") as output, self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=log)

    def history(self, topic: str) -> str:
        """What the producer has logged about errors and repeated batches of the topic, by time."""
        return "\n".join(line for line in self._log.read_text().splitlines() if f" {topic}-" in line)

    @property
    def acknowledged(self) -> list[int]:
        return [int(event["value"]) for event in self._events() if event["name"] == "producer_send_success"]

    @property
    def failures(self) -> list[str]:
        return [str(event) for event in self._events() if event["name"] == "producer_send_error"]

    def stop(self) -> None:
        """Closes the producer, which waits for acknowledgements."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(TIMEOUT_S)

    def _events(self) -> list[dict[str, str]]:
        lines = self._output.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def has_written(producer: Java | Librdkafka, count: int) -> bool:
    return len(producer.acknowledged) >= count


def read(bootstrap: str, topic: str) -> list[list[int]]:
    """All values of a topic, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True})
    found: dict[int, list[int]] = defaultdict(list)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "no answer"
            partition = message.partition()
            assert partition is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
            else:
                value = message.value()
                assert value is not None
                found[partition].append(int(value))
    finally:
        consumer.close()
    return list(found.values())


def pids(operate: Kctl, cluster: ThreeBrokers) -> dict[str, str]:
    rows = operate(f"cluster status --data-dir {cluster.folder}").rows
    return {row[0]: row[3] for row in rows if row[0].startswith("broker-")}


def explanation(cluster: ThreeBrokers, topic: str, producer: Java | Librdkafka) -> str:
    """What the producer and the brokers have logged about the partitions of a topic whose records were refused."""
    described = [f"{topic}: {producer.failures[:5]}"]
    if isinstance(producer, Java):
        described.append(producer.history(topic))
    for log in sorted(cluster.folder.glob("broker-*/broker.out")):
        lines = log.read_text().splitlines()
        told = (f"{topic}-", "acting as leader", "control request", "ZooKeeper", "stopped", "serving")
        described += [f"{log.parent.name} {line}" for line in lines if any(part in line for part in told)]
    return "\n".join(described)


@pytest.mark.jvm
def test_rolling_restart_loses_repeats_and_refuses_nothing(
    operate: Kctl, cluster: ThreeBrokers, tmp_path: Path
) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    for topic in ("java", "librdkafka"):
        assert operate(f"topics create {topic} --partitions {PARTITIONS}").status == 0
    before = pids(operate, cluster)
    producers: dict[str, Java | Librdkafka] = {
        "java": Java(cluster.bootstrap, "java", tmp_path),
        "librdkafka": Librdkafka(cluster.bootstrap, "librdkafka"),
    }
    try:
        for topic, producer in producers.items():
            probe.wait_until(partial(has_written, producer, SOME), what=topic, timeout_s=TIMEOUT_S)
        rolled = operate(f"cluster roll --data-dir {cluster.folder} --yes --format json")
        for topic, producer in producers.items():
            enough = len(producer.acknowledged) + SOME
            probe.wait_until(partial(has_written, producer, enough), what=f"more of {topic}", timeout_s=TIMEOUT_S)
    finally:
        for producer in producers.values():
            producer.stop()
    assert rolled.status == 0, rolled.out + rolled.err
    assert [row["status"] for row in rolled.document] == ["restarted"] * 3
    assert [row["controller"] for row in rolled.document] == [False, False, True]
    after = pids(operate, cluster)
    assert all(before[name] != after[name] for name in before)
    assert operate("cluster health").status == 0
    assert operate("elect --preferred --dry-run").rows == []

    for topic, producer in producers.items():
        assert producer.failures == [], explanation(cluster, topic, producer)
        acknowledged = producer.acknowledged
        by_partition = read(cluster.bootstrap, topic)
        assert all(values == sorted(set(values)) for values in by_partition), topic
        written = sorted(value for values in by_partition for value in values)
        assert written == list(range(len(written))), topic
        assert sorted(acknowledged) == written, topic


def test_plan_is_shown_without_restarting(operate: Kctl, cluster: ThreeBrokers) -> None:
    before = pids(operate, cluster)
    planned = operate(f"cluster roll --data-dir {cluster.folder} --dry-run --format json")
    assert (planned.status, [row["status"] for row in planned.document]) == (0, ["planned"] * 3)
    assert planned.document[-1]["controller"]
    assert operate(f"cluster roll --data-dir {cluster.folder}").status == 5
    assert operate(f"cluster roll --data-dir {cluster.folder} --brokers 7 --yes").status == 1
    assert operate("cluster roll --restart-command 'x {pid}' --yes").status == 2
    assert pids(operate, cluster) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("sh -c 'echo first; echo no route to {host}; exit 7'", "ended with status 7: first; no route to 127.0.0.1"),
        ("/no/such/program {id}", "cannot be started: No such file or directory"),
        ("true", "the restart has ended, but the old process still serves after 1 s"),
        ("sleep 600", "the restart has not ended after 1 s"),
    ],
)
def test_first_failure_ends_the_rolling_restart(
    operate: Kctl, cluster: ThreeBrokers, command: str, message: str
) -> None:
    before = pids(operate, cluster)
    rolled = operate(f'cluster roll --restart-command "{command}" --broker-timeout 1s --yes --format json')
    assert rolled.status == 1
    assert [row["status"] for row in rolled.document] == ["failed", "not started", "not started"]
    assert message in rolled.document[0]["message"]
    assert pids(operate, cluster) == before


def test_partitions_without_another_replica_need_a_confirmation(operate: Kctl, cluster: ThreeBrokers) -> None:
    assert operate("topics create alone --replica-assignment 0 --set min.insync.replicas=1").status == 0
    assert operate("cluster health --wait 60s").status == 0
    refused = operate(f"cluster roll --data-dir {cluster.folder} --yes")
    assert refused.status == 5
    assert "while broker 0 restarts, unavailable: alone-0" in refused.err
    assert "--allow-unavailable" in refused.err
    assert operate(f"cluster roll --data-dir {cluster.folder} --brokers 1,2 --dry-run").err == ""
    assert operate("topics delete alone --yes").status == 0


def test_unhealthy_cluster_is_not_restarted(operate: Kctl, cluster: ThreeBrokers) -> None:
    assert operate("topics create strict --replica-assignment 0:1:2").status == 0
    assert operate("configs alter topic strict --set min.insync.replicas=4").status == 0
    before = pids(operate, cluster)
    rolled = operate(f"cluster roll --data-dir {cluster.folder} --yes --allow-unavailable --format json")
    assert (rolled.status, [row["status"] for row in rolled.document]) == (3, ["not started"] * 3)
    assert "the cluster is not healthy: strict-0: under min ISR" in rolled.document[0]["message"]
    assert pids(operate, cluster) == before
    assert operate("topics delete strict --yes").status == 0

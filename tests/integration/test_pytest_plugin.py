"""The plugin as another project uses it: pytest as a process in an empty folder."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.server.loop.tasks import stop_at_end_of
from kctl.system.operating_system import is_process_alive
from tests.peers import probe
from tests.peers.forked_kctl import run_kctl

ROOT = Path(__file__).parents[2]


def run_pytest(folder: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest on one test file, with the plugin loaded as its entry point would."""
    (folder / "test_it.py").write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_plugin(), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


def _plugin() -> list[str]:
    """The option that loads the plugin if kctl is not installed but on the path."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    is_installed = any(entry.value == "kctl.testing.pytest_plugin" for entry in entry_points(group="pytest11"))
    return [] if is_installed else ["-p", "kctl.testing.pytest_plugin"]


ROUND_TRIP = """
from confluent_kafka import Consumer, Producer, TopicPartition


def write(broker, topic, value):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def read(broker, topic, count=1):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(count, 60)]
    consumer.close()
    return values
"""


LISTENERS = """import kctl.client
import pytest

TWO = {
    "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
BESIDE = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0", "super.users": "User:admin;User:ANONYMOUS"}


def test_two(kafka_broker_factory):
    broker = kafka_broker_factory(TWO)
    before = dict(broker.listeners)
    assert set(before) == {"INTERNAL", "EXTERNAL"} and len(set(before.values())) == 2
    assert broker.bootstrap_servers == before["INTERNAL"]
    write(broker, "a", b"1")
    broker.restart()
    assert broker.listeners == before
    external = type("External", (), {"bootstrap_servers": before["EXTERNAL"]})
    assert read(external, "a") == [b"1"]


def test_secured(kafka_secure_broker):
    producer = Producer(kafka_secure_broker.librdkafka_properties)
    producer.produce("b", b"1")
    assert producer.flush(60) == 0
    config = kctl.client.ConsumerConfig.from_properties(kafka_secure_broker.client_properties)
    with kctl.client.Consumer(config) as consumer:
        assert len(consumer.partitions_of("b")) == 4
    assert kafka_secure_broker.username == "admin" and kafka_secure_broker.ca_file.exists()


def test_secured_beside_another(kafka_broker_factory):
    broker = kafka_broker_factory(BESIDE, secure=True)
    assert broker.client_properties["bootstrap.servers"] == broker.listeners["SASL_SSL"] != broker.bootstrap_servers
    assert broker.listeners["SASL_SSL"] in broker.client_properties_file.read_text()
    write(broker, "a", b"1")
    producer = Producer(broker.librdkafka_properties)
    producer.produce("a", b"2", partition=0)
    assert producer.flush(60) == 0
    assert read(broker, "a", 2) == [b"1", b"2"]


def test_security_of_a_project(kafka_broker, kafka_broker_factory):
    assert set(kafka_broker.listeners) == {"PLAINTEXT", "SASL_PLAINTEXT"}
    own = kafka_broker_factory(security="scram", plaintext=False)
    assert set(own.listeners) == {"SASL_PLAINTEXT"}
    for broker in (kafka_broker, own):
        producer = Producer(broker.librdkafka_properties)
        producer.produce("secured", b"1")
        assert producer.flush(60) == 0


def test_contradiction(kafka_broker_factory):
    with pytest.raises(ValueError, match="give the port in listeners"):
        kafka_broker_factory(TWO, port=1)
"""
CLUSTER = """
import asyncio
import pytest
from kctl.admin import AdminClient, AdminConfig, NewTopic
from kctl.system.operating_system import is_process_alive
from kctl.testing import BrokerFailed, KafkaBroker, KafkaCluster


def test_a_leader_is_moved_and_killed_and_comes_back(kafka_cluster):
    with AdminClient(AdminConfig(bootstrap_servers=kafka_cluster.bootstrap_servers)) as admin:
        admin.create_topics([NewTopic("a", partitions=1, configs={"min.insync.replicas": "2"})]).require()
    write(kafka_cluster, "a", b"1")
    other = (kafka_cluster.leader("a", 0) + 1) % 3
    kafka_cluster.move_leader("a", 0, to=other)
    assert kafka_cluster.leader("a", 0) == other
    write(kafka_cluster, "a", b"2")
    kafka_cluster.brokers[other].kill()
    write(kafka_cluster, "a", b"3")
    assert kafka_cluster.leader("a", 0) != other
    kafka_cluster.start()
    assert all(broker.is_running for broker in kafka_cluster.brokers)
    assert read(kafka_cluster, "a", 3) == [b"1", b"2", b"3"]
    with pytest.raises(ValueError, match="broker 7 has no replica of a-0; its replicas are"):
        kafka_cluster.move_leader("a", 0, to=7)


def test_brokers_are_context_managers():
    with KafkaBroker({"num.partitions": "2"}) as broker:
        write(broker, "a", b"1")
        folder = broker.data_dir
        broker.pause()
        producer = Producer({**broker.client_properties, "log_level": 0})
        producer.produce("a", b"2", partition=0)
        assert producer.flush(0.5) == 1
        broker.resume()
        assert producer.flush(60) == 0
        broker.pause()
    assert not folder.exists()

    async def main():
        async with KafkaBroker(data_dir=folder) as broker:
            assert broker.is_running
        assert (folder / "logs").is_dir()

    asyncio.run(main())


def test_a_pool_has_brokers_that_serve():
    folders, ports, processes = set(), set(), set()

    def use(broker):
        write(broker, "a", b"1")
        assert read(broker, "a") == [b"1"]
        folders.add(broker.data_dir)
        ports.add(broker.port)
        processes.add(broker.pid)

    with KafkaBroker.pool(2, {"num.partitions": "1"}) as pool:
        for _ in range(4):
            with pool.broker() as broker:
                use(broker)
        with pool.broker() as one, pool.broker() as other:
            use(one)
            use(other)
            one.kill()
            one.start()
            assert read(one, "a") == [b"1"]
        left = pool.broker()
    assert len(folders) == len(processes) == 6
    assert not left.is_running
    assert not any(folder.exists() for folder in {*folders, left.data_dir})
    assert not any(is_process_alive(process) for process in processes)
    with pytest.raises(ValueError, match="the size of a pool must be 1 to 100, not 0"):
        KafkaBroker.pool(0)


def test_what_cannot_start_leaves_nothing_behind():
    with KafkaBroker.pool(1, {"num.partitions": "x"}) as pool:
        with pytest.raises(BrokerFailed, match="num.partitions=x: is not a whole number"):
            pool.broker()
    broker = KafkaBroker({"num.partitions": "x"})
    with pytest.raises(BrokerFailed, match="num.partitions=x: is not a whole number"):
        with broker:
            pass
    assert not broker.data_dir.exists()
    cluster = KafkaCluster(2, {"num.partitions": "x"})
    with pytest.raises(BrokerFailed, match="num.partitions=x"):
        with cluster:
            pass
    assert not cluster.zookeeper.is_running and not any(broker.is_running for broker in cluster.brokers)
    with pytest.raises(ValueError, match="listeners is set by the cluster"):
        KafkaCluster(2, {"listeners": "PLAINTEXT://127.0.0.1:0"})
"""

SESSION = """
def test_write(kafka_broker):
    write(kafka_broker, "a", b"first")
    assert kafka_broker.is_running
    assert (kafka_broker.data_dir / "logs" / "a-0").is_dir()
    assert "broker serving on " + kafka_broker.bootstrap_servers in kafka_broker.output


def test_read(kafka_broker):
    assert read(kafka_broker, "a") == [b"first"]


def test_lives(kafka_broker_factory):
    broker = kafka_broker_factory({"num.partitions": "1"})
    address = broker.bootstrap_servers
    write(broker, "a", b"1")
    broker.kill()
    assert not broker.is_running
    broker.start()
    write(broker, "a", b"2")
    broker.restart()
    assert broker.bootstrap_servers == address
    assert read(broker, "a", 2) == [b"1", b"2"]
    broker.stop()
    broker.stop()


def test_properties(kafka_broker_factory):
    broker = kafka_broker_factory({"broker.rack": "r"})
    assert broker.properties["num.partitions"] == "4"
    assert broker.properties["message.max.bytes"] == "5000"
    assert broker.properties["broker.rack"] == "r"


def test_misspelled(kafka_broker_factory):
    kafka_broker_factory({"num.partitons": "3"})


def test_cannot_start(kafka_broker_factory):
    kafka_broker_factory({"num.partitions": "x"})
"""
PROPERTIES = """[pytest]
kafka_broker_properties =
    num.partitions=2
    message.max.bytes=5000
kafka_broker_security = scram
"""


@pytest.mark.matrix
def test_brokers_have_listeners_and_security(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(PROPERTIES)
    finished = run_pytest(tmp_path, ROUND_TRIP + LISTENERS, "--kafka-broker-property", "num.partitions=4")
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_brokers_of_a_session_and_of_one_test(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(PROPERTIES)
    tests = ROUND_TRIP + SESSION + CLUSTER
    finished = run_pytest(tmp_path, tests, "-rA", "--kafka-broker-property", "num.partitions=4")
    output = finished.stdout + finished.stderr
    defined = set(re.findall(r"^def (test_\w+)", tests, re.MULTILINE))
    failed = set(re.findall(r"^(?:FAILED|ERROR) test_it.py::(\w+)", output, re.MULTILINE))
    passed = set(re.findall(r"^PASSED test_it.py::(\w+)", output, re.MULTILINE))
    assert (failed, passed) == ({"test_cannot_start"}, defined - {"test_cannot_start"}), output
    # The last lines of the broker, and a property without an effect.
    assert "num.partitions=x: is not a whole number" in output
    assert "num.partitons: unknown property, ignored; did you mean num.partitions?" in output


def test_an_unknown_property_is_refused(tmp_path: Path) -> None:
    tests = "def test_never(kafka_broker):\n    pass\n"
    finished = run_pytest(tmp_path, tests, "--kafka-broker-property", "nonsense")
    assert finished.returncode != 0
    assert "'nonsense' is not a property: write name=value" in finished.stdout + finished.stderr


def test_a_project_without_the_fixtures_imports_only_the_plugin(tmp_path: Path) -> None:
    tests = """
import sys

def test_nothing_is_loaded():
    loaded = {name for name in sys.modules if name.startswith("kctl.")}
    assert loaded == {"kctl.testing", "kctl.testing.pytest_plugin"}
"""
    finished = run_pytest(tmp_path, tests)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_the_fixtures_are_listed_with_their_help(tmp_path: Path) -> None:
    finished = run_pytest(tmp_path, "", "--fixtures")
    for name in ("kafka_broker", "kafka_broker_factory", "kafka_cluster", "kafka_topic"):
        assert re.search(rf"^{name}\b.*\n +\S", finished.stdout, re.MULTILINE), (name, finished.stdout)


PIDS = """
import os, pathlib, signal, subprocess, sys

def note(*pids):
    with open("pids", "a") as file:
        file.write("".join(f"{pid}\\n" for pid in pids))

def test_is_ended(kafka_broker, kafka_broker_factory):
    note(kafka_broker.pid, kafka_broker_factory(secure=True).pid)
    pathlib.Path("started").touch()
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_brokers_end_with_a_pytest_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "test_it.py").write_text(PIDS)
    with (tmp_path / "output").open("wb") as output:
        killed = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_plugin()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
            stdout=output,
            stderr=output,
        )
    probe.wait_until(
        lambda: (tmp_path / "started").exists() or killed.poll() is not None, what="brokers", timeout_s=120
    )
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2, (tmp_path / "output").read_text()
    assert all(map(is_process_alive, pids))
    killed.send_signal(number)
    killed.wait()
    probe.wait_until(lambda: not any(map(is_process_alive, pids)), what="the end of the brokers", timeout_s=60)


def test_cluster_and_processes_end_with_the_process_that_is_named(tmp_path: Path) -> None:
    killed = subprocess.Popen(["sleep", "600"])
    cluster, machine = tmp_path / "cluster", tmp_path / "machine"
    lines = (
        f"cluster start --brokers 1 --data-dir {cluster} --port 0",
        f"broker start --detach --processes 2 --data-dir {machine} --port {probe.free_ports(2)[0]}",
    )
    starts = [
        subprocess.Popen([sys.executable, "-m", "kctl", *line.split(), "--stop-with", str(killed.pid)])
        for line in lines
    ]
    assert [start.wait(120) for start in starts] == [0, 0]
    folders = [cluster / "broker-0", machine, machine / "process-0", machine / "process-1"]
    pids = [json.loads((folder / "broker.json").read_text())["pid"] for folder in folders]
    pids.append(int((cluster / "zookeeper.lock").read_text()))
    assert all(map(is_process_alive, pids))
    killed.kill()
    killed.wait()
    probe.wait_until(lambda: not any(map(is_process_alive, pids)), what="the end of the brokers", timeout_s=60)


TOPICS = """
import pytest
from kctl.admin import AdminClient, AdminConfig

seen = []


@pytest.mark.parametrize("number", range(2))
def test_topics_are_new(kafka_broker, kafka_topic, number):
    assert read_all(kafka_broker, kafka_topic) == 0
    write(kafka_broker, kafka_topic, b"1")
    seen.append((kafka_topic, kafka_broker.pid))


@pytest.mark.kafka_topic(partitions=3, configs={"cleanup.policy": "compact"})
def test_topics_have_properties(kafka_broker, kafka_topic):
    with AdminClient(AdminConfig(bootstrap_servers=kafka_broker.bootstrap_servers)) as admin:
        assert len(admin.describe_topics([kafka_topic]).require()[kafka_topic].partitions) == 3
    assert len({name for name, _ in seen}) == 2 and len({pid for _, pid in seen}) == 2


def read_all(broker, topic):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)
    consumer.close()
    return high - low
"""


def test_brokers_and_topics_of_each_test(tmp_path: Path) -> None:
    finished = run_pytest(tmp_path, ROUND_TRIP + TOPICS, "-o", "kafka_broker_scope=function", "--strict-markers")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    finished = run_pytest(tmp_path, "def test_it(kafka_broker):\n    pass\n", "-o", "kafka_broker_scope=package")
    assert "kafka_broker has the scopes session, module and function" in finished.stdout + finished.stderr


def test_a_started_broker_tells_its_addresses_to_other_programs(tmp_path: Path) -> None:
    (tmp_path / "ready.json").write_text("of an earlier broker")
    reading, writing = os.pipe()
    words = f"broker start --port 0 --data-dir {tmp_path / 'data'} --ready-file {tmp_path / 'ready.json'} --format json"
    started = subprocess.Popen(
        [sys.executable, "-m", "kctl", *words.split(), "--ready-fd", str(writing)],
        stdout=subprocess.PIPE,
        pass_fds=[writing],
    )
    os.close(writing)
    with open(reading) as stream:
        told = json.loads(stream.read())
    assert started.stdout is not None
    printed = started.stdout.readline()
    assert json.loads(printed) == told == json.loads((tmp_path / "ready.json").read_text())
    assert told["pid"] == started.pid
    assert told["listeners"] == {"PLAINTEXT": told["bootstrap_servers"]}
    started.stdout.close()
    ran = run_kctl("topics", "list", "--bootstrap-server", told["bootstrap_servers"])
    assert ran.returncode == 0, ran.stderr
    started.terminate()
    assert started.wait(60) == 0
    for words, message in (
        ("--ready-fd 77", "--ready-fd 77: this process has no such file descriptor"),
        (f"--ready-file {tmp_path / 'absent' / 'x'}", "files cannot be created in"),
    ):
        ran = run_kctl("broker", "start", "--port", "0", "--data-dir", tmp_path / "new", *words.split())
        assert (ran.returncode, message in ran.stderr) == (2, True), ran.stderr
        assert not (tmp_path / "new").exists()


def test_end_of_a_process_is_noticed_where_the_system_does_not_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.system.operating_system._HAS_PIDFD", False)
    child = subprocess.Popen(["sleep", "600"])
    stopped = []

    async def watch() -> None:
        watching = asyncio.create_task(stop_at_end_of(child.pid, lambda: stopped.append(child.pid)))
        child.kill()  # It is not waited for: a parent that never does that is no reason to run on.
        await watching
        await stop_at_end_of(child.pid, lambda: stopped.append(0))

    asyncio.run(watch())
    assert stopped == [child.pid, 0]
    child.wait()

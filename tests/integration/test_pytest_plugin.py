"""The plugin as another project uses it: pytest as a process in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_a_session_has_one_broker_that_clients_can_use(tmp_path: Path) -> None:
    finished = run_pytest(
        tmp_path,
        ROUND_TRIP
        + """
def test_write(kafka_broker):
    write(kafka_broker, "a", b"first")
    assert kafka_broker.is_running
    assert (kafka_broker.data_dir / "logs" / "a-0").is_dir()
    assert "broker serving on " + kafka_broker.bootstrap_servers in kafka_broker.output

def test_read(kafka_broker):
    assert read(kafka_broker, "a") == [b"first"]
""",
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "2 passed" in finished.stdout


def test_a_broker_survives_stop_kill_and_restart_with_its_data_and_port(tmp_path: Path) -> None:
    finished = run_pytest(
        tmp_path,
        ROUND_TRIP
        + """
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
""",
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_properties_come_from_the_configuration_and_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nkafka_broker_properties =\n    num.partitions=2\n    message.max.bytes=5000\n"
    )
    tests = """
def test_properties(kafka_broker_factory):
    broker = kafka_broker_factory({"broker.rack": "r"})
    assert broker.properties["num.partitions"] == "4"
    assert broker.properties["message.max.bytes"] == "5000"
    assert broker.properties["broker.rack"] == "r"
"""
    finished = run_pytest(tmp_path, tests, "--kafka-broker-property", "num.partitions=4")
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_a_broker_that_cannot_start_fails_the_test_with_its_last_log_lines(tmp_path: Path) -> None:
    tests = "def test_never(kafka_broker_factory):\n    kafka_broker_factory({'num.partitions': 'x'})\n"
    finished = run_pytest(tmp_path, tests)
    assert finished.returncode == 1
    assert "num.partitions=x: is not a whole number" in finished.stdout


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


@pytest.mark.parametrize("name", ["kafka_broker", "kafka_broker_factory"])
def test_the_fixtures_are_listed_with_their_help(tmp_path: Path, name: str) -> None:
    finished = run_pytest(tmp_path, "", "--fixtures")
    assert re.search(rf"^{name}\b.*\n +\S", finished.stdout, re.MULTILINE), finished.stdout

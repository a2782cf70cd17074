"""The programs of docs/testing/recipes.md, as their readers run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.peers import apache_kafka, java, kafkajs

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/testing/recipes.md").read_text()
KAFKA_GO = "github.com/segmentio/kafka-go@v0.4.49"
TIMEOUT_S = 250


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all files of the page, and `kctl` for the PATH."""
    for name, text in re.findall(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    command = tmp_path / "bin" / "kctl"
    command.parent.mkdir()
    (tmp_path / "temporary").mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m kctl "$@"\n')
    command.chmod(0o755)
    return tmp_path


def run(folder: Path, words: Sequence[str | Path], more: Mapping[str, str] | None = None) -> str:
    """Runs a command in the folder, with nothing but its tests to find; returns its output."""
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    finished = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": path, "TMPDIR": str(folder / "temporary"), **(more or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout + finished.stderr


@pytest.mark.long
def test_unittest(folder: Path) -> None:
    output = run(folder, [sys.executable, "-m", "unittest", "test_orders"], {"PYTHONPATH": str(ROOT)})
    assert "Ran 1 test" in output


SETTINGS = """
SECRET_KEY = "test"
DATABASES = {}
TEST_RUNNER = "kafka_runner.KafkaRunner"
KAFKA_BOOTSTRAP_SERVERS = "localhost:9092"
"""
DJANGO_TESTS = """
from confluent_kafka import Producer
from django.conf import settings
from django.test import SimpleTestCase

class OrdersTest(SimpleTestCase):
    def test_orders_are_written(self):
        assert settings.KAFKA_BOOTSTRAP_SERVERS != "localhost:9092"
        producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP_SERVERS})
        producer.produce("orders", b"first")
        assert producer.flush(30) == 0

class OthersTest(OrdersTest):
    pass
"""


@pytest.mark.matrix
def test_django(folder: Path) -> None:
    for test in folder.glob("test_*.py"):
        test.unlink()
    (folder / "settings.py").write_text(SETTINGS)
    (folder / "tests.py").write_text(DJANGO_TESTS)
    variables = {"PYTHONPATH": f"{folder}:{ROOT}", "DJANGO_SETTINGS_MODULE": "settings"}
    output = run(folder, [sys.executable, "-m", "django", "test", "--parallel", "2", "tests"], variables)
    assert "Ran 2 tests" in output
    assert list((folder / "temporary").glob("kctl-broker-*")) == []


@pytest.mark.matrix
@pytest.mark.jvm
def test_junit(folder: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    jars = [apache_kafka.jars(apache_kafka.NEWEST), apache_kafka.junit_jars()]
    class_path = ":".join(str(jar) for files in jars for jar in sorted(files.glob("*.jar")))
    sources = ["KafkaBroker.java", "OrdersTest.java"]
    java_command = ["java", *java.JVM_FLAGS]
    run(folder, [*java_command, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", class_path, *sources])
    console = [*java_command, "-cp", f"{class_path}:{folder}", "org.junit.platform.console.ConsoleLauncher", "execute"]
    output = run(folder, [*console, "--select-class", "OrdersTest", "--disable-banner"])
    assert re.search(r"\b1 tests successful", output), output


@pytest.mark.matrix
def test_node(folder: Path) -> None:
    if reason := kafkajs.why_not():
        pytest.skip(reason)
    variables = {"NODE_PATH": str(kafkajs.node_modules()), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    output = run(folder, ["node", "--test", "orders.test.js"], variables)
    assert re.search(r"pass 1$", output, re.MULTILINE), output


@pytest.mark.matrix
def test_go(folder: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not on the PATH: install Go")
    run(folder, ["go", "mod", "init", "orders"])
    run(folder, ["go", "get", KAFKA_GO])
    output = run(folder, ["go", "test", "-v", "./..."])
    assert "--- PASS: TestOrdersAreWritten" in output

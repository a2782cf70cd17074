"""The command line in processes of its own, against kctl's and Apache Kafka's brokers."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.cli.group_readers import ROOT, TIMEOUT_S, Reader
from tests.peers import apache_kafka, apache_zookeeper, probe
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import kctl_broker
from tests.peers.ran import Ran
from tests.peers.three_brokers import apache_cluster, kctl_cluster

BROKERS = [
    "kctl",
    pytest.param(apache_kafka.OLDEST_JUDGE, marks=[pytest.mark.jvm, pytest.mark.matrix]),
    pytest.param(apache_kafka.LAST_WITH_ZOOKEEPER, marks=pytest.mark.jvm),
]

KAFKA_4 = pytest.param(apache_kafka.NEWEST_BROKER, marks=pytest.mark.jvm)
"""For tests of behaviour that differs in Kafka 4."""

WITH_NEWER_GROUPS = "kctl with newer groups"
"""Our broker with groups of the consumer protocol, share and streams groups."""
NEWER_GROUPS = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "6000",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.session.timeout.ms": "6000",
    "group.share.assignment.interval.ms": "100",
    "group.streams.initial.rebalance.delay.ms": "100",
}

ON_OURS = pytest.mark.parametrize("bootstrap", ["kctl"], indirect=True)
"""For tests of kctl's client, if another test of the file has connected to Apache Kafka's brokers."""


Kctl = Callable[..., Ran]
"""Runs the words of a line as a process, with `stdin` if it is given."""


@pytest.fixture(scope="session")
def broker_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts the broker of a kind at its first use; it runs until the end, because tests alternate between kinds."""
    with contextlib.ExitStack() as running:

        @functools.cache
        def start(kind: str) -> str:
            folder = tmp_path_factory.mktemp("broker")
            if kind in {"kctl", WITH_NEWER_GROUPS}:
                properties = NEWER_GROUPS if kind == WITH_NEWER_GROUPS else {}
                return running.enter_context(kctl_broker(folder / "data", properties=properties)).bootstrap
            properties = apache_kafka.HANGING_IS_ALLOWED
            return running.enter_context(apache_kafka.apache_kafka(kind, folder, properties=properties))

        yield start


@pytest.fixture(scope="session", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest, broker_of: Callable[[str], str]) -> str:
    """A broker of kctl or Apache Kafka."""
    if not request.param.startswith("kctl") and (reason := apache_kafka.why_not()):
        pytest.skip(reason)
    return broker_of(request.param)


class ThreeBrokers(NamedTuple):
    """A cluster of brokers 0, 1 and 2; `kind` is "kctl" or a version of Apache Kafka."""

    kind: str
    bootstrap: str
    folder: Path


@pytest.fixture(scope="session", params=BROKERS)
def three_brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    """A cluster of three brokers, kctl's or Kafka's."""
    folder = tmp_path_factory.mktemp("cluster")
    if request.param == "kctl":
        cluster = kctl_cluster(folder)
    elif reason := apache_kafka.why_not() or apache_zookeeper.why_not():
        pytest.skip(reason)
    else:
        cluster = apache_cluster(request.param, folder)
    with cluster as bootstrap:
        run = command_line({"KCTL_BOOTSTRAP_SERVER": bootstrap})
        claim = lambda: len(run("cluster describe").rows) == 3  # noqa: E731
        probe.wait_until(claim, what="three brokers", timeout_s=TIMEOUT_S)
        yield ThreeBrokers(request.param, bootstrap, folder)


@pytest.fixture
def operate(three_brokers: ThreeBrokers, tmp_path: Path) -> Kctl:
    """`kctl` against the cluster of three, with a state folder of its own."""
    return command_line({"KCTL_BOOTSTRAP_SERVER": three_brokers.bootstrap, "XDG_STATE_HOME": str(tmp_path / "state")})


@pytest.fixture
def kctl(bootstrap: str, tmp_path: Path) -> Kctl:
    """`kctl` against one broker, with a state folder of its own."""
    return command_line({"KCTL_BOOTSTRAP_SERVER": bootstrap, "XDG_STATE_HOME": str(tmp_path / "state")})


def command_line(environment: dict[str, str]) -> Kctl:
    """Runs `kctl` with these additional environment variables, in a fork."""

    def run(line: str, stdin: bytes = b"") -> Ran:
        done = run_kctl(*line.split(), stdin=stdin, environment=os.environ | environment)
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


def process(environment: dict[str, str]) -> Kctl:
    """Runs `kctl` likewise, as users start it."""

    def run(line: str, stdin: bytes = b"") -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "kctl", *line.split()],
            input=stdin, capture_output=True, cwd=ROOT, env=os.environ | environment, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def topic(request: pytest.FixtureRequest, kctl: Kctl) -> str:
    """A topic of three partitions, named after the test, that keeps records of any age."""
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)[:200]
    assert kctl(f"topics create {name} --partitions 3 --set retention.ms=-1").status == 0
    return name


@pytest.fixture
def readers(kctl: Kctl, topic: str) -> Iterator[list[Reader]]:
    """`kctl consume --group` in the background; processes that still run at the end are killed.

    The test waits until the group has removed the member: other tests compare all groups and their log.
    """
    started: list[Reader] = []
    yield started
    running = [reader for reader in started if reader.process.poll() is None]
    for reader in running:
        reader.end(signal.SIGKILL)
    if running:
        claim = lambda: [topic, "Empty"] in [row[:2] for row in kctl("groups list").rows]  # noqa: E731
        probe.wait_until(claim, what="a group without members", timeout_s=TIMEOUT_S)

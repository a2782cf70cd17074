"""The command line as a user types it, against our broker and against Apache Kafka's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.peers import apache_kafka
from tests.peers.kctl_broker import kctl_broker

ROOT = Path(__file__).parent.parent.parent.parent
TIMEOUT_S = 60

BROKERS = [
    "kctl",
    pytest.param(apache_kafka.OLDEST_JUDGE, marks=pytest.mark.jvm),
    pytest.param(apache_kafka.LAST_WITH_ZOOKEEPER, marks=pytest.mark.jvm),
]
BROKERS_WITH_TRANSACTIONS = BROKERS[1:]


class Ran(NamedTuple):
    """What a command line came to."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """stdout as tab-separated cells."""
        return [line.split("\t") for line in self.out.splitlines()]


Kctl = Callable[..., Ran]
"""Runs the words of a line as a process, with `stdin` if it is given."""


@pytest.fixture(scope="session", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker, ours or Kafka's."""
    folder = tmp_path_factory.mktemp("broker")
    if request.param == "kctl":
        with kctl_broker(folder / "data") as broker:
            yield broker.bootstrap
        return
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    with apache_kafka.apache_kafka(request.param, folder) as address:
        yield address


@pytest.fixture
def kctl(bootstrap: str) -> Kctl:
    environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": bootstrap}

    def run(line: str, stdin: bytes = b"") -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "kctl", *line.split()],
            input=stdin, capture_output=True, cwd=ROOT, env=environment, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def topic(request: pytest.FixtureRequest, kctl: Kctl) -> str:
    """A topic of three partitions with the test's own name."""
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)[:200]
    assert kctl(f"topics create {name} --partitions 3").status == 0
    return name

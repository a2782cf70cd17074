"""Java clients of the versions with message formats 0 and 1, unchanged, against kctl."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clients.confluent import Confluent
from tests.peers.apache_kafka import OLD_CLIENTS, java_command
from tests.peers.kctl_broker import KctlBroker, kctl_broker

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("OldClient.java")
COUNT = 300
FIRST_WITH_WHOLE_BATCHES = "0.10.2.2"
END = "."
EXIT_TIMEOUT_S = 60


class OldClient:
    """One JVM with the clients of a version, which runs one command after the other."""

    def __init__(self, version: str, errors: Path) -> None:
        self.version = version
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                java_command(version, str(PROGRAM), []),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                bufsize=1,
            )

    def run(self, *arguments: str) -> list[str]:
        """The lines that the command has printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(arguments) + "\n")
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == END:
                return lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the client has ended:\n{self._errors.read_text()}")

    def close(self) -> None:
        """Closes the input of the client, which then ends."""
        try:
            self._process.communicate(timeout=EXIT_TIMEOUT_S)
        finally:
            self._process.kill()
        assert self._process.returncode == 0, self._errors.read_text()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    """One broker is enough, because clients do not use ZooKeeper."""
    with kctl_broker(tmp_path_factory.mktemp("old-java-clients") / "data") as started:
        yield started


@pytest.fixture(scope="module", params=OLD_CLIENTS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldClient]:
    with contextlib.closing(OldClient(request.param, tmp_path_factory.mktemp("old-client") / "errors")) as started:
        yield started


def topic_for(broker: KctlBroker, name: str) -> str:
    Confluent(broker.bootstrap).create_topic(name, 1)
    return name


@pytest.mark.parametrize(
    "codec", ["none", "lz4", *(pytest.param(codec, marks=pytest.mark.matrix) for codec in ("gzip", "snappy"))]
)
def test_an_old_java_client_reads_its_own_records(broker: KctlBroker, client: OldClient, codec: str) -> None:
    topic = topic_for(broker, f"java-{client.version}-{codec}")
    assert client.run("produce", broker.bootstrap, topic, codec, str(COUNT)) == [str(i) for i in range(COUNT)]
    expected = [f"{i} key_{i} value_{i}" for i in range(COUNT)]
    assert client.run("consume", broker.bootstrap, topic, str(COUNT), "100000") == expected
    assert len(Confluent(broker.bootstrap).consume(topic, COUNT)) == COUNT


def test_an_old_java_client_reads_records_of_a_new_client(broker: KctlBroker, client: OldClient) -> None:
    topic = topic_for(broker, f"for-java-{client.version}")
    codecs = ("none", "gzip", "snappy", "lz4")
    for codec in codecs:
        Confluent(broker.bootstrap).produce(topic, [(b"k%d" % i, codec.encode()) for i in range(50)], codec)
    expected = [f"{i} k{i % 50} {codecs[i // 50]}" for i in range(200)]
    assert client.run("consume", broker.bootstrap, topic, "200", "100000") == expected


def test_a_batch_above_the_fetch_size_is_an_error_before_0_10_1_and_returned_since(
    broker: KctlBroker, client: OldClient
) -> None:
    topic = topic_for(broker, f"large-for-java-{client.version}")
    Confluent(broker.bootstrap).produce(topic, [(b"k", b"v" * 1000)])
    seen = client.run("consume", broker.bootstrap, topic, "1", "100")
    if client.version == FIRST_WITH_WHOLE_BATCHES:
        assert seen == ["0 k " + "v" * 1000]
    else:
        assert seen == ["! RecordTooLargeException"]

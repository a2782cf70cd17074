"""Java clients of the versions with message formats 0 and 1, unchanged, against kctl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clients.confluent import Confluent
from tests.peers.apache_kafka import OLD_CLIENTS, run_java_tool
from tests.peers.kctl_broker import KctlBroker, kctl_broker

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("OldClient.java")
COUNT = 300
FIRST_WITH_WHOLE_BATCHES = "0.10.2.2"

versions = pytest.mark.parametrize("version", OLD_CLIENTS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    """One broker is enough, because clients do not use ZooKeeper."""
    with kctl_broker(tmp_path_factory.mktemp("old-java-clients") / "data") as started:
        yield started


def run(version: str, *arguments: str) -> list[str]:
    finished = run_java_tool(version, str(PROGRAM), arguments)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


def topic_for(broker: KctlBroker, name: str) -> str:
    Confluent(broker.bootstrap).create_topic(name, 1)
    return name


@versions
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_an_old_java_client_reads_its_own_records(broker: KctlBroker, version: str, codec: str) -> None:
    topic = topic_for(broker, f"java-{version}-{codec}")
    assert run(version, "produce", broker.bootstrap, topic, codec, str(COUNT)) == [str(i) for i in range(COUNT)]
    expected = [f"{i} key_{i} value_{i}" for i in range(COUNT)]
    assert run(version, "consume", broker.bootstrap, topic, str(COUNT), "100000") == expected
    assert len(Confluent(broker.bootstrap).consume(topic, COUNT)) == COUNT


@versions
def test_an_old_java_client_reads_records_of_a_new_client(broker: KctlBroker, version: str) -> None:
    topic = topic_for(broker, f"for-java-{version}")
    codecs = ("none", "gzip", "snappy", "lz4")
    for codec in codecs:
        Confluent(broker.bootstrap).produce(topic, [(b"k%d" % i, codec.encode()) for i in range(50)], codec)
    expected = [f"{i} k{i % 50} {codecs[i // 50]}" for i in range(200)]
    assert run(version, "consume", broker.bootstrap, topic, "200", "100000") == expected


@versions
def test_a_batch_above_the_fetch_size_is_an_error_before_0_10_1_and_returned_since(
    broker: KctlBroker, version: str
) -> None:
    topic = topic_for(broker, f"large-for-java-{version}")
    Confluent(broker.bootstrap).produce(topic, [(b"k", b"v" * 1000)])
    seen = run(version, "consume", broker.bootstrap, topic, "1", "100")
    if version == FIRST_WITH_WHOLE_BATCHES:
        assert seen == ["0 k " + "v" * 1000]
    else:
        assert seen == ["! RecordTooLargeException"]

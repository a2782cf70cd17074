"""An Apache Kafka broker runs on the embedded ZooKeeper, and kctl reads the znodes it writes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kctl.zookeeper import paths, znodes
from kctl.zookeeper.broker_znodes import decode_broker, encode_broker
from kctl.zookeeper.session import ZooKeeperSession
from tests.peers import apache_kafka, probe
from tests.peers.embedded_zookeeper import EmbeddedZooKeeperProcess

pytestmark = pytest.mark.jvm

VERSION = apache_kafka.OLDEST_JUDGE


def topics(bootstrap: str, *words: str) -> str:
    command = ["--bootstrap-server", bootstrap, *words]
    result = apache_kafka.run_java_tool(VERSION, "kafka.admin.TopicCommand", command)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


async def read(connect: str) -> None:
    session = ZooKeeperSession(connect)
    await session.start(10_000)
    try:
        data, stat = await session.get(paths.broker(0))
        assert json.loads(encode_broker(decode_broker("", data))) == json.loads(data)
        assert stat.ephemeral_owner
        data, _ = await session.get(paths.topic("orders"))
        topic = znodes.decode_topic("", data)
        assert set(topic.replicas) == {0, 1, 2}
        assert json.loads(znodes.encode_topic(topic)) == json.loads(data)
        data, stat = await session.get(paths.partition_state("orders", 2))
        assert znodes.decode_partition_state("", data, stat.version).isr == (0,)
        data, _ = await session.get(paths.topic_config("orders"))
        assert znodes.decode_config("", data) == {"retention.ms": "100000"}
        data, _ = await session.get(paths.CONTROLLER)
        assert znodes.decode_controller("", data).broker_id == 0
    finally:
        await session.close()


@pytest.mark.timeout(300)
def test_apache_kafka_runs_on_the_embedded_zookeeper_and_survives_its_kill_9(
    embedded: EmbeddedZooKeeperProcess, tmp_path: Path
) -> None:
    if (reason := apache_kafka.why_not()) is not None:
        pytest.skip(reason)
    connect = f"{embedded.connect}/kafka"
    with apache_kafka.apache_kafka(VERSION, tmp_path / "kafka", zookeeper=connect) as bootstrap:
        topics(bootstrap, "--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=100000")
        asyncio.run(read(connect))
        embedded.kill9()
        embedded.start()
        topics(bootstrap, "--create", "--topic", "after", "--partitions", "1")
        topics(bootstrap, "--delete", "--topic", "orders")
        probe.wait_until(lambda: topics(bootstrap, "--list").split() == ["after"], what="deletion", timeout_s=60)
        assert "expired" not in embedded.log_text

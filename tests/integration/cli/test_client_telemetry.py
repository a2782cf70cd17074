"""What our clients push to an Apache Kafka broker that has a receiver of client metrics (KIP-714)."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kctl.admin import AdminClient, AdminConfig
from kctl.client import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    ShareConsumer,
    ShareConsumerConfig,
)
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.records.compression import Codec
from tests.integration.cli.conftest import Kctl, command_line
from tests.peers import apache_kafka, probe

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

RECEIVER = Path(apache_kafka.__file__).with_name("TelemetryReceiver.java")
TOPIC = "measured"
TIMEOUT_MS = 60_000


class Value(NamedTuple):
    """A value as the broker has decoded it."""

    client_instance_id: str
    is_last: str
    resource: str
    name: str
    kind: str
    value: str
    labels: str


class Receiver(NamedTuple):
    """A broker, and the file with what clients have pushed to it."""

    bootstrap: str
    file: Path
    kctl: Kctl

    def values(self, client: uuid.UUID) -> list[Value]:
        text = self.file.read_text() if self.file.exists() else ""
        lines = [Value(*line.split("\t")) for line in text.splitlines() if line.count("\t") == 6]
        return [line for line in lines if kafka_id(line.client_instance_id) == client]

    def subscribe(self, metrics: str, interval_ms: int = 100) -> None:
        ran = self.kctl(
            f"configs alter client-metrics all --set interval.ms={interval_ms} --set metrics={metrics} --yes"
        )
        assert ran.status == 0, ran.err


def kafka_id(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("receiver")
    properties = {"metric.reporters": RECEIVER.stem, "telemetry.file": str(folder / "pushed")}
    with apache_kafka.apache_kafka_process(
        apache_kafka.NEWEST_BROKER, folder, properties=properties, plugin=RECEIVER
    ) as (bootstrap, _):
        kctl = command_line({"KCTL_BOOTSTRAP_SERVER": bootstrap, "XDG_STATE_HOME": str(folder / "state")})
        assert kctl(f"topics create {TOPIC} --partitions 1").status == 0
        yield Receiver(bootstrap, folder / "pushed", kctl)


def total(values: list[Value], name: str) -> float:
    """The sum of what was pushed as differences."""
    pushed = [value for value in values if value.name == name]
    assert {value.kind for value in pushed} <= {"delta"}
    return sum(float(value.value) for value in pushed)


def test_producers_and_consumers_push_their_metrics_under_the_names_of_kafka(receiver: Receiver) -> None:
    receiver.subscribe("*")
    with Producer(ProducerConfig(bootstrap_servers=receiver.bootstrap)) as producer:
        sender = producer.client_instance_id(TIMEOUT_MS)
        for number in range(20):
            producer.send(TOPIC, b"%d" % number)
        producer.flush()
        sent = "org.apache.kafka.producer.record.send.total"
        probe.wait_until(lambda: total(receiver.values(sender), sent) == 20, what="pushed metrics", timeout_s=60)
        producer.send(TOPIC, b"20").result()
    pushed = receiver.values(sender)
    assert total(pushed, sent) == 21, "the last record is in the last push"
    assert [value.is_last for value in pushed] == sorted(value.is_last for value in pushed)
    assert pushed[-1].is_last == "true"
    assert total(pushed, "org.apache.kafka.producer.connection.creation.total") >= 1
    names = {value.name for value in pushed}
    assert {
        "org.apache.kafka.producer.connection.creation.rate",
        "org.apache.kafka.producer.node.request.latency.avg",
        "org.apache.kafka.producer.node.request.latency.max",
        "org.apache.kafka.producer.produce.throttle.time.max",
        "org.apache.kafka.producer.record.queue.time.avg",
    } <= names
    nodes = {value.labels for value in pushed if value.name.startswith("org.apache.kafka.producer.node.")}
    assert nodes == {"node_id=0"}

    config = ConsumerConfig(
        bootstrap_servers=receiver.bootstrap, group_id="measured", client_rack="r7", auto_offset_reset="earliest"
    )
    with Consumer(config) as consumer:
        consumer.subscribe([TOPIC])
        reader = consumer.client_instance_id(TIMEOUT_MS)
        read = 0
        while read < 21:
            read += len(consumer.poll())
        consumer.commit()
    pushed = receiver.values(reader)
    assert total(pushed, "org.apache.kafka.consumer.fetch.manager.records.consumed.total") == 21
    names = {value.name for value in pushed}
    assert {
        "org.apache.kafka.consumer.coordinator.assigned.partitions",
        "org.apache.kafka.consumer.coordinator.commit.latency.max",
        "org.apache.kafka.consumer.fetch.manager.fetch.latency.avg",
        "org.apache.kafka.consumer.fetch.manager.records.lag",
    } <= names
    last = [value for value in pushed if value.is_last == "true"]
    assert all(value.resource.startswith("client_rack=r7,group_id=measured,group_member_id=") for value in last)
    lag = [value for value in last if value.name == "org.apache.kafka.consumer.fetch.manager.records.lag"]
    assert [(value.labels, float(value.value)) for value in lag] == [(f"topic={TOPIC},partition=0", 0.0)]


def test_only_metrics_with_the_prefix_are_pushed_in_every_codec(receiver: Receiver) -> None:
    receiver.subscribe("org.apache.kafka.producer.record.")

    async def push(codec: Codec) -> uuid.UUID:
        async with AsyncProducer(ProducerConfig(bootstrap_servers=receiver.bootstrap)) as producer:
            assert producer._reporter is not None
            producer._reporter._state.refused_codecs = frozenset(set(Codec) - {codec})
            await (await producer.send(TOPIC, b"one"))
            return await producer.client_instance_id(TIMEOUT_MS)

    async def run() -> list[uuid.UUID]:
        return await asyncio.gather(*map(push, Codec))

    clients = asyncio.run(run())
    assert len(set(clients)) == len(Codec)
    for client in clients:
        pushed = receiver.values(client)
        assert total(pushed, "org.apache.kafka.producer.record.send.total") == 1
        assert all(value.name.startswith("org.apache.kafka.producer.record.") for value in pushed)


def test_every_client_has_an_id_unless_its_telemetry_is_off(receiver: Receiver) -> None:
    receiver.subscribe("*")
    servers = receiver.bootstrap
    with AdminClient(AdminConfig(bootstrap_servers=servers, enable_metrics_push=True)) as admin:
        administrator = admin.client_instance_id(TIMEOUT_MS)
    with ShareConsumer(ShareConsumerConfig(bootstrap_servers=servers, group_id="sharing")) as consumer:
        consumer.subscribe([TOPIC])
        sharer = consumer.client_instance_id(TIMEOUT_MS)
        assert consumer.client_instance_id(0 + TIMEOUT_MS) == sharer
    assert any(value.name.startswith("org.apache.kafka.admin.client.") for value in receiver.values(administrator))
    names = {value.name for value in receiver.values(sharer)}
    assert "org.apache.kafka.consumer.share.coordinator.assigned.partitions" in names

    async def off() -> None:
        async with AsyncConsumer(ConsumerConfig(bootstrap_servers=servers, enable_metrics_push=False)) as reader:
            with pytest.raises(UsageError, match="enable_metrics_push=True"):
                await reader.client_instance_id(TIMEOUT_MS)
            with pytest.raises(UsageError, match="timeout_ms must be"):
                await reader.client_instance_id(-1)

    asyncio.run(off())


@pytest.mark.parametrize("bootstrap", ["kctl"], indirect=True)
def test_a_broker_without_a_receiver_gets_no_telemetry(bootstrap: str) -> None:
    with Producer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
        with pytest.raises(ApiError, match="no receiver of client metrics") as refused:
            producer.client_instance_id(TIMEOUT_MS)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

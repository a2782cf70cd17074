"""`kctl metrics serve` against kctl's and Apache Kafka's brokers, read by Prometheus and by promtool."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families as parse_text

from kctl.output.log_folding import LOG_LINES_OF_EVENT_MAX
from tests.integration.cli.conftest import ON_OURS, command_line
from tests.peers import probe
from tests.peers.forked_kctl import program
from tests.peers.process import Process

TIMEOUT_S = 60
ODD_GROUP = 'odd "group"\\\n\u00e4'
NAMES_OF_KAFKA_EXPORTER = 'non-histogram and non-summary metrics should not have "_sum" suffix'
"""What promtool recommends against in kafka_consumergroup_lag_sum and kafka_consumergroup_current_offset_sum."""

SERIES = {
    "kafka_brokers": set(),
    "kafka_broker_info": {"id", "address"},
    "kafka_topic_partitions": {"topic"},
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partition_oldest_offset": {"topic", "partition"},
    "kafka_topic_partition_leader": {"topic", "partition"},
    "kafka_topic_partition_replicas": {"topic", "partition"},
    "kafka_topic_partition_in_sync_replica": {"topic", "partition"},
    "kafka_topic_partition_leader_is_preferred": {"topic", "partition"},
    "kafka_topic_partition_under_replicated_partition": {"topic", "partition"},
    "kafka_consumergroup_members": {"consumergroup"},
    "kafka_consumergroup_current_offset": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_current_offset_sum": {"consumergroup", "topic"},
    "kafka_consumergroup_lag": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_lag_sum": {"consumergroup", "topic"},
}
"""Names and labels in kafka_exporter.go of github.com/danielqsj/kafka_exporter at 953e2f17, except those for groups in
ZooKeeper."""

DASHBOARD = (
    'sum(rate(kafka_topic_partition_current_offset{instance="$instance", topic=~"$topic"}[1m])) by (topic)',
    'sum(kafka_consumergroup_lag{instance="$instance",topic=~"$topic"}) by (consumergroup, topic) ',
    "sum(delta(kafka_topic_partition_current_offset{instance=~'$instance', topic=~\"$topic\"}[5m])/5) by (topic)",
    "sum(delta(kafka_consumergroup_current_offset{instance=~'$instance',topic=~\"$topic\"}[5m])/5) by (consumergroup, topic)",  # noqa: E501
    'sum by(topic) (kafka_topic_partitions{instance="$instance",topic=~"$topic"})',
    'kafka_consumergroup_current_offset{job=~"$job"}',
    "kafka_topic_partition_current_offset{instance='$instance',topic!='__consumer_offsets',topic!='--kafka'}",
)
"""The queries of all panels of Grafana's dashboard 7589, and those of its variables without label_values(): from
kafka_exporter_overview.json in the same repository."""


class Exporter:
    """A running exporter."""

    def __init__(self, port: int, process: Process) -> None:
        self.port = port
        self.process = process

    def get(self, path: str = "/metrics") -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=TIMEOUT_S) as response:
            body: bytes = response.read()
        return body.decode()

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        return [
            (dict(sample.labels), sample.value)
            for family in parse_text(self.get())
            for sample in family.samples
            if sample.name == name
        ]


@pytest.fixture(scope="session")
def exporter(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """An exporter of a cluster with ten records, of which the group has read four."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("exported", 2, 1)])["exported"].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce("exported", b"value", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    for group in ("readers", ODD_GROUP):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("exported", 0, 4)], asynchronous=False)
        consumer.close()
    port = probe.free_port()
    command = [*program(), "metrics", "serve", "--port", str(port), "--cache", "200ms"]
    log = tmp_path_factory.mktemp("exporter") / "output"
    with Process("exporter", [*command, "--bootstrap-server", bootstrap], log=log) as process:
        process.wait_until(lambda: probe.accepts(f"127.0.0.1:{port}"), timeout_s=TIMEOUT_S)
        yield Exporter(port, process)


def test_series_and_labels_are_those_of_kafka_exporter(exporter: Exporter) -> None:
    found: dict[str, set[str]] = {}
    for family in parse_text(exporter.get()):
        for sample in family.samples:
            found.setdefault(sample.name, set(sample.labels))
    assert {name: found.get(name) for name in SERIES} == SERIES
    of_readers = {"consumergroup": "readers", "topic": "exported", "partition": "0"}
    assert (of_readers, 6.0) in exporter.samples("kafka_consumergroup_lag")
    assert (of_readers, 4.0) in exporter.samples("kafka_consumergroup_current_offset")
    assert ({"topic": "exported", "partition": "0"}, 10.0) in exporter.samples("kafka_topic_partition_current_offset")
    [age_s] = [age for labels, age in exporter.samples("kafka_consumergroup_lag_seconds") if labels == of_readers]
    assert 0 < age_s < 3600
    assert ODD_GROUP in {labels["consumergroup"] for labels, _ in exporter.samples("kafka_consumergroup_members")}


def test_promtool_finds_nothing_but_names_of_kafka_exporter(exporter: Exporter) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    ran = subprocess.run(
        ["promtool", "check", "metrics"], input=exporter.get(), capture_output=True, text=True, timeout=60, check=False
    )
    lines = (ran.stdout + ran.stderr).splitlines()
    assert [line for line in lines if not line.endswith(NAMES_OF_KAFKA_EXPORTER)] == []


def test_every_query_of_dashboard_7589_has_data(exporter: Exporter, tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    port = probe.free_port()
    instance = f"127.0.0.1:{exporter.port}"
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "kafka", "static_configs": [{"targets": [instance]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    command = [
        "prometheus",
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]

    def query_result(query: str) -> list[Any]:
        for name, value in (("$instance", instance), ("$topic", "exported|other"), ("$job", "kafka")):
            query = query.replace(name, value)
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            document = json.load(response)
        assert document["status"] == "success"
        result: list[Any] = document["data"]["result"]
        return result

    with Process("Prometheus", command, log=tmp_path / "output") as prometheus:
        ready = f"http://127.0.0.1:{port}/-/ready"
        prometheus.wait_until(lambda: is_ok(ready), timeout_s=TIMEOUT_S)
        # A rate takes two scrapes.
        prometheus.wait_until(lambda: bool(query_result(DASHBOARD[0])), timeout_s=TIMEOUT_S)
        assert [query for query in DASHBOARD if not query_result(query)] == []
        [lag] = [series for series in query_result(DASHBOARD[1]) if series["metric"]["consumergroup"] == "readers"]
        assert lag["value"][1] == "6"


@ON_OURS
def test_a_thousand_scrapes_at_once_and_one_that_never_reads_do_no_harm(exporter: Exporter) -> None:
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    async def scrape() -> bool:
        """Whether there was a response; connections beyond the limit are closed without one."""
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", exporter.port)
            try:
                writer.write(request)
                return await reader.read(12) == b"HTTP/1.1 200"
            finally:
                writer.close()

    async def scrape_often() -> list[bool | BaseException]:
        return await asyncio.gather(*(scrape() for _ in range(1000)), return_exceptions=True)

    with socket.create_connection(("127.0.0.1", exporter.port), timeout=TIMEOUT_S) as unread:
        unread.sendall(request)
        assert True in asyncio.run(scrape_often())
        url = f"http://127.0.0.1:{exporter.port}/metrics"
        probe.wait_until(lambda: is_ok(url), what="a scrape afterwards", timeout_s=TIMEOUT_S)
    assert exporter.process.log_text.count("refusing a metrics connection") <= LOG_LINES_OF_EVENT_MAX


def is_ok(url: str) -> bool:
    """Whether the response has status 200."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def test_health_and_readiness_respond_ok(exporter: Exporter) -> None:
    assert exporter.get("/healthz") == exporter.get("/readyz") == "ok\n"


def test_a_cluster_that_cannot_be_reached_is_status_503_with_the_reason(tmp_path: Path) -> None:
    port, nobody = probe.free_port(), probe.free_port()
    command = [*program(), "metrics", "serve", "--port", str(port), "--timeout", "1s"]
    with Process(
        "exporter", [*command, "--bootstrap-server", f"127.0.0.1:{nobody}"], log=tmp_path / "output"
    ) as process:
        process.wait_until(lambda: probe.accepts(f"127.0.0.1:{port}"), timeout_s=TIMEOUT_S)
        with pytest.raises(urllib.error.HTTPError) as refused:
            Exporter(port, process).get()
        assert refused.value.code == 503
        assert str(nobody) in refused.value.read().decode()
        refused.value.close()
        assert process.is_running
        ran = command_line({"KCTL_BOOTSTRAP_SERVER": f"127.0.0.1:{nobody}"})(f"metrics serve --port {port}")
        assert ran.status == 1
        assert "is in use by another process: choose another port for metrics with --port\n" in ran.err
    assert process.log_text.count("the cluster cannot be read") == 1

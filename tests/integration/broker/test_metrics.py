"""Metrics of real brokers, scraped over HTTP and read by the parsers of other projects."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text

from docs.reference.generate import dashboard_queries, samples_of
from kctl.metrics.definitions import Dialect
from kctl.server.metrics.catalogue import DEFINITIONS
from tests.peers import probe
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import KctlBroker, kctl_broker

ADVICE = "choose another port for metrics with --metrics-port"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ONLY_WITH_WORK = ("kafka_server_fetcherlagmetrics_", "kafka_server_fetcherstats_", "kctl_server_authorizer_")
"""These metrics have a value for each fetcher, and for what is denied; here there is one broker, which follows no other
and has no authorizer.
"""
KAFKAS_OWN = (
    "metric names should not contain abbreviated units",
    "label names should be written in 'snake_case' not 'camelCase'",
    'non-histogram and non-summary metrics should not have "_count" suffix',
    'non-histogram and non-summary metrics should not have "_sum" suffix',
)
"""What promtool recommends against in names of Kafka and of the rules of the JMX exporter."""


for_one_naming = pytest.mark.parametrize("measured", [Dialect.JMX], indirect=True)
"""For tests whose outcome does not depend on the naming."""


class Measured(NamedTuple):
    """A broker with metrics."""

    broker: KctlBroker
    port: int
    dialect: Dialect

    def get(self, path: str = "/metrics", accept: str = "text/plain") -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=60) as response:
            body: bytes = response.read()
        return body.decode()

    def samples(self) -> dict[str, list[dict[str, str]]]:
        """The labels of all samples by name."""
        found: dict[str, list[dict[str, str]]] = {}
        for family in parse_text(self.get()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(dict(sample.labels))
        return found

    def value(self, name: str, **labels: str) -> float:
        [value] = [
            sample.value
            for family in parse_text(self.get())
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        ]
        return value


@pytest.fixture(scope="module", params=list(Dialect))
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    port = probe.free_port()
    properties = {"metrics.port": str(port), "metrics.naming": request.param.value}
    with kctl_broker(tmp_path_factory.mktemp(request.param.value) / "data", properties=properties) as started:
        at = ("--bootstrap-server", started.bootstrap)
        rates = (
            "--producer-rate",
            "1GB",
            "--consumer-rate",
            "1GB",
            "--request-percentage",
            "9999",
            "--mutation-rate",
            "99",
        )
        kctl("quotas", "alter", "--default-user", *rates, "--yes", *at)
        one = Measured(started, port, request.param)
        producer = Producer({"bootstrap.servers": started.bootstrap, "client.id": 'a"b\\c'})
        producer.produce("orders", b"hello")
        assert producer.flush(30) == 0
        kctl("consume", "orders", "--from", "start", "--until", "end", *at)
        kctl("groups", "reset-offsets", "readers", "--topic", "orders", "--to-earliest", "--yes", "--no-backup", *at)
        # The first scrape: later ones within METRICS_LAG_CACHE_MS share its collection of lag.
        probe.wait_until(lambda: 'consumergroup="readers"' in one.get(), what="lag", timeout_s=60)
        probe.wait_until(
            lambda: "request_time{" in one.get() or kctl("topics", "list", *at) is None, what="quotas", timeout_s=60
        )
        yield one


def parsed_openmetrics(text: str) -> list[Metric]:
    return list(openmetrics_parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def kctl(*words: str) -> str:
    ran = run_kctl(*words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_declared_metric_is_in_a_scrape(measured: Measured) -> None:
    found = measured.samples()
    for definition in DEFINITIONS:
        for name, labels in samples_of(definition, measured.dialect).items():
            if name.startswith(ONLY_WITH_WORK):
                continue
            assert name in found, definition
            assert any(labels <= labels_of_sample.keys() for labels_of_sample in found[name]), (name, found[name])


def test_every_query_of_a_dashboard_of_this_naming_has_data(measured: Measured) -> None:
    found = measured.samples()
    queried = [q for q in dashboard_queries() if q.naming == measured.dialect and not q.reason]
    assert queried
    assert [query.metric for query in queried if query.metric not in found] == []


@for_one_naming
def test_lag_of_a_group_is_that_of_the_command_line(measured: Measured) -> None:
    labels = {"consumergroup": "readers", "topic": "orders", "partition": "0"}
    assert measured.value("kafka_consumergroup_lag", **labels) == 1
    at = ("--bootstrap-server", measured.broker.bootstrap)
    [row] = json.loads(kctl("groups", "lag", "readers", "--format", "json", *at))
    assert row["lag"] == 1
    assert measured.value("kafka_consumergroup_lag_seconds", **labels) > 0


def test_openmetrics_is_parsed_strictly(measured: Measured) -> None:
    families = parsed_openmetrics(measured.get(accept=OPENMETRICS))
    assert len({family.name for family in families}) == len(families) > len(DEFINITIONS)


def name_of(metric: str, dialect: Dialect) -> str:
    [name] = [
        name for definition in DEFINITIONS if definition.name == metric for name in samples_of(definition, dialect)
    ]
    return name


def test_a_refused_record_without_a_key_is_counted(measured: Measured) -> None:
    at = ("--bootstrap-server", measured.broker.bootstrap)
    kctl("topics", "create", "compacted", "--set", "cleanup.policy=compact", *at)
    errors = []
    producer = Producer({"bootstrap.servers": measured.broker.bootstrap})
    producer.produce("compacted", b"value", on_delivery=lambda error, _: errors.append(error and error.name()))
    assert producer.flush(60) == 0
    assert errors == ["INVALID_RECORD"]
    assert measured.value(name_of("NoKeyCompactedTopicRecordsPerSec", measured.dialect)) == 1


def test_what_a_client_did_is_counted(measured: Measured) -> None:
    messages = name_of("MessagesInPerSec", measured.dialect)
    assert measured.value(messages, topic="orders") == 1
    assert measured.value("kafka_log_log_logendoffset", topic="orders", partition="0") == 1
    assert measured.value("kafka_server_kafkaserver_brokerstate") == 3


def test_promtool_reports_only_the_names_of_kafka(measured: Measured) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    text = measured.get()
    assert 'kafka_consumergroup_lag{consumergroup="readers"' in text
    ran = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    lines = (ran.stdout + ran.stderr).splitlines()
    assert [line for line in lines if not line.endswith(KAFKAS_OWN)] == []


@for_one_naming
def test_health_and_readiness_respond_ok(measured: Measured) -> None:
    assert measured.get("/healthz") == "ok\n"
    assert measured.get("/readyz") == "ok\n"


@for_one_naming
def test_show_finds_the_endpoint_of_the_broker(measured: Measured) -> None:
    words = ("metrics", "show", "--match", "logendoffset.*orders", "--format", "json")
    [row] = json.loads(kctl(*words, "--bootstrap-server", measured.broker.bootstrap))
    assert row == {
        "metric": "kafka_log_log_logendoffset",
        "labels": {"topic": "orders", "partition": "0"},
        "value": 1.0,
    }
    assert json.loads(kctl(*words, "--endpoint", f"127.0.0.1:{measured.port}")) == [row]


def test_show_without_an_endpoint_explains_how_to_enable_metrics(broker: KctlBroker) -> None:
    ran = run_kctl("metrics", "show", "--bootstrap-server", broker.bootstrap)
    assert ran.returncode != 0
    assert "--metrics-port" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_busy_port_is_refused_at_start_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = [sys.executable, "-m", "kctl", "--quiet", "broker", "start", "--data-dir", f"{tmp_path}/data"]
        words += ["--port", "0", "--metrics-port", str(port)]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert [line for line in ran.stderr.splitlines() if str(port) in line] == [
        f"kctl: 127.0.0.1:{port} is in use by another process: {ADVICE}"
    ]


def test_a_lost_zookeeper_is_one_warning_and_the_broker_is_not_ready_until_it_is_back(tmp_path: Path) -> None:
    port = probe.free_port()
    properties = {"metrics.port": str(port), "zookeeper.session.timeout.ms": "6000"}
    with (
        embedded_zookeeper(tmp_path / "zookeeper") as zookeeper,
        kctl_broker(tmp_path / "data", properties=properties, zookeeper=zookeeper.connect) as broker,
    ):
        assert _status(port, "/readyz") == (200, "ok\n")
        zookeeper.kill9()
        suspended = (503, "the session with ZooKeeper is suspended\n")
        probe.wait_until(lambda: _status(port, "/readyz") == suspended, what="the lost connection", timeout_s=60)
        assert _status(port, "/healthz") == (200, suspended[1])
        zookeeper.start()
        probe.wait_until(lambda: _status(port, "/readyz") == (200, "ok\n"), what="the connection", timeout_s=60)
        warnings = [line for line in broker.log_text.splitlines() if " WARNING " in line or " ERROR " in line]
        assert len(warnings) == 1, warnings
        assert "ZooKeeper session changed state=suspended session_timeout_ms=6000" in warnings[0]


def _status(port: int, path: str) -> tuple[int, str]:
    """The status and the body of the response."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()

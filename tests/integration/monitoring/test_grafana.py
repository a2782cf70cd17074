"""Dashboard and alert rules in a Prometheus server that scrapes a broker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.peers import probe
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.process import Process
from tests.rows import for_rows

PACKAGED = Path(__file__).resolve().parents[3] / "packaging/grafana"
DASHBOARD = json.loads((PACKAGED / "kctl-cluster.json").read_text())
RULES = PACKAGED / "kctl-alerts.yml"
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
}
VARIABLES = {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*", "$topic": ".*"}
COMPARISON = re.compile(r" [<>] [0-9.]+$")
"""The end of an alert's expression; what precedes it must have values also while nothing is wrong."""
GROUPED = re.compile(r"by \(([^)]*)\)")

WRONG_FROM_MINUTE = 30
IN_TROUBLE: dict[str, dict[str, tuple[float | str, float | str]]] = {
    "KafkaBrokerDown": {"up": (1, 0)},
    "KafkaOfflinePartitions": {"kafka_controller_kafkacontroller_offlinepartitionscount": (0, 2)},
    "KafkaNoController": {"kafka_controller_kafkacontroller_activecontrollercount": (1, 0)},
    "KafkaSeveralControllers": {"kafka_controller_kafkacontroller_activecontrollercount": (1, 2)},
    "KafkaUnderMinIsr": {"kafka_server_replicamanager_underminisrpartitioncount": (0, 1)},
    "KafkaFailedLogDirectory": {"kafka_log_logmanager_offlinelogdirectorycount": (0, 1)},
    "KafkaUncleanElection": {"kafka_controller_controllerstats_uncleanleaderelections_total": ("+0", "+1")},
    "KafkaUnderReplicated": {"kafka_server_replicamanager_underreplicatedpartitions": (0, 3)},
    "KafkaInSyncReplicasFlap": {"kafka_server_replicamanager_isrshrinks_total": ("+2", "+20")},
    "KafkaEventLoopSlow": {
        'kctl_event_loop_busy_seconds_bucket{le="0.05"}': ("+100", "+0"),
        'kctl_event_loop_busy_seconds_bucket{le="0.5"}': ("+100", "+100"),
        'kctl_event_loop_busy_seconds_bucket{le="+Inf"}': ("+100", "+100"),
    },
    "KafkaBrokerBusy": {"kafka_network_socketserver_networkprocessoravgidlepercent": (0.9, 0.05)},
    "KafkaOpenFilesNearLimit": {"process_open_fds": (100, 900), "process_max_fds": (1000, 1000)},
    "KafkaZooKeeperSessionLost": {"kafka_server_sessionexpirelistener_zookeeperexpires_total": ("+0", "+1")},
    "KafkaFollowerLag": {"kafka_server_replicafetchermanager_maxlag": (99_000, 200_000)},
    "KafkaUncleanableLog": {"kafka_log_logcleanermanager_uncleanable_partitions_count": (0, 1)},
    "KafkaGroupFarBehind": {'kafka_consumergroup_lag_seconds{consumergroup="readers"}': (3000, 4000)},
}
"""For each alert series of one broker, with their values before and after something is wrong; "+N" is the growth of a
counter in a minute.
"""


class Prometheus:
    """A running server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}", timeout=30) as response:
            body = json.loads(response.read())
        assert body["status"] == "success", body
        return body["data"]

    def labels_of(self, expression: str) -> list[dict[str, str]]:
        """The labels of each series in the result."""
        return [series["metric"] for series in self.get("query", query=expression)["result"]]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KctlBroker, int]]:
    """A broker with metrics, and their port."""
    port = probe.free_port()
    with kctl_broker(tmp_path_factory.mktemp("measured") / "data", properties={"metrics.port": str(port)}) as broker:
        work(broker)
        yield broker, port


def work(broker: KctlBroker) -> None:
    """Requests of every kind that the dashboard shows, also one that fails."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        probe.wait_until(lambda: consumer.poll(1) is not None, what="a record", timeout_s=60)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    words = ["topics", "describe", "missing", "--bootstrap-server", broker.bootstrap]
    assert subprocess.run([sys.executable, "-m", "kctl", *words], capture_output=True, check=False).returncode == 1


@pytest.fixture(scope="module")
def prometheus(measured: tuple[KctlBroker, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus server that scrapes the broker every second and evaluates the alert rules."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    _, port = measured
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "kafka", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
    address = f"127.0.0.1:{probe.free_port()}"
    words = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={address}",
    ]
    server = Process("prometheus", words, log=folder / "prometheus.log")
    try:
        found = Prometheus(address)
        two_scrapes = "rate(kafka_network_requestmetrics_requests_total[1m])"
        server.wait_until(lambda: has_result(found, two_scrapes), timeout_s=120)
        yield found
    finally:
        server.stop()


def has_result(prometheus: Prometheus, expression: str) -> bool:
    try:
        return bool(prometheus.labels_of(expression))
    except OSError:
        return False


def test_the_server_has_no_complaint_about_scrapes(prometheus: Prometheus) -> None:
    [target] = prometheus.get("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")


@for_rows("name", QUERIES)
def test_every_query_of_the_dashboard_has_data(prometheus: Prometheus, name: str) -> None:
    expression = QUERIES[name]
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    check(prometheus, expression)


def test_every_variable_of_the_dashboard_has_values(prometheus: Prometheus) -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        assert found, variable
        selector, label = found.groups()
        for name, value in VARIABLES.items():
            selector = selector.replace(name, value)
        assert any(label in labels for labels in prometheus.labels_of(selector)), variable["name"]


def test_every_alert_has_data_and_is_silent(prometheus: Prometheus) -> None:
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in rules] == re.findall(r"- alert: (\w+)", RULES.read_text())
    for rule in rules:
        measured, comparisons = COMPARISON.subn("", rule["query"])
        assert comparisons == 1, rule["query"]
        check(prometheus, measured)
        assert prometheus.labels_of(rule["query"]) == [], rule["name"]


def check(prometheus: Prometheus, expression: str) -> None:
    """The expression has values, with the labels that it groups by."""
    found = prometheus.labels_of(expression)
    assert found, expression
    for names in GROUPED.findall(expression)[:1]:
        kept = {name.strip() for name in names.split(",")} - {"le"}
        assert any(kept <= labels.keys() for labels in found), (expression, found)


def test_promtool_accepts_the_rules() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    words = ["promtool", "check", "rules", str(RULES)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def values(quiet: float | str, wrong: float | str) -> str:
    """One value for each minute of an hour, in promtool's notation."""
    if isinstance(quiet, str):
        reached = int(quiet) * (WRONG_FROM_MINUTE - 1)
        return f"0{quiet}x{WRONG_FROM_MINUTE - 1} {reached + int(str(wrong))}{wrong}x{59 - WRONG_FROM_MINUTE}"
    return f"{quiet}+0x{WRONG_FROM_MINUTE - 1} {wrong}+0x{59 - WRONG_FROM_MINUTE}"


def test_each_alert_fires_when_its_subject_is_wrong_and_no_other_does(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    assert list(IN_TROUBLE) == re.findall(r"- alert: (\w+)", RULES.read_text())
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [
                {
                    "series": series.removesuffix("}")
                    + ("," if "{" in series else "{")
                    + 'job="kafka",instance="broker1:9404"}',
                    "values": values(*change),
                }
                for series, change in metrics.items()
            ],
            "promql_expr_test": [
                {"expr": firing, "eval_time": f"{WRONG_FROM_MINUTE - 1}m"},
                {
                    "expr": firing,
                    "eval_time": "59m",
                    "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
                },
            ],
        }
        for name, metrics in IN_TROUBLE.items()
    ]
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    ran = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_panels_do_not_overlap_and_have_a_description() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])

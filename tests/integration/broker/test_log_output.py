"""A broker's log as JSON: hostile clients, the request log, levels changed while it runs, and policies."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.peers import probe
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import OWN_PROGRAM, KctlBroker, kctl_broker

TIMEOUT_S = 60
SECRET = "payload-of-a-record"
POLICIES = '''
from kctl.server.policies import PolicyViolation


class Names:
    """Topics begin with the broker's property `policy.prefix`."""

    def __init__(self, properties):
        self.prefix = properties["policy.prefix"]

    def validate(self, creation):
        if creation.topic == "broken":
            raise KeyError("a defect of the policy")
        if not creation.topic.startswith(self.prefix):
            raise PolicyViolation(f"{creation.topic} with {creation.partitions} partitions lacks {self.prefix}")


class Retention:
    """retention.ms of topics cannot be changed."""

    def __init__(self, properties):
        pass

    def validate(self, alteration):
        if alteration.resource_type == "TOPIC" and "retention.ms" in alteration.configs:
            raise PolicyViolation(f"retention.ms of {alteration.name} is fixed")
'''


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    folder = tmp_path_factory.mktemp("log-output")
    metadata = folder / "site" / "policies-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: policies\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[kctl.create_topic_policies]\nnames = policies:Names\n\n"
        "[kctl.alter_config_policies]\nretention = policies:Retention\n"
    )
    (folder / "site" / "policies.py").write_text(POLICIES)
    properties = {
        "create.topic.policy.class.name": "names",
        "alter.config.policy.class.name": "retention",
        "policy.prefix": "team.",
        "auto.create.topics.enable": "true",
        "num.io.threads": "16",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCTL_LOG_FORMAT", "json")
        patch.setenv("PYTHONPATH", str(folder / "site"))
        with kctl_broker(folder / "data", properties=properties, run_by=OWN_PROGRAM) as started:
            yield started


def kctl(broker: KctlBroker, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_kctl(*line.split(), "--bootstrap-server", broker.bootstrap, stdin=stdin.encode())


def lines(broker: KctlBroker) -> list[dict[str, Any]]:
    """The log; each of its lines is a JSON object."""
    return [json.loads(line) for line in broker.log_text.splitlines()]


def requests(broker: KctlBroker, api: str) -> list[dict[str, Any]]:
    return [line for line in lines(broker) if line["logger"] == "kctl.request" and line["api"] == api]


def wait_for_requests(broker: KctlBroker, api: str, count: int) -> list[dict[str, Any]]:
    probe.wait_until(lambda: len(requests(broker, api)) >= count, what=f"a line about {api}", timeout_s=TIMEOUT_S)
    return requests(broker, api)


def test_a_client_with_the_consumer_group_protocol_is_named(broker: KctlBroker) -> None:
    """librdkafka waits for ever and reports nothing (KIP-848 is not served)."""
    assert kctl(broker, "topics create team.newer --partitions 1").returncode == 0
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "client.id": "newer"}
    consumer = Consumer({**settings, "group.protocol": "consumer", "log_level": 0})
    consumer.subscribe(["team.newer"])

    def named() -> list[dict[str, Any]]:
        assert consumer.poll(0.1) is None
        return [line for line in lines(broker) if "looks up the coordinator" in line["event"]]

    try:
        probe.wait_until(lambda: bool(named()), what="a line about the client", timeout_s=TIMEOUT_S)
        (line,) = named()
    finally:
        consumer.close()
    assert (line["level"], line["client"], line["group"]) == ("WARNING", "newer", "g")
    assert "group.protocol=classic" in line["hint"]


def test_a_property_without_effect_is_reported_with_the_reason(broker: KctlBroker) -> None:
    (line,) = [line for line in lines(broker) if "num.io.threads" in line["event"]]
    assert line["level"] == "WARNING"
    assert "one event loop handles all requests" in line["event"]


def test_requests_are_logged_with_client_sizes_and_stages_but_without_payload(broker: KctlBroker) -> None:
    assert kctl(broker, "topics create team.logged --partitions 1").returncode == 0
    assert requests(broker, "Produce") == []
    assert kctl(broker, "configs alter broker default --set request.log.mode=all").returncode == 0

    def is_logged() -> bool:
        assert kctl(broker, "produce team.logged", f"{SECRET}\n").returncode == 0
        return bool(requests(broker, "Produce"))

    probe.wait_until(is_logged, what="a line about Produce", timeout_s=TIMEOUT_S)
    line = requests(broker, "Produce")[0]
    assert (line["event"], line["principal"], line["listener"]) == ("request", "User:ANONYMOUS", "PLAINTEXT")
    assert line["peer"] == "/127.0.0.1"
    assert line["version"] >= 3
    assert line["request_bytes"] > len(SECRET)
    assert line["response_bytes"] > 8
    stages = [line[f"{stage}_ms"] for stage in ("queue", "local", "remote", "response_queue", "send")]
    assert all(stage >= 0 for stage in stages)
    assert line["total_ms"] == pytest.approx(sum(stages), abs=0.01)
    assert SECRET not in broker.log_text

    assert kctl(broker, "configs alter broker default --set request.log.mode=off").returncode == 0
    described = "configs describe broker 0 --property request.log.mode --format json"
    probe.wait_until(
        lambda: json.loads(kctl(broker, described).stdout)[0]["configs"][0]["value"] == "off",
        what="the mode",
        timeout_s=TIMEOUT_S,
    )
    count = len(requests(broker, "Metadata"))
    assert kctl(broker, "topics list").returncode == 0
    assert len(requests(broker, "Metadata")) == count


def test_the_level_of_kafkas_request_logger_turns_the_request_log_on(broker: KctlBroker) -> None:
    count = len(requests(broker, "ListGroups"))
    assert kctl(broker, "groups list").returncode == 0
    assert kctl(broker, "loggers set kafka.request.logger=DEBUG").returncode == 0
    assert kctl(broker, "groups list").returncode == 0
    assert len(wait_for_requests(broker, "ListGroups", count + 1)) == count + 1
    assert kctl(broker, "loggers reset kafka.request.logger").returncode == 0
    assert kctl(broker, "groups list").returncode == 0
    assert len(requests(broker, "ListGroups")) == count + 1


def test_policies_refuse_topics_and_changes(broker: KctlBroker) -> None:
    refused = kctl(broker, "topics create orders --partitions 3")
    assert refused.returncode == 1
    assert "POLICY_VIOLATION" in refused.stdout
    assert "orders with 3 partitions lacks team." in refused.stdout
    assert "POLICY_VIOLATION" in kctl(broker, "topics create orders --partitions 3 --dry-run").stdout
    assert "UNKNOWN_SERVER_ERROR" in kctl(broker, "topics create broken").stdout
    (line,) = [line for line in lines(broker) if line["event"].startswith("policy failed")]
    assert line["exception"] == "KeyError: 'a defect of the policy'"
    assert "policies.py" in line["traceback"]

    assert kctl(broker, "topics create team.ruled --partitions 1").returncode == 0
    refused = kctl(broker, "configs alter topic team.ruled --set retention.ms=1")
    assert (refused.returncode, "retention.ms of team.ruled is fixed" in refused.stdout) == (1, True)
    assert kctl(broker, "configs alter topic team.ruled --set segment.bytes=1000").returncode == 0


def test_a_hostile_client_causes_one_line_and_a_count(broker: KctlBroker) -> None:
    clients = 200
    for _ in range(clients):
        with socket.create_connection(probe.address(broker.bootstrap), timeout=TIMEOUT_S) as sock:
            sock.sendall(struct.pack(">i", -7))
            assert sock.recv(1) == b""

    def counted() -> list[dict[str, Any]]:
        return [line for line in lines(broker) if "malformed request" in line["event"]]

    probe.wait_until(
        lambda: len(counted()) + sum(line.get("repeated", 1) - 1 for line in counted()[1:]) >= clients,
        what="the count of repeated lines",
        timeout_s=TIMEOUT_S,
    )
    assert len(counted()) <= 4
    assert {line["peer"] for line in counted()} == {"/127.0.0.1"}

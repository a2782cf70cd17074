"""Properties of topics and brokers on three brokers of kctl and of Apache Kafka."""

from __future__ import annotations

from typing import Any

from tests.integration.cli.conftest import Kctl
from tests.peers import probe

TIMEOUT_S = 60


def configs(operate: Kctl, line: str) -> dict[str, Any]:
    """The properties of one topic or broker, by name."""
    (item,) = operate(f"configs describe {line} --format json").document
    assert item["error"] is None
    return {config["property"]: config for config in item["configs"]}


def test_properties_of_a_topic_are_described_and_altered(operate: Kctl) -> None:
    assert operate("topics create tuned --set retention.ms=1000").status == 0
    line = "configs alter topic tuned --set retention.ms=2000 --append cleanup.policy=compact"
    assert [row[6] for row in operate(f"{line} --dry-run").rows] == ["would be altered"] * 2
    assert configs(operate, "topic tuned")["retention.ms"]["value"] == "1000"

    altered = operate(line)
    assert [row[4:7] for row in altered.rows] == [["delete", "delete,compact", "altered"], ["1000", "2000", "altered"]]
    probe.wait_until(
        lambda: configs(operate, "topic tuned").get("retention.ms", {}).get("value") == "2000",
        what="the new value",
        timeout_s=TIMEOUT_S,
    )
    found = configs(operate, "topic tuned")
    assert found.keys() == {"retention.ms", "cleanup.policy"}
    assert [synonym["source"] for synonym in found["cleanup.policy"]["synonyms"]] == [
        "DYNAMIC_TOPIC_CONFIG",
        "DEFAULT_CONFIG",
    ]
    assert "segment.bytes" in configs(operate, "topic tuned --all")

    line = "configs alter topic tuned --delete-config retention.ms --subtract cleanup.policy=delete"
    assert [row[4:6] for row in operate(line).rows] == [["delete,compact", "compact"], ["2000", "-"]]
    refused = operate("configs alter topic tuned --set retention.ms=soon")
    assert (refused.status, refused.rows[0][7] in {"INVALID_CONFIG", "INVALID_REQUEST"}) == (1, True)
    assert operate("configs describe topic nope").rows[0][8] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_properties_of_brokers_are_described_and_altered(operate: Kctl) -> None:
    name = "message.max.bytes"
    assert operate(f"configs alter broker default --set {name}=1000001").status == 0
    assert operate(f"configs alter broker 1 --set {name}=1000002").status == 0

    def reported() -> list[tuple[str, list[str]]]:
        items = operate(f"configs describe broker 0 1 --property {name} --format json").document
        return [
            (item["configs"][0]["value"], [synonym["source"] for synonym in item["configs"][0]["synonyms"]])
            for item in items
        ]

    default, own = "DYNAMIC_DEFAULT_BROKER_CONFIG", "DYNAMIC_BROKER_CONFIG"
    expected = [("1000001", [default, "DEFAULT_CONFIG"]), ("1000002", [own, default, "DEFAULT_CONFIG"])]
    probe.wait_until(lambda: reported() == expected, what="the new values", timeout_s=TIMEOUT_S)
    assert configs(operate, "broker default").keys() == {name}
    assert operate(f"configs alter broker 1 --delete-config {name}").rows[0][4:6] == ["1000002", "1000001"]
    assert operate(f"configs alter broker default --delete-config {name}").status == 0
    refused = operate("configs alter broker 1 --set broker.id=7")
    assert (refused.status, refused.rows[0][7] in {"INVALID_CONFIG", "INVALID_REQUEST"}) == (1, True)


def test_levels_of_loggers_are_listed_set_and_reset(operate: Kctl) -> None:
    """kctl's brokers accept the names of Kafka's loggers."""
    name = "kafka.server.KafkaServer"
    before = {(row["broker"], row["logger"]): row["level"] for row in operate("loggers list --format json").document}
    assert {broker for broker, logger in before if logger == "root"} == {0, 1, 2}
    assert (1, name) in before

    planned = operate(f"loggers set {name}=trace --broker 1 --dry-run")
    assert planned.rows[0][:5] == ["1", name, before[1, name], "TRACE", "would be altered"]
    assert operate(f"loggers list --broker 1 --match {name}").rows[0][:3] == ["1", name, before[1, name]]

    altered = operate(f"loggers set {name}=TRACE --broker 1")
    assert altered.rows[0][:5] == ["1", name, before[1, name], "TRACE", "altered"]
    levels = {row[0]: row[2] for row in operate(f"loggers list --match {name}").rows}
    assert levels["1"] == "TRACE"
    assert levels["2"] == before[2, name]

    after = operate(f"loggers reset {name} --broker 1 --format json").document[0]
    assert (after["before"], after["status"], after["error"]) == ("TRACE", "altered", None)
    assert after["after"] != "TRACE"

    refused = operate("loggers set no.such.Logger=INFO --format json")
    assert refused.status == 1
    assert {row["error"] for row in refused.document} <= {"INVALID_REQUEST", "INVALID_CONFIG"}  # Since Kafka 3.
    assert operate("loggers set root=LOUD").status == 2


def test_a_changed_advertised_address_is_in_the_metadata_of_all_brokers(operate: Kctl) -> None:
    def hosts(server: str) -> dict[int, tuple[str, int]]:
        brokers = operate(f"cluster describe --format json --bootstrap-server {server}").document["brokers"]
        return {row["broker"]: (row["host"], row["port"]) for row in brokers}

    before = {
        row["broker"]: (row["host"], row["port"])
        for row in operate("cluster describe --format json").document["brokers"]
    }
    servers = [f"{host}:{port}" for host, port in before.values()]
    port = before[1][1]
    (listener,) = {
        config["value"].partition("://")[0]
        for item in operate("configs describe broker 1 --property listeners --format json").document
        for config in item["configs"]
    }
    altered = operate(f"configs alter broker 1 --set advertised.listeners={listener}://localhost:{port}")
    assert altered.rows[0][6] == "altered"
    wanted = before | {1: ("localhost", port)}
    probe.wait_until(
        lambda: all(hosts(server) == wanted for server in servers), what="the new address", timeout_s=TIMEOUT_S
    )
    assert operate("topics create advertised --partitions 3 --replication-factor 3").status == 0
    assert operate("configs alter broker 1 --delete-config advertised.listeners").status == 0
    probe.wait_until(
        lambda: all(hosts(server) == before for server in servers), what="the former address", timeout_s=TIMEOUT_S
    )

"""Properties of groups and client metrics, which Kafka 4 has, and documents of plan and apply there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import KAFKA_4, Kctl

pytestmark = [pytest.mark.parametrize("bootstrap", [KAFKA_4], indirect=True), pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("type_", "name", "value"),
    [("group", "consumer.session.timeout.ms", "50000"), ("client-metrics", "interval.ms", "60000")],
)
def test_property_is_set_described_and_removed(kctl: Kctl, type_: str, name: str, value: str) -> None:
    assert kctl(f"configs alter {type_} of-kafka-4 --set {name}={value}").status == 0
    (item,) = kctl(f"configs describe {type_} of-kafka-4 --format json").document
    (config,) = [config for config in item["configs"] if config["property"] == name]
    assert config["value"] == value
    assert config["source"].startswith("DYNAMIC_")
    # Other tests have groups on this broker, and Kafka describes those too.
    assert item in kctl(f"configs describe {type_} --format json").document
    assert kctl(f"configs alter {type_} of-kafka-4 --delete-config {name}").status == 0


def test_plan_of_kafka_4_has_no_difference_after_apply(kctl: Kctl, tmp_path: Path) -> None:
    document = tmp_path / "cluster.yaml"
    document.write_text(
        "version: 1\nmanaged: {topics: [applied-4]}\n"
        "topics: {applied-4: {partitions: 2, replication_factor: 1, configs: {retention.ms: 1000}}}\n"
        "quotas: [{user: alice, values: {producer_byte_rate: 1024}}]\n"
        'users: [{name: alice, mechanism: SCRAM-SHA-256, password: "${env:PATH}"}]\n'
    )
    applied = kctl(f"apply {document} --yes")
    assert applied.status == 0, applied
    assert kctl(f"plan {document}").status == 0
    exported = tmp_path / "exported.yaml"
    exported.write_text(kctl("plan --export").out)
    assert kctl(f"plan {exported}").status == 0
    document.write_text("version: 1\nmanaged: {topics: [applied-4], quotas: [user=alice], users: [alice]}\n")
    assert kctl(f"apply {document} --delete --yes").status == 0

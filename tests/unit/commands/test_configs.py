"""kctl configs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.topics.overrides import config_differences
from kctl.commands.frame.exit_status import ExitStatus
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest
from kctl.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.rows import for_rows
from tests.unit.admin.moving_cluster import BROKER, TOPIC, MovingCluster
from tests.unit.client.fake_cluster import FakeGroup
from tests.unit.commands.conftest import Kctl

INCREMENTAL_ALTER_CONFIGS = 44
Values = dict[str, str | None]
VALUES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.none() | st.sampled_from(["1", "2"]))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingCluster]:
    with MovingCluster() as started:
        started.place("orders", [0, 1])
        started.overrides[TOPIC, "orders"] = {"retention.ms": "1000"}
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


def test_describe_shows_what_was_set_for_exactly_this(kctl: Kctl, cluster: MovingCluster) -> None:
    assert kctl("configs describe topic orders").rows == [
        [
            *("topic", "orders", "retention.ms", "1000", "DYNAMIC_TOPIC_CONFIG", "false", "false"),
            *("DYNAMIC_TOPIC_CONFIG:retention.ms=1000", "-", "-"),
        ]
    ]
    assert kctl("configs describe broker 1").rows == []


def test_describe_all_shows_sources_and_synonyms(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.overrides[BROKER, "1"] = {"log.cleaner.threads": "3"}
    (item,) = kctl("configs describe broker 1 --all --format json").document
    assert (item["type"], item["name"]) == ("broker", "1")
    assert item["configs"] == [
        {
            "property": "log.cleaner.threads",
            "value": "3",
            "source": "DYNAMIC_BROKER_CONFIG",
            "read_only": False,
            "sensitive": False,
            "synonyms": [
                {"property": "log.cleaner.threads", "value": "3", "source": "DYNAMIC_BROKER_CONFIG"},
                {"property": "log.cleaner.threads", "value": "1", "source": "STATIC_BROKER_CONFIG"},
            ],
        }
    ]


@pytest.mark.parametrize(("options", "requested"), [("", False), ("--all", True), ("--format json", True)])
def test_synonyms_are_requested_only_where_they_are_shown(
    kctl: Kctl, cluster: MovingCluster, options: str, requested: bool
) -> None:
    assert kctl(f"configs describe topic orders --format table {options}").status == ExitStatus.DONE
    assert [request.include_synonyms for _, request in cluster.requested(DescribeConfigsRequest)] == [requested]


def test_describe_sends_a_request_to_each_broker(kctl: Kctl, cluster: MovingCluster) -> None:
    items = kctl("configs describe broker --property log.cleaner.threads --format json").document
    assert [(item["name"], item["error"]) for item in items] == [("0", None), ("1", None), ("2", None)]
    items = kctl("configs describe broker default 7 --format json").document
    assert [(item["name"], item["error"]) for item in items] == [("default", None), ("7", "BROKER_NOT_AVAILABLE")]


def test_describe_of_what_does_not_exist_is_a_row(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("configs describe topic nope orders")
    assert ran.status == ExitStatus.FAILED
    assert [row[8] for row in ran.rows] == ["UNKNOWN_TOPIC_OR_PARTITION", "-"]


def test_alter_changes_some_and_leaves_the_rest(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("configs alter topic orders --set a=b=c --append cleanup.policy=compact --delete-config retention.ms")
    assert ran.rows == [
        ["topic", "orders", "a", "set", "-", "b=c", "altered", "-", "-"],
        ["topic", "orders", "cleanup.policy", "append", "-", "compact", "altered", "-", "-"],
        ["topic", "orders", "retention.ms", "delete", "1000", "-", "altered", "-", "-"],
    ]
    assert cluster.overrides[TOPIC, "orders"] == {"a": "b=c", "cleanup.policy": "compact"}


def test_dry_run_is_validated_by_the_broker_and_changes_nothing(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("configs alter topic orders --set retention.ms=5 --dry-run")
    assert ran.rows == [["topic", "orders", "retention.ms", "set", "1000", "5", "would be altered", "-", "-"]]
    refused = kctl("configs alter topic orders --set no.such.property=5 --dry-run")
    assert (refused.status, refused.rows[0][7]) == (ExitStatus.FAILED, "INVALID_CONFIG")
    assert cluster.overrides[TOPIC, "orders"] == {"retention.ms": "1000"}
    assert len(cluster.requested(IncrementalAlterConfigsRequest)) == 2


@pytest.mark.parametrize(
    "name", ["listener.name.a.ssl.keystore.password", "listener.name.a.plain.sasl.jaas.config", "a.secret"]
)
def test_alter_does_not_show_secrets(kctl: Kctl, cluster: MovingCluster, name: str) -> None:
    ran = kctl(f"configs alter broker 1 --set {name}=hunter2 --set log.cleaner.threads=2")
    assert ran.status == 0
    assert cluster.set_for(BROKER, "1", name) == "hunter2"
    assert "hunter2" not in str(ran)
    assert [row[5] for row in sorted(ran.rows, key=lambda row: row[2] != name)] == ["[hidden]", "2"]


def test_alter_of_brokers_goes_to_each_of_them(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("configs alter broker 1 default 7 --set log.cleaner.threads=2")
    assert ran.status == ExitStatus.FAILED
    assert [(row[1], row[6], row[7]) for row in ran.rows] == [
        ("default", "altered", "-"),
        ("1", "altered", "-"),
        ("7", "-", "BROKER_NOT_AVAILABLE"),
    ]
    assert cluster.set_for(BROKER, "1", "log.cleaner.threads") == "2"
    assert cluster.set_for(BROKER, "", "log.cleaner.threads") == "2"


def test_value_after_a_deletion_is_that_of_the_next_source(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.overrides[BROKER, "1"] = {"log.cleaner.threads": "3"}
    assert kctl("configs alter broker 1 --delete-config log.cleaner.threads").rows[0][4:6] == ["3", "1"]


def test_broker_without_incremental_changes_is_reported(kctl: Kctl, cluster: MovingCluster) -> None:
    """Replacing all properties instead would lose concurrent changes and sensitive values."""
    del cluster.versions[INCREMENTAL_ALTER_CONFIGS]
    cluster.overrides[BROKER, "1"] = {"log.cleaner.threads": "3"}
    (row,) = kctl("configs alter broker 1 --set log.cleaner.threads=5 --format json").document
    assert row["error"] == "UNSUPPORTED_VERSION"
    assert "before Kafka 2.3" in row["message"]
    assert cluster.overrides[BROKER, "1"] == {"log.cleaner.threads": "3"}


@for_rows(
    "line",
    [
        "configs alter topic orders",
        "configs alter topic orders --set a",
        "configs alter topic orders --set a=1 --delete-config a",
        "configs alter topic orders --set a=1 --set a=2",
        "configs alter broker one --set a=1",
        "configs describe tenant g",
    ],
)
def test_invalid_options_are_refused(kctl: Kctl, cluster: MovingCluster, line: str) -> None:
    assert kctl(line).status == ExitStatus.USAGE
    assert cluster.requested(IncrementalAlterConfigsRequest) == []


def test_types_of_kafka_4_are_requested_from_any_broker(kctl: Kctl, cluster: MovingCluster) -> None:
    for type_, number in (("group", 32), ("client-metrics", 16)):
        cluster.overrides[number, "billing"] = {"interval.ms": "1"}
        ran = kctl(f"configs alter {type_} billing --set interval.ms=5")
        assert (ran.status, ran.rows[0][0]) == (ExitStatus.DONE, type_)
        assert cluster.overrides[number, "billing"] == {"interval.ms": "5"}


@pytest.mark.parametrize("newest", [0, 1])
def test_unnamed_client_metrics_and_groups_are_listed(kctl: Kctl, cluster: MovingCluster, newest: int) -> None:
    """Groups of which only properties exist are listed by version 1 alone."""
    cluster.versions[74] = (0, newest)
    cluster.overrides[16, "lag"] = cluster.overrides[16, "errors"] = {"interval.ms": "1"}
    cluster.overrides[32, "billing"] = cluster.overrides[32, "idle"] = {"consumer.session.timeout.ms": "50000"}
    cluster.groups["billing"] = FakeGroup()
    ran = kctl("configs describe client-metrics")
    assert (ran.status, [row[1] for row in ran.rows]) == (ExitStatus.DONE, ["errors", "lag"])
    ran = kctl("configs describe group")
    assert (ran.status, [row[1] for row in ran.rows]) == (ExitStatus.DONE, ["billing", "idle"][: 1 + newest])


def test_brokers_without_client_metrics_are_named(kctl: Kctl, cluster: MovingCluster) -> None:
    del cluster.versions[74]
    ran = kctl("configs describe client-metrics")
    assert ran.status == ExitStatus.FAILED
    assert "has no subscriptions to metrics of clients, which need Kafka 3.7 or newer without ZooKeeper" in ran.err


def test_loggers_are_described_by_their_broker(kctl: Kctl, cluster: MovingCluster) -> None:
    kctl("configs describe logger 1")
    ((broker, request),) = cluster.requested(DescribeConfigsRequest)
    assert broker == 1
    assert [(resource.resource_type, resource.resource_name) for resource in request.resources] == [(8, "1")]


def test_diff_compares_two_topics(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.place("payments", [0])
    cluster.overrides[TOPIC, "payments"] = {"retention.ms": "2000"}
    ran = kctl("configs diff topic orders payments")
    assert ran.status == ExitStatus.UNMET
    assert ran.rows == [["topic", "orders", "payments", "retention.ms", "1000", "2000", "different", "-", "-"]]
    cluster.overrides[TOPIC, "payments"] = {}
    assert kctl("configs diff topic orders payments --own").rows[0][4:7] == ["1000", "-", "only here"]
    cluster.overrides[TOPIC, "payments"] = {"retention.ms": "1000"}
    assert kctl("configs diff topic orders payments").status == ExitStatus.DONE


def test_diff_with_a_file_compares_what_is_in_the_file(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    file = tmp_path / "orders.properties"
    file.write_text("retention.ms=1000\n")
    assert kctl(f"configs diff topic orders --file {file}").status == ExitStatus.DONE
    file.write_text("retention.ms=5\n")
    (row,) = kctl(f"configs diff topic orders --file {file} --format json").document
    assert (row["value"], row["other_value"], row["status"]) == ("1000", "5", "different")
    file.write_text("")
    assert kctl(f"configs diff topic orders --file {file}").status == ExitStatus.DONE
    assert kctl(f"configs diff topic orders --file {file} --own").rows[0][6] == "only here"


def test_diff_compares_with_another_cluster(
    kctl: Kctl, cluster: MovingCluster, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with MovingCluster() as other:
        other.place("orders", [0])
        other.place("new", [0])
        other.overrides[TOPIC, "orders"] = {"retention.ms": "7"}
        kctl(f"profile add other --bootstrap-server {other.bootstrap}")
        for option in (f"--other-bootstrap-server {other.bootstrap}", "--other-profile other"):
            ran = kctl(f"configs diff topic {option} --own")
            assert (ran.status, [row[1:7] for row in ran.rows]) == (
                ExitStatus.UNMET,
                [
                    ["new", "new", "-", "-", "-", "only there"],
                    ["orders", "orders", "retention.ms", "1000", "7", "different"],
                ],
            )


@pytest.mark.parametrize("line", ["topic orders", "topic", "topic a b --file x", "topic a --file x --other-profile y"])
def test_diff_needs_two_sides(kctl: Kctl, cluster: MovingCluster, line: str) -> None:
    assert kctl(f"configs diff {line}").status == ExitStatus.USAGE


def test_diff_of_a_topic_that_does_not_exist_is_a_failure(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("configs diff topic orders nope")
    assert (ran.status, ran.rows[0][7]) == (ExitStatus.FAILED, "UNKNOWN_TOPIC_OR_PARTITION")


@given(VALUES, VALUES)
def test_difference_is_empty_for_equal_properties_and_mirrored(here: Values, there: Values) -> None:
    assert config_differences(here, here) == []
    found = config_differences(here, there)
    mirrored = [(row.property, row.there, row.here, row.is_there, row.is_here) for row in found]
    assert [tuple(difference) for difference in config_differences(there, here)] == mirrored
    assert bool(found) == (here != there)

"""--compat where Kafka's tools fail, or print something else than for what succeeds.

The texts are those of the tools of Apache Kafka 2.8.2, 3.9.1 and 4.3.1; the exit statuses are kctl's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.unit.admin.moving_cluster import TOPIC, MovingCluster
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.quota_cluster import QuotaCluster

VERSIONS = ["kafka-2.8", "kafka-3", "kafka-4"]
FAILED = "Error while executing topic command : "


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingCluster]:
    """The topic `orders` has a property, `plain` has none."""
    with MovingCluster() as started:
        started.place("orders", [0])
        started.place("plain", [0])
        started.overrides[TOPIC, "orders"] = {"retention.ms": "1000"}
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


@pytest.mark.parametrize("compat", VERSIONS)
def test_topic_that_does_not_exist(kctl: Kctl, cluster: MovingCluster, compat: str) -> None:
    ran = kctl(f"topics describe nosuch --compat {compat}")
    name = "Optional[nosuch]" if compat == "kafka-3" else "nosuch"
    assert (ran.status, ran.out) == (ExitStatus.FAILED, f"{FAILED}Topic '{name}' does not exist as expected\n")


@pytest.mark.parametrize("compat", VERSIONS)
def test_topics_with_overrides_are_lines_without_partitions(kctl: Kctl, cluster: MovingCluster, compat: str) -> None:
    ran = kctl(f"topics describe --topics-with-overrides --compat {compat}")
    assert ran.status == ExitStatus.DONE
    (line,) = ran.out.splitlines()
    assert line.startswith("Topic: orders\t")
    assert line.endswith("\tConfigs: retention.ms=1000")
    assert (
        kctl(f"topics describe --topics-with-overrides --unavailable-partitions --compat {compat}").status
        == ExitStatus.USAGE
    )


@pytest.mark.parametrize("compat", VERSIONS)
def test_topic_that_cannot_be_created(kctl: Kctl, cluster: MovingCluster, compat: str) -> None:
    ran = kctl(f"topics create new orders --compat {compat}")
    created, failed = ran.out.splitlines()
    assert (ran.status, created) == (ExitStatus.FAILED, "Created topic new.")
    assert failed.startswith(FAILED)
    assert "topic 'orders': TOPIC_ALREADY_EXISTS" in ran.err


@pytest.mark.parametrize("compat", VERSIONS)
def test_failed_change_of_a_property_is_on_stderr_alone(kctl: Kctl, cluster: MovingCluster, compat: str) -> None:
    ran = kctl(f"configs alter topic orders nosuch --set retention.ms=5 --compat {compat}")
    assert (ran.status, ran.out) == (ExitStatus.FAILED, "Completed updating config for topic orders.\n")
    assert ran.err.startswith("kctl: warning: topic 'nosuch', retention.ms: UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.parametrize("compat", VERSIONS)
def test_removal_of_a_property_that_is_not_set(kctl: Kctl, cluster: MovingCluster, compat: str) -> None:
    line = (
        f"configs alter topic orders --delete-config retention.ms --delete-config min.insync.replicas --compat {compat}"
    )
    ran = kctl(line)
    if compat == "kafka-4":
        assert (ran.status, ran.out) == (ExitStatus.DONE, "Completed updating config for topic orders.\n")
        return
    assert (ran.status, ran.out) == (ExitStatus.FAILED, "")
    assert ran.err == "kctl: Invalid config(s): min.insync.replicas\n"
    assert cluster.requested(IncrementalAlterConfigsRequest) == []


@pytest.mark.parametrize("compat", VERSIONS)
def test_all_topics_are_described_in_the_order_of_a_hash_map(kctl: Kctl, cluster: MovingCluster, compat: str) -> None:
    ran = kctl(f"configs describe topic --compat {compat}")
    assert ran.status == ExitStatus.DONE
    assert [line for line in ran.out.splitlines() if not line.startswith(" ")] == [
        "Dynamic configs for topic plain are:",
        "Dynamic configs for topic orders are:",
    ]


@pytest.mark.parametrize("compat", VERSIONS)
def test_properties_of_a_topic_that_does_not_exist(kctl: Kctl, cluster: MovingCluster, compat: str) -> None:
    ran = kctl(f"configs describe topic nosuch --compat {compat}")
    text = "Dynamic configs for topic nosuch are:\n"
    if compat == "kafka-4":
        text = "The topic 'nosuch' doesn't exist and doesn't have dynamic config.\n"
    assert (ran.status, ran.out) == (ExitStatus.FAILED, text)


@pytest.mark.parametrize("compat", VERSIONS)
def test_quotas_of_each_version(kctl: Kctl, monkeypatch: pytest.MonkeyPatch, compat: str) -> None:
    with QuotaCluster() as quotas:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", quotas.bootstrap)
        ran = kctl(f"configs alter client app --set request_percentage=50.5 --compat {compat}")
        assert (ran.status, ran.out) == (ExitStatus.DONE, "Completed updating config for client app.\n")
        shown = kctl(f"configs describe client app --compat {compat}").out
        assert shown == "Quota configs for client-id 'app' are request_percentage=50.5\n"
        ran = kctl(f"configs alter client app --delete-config consumer_byte_rate --compat {compat}")
        assert (ran.status, ran.out) == (ExitStatus.FAILED, "")
        assert ran.err == "kctl: Invalid config(s): consumer_byte_rate\n"
